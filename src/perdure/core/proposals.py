"""What a task has taught that others could use: proposals for the memory store (MB-2).

Job: read from the state what generalizes, each with its evidence: methods that worked where another
had failed, what work ran into, what people sent back or asked of all of it, policies that had to be
changed, work that was given up. Invariants: pure and deterministic; every proposal cites events of
this task, so that none is a draft; a statement says what was so, never what to do, and never how
far the task has come; it proposes only, nobody is bound to take it.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from perdure.core.model import Node, State
from perdure.core.views import cut

proposals_max: Final = 40
_SAID_CHARS: Final = 300
_WISHES: Final = ("clarification", "amendment")
"""Readings of an instruction that say how something is wanted."""


class Proposal(NamedTuple):
    """One entry that could be added, as ``perdure memory add`` takes it."""

    id: str
    kind: str
    scope: str
    statement: str
    evidence: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """As the journal has it."""
        return {**self._asdict(), "evidence": list(self.evidence)}


def propose(state: State, scope: str) -> tuple[Proposal, ...]:
    """What this task has to say to others, the most telling kinds first, at most
    ``proposals_max``. ``scope`` is that of every proposal, such as ``project:NAME``."""
    found = [
        *_of_methods(state),
        *_of_quarantine(state),
        *_of_failures(state),
        *_of_rulings(state),
        *_of_steering(state),
        *_of_policies(state),
    ]
    seen: dict[str, tuple[str, tuple[str, ...]]] = {}
    for kind, statement, evidence in found:
        refs = tuple(f"{state.task_id}#{ref}" for ref in evidence if ref)
        if refs:
            seen.setdefault(statement, (kind, refs))
    return tuple(
        Proposal(f"P-{number}", kind, scope, statement, refs)
        for number, (statement, (kind, refs)) in enumerate(list(seen.items())[:proposals_max], 1)
    )


_Found = Iterator[tuple[str, str, tuple[str, ...]]]


def _what(node: Node) -> str:
    """The kind of work, in the words of its title."""
    return f"work of the kind {cut(node.title, 120)!r}"


def _at_start(node: Node) -> str:
    return f"W{_what(node)[1:]}"


def _of_methods(state: State) -> _Found:
    """Another method came through where one was out of strikes."""
    for node in state.nodes.values():
        tried = node.strikes_by_method.items()
        failed = [method for method, strikes in tried if strikes and method != node.method]
        if node.state == "DONE" and failed:
            statement = (
                f"The method {node.method!r} came through for {_what(node)} after"
                f" {', '.join(map(repr, failed))} had failed."
            )
            refs = (node.state_ref or "", *(failure.ref for failure in node.failures))
            yield "method", statement, refs


def _of_quarantine(state: State) -> _Found:
    """Work that was given up, and why."""
    for node in state.nodes.values():
        if node.state == "QUARANTINED":
            why = cut(node.diagnosis, _SAID_CHARS) or "no reason is on record"
            after = f"; {', '.join(node.successors)} took its place" if node.successors else ""
            yield (
                "postmortem",
                f"{_at_start(node)} was given up: {why}{after}.",
                (node.state_ref or "",),
            )


def _of_failures(state: State) -> _Found:
    """What work ran into more than once, or across nodes."""
    met: dict[str, list[tuple[Node, str]]] = {}
    for node in state.nodes.values():
        for failure in node.failures:
            said = f"{failure.failure_class}: {cut(failure.signature, _SAID_CHARS)}"
            met.setdefault(said, []).append((node, failure.ref))
    for said, cases in met.items():
        if len(cases) < 2:
            continue
        nodes = {node.node_id for node, _ in cases}
        where = _what(cases[0][0]) if len(nodes) == 1 else f"{len(nodes)} nodes"
        statement = f"{len(cases)} attempts at {where} failed alike, {said}."
        yield "pitfall", statement, tuple(ref for _, ref in cases[:5])


def _of_rulings(state: State) -> _Found:
    """What people sent back: their preferences, as they showed."""
    for node in state.nodes.values():
        for gate, rounds in node.rounds.items():
            approval = node.approvals.get(gate)
            if rounds and approval is not None:
                again = "once" if rounds == 1 else f"{rounds} times"
                statement = (
                    f"{_at_start(node)} was sent back {again} at the gate {gate} before"
                    " it was approved."
                )
                yield "preference", statement, (approval.ref, node.state_ref or "")


def _of_steering(state: State) -> _Found:
    """What people asked of all work at once: how they want things, beyond one node."""
    for said in state.steering.values():
        whole = said.reading in _WISHES and not said.targets and said.acknowledged
        if whole and not said.same_as:
            wish = f"{said.source} wanted of all work of one task: {cut(said.text, _SAID_CHARS)!r}."
            yield "preference", wish, (said.ref, said.acknowledged)


def _of_policies(state: State) -> _Found:
    """Numbers that had to be others here."""
    for name, change in state.policy_reasons.items():
        window = f", measured over {change.get('window')}" if change.get("window") else ""
        statement = (
            f"The policy {name} was {change.get('value')} here instead of its default, because"
            f" {cut(str(change.get('reason') or 'nobody said why'), _SAID_CHARS)}{window}."
        )
        yield "env", statement, (str(change.get("ref") or ""),)
