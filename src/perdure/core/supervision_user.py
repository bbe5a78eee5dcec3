"""What a person who waits for the result is told: the outcome first, the machinery last.

Job: ``tell``. Invariants: pure; the headline speaks of the result and of what the person can do,
never of supervision; whatever is claimed, contradicted, failed or suspected stands in the notes, so
that nothing is hidden for being no headline; texts of others are cut to a line, never interpreted.
"""

from typing import Final

from perdure.core.model import DEAD_STATES, Policies
from perdure.core.supervision_parts import Outcome, UserFacing, steps_shown_max
from perdure.core.supervision_records import Derived
from perdure.core.supervision_steps import describe
from perdure.core.views import cut

notes_max: Final = 50
"""Honesty notes that are shown; the last one then says how many there are besides."""


def tell(derived: Derived, policies: Policies) -> UserFacing:
    """The outcome, one sentence about it, and what stands behind it."""
    done = [step for step in derived.workflow if step.state == "DONE"]
    dead_ends = set(derived.dead_ends)
    remaining = [step for step in derived.workflow if step.open or step.step in dead_ends]
    outcome = _outcome(derived, policies)
    return UserFacing(
        outcome,
        _HEADLINES[outcome](derived, len(done)),
        derived.outputs,
        tuple(done[:steps_shown_max]),
        len(done),
        tuple(remaining[:steps_shown_max]),
        len(remaining),
        _notes(derived),
    )


def _outcome(derived: Derived, policies: Policies) -> Outcome:
    status = derived.status
    if status == "COMPLETED" and derived.truth_state == "CONSISTENT":
        return "SUCCESS"
    if status == "RUNNING" and not broke_off(derived, policies):
        return "IN_PROGRESS"
    if derived.outputs:
        return "PARTIAL_SUCCESS"
    if status == "BLOCKED":
        return "BLOCKED"
    return "FAILED" if status in ("FAILED", "ABANDONED") else "IN_PROGRESS"


def broke_off(derived: Derived, policies: Policies) -> bool:
    """Whether work that nobody has ended came to a stop: silence that nothing explains."""
    explained = derived.waits_outside or derived.waits_for_person or derived.suspended
    silent = derived.silence_s is None or derived.silence_s >= policies.idle_after_s
    return silent and not explained


# Headlines


def _counted(derived: Derived, done: int) -> str:
    return f"{done} of {_things(len(derived.workflow), 'step')} done"


def _things(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _files(derived: Derived) -> str:
    count = len(derived.outputs)
    return f"{_things(count, 'file')} {_is(count)} there to use"


def _success(derived: Derived, done: int) -> str:
    said = cut(derived.completion_summary)
    files = f"; {_files(derived)}" if derived.outputs else ""
    dropped = sum(step.state in DEAD_STATES for step in derived.workflow)
    given_up = f", {dropped} {'was' if dropped == 1 else 'were'} given up" if dropped else ""
    counted = f"{_counted(derived, done)}{given_up}" if derived.workflow else "the task is complete"
    return f"Finished: {said or counted}{files}."


def _partial(derived: Derived, done: int) -> str:
    why = {
        "COMPLETED": "whether that is all of it is being cleared up",
        "BLOCKED": f"the rest is blocked: {_why_blocked(derived)}",
        "FAILED": f"the rest cannot be done as planned ({', '.join(derived.dead_ends[:3])})",
        "ABANDONED": "the rest was cancelled",
    }.get(derived.status, "the rest has come to a stop and is being looked into")
    return f"Partly finished: {_files(derived)}, {_counted(derived, done)}; {why}."


def _why_blocked(derived: Derived) -> str:
    if not derived.blocks:
        return "no reason is known"
    block = derived.blocks[0]
    needs = f", which needs {cut('; '.join(block.needs))}" if block.needs else ""
    return f"{cut(block.reason).rstrip('.')}{needs}"


def _blocked(derived: Derived, done: int) -> str:
    return f"Blocked: {_why_blocked(derived)}. {_counted(derived, done)}."


def _failed(derived: Derived, done: int) -> str:
    if derived.status == "ABANDONED":
        return f"Cancelled: {_counted(derived, done)} and no file is there to use."
    named = ", ".join(derived.dead_ends[:3])
    return f"Failed: {named or 'the task'} was given up and nothing has taken its place."


def _in_progress(derived: Derived, done: int) -> str:
    counted = _counted(derived, done) if derived.workflow else "no step has been planned yet"
    if derived.status == "COMPLETED":
        return f"Completion was reported and is being cleared up: {counted}."
    if not derived.workflow:
        return f"In progress: {counted}."
    return f"In progress: {counted}; {_now(derived)}."


def _now(derived: Derived) -> str:
    """What the task is at, or waits for."""
    titles = {step.step: step.title for step in derived.workflow}
    if derived.suspended:
        return "it is paused"
    if derived.waits_for_person:
        question = derived.questions[0]
        return f"it waits for an answer to {question.question} ({cut(question.text)})"
    if derived.under_way:
        at = derived.under_way[0]
        more = len(derived.under_way) - 1
        return f"at work on {cut(titles[at], 80)}" + (f" and {more} more" if more else "")
    if derived.waits_outside:
        return f"it waits for external job {derived.waits_outside[0]}"
    if derived.current_step is not None:
        return f"next is {cut(titles[derived.current_step], 80)}"
    return "what is left is to confirm that this is all"


_HEADLINES: Final = {
    "SUCCESS": _success,
    "PARTIAL_SUCCESS": _partial,
    "BLOCKED": _blocked,
    "FAILED": _failed,
    "IN_PROGRESS": _in_progress,
}


# Honesty notes


def _notes(derived: Derived) -> tuple[str, ...]:
    notes = [describe(found) for found in derived.inconsistencies]
    notes += [
        f"{step.step} was reported complete and has not been verified."
        for step in derived.workflow
        if step.state == "COMPLETED"
    ]
    open_outputs = sum(not output.verified for output in derived.outputs)
    if open_outputs:
        notes.append(f"Of the files there, {open_outputs} {_is(open_outputs)} not verified.")
    notes += [_blocker_note(derived)] if derived.blocks and derived.status != "BLOCKED" else []
    notes += [f"External job {key} failed." for key in derived.external_failures]
    notes += [
        f"Whoever works on {name} may have died: {said.observation} ({said.policy})."
        for name, said in derived.suspected.items()
    ]
    if derived.errors:
        notes.append(f"{_things(derived.errors, 'error')} in a row, with no success since.")
    notes += [
        f"Question {question.question} about {question.node} is overdue; that is no consent."
        for question in derived.questions
        if question.overdue
    ]
    if len(notes) > notes_max:
        notes = [*notes[: notes_max - 1], f"There are {len(notes) - notes_max + 1} more."]
    return tuple(notes)


def _blocker_note(derived: Derived) -> str:
    block = derived.blocks[0]
    return f"{block.node or 'The task'} is blocked: {cut(block.reason).rstrip('.')}."
