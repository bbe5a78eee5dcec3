"""One attempt at a node, from contract to verdict.

Job: the calls that combine what is read from the disk with one or two commits: start, submit,
check, conclude, beat. Invariants: a contract file is durable before the event that cites it; the
files of a failed attempt are out of the way before the next one starts; a verdict and what it
rests on are committed together.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.audits import awaits_audit
from perdure.core.authority import owns
from perdure.core.decide_node import check_start
from perdure.core.effects import check_receipt
from perdure.core.frontier import frontier
from perdure.core.late import LateModule
from perdure.core.lookup import node_of
from perdure.core.model import Executor, Node
from perdure.errors import (
    CheckFailedError,
    EvidenceError,
    RefusedError,
    TransitionError,
)
from perdure.runtime.batching import Committed
from perdure.runtime.contracts import Terms, Units, issue_contract, this_process
from perdure.runtime.disk_facts import strike_facts
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import (
    is_overtaken,
    read_back,
    resolve_refs,
    unfinished_moves,
    verify_node,
)
from perdure.runtime.gates import open_questions, open_start
from perdure.runtime.scope import clear_scope, products_below
from perdure.storage.workspace import resolve_inside

_left_running: Final = LateModule("perdure.runtime.left_running")
_saved_files: Final = LateModule("perdure.runtime.saved_files")


def start(
    engine: Engine,
    node_id: str,
    *,
    session: bool = False,
    reason: str = "",
    rank: bool = False,
    payload: dict[str, Any] | None = None,
    evidence: tuple[str, ...] = (),
    op: str | None = None,
    units: Callable[[Node], Units] | None = None,
    terms: Terms | None = None,
) -> Committed:
    """Issue a contract and commit N02 or N11 (with N01 before it where that is due).

    A start that only a gate holds is refused, and the question of the gate is open then (GA-1).
    ``session`` gives the contract a time to live instead of this process's life. With ``rank`` a
    start that is not the first of the frontier is journaled as such, with ``reason``. A batch node
    needs ``units``, which takes the inventory once the way is clear, before the contract is
    written. ``terms`` are what the contract says besides what follows from the node. What a local
    destructive effect may change is copied first (C-S1).
    """
    terms = terms or Terms()
    with engine.writing():
        before, state = engine.repeated(op), engine.replica.state
        if before is not None:
            return before
        node = node_of(state, node_id)
        contents = open_start(engine, node)
        check_start(state, node)
        if node.spec.map is not None and units is None:
            raise RefusedError(
                f"{node_id} is a batch node: its units are given out one by one, by a run.",
                code="batch_by_hand",
                rule="JB-8",
                fix="Let `perdure run FILE` do it, with the task file that the node is from.",
            )
        out_of_order = ""
        if rank:
            first = frontier(engine.replica)[0]
            if first != node_id:
                out_of_order = reason or f"asked for by {engine.actor}; {first} was first"
        if node.attempts:
            _left_running.refuse_left_running(engine, node)
            _check_nothing_to_move(engine, node)
            engine.move_files(unfinished_moves(engine, node_id))
            clear_scope(engine, node)
        saved = _saved_files.save_files(engine, node) if node.effect == "S1" else {}
        executor = _executor(engine, session, terms)
        contract = issue_contract(
            engine,
            node,
            executor,
            ttl_s=_ttl_s(engine, executor, terms),
            out_of_order=out_of_order,
            units=units(node) if units is not None else None,
            terms=terms,
        )
        given = {**(payload or {}), "issued_at": engine.world.clock.now()}
        if saved:
            given["saved"] = saved
        command = c.MoveNode(node_id, "RUNNING", evidence, given, contract, contents=contents)
        return engine.execute(command, op=op)


def _executor(engine: Engine, session: bool, terms: Terms) -> Executor:
    if session or terms.holder:
        return Executor(terms.holder or engine.actor, "session")
    return this_process(engine)


def _ttl_s(engine: Engine, executor: Executor, terms: Terms) -> float | None:
    if executor.kind == "process":
        return None
    return terms.ttl_s if terms.ttl_s is not None else engine.replica.state.policies.contract_ttl_s


def _check_nothing_to_move(engine: Engine, node: Node) -> None:
    """What an attempt left is moved after the commit that ends it, so the next comes later."""
    if engine.moves_after_commit:
        raise RefusedError(
            f"{node.node_id} cannot start again in the batch that ends an attempt: the files of"
            " that attempt are moved away once the batch is committed.",
            code="batch_order",
            fix="Start it after the batch.",
        )


def unregistered_outputs(engine: Engine, node: Node) -> list[str]:
    """The outputs a node declares, or else what is in its scope, but for what is registered."""
    paths = node.spec.outputs
    if paths is None:
        paths = tuple(products_below(engine, f"artifacts/{node.node_id}"))
    return [path for path in paths if path not in engine.replica.paths]


def register_outputs(engine: Engine, node: Node, synced: set[str] | None = None) -> list[str]:
    """Register the declared outputs that are on disk; for a node that declares none, its scope.

    ``synced`` is what has been made durable already (``evidence.sync_ahead``). Returns the paths
    that were declared and are missing.
    """
    missing = []
    synced = set() if synced is None else synced
    for path in unregistered_outputs(engine, node):
        full = resolve_inside(engine.disk, engine.layout.root, path)
        if engine.disk.stat(engine.disk.real_path(full)) is None:
            missing.append(path)
            continue
        engine.execute(read_back(engine, path, "output", node_id=node.node_id, synced=synced))
    return missing


def submit(
    engine: Engine,
    node_id: str,
    evidence: tuple[str, ...] = (),
    *,
    check: bool = True,
    op: str | None = None,
    units_done: bool = False,
    payload: dict[str, Any] | None = None,
    synced: set[str] | None = None,
) -> Committed:
    """N03 with the registrations it rests on in one commit, then the verdict in another.

    ``units_done`` is for whoever runs the units of a batch node: nobody else may register findings
    that are still being added to. ``payload`` is what N03 says besides, such as ``usage``;
    ``synced`` as for :func:`register_outputs`. A crash between the two leaves VERIFYING, from where
    the next submit or check goes on.
    """
    with engine.writing():
        before = engine.repeated(op)
        if before is not None:
            return before
        node = node_of(engine.replica.state, node_id)
        claimed = None
        if node.state != "VERIFYING":
            if node.state != "RUNNING":
                raise TransitionError(
                    f"{node_id} is {node.state}: there is no attempt under way to submit.",
                    rule="N03",
                    fix=f"Start it first: perdure start {node_id}",
                )
            if node.spec.map is not None and not units_done:
                raise RefusedError(
                    f"{node_id} is a batch node: it is submitted by its run, once all its units"
                    " are done.",
                    code="batch_by_hand",
                    rule="JB-8",
                    fix=f"Wait for it; `perdure show {node_id}` tells how many units are done.",
                )
            claimed = _claim(engine, node, evidence, payload, synced, op=None if check else op)
        if not check:
            return claimed or Committed(node.state_ref or "", (), True)
        node = node_of(engine.replica.state, node_id)
    _, committed = conclude_or_fail(engine, node, op=op)
    return claimed if claimed is not None and not committed.events else committed


def _claim(
    engine: Engine,
    node: Node,
    evidence: tuple[str, ...],
    payload: dict[str, Any] | None,
    synced: set[str] | None,
    *,
    op: str | None,
) -> Committed:
    resolve_refs(engine, node, evidence)
    check_receipt(engine.replica.state, node)
    begins = f"J-{engine.replica.state.seq + 1}"
    with engine.batch(op=op):
        missing = register_outputs(engine, node, synced)
        if missing or (not node.artifacts and node.spec.outputs is None):
            what = f"{', '.join(missing[:5])} is missing" if missing else "it has no artifact"
            raise EvidenceError(
                f"{node.node_id} cannot be submitted: {what}. No disk, no DONE.",
                fix=f"Write the file below {engine.layout.node_scope(node.node_id)}, or register"
                f" one: perdure artifact add {node.node_id} PATH",
            )
        refs = evidence or node.artifacts
        claimed = engine.execute(c.MoveNode(node.node_id, "VERIFYING", refs, payload or {}))
        return Committed(begins, claimed.events)


def conclude_or_fail(
    engine: Engine, node: Node, *, op: str | None = None
) -> tuple[c.Verdict, Committed]:
    """Verify a node that is VERIFYING and commit N06, N07 or N08 by the verdict."""
    judged = msgspec.structs.replace(node)  # the original may change meanwhile
    since = engine.takeovers()
    verdict = verify_node(engine, judged)
    return verdict, commit_verdict(engine, judged, verdict, op=op, since=since)


def conclude(engine: Engine, node_id: str, evidence: tuple[str, ...]) -> Committed:
    """N06 on evidence.

    Raises, with the node left VERIFYING, CheckFailedError for a failed check and RefusedError for
    an audit that is to come (VR-1) and for a gate, whose question is open then (GA-1).
    """
    with engine.writing():
        node = msgspec.structs.replace(node_of(engine.replica.state, node_id))
        if node.state != "VERIFYING":
            return engine.execute(c.MoveNode(node_id, "DONE", evidence))
        if not evidence:
            raise EvidenceError(
                f"{node_id} cannot be DONE without evidence.",
                fix="Cite the artifacts it produced: evidence=['A-ID'].",
            )
        resolve_refs(engine, node, evidence)
    verdict = verify_node(engine, node)
    if not verdict.passed:
        raise CheckFailedError(
            f"{node_id} is not DONE: {verdict.diagnosis}.",
            rule="N06",
            fix=f"Correct it, then `perdure check {node_id}`, or fail the attempt.",
        )
    if awaits_audit(verdict.checks):
        raise RefusedError(
            f"{node_id} is not DONE before an auditor has judged it.",
            code="audit_pending",
            rule="VR-1",
            fix=f"Let somebody else than its producer judge it: perdure judge {node_id}",
        )
    committed = commit_verdict(engine, node, verdict, evidence)
    asked = open_questions(engine, node_id)
    if asked and node_of(engine.replica.state, node_id).state != "DONE":
        raise RefusedError(
            f"{node_id} is not DONE before a person has ruled on {asked[0].question_id}:"
            f" {asked[0].text}",
            code="gate_closed",
            rule="GA-1",
            fix=f"Let a gatekeeper rule: perdure approve {asked[0].question_id}",
        )
    return committed


def commit_verdict(
    engine: Engine,
    judged: Node,
    verdict: c.Verdict,
    evidence: tuple[str, ...] = (),
    *,
    op: str | None = None,
    since: int | None = None,
) -> Committed:
    """Commit N06, N07 or N08 by a verdict on the node as it was when the checks began.

    Where a gate holds N06 its question is what is committed, once for each content (GA-1).
    Checks may take long, so nobody is locked out meanwhile; if somebody settled the node in that
    time, their word stands and this verdict is refused. ``since`` is ``engine.takeovers()`` of that
    moment, of who is no coordinator: a failed check that one may have ended counts for nothing.
    """
    with engine.writing():
        node = node_of(engine.replica.state, judged.node_id)
        if (node.state_ref, node.invocation) != (judged.state_ref, judged.invocation):
            raise TransitionError(
                f"{node.node_id} became {node.state} while it was being checked.",
                rule="N06",
                fix=f"`perdure show {node.node_id}` tells by whom.",
            )
        if since is not None and is_overtaken(engine, verdict, since):
            raise TransitionError(
                f"a coordinator came while {node.node_id} was being checked and may have ended its"
                " check scripts, so that they failed means nothing.",
                rule="N07",
                fix=f"Have it checked again: perdure check {node.node_id}",
            )
        facts = {} if verdict.passed else strike_facts(engine, node.node_id)
        command = c.MoveNode(
            node.node_id,
            "DONE",
            evidence,
            verdict=verdict,
            contents=verdict.contents,
            disk_facts=facts,
        )
        committed = engine.execute(command, op=op)
        if node.spec.map is not None and not verdict.passed and not engine.moves_after_commit:
            # Its findings were moved away: the rest of the job would claim what nothing proves.
            clear_scope(engine, node_of(engine.replica.state, judged.node_id))
        return committed


def fail(engine: Engine, command: c.FailNode, *, op: str | None = None) -> Committed:
    """End the attempt under way as failed, with what the disk holds of it on a last strike."""
    with engine.writing():
        facts = strike_facts(engine, command.node_id)
        return engine.execute(msgspec.structs.replace(command, disk_facts=facts), op=op)


def move(engine: Engine, command: c.MoveNode) -> Committed:
    """Any other edge of FSM-N; one that ends an attempt tells what the disk holds of it."""
    if command.to != "RETRYABLE":
        return engine.execute(command)
    with engine.writing():
        facts = strike_facts(engine, command.node_id)
        return engine.execute(msgspec.structs.replace(command, disk_facts=facts))


def check(
    engine: Engine, node_id: str, *, op: str | None = None
) -> tuple[c.Verdict, Committed | None]:
    """The verdict on a node now; a node that is VERIFYING moves on by it."""
    node = node_of(engine.replica.state, node_id)
    if node.state != "VERIFYING":
        return verify_node(engine, node), None
    return conclude_or_fail(engine, node, op=op)


def beat(
    engine: Engine,
    node_ids: tuple[str, ...],
    note: str,
    *,
    ok: bool = True,
    facts: Mapping[str, str] | None = None,
    op: str | None = None,
) -> Committed:
    """HEARTBEATs for the nodes named, or for all that this actor has at work.

    Of an executor ``ok`` counts: a sign of progress, or an error of it (supervision).
    """
    with engine.writing():
        state, actor = engine.replica.state, engine.actor
        names = node_ids or tuple(
            contract.node
            for contract in state.contracts.values()
            if contract.executor.actor == actor or owns(state, state.nodes[contract.node], actor)
        )
        if not names:
            raise TransitionError(
                f"{engine.actor} has nothing at work.",
                rule="FSN-2",
                fix="Start a node, or name the node to beat for.",
            )
        return engine.execute(c.Beat(names, note, ok, dict(facts or {})), op=op)
