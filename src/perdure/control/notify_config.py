"""``notify.yaml``: where messages to the owner and to the requester go.

Job: find the file, validate it like a task file (every problem with line and column), and put the
values of variables into it when a message is sent. Invariants: a secret stands in it only as a
reference ``${NAME}``, so the file may be shared and what is logged of a channel is harmless; a
variable that is not set concerns its own channel and no other; the result is a function of the
bytes and of the path. Never sends anything, and never reads an environment but the one it is given.
"""

import os
import re
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_tree import (
    Fields,
    Items,
    Place,
    Problem,
    Scalar,
    Tree,
    read_tree,
    refusal,
)
from perdure.errors import NotFoundError, UsageError
from perdure.ports import Disk
from perdure.storage.workspace import find_project

ChannelKind = Literal["terminal", "command", "webhook", "desktop", "apprise"]

FILE_NAME: Final = "notify.yaml"
VARIABLE: Final = "PERDURE_NOTIFY"
notify_file_bytes_max: Final = 256 << 10
channels_max: Final = 32
"""Of one receiver."""
send_limit_s: Final = 30.0
"""How long one channel may take with one message, unless its ``timeout`` says otherwise."""
send_limit_max_s: Final = 300.0
secret_chars_min: Final = 4
"""What is shorter than this is no secret, and would be found in many a word."""

MESSAGE_KINDS: Final = (
    "NUDGE_MAIN_AGENT", "OWNER_RECONCILE", "TRUTH_INCONSISTENT", "EXECUTOR_UNHEALTHY",
    "FINALIZATION_STALLED", "BLOCKED_ESCALATE", "STEP_COMPLETED", "EXTERNAL_JOB_COMPLETED",
    "EXTERNAL_JOB_FAILED", "WORKFLOW_SWITCH", "COMPLETED_HANDOFF",
)  # fmt: skip

_KINDS: Final[tuple[ChannelKind, ...]] = ("terminal", "command", "webhook", "desktop", "apprise")
_HINTS: Final = {
    "url": "webhook", "http": "webhook", "run": "command", "exec": "command", "email": "apprise",
    "slack": "apprise", "mail": "apprise", "stdout": "terminal", "on": "only", "kinds": "only",
}  # fmt: skip
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME: Final = re.compile(
    r"(?i)token|secret|passw|auth|cookie|signature|api[-_]?key|access[-_]?key|\A(?:key|sig|code)\Z"
)
_TOKEN: Final = re.compile(r"(?=[A-Za-z0-9_-]*[0-9])(?=[A-Za-z0-9_-]*[A-Za-z])[A-Za-z0-9_-]{16,}\Z")
"""A piece of an address that nobody would choose for its sound."""
_SECRET_WORD: Final = re.compile(
    r"(?i)\b(?:bearer|basic) +[^\s$]{8}|(?:token|secret|password|passwd|api[-_]?key)[=:] *[^\s$]"
)
_BY_REFERENCE: Final = "put it into a variable and write ${NAME} in its place"


class Channel(msgspec.Struct, frozen=True):
    """One way to a receiver, as the file says it."""

    kind: ChannelKind
    target: str = ""
    """The address, with its references in place."""
    argv: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    timeout_s: float = send_limit_s
    only: tuple[str, ...] = ()
    """The kinds of messages that go here; none: all."""

    @property
    def label(self) -> str:
        """What tells it from the others, with no secret in it."""
        said = " ".join(self.argv) or self.target
        return f"{self.kind} {said}" if said else self.kind


class NotifyConfig(msgspec.Struct, frozen=True):
    """A file that validated, or none: then the requester is told on the terminal."""

    owner: tuple[Channel, ...] = ()
    """Besides the inbox of the workspace, which the owner always gets."""
    requester: tuple[Channel, ...] = (Channel("terminal"),)
    path: str = ""

    def channels(self, receiver: str) -> tuple[Channel, ...]:
        """Those of ``owner`` or ``requester``."""
        return self.owner if receiver == "owner" else self.requester


def expand(text: str, environment: Mapping[str, str], secrets: set[str]) -> str:
    """The text with its references replaced; their values are added to ``secrets``.

    Raises UsageError for the first variable that is unset or empty (``variable_unset``), or has
    what no address and no header may have (``variable_unprintable``).
    """

    def value_of(match: re.Match[str]) -> str:
        value = environment.get(match[1], "")
        if not value:
            raise UsageError(
                f"the variable {match[1]} is not set.",
                code="variable_unset",
                fix=f"Set {match[1]} in the environment of `perdure monitor`.",
            )
        secrets.add(value)
        if not value.isprintable():
            raise UsageError(
                f"the variable {match[1]} is not one line of printable text.",
                code="variable_unprintable",
                fix=f"Set {match[1]} without a line break, also at its end.",
            )
        return value

    return _REFERENCE.sub(value_of, text)


def likely_secrets(environment: Mapping[str, str]) -> set[str]:
    """Values of variables that are secrets by their name or by their look."""
    return {
        value
        for name, value in environment.items()
        if len(value) >= secret_chars_min and (_SECRET_NAME.search(name) or _TOKEN.match(value))
    }


def find_notify_file(
    disk: Disk, workspace: str, environment: Mapping[str, str], start_dir: str
) -> str | None:
    """The file that applies to a workspace, as an absolute path; None when there is none.

    PERDURE_NOTIFY, else that of its project (``.perdure/notify.yaml``), else its own. A file that
    PERDURE_NOTIFY names need not exist.
    """
    named = environment.get(VARIABLE)
    if named:
        return os.path.normpath(os.path.join(start_dir, named))
    project = find_project(disk, workspace)
    for directory in (project, workspace):
        path = f"{directory}/{FILE_NAME}"
        if directory is not None and disk.stat(path) is not None:
            return path
    return None


def read_notify_file(disk: Disk, path: str) -> NotifyConfig:
    """The validated file. Raises NotFoundError, UsageError with every problem, StorageError."""
    if disk.stat(path) is None:
        raise NotFoundError(
            f"there is no file {path}.",
            code="no_notify_file",
            fix="Name a notify.yaml; docs/supervision.md shows one.",
        )
    return load_notify_file(path, disk.read(disk.real_path(path), length=notify_file_bytes_max + 1))


def load_notify_file(path: str, data: bytes) -> NotifyConfig:
    """Validate the bytes of a file; ``path`` is for messages.

    Raises UsageError (``notify_invalid``) with the problems as ``path:line:column: what (fix)``.
    """
    problems: list[Problem] = []
    config = NotifyConfig(path=path)
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        text = ""
        problems.append(Problem(Place(1, 1), "the file is not UTF-8", "save it as UTF-8"))
    if len(data) > notify_file_bytes_max:
        what = f"the file is larger than {notify_file_bytes_max} bytes"
        problems.append(Problem(Place(1, 1), what, "name fewer channels"))
    if not problems:
        tree, problems = read_tree(text)
        if tree is not None:
            config = _Reader(FieldReader(problems)).read(tree, path)
        elif not problems:
            fix = "write owner: or requester:"
            problems.append(Problem(Place(1, 1), "the file is empty", fix))
    if problems:
        listed = refusal(path, problems).message
        raise UsageError(listed, code="notify_invalid", fix="Correct the file, then try again.")
    return config


class _Reader:
    """One pass over the tree; what is wrong is noted and the rest is read all the same."""

    def __init__(self, fields: FieldReader) -> None:
        self.fields = fields

    def read(self, tree: Tree, path: str) -> NotifyConfig:
        parts = self.fields.section(
            tree, "the file", ("owner", "requester"), {"user": "requester", "to": "owner"}
        )
        config = NotifyConfig(path=path)
        if "owner" in parts:
            channels = self._channels(parts["owner"][1], "owner")
            config = msgspec.structs.replace(config, owner=channels)
        if "requester" in parts:
            channels = self._channels(parts["requester"][1], "requester")
            config = msgspec.structs.replace(config, requester=channels)
        return config

    def _channels(self, tree: Tree, name: str) -> tuple[Channel, ...]:
        if not isinstance(tree, Items):
            fix = "put each channel on a line of its own, after '- '"
            self.fields.bad(tree.place, f"{name} must be a list of channels", fix)
            return ()
        if len(tree.items) > channels_max:
            what = f"{name} has {len(tree.items)} channels; {channels_max} is the most"
            self.fields.bad(tree.place, what, "let a service spread the word")
        found: dict[str, Channel] = {}
        for item in tree.items:
            channel = self._channel(item)
            if channel is None:
                continue
            if channel.label in found:
                what = f"{name} has the channel {shown(channel.label)} twice"
                self.fields.bad(item.place, what, "remove one of the two")
            found[channel.label] = channel
        return tuple(found.values())

    def _channel(self, tree: Tree) -> Channel | None:
        if isinstance(tree, Scalar):
            if "/" in tree.text:  # an address, which may hold a secret
                fix = "write webhook: or apprise: in front of it"
                self.fields.bad(tree.place, "a channel is not an address alone", fix)
                return None
            word = self.fields.word(tree, "a channel without an address", ("terminal", "desktop"))
            return None if word is None else self._wordless(word)
        keys = (*_KINDS, "headers", "timeout", "only")
        parts = self.fields.section(tree, "a channel", keys, _HINTS)
        kinds = [kind for kind in _KINDS if kind in parts]
        if len(kinds) != 1:
            if isinstance(tree, Fields):
                what = "a channel has exactly one of " + ", ".join(_KINDS)
                self.fields.bad(tree.place, what, "put each channel into an entry of its own")
            return None
        channel = self._addressed(kinds[0], *parts[kinds[0]])
        if "headers" in parts and kinds[0] != "webhook":
            self.fields.bad(parts["headers"][0], "only a webhook has headers", "remove them")
        elif "headers" in parts:
            headers = self._headers(parts["headers"][1])
            channel = msgspec.structs.replace(channel, headers=headers)
        if "timeout" in parts:
            limit_s = self._limit_s(parts["timeout"][1])
            channel = msgspec.structs.replace(channel, timeout_s=limit_s)
        if "only" in parts:
            only = self.fields.texts(parts["only"][1], "only")
            words = tuple(self._message_kind(place, word) for place, word in only)
            channel = msgspec.structs.replace(channel, only=words)
        return channel

    def _wordless(self, word: str) -> Channel:
        return Channel("desktop" if word == "desktop" else "terminal")

    def _addressed(self, kind: ChannelKind, place: Place, tree: Tree) -> Channel:
        if kind in ("terminal", "desktop"):
            if not (isinstance(tree, Scalar) and tree.plain and tree.text in ("", "true", "~")):
                self.fields.bad(tree.place, f"{kind} takes no address", f"write '- {kind}'")
            return Channel(kind)
        if kind == "command":
            words = [text for _, text in self.fields.texts(tree, "command")]
            if isinstance(tree, Items) and not tree.items:
                self.fields.bad(place, "command is empty", "name a program and its arguments")
            for word in words:
                if not self._refuse_literals(tree.place, word) and _SECRET_WORD.search(word):
                    what = "the command holds what looks like a secret"
                    self.fields.bad(tree.place, what, "let it read the secret from a variable")
            return Channel(kind, argv=tuple(words))
        address = self.fields.text(tree, kind)
        if address:
            self._check_address(kind, tree.place, address)
        return Channel(kind, target=address)

    def _check_address(self, kind: ChannelKind, place: Place, address: str) -> None:
        whole = _REFERENCE.fullmatch(address) is not None
        scheme = address.partition("://")[0] if "://" in address else ""
        if kind == "webhook" and not whole and scheme not in ("http", "https"):
            self.fields.bad(place, "the address of this webhook is not http or https")
        elif kind == "apprise" and not whole and not scheme:
            fix = "write SERVICE://..., as the documentation of apprise says"
            self.fields.bad(place, "this is no address of a service", fix)
        elif not self._refuse_literals(place, address) and _has_token(address):
            what = "the address holds what looks like a token"
            self.fields.bad(place, what, _BY_REFERENCE)

    def _refuse_literals(self, place: Place, text: str) -> bool:
        """Whether a password or a token stands in it as it is; noted if so. Never quoted."""
        if "://" not in text:
            return False
        found = ""
        try:
            parts = urlsplit(_REFERENCE.sub("", text))
            password, query = parts.password, parse_qsl(parts.query)
        except ValueError:
            self.fields.bad(place, "this is not an address", "correct it")
            return True
        if password:
            found = "a password"
        for name, value in query:
            if _SECRET_NAME.search(name) and value:
                found = f"a value for {shown(name)}"
        if found:
            self.fields.bad(place, f"the address holds {found} as it is", _BY_REFERENCE)
        return bool(found)

    def _headers(self, tree: Tree) -> dict[str, str]:
        if not isinstance(tree, Fields):
            self.fields.bad(tree.place, "headers must be a mapping of names to texts")
            return {}
        headers = {}
        for name, (place, value) in tree.fields.items():
            text = self.fields.text(value, f"headers.{name}")
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not text.isprintable():
                self.fields.bad(place, f"{shown(name)} is not a header", "correct it")
            elif _SECRET_NAME.search(name) and not _REFERENCE.search(text):
                what = f"the header {name} holds its value as it is"
                self.fields.bad(value.place, what, _BY_REFERENCE)
            elif text:
                headers[name] = text
        return headers

    def _limit_s(self, tree: Tree) -> float:
        limit_s = self.fields.duration_s(tree, "timeout")
        if limit_s is not None and limit_s > send_limit_max_s:
            what = f"timeout is at most {send_limit_max_s:.0f} seconds"
            self.fields.bad(tree.place, what, "let the command hand the message on and return")
        return send_limit_s if limit_s is None else min(limit_s, send_limit_max_s)

    def _message_kind(self, place: Place, word: str) -> str:
        return self.fields.word(Scalar(place, word, False), "only", MESSAGE_KINDS) or ""


def _has_token(address: str) -> bool:
    """Whether a piece between slashes, or the user or host, looks like a token written out."""
    rest = _REFERENCE.sub("", address.partition("://")[2])
    return any(_TOKEN.match(piece) for piece in re.split(r"[/@:?&=.]", rest))
