"""What one call of the command line asks for, apart from the command's own arguments.

Job: the options that every command takes (before the verb or after it), the environment, and the
service they lead to. Invariants: the environment is read here and nowhere else; what stands after
the verb wins over what stands before it. Never writes anything.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from perdure.core.model import ID_PATTERN
from perdure.errors import UsageError
from perdure.service.tasks import Service, locate

Data = dict[str, Any]


class Request:
    """The common options of a call."""

    def __init__(self, start_dir: str, environ: Mapping[str, str]) -> None:
        self.start_dir = start_dir
        self.environ = environ
        self.directory: str | None = None
        self.json = False
        self.actor_given: str | None = None
        self.op: str | None = None

    @property
    def actor(self) -> str:
        """``--actor``, else PERDURE_ACTOR, else the coordinator of this user's name."""
        return self.actor_as("coordinator")

    def actor_as(self, role: str) -> str:
        """``--actor``, else PERDURE_ACTOR, else this user in the role that the command takes.

        Whoever says who they are is believed and held to it: only a call that says nothing gets
        the role. Raises UsageError for what is no ``role:id``.
        """
        given = self.actor_given or self._actor_of_environment()
        if given:
            named, colon, name = given.partition(":")
            if not (colon and ID_PATTERN.match(named) and ID_PATTERN.match(name)):
                raise UsageError(
                    f"{given!r} is not an actor.",
                    code="bad_actor",
                    fix="Write role:id, for example executor:anna.",
                )
            return given
        user = self.environ.get("USER") or self.environ.get("LOGNAME") or ""
        return f"{role}:{user}" if ID_PATTERN.match(user) else f"{role}:cli"

    def _actor_of_environment(self) -> str | None:
        """PERDURE_ACTOR. What a run calls its commands they are in its own workspace only."""
        own, named = self.environ.get("PERDURE_WORKSPACE"), self.directory
        if own and named is not None and self.environ.get("PERDURE_INVOCATION"):
            wanted, given = os.path.join(self.start_dir, named), os.path.join(self.start_dir, own)
            if os.path.realpath(wanted) != os.path.realpath(given):
                return None
        return self.environ.get("PERDURE_ACTOR")

    @property
    def named_directory(self) -> str | None:
        """The workspace that was named, by ``-C`` or by PERDURE_WORKSPACE; it need not exist."""
        return self.directory or self.environ.get("PERDURE_WORKSPACE") or None

    def service(self, role: str = "coordinator") -> Service:
        """The service for the workspace that this call means. Raises NotFoundError.

        ``role`` is that of a caller who says nothing of who they are.
        """
        workspace = locate(self.directory, self.start_dir, self.environ)
        return Service(workspace, actor=self.actor_as(role))

    def call(self, name: str, args: Mapping[str, Any], *, role: str = "coordinator") -> Data:
        """Carry out one writing call and return its answer; ``role`` as for ``service``."""
        return self.service(role).call(name, args, op=self.op)


def text_of(given: str) -> str:
    """The text of an argument; ``-`` means what comes on standard input."""
    return sys.stdin.read().rstrip("\n") if given == "-" else given


def facts_of(pairs: Iterable[str]) -> dict[str, str]:
    """The facts of ``--fact NAME=VALUE``; the last word on a name counts. Raises UsageError."""
    facts = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"the fact {pair!r} is not NAME=VALUE.",
                code="bad_fact",
                rule="OB-1",
                fix="Write NAME=VALUE, for example --fact provider_job_id=4711.",
            )
        facts[name.strip()] = value
    return facts


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        request = ctx.find_object(Request)
        if request is not None and value not in (None, False):
            setattr(request, name, value)

    return store


def common_options(*, writes: bool = False, hidden: bool = True) -> list[click.Parameter]:
    """The options every command takes; a writing one also takes an op id."""
    options: list[click.Parameter] = [
        click.Option(
            ["-C", "--workspace", "directory"],
            metavar="DIR",
            help="The workspace; else PERDURE_WORKSPACE, else found upward from here.",
            callback=_store("directory"),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            help="Print one JSON object for programs; errors too, on standard error.",
            callback=_store("json"),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["--actor"],
            metavar="ROLE:ID",
            help="Who is asking; else PERDURE_ACTOR, else USER in the usual role.",
            callback=_store("actor_given"),
            expose_value=False,
            hidden=hidden,
        ),
    ]
    if writes:
        options.append(
            click.Option(
                ["--op-id", "op"],
                metavar="ID",
                help="Makes it repeatable: the same id again answers with the first result.",
                callback=_store("op"),
                expose_value=False,
                hidden=hidden,
            )
        )
    return options
