"""Independent audits on disk (V2): the order, the verdict, and what of it goes on record.

Job: write the contract of an audit, read the verdict that came of it, and judge how far it is to be
believed. Invariants: what is judged is hashed before and after, in calls of their own, and any
change is a violation (VR-2); the independence on record is what was seen and never what was said
(VR-0); a verdict that is missing or malformed decides nothing; recording one and moving the node by
it are two commits, and what lies between them is carried on by the next check.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from perdure.core import commands as c
from perdure.core.audits import (
    AuditPlan,
    Circumstances,
    Findings,
    independence_met,
    item_detail_chars_max,
    producer_model,
    read_findings,
    required_plan,
    unhashed,
    verdict_bytes_max,
)
from perdure.core.authority import holders, read_actor
from perdure.core.codec import to_json
from perdure.core.dispatch_commands import RecordAudit
from perdure.core.dispatching import Integrity, Usage
from perdure.core.lookup import node_of
from perdure.core.model import Node
from perdure.errors import EvidenceError, HaltError, StorageError, UsageError
from perdure.runtime.audited import audited_files
from perdure.runtime.batching import Committed
from perdure.runtime.contracts import VERDICT_NAME, Terms, audit_directory, issue_audit_contract
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import resolve_refs

VERDICT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["verdict", "items"],
    "properties": {
        "verdict": {"enum": ["pass", "fail"]},
        "model": {"type": "string"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["point", "passed"],
                "properties": {
                    "point": {"type": ["string", "integer"]},
                    "passed": {"type": "boolean"},
                    "detail": {"type": "string"},
                    "evidence": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
"""Of ``verdict.json``; besides, each point of the rubric has exactly one item."""


class Sent(NamedTuple):
    """An audit under way: what its verdict is going to be measured by."""

    node_id: str
    invocation: str
    plan: AuditPlan
    files: dict[str, str]
    """What is judged, as it was before the auditor was sent."""
    state_ref: str
    """The event that made the node so; a verdict on it is void once another has."""

    @property
    def place(self) -> str:
        """The one directory in which the auditor may write, relative to the workspace."""
        return audit_directory(self.invocation)

    @property
    def verifier(self) -> str:
        """The auditor, as an actor."""
        return f"verifier:{self.invocation}"


def send(
    engine: Engine, node: Node, *, enforcement: Mapping[str, Any], wall_s: float | None = None
) -> Sent:
    """The contract of an audit, durable and on record before anybody is sent.

    ``enforcement`` is what the system holds the auditor to, ``wall_s`` its time limit.
    A crash afterwards costs this audit and nothing else: another one is sent.
    """
    with engine.writing():
        plan = required_plan(engine.replica.state, node)
        files = audited_files(engine, node)
        issued = issue_audit_contract(
            engine,
            node,
            rubric=plan.points,
            independence=plan.independence,
            files=files,
            run=plan.run,
            agent=plan.agent,
            schema=VERDICT_SCHEMA,
            terms=Terms(enforcement=enforcement, wall_s=wall_s),
        )
        contract = f"contracts/{issued.invocation_id}.json"
        facts = {"node": node.node_id, "contract": contract, "contract_sha256": issued.sha256}
        text = f"an auditor is sent to judge {node.node_id} under {contract}"
        engine.execute(c.WriteNote(text, extra=facts))
    return Sent(node.node_id, issued.invocation_id, plan, files, node.state_ref or "")


def read_verdict(engine: Engine, sent: Sent) -> Findings:
    """What the auditor has written, as far as it is a verdict. Never raises for what it is."""
    place = engine.disk.real_path(f"{engine.layout.root}/{sent.place}")
    path = f"{place}/{VERDICT_NAME}"
    try:
        found = engine.disk.stat(path)
        if found is None or found.kind != "file" or engine.disk.real_path(path) != path:
            return Findings(problem="there is no verdict")
        if found.size_bytes > verdict_bytes_max:
            return Findings(problem=f"it has more than {verdict_bytes_max} bytes")
        return read_findings(engine.disk.read(path), sent.plan.points)
    except StorageError as error:
        return Findings(problem=f"it cannot be read: {error.message.rstrip('.')}")


def record(
    engine: Engine,
    sent: Sent,
    *,
    held: bool,
    problem: str = "",
    signature: str = "",
    usage: Usage | None = None,
) -> Committed:
    """Take on record what an auditor that was sent has come to; durable on return.

    ``held`` is whether the system kept it from writing anywhere else; ``problem`` is why there can
    be no verdict, whatever lies there, ``signature`` how it ended, where no verdict explains it.
    What it says is bound to what is on disk now.
    """
    with engine.writing():
        node = node_of(engine.replica.state, sent.node_id)
        findings = Findings(problem=problem) if problem else read_verdict(engine, sent)
        if signature and findings.problem and not problem:
            findings = Findings(problem=f"{signature}: {findings.problem}")
        files = audited_files(engine, node)
        integrity, why = _integrity(sent.files, files, findings, held=held)
        asker, worker = read_actor(engine.actor), node.worker.rpartition(":")[2]
        model = (usage.model if usage is not None else "") or sent.plan.model
        met = Circumstances(
            model=model,
            producer_model=producer_model(node),
            evidence=_cites_evidence(engine, node, findings.items),
            authority=asker.role in ("coordinator", "sponsor") and asker.name != worker,
        )
        command = RecordAudit(
            sent.node_id,
            sent.verifier,
            findings.passed,
            integrity,
            independence_met(met),
            files,
            sent.plan.rubric,
            findings.items,
            f"contracts/{sent.invocation}.json",
            why,
            usage,
        )
        return engine.execute(command)


def _integrity(
    before: Mapping[str, str], after: Mapping[str, str], findings: Findings, *, held: bool
) -> tuple[Integrity, str]:
    """Whether all stayed as it was (VR-2), and what there is to say of that or of the verdict."""
    changed = [p for p in dict.fromkeys((*before, *after)) if before.get(p) != after.get(p)]
    if changed:
        return "violation", f"{', '.join(changed[:5])} changed while it was audited"
    if findings.problem:
        return "suspect", findings.problem
    unknown = unhashed(after)
    if unknown and not held:
        return "suspect", f"{unknown[0]}, so nobody can tell whether it changed"
    failed = [item for item in findings.items if not item["passed"]]
    return "clean", "; ".join(f"{i['point']}: {i['detail']}".rstrip(": ") for i in failed)[
        :item_detail_chars_max
    ]


def _cites_evidence(engine: Engine, node: Node, items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each item cites something, and all of that is there (I4)."""
    if not items or not all(item["evidence"] for item in items):
        return False
    with contextlib.suppress(HaltError):
        resolve_refs(engine, node, [ref for item in items for ref in item["evidence"]])
        return True
    return False


def judge(engine: Engine, node_id: str, given: Any, *, op: str | None = None) -> Committed:
    """Take the verdict of somebody outside on record, about the content as it is now.

    ``given`` is the document of the verdict: a mapping, or its JSON text. The actor is the auditor.
    Raises UsageError ``audit_incomplete`` for what is no complete verdict, EvidenceError where
    what it is about cannot be read, RefusedError for who may not judge it (INV-6, AU-1, H4).
    """
    with engine.writing():
        node = node_of(engine.replica.state, node_id)
        plan = required_plan(engine.replica.state, node)
        data = given.encode("utf-8", "replace") if isinstance(given, str) else to_json(given)
        findings = read_findings(data, plan.points)
        if findings.problem:
            raise UsageError(
                f"this is no verdict on {node_id}: {findings.problem}.",
                code="audit_incomplete",
                rule="A-4",
                fix=f"Fill in the form that `perdure judge {node_id}` prints.",
            )
        files = audited_files(engine, node)
        unknown = unhashed(files)
        if unknown:
            raise EvidenceError(
                f"{unknown[0]}, so nobody can say what the verdict on {node_id} is about.",
                code="content_unread",
                rule="VR-2",
                fix="Have a file of the workspace there, then judge it.",
            )
        name = read_actor(engine.actor).name
        met = Circumstances(
            model=findings.model,
            producer_model=producer_model(node),
            evidence=_cites_evidence(engine, node, findings.items),
            # Of whoever comes from outside only the task itself can say that.
            authority=name in holders(engine.replica.state, "verifier"),
        )
        integrity, why = _integrity(files, files, findings, held=False)
        command = RecordAudit(
            node_id, engine.actor, findings.passed, integrity, independence_met(met), files,
            plan.rubric, findings.items, diagnosis=why,
            usage=Usage(model=findings.model) if findings.model else None,
        )  # fmt: skip
        return engine.execute(command, op=op)
