"""Decisions: a command against a state gives events, or a refusal that names its rule.

``decide`` is pure: it reads the replica, never changes it, and touches nothing outside. What it
returns has not happened yet; it has once the commit is durable. The parts that deal with nodes and
with artifacts are in ``decide_node``, ``decide_ending`` and ``decide_artifact``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.core import closing_commands as k
from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core import observed_commands as o
from perdure.core.authority import check_authority
from perdure.core.closing import EDGE_KINDS, closed_refusal
from perdure.core.events import ENTITY_TYPES, KINDS, Draft
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.lookup import contract_of, near, node_of
from perdure.core.machine import count_states, task_edge
from perdure.core.model import FORMAT_VERSION, State
from perdure.core.moves import task_move
from perdure.core.naming import check_facts, check_id, check_text
from perdure.errors import NotFoundError, RefusedError, TransitionError, UsageError

_TERMINAL_ALLOWED: Final = (
    c.WriteNote, c.RecordDecision, c.LogSteering, c.PropagateSteering, c.MoveTask, c.AppendRaw,
    k.RecordTaskAudit, k.CorrectTaskAudit, k.ArchiveTask, k.AcceptContent, k.CloseTask,
    k.NoteDoc, k.NoteStale,
)  # fmt: skip


def decide(replica: Replica, command: c.Command, context: c.Context) -> c.Decision:
    """The events this command comes to. Raises HaltError, and then nothing is to be changed."""
    state = replica.state
    if state.fsm_task == "ARCHIVED" and not isinstance(command, _TERMINAL_ALLOWED):
        raise RefusedError(
            f"task {state.task_id} is archived.",
            code="task_archived",
            rule="FST-3",
            fix="Start a new task for further work.",
        )
    if state.closing.closed and not isinstance(command, k.CloseTask):
        raise closed_refusal(state.task_id, state.closing.closed)
    check_authority(state, command, context)
    decider = _DECIDERS.get(type(command))
    if decider is None:
        home, name = _LATE_DECIDERS[type(command)]
        decider = getattr(home, name)
    decision: c.Decision = decider(replica, command, context)
    return decision


def _start_task(replica: Replica, command: c.StartTask, context: c.Context) -> c.Decision:
    if replica.state.created:
        raise RefusedError(
            f"task {replica.state.task_id} exists already.",
            code="task_exists",
            rule="D2",
            fix="Go on with it, or name another directory.",
        )
    check_id(command.task_id, "a task id")
    if command.tier not in (0, 1, 2):
        raise UsageError(f"tier {command.tier} does not exist.", fix="Use 0, 1 or 2.")
    started = Draft(
        "INSTANCE_STARTED",
        "task",
        command.task_id,
        {
            "task": command.task_id,
            "goal": command.goal,
            "acceptance": list(command.acceptance),
            "tier": command.tier,
            "policies": msgspec.to_builtins(command.policies),
            "people": command.people,
            "standing_authorities": list(command.standing_authorities),
            "source": command.source,
            "delegation": command.delegation,
            "format": FORMAT_VERSION,
            **{name: given for name, given in _of_instance(command) if given},
        },
    )
    return c.Decision((started, task_move(command.task_id, "INIT", "DECOMPOSING")))


def _of_instance(command: c.StartTask) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("parent", command.parent), ("sop", command.sop))


_TASK_ROUTES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("INIT", "DECOMPOSING"): ("DECOMPOSING",),
    ("INIT", "EXECUTING"): ("DECOMPOSING", "EXECUTING"),
    ("DECOMPOSING", "EXECUTING"): ("EXECUTING",),
    ("SUSPENDED", "EXECUTING"): ("RECOVERING", "EXECUTING"),
    ("RECOVERING", "EXECUTING"): ("EXECUTING",),
    ("FINAL_AUDIT", "EXECUTING"): ("DECOMPOSING", "EXECUTING"),
    ("EXECUTING", "DECOMPOSING"): ("DECOMPOSING",),
    ("FINAL_AUDIT", "DECOMPOSING"): ("DECOMPOSING",),
    ("EXECUTING", "RECOVERING"): ("RECOVERING",),
    ("SUSPENDED", "RECOVERING"): ("RECOVERING",),
    ("RECOVERING", "DECOMPOSING"): ("DECOMPOSING",),
    ("RECOVERING", "FINAL_AUDIT"): ("FINAL_AUDIT",),
    ("EXECUTING", "SUSPENDED"): ("SUSPENDED",),
    ("DECOMPOSING", "SUSPENDED"): ("EXECUTING", "SUSPENDED"),
    ("EXECUTING", "FINAL_AUDIT"): ("FINAL_AUDIT",),
    ("DECOMPOSING", "FINAL_AUDIT"): ("EXECUTING", "FINAL_AUDIT"),
}


def _move_task(replica: Replica, command: c.MoveTask, context: c.Context) -> c.Decision:
    state = replica.state
    if state.fsm_task == command.to:
        return c.Decision()
    if command.to == "SUSPENDED" and state.fsm_task in _OVER:
        raise TransitionError(
            f"the task is finished ({state.fsm_task}): there is nothing to suspend.",
            rule="FST-1",
            fix="`perdure status` tells what was done; `perdure add` makes more work.",
        )
    route = _TASK_ROUTES.get((state.fsm_task, command.to))
    if not route:
        raise TransitionError(
            f"the task cannot go from {state.fsm_task} to {command.to}.",
            rule="FST-1",
            fix=_TASK_FIXES.get(command.to, _SEE_STATUS),
        )
    source: str = state.fsm_task
    drafts = []
    for target in route:
        edge = task_edge(source, target)
        refusal = edge.guard(state) if edge is not None else "there is no such edge"
        if edge is None or refusal:
            raise TransitionError(
                f"the task cannot go from {source} to {target}: {refusal}.",
                rule=edge.id if edge is not None else "FSN-1",
                fix=_TASK_FIXES.get(target, _SEE_STATUS),
            )
        drafts.append(task_move(state.task_id, source, target))
        source = target
    if command.to == "SUSPENDED":
        note = {"op": "handoff", "text": command.reason or "paused", **_handoff(state)}
        drafts.insert(0, Draft("NOTE", "task", state.task_id, note))
    return c.Decision(tuple(drafts))


_OVER: Final = ("FINAL_AUDIT", "ARCHIVED")
"""Where nothing of the task is left to do."""
_TASK_FIXES: Final = {
    "SUSPENDED": "Submit, fail or cancel the work under way first; `perdure status` lists it.",
    "EXECUTING": "Add nodes with `perdure add`, or see `perdure status` for what is waiting.",
    "FINAL_AUDIT": "Finish or cancel what is open; `perdure status` lists it.",
}


_SEE_STATUS: Final = "`perdure status` tells where the task stands."


def _handoff(state: State) -> dict[str, Any]:
    return {"counts": count_states(state), "hint": state.next_hint}


def _note(replica: Replica, command: c.WriteNote, context: c.Context) -> c.Decision:
    check_text(command.text, "note")
    payload = {"op": command.op, "text": command.text, **command.extra}
    return c.Decision((Draft("NOTE", "task", replica.state.task_id, payload),))


def _record_decision(replica: Replica, command: c.RecordDecision, context: c.Context) -> c.Decision:
    check_text(command.text, "decision")
    decision_id = command.decision_id or f"DR-{replica.state.decisions + 1}"
    check_id(decision_id, "a decision id")
    payload: dict[str, Any] = {
        "op": "decision",
        "id": decision_id,
        "rationale": command.text,
        "options": list(command.options),
        "choice": command.choice,
        "authority": command.authority or context.actor,
    }
    if command.memory:
        payload["memory"] = list(command.memory)
    if command.edges:
        payload["edges"] = [list(edge) for edge in command.edges]
    for kind, ref in command.edges:
        _check_edge(replica.state, kind, ref)
    based_on = [ref for kind, ref in command.edges if kind == "DERIVED_FROM"]
    evidence = (*(f"{one['store']}:{one['id']}" for one in command.memory), *based_on)
    return c.Decision((Draft("DECISION", "task", replica.state.task_id, payload, evidence),))


_SAID_ELSEWHERE: Final = re.compile(r"(DR-|MEM-|git:|contracts/|instances/).")
"""What a state does not list, and a decision may refer to all the same."""


def _check_edge(state: State, kind: str, ref: str) -> None:
    """Raise UsageError for an edge that there is not, NotFoundError for one that leads nowhere."""
    if kind not in EDGE_KINDS:
        raise UsageError(
            f"there is no edge {kind!r}.",
            code="unknown_edge",
            rule="INV-9",
            fix=f"Use one of {', '.join(EDGE_KINDS)}.",
        )
    number = ref.removeprefix("J-")
    if ref != number and number.isdecimal() and 1 <= int(number) <= state.seq:
        return
    known = (state.nodes, state.artifacts, state.questions, state.closed_questions, state.steering)
    if any(ref in names for names in known) or _SAID_ELSEWHERE.match(ref):
        return
    raise NotFoundError(
        f"there is no {ref!r} that a decision could speak of.",
        code="unknown_ref",
        rule="IN-2",
        fix="Name a node, an artifact, a decision, or an event such as J-42.",
        suggestions=near(ref, [*state.nodes, *state.artifacts]),
    )


def _receipt(replica: Replica, command: c.RecordReceipt, context: c.Context) -> c.Decision:
    check_text(command.proof, "proof")
    if command.receipt_id:
        check_id(command.receipt_id, "a receipt id")
    decision: c.Decision = _ENDING.decide_receipt(replica, command, context)
    return decision


def _beat(replica: Replica, command: c.Beat, context: c.Context) -> c.Decision:
    state, drafts = replica.state, list[Draft]()
    check_facts(command.facts)
    for node_id in command.node_ids:
        node = node_of(state, node_id)
        contract = contract_of(state, node)
        if contract is None:
            raise TransitionError(
                f"nobody is at work on {node_id}: it is {node.state}.",
                rule="FSN-2",
                fix=f"Start it first: perdure start {node_id}",
            )
        payload: dict[str, Any] = {
            "invocation": contract.invocation_id,
            "at": context.now,
            "note": command.note,
        }
        if not drafts:  # one beat is one word on how the work is, however many nodes it names
            payload["ok"] = command.ok
        if command.facts:
            payload["facts"] = dict(command.facts)
        if contract.expires_at is not None:
            payload["expires_at"] = context.now + state.policies.contract_ttl_s
        drafts.append(Draft("HEARTBEAT", "node", node_id, payload))
    return c.Decision(tuple(drafts))


def _append_raw(replica: Replica, command: c.AppendRaw, context: c.Context) -> c.Decision:
    if command.kind not in KINDS or command.entity_type not in ENTITY_TYPES:
        raise UsageError(
            f"there is no event kind {command.kind!r} about a {command.entity_type!r}.",
            code="unknown_kind",
            fix="Use a kind and an entity type of the protocol.",
        )
    guarded = {
        "STATE_TRANSITION": "transition",
        "ARTIFACT_REGISTERED": "register_artifact",
        "AMENDMENT": "add_node",
        "INSTANCE_STARTED": "the constructor",
        "STEERING_LOGGED": "steering",
        "HEARTBEAT": "beat",
        "NOTE": "note",
        "INSTANCE_ENDED": "the archive, once the audit has passed",
        "GOAL_AMENDED": "goal",
        "RECEIPT": "receipt",
        "DECISION": "decision",
    }
    if command.kind in guarded:
        raise RefusedError(
            f"a {command.kind} cannot be written directly: it has guards of its own.",
            rule="FSN-1",
            fix=f"Use {guarded[command.kind]}.",
        )
    draft = Draft(
        command.kind, command.entity_type, command.entity_id, command.payload, command.evidence
    )
    return c.Decision((draft,))


_DECIDERS: Final[Mapping[type, Callable[[Replica, Any, c.Context], c.Decision]]] = {
    c.StartTask: _start_task,
    c.RecordReceipt: _receipt,
    c.Beat: _beat,
    c.WriteNote: _note,
    c.RecordDecision: _record_decision,
    c.MoveTask: _move_task,
    c.AppendRaw: _append_raw,
}


# A call needs one of these at most, and a note none.
_NODE: Final = LateModule("perdure.core.decide_node")
_ENDING: Final = LateModule("perdure.core.decide_ending")
_ARTIFACT: Final = LateModule("perdure.core.decide_artifact")
_QUESTION: Final = LateModule("perdure.core.decide_question")
_GATE: Final = LateModule("perdure.core.decide_gate")
_RULING: Final = LateModule("perdure.core.decide_ruling")
_STEERING: Final = LateModule("perdure.core.decide_steering")
_GOAL: Final = LateModule("perdure.core.decide_goal")
_REPLAN: Final = LateModule("perdure.core.decide_replan")
_OBSERVED: Final = LateModule("perdure.core.decide_observed")
_SLOT: Final = LateModule("perdure.core.decide_slot")
_AUDIT: Final = LateModule("perdure.core.decide_audit")
_INSTANCE: Final = LateModule("perdure.core.decide_instance")
_TASK_AUDIT: Final = LateModule("perdure.core.decide_task_audit")
_ARCHIVE: Final = LateModule("perdure.core.decide_archive")
_DOCS: Final = LateModule("perdure.core.decide_docs")
_WALK: Final = LateModule("perdure.core.decide_walk")

_LATE_DECIDERS: Final[Mapping[type, tuple[LateModule, str]]] = {
    c.AddNode: (_NODE, "decide_add"),
    c.MoveNode: (_NODE, "decide_move"),
    c.CancelNodes: (_NODE, "decide_cancel"),
    c.FailNode: (_ENDING, "decide_fail"),
    c.RetryNode: (_ENDING, "decide_retry"),
    c.RegisterArtifact: (_ARTIFACT, "decide_register"),
    c.AttachArtifact: (_ARTIFACT, "decide_attach"),
    c.AskQuestion: (_QUESTION, "decide_ask"),
    c.AskGate: (_GATE, "decide_ask_gate"),
    c.AnswerQuestion: (_RULING, "decide_answer"),
    c.LogSteering: (_STEERING, "decide_log"),
    c.PropagateSteering: (_STEERING, "decide_propagate"),
    c.AmendGoal: (_GOAL, "decide_goal"),
    c.ChangePolicy: (_GOAL, "decide_policy"),
    c.AmendNode: (_REPLAN, "decide_amend"),
    c.SplitNode: (_REPLAN, "decide_split"),
    c.QuarantineNode: (_REPLAN, "decide_give_up"),
    o.Observe: (_OBSERVED, "decide_observe"),
    o.ConfirmBlock: (_OBSERVED, "decide_block"),
    o.RecordReply: (_OBSERVED, "decide_reply"),
    d.OpenSlot: (_SLOT, "decide_open"),
    d.CloseSlot: (_SLOT, "decide_close"),
    d.Suspect: (_SLOT, "decide_suspect"),
    d.RecordLate: (_SLOT, "decide_late"),
    d.ChangeMode: (_SLOT, "decide_mode"),
    d.RecordAudit: (_AUDIT, "decide_audit"),
    d.RecordPlan: (_INSTANCE, "decide_plan"),
    d.MovePhase: (_INSTANCE, "decide_phase"),
    k.RecordTaskAudit: (_TASK_AUDIT, "decide_record"),
    k.CorrectTaskAudit: (_TASK_AUDIT, "decide_correction"),
    k.OpenRepairs: (_ARCHIVE, "decide_repairs"),
    k.ArchiveTask: (_ARCHIVE, "decide_archive"),
    k.AcceptContent: (_ARCHIVE, "decide_accept"),
    k.CloseTask: (_ARCHIVE, "decide_close"),
    k.NoteDoc: (_DOCS, "decide_doc"),
    k.NoteStale: (_DOCS, "decide_stale"),
    k.RecordWalk: (_WALK, "decide_walk"),
}
