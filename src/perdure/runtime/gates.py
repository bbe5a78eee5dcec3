"""Gates and the disk: what a person is asked about, read when it matters.

Job: read the content of a gate, ask what is due, and hold a start until its gates are open (GA-1 to
GA-3). Invariants: bytes are hashed in the call that needs them, never believed from a record; a
question is durable before anything is refused for the lack of its answer; a timeout never approves.
Which gates there are and whether one is open is ``core.gates``'s to say.
"""

from collections.abc import Mapping
from typing import Final

from perdure.core import commands as c
from perdure.core import gates
from perdure.core.frontier import due_gates
from perdure.core.lookup import way_past_refusal
from perdure.core.machine import waits_for_gates_alone
from perdure.core.model import Node
from perdure.core.people import Gate, GatePoint, Question
from perdure.errors import HaltError, PathError, RefusedError, StorageError
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.probe import hash_file
from perdure.storage.workspace import resolve_inside

problems_max: Final = 5
"""Files in trouble that a question names; the rest is only counted."""


# Content


def read_files(
    engine: Engine, node: Node, gate: Gate, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Path to sha256 of a gate's content as it is on disk now; empty where nothing is.

    What cannot be read has the reason in the place of its sha256, so that it equals no content.
    ``known`` holds what this very call has read already.
    """
    read = known or {}
    paths = gates.gate_paths(engine.replica.state, node, gate)
    return {path: read[path] if path in read else _digest(engine, path) for path in paths}


def _digest(engine: Engine, path: str) -> str:
    try:
        full = engine.disk.real_path(resolve_inside(engine.disk, engine.layout.root, path))
        found = engine.disk.stat(full)
        if found is None:
            return ""
        return hash_file(engine.disk, full)[0] if found.kind == "file" else f"a {found.kind}"
    except PathError:
        return "outside the workspace"
    except StorageError as error:
        return f"unreadable: {error.code}"


def contents_of(
    engine: Engine, node: Node, point: GatePoint, known: Mapping[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """Gate id to the files of its content, for every gate at this move of the node."""
    return {
        gate.gate_id: read_files(engine, node, gate, known)
        for gate in gates.gates_at(engine.replica.state, node, point)
    }


def _trouble(engine: Engine, files: Mapping[str, str]) -> str:
    """What is wrong with these files on disk, for whoever is asked about them."""
    found = []
    replica = engine.replica
    for path, digest in files.items():
        artifact = replica.state.artifacts.get(replica.paths.get(path, ""))
        if artifact is not None and artifact.integrity.value != digest:
            found.append(judge_artifact(engine, artifact).text.removeprefix("FAIL: "))
        elif artifact is None and len(digest) != 64:
            found.append(f"{path} is {digest or 'missing'}")
    left = len(found) - problems_max
    return "; ".join(found[:problems_max]) + (f"; and {left} more" if left > 0 else "")


# Asking


def ask(
    engine: Engine, node: Node, gate: Gate, files: dict[str, str], *, op: str | None = None
) -> tuple[Question | None, Committed]:
    """Have the question of a gate about this content open, in place of one about another.

    Durable on return; one about this very content is not asked again. None when a person has
    refused this content already.
    """
    command = c.AskGate(node.node_id, gate.gate_id, files, _trouble(engine, files))
    committed = engine.execute(command, op=op)
    return gates.open_question_of(engine.replica.state, node, gate.gate_id), committed


def ask_due_gates(engine: Engine) -> int:
    """Ask about every start that only a gate holds and that nobody has been asked about.

    Returns how many questions were written. A crash in between leaves those that were asked; the
    next call asks the rest.
    """
    asked = 0
    with engine.writing():
        for node, gate in due_gates(engine.replica):
            _, committed = ask(engine, node, gate, read_files(engine, node, gate))
            asked += not committed.repeated
    return asked


def apply_fallbacks(engine: Engine) -> int:
    """Reject, in their stead, what nobody ruled on in time and whose gate says so.

    Returns how many. Silence is never consent: every other overdue question stays open.
    """
    applied, now = 0, engine.world.clock.now()
    with engine.writing():
        overdue = [
            question.question_id
            for question in engine.replica.state.questions.values()
            if gates.is_overdue(question, now)
            and gates.is_of_gate(question)
            and question.default == "reject"
        ]
        for name in overdue:
            text = "nobody ruled on it in time"
            engine.execute(c.AnswerQuestion(name, "reject", text, by_default=True))
            applied += 1
    return applied


# The start


def open_start(engine: Engine, node: Node) -> dict[str, dict[str, str]]:
    """The contents of a node's start gates, each of them approved as it is on disk now.

    The caller holds the lock. A gate that nobody was asked about is asked, and the start refused
    (``gate_closed``, GA-1); an approval of something else than what is there now is void and asked
    anew (``approval_void``, GA-3). For a node that waits for something else besides nothing is
    asked: that is for the caller to refuse.
    """
    state = engine.replica.state
    contents = contents_of(engine, node, "start")
    if not waits_for_gates_alone(state, node):
        return contents
    closed: HaltError | None = None
    for gate in gates.gates_at(state, node, "start"):
        files = contents[gate.gate_id]
        if gates.approval_of(state, node, gate, files) is None:
            was = node.approvals.get(gate.gate_id)
            question, _ = ask(engine, node, gate, files)
            closed = closed or _closed(node, gate, question, was.ref if was is not None else "")
    if closed is not None:
        raise closed
    return contents


def _closed(node: Node, gate: Gate, question: Question | None, approved: str) -> HaltError:
    """Why the node does not start, with the question that settles it."""
    if question is None:
        return RefusedError(
            f"{node.node_id} does not start: gate {gate.gate_id} was refused, and what it is about"
            " has not changed since.",
            code="gate_closed",
            rule="GA-1",
            fix=way_past_refusal(node),
        )
    if approved:
        return RefusedError(
            f"{node.node_id} does not start: what was approved at gate {gate.gate_id} ({approved})"
            f" is not what is there now. Question {question.question_id} asks about that.",
            code="approval_void",
            rule="GA-3",
            fix=f"Look at it (`perdure show {question.question_id}`), then let a gatekeeper rule.",
        )
    return RefusedError(
        f"{node.node_id} does not start before gate {gate.gate_id} is approved; question"
        f" {question.question_id} asks: {question.text}",
        code="gate_closed",
        rule="GA-1",
        fix=f"Let a gatekeeper rule: perdure approve {question.question_id}",
    )


def open_questions(engine: Engine, node_id: str) -> list[Question]:
    """The questions that hold this node, oldest first."""
    questions = engine.replica.state.questions.values()
    return [q for q in questions if q.node == node_id and gates.holds_work(q)]
