"""The rules that errors, audits and tests cite, each in one line.

Job: ``perdure explain RULE``. Invariants: every rule id that an error of perdure carries has an
entry here, or is a row of the tables in ``machine``; what an edge says is made from its row, so the
explanation cannot differ from what is enforced. It enforces nothing itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.core.lookup import near
from perdure.core.machine import NODE_EDGES, RC1, TASK_EDGES
from perdure.core.model import NODE_STATES
from perdure.core.rulebook import held
from perdure.errors import NotFoundError

RULES: Final[Mapping[str, str]] = {
    "A-4": "Every check is recorded with inputs, method and result; a bare score is no record.",
    "AD-1": "An escalation names what happens if nobody answers, and that is never a risk.",
    "AD-2": "An escalation carries the failed attempts with their signatures and the disk's facts.",
    "AP-N4": "A procedure is not run inside itself: each level must bring the goal nearer.",
    "AR-1": "A file is written and synced, read back and hashed, and only then registered.",
    "AR-2": "A superseded artifact keeps its bytes and its entry; nothing is deleted.",
    "AR-3": "A registered path's content is frozen; new content needs a new id and a new path.",
    "AU-1": "A role may do what it is given and nothing else; a refusal names the role it takes.",
    "AU-2": "An executor works on its own node; more authority is asked for, never taken.",
    "AU-3": "Who audits may only read; where that cannot be enforced, what changed is looked for.",
    "AX-1": "Assumed: working memory may vanish at any moment, so only what is on disk counts.",
    "AX-2": "Assumed: the same action may give another result, so nothing is redone without need.",
    "AX-3": "A self-report proves nothing: what counts is what the runtime reads from the disk.",
    "AX-4": "Assumed: an interruption may fall between any two operations, those of recovery too.",
    "AX-5": "Assumed: rates of failure belong to their hour, so a number carries its window.",
    "C-ART": "Graph, journal, registry and checkpoint of a task are all in its workspace.",
    "C-CONTRACT": "A contract is complete and of bounded size, and on disk before work under it.",
    "C-NOREWRITE": "What is registered or journaled is superseded, never overwritten.",
    "C-S1": "What a local destructive effect may change is copied first, or it does not start.",
    "C-S2": "At tier 2 an external effect that can be repeated leaves a receipt in each attempt.",
    "C-S3": "An external effect that cannot be repeated is never tried again without its receipt.",
    "C-TRUTH": "What the disk shows outranks the journal, that its summaries, and those any claim.",
    "C-TX": "A change of several events is one commit: all of it stands, or none.",
    "C-UNIT": "A unit of work is so small that losing it costs no more than itself.",
    "C-VERIFY": "What was written is read back before anything is said of it.",
    "CK-1": "The checkpoint can be lost: it is made again from the journal, byte for byte.",
    "CK-2": "The checkpoint may lag behind the journal, and says how far it goes.",
    "D2": "A workspace holds exactly one task, with one id, and is created once.",
    "D4": "The graph has no cycles, has a limited size, and is extended but never cut.",
    "DP-1": "Instances nest to a limited depth; what would go deeper is decomposed instead.",
    "DP-2": "Many small siblings are better than a deep chain.",
    "DP-3": "The phases of a procedure are a line; what branches belongs into the graph.",
    "FE-1": "No failure is swallowed: one without a route suspends, with a note, and is told.",
    "FE-2": "Of a failed child its parent sees the end, the outputs and the result, nothing else.",
    "FR-1": "Work starts from the frontier and from nowhere else.",
    "FR-2": "After steering that changes goals the frontier is computed anew before any start.",
    "FSN-1": "A node moves only along the edges N01 to N15.",
    "FSN-2": "A node at work has exactly one contract and one executor.",
    "FSN-3": "A method that has used up its retry budget is not tried again: change it, or ask.",
    "FSN-4": "A claim of completion changes nothing else; only N06 makes dependents ready.",
    "FSN-5": "Every state of a node is on disk with the event that enters it.",
    "FST-1": "The task moves only along T01 to T12; after any stop the way on is through recovery.",
    "FST-2": "Work that was missed is added at any time; the graph is never called complete.",
    "FST-3": "An archived task is finished for good and takes no further work.",
    "FST-4": "A child runs within its parent's node and shows four states: no others exist for it.",
    "GA-1": "A gate holds the move that it guards until a person has approved what stands there.",
    "GA-2": "A gate asks with all that ruling takes; a time that runs out is never consent.",
    "GA-3": "An approval holds for one content and scope; what has changed is asked about anew.",
    "GE-1": "Only the sponsor changes the goal, and the change says all that it touches.",
    "GE-2": "Work that holds under the new goal stays DONE; only what does not is done again.",
    "GE-3": "Changes of the goal are counted; too many within a window are put to the sponsor.",
    "GE-4": "Signs that the goal no longer fits the work are put to the sponsor as a proposal.",
    "H1": "An instruction that is not on disk does not exist: it is logged before it acts.",
    "H2": "A question is on record before anything waits for it, and is settled once.",
    "H3": "A gate stops what is behind it, and nothing else.",
    "H4": "Who may rule on what is on record; where people are named, only they rule.",
    "IM-1": "An import never merges: another history of the same task is refused where they part.",
    "IM-2": "What is imported is proved to its last byte first, and appears whole or not at all.",
    "IN-1": "A call is complete and well-formed before anything is done.",
    "IN-2": "A name is that of something that exists here, or a unique beginning of it.",
    "IN-3": "What the state of the workspace forbids is refused, and changes nothing.",
    "INV-1": "After each commit the state of the task can be had from its workspace alone.",
    "INV-10": "Each role writes its own part; where only policy sees to that, it is said.",
    "INV-2": "The journal is the one source of truth; everything computed from it can be rebuilt.",
    "INV-3": "A change of several steps is one commit, or recovery knows how to end it.",
    "INV-4": "History only grows: ids are for ever, and nothing that was done goes back unseen.",
    "INV-5": "Resumption goes by evidence: what is proved done is not done again.",
    "INV-6": "Nothing advances without evidence, and above V0 the verifier is never the producer.",
    "INV-7": "Whoever works gets a bounded contract, never the history; too much is split.",
    "INV-8": "A failure leaves what is above it consistent: a clear end, no damage, no silence.",
    "INV-9": "From any state the journal leads back to who did it, why, and by whose right.",
    "IO-1": "After a failed read or write nothing is acknowledged, and the file is read anew.",
    "IO-2": "What a result lists is registered and verified before the result is written.",
    "IO-3": "A child's question is on record before it waits, and goes up to its parent.",
    "J-1": "The journal is append-only; committed history is never repaired silently.",
    "J-2": "At tier 2 each commit is in two files; where they differ, the longer whole one counts.",
    "J-3": "History is never cut: what is put away keeps its numbers and its hash.",
    "J-4": "Sequence numbers come from the journal's end, read under the lock before each commit.",
    "JB-1": "A finding is one line, written and synced before its item counts as done.",
    "JB-2": "The log of findings is the only truth of a job; state.json and SUMMARY.md may lag.",
    "JB-3": "One process works on a job at a time; a dead one is no obstacle.",
    "JB-4": "A key is stable text; a finding's own keys, such as _hash, are not the caller's.",
    "JB-5": "A failed item is queued and tried again a limited number of times, then only listed.",
    "JB-6": "Text that comes from items never becomes structure of SUMMARY.md.",
    "JB-7": "A line that cannot be read is reported with its number, and never dropped silently.",
    "JB-8": "A unit of a batch node is done with its finding; its ledger line follows.",
    "MB-1": "Progress stays in the workspace, knowledge in the memory store.",
    "MB-2": "Before a task is archived it says what others could learn from it.",
    "ME-1": "An entry of the memory store is never edited: another one supersedes it.",
    "ME-2": "An entry says what is so, not what to do.",
    "ME-3": "An entry without evidence is a draft and weighs no more than a claim.",
    "ME-4": "The memory store is looked through before it grows, and its index stays short.",
    "NC-1": "A nested task has the same files, states and interface as any other.",
    "NC-2": "Nothing of a child counts before it has ended and the parent has verified it.",
    "NS-1": "A child writes in its own instance and where it is granted, and nowhere else.",
    "NS-2": "What belongs to another instance is named with it: INVOCATION#ID.",
    "NS-3": "Each journal counts for itself; references across name the instance.",
    "OB-1": "What was seen is truth about the world in any state, but moves along edges only.",
    "OB-2": "That an external job is pending counts only with a fact of the provider's own.",
    "OB-3": "A block says the reason, what is needed, and a next step that does no harm.",
    "OB-4": "The owner answers the supervisor with one of A to E, and names the step it means.",
    "PD-C1": "A contract says all that its executor needs; what it is sent is one line.",
    "PD-C2": "Lists of units are generated from what is there, never typed.",
    "PD-C3": "Names are unique, units match the plan, a sample reads back; else nothing is sent.",
    "PD-C4": "A worker writes a little at a time and marks each unit that it has finished.",
    "PD-H1": "The rate of first deaths is computed with each end, and its mode holds at once.",
    "PD-H2": "A wall is diagnosed by what it says before anything is tuned or tried again.",
    "PD-H3": "After a halt a small probe goes first; only its survival, or a person, lifts it.",
    "PD-J1": "DONE needs every named output on disk now, registered, and with its checksum.",
    "PL-1": "What lies below docs/ is a view and never believed over the journal.",
    "PL-2": "A scratch file that somebody will need is on record with its purpose and time.",
    "PL-3": "A node's executor writes in the node's place, and elsewhere only as granted.",
    "PL-4": "Paths are relative and stay inside the workspace; some names belong to the runtime.",
    "QA-1": "An open question holds what depends on its answer, and nothing else.",
    "QA-2": "An answer goes through the journal, whoever is there to hear it.",
    "R0": "Recovery writes nothing before it knows what it will write.",
    "R1": "The checkpoint orients a recovery and decides nothing.",
    "R2": "Recovery rebuilds what is true from journal, files, unit logs and the drop box.",
    "R3": "What recovery finds is told apart by a table that has one row for each case.",
    "R4": "Each repair is one event by a legal edge, and all of them are one commit.",
    "R5": "After a recovery the frontier is computed anew.",
    "R6": "Recovery checks the state it plans; where that does not hold it changes nothing.",
    "R7": "A recovery says what it found and repaired, and what may run next.",
    "RC-1": "Recovery only reads until what it plans has been checked.",
    "RC-2": "On whether work exists the disk decides, on what it was to be the journal.",
    "RC-3": "Recovery costs what lies behind the last snapshot, not the history.",
    "RT-1": "In a troubled environment a cheap probe comes before a retry.",
    "RT-2": "Strikes count per method: a new method starts at none, the node's total stays.",
    "RT-3": "A missed heartbeat is a suspicion; output that arrives later is still verified.",
    "S1": "An instruction is logged word for word, under an id of its own, before it is acted on.",
    "S2": "An instruction is read as its sender says, and on record so before it is acted on.",
    "S3": "An instruction changes specs by amendment and recalls the contracts that it voids.",
    "S4": "An instruction is acknowledged with its place in the journal and all that it did.",
    "SC-1": "A procedure whose side effects exceed what its caller may do is not dispatched.",
    "SC-2": "Each acceptance criterion names how it is checked.",
    "SC-3": "An instance records which version of which card it runs, and runs that one.",
    "SE-1": "A secret is masked before it is written, and refused where it would be used as it is.",
    "ST-1": "Where nobody says how an instruction is meant, the stronger reading holds.",
    "ST-2": "What was said to a lost session is said again as re-stated, and acts only once.",
    "ST-3": "An instruction against work that is DONE adds a node that corrects it.",
    "TG-1": "A spec is frozen when work on it begins, and changes only by an amendment.",
    "TG-2": "The graph file is made from the journal; an edit of it changes nothing.",
    "TG-3": "A new node gets an id that no node has had.",
    "UL-1": "A unit's line is written once and for all, and is a sign of life.",
    "UL-2": "Parallel outputs are merged by their keys, never by who came first.",
    "VR-0": "A verdict records how independent of the work it really was.",
    "VR-1": "A verdict short of what the spec asks for is no pass; only the sponsor asks for less.",
    "VR-2": "An audit has no right to write, and records whether all stayed as it was.",
    "VR-3": "Judgement names its judge, its rubric, its rounds and what silence comes to.",
    "WK-1": "At tier 2 a run reads all registered files again, and asks about changed ones.",
    "lease": "One coordinator at a time; the others leave messages; an old epoch may not write.",
}  # fmt: skip

_N14: Final = (
    "QUARANTINED: nothing leaves quarantine. Its successors are new nodes that point back to it."
)


def rule_ids() -> list[str]:
    """Every id that can be explained, edges first."""
    edges = {edge.id for edge in NODE_EDGES} | {edge.id for edge in TASK_EDGES} | {"N14"}
    return [*sorted(edges), RC1.id, *sorted(RULES)]


def explain_rule(typed: str) -> dict[str, Any]:
    """What a rule id means, whatever its case, how strong it is, and the test that holds it.

    Raises NotFoundError with near misses.
    """
    by_key = {name.casefold(): name for name in rule_ids()}
    name = by_key.get(typed.casefold())
    if name is None:
        raise NotFoundError(
            f"there is no rule {typed!r}.",
            code="unknown_rule",
            fix="`perdure explain` lists them all.",
            suggestions=near(typed, by_key.values()),
        )
    found = held(name)
    return {
        "rule": name,
        "meaning": meaning_of(name),
        "strength": found.strength,
        "test": found.test,
    }


def meaning_of(name: str) -> str:
    """One line for a rule id of :func:`rule_ids`."""
    if name in RULES:
        return RULES[name]
    if name == "N14":
        return _N14
    moves = [edge for edge in (*NODE_EDGES, RC1) if edge.id == name]
    if moves:
        sources = _sources([edge.source for edge in moves])
        carries = ", ".join(moves[0].required)
        return f"{sources} -> {moves[0].target}: {moves[0].meaning}; the event carries {carries}."
    row = next(edge for edge in TASK_EDGES if edge.id == name)
    return f"{row.source} -> {row.target}: {row.meaning}."


def _sources(states: list[str]) -> str:
    if len(states) == 1:
        return states[0]
    return f"any but {', '.join(state for state in NODE_STATES if state not in states)}"
