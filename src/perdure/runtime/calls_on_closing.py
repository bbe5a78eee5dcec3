"""Calls about the end of a task: archive it, accept what it made, close it.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing; the audit that an archive rests
on is made under the writer lock, of exactly what is committed.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.core import closing_commands as k
from perdure.core.commands import MoveTask
from perdure.core.decide_archive import open_repair
from perdure.core.machine import count_states, task_edge
from perdure.core.memory_drafts import checked_scope
from perdure.core.model import Artifact, Node, State
from perdure.core.proposals import propose
from perdure.core.task_audit import AuditRecord
from perdure.core.task_audit_record import failed_items
from perdure.core.views import cut
from perdure.errors import CorruptError, RefusedError, TransitionError
from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.engine import Engine
from perdure.runtime.sealing import seal
from perdure.runtime.task_audits import Audited, Extras, audit_task

findings_told_max: Final = 5
outputs_told_max: Final = 20
goal_chars_max: Final = 2_000
DEFAULT_SCOPE: Final = "project:default"
_digest_chars: Final = 16


def archive(engine: Engine, args: Args, op: str | None) -> Answer:
    """Audit the task; archive it when it passes (T10), add a node for each defect when not (T09).

    ``extras`` is what the layers above have looked up. A task that has anything open is refused.
    """
    scope = checked_scope(str(args.get("scope") or DEFAULT_SCOPE))
    with engine.writing():
        state = engine.replica.state
        if state.fsm_task == "ARCHIVED":
            return {"committed": state.closing.handoff, "repeated": True, **standing(state)}
        _check_root(state)
        if state.fsm_task != "FINAL_AUDIT":
            _check_whole(engine, audit_task(engine, items=()))  # before anything is written
            _enter_final_audit(engine)
        extras = args.get("extras")
        audited = audit_task(engine, extras=extras if isinstance(extras, Extras) else Extras())
        _check_whole(engine, audited)
        record: dict[str, Any] = msgspec.to_builtins(audited.record)
        if not audited.record.passed:
            return _open_repairs(engine, audited.record, record, op)
        proposals = tuple(one.as_data() for one in propose(engine.replica.state, scope))
        note = handoff_note(engine.replica.state)
        committed = engine.execute(k.ArchiveTask(record, proposals, note), op=op)
        told = standing(engine.replica.state)
        return answer(committed, **told, proposals=list(proposals), handoff=note, exit_code=0)


def _check_root(state: State) -> None:
    if state.parent is not None:
        raise TransitionError(
            f"{state.task_id} is nested in task {state.parent.task_id!r}, and is archived with it.",
            rule="FST-4",
            fix="Archive the task above: perdure archive",
        )


def _check_whole(engine: Engine, audited: Audited) -> None:
    if audited.damage:
        raise CorruptError(
            f"{engine.layout.journal}: {audited.damage}, so the task cannot be audited.",
            rule="FST-3",
            fix="Put the journal back from a copy, then archive again.",
        )


def _enter_final_audit(engine: Engine) -> None:
    """Take the task to FINAL_AUDIT if nothing is open (T07, T12)."""
    state = engine.replica.state
    row = task_edge("EXECUTING", "FINAL_AUDIT")
    refusal = row.guard(state) if row is not None else ""
    if refusal:
        raise TransitionError(
            f"the task cannot be archived: {refusal}.",
            rule="T07",
            fix="Finish or cancel what is open; `perdure status` lists it.",
        )
    if state.fsm_task == "SUSPENDED":
        engine.execute(MoveTask("RECOVERING", "to be archived"))
    engine.execute(MoveTask("FINAL_AUDIT", "to be archived"))


def _open_repairs(
    engine: Engine, audited: AuditRecord, record: Mapping[str, Any], op: str | None
) -> Answer:
    defects = []
    for item in failed_items(audited):
        failed = [result for result in item.results if not result.ok]
        told = "; ".join(f"{r.ref}: {r.note}" for r in failed[:findings_told_max])
        defects.append(k.Defect(item.item, f"{item.title}: {told}."))
    committed = engine.execute(k.OpenRepairs(dict(record), tuple(defects)), op=op)
    state = engine.replica.state
    repairs = {defect.item: open_repair(state, defect.item) for defect in defects}
    return answer(
        committed,
        **standing(state),
        defects=[msgspec.to_builtins(defect) for defect in defects],
        repairs=repairs,
        exit_code=1,
    )


def accept(engine: Engine, args: Args, op: str | None) -> Answer:
    """The sponsor takes what the task has made."""
    committed = engine.execute(k.AcceptContent(str(args.get("text") or "")), op=op)
    return answer(committed, **standing(engine.replica.state))


def close(engine: Engine, args: Args, op: str | None) -> Answer:
    """Close the task for good, then make its files read-only; again, it finishes what is left.

    Sealing begins when the last event is in both journals and all that is made from them is
    written; so whatever of it is missing can still be written when nothing is sealed yet.
    """
    if engine.replica.state.closing.closed:
        with contextlib.suppress(RefusedError):  # sealed in part, or all of it: whole then
            with engine.writing():
                pass
            engine.project()
        sealed = seal(engine.disk, engine.layout.root, engine.layout.journal_lock)
        known = {"committed": engine.replica.state.closing.closed, "repeated": True}
        return {**known, **standing(engine.replica.state), "sealed": sealed}
    committed = engine.execute(k.CloseTask(str(args.get("text") or "")), op=op)
    engine.project()
    sealed = seal(engine.disk, engine.layout.root, engine.layout.journal_lock)
    return answer(committed, **standing(engine.replica.state), sealed=sealed)


def standing(state: State) -> dict[str, Any]:
    """How far the end of a task has come, and what comes next."""
    return {
        "fsm_task": state.fsm_task,
        "sub_state": state.closing.sub_state,
        "next": next_of(state),
    }


def next_of(state: State) -> str:
    """The command that takes the end of a task further; empty when nothing does."""
    if state.fsm_task != "ARCHIVED":
        return "perdure archive"
    if not state.closing.accepted:
        return "perdure archive --accept TEXT --actor sponsor:NAME"
    return "" if state.closing.closed else "perdure archive --close"


def handoff_note(state: State) -> str:
    """What whoever comes after the task has to know, in a page."""
    counts = ", ".join(f"{count} {name}" for name, count in count_states(state).items())
    made = [
        _made(name, artifact)
        for name, artifact in state.artifacts.items()
        if artifact.status == "current" and artifact.produced_by_node
    ]
    left = len(made) - outputs_told_max
    more = f" and {left} more" if left > 0 else ""
    goal = cut(state.goal_statement, goal_chars_max)
    lines = [
        f"Task {state.task_id}: {goal or 'no goal is on record'}",
        f"Nodes: {counts}.",
        f"Made: {'; '.join(made[:outputs_told_max]) or 'nothing that is registered'}{more}.",
        f"Accept it against: {_first(state.acceptance) or 'nothing is written down'}.",
    ]
    given_up = [
        _given_up(n) for n in state.nodes.values() if n.state in ("QUARANTINED", "CANCELLED")
    ]
    if given_up:
        lines.append(f"Given up: {'; '.join(given_up[:outputs_told_max])}.")
    if state.decisions:
        lines.append(f"Decisions on record: {state.decisions} (perdure log).")
    if state.questions:
        lines.append(f"Still asked: {', '.join(list(state.questions)[:outputs_told_max])}.")
    lines.append("Prove it again: perdure verify, perdure audit. Why it is so: perdure why ID.")
    return "\n".join(lines)


def _first(texts: Sequence[str]) -> str:
    left = len(texts) - outputs_told_max
    told = "; ".join(cut(text) for text in texts[:outputs_told_max])
    return f"{told} and {left} more" if left > 0 else told


def _made(name: str, artifact: Artifact) -> str:
    digest = artifact.integrity.value[:_digest_chars]
    return f"{artifact.path} ({name}, {artifact.integrity.algo} {digest})"


def _given_up(node: Node) -> str:
    after = f", {', '.join(node.successors)} took its place" if node.successors else ""
    why = f": {cut(node.diagnosis)}" if node.diagnosis else ""
    return f"{node.node_id} ({node.state}{after}){why}"
