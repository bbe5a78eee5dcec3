"""How supervision says what it decided: for each row a reason, and what is to be done.

Job: the sentences of an ``Action``. Invariants: pure; a reason says what was seen and never more (a
suspected death is "may have died"); what is to be done never contains a destructive command; the
key ``about`` is the same for the same matter, and another for the next one.
"""

from typing import Final, NamedTuple

from perdure.core.model import Policies, text_digest
from perdure.core.supervision_at_hand import AtHand, about
from perdure.core.supervision_parts import BlockInForce, OpenQuestion
from perdure.core.supervision_records import Derived, Memory
from perdure.core.supervision_steps import describe
from perdure.core.views import cut

named_max: Final = 3
"""Steps, jobs or contradictions that a sentence names."""


class Said(NamedTuple):
    """What a row has to say."""

    reason: str
    next_action: str
    about: str = ""
    step: str = ""
    keys: tuple[str, ...] = ()


class Words:
    """The sentences about one look at a task."""

    def __init__(self, derived: Derived, policies: Policies, memory: Memory) -> None:
        self.derived = derived
        self.policies = policies
        self.memory = memory
        self._titles = {step.step: step.title for step in derived.workflow}
        self._refs = {step.step: step.ref for step in derived.workflow}

    def _step(self, name: str | None) -> str:
        """A step by id and title."""
        if not name:
            return "the task"
        title = self._titles.get(name, "")
        return f"{name} ({cut(title, 60)})" if title and title != name else name

    # Line 1

    def ended(self) -> Said:
        """Nothing more is expected."""
        derived = self.derived
        status = derived.status
        why = f"The task was ended as {status.lower()}."
        if status == "COMPLETED":
            why = f"Completion was observed ({derived.completed_ref}), and nothing contradicts it."
        elif derived.current_step is None and status == "ABANDONED":
            why = "Everything that was open has been cancelled."
        elif derived.current_step is None and derived.dead_ends:
            given_up = _listed(derived.dead_ends)
            why = f"Nothing is open, and {given_up} was given up without a successor."
        fix = {
            "FAILED": "Add a successor with `perdure add --successor-of` to go on, or let it rest.",
        }.get(status, "Nothing; supervision ends here.")
        return Said(why, fix, f"ended:{status}:{derived.completed_ref}")

    def escalated(self) -> Said:
        """A person knows, and nothing else can go on."""
        block = self.derived.blocks[0]
        return Said(
            f"Blocked at {self._step(block.node)}, which was escalated; nothing else can go on.",
            self._lift(block) + " Supervision ends until then.",
            f"escalated:{block.key}",
            block.node,
        )

    # Line 2

    def executor_fails(self) -> Said:
        """Too many errors in a row."""
        derived = self.derived
        return Said(
            f"{derived.errors} errors in a row at {self._step(derived.current_step)}, and no"
            " success since.",
            "Find out why before it is tried again; then beat with --ok, or block the step with"
            " the reason.",
            f"executor:{derived.streak}",
            derived.current_step or "",
        )

    def never_converges(self) -> Said:
        """Output is there and the end does not come."""
        derived = self.derived
        return Said(
            f"{len(derived.outputs)} usable output(s), {derived.errors} error(s) since, and no"
            f" success for {length(self._since_success())}.",
            "Finish with what is there (submit it, or report the completion), or say what is"
            " missing.",
            f"finalization:{derived.streak}",
            derived.current_step or "",
        )

    def _since_success(self) -> float | None:
        at = self.derived.last_success_at
        return None if at is None else self.derived.at - at

    def contradicted(self) -> Said:
        """What the journal says cannot all be true."""
        found = self.derived.inconsistencies
        more = f" There are {len(found) - named_max} more." if len(found) > named_max else ""
        return Said(
            " ".join(describe(one) for one in found[:named_max]) + more,
            "Look at what is really there, then record what is missing or wrong: `perdure observe`,"
            " `perdure submit` or `perdure reply` with the letter that fits.",
            f"truth:{text_digest(chr(10).join(found))}",
            self.derived.current_step or "",
        )

    def suspicious(self) -> Said:
        """A claim to wait outside that nothing backs."""
        jobs = self.derived.suspicious_external_jobs
        keys = [job.key for job in jobs]
        return Said(
            f"External job {_listed(keys)} is said to be pending, and nothing from the provider"
            " shows it.",
            "Ask the provider and record what it says: `perdure observe external` with a fact such"
            " as provider_job_id=ID or status_url=URL; or the state it really has.",
            f"suspicious:{text_digest(chr(10).join(keys))}",
            jobs[0].node if jobs else "",
        )

    def may_be_dead(self) -> Said:
        """The system itself says that an executor is gone."""
        gone = [n for n, said in self.derived.suspected.items() if said.kind == "process_gone"]
        matter = ",".join(f"{name}@{self._refs.get(name, '')}" for name in gone)
        more = f" So may {len(gone) - 1} more." if len(gone) > 1 else ""
        return Said(
            f"Whoever works on {self._step(gone[0])} may have died: {self._suspicion(gone[0])}."
            + more,
            "Look for the worker and its output; then `perdure resume` goes on from what is on"
            " disk, or `perdure reply` says how it stands.",
            f"gone:{text_digest(matter)}",
            gone[0],
        )

    def _suspicion(self, name: str) -> str:
        said = self.derived.suspected[name]
        return f"{said.observation} (policy: {said.policy})"

    # Line 3

    def retry_first(self, hand: AtHand) -> Said:
        """A blocker of a kind that often passes."""
        block = hand.blocks[0]
        return Said(
            f"{self._blocked_sentence(block)} {block.failure_type} is retried first: "
            f"{block.retries} of {self.policies.retries_max} retries so far.",
            "Look whether the reason still holds and try again: `perdure reply A` with what was"
            " done; or `perdure reply B` with a reason that no retry will mend.",
            about("retry", block),
            block.node,
        )

    def partial(self, hand: AtHand) -> Said:
        """Something usable is there, so the owner is asked before anybody is alarmed."""
        block = hand.blocks[0]
        return Said(
            f"{self._blocked_sentence(block)} {len(self.derived.outputs)} usable output(s) are"
            " there, so the owner is asked first how much of the result stands.",
            "Say how it stands: `perdure reply A` if it goes on, B if the blocker is real, C if"
            " what is there is all of it and the rest was cancelled.",
            about("partial", block),
            block.node,
        )

    def blocked(self, hand: AtHand) -> Said:
        """A person has to do something."""
        parts = [self._blocked_sentence(block) for block in hand.blocks[:named_max]]
        parts += [self._overdue(question) for question in hand.questions[:named_max]]
        if hand.blocks:
            fix = self._lift(hand.blocks[0])
        else:
            fix = "Rule on it: `perdure answer`, `perdure approve`, `perdure revise`, or say no."
        more = len(hand.keys) - len(parts)
        node = hand.blocks[0].node if hand.blocks else hand.questions[0].node
        return Said(
            " ".join(parts) + (f" There are {more} more." if more else ""),
            fix,
            f"blocked:{text_digest(chr(10).join(hand.keys))}",
            node,
            hand.keys,
        )

    def _blocked_sentence(self, block: BlockInForce) -> str:
        kind = f" ({block.failure_type})" if block.failure_type else ""
        return f"Blocked at {self._step(block.node)}{kind}: {cut(block.reason).rstrip('.')}."

    def _lift(self, block: BlockInForce) -> str:
        needs = f"Needed: {cut('; '.join(block.needs)).rstrip('.')}. " if block.needs else ""
        step = cut(block.safe_next_step).rstrip(".")
        return needs + (f"Safe next step: {step}." if step else "Then go on with the step.")

    def _overdue(self, question: OpenQuestion) -> str:
        return (
            f"Question {question.question} to the {question.to} about"
            f" {self._step(question.node)} is overdue ({cut(question.text)})."
        )

    # Line 4

    def in_vain(self) -> Said:
        """Nudges have not helped."""
        return Said(
            f"{self._silence()} {self.memory.nudges} nudge(s) have not changed that.",
            "Say how it stands: `perdure reply` A in progress, B blocked, C completed, D no answer,"
            " E not being done.",
            self._silence_key("reconcile"),
            self._concerned(),
        )

    def silent(self) -> Said:
        """Nothing has been heard for too long."""
        return Said(
            self._silence(),
            f"Go on with {self._step(self._concerned())} and record the progress, or say what keeps"
            " it with `perdure block`."
            if self._concerned()
            else "Plan the first step with `perdure add`, or report the completion with"
            " `perdure observe task-completed`.",
            self._silence_key("nudge"),
            self._concerned(),
        )

    def stale(self) -> Said:
        """Silence, but not the time to say so."""
        return Said(
            self._silence(),
            "Nothing yet; the owner is nudged once the silence is long enough, or long enough after"
            " it was last asked.",
            self._silence_key("stale"),
            self._concerned(),
        )

    def heartbeat(self) -> Said:
        """Progress is recent enough, a sign of life is not."""
        return Said(
            f"No sign of life for {length(self.derived.alive_s)}; progress is not stale yet.",
            "Send a heartbeat: `perdure beat`.",
            "heartbeat",
            self.derived.current_step or "",
        )

    def _concerned(self) -> str:
        """The step a nudge is about: one whose worker is silent, else where the task can go on."""
        derived = self.derived
        expired = [n for n, s in derived.suspected.items() if s.kind == "contract_expired"]
        if expired:
            return expired[0]
        blocked = {block.node for block in derived.blocks}
        if derived.current_step in blocked and derived.startable:
            return derived.startable[0]
        return derived.current_step or ""

    def _silence(self) -> str:
        derived = self.derived
        said = f"No progress for {length(derived.silence_s)}"
        if not derived.workflow:
            said += ", and no step has been planned."
        elif derived.current_step is None:
            said += "; every step is closed, and completion has not been observed."
        elif not derived.under_way and (derived.startable or not derived.blocks):
            said += f"; nothing is at work, and {self._step(self._concerned())} is next."
        else:
            said += f" at {self._step(derived.current_step)}."
        for name, suspicion in derived.suspected.items():
            if suspicion.kind == "contract_expired":
                said += f" {name} may have lost its worker: {self._suspicion(name)}."
                break
        return said

    def _silence_key(self, kind: str) -> str:
        at = self.derived.last_progress_at
        return f"{kind}:{'' if at is None else f'{at:.3f}'}"

    # Line 5

    def ok(self) -> Said:
        """Nothing to do."""
        derived = self.derived
        step = derived.current_step or ""
        if derived.suspended:
            return Said("The task is paused.", "`perdure resume` goes on with it.", "ok", step)
        if derived.waits_for_person:
            return self._waiting()
        if derived.waits_outside:
            return Said(
                f"Waiting for external job {_listed(derived.waits_outside)}, which the provider has"
                " confirmed.",
                "Record what the provider says when it changes: `perdure observe external`.",
                "ok",
                step,
            )
        return Said(
            f"The newest progress is {length(derived.silence_s)} old.", "Nothing.", "ok", step
        )

    def _waiting(self) -> Said:
        question = self.derived.questions[0]
        more = len(self.derived.questions) - 1
        return Said(
            f"Everything open waits for a person: question {question.question} to the"
            f" {question.to} about {self._step(question.node)}"
            + (f", and {more} more." if more else "."),
            f"Answer it: {cut(question.text)}",
            "ok",
            question.node,
        )


def _listed(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:named_max])
    return shown if len(names) <= named_max else f"{shown} and {len(names) - named_max} more"


def length(seconds: float | None) -> str:
    """A length of time as people say it; an unknown one has no measure."""
    if seconds is None:
        return "an unknown time"
    if seconds < 120:
        return f"{int(seconds)} s"
    return f"{int(seconds / 60)} min" if seconds < 7_200 else f"{int(seconds / 3_600)} h"
