"""What people and a run say to each other while it goes on: asked, answered, steered.

Job: put the questions of gates when they are due, let the fallback of one come in when its time is
over, see what people have settled and changed, and say so in the run's output. Invariants: it looks
only when the journal has grown or a time limit has passed; silence is never consent (a fallback
rejects, or changes nothing); it tells what is in the journal, with its ref, and decides nothing.
"""

from typing import Any

from perdure.control.endings import Emit
from perdure.core.events import Event
from perdure.core.gates import asks_consent, holds_work, is_overdue
from perdure.core.machine import count_states
from perdure.core.model import CLOSED_STATES
from perdure.core.people import Question, Steering
from perdure.runtime import gates
from perdure.runtime.eventlog import tail_events
from perdure.runtime.halt import HaltRuntime


class PeopleWatch:
    """The questions and instructions of one run."""

    def __init__(self, runtime: HaltRuntime, emit: Emit) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._clock = runtime.engine.world.clock
        self._emit = emit
        state = runtime.state
        self._asked_at = -1
        """Sequence number up to which due gates have been asked about."""
        self._told_at = state.seq
        self._open = dict(state.questions)
        self._steering = {name: s.acknowledged for name, s in state.steering.items()}
        self._goal_changes = state.goal_amendments
        self._overdue: set[str] = set()
        self._waited_for: tuple[str, ...] = ()
        self.halted = ""
        """``J-n`` by which people halted the whole task during this run; empty when nobody did."""

    def look(self, *, asking: bool) -> None:
        """Ask and answer what is due, when ``asking``, and tell what is new."""
        if asking:
            if self._runtime.state.seq != self._asked_at:
                gates.ask_due_gates(self._engine)
                self._asked_at = self._runtime.state.seq
            self._look_at_the_clock()
        if self._runtime.state.seq != self._told_at:
            self._tell()

    def _look_at_the_clock(self) -> None:
        now = self._clock.now()
        questions = self._runtime.state.questions
        overdue = {name for name, question in questions.items() if is_overdue(question, now)}
        new = overdue - self._overdue
        self._overdue = overdue
        if not new:
            return
        for name in sorted(new):
            self._emit({"event": "overdue", "question": name, "node": questions[name].node})
        gates.apply_fallbacks(self._engine)

    # Who is waited for

    def holding(self) -> dict[str, Question]:
        """The open questions that keep an open node from going on."""
        state = self._runtime.state
        return {
            name: question
            for name, question in state.questions.items()
            if holds_work(question)
            and question.node in state.nodes
            and state.nodes[question.node].state not in CLOSED_STATES
        }

    def tell_waiting(self) -> None:
        """Say once for which answers the run stays."""
        holding = self.holding()
        if tuple(holding) == self._waited_for:
            return
        self._waited_for = tuple(holding)
        texts = {name: question.text for name, question in holding.items()}
        kinds = {name: question.kind for name, question in holding.items()}
        consents = [name for name, question in holding.items() if asks_consent(question)]
        told: dict[str, Any] = {"event": "waiting", "questions": texts, "kinds": kinds}
        self._emit(told | ({"consents": consents} if consents else {}))

    # What is new

    def _tell(self) -> None:
        """Tell what has been asked, settled and steered since the last time."""
        state = self._runtime.state
        if state.goal_amendments != self._goal_changes:
            self._goal_changes = state.goal_amendments
            self._emit({"event": "goal_changed", "text": state.goal_statement})
        asked = [q for name, q in state.questions.items() if self._open.get(name) is not q]
        settled = [
            question
            for name, question in self._open.items()
            if name not in state.questions or state.questions[name].asked_ref != question.asked_ref
        ]
        steered = [
            (name, steering)
            for name, steering in state.steering.items()
            if self._steering.get(name) != steering.acknowledged
        ]
        if settled or steered:
            self._tell_ends(settled, steered)
        for question in asked:
            if self._is_new(question):
                self._tell_asked(question)
        self._told_at = state.seq
        self._open = dict(state.questions)

    def _is_new(self, question: Question) -> bool:
        known = self._open.get(question.question_id)
        return known is None or known.asked_ref != question.asked_ref

    def _tell_asked(self, question: Question) -> None:
        self._waited_for = ()
        self._emit(
            {
                "event": "asked",
                "question": question.question_id,
                "kind": question.kind,
                "to": question.to,
                "text": question.text,
                "ref": question.asked_ref,
                **({"consent": True} if asks_consent(question) else {}),
                **self._place(question),
            }
        )

    def _place(self, question: Question) -> dict[str, Any]:
        """The node that a question is about, where that stands now, and how far the task is."""
        state = self._runtime.state
        node = state.nodes.get(question.node or "")
        return {
            "node": question.node,
            "state": node.state if node is not None else None,
            "done": count_states(state).get("DONE", 0),
            "total": len(state.nodes),
        }

    def _tell_ends(self, settled: list[Question], steered: list[tuple[str, Steering]]) -> None:
        engine, state = self._engine, self._runtime.state
        events = {
            event.ref: event
            for event in tail_events(
                engine.disk, engine.layout.journal, engine.journal.tip, state.seq - self._told_at
            )
        }
        for question in settled:
            self._overdue.discard(question.question_id)
            ref = state.closed_questions.get(question.question_id, "")
            self._emit({**_settlement(question, events.get(ref), ref), **self._place(question)})
        for name, steering in steered:
            self._steering[name] = steering.acknowledged
            if not steering.acknowledged:
                continue
            if steering.reading == "halt" and not steering.targets:
                self.halted = steering.ref
            logged = events.get(steering.ref)
            self._emit(
                {
                    "event": "steered",
                    "steering": name,
                    "reading": steering.reading,
                    "source": steering.source,
                    "text": logged.payload.get("verbatim", "") if logged is not None else "",
                    "applied": dict(steering.applied),
                    "ref": steering.acknowledged,
                }
            )


def _settlement(question: Question, event: Event | None, ref: str) -> dict[str, Any]:
    """How a question came to its end, as far as one event tells."""
    told: dict[str, Any] = {
        "event": "answered",
        "question": question.question_id,
        "ruling": "",
        "by": "",
        "ref": ref,
    }
    if event is None:
        return told
    payload = event.payload
    told["by"] = event.actor
    if payload.get("op") == "answer":
        told["ruling"] = str(payload.get("ruling") or "answer")
        told["text"] = str(payload.get("answer") or payload.get("choice") or "")
        told["by_default"] = bool(payload.get("by_default"))
    elif payload.get("op") == "ask":
        told["ruling"] = "replaced"
    else:
        told["ruling"] = "settled"
    return told
