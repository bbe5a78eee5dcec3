"""The one port behind which every executor stands.

Job: say what carries out the action of a node, and read how it ended. Invariants: an executor
starts nothing itself (the run loop does, in a session of its own, under what its contract grants);
whatever it reports is a claim until the disk has been looked at; whether it is installed is known
before anything starts. Never commits.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from perdure.control.outcome import Ended, judge_end
from perdure.core.dispatching import Cause, Usage
from perdure.core.model import FailureClass, Node


class Order(NamedTuple):
    """One dispatch, as an executor sees it; paths are absolute."""

    node: Node
    invocation: str
    contract: str
    """The contract file."""
    message: str
    """The one line that a worker is sent (PD-C1)."""
    workspace: str
    scope: str
    """Where it may write."""
    task_dir: str
    """The directory of the task file."""
    output: str
    """The file that its standard output goes to, where the launch separates it; else unused."""
    environment: dict[str, str]
    """The whole environment of the child, before what the launch adds."""
    jobs: int | None = None
    """Children at once, of one that starts some itself; None: as many as there are processors."""


class Launch(NamedTuple):
    """The process that carries out an order."""

    command: str | tuple[str, ...]
    """A text runs as a shell line."""
    environment: Mapping[str, str] = MappingProxyType({})
    """In addition to the order's."""
    separate_output: bool = False
    """Standard output goes to ``Order.output``, to be parsed; only the rest to the log."""
    write: tuple[str, ...] = ()
    """Absolute paths that it has to write besides what its contract grants: its own state."""
    network: bool = False
    """It cannot work without the network, so that comes with choosing this executor."""


class Question(NamedTuple):
    """What a child asks, to be passed on (section 4 of HALT-06)."""

    ref: str
    """Qualified: ``INVOCATION#QUESTION``."""
    text: str
    options: tuple[str, ...] = ()
    default: str = ""
    context: str = ""
    links: tuple[str, ...] = ()
    """Files that it is about, relative to the workspace of whoever passes it on."""
    to: str = ""
    """The role that answers; empty: the usual one."""


class Report(NamedTuple):
    """How an executor's end is to be read."""

    claims: bool
    """It says that it is done."""
    failure: tuple[FailureClass, str] | None = None
    """Class and signature, where it does not."""
    cause: Cause = ""
    usage: Usage | None = None
    notice: str = ""
    """What somebody should know, such as output that cannot be read."""
    questions: tuple[Question, ...] = ()
    """It waits for these: neither done nor failed. With a claim: gaps that hold nothing up."""
    retry_after_s: float | None = None
    """How long the wall of ``cause`` stands, where its text says so."""


class Executor(Protocol):
    """One kind of executor."""

    kind: str
    wall_s: float | None
    """Its own time limit, where the node's budget names none."""

    def require_installed(self, node: Node, order_directory: str) -> None:
        """Raise NotFoundError, with what to install, when it cannot be started at all.

        ``order_directory`` is the directory of the task file. Called before anything of a run
        starts, and again before each launch.
        """

    def launch(self, order: Order) -> Launch:
        """The process for an order. Raises HaltError when there can be none."""

    def read_end(self, order: Order, ended: Ended) -> Report:
        """How its end is to be read. Never raises for what the child printed."""


def report_of_exit(ended: Ended) -> Report:
    """How an end is read when the exit code is all there is."""
    if ended.how == "exited" and ended.exit_code == 0:
        return Report(True)
    judged = judge_end(ended)
    return Report(
        False,
        (judged.failure_class, judged.signature),
        judged.cause,
        retry_after_s=judged.retry_after_s,
    )
