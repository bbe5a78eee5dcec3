"""The fold of observations: what was seen of steps, external jobs and downloads.

Job: the events behind ``observed.py``, applied to the state. Invariants: those of ``fold``, which
calls these functions; nothing here moves a node; what others wrote never raises, and takes no more
room than what perdure itself would have written. Of two words about a step the newer one counts,
whether it is an observation or a move of the node; an observation that contradicts is kept beside
what it contradicts, for ``derive`` to judge.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from perdure.core.codec import moment
from perdure.core.events import Event
from perdure.core.model import Node, State
from perdure.core.observed import (
    FAILURE_TYPES,
    Block,
    Download,
    ExternalJob,
    Observed,
    Reply,
    StepObserved,
    downloads_max,
    external_jobs_max,
    fact_chars_max,
    facts_kept_max,
    observed_chars_max,
    tokens_kept_max,
)
from perdure.core.payload import mapping, text, texts

_Fold = Callable[[State, Event, Mapping[str, Any]], None]

_EXECUTORS: Final = frozenset({"executor", "worker"})
"""The role whose heartbeats speak for the work, and the other name of it."""


def note_progress(state: State, event: Event) -> float | None:
    """A progress signal of the journal; the newest is the last one, whatever its clock said.

    Returns its moment, as far as the event tells one.
    """
    observed = state.observed
    at = moment(event.ts)
    if event.kind == "INSTANCE_STARTED":
        observed.started_at = at
    elif event.kind == "ARTIFACT_REGISTERED":
        _note_success(observed, at)
    observed.progress_ref = event.ref
    if at is not None:
        observed.progress_at = at
    return at


def _note_success(observed: Observed, at: float | None) -> None:
    observed.errors = 0
    if at is not None:
        observed.success_at = at


_FORWARD: Final = frozenset({"READY", "RUNNING", "VERIFYING", "DONE"})
"""States that are entered by a step forward."""
_ENDED: Final = frozenset({"RETRYABLE", "QUARANTINED", "CANCELLED"})
"""States that end an attempt, and with it what was observed of the attempt."""


def note_transition(state: State, node: Node, event: Event) -> None:
    """A move of a node, which is a newer word on the step than what was observed before."""
    observed, edge = state.observed, event.payload.get("edge")
    at = note_progress(state, event) if node.state in _FORWARD and edge != "RC1" else None
    if edge == "N04":
        if not ("steering" in event.payload or "goal" in event.payload):
            observed.errors += 1  # what is recalled has not failed
    elif node.state == "DONE":
        _note_success(observed, at)
    if edge == "N09" or node.state in ("DONE", "QUARANTINED", "CANCELLED"):
        observed.blocks.pop(node.node_id, None)
    step = observed.steps.get(node.node_id)
    if step is None:
        return
    if node.state in _ENDED or edge == "RC1":
        del observed.steps[node.node_id]
    elif node.state == "DONE":
        step.state = "COMPLETED"
        step.completed_at, step.completed_ref = at, event.ref
        step.progress_after_completion = ""
    elif step.state == "COMPLETED":
        return
    elif node.state == "BLOCKED":
        step.state = "BLOCKED"
    elif node.state == "RUNNING" or edge == "N09":
        step.state = "RUNNING"


def note_heartbeat(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    """A sign of life. Of an executor it says how the work is; of an owner that it is there."""
    observed, ok = state.observed, payload.get("ok")
    at = moment(event.ts)
    if at is not None:
        observed.heartbeat_at = at
    if event.actor.partition(":")[0] not in _EXECUTORS:
        return
    if ok is True:
        observed.errors = 0
        note_progress(state, event)
    elif ok is False:
        observed.errors += 1


def _node_of(state: State, event: Event, payload: Mapping[str, Any]) -> str:
    """The node that an observation is about; empty for the task, and for what is no node here."""
    named = event.entity.id if event.entity.type == "node" else text(payload.get("node"))
    return named if named in state.nodes else ""


def _facts(payload: Mapping[str, Any], before: Mapping[str, str]) -> dict[str, str]:
    """The facts known now, the newest word on each, the newest names last."""
    said = mapping(payload.get("facts"))
    facts = dict(before)
    if not said:
        return facts
    for name, value in said.items():
        kept = name[:fact_chars_max]
        facts.pop(kept, None)
        facts[kept] = text(value)[:fact_chars_max]
    return dict(list(facts.items())[-facts_kept_max:])


def _said(payload: Mapping[str, Any], name: str) -> str:
    return text(payload.get(name))[:observed_chars_max]


def _progress(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    at = note_progress(state, event)
    node_id = _node_of(state, event, payload)
    if not node_id:
        return
    node, steps = state.nodes[node_id], state.observed.steps
    step = steps.get(node_id)
    if step is None:
        step = steps[node_id] = StepObserved()
        if node.state == "DONE":
            step.state, step.completed_ref = "COMPLETED", node.state_ref or ""
    if step.state == "COMPLETED":
        step.progress_after_completion = event.ref
    else:
        step.state = "RUNNING"
    step.progress_at = at
    step.summary = _said(payload, "summary")
    step.facts = _facts(payload, step.facts)


def _step_completed(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    at = note_progress(state, event)
    _note_success(state.observed, at)
    node_id = _node_of(state, event, payload)
    if not node_id:
        return
    step = state.observed.steps.setdefault(node_id, StepObserved())
    step.state = "COMPLETED"
    step.completed_at, step.completed_ref = at, event.ref
    step.progress_after_completion = ""
    step.summary = _said(payload, "summary")
    step.facts = _facts(payload, step.facts)


def _task_completed(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    note_progress(state, event)
    observed = state.observed
    observed.task_completed = event.ref
    observed.completion_summary = _said(payload, "summary")


def _blocked(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    observed, node_id = state.observed, _node_of(state, event, payload)
    _acknowledge(observed, payload)
    observed.blocks[node_id] = Block(
        event.ref,
        moment(event.ts) or 0.0,
        _said(payload, "reason"),
        node_id,
        tuple(need[:observed_chars_max] for need in texts(payload.get("needs"))[:facts_kept_max]),
        _said(payload, "safe_next_step"),
        text(payload.get("failure_type"))[:fact_chars_max],
    )
    if not node_id:
        return
    step = observed.steps.setdefault(node_id, StepObserved())
    if step.state != "COMPLETED":
        step.state = "BLOCKED"


def _resumed(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    observed, node_id = state.observed, _node_of(state, event, payload)
    _acknowledge(observed, payload)
    observed.task_completed = ""  # the owner is at it again
    observed.completion_summary = ""
    block = observed.blocks.pop(node_id, None)
    if block is not None and block.failure_type in FAILURE_TYPES:
        key = f"{node_id}:{block.failure_type}"
        observed.retries[key] = observed.retries.get(key, 0) + 1
    step = observed.steps.get(node_id)
    if step is not None and step.state == "BLOCKED":
        step.state = "RUNNING"


def _replied(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    _acknowledge(state.observed, payload)
    state.observed.reply = Reply(
        text(payload.get("letter"))[:1],
        event.ref,
        moment(event.ts) or 0.0,
        _node_of(state, event, payload),
        text(payload.get("resume_token"))[:fact_chars_max],
    )


def _acknowledge(observed: Observed, payload: Mapping[str, Any]) -> None:
    """What the owner says under a resume token answers the request that carried it."""
    token = text(payload.get("resume_token"))[:fact_chars_max]
    if token:
        others = [held for held in observed.acknowledged_tokens if held != token]
        observed.acknowledged_tokens = (*others, token)[-tokens_kept_max:]


def _external(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    provider = text(payload.get("provider"))[:fact_chars_max]
    job_id = text(payload.get("job_id"))[:fact_chars_max]
    found = text(payload.get("state"))[:fact_chars_max]
    if not (provider and job_id and found):
        return
    jobs, key = state.observed.external, f"{provider}:{job_id}"
    job = jobs.pop(key, None)
    if job is None:
        job = ExternalJob(provider, job_id, "")
        if len(jobs) >= external_jobs_max:
            del jobs[next(iter(jobs))]
    jobs[key] = job  # last, so that what nobody speaks of any more is the first to be forgotten
    if job.state != found:
        job.state, job.changed_at = found, moment(event.ts) or 0.0
        note_progress(state, event)
    job.node = _node_of(state, event, payload) or job.node
    job.facts = _facts(payload, job.facts)
    job.ref = event.ref


def _download(state: State, event: Event, payload: Mapping[str, Any]) -> None:
    name = text(payload.get("download_id"))
    if not name and event.entity.type == "download":
        name = event.entity.id
    name = name[:fact_chars_max]
    if not name:
        return
    note_progress(state, event)
    downloads, size = state.observed.downloads, payload.get("size_bytes")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63
    downloads.pop(name, None)
    if len(downloads) >= downloads_max:
        del downloads[next(iter(downloads))]
    downloads[name] = Download(
        name,
        text(payload.get("status"))[:fact_chars_max],
        _said(payload, "path"),
        size if known else None,
        text(payload.get("checksum"))[:fact_chars_max],
        _node_of(state, event, payload),
        event.ref,
        moment(event.ts) or 0.0,
    )


OBSERVATIONS: Final[dict[str, _Fold]] = {
    "STEP_PROGRESS": _progress,
    "STEP_COMPLETED": _step_completed,
    "TASK_COMPLETED": _task_completed,
    "BLOCKED_CONFIRMED": _blocked,
    "OWNER_RESUMED": _resumed,
    "OWNER_REPLY_RECORDED": _replied,
    "EXTERNAL_OBSERVED": _external,
    "DOWNLOAD_OBSERVED": _download,
}
