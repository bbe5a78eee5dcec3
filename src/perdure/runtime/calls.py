"""Every writing call by name, with plain arguments and a plain answer.

Job: one table that the service, the drop box and every interface go through, so that a command has
the same effect whichever way it came. Invariants: an answer names the event that acknowledges it;
with an op id, the same id again answers without writing; a message from the drop box is committed
before its result is written and before it is removed, so a crash in between repeats nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from perdure.core import commands as c
from perdure.core.lookup import complete, node_of
from perdure.core.model import ID_PATTERN, Node
from perdure.errors import HaltError, StorageError, UsageError
from perdure.runtime import work
from perdure.runtime.engine import Committed, Engine
from perdure.runtime.evidence import read_back, read_commit
from perdure.runtime.specs import make_spec
from perdure.storage import spool

Args = Mapping[str, Any]
Answer = dict[str, Any]


class Call(NamedTuple):
    """A writing call, and whether it may wait in the drop box for a coordinator."""

    carry_out: Callable[[Engine, Args, str | None], Answer]
    spoolable: bool


def perform(engine: Engine, name: str, args: Args, *, op: str | None = None) -> Answer:
    """Carry out a call. Its answer has at least ``committed``: the event that acknowledges it.

    Raises UsageError for an unknown name or a bad op id, and whatever the call itself refuses.
    """
    call = CALLS.get(name)
    if call is None:
        raise UsageError(f"there is no call {name!r}.", code="unknown_call")
    if op is not None and not ID_PATTERN.match(op):
        raise UsageError(
            f"{op!r} cannot be an op id.",
            code="bad_id",
            fix="Use up to 64 letters, digits, dots, dashes or underscores.",
        )
    if op is not None:
        with engine.writing():
            seq = engine.replica.state.ops.get(op)
            if seq is not None:
                return {"committed": f"J-{seq}", "repeated": True}
    return call.carry_out(engine, args, op)


def ingest(engine: Engine) -> int:
    """Carry out what waits in the drop box, each message once; returns how many there were.

    A refused message gets its refusal as the result. One whose carrying out failed on the disk
    stays for the next try, and the failure is raised.
    """
    layout, disk = engine.layout, engine.disk
    changed, stamp = spool.changed(disk, layout, engine.spool_stamp, engine.world.clock.now())
    engine.spool_stamp = stamp
    if not changed:
        return 0
    messages = spool.pending(disk, layout).messages
    for message in messages:
        try:
            with engine.acting_as(message.actor):
                answer = perform(engine, message.command, message.args, op=message.id)
            result: Answer = {"data": answer}
        except StorageError:
            raise
        except HaltError as error:
            result = {"error": error.as_dict(), "exit_code": error.exit_code}
        spool.settle(disk, layout, message.id, result)
    return len(messages)


def _answer(committed: Committed, **more: Any) -> Answer:
    answer: Answer = {"committed": committed.ref, **more}
    if committed.repeated:
        answer["repeated"] = True
    return answer


def _node(engine: Engine, args: Args) -> Node:
    state = engine.replica.state
    return node_of(state, complete(str(args["node"]), state.nodes, "node"))


def _add(engine: Engine, args: Args, op: str | None) -> Answer:
    node_id = str(args["node"])
    spec = make_spec(node_id, None, args.get("spec") or {})
    with engine.writing():
        nodes = engine.replica.state.nodes
        deps = tuple(complete(str(dep), nodes, "node") for dep in args.get("deps") or ())
        command = c.AddNode(
            node_id,
            str(args.get("title") or node_id),
            deps,
            spec,
            int(args.get("priority") or 0),
            args.get("verify") or "V1",
            args.get("resume") or "reverify_if_amended",
            args.get("effect") or "S0",
            args.get("successor_of"),
        )
        return _answer(engine.execute(command, op=op), node=node_id)


def _start(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        node_id = _node(engine, args).node_id
        reason = str(args.get("reason") or "")
        committed = work.start(engine, node_id, session=True, reason=reason, rank=True, op=op)
        node = engine.replica.state.nodes[node_id]
        return _answer(
            committed,
            node=node_id,
            state=node.state,
            invocation=node.invocation,
            contract=f"contracts/{node.invocation}.json",
            scope=f"artifacts/{node_id}",
            outputs=None if node.spec.outputs is None else list(node.spec.outputs),
        )


def _beat(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        names = (_node(engine, args).node_id,) if args.get("node") else ()
        committed = work.beat(engine, names, str(args.get("note") or ""), op=op)
        return _answer(committed, nodes=[event.entity.id for event in committed.events])


def _artifact(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        node_id = _node(engine, args).node_id
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
        return _answer(
            committed,
            node=node_id,
            artifact=name,
            path=command.path,
            sha256=command.integrity.value,
            size_bytes=command.integrity.size_bytes,
        )


def _submit(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        node_id = _node(engine, args).node_id
        evidence = tuple(args.get("evidence") or ())
        check = not args.get("no_check")
        committed = work.submit(engine, node_id, evidence, check=check, op=op)
        return _answer(committed, **_verdict(engine, committed, node_id))


def _check(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        node_id = _node(engine, args).node_id
        verdict, committed = work.check(engine, node_id, op=op)
        state = engine.replica.state.nodes[node_id].state
        return {
            "committed": committed.ref if committed is not None else None,
            "node": node_id,
            "state": state,
            "passed": verdict.passed,
            "diagnosis": verdict.diagnosis,
            "checks": list(verdict.checks),
        }


def _verdict(engine: Engine, committed: Committed, node_id: str) -> Answer:
    node = engine.replica.state.nodes[node_id]
    answer: Answer = {"node": node_id, "state": node.state}
    for event in committed.events:
        if event.entity.id == node_id and "checks" in event.payload:
            answer["passed"] = node.state == "DONE"
            answer["diagnosis"] = event.payload.get("diagnosis", "")
            answer["checks"] = event.payload["checks"]
    return answer


def _fail(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        node_id = _node(engine, args).node_id
        command = c.FailNode(
            node_id,
            str(args.get("failure_class") or "transient-agent"),
            str(args.get("reason") or "reported as failed"),
            detail=str(args.get("detail") or ""),
        )
        committed = engine.execute(command, op=op)
        return _answer(committed, node=node_id, state=engine.replica.state.nodes[node_id].state)


def _retry(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        node_id = _node(engine, args).node_id
        reason = str(args.get("reason") or "retry was asked for")
        command = c.RetryNode(node_id, reason, str(args.get("method") or ""))
        committed = engine.execute(command, op=op)
        return _answer(committed, node=node_id, state=engine.replica.state.nodes[node_id].state)


def _cancel(engine: Engine, args: Args, op: str | None) -> Answer:
    with engine.writing():
        nodes = engine.replica.state.nodes
        if args.get("all"):
            names = [name for name, n in nodes.items() if n.state not in _SETTLED]
        else:
            names = [complete(str(name), nodes, "node") for name in args.get("nodes") or ()]
        if not names:
            raise UsageError("there is nothing to cancel.", fix="Name the nodes, or use --all.")
        reason = str(args.get("reason") or "cancelled")
        committed = engine.execute(c.CancelNodes(tuple(names), reason), op=op)
        return _answer(committed, nodes=names)


_SETTLED: Final = frozenset({"DONE", "QUARANTINED", "CANCELLED"})


def _pause(engine: Engine, args: Args, op: str | None) -> Answer:
    reason = str(args.get("reason") or "")
    if engine.on_pause is not None:
        return _answer(engine.on_pause(reason, op), state="EXECUTING", pausing=True)
    committed = engine.execute(c.MoveTask("SUSPENDED", reason), op=op)
    if not committed.ref:
        return {"committed": None, "repeated": True, "state": engine.replica.state.fsm_task}
    return _answer(committed, state=engine.replica.state.fsm_task)


def _note(engine: Engine, args: Args, op: str | None) -> Answer:
    return _answer(engine.execute(c.WriteNote(str(args["text"])), op=op))


def _decide(engine: Engine, args: Args, op: str | None) -> Answer:
    command = c.RecordDecision(
        str(args.get("id") or ""),
        str(args["text"]),
        tuple(args.get("options") or ()),
        str(args.get("choice") or ""),
        str(args.get("authority") or ""),
    )
    committed = engine.execute(command, op=op)
    made = [event.payload.get("id") for event in committed.events]
    return _answer(committed, decision=made[0] if made else None)


def _steer(engine: Engine, args: Args, op: str | None) -> Answer:
    command = c.LogSteering(
        str(args.get("id") or ""),
        str(args["text"]),
        str(args.get("source") or ""),
        str(args.get("received_via") or "command"),
    )
    committed = engine.execute(command, op=op)
    logged = [event.entity.id for event in committed.events]
    return _answer(committed, steering=logged[0] if logged else args.get("id"))


CALLS: Final[Mapping[str, Call]] = {
    "add": Call(_add, False),
    "start": Call(_start, False),
    "beat": Call(_beat, True),
    "artifact": Call(_artifact, True),
    "submit": Call(_submit, True),
    "check": Call(_check, True),
    "fail": Call(_fail, True),
    "retry": Call(_retry, True),
    "cancel": Call(_cancel, True),
    "pause": Call(_pause, True),
    "note": Call(_note, True),
    "decide": Call(_decide, True),
    "steer": Call(_steer, True),
}
