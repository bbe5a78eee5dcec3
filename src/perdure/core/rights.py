"""The rights of roles: one table from commands to the roles that may give them (AU-1).

Invariants: every command has a row; what a role is not given it does not have. Who asks, and on
what, is in ``authority``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from perdure.core import closing_commands as k
from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core import observed_commands as o

ROLES: Final = ("sponsor", "coordinator", "executor", "verifier", "recorder", "gatekeeper")
ALIASES: Final = {"coord": "coordinator", "worker": "executor", "auditor": "verifier"}
"""What the roles are also called."""


class Right(NamedTuple):
    """What a command does, in words, and the roles that may give it, the usual one first."""

    what: str
    roles: tuple[str, ...]


DO: Final = ("coordinator", "executor")
RULE: Final = ("gatekeeper", "sponsor")
DIRECT: Final = ("coordinator", "sponsor")
_ALL: Final = ROLES
_OBSERVE: Final = Right("record an observation", ("coordinator", "executor", "recorder", "sponsor"))

MOVES: Final[Mapping[str, Right]] = {
    "RUNNING": Right("start work", DO),
    "VERIFYING": Right("submit work", DO),
    "BLOCKED": Right("block a node", DO),
    "RETRYABLE": Right("end an attempt", DO),
    # The verdict is the runtime's own, from the disk; whoever asks for it cannot sway it.
    "DONE": Right(
        "have a node verified", ("coordinator", "executor", "verifier", "gatekeeper", "sponsor")
    ),
    "CANCELLED": Right("cancel a node", DIRECT),
}

RIGHTS: Final[Mapping[type, Right]] = {
    c.StartTask: Right("create a task", DIRECT),
    c.AddNode: Right("extend the graph", ("coordinator",)),
    c.AmendNode: Right("amend a node", DIRECT),
    c.SplitNode: Right("split a node", ("coordinator",)),
    c.QuarantineNode: Right("give a node up for another", ("coordinator",)),
    c.CancelNodes: Right("cancel a node", DIRECT),
    c.RetryNode: Right("let a node go on", ("coordinator", "gatekeeper", "sponsor")),
    c.FailNode: Right("end an attempt", DO),
    c.RecordReceipt: Right("prove an effect", ("coordinator", "executor", "gatekeeper", "sponsor")),
    c.RegisterArtifact: Right("register an artifact", DO),
    c.AttachArtifact: Right("count an artifact among a node's", DO),
    c.Beat: Right("speak for work under way", DO),
    c.WriteNote: Right("write a note", _ALL),
    c.RecordDecision: Right("record a decision", DIRECT),
    c.AskQuestion: Right(
        "ask a question", ("coordinator", "executor", "verifier", "gatekeeper", "sponsor")
    ),
    # What these two say follows from what is on record, whoever is at hand to write it.
    c.AskGate: Right("open a gate's question", _ALL),
    c.PropagateSteering: Right("propagate an instruction", _ALL),
    c.AnswerQuestion: Right("rule on a question", ("gatekeeper", "sponsor", "coordinator")),
    c.LogSteering: Right("steer", ("sponsor", "coordinator")),
    c.AmendGoal: Right("change the goal", ("sponsor",)),
    c.ChangePolicy: Right("change a policy", ("sponsor", "coordinator")),
    o.Observe: _OBSERVE,
    o.ConfirmBlock: Right("confirm a block", DO),
    o.RecordReply: Right("reply to the supervisor", DO),
    c.MoveTask: Right("pause the task or set it going", DIRECT),
    c.AppendRaw: _OBSERVE,
    d.OpenSlot: Right("dispatch a worker", ("coordinator",)),
    d.CloseSlot: Right("close a slot", ("coordinator",)),
    d.Suspect: Right("suspect a worker dead", ("coordinator",)),
    d.RecordLate: Right("judge late output", ("coordinator",)),
    d.ChangeMode: Right("change how work is dispatched", ("coordinator", "sponsor")),
    d.RecordAudit: Right("give an independent verdict", ("verifier", "coordinator")),
    d.RecordPlan: Right("record the plan of an instance", ("coordinator",)),
    d.MovePhase: Right("move an instance to a phase", ("coordinator",)),
    k.RecordTaskAudit: Right(
        "put a task audit on record", ("coordinator", "verifier", "sponsor", "gatekeeper")
    ),
    k.CorrectTaskAudit: Right(
        "correct a task audit", ("coordinator", "verifier", "sponsor", "gatekeeper")
    ),
    k.OpenRepairs: Right("add nodes for what the final audit found", ("coordinator",)),
    k.ArchiveTask: Right("archive the task", DIRECT),
    k.AcceptContent: Right("accept what the task has made", ("sponsor",)),
    k.CloseTask: Right("close the task for good", DIRECT),
    k.NoteDoc: Right("note a document", _ALL),
    # What it says was seen on the disk, whoever is at hand to write it.
    k.NoteStale: Right("note that a document has changed", _ALL),
    k.RecordWalk: Right("put a walk over the files on record", ("coordinator",)),
}
"""Every command there is (tests/conformance/test_roles.py)."""

TO_READY: Final = Right("set a node's state", ("coordinator",))


def right_to(command: c.Command) -> Right:
    """The row for a command; of a move it depends on where it leads."""
    if type(command) is c.MoveNode:
        return MOVES.get(command.to, TO_READY)
    return RIGHTS[type(command)]
