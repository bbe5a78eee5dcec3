"""One journal from its first byte, and what of the files it speaks of.

Job: what an export and an import have to know of a journal. Invariants: no snapshot is believed;
memory is bounded by the state, not by the history; a torn tail is not part of it, and damage in
committed history raises.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perdure.core.bundle import History, damaged
from perdure.core.codec import ChainTip, Scan
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.projection import state_hash
from perdure.errors import CorruptError
from perdure.ports import Disk
from perdure.storage.journal import Journal
from perdure.storage.projections import committed_offset
from perdure.storage.workspace import Layout


class Cited(NamedTuple):
    """What the journal says of the bytes of a file."""

    what: str
    sha256: str
    """Empty where only the size is known."""
    size_bytes: int = -1


class Replay:
    """What a journal says, taken in event by event."""

    def __init__(self) -> None:
        self.replica = Replica()
        self.tip: ChainTip = Scan().tip
        self.torn_bytes = 0
        """Behind the last whole commit."""
        self._contracts: dict[str, str] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Take a whole commit."""
        for event in events:
            self.replica.apply(event)
            digest = event.payload.get("contract_sha256")
            if isinstance(digest, str) and digest:
                self._contracts[str(event.payload.get("contract"))] = digest

    def cited(self) -> dict[str, Cited]:
        """The files that must be there, by path, and the bytes that they must have."""
        found = {path: Cited("contract", value) for path, value in self._contracts.items()}
        for name, artifact in self.replica.state.artifacts.items():
            known = artifact.integrity
            if artifact.status == "quarantined" or known.algo == "git":
                continue
            value = known.value if known.algo == "sha256" else ""
            found[artifact.path] = Cited(f"artifact {name}", value, known.size_bytes)
        return found

    def named(self) -> Iterator[str]:
        """Paths of files that are of use besides: noted documents, inputs, set-aside fragments."""
        state = self.replica.state
        for path, doc in state.docs.items():
            if not doc.external:
                yield path
        for artifact in state.artifacts.values():
            if artifact.status == "quarantined":
                yield artifact.path
        for node in state.nodes.values():
            yield from (path for path in node.spec.inputs if path.startswith("tmp/"))
            if node.spec.map is not None and (node.spec.map.items or "").startswith("tmp/"):
                yield str(node.spec.map.items)

    def history(self, path: str) -> History:
        """How far it goes; ``path`` is that of its workspace in the task."""
        state = self.replica.state
        return History(path, state.task_id, self.tip.seq, self.tip.h, state_hash(state))


def replay_workspace(disk: Disk, root: str) -> Replay:
    """The journal of a workspace up to its last whole commit, which somebody may be adding to.

    Raises CorruptError where committed history is damaged, missing, or not that of a task.
    """
    layout = Layout(root)
    journal, replay = Journal(disk, layout.journal), Replay()
    if journal.catch_up(replay.take) is not None:
        torn = journal.judge(replay.take, committed_offset(disk, layout))
        replay.torn_bytes = len(torn[1]) if torn is not None else 0
    known = committed_offset(disk, layout)
    if known > journal.tip.offset and journal.size() < known:
        raise CorruptError(
            f"{layout.journal} ends at byte {journal.tip.offset}, but events up to byte {known}"
            f" had been committed: line {journal.tip.seq + 1} and maybe later ones are cut off.",
            code="journal_truncated",
            fix="Put the journal back from a copy.",
        )
    replay.replica.state.unchained = journal.take_unchained()
    replay.tip = journal.tip
    if not replay.replica.state.created:
        raise CorruptError(
            f"{layout.journal} is not a journal of a task: line 1 is not INSTANCE_STARTED.",
            code="not_a_journal",
            fix="Name another directory, or put the right journal back from a copy.",
        )
    return replay


def replay_bytes(pieces: Iterator[bytes], path: str) -> Replay:
    """A journal that was exported. Raises CorruptError unless all of it is whole commits."""
    scan, replay = Scan(), Replay()
    for events in scan.commits(pieces):
        replay.take(events)
    if scan.damage is not None:
        line, byte, reason = scan.damage
        raise damaged(f"{path}: line {line}, byte {byte}: {reason}")
    replay.replica.state.unchained = scan.unchained
    replay.tip = scan.tip
    if not replay.replica.state.created:
        raise damaged(f"{path} is not a journal of a task")
    return replay
