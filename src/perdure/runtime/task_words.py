"""What is said to a task and what it asks: the calls that put words on record.

Job: notes, decisions, steering, observations, questions and the rulings on them, for a program.
Invariants: a text is in the journal, word for word, when its call returns; a ruling is that of a
person (``by``), and binds to what was there when it was given (GA-3).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.core import commands as c
from perdure.core.events import Event
from perdure.core.late import LateModule
from perdure.runtime.batching import Committed
from perdure.runtime.eventlog import tail_events
from perdure.runtime.task_view import TaskView

_rulings = LateModule("perdure.runtime.rulings")
_steering = LateModule("perdure.runtime.steering")
_calls_on_steering = LateModule("perdure.runtime.calls_on_steering")


class TaskWords(TaskView):
    """The speaking part of :class:`~perdure.runtime.halt.HaltRuntime`."""

    def note(self, text: str, *, op: str | None = None) -> Event:
        """Journal a NOTE."""
        return self._event(self.engine.execute(c.WriteNote(text), op=op))

    def decision(self, decision_id: str, text: str, *, op: str | None = None) -> Event:
        """Journal a DECISION; an empty id is numbered."""
        return self._event(self.engine.execute(c.RecordDecision(decision_id, text), op=op))

    def steering(
        self,
        steering_id: str,
        text: str,
        *,
        reading: str = "",
        nodes: Iterable[str] = (),
        changes: Mapping[str, Any] | None = None,
        revokes: Iterable[str] = (),
        source: str = "",
        restated: bool = False,
        op: str | None = None,
    ) -> Event:
        """Journal an instruction verbatim, then propagate it (S1 to S4); returns the first event.

        ``reading`` is ``clarification``, ``question``, ``amendment`` or ``halt``; none is an
        amendment, which the sponsor is asked about (ST-1). It concerns these nodes, or everything
        that is open: what is at work there is recalled, what is done gets a corrective node. The
        same id again is the same instruction. A crash in between leaves it on record, and the next
        opening propagates it.
        """
        targets = tuple(nodes)
        with self.engine.writing():
            command = c.LogSteering(
                steering_id,
                text,
                source,
                "call",
                "re-stated" if restated else "original",
                reading,
                targets,
                _calls_on_steering.plain_changes(self.state, targets, changes or {}),
                tuple(revokes),
            )
            return self._event(_steering.steer(self.engine, command, op=op), "STEERING_LOGGED")

    def set_hint(self, text: str) -> Event:
        """Leave the next one a line that every brief shows."""
        return self._event(self.engine.execute(c.WriteNote(text, "hint")))

    def append(
        self,
        kind: str,
        entity: Mapping[str, str],
        payload: Mapping[str, Any],
        evidence: Iterable[str] = (),
    ) -> Event:
        """Journal an event of a kind that has no call of its own: an observation."""
        command = c.AppendRaw(
            kind,
            str(entity.get("type", "task")),
            str(entity.get("id", self.state.task_id)),
            dict(payload),
            tuple(evidence),
        )
        return self._event(self.engine.execute(command))

    # Questions

    def ask(
        self,
        text: str,
        node_id: str | None = None,
        *,
        options: Iterable[str] = (),
        default: str = "",
        to: str = "gatekeeper",
        context: str = "",
        consequences: str = "",
        links: Iterable[str] = (),
        keep_working: bool = False,
        timeout_s: float | None = None,
        question_id: str = "",
        op: str | None = None,
    ) -> Event:
        """Journal a question to a person (H2). With a node, that node waits for the answer.

        A node at work is BLOCKED in the same commit, unless ``keep_working``. A time limit never
        answers: it only shows the question as overdue. Returns the DECISION event; its payload has
        the ``question_id``.
        """
        command = c.AskQuestion(
            text,
            question_id,
            node_id,
            tuple(options),
            default,
            to,
            context,
            consequences,
            tuple(links),
            keep_working,
            timeout_s,
        )
        return self._event(self.engine.execute(command, op=op), "DECISION")

    def answer(
        self,
        question_id: str,
        text: str,
        *,
        choice: str = "",
        method: str = "",
        by: str = "",
        op: str | None = None,
    ) -> Event:
        """A person answers a question; what waited for it alone goes on (N09).

        ``by`` is who rules, as ``role:id``; else the actor of this object. A closed question is
        refused with the event that settled it.
        """
        given = {"text": text, "choice": choice, "method": method}
        return self._ruled(question_id, "answer", by, op, given)

    def approve(
        self, question_id: str, text: str = "", *, by: str = "", op: str | None = None
    ) -> Event:
        """A person consents to what is there now, and to nothing else (GA-3).

        Content that has changed since the question is refused (``content_changed``), and asked
        about anew. A node that waited in VERIFYING is verified and moves on in the same commit.
        """
        return self._ruled(question_id, "approve", by, op, {"text": text})

    def revise(
        self,
        question_id: str,
        text: str,
        *,
        changes: Mapping[str, Any] | None = None,
        by: str = "",
        op: str | None = None,
    ) -> Event:
        """A person wants it otherwise; ``changes`` are fields of the spec, as in ``add_node``.

        Finished work is done again (N07, and N12 where its spec changes); what has not started
        stays where it is. After as many refusals as the gate allows it escalates (VR-3).
        """
        given = {"text": text, "changes": dict(changes or {})}
        return self._ruled(question_id, "revise", by, op, given)

    def reject(
        self, question_id: str, reason: str, *, by: str = "", op: str | None = None
    ) -> Event:
        """A person refuses it: finished work is done again (N07).

        A start stays closed, and is not asked about again while its content is the same.
        """
        return self._ruled(question_id, "reject", by, op, {"text": reason})

    def _ruled(
        self, question_id: str, ruling: str, by: str, op: str | None, given: Mapping[str, Any]
    ) -> Event:
        with self.engine.acting_as(by or self.engine.actor):
            committed = _rulings.rule(self.engine, question_id, ruling, given, op=op).committed
        seq, tip = int(committed.ref.removeprefix("J-")), self.engine.journal.tip
        if seq > tip.seq:  # of a batch that is still to be committed
            ruled: Event = committed.events[0]
            return ruled
        path = self.engine.layout.journal
        return tail_events(self.engine.disk, path, tip, tip.seq - seq + 1)[0]

    # What a call answers with

    def _event(self, committed: Committed, kind: str = "", entity_id: str = "") -> Event:
        """The last event of a commit about this, or the one that had already said the same."""
        for event in reversed(committed.events):
            if kind in ("", event.kind) and entity_id in ("", event.entity.id):
                return event
        return self.events()[int(committed.ref.removeprefix("J-")) - 1]
