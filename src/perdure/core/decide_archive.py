"""Decisions about the end of a task: repairs, the archive, and what closes it for good.

Invariants: a task is archived by an audit of exactly what its journal says, which has passed, in
one commit with its proposals and its hand-off (FST-3); a defect adds a node and takes nothing away
(T09); the content is the sponsor's to accept; after the last word nothing is written.
"""

from typing import Any, Final

from perdure.core import closing_commands as k
from perdure.core import commands as c
from perdure.core.commands import Context, Decision
from perdure.core.decide_node import add_draft
from perdure.core.decide_task_audit import check_record, record_draft
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.machine import task_edge
from perdure.core.model import CLOSED_STATES, Spec, State
from perdure.core.moves import task_move
from perdure.core.naming import check_text
from perdure.errors import RefusedError, TransitionError

OUTCOME: Final = "completed"
REPAIR: Final = "repair"


def decide_repairs(replica: Replica, command: k.OpenRepairs, context: Context) -> Decision:
    """The record, the move out of FINAL_AUDIT (T09), and a node for each defect that has none."""
    state = replica.state
    record = check_record(state, command.record)
    drafts = [record_draft(state, record, command.record)]
    if state.fsm_task == "FINAL_AUDIT":
        drafts.append(task_move(state.task_id, "FINAL_AUDIT", "DECOMPOSING"))
    names: list[str] = []
    for defect in command.defects:
        if open_repair(state, defect.item):
            continue
        name = _free_name(state, defect.item, names)
        names.append(name)
        spec = Spec(
            goal=f"{defect.finding} {defect.fix}".strip(),
            constraints=(f"The audit has to pass: perdure audit --item {defect.item}",),
        )
        add = c.AddNode(name, f"Repair what {defect.item} of the audit found", spec=spec)
        cause = {"reason": f"{defect.item} failed in the final audit", "defect": defect.item}
        drafts.append(add_draft(state, add, beside=names[:-1], cause=cause))
    return Decision(tuple(drafts))


def open_repair(state: State, item: str) -> str:
    """The node that is to put this item right and is not closed yet; empty when there is none."""
    prefix = f"{REPAIR}-{item}"
    for name, node in state.nodes.items():
        base = name == prefix or name.startswith(f"{prefix}.")
        if base and node.state not in CLOSED_STATES:
            return name
    return ""


def _free_name(state: State, item: str, beside: list[str]) -> str:
    base = name = f"{REPAIR}-{item}"
    number = 1
    while name in state.nodes or name in beside:
        number += 1
        name = f"{base}.r{number}"
    return name


def decide_archive(replica: Replica, command: k.ArchiveTask, context: Context) -> Decision:
    """Record, proposals, hand-off, T10 and INSTANCE_ENDED in one commit (FST-3).

    Refused unless the task is in FINAL_AUDIT and the record is of all that the journal says now.
    """
    state = replica.state
    edge = task_edge(state.fsm_task, "ARCHIVED")
    refusal = "it is not in its final audit" if edge is None else edge.guard(state)
    if edge is None or refusal:
        raise TransitionError(
            f"the task cannot go from {state.fsm_task} to ARCHIVED: {refusal}.",
            rule="T10",
            fix="Finish or cancel what is open; `perdure status` lists it.",
        )
    record = check_record(state, command.record)
    if not record.passed:
        raise RefusedError(
            f"the audit of {state.task_id} has not passed.",
            code="audit_failed",
            rule="FST-3",
            fix="`perdure audit` says what failed; `perdure archive` adds nodes to repair it.",
        )
    if record.seq != state.seq:
        raise RefusedError(
            f"the audit is of J-1 to J-{record.seq}, and the journal has gone on to J-{state.seq}.",
            code="audit_outdated",
            rule="FST-3",
            fix="Audit and archive again.",
        )
    check_text(command.handoff, "hand-off")
    task = state.task_id
    proposals = {
        "op": "memory_proposals",
        "text": f"{len(command.proposals)} proposals for the memory store",
        "proposals": [dict(one) for one in command.proposals],
    }
    move = task_move(task, state.fsm_task, "ARCHIVED")
    return Decision(
        (
            record_draft(state, record, command.record),
            Draft("NOTE", "task", task, proposals),
            Draft("NOTE", "task", task, {"op": "handoff", "text": command.handoff}),
            Draft(move.kind, move.entity_type, move.entity_id, _in(move.payload)),
            Draft("INSTANCE_ENDED", "task", task, {"outcome": OUTCOME, "seq": state.seq}),
        )
    )


def _in(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "sub_state": "PROCESS_COMPLETE"}


def decide_accept(replica: Replica, command: k.AcceptContent, context: Context) -> Decision:
    """The sponsor's DECISION that the content is what was wanted; said once."""
    state = replica.state
    _check_archived(state, "accepted")
    if state.closing.accepted:
        return Decision(answer=state.closing.accepted)
    payload = {
        "op": "accept_content",
        "id": "DR-accept",
        "rationale": command.text or "the content is what was wanted",
        "acceptance": list(state.acceptance),
        "authority": context.actor,
    }
    return Decision((Draft("DECISION", "task", state.task_id, payload),))


def decide_close(replica: Replica, command: k.CloseTask, context: Context) -> Decision:
    """The last event of a task: nothing is written to it any more."""
    state = replica.state
    if state.closing.closed:
        return Decision(answer=state.closing.closed)
    _check_archived(state, "closed")
    if not state.closing.accepted:
        raise RefusedError(
            f"task {state.task_id} is archived, and nobody has accepted what it made.",
            code="not_accepted",
            rule="FST-3",
            fix="Let the sponsor accept it first: perdure archive --accept TEXT"
            " --actor sponsor:NAME",
        )
    payload = {
        "op": "close_task",
        "id": "DR-close",
        "rationale": command.text or "nothing of it changes any more",
        "authority": context.actor,
    }
    return Decision((Draft("DECISION", "task", state.task_id, payload),))


def _check_archived(state: State, what: str) -> None:
    if state.fsm_task != "ARCHIVED":
        raise TransitionError(
            f"task {state.task_id} is {state.fsm_task}, and only an archived one is {what}.",
            rule="FST-3",
            fix="Archive it first: perdure archive",
        )
