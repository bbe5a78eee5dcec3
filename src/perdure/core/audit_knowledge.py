"""Items A10.1 to A10.3 of the task audit: what outlives the task is knowledge (HALT-10).

Job: does progress stay out of the memory store and knowledge get into it, is the store only ever
added to, and is its index small and true. Invariants: those of ``core.task_audit``; what the store
holds was found by its own check (``memory.check``), which never writes; wording is a heuristic, so
it is told and never fails anything.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.audit_results import Tally
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.core.memory_index import index_entries_max
from perdure.core.memory_phrasing import state_of_own
from perdure.core.payload import mapping, text, texts
from perdure.core.task_audit import DiskFacts, Findings, Item

_NO_STORE: Final = "there is no memory store, and no decision cites an entry"
_KINDS: Final = frozenset({"env", "method", "preference", "pitfall", "postmortem"})


def _told(value: object) -> list[str]:
    return list(texts(value))


class KnowledgeNotProgress(Item):
    """What was learnt goes on, and how far the work had come does not."""

    id = "A10.1"
    title = "Progress stays in the workspace, and what was learnt is proposed for the store"
    rule = "MB-1"
    method = (
        "The memory proposals on record were read: each has a kind and a scope of the store, a"
        " statement that tells no state of a node of this task, and evidence that names events of"
        " the task. A task that is archived (T10) has to have made its proposals before. Entries"
        " of the store that read like progress are named."
    )
    on_disk = True

    def __init__(self) -> None:
        self._proposals: list[tuple[str, Mapping[str, Any]]] = []
        self._made = ""
        self._archived = ""
        self._before = False

    def see(self, event: Event, replica: Replica) -> None:
        """Remember what was proposed, and whether that came first."""
        payload = event.payload
        if event.kind == "NOTE" and payload.get("op") == "memory_proposals":
            self._made = event.ref
            found = payload.get("proposals")
            given = found if isinstance(found, list | tuple) else ()
            self._proposals += [(event.ref, mapping(one)) for one in given]
        elif payload.get("edge") == "T10":
            self._archived, self._before = event.ref, bool(self._made)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A task archived without proposals is bad, and a proposal that proves nothing."""
        tally, nodes = Tally(), replica.state.nodes
        if self._archived:
            why = "" if self._before else "the task was archived without proposals (MB-2)"
            tally.look(self._archived, why, f"proposals made by {self._made}")
        elif self._made:
            tally.hold(self._made, f"{len(self._proposals)} proposals")
        for ref, proposal in self._proposals:
            tally.look(f"{ref} {_name(proposal)}", _ill_proposed(proposal, nodes))
        store = disk.memory
        if store is not None:
            tally.hold("store", f"{store.get('heads', 0)} entries that count")
            for told in _told(store.get("progress")):
                tally.hold(told, "it reads like progress (MB-1), which does not outlive its task")
        return tally.findings("the task is not archived, proposes nothing, and has no memory store")


def _name(proposal: Mapping[str, Any]) -> str:
    return text(proposal.get("id")) or text(proposal.get("statement"))[:60]


def _ill_proposed(proposal: Mapping[str, Any], nodes: Mapping[str, object]) -> str:
    """What is wrong with a proposal; empty when nothing is."""
    statement = text(proposal.get("statement"))
    if not statement.strip() or text(proposal.get("kind")) not in _KINDS:
        return "it has no statement, or no kind of the store"
    if not text(proposal.get("scope")):
        return "it says for what it holds nowhere (scope)"
    if not any("J-" in ref for ref in _told(proposal.get("evidence"))):
        return "no event of the task bears it out"
    progress = state_of_own(statement, nodes)
    return f"it tells progress: {progress}" if progress else ""


class EntriesAreSuperseded(Item):
    """What was once said in the store stays as it was said."""

    id = "A10.2"
    title = "Entries are superseded and never edited, and read with their freshness"
    rule = "ME-1"
    method = (
        "The store was read by its own check: its chain of lines has to be whole, so that an edited"
        " or a lost line is seen. Each DECISION that cites an entry has to name its id, its store,"
        " the sha256 of its statement, and what was to be said of it when it was read: whether it"
        " was superseded, a draft, or due for a re-check."
    )
    on_disk = True

    def __init__(self) -> None:
        self._tally = Tally()

    def see(self, event: Event, replica: Replica) -> None:
        """Read how a decision cites its entries."""
        cited = event.payload.get("memory") if event.kind == "DECISION" else None
        if not isinstance(cited, list | tuple):
            return
        for entry in map(mapping, cited):
            missing = [name for name in ("id", "store", "sha256") if not text(entry.get(name))]
            if "flags" not in entry:
                missing.append("flags")
            flags = ", ".join(_told(entry.get("flags"))) or "fresh"
            why = f"it is cited without {', '.join(missing)}" if missing else ""
            self._tally.look(f"{event.ref} {text(entry.get('id'))}", why, flags)

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A store that was edited is bad, and a citation that says less than it has to."""
        tally, store = self._tally, disk.memory
        if store is not None:
            problems = _told(store.get("damage", store.get("problems")))
            for problem in problems:
                tally.fail("entries.jsonl", problem)
            if not problems:
                due = len(_told(store.get("due")))
                note = f"{store.get('entries', 0)} entries, {store.get('heads', 0)} count"
                tally.hold("entries.jsonl", f"{note}, {due} due for a re-check")
        return tally.findings(_NO_STORE)


class IndexIsTrue(Item):
    """A fresh session can trust the page that it reads first."""

    id = "A10.3"
    title = "The index is bounded and says what the entries say"
    rule = "ME-4"
    method = (
        "MEM-INDEX.md was compared, byte for byte, with the page that its entries make, which has"
        f" at most {index_entries_max} lines of entries. One that was edited by hand, or that is"
        " missing beside entries, fails; one that lags is renewed by the next writer. Statements"
        " that read like orders are named. Entries that the page speaks of and that are not there"
        " are found by A10.2."
    )
    on_disk = True

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        """A page that is not what the entries say is bad."""
        tally, store = Tally(), disk.memory
        if store is None:
            return tally.findings("there is no memory store")
        index = text(store.get("index"))
        why = _INDEX_PROBLEMS.get(index, "" if index in _INDEX_FINE else f"it is {index!r}")
        if index == "missing" and not store.get("entries"):
            why = ""
        tally.look("MEM-INDEX.md", why, index)
        for told in _told(store.get("imperative")):
            tally.hold(told, "it reads like an order (ME-2): a statement of fact ages better")
        return tally.findings("")


_INDEX_FINE: Final = ("whole", "stale")
_INDEX_PROBLEMS: Final[Mapping[str, str]] = {
    "edited": "it was edited by hand; the next writer keeps that aside and renews it",
    "missing": "it is missing; the next writer makes it",
}

ITEMS: Final = (KnowledgeNotProgress, EntriesAreSuperseded, IndexIsTrue)
