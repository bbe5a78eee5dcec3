"""Independent audits (V2): what a node asks for, what a verdict says, and whether it holds.

Job: everything about an audit that the state and file digests alone decide. Invariants: a verdict
holds for exactly the content and the rubric that it was given on; it passes only when every point
of the rubric was judged, nothing was touched, and it is as independent as the spec asks (VR-0 to
VR-2); what falls short of that fails nothing either, it is asked for again. Never reads a disk:
``files`` is what the runtime has just read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.actions import AgentCall
from perdure.core.codec import to_json
from perdure.core.dispatching import INDEPENDENCE, Audit
from perdure.core.model import Artifact, Criterion, Node, State, text_digest
from perdure.core.payload import number, record, text, texts
from perdure.core.tiers import asks_other_authority
from perdure.errors import RefusedError

DEFAULT_POINT: Final = "It does what its title and its goal say."
DEFAULT_INDEPENDENCE: Final = ("I1", "I2")
AUDIT_QUESTION: Final = "audit"
"""``kind`` in the package of the question that is asked when audits come to nothing."""

audits_max: Final = 3
"""Audits in a row that come to nothing before a person is asked."""
verdict_bytes_max: Final = 1 << 20
item_detail_chars_max: Final = 2_000
item_evidence_max: Final = 20
item_evidence_chars_max: Final = 300
model_chars_max: Final = 200

_METHOD: Final = (
    "An auditor who is not the producer judged exactly these files, each point of the rubric by"
    " itself; the verdict was looked up in the journal."
)


class AuditPlan(NamedTuple):
    """What the spec of a node asks of its audit; several criteria make one audit."""

    criteria: tuple[tuple[Criterion | None, tuple[str, ...]], ...]
    """Each ``audit`` criterion and its points; None where the level alone asks for an audit."""
    points: tuple[str, ...]
    """The rubric: the points of all of them."""
    independence: tuple[str, ...]
    """The least that a verdict has to meet."""
    agent: AgentCall | None = None
    run: str | tuple[str, ...] | None = None
    """Who is sent to judge; without either somebody outside gives the verdict."""
    model: str = ""
    timeout_s: float | None = None

    @property
    def rubric(self) -> str:
        """Digest of the rubric, which a verdict is bound to."""
        return text_digest(to_json(list(self.points)).decode())

    @property
    def dispatches(self) -> bool:
        """Whether a run sends an auditor by itself."""
        return self.agent is not None or self.run is not None


def audit_plan(state: State, node: Node) -> AuditPlan | None:
    """The audit of a node, or None when it asks for none.

    A node that asks for V2 and has no ``audit`` criterion has one audit with a rubric of one point.
    """
    found = [item for item in node.spec.acceptance_criteria if item.check == "audit"]
    if not found and node.verification_level != "V2":
        return None
    criteria: list[tuple[Criterion | None, tuple[str, ...]]] = [
        (item, _points(item.params)) for item in found
    ]
    named = next((i.params for i in found if i.params.get("agent") or i.params.get("run")), {})
    wanted = {"I1", *(["I5"] if asks_other_authority(state.tier) else [])}
    for params in [item.params for item in found] or [{}]:
        wanted |= set(texts(params.get("independence")) or DEFAULT_INDEPENDENCE)
    agent = auditor_of(named)
    run = named.get("run")
    criteria = criteria or [(None, (DEFAULT_POINT,))]
    return AuditPlan(
        tuple(criteria),
        tuple(dict.fromkeys(point for _, points in criteria for point in points)),
        tuple(name for name in INDEPENDENCE if name in wanted),
        agent,
        tuple(run) if isinstance(run, list | tuple) else run,
        agent.model if agent is not None else text(named.get("model")),
        number(named.get("timeout_s")),
    )


def required_plan(state: State, node: Node) -> AuditPlan:
    """The audit that a node asks for. Raises RefusedError (VR-1) where it asks for none."""
    plan = audit_plan(state, node)
    if plan is None:
        raise RefusedError(
            f"{node.node_id} asks for no audit.",
            code="no_audit",
            rule="VR-1",
            fix=f"Have it raised: perdure amend {node.node_id} --verify V2",
        )
    return plan


def _points(params: Mapping[str, Any]) -> tuple[str, ...]:
    return texts(params.get("rubric")) or (DEFAULT_POINT,)


def auditor_of(params: Mapping[str, Any]) -> AgentCall | None:
    """The agent that an ``audit`` criterion sends, with the model it names; None for no agent."""
    agent = record(params.get("agent"), AgentCall)  # a journal may hold what others wrote
    return agent and msgspec.structs.replace(agent, model=text(params.get("model"), agent.model))


# Content


def _artifacts(state: State, node: Node) -> list[Artifact]:
    found = [state.artifacts[name] for name in node.artifacts if name in state.artifacts]
    return [artifact for artifact in found if artifact.status == "current"]


def audited_paths(state: State, node: Node) -> tuple[str, ...]:
    """The workspace paths that an audit is about, to be read from disk: products, then inputs."""
    products = [a.path for a in _artifacts(state, node) if not a.path.startswith("git:")]
    return tuple(dict.fromkeys((*products, *node.spec.inputs)))


def audited_commits(state: State, node: Node) -> dict[str, str]:
    """What the audit is about besides files: commits, which are their own identity."""
    found = _artifacts(state, node)
    return {a.path: a.integrity.value for a in found if a.path.startswith("git:")}


def misread(state: State, node: Node, files: Mapping[str, str]) -> str:
    """Which product these files do not have as it is registered; empty when they have all."""
    for artifact in _artifacts(state, node):
        if artifact.integrity.algo == "size+mtime":
            continue
        if files.get(artifact.path) != artifact.integrity.value:
            return artifact.path
    return ""


def unhashed(files: Mapping[str, str]) -> list[str]:
    """The paths of which nobody can say what they hold: words stand in the place of a digest."""
    return [f"{path} is {said}" for path, said in files.items() if " " in said]


# Whether a verdict holds


def lacks(plan: AuditPlan, met: Collection[str]) -> tuple[str, ...]:
    """What a verdict is short of (VR-1)."""
    return tuple(name for name in plan.independence if name not in met)


def unusable(plan: AuditPlan, audit: Audit) -> str:
    """Why a verdict decides nothing, whatever it says; empty when it does."""
    if audit.integrity != "clean":
        return f"its integrity is {audit.integrity}: {audit.diagnosis or 'no reason is on record'}"
    short = lacks(plan, audit.independence)
    return f"it is short of {', '.join(short)}" if short else ""


def shortfall(plan: AuditPlan, audit: Audit | None, files: Mapping[str, str]) -> str:
    """Why there is no verdict yet that decides; empty when ``audit`` is one."""
    if audit is None:
        return "no auditor has judged it yet"
    if audit.rubric != plan.rubric:
        return f"the verdict in {audit.ref} is by another rubric"
    if dict(audit.files) != dict(files):
        return f"what {audit.ref} judged is not what is there now"
    why = unusable(plan, audit)
    return f"the verdict in {audit.ref} decides nothing: {why}" if why else ""


def audit_items(state: State, node: Node, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """What the audit comes to, itemised like a check (A-4); empty where none is asked for.

    Without a verdict that decides the items are ``pending``: neither a pass nor a failure.
    """
    plan = audit_plan(state, node)
    if plan is None:
        return []
    missing = shortfall(plan, node.audit, files)
    return [
        _item(criterion, points, node.audit, files, missing) for criterion, points in plan.criteria
    ]


def _item(
    criterion: Criterion | None,
    points: Sequence[str],
    audit: Audit | None,
    files: Mapping[str, str],
    missing: str,
) -> dict[str, Any]:
    item: dict[str, Any] = {
        "check": "audit",
        "params": criterion.params if criterion is not None else {"rubric": list(points)},
        "level": criterion.level if criterion is not None else "V2",
        "passed": False,
        "method": _METHOD,
        "inputs": [{"path": path, "sha256": digest} for path, digest in files.items()],
    }
    if missing or audit is None:
        return {**item, "pending": True, "detail": f"{missing}."}
    judged = [entry for entry in audit.items if entry.get("point") in points]
    failed = [entry for entry in judged if not entry.get("passed")]
    told = "; ".join(
        ": ".join(filter(None, (text(e.get("point")), text(e.get("detail"))))) for e in failed
    )
    counted = "1 point holds" if len(judged) == 1 else f"{len(judged)} points hold"
    said = f"{counted}, says {audit.verifier} in {audit.ref}"
    return {
        **item,
        "passed": not failed,
        "by": audit.verifier,
        "ref": audit.ref,
        "integrity": audit.integrity,
        "independence": list(audit.independence),
        "items": judged,
        "detail": f"{told or said}."[:item_detail_chars_max],
    }


def files_of_items(items: Iterable[Mapping[str, Any]]) -> dict[str, str] | None:
    """The files that the audit items of a verdict were made for; None without such items."""
    for item in items:
        if item["check"] == "audit":
            return {entry["path"]: entry["sha256"] for entry in item["inputs"]}
    return None


def awaits_audit(items: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a verdict still waits for an auditor: then it is no pass yet (VR-1)."""
    return any(item.get("check") == "audit" and item.get("pending") for item in items)


def audit_verifier(node: Node, items: Iterable[Mapping[str, Any]]) -> str:
    """Who has judged a node whose audit has passed; empty when it has none that has."""
    audited = [item for item in items if item["check"] == "audit"]
    holds = audited and all(item["passed"] for item in audited)
    return node.audit.verifier if holds and node.audit is not None else ""


# What an auditor says


class Findings(NamedTuple):
    """A verdict as it was read."""

    passed: bool = False
    items: tuple[dict[str, Any], ...] = ()
    model: str = ""
    problem: str = ""
    """Why it is none, as the end of a sentence; empty for one that is complete."""


def read_findings(data: bytes, points: Sequence[str]) -> Findings:
    """The verdict in these bytes: JSON with ``verdict`` and ``items``, one for each point.

    Never raises: what is no complete verdict on this rubric has a ``problem``, and no items.
    """
    if len(data) > verdict_bytes_max:
        return Findings(problem=f"it has more than {verdict_bytes_max} bytes")
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Findings(problem=f"it is not JSON: {error}")
    if not isinstance(given, dict):
        return Findings(problem="it is no JSON object")
    return _findings(given, points)


def _findings(given: Mapping[str, Any], points: Sequence[str]) -> Findings:
    said = given.get("verdict")
    if said not in ("pass", "fail"):
        return Findings(problem="its verdict is neither pass nor fail")
    entries = given.get("items")
    if not isinstance(entries, list):
        return Findings(problem="it has no list of items")
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        point, problem = _point_of(entry, points)
        if problem or point in found:
            return Findings(problem=problem or f"it judges the point {point!r:.80} twice")
        found[point] = _clean(entry, point)
    missing = [point for point in points if point not in found]
    if missing:
        return Findings(problem=f"it does not judge the point {missing[0]!r:.80}")
    passed = all(item["passed"] for item in found.values())
    if passed != (said == "pass"):
        return Findings(problem=f"it says {said}, and its items say otherwise")
    model = text(given.get("model"))[:model_chars_max]
    return Findings(passed, tuple(found[point] for point in points), model)


def _point_of(entry: object, points: Sequence[str]) -> tuple[str, str]:
    """The point that an item judges, by its text or its number from 1; and what is wrong."""
    if not isinstance(entry, dict):
        return "", "one of its items is no JSON object"
    point = entry.get("point")
    numbers = {str(number): each for number, each in enumerate(points, 1)}
    if isinstance(point, str) and point.strip() in points:
        point = point.strip()
    elif isinstance(point, int | str) and str(point) in numbers:
        point = numbers[str(point)]
    else:
        return "", f"it judges {point!r:.80}, which is no point of the rubric"
    if not isinstance(entry.get("passed"), bool):
        return "", f"whether the point {point!r:.80} holds is neither true nor false"
    return point, ""


def _clean(entry: Mapping[str, Any], point: str) -> dict[str, Any]:
    evidence = [ref for ref in texts(entry.get("evidence")) if ref.strip()]
    return {
        "point": point,
        "passed": entry["passed"],
        "detail": text(entry.get("detail"))[:item_detail_chars_max],
        "evidence": [ref[:item_evidence_chars_max] for ref in evidence[:item_evidence_max]],
    }


# Independence


class Circumstances(NamedTuple):
    """What the runtime knows of how a verdict came about."""

    model: str = ""
    producer_model: str = ""
    evidence: bool = False
    """Every item cites evidence of its own, and all of it was found."""
    authority: bool = False
    """Whoever had it judged does not answer to the producer."""


def independence_met(seen: Circumstances) -> tuple[str, ...]:
    """The profile that a verdict records (VR-0): what is shown, never what is only said.

    I1 and I2 hold for all of them: nobody judges under the contract or under the name that the work
    was done under (INV-6).
    """
    known = bool(seen.model and seen.producer_model)
    met = {
        "I1": True,
        "I2": True,
        "I3": known and seen.model != seen.producer_model,
        "I4": seen.evidence,
        "I5": seen.authority,
    }
    return tuple(name for name in INDEPENDENCE if met[name])


def producer_model(node: Node) -> str:
    """The model that did the work, as far as anybody said."""
    if node.usage is not None and node.usage.model:
        return node.usage.model
    agent = node.spec.agent or (node.spec.map.agent if node.spec.map is not None else None)
    return agent.model if agent is not None else ""


def producer_names(node: Node) -> tuple[str, ...]:
    """The names that the work of the newest attempt was done under."""
    names = (node.worker.rpartition(":")[2], node.invocation or "")
    return tuple(name for name in names if name)
