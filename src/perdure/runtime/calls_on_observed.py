"""Calls that write observations: what was seen, a confirmed block, the owner's answer.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing; an observation is on record
also where the claim that could go with it is not possible.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.core import observed_commands as o
from perdure.core.events import Event
from perdure.core.late import LateModule
from perdure.core.lookup import near
from perdure.core.model import Node, State
from perdure.core.observed import PENDING_STATES, PROVIDER_EVIDENCE
from perdure.errors import RefusedError, UsageError
from perdure.runtime.answers import Answer, Args, answer, node_of_call
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.storage.workspace import resolve_inside

# Only what is claimed complete needs these.
_scope: Final = LateModule("perdure.runtime.scope")
_work: Final = LateModule("perdure.runtime.work")

KINDS: Final[Mapping[str, str]] = {
    "progress": "STEP_PROGRESS",
    "completed": "STEP_COMPLETED",
    "task-completed": "TASK_COMPLETED",
    "external": "EXTERNAL_OBSERVED",
    "download": "DOWNLOAD_OBSERVED",
}
"""What can be observed, as callers say it, with the event that says it."""


def observe(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record what was seen; ``what`` is one of ``KINDS``.

    A step that is seen completed while it is at work is claimed complete in the same commit (N03),
    with its outputs registered, if they are there. If not the observation stands alone, and the
    answer says why.
    """
    what = str(args.get("what") or "")
    if what not in KINDS:
        raise UsageError(
            f"{what!r} is not something that is observed.",
            code="unknown_kind",
            rule="OB-1",
            fix=f"Use one of {', '.join(KINDS)}.",
            suggestions=near(what, KINDS),
        )
    with engine.writing():
        named = args.get("node") or what in ("progress", "completed")
        node = node_of_call(engine, args) if named else None
        command = _observation(what, node, args)
        if node is not None and what == "completed":
            return _claimed_with(engine, node, command, op)
        about = node if command.entity_type == "node" else None
        return _answer(engine, engine.execute(command, op=op), about)


def _observation(what: str, node: Node | None, args: Args) -> o.Observe:
    payload: dict[str, Any] = {"node": node.node_id} if node is not None else {}
    about, name = "task", ""
    if what in ("progress", "completed") and node is not None:
        about, name, payload = "node", node.node_id, {}
    elif what == "external":
        about = "external_job"
        payload |= {key: str(args.get(key) or "") for key in ("provider", "job_id", "state")}
    elif what == "download":
        about, name = "download", str(args.get("id") or "")
        payload |= {key: str(args.get(key) or "") for key in ("status", "path", "checksum")}
        payload["size_bytes"] = args.get("size_bytes")
    return o.Observe(
        KINDS[what], about, name, str(args.get("summary") or ""), _facts(args), payload
    )


def block(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record a confirmed block of a node, or without one of the task; a node at work waits (N05)
    until the owner resumes."""
    with engine.writing():
        node = node_of_call(engine, args) if args.get("node") else None
        command = o.ConfirmBlock(
            node.node_id if node is not None else "",
            str(args.get("reason") or ""),
            _texts(args.get("needs")),
            str(args.get("safe_next_step") or ""),
            str(args.get("failure_type") or ""),
            _facts(args),
            str(args.get("resume_token") or ""),
            str(args.get("summary") or ""),
        )
        return _answer(engine, engine.execute(command, op=op), node)


def reply(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record the owner's answer to the supervisor, one of the letters A to E, and what follows."""
    with engine.writing():
        node = node_of_call(engine, args) if args.get("node") else None
        command = o.RecordReply(
            str(args.get("letter") or ""),
            node.node_id if node is not None else "",
            str(args.get("summary") or ""),
            _facts(args),
            str(args.get("reason") or ""),
            _texts(args.get("needs")),
            str(args.get("safe_next_step") or ""),
            str(args.get("failure_type") or ""),
            str(args.get("resume_token") or ""),
        )
        if node is not None and command.letter.strip().upper() == "C":
            return _claimed_with(engine, node, command, op)
        return _answer(engine, engine.execute(command, op=op), node)


def _facts(args: Args) -> dict[str, str]:
    facts = args.get("facts") or {}
    if not isinstance(facts, Mapping):
        raise UsageError(
            f"facts are names with values, and {facts!r} is not.",
            code="bad_fact",
            rule="OB-1",
            fix='Pass an object such as {"pages": "40"}.',
        )
    return dict(facts)


def _texts(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(map(str, given or ()))


def _claimed_with(
    engine: Engine, node: Node, command: o.Observe | o.RecordReply, op: str | None
) -> Answer:
    """Carry out a word of completion, with the claim and its registrations where that is possible.

    All of it is one commit. Where the claim is refused nothing of it is left but the word.
    """
    node_id, why = node.node_id, ""
    before = engine.repeated(op)
    if before is not None:
        return _answer(engine, before, node)
    if node.state == "RUNNING":
        why = _no_output(engine, node)
        if not why:
            try:
                with engine.batch(op=op):
                    _work.register_outputs(engine, node)
                    claim = msgspec.structs.replace(command, claim=True)
                    committed = engine.execute(claim)
                return _answer(engine, committed, node, claimed=True)
            except RefusedError as error:
                why = error.message
    committed = engine.execute(command, op=op)
    node = engine.replica.state.nodes[node_id]
    if not why and node.state not in ("VERIFYING", "DONE"):
        why = "nobody is at work on it"
    return _answer(engine, committed, node, claimed=False, why=why)


def _no_output(engine: Engine, node: Node) -> str:
    """Why there is nothing to claim; empty when what the node declares is there."""
    if node.spec.map is not None:
        return "it is a batch node, which its run submits"
    declared = node.spec.outputs
    if declared is None:
        found = node.artifacts or _scope.products_below(engine, f"artifacts/{node.node_id}")
        return "" if found else "it has no output yet"
    missing = [path for path in declared if not _is_there(engine, path)]
    return f"{', '.join(missing[:5])} is missing" if missing else ""


def _is_there(engine: Engine, path: str) -> bool:
    if path in engine.replica.paths:
        return True
    full = resolve_inside(engine.disk, engine.layout.root, path)
    return engine.disk.stat(engine.disk.real_path(full)) is not None


def _answer(engine: Engine, committed: Committed, node: Node | None, **more: Any) -> Answer:
    told = _told(engine.replica.state, committed.events, node.node_id if node is not None else "")
    return answer(committed, **told, **more)


def tell_observe(state: State, events: Sequence[Event]) -> Answer:
    """What was observed, where its node stands, and whether it was claimed complete.

    What acknowledges it is the observation, not what was registered with the claim in front of it.
    """
    said = [event for event in events if event.kind in _SAYING]
    if not said:
        return {}
    named = [event.entity.id for event in said if event.entity.type == "node"]
    found = _told(state, events, named[0] if named else "")
    if named and any(_completes(event) for event in said):
        moves = [event.payload["to"] for event in events if event.kind == "STATE_TRANSITION"]
        found["claimed"] = "VERIFYING" in moves
    return {"committed": said[0].ref, **found}


tell_block = tell_reply = tell_observe

_SAYING: Final = frozenset({*KINDS.values(), "BLOCKED_CONFIRMED", "OWNER_REPLY_RECORDED"})


def _completes(event: Event) -> bool:
    return event.kind == "STEP_COMPLETED" or event.payload.get("letter") == "C"


def _told(state: State, events: Sequence[Event], node_id: str) -> Answer:
    said: Answer = {}
    if node_id:
        said = {"node": node_id, "state": state.nodes[node_id].state}
    for event in events:
        if event.kind == "EXTERNAL_OBSERVED":
            said.update(job=event.entity.id, job_state=event.payload["state"])
            job = state.observed.external[event.entity.id]
            if job.state in PENDING_STATES:
                shown = PROVIDER_EVIDENCE & job.facts.keys()
                said["evidence"] = sorted(name for name in shown if job.facts[name].strip())
        elif event.kind == "DOWNLOAD_OBSERVED":
            said.update(download=event.entity.id, status=event.payload["status"])
        elif event.kind == "OWNER_REPLY_RECORDED":
            said["reply"] = event.payload["letter"]
            if event.entity.type == "node":
                named = state.nodes[event.entity.id]
                said.update(node=named.node_id, state=named.state)
    return said
