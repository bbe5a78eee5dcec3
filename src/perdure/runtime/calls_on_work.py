"""Calls about the work on one node.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from collections.abc import Sequence

from perdure.core import commands as c
from perdure.core.audits import audit_plan
from perdure.core.events import Event
from perdure.core.model import State
from perdure.runtime import work
from perdure.runtime.answers import Answer, Args, answer, node_of_call, standing_of, verdict
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import read_back, read_commit


def start(engine: Engine, args: Args, op: str | None) -> Answer:
    """Claim a node for a session: N02 or N11 with its contract."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        reason = str(args.get("reason") or "")
        committed = work.start(engine, node_id, session=True, reason=reason, rank=True, op=op)
        return answer(committed, **tell_start(engine.replica.state, committed.events))


def tell_start(state: State, events: Sequence[Event]) -> Answer:
    """The contract that a node has been claimed under, and what it owes."""
    for event in events:
        if event.kind == "STATE_TRANSITION" and event.payload.get("to") == "RUNNING":
            node = state.nodes[event.entity.id]
            return {
                "node": node.node_id,
                "state": node.state,
                "invocation": node.invocation,
                "contract": f"contracts/{node.invocation}.json",
                "scope": f"artifacts/{node.node_id}",
                "outputs": None if node.spec.outputs is None else list(node.spec.outputs),
            }
    return {}


def beat(engine: Engine, args: Args, op: str | None) -> Answer:
    """Renew the contracts of a node, or of all that the actor has at work."""
    with engine.writing():
        names = (node_of_call(engine, args).node_id,) if args.get("node") else ()
        ok, facts = args.get("ok", True) is not False, dict(args.get("facts") or {})
        note = str(args.get("note") or "")
        committed = work.beat(engine, names, note, ok=ok, facts=facts, op=op)
        return answer(committed, nodes=[event.entity.id for event in committed.events])


def artifact(engine: Engine, args: Args, op: str | None) -> Answer:
    """Register a file or a commit of a node (AR-1)."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        artifact_id = str(args.get("id") or "")
        if args.get("git"):
            repo = str(args.get("repo") or ".")
            command = read_commit(engine, str(args["git"]), repo, artifact_id, node_id)
        else:
            command = read_back(
                engine,
                str(args["path"]),
                str(args.get("kind") or "file"),
                artifact_id=artifact_id,
                node_id=node_id,
                supersedes=args.get("supersedes"),
            )
        committed = engine.execute(command, op=op)
        name = engine.replica.paths[command.path]
        return answer(
            committed,
            node=node_id,
            artifact=name,
            path=command.path,
            sha256=command.integrity.value,
            size_bytes=command.integrity.size_bytes,
        )


def submit(engine: Engine, args: Args, op: str | None) -> Answer:
    """Claim completion and, unless ``no_check``, verify. The lock is not held while checks run."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
    evidence = tuple(args.get("evidence") or ())
    check = not args.get("no_check")
    committed = work.submit(engine, node_id, evidence, check=check, op=op)
    state = engine.replica.state
    told = tell_submit(state, committed.events)
    return answer(committed, **(told or {"node": node_id, **standing_of(state, node_id)}))


def tell_submit(state: State, events: Sequence[Event]) -> Answer:
    """Where a node stands that was submitted, with the verdict if there is one already."""
    about = [event for event in events if event.entity.type == "node"]
    if not about:
        return {}
    found: Answer = {"node": about[0].entity.id, **standing_of(state, about[0].entity.id)}
    for event in about:
        if event.entity.id == found["node"]:
            found.update(verdict(event.payload))
    node = state.nodes[found["node"]]
    judged = node.audit is not None and node.audit.attempt == node.attempts
    if node.state == "VERIFYING" and not judged and audit_plan(state, node) is not None:
        found["audit"] = "pending"
    return found


def check(engine: Engine, args: Args, op: str | None) -> Answer:
    """Verify a node now; one that is VERIFYING moves on by the verdict."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
    verdict, committed = work.check(engine, node_id, op=op)
    found = {
        "node": node_id,
        **standing_of(engine.replica.state, node_id),
        "passed": verdict.passed,
        "diagnosis": verdict.diagnosis,
        "checks": list(verdict.checks),
    }
    return {"committed": None, **found} if committed is None else answer(committed, **found)


def fail(engine: Engine, args: Args, op: str | None) -> Answer:
    """End the attempt under way as a failure of a class."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        command = c.FailNode(
            node_id,
            str(args.get("failure_class") or "transient-agent"),
            str(args.get("reason") or "reported as failed"),
            detail=str(args.get("detail") or ""),
        )
        committed = work.fail(engine, command, op=op)
        return answer(committed, **tell_fail(engine.replica.state, committed.events))


def tell_fail(state: State, events: Sequence[Event]) -> Answer:
    """Where a node stands whose attempt has ended."""
    for event in events:
        if event.kind == "STATE_TRANSITION" and event.payload.get("from") == "RUNNING":
            name = event.entity.id
            return {"node": name, "state": state.nodes[name].state}
    return {}


def retry(engine: Engine, args: Args, op: str | None) -> Answer:
    """Let a node go on, with the authority of the actor."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        reason = str(args.get("reason") or "retry was asked for")
        command = c.RetryNode(node_id, reason, str(args.get("method") or ""))
        committed = engine.execute(command, op=op)
        return answer(committed, **tell_retry(engine.replica.state, committed.events))


def tell_retry(state: State, events: Sequence[Event]) -> Answer:
    """Where a node stands that somebody let go on."""
    for event in events:
        if event.kind == "DECISION" and event.payload.get("op") == "retry":
            name = event.payload["node"]
            return {"node": name, "state": state.nodes[name].state}
    return {}


def receipt(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record the proof of a node's external effect; a node held for it is READY again."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        proof, receipt_id = str(args["proof"]), str(args.get("id") or "")
        committed = engine.execute(c.RecordReceipt(node_id, proof, receipt_id), op=op)
        return answer(committed, **tell_receipt(engine.replica.state, committed.events))


def tell_receipt(state: State, events: Sequence[Event]) -> Answer:
    """The receipt of an effect, and how its node stands."""
    for event in events:
        if event.kind == "RECEIPT":
            node = state.nodes[event.payload["node"]]
            return {"node": node.node_id, "state": node.state, "receipt": node.receipt}
    return {}
