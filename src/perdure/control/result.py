"""What the end of an instance comes to: one status, with what waits, is missing or has failed.

Job: judge an instance that nothing is running for, by its state and by the ways out that its card
names. Invariants: what is missing is listed, never left out (HALT-03 IO-1); a failure without a
route is told as such (FE-1); what people can answer is asked before anything counts as failed for
good. Never commits, and looks at no disk.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from perdure.control.outcome import signature_chars_max
from perdure.control.report import RunReport
from perdure.control.sop_card import Card
from perdure.core import instance as i
from perdure.core.escalation import VERIFICATION_FAILED
from perdure.core.gates import CONSENT, holds_work, is_automatic, is_of_gate
from perdure.core.machine import unreplaced
from perdure.core.model import CLOSED_STATES, Node, State
from perdure.core.people import Question
from perdure.core.views import cut

_ASKS: Final = frozenset({"block_ask_user", "method_switch_or_escalate"})
_REPORTS: Final = "decompose_and_report"
EVENTS: Final = {VERIFICATION_FAILED: "acceptance_failed"}
"""Kind of an escalation to the event that a card may route besides the failure classes."""


class InstanceVerdict(NamedTuple):
    """What the end of an instance comes to."""

    status: str
    questions: tuple[i.OpenQuestion, ...] = ()
    failure: i.Failure | None = None
    given_up: tuple[str, ...] = ()
    """Nodes that wait for a decision which the card has made: they are gaps now."""


def judge_instance(
    state: State,
    report: RunReport,
    card: Card,
    outputs: Mapping[str, str],
    proven: Collection[str],
) -> InstanceVerdict:
    """The status of an instance whose run has ended, not by a signal.

    ``outputs`` maps the outputs of the card to their paths; ``proven`` are the names of those that
    are registered and verified. A question that people can answer comes first: it waits, and
    nothing has failed for good that the answer might not change.
    """
    instance = state.task_id
    asked = [q for q in state.questions.values() if holds_work(q) and not _is_of_failure(q)]
    if asked:
        return _blocked(instance, asked)
    failures = _failures(state, card)
    given_up = dict.fromkeys(n.node_id for _, n in failures if n.state not in CLOSED_STATES)
    gaps = [
        i.OpenQuestion(i.qualified(instance, node.node_id), f"{node.title} was given up.")
        for node in state.nodes.values()
        if node.state == "CANCELLED" and not node.successors
    ]
    for failure, _ in failures:
        if failure.route not in _ASKS and failure.route != _REPORTS:
            return InstanceVerdict(i.failed(failure.failure_class), failure=failure)
    open_of_failure = [q for q in state.questions.values() if _is_of_failure(q)]
    if open_of_failure and any(failure.route in _ASKS for failure, _ in failures):
        return _blocked(instance, open_of_failure)
    for failure, node in failures:
        if failure.route != _REPORTS:  # it asks, and there is nothing to ask
            return InstanceVerdict(i.failed(failure.failure_class), failure=failure)
        text = f"{node.title} could not be done: {failure.signature}."
        gaps.append(i.OpenQuestion(i.qualified(instance, node.node_id), text))
    if not failures and report.outcome != "finished":
        damage = f"its files are not what was registered: {'; '.join(report.damaged[:3])}"
        stuck = damage if report.damaged else "nothing may start, and nobody is asked"
        failure = _failure(card, "permanent-spec", stuck)
        return InstanceVerdict(i.failed(failure.failure_class), failure=failure)
    missing = [name for name in outputs if name not in proven]
    if missing and not gaps:
        failure = _failure(card, "permanent-spec", f"no node made {', '.join(missing)}")
        return InstanceVerdict(i.failed(failure.failure_class), failure=failure)
    for name in missing:
        text = f"Output {name} ({outputs[name]}) is missing."
        gaps.append(i.OpenQuestion(i.qualified(instance, name), text))
    status = i.WITH_GAPS if gaps else i.DONE
    return InstanceVerdict(status, tuple(gaps[: i.listed_max]), given_up=tuple(given_up))


def _blocked(instance: str, asked: list[Question]) -> InstanceVerdict:
    listed = tuple(_passed_on(instance, question) for question in asked[: i.listed_max])
    return InstanceVerdict(i.blocked(asked[0].question_id), listed)


def _passed_on(instance: str, question: Question) -> i.OpenQuestion:
    options = CONSENT if is_of_gate(question) else question.options
    package = question.package
    parts = [str(package.get(name) or "") for name in ("context", "consequences")]
    where = f"Asked by {i.qualified(instance, question.node or question.question_id)}."
    return i.OpenQuestion(
        i.qualified(instance, question.question_id),
        question.text,
        tuple(options),
        question.default,
        " ".join(part for part in (where, *parts) if part),
        tuple(question.files),
        question.to,
    )


def _is_of_failure(question: Question) -> bool:
    """Whether the runtime asked it because an attempt failed: then the card says what to do."""
    return question.kind in ("question", "escalation") and is_automatic(question)


def _failures(state: State, card: Card) -> list[tuple[i.Failure, Node]]:
    """What has failed for good, or waits for a way out, each with the route of its class."""
    found = []
    for name in unreplaced(state):
        node = state.nodes[name]
        spec_failed = node.failure_class == "permanent-spec" and not node.checks_failed
        event = "" if spec_failed else EVENTS[VERIFICATION_FAILED]
        failure_class = node.failure_class or "transient-agent"
        found.append((_failure(card, failure_class, _why(node), event), node))
    for question in state.questions.values():
        held = state.nodes.get(question.node or "")
        if held is None or held.state == "QUARANTINED" or not _is_of_failure(question):
            continue
        if held.state == "BLOCKED":
            reason = str((held.blocked or {}).get("reason") or question.text)
            found.append((_failure(card, "permanent-resource", f"{held.node_id}: {reason}"), held))
        else:
            found.append(
                (_failure(card, held.failure_class or "transient-agent", _why(held)), held)
            )
    return found


def _why(node: Node) -> str:
    return f"{node.node_id}: {node.diagnosis or 'it was given up'}"


def _failure(card: Card, failure_class: str, signature: str, event: str = "") -> i.Failure:
    """With the route of the event, where the card names that, else of the class."""
    route = card.route_for(event if event in card.escalation else failure_class)
    return i.Failure(failure_class, cut(signature, signature_chars_max), route)
