"""Recovery R0 to R7: back to the last provably stable position (protocol section 9).

Job: gather what journal, disk and process table say (R1, R2), let ``core.recovery`` plan (R3, R4),
check the planned state (R6), and only then cut, move and commit (R7). Invariants: read-only until
R6 has passed, and untouched when it does not; every repair is one event and all of them are one
commit; running it again finds nothing left to do; each of its own steps may be the last.
"""

from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.codec import Damage, from_json, to_json
from perdure.core.effects import effect_open
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.frontier import frontier
from perdure.core.late import LateModule
from perdure.core.lookup import contract_of, pending_steering
from perdure.core.model import ActiveContract, Node, State
from perdure.core.on_disk import Files, Fragment, kept_fragment, name_fragment
from perdure.core.recovery import (
    Contract,
    Findings,
    NodeFacts,
    Plan,
    check_consistency,
    entry_move,
    finish_plan,
    plan_recovery,
    plan_steering,
)
from perdure.errors import CorruptError, EvidenceError, StorageError
from perdure.ports import ProcessIdentity, is_temp_name
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import unfinished_moves, verify_node
from perdure.runtime.integrity import judge_artifact
from perdure.runtime.probe import hash_file
from perdure.storage import spool
from perdure.storage.projections import stale_views

_instructions: Final = LateModule("perdure.runtime.steering")
_write_here: Final = LateModule("perdure.runtime.write_here")
_rehearsal: Final = LateModule("perdure.core.rehearsal")

unfetched_result_s: Final = 3_600.0
"""How long a sender's unfinished message or unfetched answer stays in the drop box."""


class Recovered(NamedTuple):
    """What a recovery found and did: the resume-ready summary of R7."""

    found: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    """Nodes whose evidence on disk does not hold; a person must look."""
    committed: str = ""
    """``J-n`` of the first event written; empty for a clean recovery."""
    frontier: tuple[str, ...] = ()
    steering: tuple[str, ...] = ()
    """Ids of the instructions on record."""
    stopped: tuple[Any, ...] = ()
    """Processes (:class:`~perdure.runtime.orphans.Orphan`) that a dead run had left running."""
    left_running: tuple[Any, ...] = ()
    """Those of them that could not be ended."""


def recover(
    engine: Engine,
    torn: Damage | None,
    takeover: str,
    *,
    take_over_sessions: bool,
    mended: Any = None,
) -> Recovered:
    """Bring a loaded workspace to its last stable position. The caller holds lock and lease.

    ``torn`` is what loading found behind the last commit, ``takeover`` why the lease was taken
    from somebody, ``mended`` (``mirroring.Told``) what was done about the mirror. Raises
    CorruptError with a diagnosis when the planned state does not hold; then nothing but the lease,
    and a journal or mirror that was damaged, was written. A crash anywhere inside is repaired by
    the next call.
    """
    engine.journal.settle()
    tail = b""
    if torn is not None:
        tail = engine.disk.read(engine.layout.journal, engine.journal.tip.offset)
    findings = _gather(engine, takeover, take_over_sessions)
    if torn is not None:
        # A crash between setting the tail aside and cutting it leaves both.
        again = name_fragment(engine.journal.tip.offset, torn.reason, tail).path
        others = tuple(entry for entry in findings.fragments if entry.path != again)
        findings = findings._replace(fragments=others)
    plan, drafts = _plan(engine, findings)
    if torn is not None:
        engine.set_aside(torn, tail)
        plan = plan._replace(
            found=(*plan.found, f"torn tail behind J-{engine.journal.tip.seq}: {torn.reason}"),
            repaired=(*plan.repaired, f"set aside as {engine.fragments[-1].path}"),
        )
    if mended is not None:
        plan = plan._replace(
            found=(*mended.found, *plan.found), repaired=(*mended.repaired, *plan.repaired)
        )
    if torn is not None or (mended is not None and mended.found):
        planned = _rehearsal.rehearse(engine.replica, plan.drafts, engine.context())
        drafts = finish_plan(plan, engine.replica.state, planned)
    committed = ""
    if drafts:
        committed = engine.commit(drafts)[0].ref
    engine.move_files(plan.moves)
    _remove_temp_files(engine)
    if committed or findings.stale_views:
        engine.project()
    return Recovered(
        plan.found,
        plan.repaired,
        plan.suspects,
        committed,
        tuple(frontier(engine.replica)),
        tuple(engine.replica.state.steering),
    )


# R2, what is there.


def _gather(engine: Engine, takeover: str, take_over_sessions: bool) -> Findings:
    state = engine.replica.state
    nodes = {}
    for node in state.nodes.values():
        facts = _facts(engine, node, take_over_sessions)
        if facts is not None:
            nodes[node.node_id] = facts
    _add_stale_dependents(engine, nodes)
    pending = pending_steering(state)
    return Findings(
        takeover=takeover,
        nodes=nodes,
        fragments=_unrecorded_fragments(engine),
        stale_views=tuple(
            stale_views(engine.disk, engine.layout, engine.replica, engine.journal.tip)
        ),
        moves=unfinished_moves(engine),
        steering=_instructions.words_of(engine, pending) if pending else {},
    )


def _facts(engine: Engine, node: Node, take_over_sessions: bool) -> NodeFacts | None:
    """Facts about a node that may need a repair; None when nothing can be wrong with it."""
    if node.state == "RUNNING":
        contract = contract_of(engine.replica.state, node)
        life, why = _contract_life(engine, contract, take_over_sessions)
        reasons = (why,) if why else ()
        return NodeFacts(contract=life, effect_open=effect_open(node), details=reasons)
    if node.state == "DONE":
        files, details = _files(engine, node)
        if files != "whole":
            return NodeFacts(files=files, details=details)
    return None


def _contract_life(
    engine: Engine, contract: ActiveContract | None, take_over_sessions: bool
) -> tuple[Contract, str]:
    if contract is None:
        return "dead", "no contract is in force"
    who = contract.executor
    if who.kind == "session":
        if take_over_sessions:
            return "dead", f"{who.actor} had it; resume took it over"
        if contract.expires_at is not None and contract.expires_at < engine.world.clock.now():
            return "dead", f"no sign of life from {who.actor} within its contract's time"
        return "live", ""
    identity = ProcessIdentity(who.host, who.boot_id, who.pid, who.started)
    if identity == engine.world.processes.me():
        return "dead", f"an earlier coordinator in this process (epoch {contract.epoch}) had it"
    state = engine.world.processes.state(identity)
    if state == "gone":
        return "dead", f"process {who.pid} of {who.actor} is gone"
    if state == "unknown" and take_over_sessions:  # nobody here can look: whoever resumes says so
        return "dead", f"{who.actor} had it on {who.host or 'another machine'}; resume took it over"
    return "live", ""


def _files(engine: Engine, node: Node) -> tuple[Files, tuple[str, ...]]:
    """How the evidence of a DONE node stands on disk: the worst of its artifacts."""
    worst: Files = "whole"
    details = []
    for name in node.artifacts:
        artifact = engine.replica.state.artifacts[name]
        if artifact.status != "current":
            continue
        found = judge_artifact(engine, artifact, quick=True)
        if found.holds:
            continue
        details.append(f"{name} {found.text}")
        if worst in ("whole", "missing"):
            worst = found.files
    return worst, tuple(details)


def _add_stale_dependents(engine: Engine, nodes: dict[str, NodeFacts]) -> None:
    """DONE dependents of work that is gone are verified again; what fails is gone too."""
    state = engine.replica.state
    stack = [name for name, facts in nodes.items() if facts.files == "missing"]
    while stack:
        for dependent_id in engine.replica.dependents.get(stack.pop(), ()):
            dependent = state.nodes[dependent_id]
            if dependent.state != "DONE" or dependent_id in nodes:
                continue
            facts = _verify_again(engine, dependent)
            if facts is not None:
                nodes[dependent_id] = facts
                if facts.files == "missing":
                    stack.append(dependent_id)


def _verify_again(engine: Engine, node: Node) -> NodeFacts | None:
    """What speaks against a DONE node whose dependencies are gone; None when it stands."""
    try:
        verdict = verify_node(engine, node)
    except StorageError as error:
        return NodeFacts(files="unreadable", details=(error.message,))
    except EvidenceError as error:
        return NodeFacts(files="missing", details=(error.message,))
    if verdict.passed:
        return None
    return NodeFacts(files="missing", details=(f"verified again: {verdict.diagnosis}",))


def _unrecorded_fragments(engine: Engine) -> tuple[Fragment, ...]:
    """Tails that an earlier recovery set aside and died before recording."""
    recorded = {artifact.path for artifact in engine.replica.state.artifacts.values()}
    recorded |= {fragment.path for fragment in engine.fragments}  # of this opening
    fragments = []
    for name in engine.disk.list_dir(engine.layout.recovered):
        path = f"tmp/recovered/{name}"
        what = kept_fragment(name, engine.journal.tip.offset)
        if not what or path in recorded:
            continue
        try:
            digest, size_bytes = hash_file(engine.disk, f"{engine.layout.recovered}/{name}")
        except StorageError:
            continue  # it stays where it is, and the next recovery picks it up
        fragments.append(Fragment(path, digest, size_bytes, what))
    return tuple(fragments)


# What follows (R3 to R6)


def _plan(engine: Engine, findings: Findings) -> tuple[Plan, tuple[Draft, ...]]:
    """The plan and the drafts of its commit. Raises CorruptError when R6 does not pass."""
    plan, planned = _plan_on(engine, engine.replica, findings)
    wrong = check_consistency(planned)
    if wrong:
        plan, planned = _plan_on(engine, _from_the_first_byte(engine), findings)
        wrong = check_consistency(planned)
    if wrong:
        raise CorruptError(
            f"the state of {engine.layout.root} does not hold: {'; '.join(wrong[:5])}"
            f"{f' and {len(wrong) - 5} more' if len(wrong) > 5 else ''}."
            f" Found: {'; '.join(plan.found[:5]) or 'nothing else'}.",
            code="inconsistent",
            rule="R6",
            fix="Nothing was changed. `perdure doctor` shows the diagnosis; a person must look.",
        )
    return plan, finish_plan(plan, engine.replica.state, planned)


def _plan_on(engine: Engine, replica: Replica, findings: Findings) -> tuple[Plan, Replica]:
    """The plan for this state, and the state that it comes to; the replica stays as it is."""
    context = engine.context()
    plan = plan_recovery(replica, findings, context)
    if not findings.steering:
        return plan, _rehearsal.rehearse(replica, plan.drafts, context) if plan.drafts else replica
    entry = entry_move(plan, replica.state, steered=True)
    planned: Replica = _rehearsal.rehearse(replica, (*entry, *plan.drafts), context)
    return plan_steering(plan, planned, findings.steering, context), planned


def _from_the_first_byte(engine: Engine) -> Replica:
    engine.disk.unlink(engine.layout.snapshot, durable=False)
    engine.load()
    return Replica(from_json(to_json(engine.replica.state), State))


def _remove_temp_files(engine: Engine) -> None:
    """Remove what a crash left of unfinished replaces; nobody reads these files."""
    layout = engine.layout
    # Senders write to the drop box without the lock, so only what is old goes there.
    spool.sweep(engine.disk, layout, engine.world.clock.now() - unfetched_result_s)
    folders = (
        layout.root, layout.artifacts, layout.contracts, layout.recovered, layout.steering,
        layout.docs,
    )  # fmt: skip
    for directory in folders:
        for name in engine.disk.list_dir(directory):
            if is_temp_name(name):
                engine.disk.unlink(f"{directory}/{name}", durable=False)


def summary(engine: Engine, recovered: Recovered) -> dict[str, Any]:
    """The resume-ready summary as plain data.

    ``last_contact`` is the newest word of a sponsor: what they said after it did not arrive, and
    has to be said again (ST-2). ``inbox_empty`` is whether nothing is left to be taken in.
    """
    contact = engine.replica.state.last_contact
    return {
        "task_id": engine.replica.state.task_id,
        "stable_position": f"J-{engine.journal.tip.seq}",
        "found": list(recovered.found),
        "repaired": list(recovered.repaired),
        "suspects": list(recovered.suspects),
        "frontier": list(recovered.frontier),
        "stopped": [[orphan.pid, orphan.name, orphan.node] for orphan in recovered.stopped],
        "left_running": [
            [orphan.pid, orphan.name, orphan.node] for orphan in recovered.left_running
        ],
        "hint": engine.replica.state.next_hint,
        "last_contact": None if contact is None else msgspec.to_builtins(contact),
        "inbox_empty": _inbox_is_empty(engine),
    }


def _inbox_is_empty(engine: Engine) -> bool:
    """Whether nothing that people have left waits to be taken in, or to be acted on."""
    box = spool.pending(engine.disk, engine.layout, engine.stays_in_box)
    return not (
        box.messages
        or box.damaged
        or pending_steering(engine.replica.state)
        or _write_here.has_words(engine)
        or _write_here.unlogged(engine)
    )
