"""Gates: which guards a node has, what their approval is bound to, and whether it holds (GA-1..3).

Job: everything about a gate that state and file digests alone decide. Invariants: a gate that the
spec declares, or that the task's delegation or a ``human`` criterion implies, has one id for the
life of its node; an approval holds for exactly the content and scope it was given for. Never reads
a disk: ``files`` is what the runtime has just read. Which gates are to be asked is
``frontier.due_gates``'s to say, what a question about one holds ``decide_gate``'s.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from perdure.core.budget import budget_of
from perdure.core.codec import to_json
from perdure.core.durations import duration_max_s
from perdure.core.model import Artifact, Budget, Criterion, Node, State
from perdure.core.naming import path_problem
from perdure.core.payload import number, text, texts
from perdure.core.people import FALLBACKS, Approval, Gate, GatePoint, Question, QuestionKind

CONSENT: Final = ("approve", "reject")
"""The options of a question that takes consent or refusal and nothing else."""
CONSENT_WORDS: Final = frozenset({"approve", "approved", "yes"})
"""What consents where it is the whole answer; anything else is no consent."""
DEFAULT_DELEGATION: Final[Mapping[str, str]] = {
    "S0": "AUTO",
    "S1": "AUTO",
    "S2": "AUTO",
    "S3": "STANDING_AUTHORITY",
}
"""Rung of the delegation ladder for each effect class, where the task names none."""

SUBSTANCE: Final = (
    "run", "map", "python", "agent", "sop", "human", "grants", "inputs", "outputs",
    "acceptance_criteria", "env", "budget",
)  # fmt: skip
"""Fields of the spec that the approval of a start is bound to, besides the effect class."""


def delegation_of(state: State, node: Node) -> str:
    """The rung that this node's effect stands on; one that nobody knows asks for approval."""
    return state.delegation.get(node.effect) or DEFAULT_DELEGATION[node.effect]


def gates_of(state: State, node: Node) -> tuple[Gate, ...]:
    """Every gate of a node, declared and implied, those of its start first.

    A declared gate takes the place of one that the delegation would imply for the same move.
    """
    judged = tuple(gate for _, gate in judgements(node))
    gates = (*node.spec.gates, *judged)
    point = _implied_point(state, node)
    if point and not any(gate.blocks == point for gate in gates):
        gates = (*gates, _implied(state, node, point))
    return tuple(sorted(gates, key=_by_point)) if len(gates) > 1 else gates


def _by_point(gate: Gate) -> bool:
    return gate.blocks != "start"


def gates_at(state: State, node: Node, point: GatePoint) -> tuple[Gate, ...]:
    """The gates of one move: ``start`` is N02 and N11, ``done`` is N06."""
    if (
        point == "start"
        and not node.spec.gates
        and (delegation_of(state, node) == "AUTO" or _implied_point(state, node) != "start")
    ):
        return ()  # most nodes, at each look at the frontier
    return tuple(gate for gate in gates_of(state, node) if gate.blocks == point)


def gate_named(state: State, node: Node, gate_id: str) -> Gate | None:
    """The node's gate of this id, or None."""
    return next((gate for gate in gates_of(state, node) if gate.gate_id == gate_id), None)


def kind_of(gate: Gate) -> QuestionKind:
    """A gate with a rubric is a judgement (V3)."""
    return "judgement" if gate.rubric else "gate"


def _implied_point(state: State, node: Node) -> GatePoint | None:
    """The move that the delegation guards for this node, if any."""
    rung = delegation_of(state, node)
    if rung == "AUTO":
        return None
    if rung == "AUTO_WITH_BUDGET":
        return "start" if budget_of(node) == Budget() else None
    if rung == "STANDING_AUTHORITY":
        allowed = {"*", node.node_id} & set(state.standing_authorities)
        return None if allowed else "start"
    return "done" if rung == "REVIEW_REQUIRED" else "start"


def implied_id(node_id: str, point: str) -> str:
    """The id of the gate that the delegation puts at the start of a node, or else at its end."""
    return f"G-{node_id}-{'start' if point == 'start' else 'review'}"


def _implied(state: State, node: Node, point: GatePoint) -> Gate:
    rung = delegation_of(state, node)
    effect = f"Its effect is {node.effect}, which is delegated as {rung}."
    if point == "done":
        return Gate(implied_id(node.node_id, point), "done", context=effect)
    lacks = {
        "AUTO_WITH_BUDGET": " Its budget limits nothing.",
        "STANDING_AUTHORITY": " No authority that was recorded when the task was created names it.",
    }
    external = "What it does outside cannot be repeated or undone." if node.effect == "S3" else ""
    return Gate(
        implied_id(node.node_id, point),
        "start",
        context=effect + lacks.get(rung, ""),
        consequences=external,
    )


def judgements(node: Node) -> tuple[tuple[Criterion | None, Gate], ...]:
    """Each ``human`` criterion of a node and the gate that it is (VR-3).

    A node that asks for V3 and has no such criterion has one judgement, without a criterion.
    """
    human = [item for item in node.spec.acceptance_criteria if item.check == "human"]
    if human:
        return tuple(
            (item, _judgement(node, item.params, str(number) if number > 1 else ""))
            for number, item in enumerate(human, 1)
        )
    return ((None, _judgement(node, {}, "")),) if node.verification_level == "V3" else ()


def _judgement(node: Node, params: Mapping[str, Any], suffix: str) -> Gate:
    fallback, rounds = params.get("default"), params.get("rounds")
    return Gate(
        f"G-{node.node_id}-judge{suffix}",
        "done",
        gatekeeper=texts(params.get("judge")),
        timeout_s=number(params.get("timeout_s")),
        fallback="reject" if fallback == FALLBACKS[1] else "remain-blocked",
        revise_max=rounds if isinstance(rounds, int) else None,
        rubric=text(params.get("rubric")) or "It does what its title and its goal say.",
    )


def gate_problem(node: Node, gate: Gate) -> str:
    """Why the node cannot have this gate, as the end of a sentence; empty when it can."""
    for path in gate.content:
        if what := path_problem(path):
            return f"{path!r} {what}"
    others = [other.gate_id for other in (*node.spec.gates, *(g for _, g in judgements(node)))]
    elsewhere = implied_id(node.node_id, "done" if gate.blocks == "start" else "start")
    if gate.gate_id == elsewhere or others.count(gate.gate_id) > 1:
        return "another gate of the node has this id, or may get it"
    if gate.timeout_s is not None and not 0 < gate.timeout_s <= duration_max_s:
        return f"its timeout is not above 0 and at most {duration_max_s:g} s"
    return "its revise rounds are below 0" if (gate.revise_max or 0) < 0 else ""


# Content


def gate_paths(state: State, node: Node, gate: Gate) -> tuple[str, ...]:
    """The workspace paths whose bytes an approval of this gate is bound to, to be read from disk.

    Those it names; else what the node takes from its dependencies (start), or its own artifacts
    (done). A path may name nothing on disk: its digest is the empty text then.
    """
    if gate.content:
        return tuple(dict.fromkeys(gate.content))
    paths = (artifact.path for artifact in _artifacts(state, node, gate))
    return tuple(dict.fromkeys(path for path in paths if not path.startswith("git:")))


def _artifacts(state: State, node: Node, gate: Gate) -> list[Artifact]:
    """The current artifacts that are the gate's content where it names none."""
    if gate.content:
        return []
    holders = [node]
    if gate.blocks == "start":
        holders = [state.nodes[dep] for dep in node.deps if dep in state.nodes]
    found = [state.artifacts[n] for h in holders for n in h.artifacts if n in state.artifacts]
    return [artifact for artifact in found if artifact.status == "current"]


def registered_files(state: State, node: Node, gate: Gate) -> dict[str, str]:
    """What the gate's content is by the record: nothing is known of files it names itself."""
    return {a.path: a.integrity.value for a in _artifacts(state, node, gate)}


def complete_files(
    state: State, node: Node, gate: Gate, files: Mapping[str, str]
) -> dict[str, str]:
    """The content whole: a path that was not read has the empty text, a commit is itself."""
    commits = {a.path: a.integrity.value for a in _artifacts(state, node, gate)}
    commits = {path: value for path, value in commits.items() if path.startswith("git:")}
    return {**dict.fromkeys(gate_paths(state, node, gate), ""), **commits, **files}


def unread(state: State, node: Node, gate: Gate, files: Mapping[str, str] | None) -> str:
    """Of which part of the content nobody can say what it is; consent to that would hold for
    anything it becomes. Empty when every path was read, or is known to be missing."""
    if files is None:
        paths = gate_paths(state, node, gate)
        return f"{paths[0]} was not read" if paths else ""
    # In the place of a sha256 stand words: why there is none.
    return next((f"{path} is {said}" for path, said in files.items() if " " in said), "")


def content_digest(state: State, node: Node, gate: Gate, files: Mapping[str, str]) -> str:
    """The sha256 of what an approval is bound to: files and scope; of a start the spec as well.

    Title, goal, constraints, priority and directives are description and are left out (F26).
    """
    return digest_of(node, gate, complete_files(state, node, gate, files))


def digest_of(node: Node, gate: Gate, whole: Mapping[str, str]) -> str:
    """:func:`content_digest` of files that are complete as they are."""
    bound: dict[str, Any] = {"scope": gate.scope, "files": whole}
    if gate.blocks == "start":
        spec: dict[str, Any] = msgspec.to_builtins(node.spec)
        bound["spec"] = {name: spec[name] for name in SUBSTANCE if name in spec}
        bound["effect"] = node.effect
    return sha256(to_json(bound, sort=True)).hexdigest()


def _is_of_record(
    state: State, node: Node, gate: Gate, whole: Mapping[str, str], content: str
) -> bool:
    """Whether, as far as the record tells, this content is still what the gate is about."""
    paths = complete_files(state, node, gate, {}).keys()
    return paths == whole.keys() and digest_of(node, gate, whole) == content


def revise_cap(state: State, gate: Gate) -> int:
    """Revise and reject answers at this gate after which it escalates (VR-3)."""
    return state.policies.revise_max if gate.revise_max is None else gate.revise_max


def approval_of(
    state: State, node: Node, gate: Gate, files: Mapping[str, str] | None
) -> Approval | None:
    """The approval of this gate that holds now, or None (GA-3).

    With ``files``, as just read, for exactly this content; with None as far as the state alone
    tells: by id, scope, the spec, and which files there are.
    """
    approval = node.approvals.get(gate.gate_id)
    if approval is None or approval.scope != gate.scope:
        return None
    if files is None:
        holds = _is_of_record(state, node, gate, approval.files, approval.content)
    else:
        holds = content_digest(state, node, gate, files) == approval.content
    return approval if holds else None


# Questions


def is_of_gate(question: Question) -> bool:
    """Whether a question is a gate's: it holds its node at that gate and nowhere else."""
    return question.kind in ("gate", "judgement")


def asks_consent(question: Question) -> bool:
    """Whether a question is to be approved or rejected, and words alone are neither.

    So is the gate of an instance that is asked about here, and any question with these options.
    """
    return question.kind == "question" and question.options == CONSENT


def holds_work(question: Question) -> bool:
    """Whether the node it names waits for its answer: of every kind but a confirmation."""
    return question.kind != "confirmation"


def is_overdue(question: Question, now: float) -> bool:
    """Whether its time is over; that is never consent (GA-2)."""
    return question.expires_at is not None and question.expires_at <= now


def is_automatic(question: Question) -> bool:
    """Whether the runtime asked it about an attempt at its node: ``Q-NODE-3``, ``E-NODE-3.2``."""
    letter, _, rest = question.question_id.partition(f"-{question.node}-")
    return letter in ("Q", "E") and rest.replace(".", "").isdecimal()


def node_of_automatic(question_id: str) -> str:
    """The node that an id of such a question would be about; empty for any other id."""
    letter, _, rest = question_id.partition("-")
    node_id, _, number = rest.rpartition("-")
    return node_id if letter in ("Q", "E") and number.replace(".", "").isdecimal() else ""


def open_question_of(state: State, node: Node, gate_id: str) -> Question | None:
    """The open question about this gate of the node, or None."""
    for question in state.questions.values():
        if question.gate == gate_id and question.node == node.node_id:
            return question
    return None


def is_stale(state: State, node: Node, gate: Gate, question: Question) -> bool:
    """Whether the state alone tells that an open question is about another content or scope."""
    return not _is_of_record(state, node, gate, question.files, question.content)


def refused_as_it_is(state: State, node: Node, gate: Gate) -> bool:
    """Whether a person refused what the record says is there now: it is not asked about again."""
    refused = node.rejected.get(gate.gate_id)
    files = registered_files(state, node, gate)
    return refused is not None and content_digest(state, node, gate, files) == refused


def start_gate_refusal(state: State, node: Node) -> str:
    """Why a gate keeps this node from starting, as the end of a sentence; empty when none does."""
    for gate in gates_at(state, node, "start"):
        if approval_of(state, node, gate, None) is not None:
            continue
        question = open_question_of(state, node, gate.gate_id)
        if question is not None:
            return f"gate {gate.gate_id} waits for a ruling on question {question.question_id}"
        if refused_as_it_is(state, node, gate):
            return f"gate {gate.gate_id} was refused, and nothing has changed since"
        return f"gate {gate.gate_id} is not approved"
    return ""
