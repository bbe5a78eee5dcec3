"""What an auditor from outside needs in order to judge a node (V2).

Job: put the rubric, the files and the form of a verdict together. Invariants: it changes nothing;
the digests are of the bytes as they are now.
"""

from typing import Any

from perdure.core.audits import producer_names, required_plan, shortfall
from perdure.core.lookup import complete, node_of
from perdure.runtime.audited import audited_files
from perdure.runtime.engine import Engine

Data = dict[str, Any]


def audit_brief(engine: Engine, typed: str) -> Data:
    """What there is to judge of a node, and the form to fill in; writes nothing.

    Raises NotFoundError for an unknown node, RefusedError (VR-1) for one that asks for no audit.
    """
    state = engine.replica.state
    node = node_of(state, complete(typed, state.nodes, "node"))
    plan = required_plan(state, node)
    files = audited_files(engine, node)
    return {
        "node": node.node_id,
        "title": node.title,
        "goal": node.spec.goal,
        "state": node.state,
        "producer": list(producer_names(node)),
        "rubric": list(plan.points),
        "independence": list(plan.independence),
        "files": files,
        "missing": shortfall(plan, node.audit, files),
        "form": {
            "verdict": "pass or fail",
            "items": [
                {"point": point, "passed": None, "detail": "", "evidence": []}
                for point in plan.points
            ],
        },
    }
