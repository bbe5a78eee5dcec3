"""Changing the goal: what is DONE and may not hold any more is verified before anything is decided.

Job: run the checks of the nodes that the sponsor wants verified again, then commit the change with
what they came to. Invariants: the change, everything it touches and the verdicts it rests on are
one commit; a crash before it leaves the old goal; checks are run without the lock, and a node that
somebody settled meanwhile refuses the change.
"""

from collections.abc import Iterable

import msgspec

from perdure.core import commands as c
from perdure.core.audits import awaits_audit
from perdure.core.decide import decide
from perdure.core.lookup import complete, node_of
from perdure.core.model import Node
from perdure.errors import EvidenceError, PathError, RefusedError
from perdure.runtime.batching import Committed
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import verify_node


def change_goal(
    engine: Engine,
    text: str,
    reason: str,
    *,
    reverify: Iterable[str] = (),
    superseded: Iterable[str] = (),
    acceptance: Iterable[str] | None = None,
    op: str | None = None,
) -> Committed:
    """GOAL_AMENDED and what follows from it; durable on return (GE-1, GE-2).

    ``reverify`` and ``superseded`` name nodes by id or unique prefix. Raises RefusedError where
    the actor is not the sponsor (AU-1, H4) or a node became another while it was being verified.
    """
    with engine.writing():
        before = engine.repeated(op)
        if before is not None:
            return before
        nodes = engine.replica.state.nodes
        command = c.AmendGoal(
            text,
            reason,
            tuple(dict.fromkeys(complete(name, nodes, "node") for name in reverify)),
            superseded=tuple(dict.fromkeys(complete(name, nodes, "node") for name in superseded)),
            acceptance=None if acceptance is None else tuple(acceptance),
        )
        decide(engine.replica, command, engine.context())  # refused before anything is run
        judged = [msgspec.structs.replace(nodes[name]) for name in command.reverify]
        if not judged:
            return engine.execute(command, op=op)
    since = engine.takeovers()
    verdicts = {node.node_id: _fault(engine, node) for node in judged}
    failed = {name: why for name, why in verdicts.items() if why}
    with engine.writing():
        if failed and engine.takeovers() != since:
            raise RefusedError(
                f"a coordinator came while {', '.join(failed)} was being verified again and may"
                " have ended its check scripts, so that they failed means nothing.",
                code="changed_meanwhile",
                rule="GE-2",
                fix="Change the goal again.",
            )
        for node in judged:
            _check_same(engine, node)
        return engine.execute(msgspec.structs.replace(command, failed=failed), op=op)


def _fault(engine: Engine, node: Node) -> str:
    """Why a node that is DONE does not hold now; empty when it does."""
    try:
        verdict = verify_node(engine, node)
    except (EvidenceError, PathError) as error:
        return error.message
    if verdict.passed and awaits_audit(verdict.checks):
        return "what was audited is not what is there now"
    return "" if verdict.passed else verdict.diagnosis or "its checks do not pass"


def _check_same(engine: Engine, judged: Node) -> None:
    node = node_of(engine.replica.state, judged.node_id)
    if node.state_ref != judged.state_ref:
        raise RefusedError(
            f"{node.node_id} became {node.state} while it was being verified.",
            code="changed_meanwhile",
            rule="GE-2",
            fix="Look at it (`perdure show`), then change the goal again.",
        )
