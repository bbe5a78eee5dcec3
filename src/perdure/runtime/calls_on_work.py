"""Calls about the work on one node.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from perdure.core import commands as c
from perdure.runtime import work
from perdure.runtime.answers import Answer, Args, answer, node_of_call, verdict
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import read_back, read_commit


def start(engine: Engine, args: Args, op: str | None) -> Answer:
    """Claim a node for a session: N02 or N11 with its contract."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        reason = str(args.get("reason") or "")
        committed = work.start(engine, node_id, session=True, reason=reason, rank=True, op=op)
        node = engine.replica.state.nodes[node_id]
        return answer(
            committed,
            node=node_id,
            state=node.state,
            invocation=node.invocation,
            contract=f"contracts/{node.invocation}.json",
            scope=f"artifacts/{node_id}",
            outputs=None if node.spec.outputs is None else list(node.spec.outputs),
        )


def beat(engine: Engine, args: Args, op: str | None) -> Answer:
    """Renew the contracts of a node, or of all that the actor has at work."""
    with engine.writing():
        names = (node_of_call(engine, args).node_id,) if args.get("node") else ()
        committed = work.beat(engine, names, str(args.get("note") or ""), op=op)
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
    return answer(committed, **_verdict_on(engine, committed, node_id))


def check(engine: Engine, args: Args, op: str | None) -> Answer:
    """Verify a node now; one that is VERIFYING moves on by the verdict."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
    verdict, committed = work.check(engine, node_id, op=op)
    return {
        "committed": committed.ref if committed is not None else None,
        "node": node_id,
        "state": engine.replica.state.nodes[node_id].state,
        "passed": verdict.passed,
        "diagnosis": verdict.diagnosis,
        "checks": list(verdict.checks),
    }


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
        committed = engine.execute(command, op=op)
        return answer(committed, node=node_id, state=engine.replica.state.nodes[node_id].state)


def retry(engine: Engine, args: Args, op: str | None) -> Answer:
    """Let a node go on, with the authority of the actor."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        reason = str(args.get("reason") or "retry was asked for")
        command = c.RetryNode(node_id, reason, str(args.get("method") or ""))
        committed = engine.execute(command, op=op)
        return answer(committed, node=node_id, state=engine.replica.state.nodes[node_id].state)


def _verdict_on(engine: Engine, committed: Committed, node_id: str) -> Answer:
    found: Answer = {"node": node_id, "state": engine.replica.state.nodes[node_id].state}
    for event in committed.events:
        if event.entity.id == node_id:
            found.update(verdict(event.payload))
    return found


def receipt(engine: Engine, args: Args, op: str | None) -> Answer:
    """Record the proof of a node's external effect; a node held for it is READY again."""
    with engine.writing():
        node_id = node_of_call(engine, args).node_id
        proof, receipt_id = str(args["proof"]), str(args.get("id") or "")
        committed = engine.execute(c.RecordReceipt(node_id, proof, receipt_id), op=op)
        node = engine.replica.state.nodes[node_id]
        return answer(committed, node=node_id, state=node.state, receipt=node.receipt)
