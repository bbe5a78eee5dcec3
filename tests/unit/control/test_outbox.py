"""The supervisor's file stays small, and what is cut from it is told in sum."""

import msgspec
import pytest

from perdure.control.delivery import backoff_s, message_of, retry_longest_s
from perdure.control.notify_channels import Message
from perdure.control.notify_config import MESSAGE_KINDS
from perdure.control.outbox import pending_left, pending_max, take_note, token_of
from perdure.core.model import State
from perdure.core.observed import Observed
from perdure.core.supervision import derive
from perdure.core.supervision_decide import _ACTS, decide_action
from perdure.core.supervision_records import (
    UPDATE_KINDS,
    Action,
    Derived,
    Facts,
    QueuedUpdate,
    ResumeRequest,
    SupervisionFile,
    Update,
    actions_kept_max,
    delivered_kept_max,
)

NOW = 1_800_000_000.0


def state_of(**observed: object) -> State:
    return State("T", created="x", observed=Observed(started_at=NOW, **observed))  # type: ignore[arg-type]


def looked(file: SupervisionFile, state: State, now: float) -> tuple[Derived, Action]:
    derived = derive(state, Facts(), now)
    return derived, decide_action(derived, state.policies, file.memory, now)


def note(file: SupervisionFile, state: State, now: float) -> Action:
    derived, action = looked(file, state, now)
    take_note(file, state, derived, action, now)
    return action


def step(number: int) -> Update:
    return Update(f"T:STEP_COMPLETED:N{number}", "STEP_COMPLETED", "done", f"N{number}", "J-1")


def test_the_same_look_at_the_same_file_gives_the_same_file() -> None:
    files = [SupervisionFile("T"), SupervisionFile("T")]
    for file in files:
        note(file, state_of(), NOW + 3_000)
    first, second = map(msgspec.json.encode, files)
    assert first == second
    assert msgspec.json.decode(first, type=SupervisionFile) == files[0]


def test_a_token_names_task_step_action_and_second() -> None:
    assert token_of("T", "N1", "OWNER_RECONCILE", NOW) == "T:N1:OWNER_RECONCILE:20270115T080000Z"
    assert token_of("T", "", "OWNER_RECONCILE", NOW + 0.9) == token_of(
        "T", "", "OWNER_RECONCILE", NOW
    )
    assert token_of("T", "", "X", NOW).startswith("T:task:X:")


def test_the_log_has_what_changed_and_what_was_sent_and_is_bounded() -> None:
    file = SupervisionFile("T")
    for minute in range(5):
        note(file, state_of(), NOW + minute * 10)
    assert [entry.state for entry in file.actions] == ["OK"]
    for number in range(1, actions_kept_max + 50):
        note(file, state_of(), NOW + number * 1_900)
    assert len(file.actions) == actions_kept_max
    assert file.actions[-1].at > file.actions[0].at


def test_closed_requests_are_forgotten_first() -> None:
    file = SupervisionFile("T")
    file.requests = [
        ResumeRequest(
            f"t{n}", "OWNER_RECONCILE", "", "why", NOW, "matter", outcome="A" if n else ""
        )
        for n in range(delivered_kept_max + 10)
    ]
    file.requests[0].about = ""  # what is looked at now is not about it, and nothing went on
    file.memory = msgspec.structs.replace(file.memory, nudged_at=NOW + 2_000, nudges=1)
    note(file, state_of(), NOW + 2_100)
    assert len(file.requests) == delivered_kept_max
    assert file.requests[0].token == "t0"


def test_an_answer_whose_reply_is_not_the_newest_counts_as_well() -> None:
    file = SupervisionFile("T")
    file.requests = [ResumeRequest("t0", "OWNER_RECONCILE", "", "why", NOW)]
    note(file, state_of(acknowledged_tokens=("t0", "t1")), NOW + 60)
    assert (file.requests[0].acknowledged, file.requests[0].outcome) == (NOW + 60, "answered")


def test_too_many_updates_about_steps_are_told_in_one() -> None:
    file = SupervisionFile("T")
    queued = [QueuedUpdate(step(n), NOW + n) for n in range(pending_max + 1)]
    for one in queued[:500]:
        one.delivered = {"desktop": NOW, "terminal": NOW}
    for one in queued[500:]:
        one.delivered = {"desktop": NOW}
    kept = QueuedUpdate(Update("T:COMPLETED_HANDOFF:J-9", "COMPLETED_HANDOFF", "over"), NOW)
    file.pending = {kept.update.update_id: kept} | {q.update.update_id: q for q in queued}
    note(file, state_of(), NOW + 2_000)
    assert len(file.pending) == pending_left + 2
    folded = next(iter(file.pending.values()))
    count = pending_max + 1 - pending_left
    assert folded.update.details["count"] == count
    assert folded.update.text.startswith(f"{count} steps have been completed")
    assert folded.delivered == {"desktop": NOW}  # the terminal has not heard of all of them
    assert kept.update.update_id in file.pending
    more = [QueuedUpdate(step(n), NOW + n) for n in range(2_000, 2_000 + pending_max)]
    file.pending |= {q.update.update_id: q for q in more}
    note(file, state_of(), NOW + 3_000)
    folded = next(iter(file.pending.values()))
    assert folded.update.details["count"] == 2 * pending_max + 1 - pending_left


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 30), (2, 60), (3, 120), (8, 3_600), (10_000, 3_600)]
)
def test_attempts_come_less_and_less_often(attempts: int, seconds: float) -> None:
    assert backoff_s(attempts) == seconds <= retry_longest_s


def test_every_kind_of_message_can_be_asked_for_and_has_a_title() -> None:
    to_owner = {state for state, (_, to) in _ACTS.items() if to == "owner"}
    assert set(MESSAGE_KINDS) == to_owner | set(UPDATE_KINDS)
    for kind in MESSAGE_KINDS:
        asked = QueuedUpdate(Update("T:1", kind, "text"), NOW)  # type: ignore[arg-type]
        assert kind not in message_of("T", "/w", asked).title


def test_a_message_is_plain_data() -> None:
    message = Message("1", "owner", "X", "T", "/w", "t", "x", "now")
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
