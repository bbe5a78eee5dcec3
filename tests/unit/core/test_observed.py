"""What observations fold into, which commands write them, and which are refused."""

from typing import Any

import pytest
from tests.unit.core.story import ME, Story, replay

from perdure.core import commands as c
from perdure.core import fold_observed
from perdure.core import observed_commands as o
from perdure.core.events import Draft, Event
from perdure.core.model import Executor
from perdure.core.observed import (
    DOWNLOAD_STATUSES,
    EXTERNAL_STATES,
    FAILURE_TYPES,
    ExternalJob,
    Observed,
    StepObserved,
    fact_chars_max,
    facts_kept_max,
    tokens_kept_max,
)
from perdure.errors import EvidenceError, HaltError, NotFoundError, TransitionError, UsageError

WORKER = Executor("executor:x", "session")


def at_work(*names: str) -> Story:
    story = Story()
    for name in names or ("N1",):
        story.bring_to(name, "RUNNING")
    return story


def observed(story: Story) -> Observed:
    return story.replica.state.observed


def step(story: Story, name: str = "N1") -> StepObserved:
    return observed(story).steps[name]


def say(
    story: Story, kind: str, name: str = "N1", about: str = "node", **payload: Any
) -> list[Event]:
    """Commit an observation as it is, past every decision."""
    return story.commit(Draft(kind, about, name, payload))


def see(story: Story, kind: str, name: str = "N1", about: str = "node", **more: Any) -> list[Event]:
    """Observe something by command."""
    given_ = {key: more.pop(key) for key in ("summary", "facts", "claim") if key in more}
    return story.do(o.Observe(kind, about, name, payload=more, **given_))


def block(story: Story, name: str = "N1", **more: Any) -> list[Event]:
    said = {"reason": "no key", "needs": ("a key",), "safe_next_step": "keep the pages", **more}
    return story.do(o.ConfirmBlock(name, **said))


def reply(story: Story, letter: str, **more: Any) -> list[Event]:
    return story.do(o.RecordReply(letter, **more))


def refusal(story: Story, command: c.Command) -> HaltError:
    before = story.snapshot()
    with pytest.raises(HaltError) as caught:
        story.do(command)
    assert story.snapshot() == before
    assert caught.value.fix
    return caught.value


def shape(events: list[Event]) -> list[str]:
    """Kinds and edges, with what they are about."""
    return [f"{e.payload.get('edge') or e.kind} {e.entity.id}" for e in events]


# Progress signals


def test_the_idle_clock_begins_with_the_task() -> None:
    story = Story()
    found = observed(story)
    assert found.started_at == found.progress_at == story.now
    assert found.progress_ref == "J-1"


def test_steps_forward_and_artifacts_are_progress_and_words_are_not() -> None:
    story = Story()
    for number, (forward, act) in enumerate(
        [
            (False, lambda: story.add("N1")),
            (True, lambda: story.start("N1")),
            (False, lambda: story.do(c.WriteNote("x"))),
            (False, lambda: story.do(c.Beat(("N1",)))),
            (True, lambda: story.register("N1", "A-1")),
            (True, lambda: story.claim("N1")),
            (False, lambda: story.do(c.RecordDecision("", "x"))),
            (True, lambda: story.conclude("N1")),
        ]
    ):
        before = observed(story).progress_ref
        act()
        found = observed(story)
        assert (found.progress_ref != before) is forward, number
        assert not forward or found.progress_at == story.now
    assert found.progress_ref == f"J-{story.replica.state.seq}"


def test_the_newest_signal_is_the_last_one_also_when_the_clock_was_set_back() -> None:
    story = at_work()
    story.now -= 3_600
    see(story, "STEP_PROGRESS")
    assert observed(story).progress_at == story.now


def test_a_signal_without_a_readable_time_leaves_the_time_and_moves_the_place() -> None:
    story = at_work()
    before = observed(story).progress_at
    event = Event(99, "yesterday", "a:b", "STEP_PROGRESS")
    fold_observed.OBSERVATIONS["STEP_PROGRESS"](story.replica.state, event, {})
    assert (observed(story).progress_at, observed(story).progress_ref) == (before, "J-99")


def test_a_repair_is_no_progress() -> None:
    story = Story()
    story.bring_to("N1", "DONE")
    see(story, "STEP_COMPLETED")
    before = observed(story).progress_ref
    move = {"from": "DONE", "to": "READY", "edge": "RC1", "finding": "gone"}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", move))
    assert observed(story).progress_ref == before
    assert observed(story).steps == {}


# Steps


def test_progress_sets_a_step_running_and_gathers_facts() -> None:
    story = at_work()
    see(story, "STEP_PROGRESS", summary="page 1", facts={"pages": "1", "speed": "low"})
    see(story, "STEP_PROGRESS", summary="page 2", facts={"pages": "2"})
    found = step(story)
    assert (found.state, found.progress_at, found.summary) == ("RUNNING", story.now, "page 2")
    assert found.facts == {"speed": "low", "pages": "2"}


def test_progress_is_accepted_in_any_state_and_moves_no_node() -> None:
    for state in ("PENDING", "READY", "VERIFYING", "RETRYABLE", "BLOCKED", "CANCELLED"):
        story = Story()
        story.bring_to("N1", state)
        assert shape(see(story, "STEP_PROGRESS")) == ["STEP_PROGRESS N1"]
        assert (step(story).state, story.state_of("N1")) == ("RUNNING", state)


def test_progress_of_the_task_is_a_signal_and_nobodys_step() -> None:
    story = at_work()
    (event,) = see(story, "STEP_PROGRESS", "T1", "task")
    assert (observed(story).progress_ref, observed(story).steps) == (event.ref, {})


def test_completion_is_observed_and_is_not_done() -> None:
    story = at_work()
    (event,) = see(story, "STEP_COMPLETED", summary="all", facts={"pages": "200"})
    found = step(story)
    assert (found.state, found.completed_at) == ("COMPLETED", story.now)
    assert (found.completed_ref, found.facts) == (event.ref, {"pages": "200"})
    assert story.state_of("N1") == "RUNNING"


def test_progress_after_completion_is_kept_beside_it_until_completion_is_seen_again() -> None:
    story = at_work()
    see(story, "STEP_COMPLETED")
    (late,) = see(story, "STEP_PROGRESS")
    assert (step(story).state, step(story).progress_after_completion) == ("COMPLETED", late.ref)
    see(story, "STEP_COMPLETED")
    assert step(story).progress_after_completion == ""


def test_progress_on_a_step_that_is_done_is_progress_after_completion() -> None:
    story = Story()
    story.bring_to("N1", "DONE")
    (late,) = see(story, "STEP_PROGRESS")
    found = step(story)
    assert (found.state, found.completed_ref) == ("COMPLETED", story.node("N1").state_ref)
    assert found.progress_after_completion == late.ref


def test_a_verdict_is_a_newer_word_than_what_was_observed_before() -> None:
    story = Story()
    story.bring_to("N1", "VERIFYING")
    see(story, "STEP_COMPLETED")
    see(story, "STEP_PROGRESS")
    done = story.conclude("N1")
    found = step(story)
    assert (found.state, found.completed_ref) == ("COMPLETED", done[0].ref)
    assert found.progress_after_completion == ""


@pytest.mark.parametrize("way", ["fail", "not passed", "cancel"])
def test_what_was_observed_of_an_attempt_ends_with_it(way: str) -> None:
    story = Story()
    story.bring_to("N1", "VERIFYING" if way == "not passed" else "RUNNING")
    see(story, "STEP_COMPLETED")
    if way == "fail":
        story.fail("N1")
    elif way == "cancel":
        story.do(c.CancelNodes(("N1",), "not wanted"))
    else:
        story.conclude("N1", passed=False)
    assert observed(story).steps == {}
    if way == "fail":
        story.start("N1")
        see(story, "STEP_PROGRESS")
        assert step(story).progress_after_completion == ""


def test_the_task_is_completed_until_the_owner_is_at_it_again() -> None:
    story = at_work()
    (event,) = see(story, "TASK_COMPLETED", "T1", "task", summary="all of it")
    found = observed(story)
    assert (found.task_completed, found.completion_summary) == (event.ref, "all of it")
    reply(story, "A")
    found = observed(story)
    assert (found.task_completed, found.completion_summary) == ("", "")


def test_a_completion_claim_takes_the_node_along_and_cites_the_observation() -> None:
    story = at_work()
    story.register("N1", "A-1")
    seen, moved = see(story, "STEP_COMPLETED", claim=True)
    assert (moved.payload["edge"], moved.payload["report"]) == ("N03", seen.ref)
    assert moved.evidence == [seen.ref, "A-1"]
    assert story.state_of("N1") == "VERIFYING"


def test_a_claim_is_refused_where_n03_is() -> None:
    story = Story(allowed=("N2",))
    story.bring_to("N1", "READY")
    claim = o.Observe("STEP_COMPLETED", "node", "N1", claim=True)
    assert isinstance(refusal(story, claim), TransitionError)
    story.add("N2", effect="S3")
    story.start("N2")
    claim = o.Observe("STEP_COMPLETED", "node", "N2", claim=True)
    assert isinstance(refusal(story, claim), EvidenceError)


# Blocks


def test_a_block_stops_what_is_at_work_until_the_owner_resumes() -> None:
    story = at_work()
    events = block(story, failure_type="auth-required", facts={"status": "401"})
    assert shape(events) == ["BLOCKED_CONFIRMED N1", "N05 N1"]
    assert events[1].payload["wake"] == "the owner resumes"
    assert events[1].payload["block"] == events[1].evidence[0] == events[0].ref
    found = observed(story).blocks["N1"]
    assert (found.ref, found.at, found.reason) == (events[0].ref, story.now, "no key")
    assert (found.needs, found.safe_next_step) == (("a key",), "keep the pages")
    assert found.failure_type == "AUTH_REQUIRED"
    assert (story.state_of("N1"), step(story).state) == ("BLOCKED", "BLOCKED")
    assert story.replica.state.contracts == {}


def test_a_block_of_what_is_not_at_work_is_on_record_and_moves_nothing() -> None:
    for state in ("PENDING", "READY", "RETRYABLE", "VERIFYING", "DONE", "BLOCKED"):
        story = Story()
        story.bring_to("N1", state)
        assert shape(block(story)) == ["BLOCKED_CONFIRMED N1"]
        assert (story.state_of("N1"), [*observed(story).blocks]) == (state, ["N1"])


def test_a_block_of_the_task_is_nobodys_step() -> None:
    story = at_work()
    assert shape(block(story, "")) == ["BLOCKED_CONFIRMED T1"]
    assert ([*observed(story).blocks], observed(story).steps) == ([""], {})
    assert story.state_of("N1") == "RUNNING"


def test_a_block_answers_the_request_whose_token_it_carries() -> None:
    story = at_work()
    block(story, resume_token="RT-1")
    assert observed(story).acknowledged_tokens == ("RT-1",)


def test_what_is_completed_and_blocked_stays_both() -> None:
    story = at_work()
    see(story, "STEP_COMPLETED")
    block(story)
    assert (step(story).state, [*observed(story).blocks]) == ("COMPLETED", ["N1"])
    see(story, "TASK_COMPLETED", "T1", "task")
    assert observed(story).task_completed


def test_resuming_lifts_the_block_counts_the_retry_and_frees_the_node() -> None:
    story = at_work()
    for times in (1, 2):
        block(story, failure_type="TIMEOUT")
        events = reply(story, "E")
        assert shape(events) == ["OWNER_REPLY_RECORDED N1", "OWNER_RESUMED N1", "N09 N1"]
        assert events[2].payload["wake_evidence"] == events[1].ref
        assert (observed(story).blocks, story.state_of("N1")) == ({}, "READY")
        assert observed(story).retries == {"N1:TIMEOUT": times}
        assert step(story).state == "RUNNING"
        story.start("N1")
    block(story)
    reply(story, "E")
    assert observed(story).retries == {"N1:TIMEOUT": 2}


def test_freeing_a_node_in_another_way_lifts_the_block_and_is_no_observed_retry() -> None:
    story = at_work()
    block(story, failure_type="TIMEOUT")
    story.do(c.RetryNode("N1", "the key is there"))
    assert (observed(story).blocks, observed(story).retries) == ({}, {})
    block(story)
    story.do(c.CancelNodes(("N1",), "not wanted"))
    assert observed(story).blocks == {}


def test_a_node_that_something_else_holds_stays_where_it_is_when_the_owner_resumes() -> None:
    story = Story()
    story.bring_to("N1", "BLOCKED")
    block(story)
    assert shape(reply(story, "E")) == ["OWNER_REPLY_RECORDED N1", "OWNER_RESUMED N1"]
    assert (story.state_of("N1"), observed(story).blocks) == ("BLOCKED", {})


def test_a_block_inside_an_external_effect_leaves_its_question_to_a_person() -> None:
    story = Story(allowed=("N1",))
    story.add("N1", effect="S3")
    story.start("N1")
    assert shape(block(story)) == ["BLOCKED_CONFIRMED N1", "DECISION N1", "N05 N1"]
    reply(story, "E")
    assert story.state_of("N1") == "BLOCKED"


def test_a_node_that_is_blocked_and_asked_about_waits_for_both_words() -> None:
    for first in ("owner", "person"):
        for stopped_by in ("block", "question"):
            story = at_work()
            ask = c.AskQuestion("left or right?", "Q-7", "N1")
            if stopped_by == "block":
                block(story)
                story.do(ask)
            else:
                story.do(ask)
                block(story)
            assert story.state_of("N1") == "BLOCKED"
            for whose in (first, {"owner": "person", "person": "owner"}[first]):
                assert story.state_of("N1") == "BLOCKED", (first, stopped_by)
                if whose == "owner":
                    reply(story, "E")
                else:
                    story.actor = "gatekeeper:anna"
                    story.do(c.AnswerQuestion("Q-7", "answer", "left"))
                    story.actor = "coordinator:main"
            assert story.state_of("N1") == "READY", (first, stopped_by)


# Replies


def test_reply_a_backfills_progress_on_the_one_step_it_can_mean() -> None:
    story = at_work()
    block(story)
    events = reply(story, "a", summary="key renewed", facts={"key": "new"}, resume_token="RT-1")
    assert shape(events) == [
        "OWNER_REPLY_RECORDED N1", "OWNER_RESUMED N1", "N09 N1", "STEP_PROGRESS N1",
    ]  # fmt: skip
    found = observed(story)
    assert (step(story).state, step(story).facts) == ("RUNNING", {"key": "new"})
    assert found.reply is not None
    assert (found.reply.letter, found.reply.node, found.reply.resume_token) == ("A", "N1", "RT-1")
    assert (found.acknowledged_tokens, found.blocks) == (("RT-1",), {})


def test_reply_a_of_a_step_at_work_leaves_it_at_work() -> None:
    story = at_work()
    assert shape(reply(story, "A")) == [
        "OWNER_REPLY_RECORDED N1", "OWNER_RESUMED N1", "STEP_PROGRESS N1",
    ]  # fmt: skip
    assert story.state_of("N1") == "RUNNING"


def test_reply_a_without_a_step_at_work_is_about_the_task() -> None:
    story = Story()
    assert shape(reply(story, "A")) == [
        "OWNER_REPLY_RECORDED T1", "OWNER_RESUMED T1", "STEP_PROGRESS T1",
    ]  # fmt: skip


def test_reply_a_that_could_mean_several_steps_asks_for_the_name() -> None:
    story = at_work("N1", "N2")
    error = refusal(story, o.RecordReply("A"))
    assert (error.code, error.rule, error.exit_code) == ("step_unnamed", "OB-4", 2)
    assert error.suggestions == ["N1", "N2"]
    assert shape(reply(story, "A", node_id="N2"))[-1] == "STEP_PROGRESS N2"
    assert shape(reply(story, "E")) == ["OWNER_REPLY_RECORDED T1", "OWNER_RESUMED T1"]


def test_reply_e_means_the_one_step_that_is_blocked() -> None:
    story = at_work("N1", "N2", "N3")
    block(story, "N2")
    assert shape(reply(story, "E"))[1:] == ["OWNER_RESUMED N2", "N09 N2"]
    block(story, "N1")
    block(story, "N3")
    assert refusal(story, o.RecordReply("E")).code == "step_unnamed"


def test_a_block_of_the_task_is_what_a_reply_without_a_name_answers() -> None:
    story = at_work("N1", "N2")
    block(story, "")
    assert shape(reply(story, "A"))[1:] == ["OWNER_RESUMED T1", "STEP_PROGRESS T1"]
    assert observed(story).blocks == {}


def test_reply_b_confirms_a_block() -> None:
    story = at_work()
    events = reply(
        story, "B", reason="disk full", safe_next_step="wait", failure_type="EXECUTION_ERROR"
    )
    assert shape(events) == ["OWNER_REPLY_RECORDED N1", "BLOCKED_CONFIRMED N1", "N05 N1"]
    assert events[2].payload["block"] == events[1].ref
    found = observed(story).blocks["N1"]
    assert (found.reason, found.needs, found.failure_type) == ("disk full", (), "EXECUTION_ERROR")


def test_reply_c_completes_the_task_or_the_step_that_is_named() -> None:
    story = at_work("N1", "N2")
    assert shape(reply(story, "C")) == ["OWNER_REPLY_RECORDED T1", "TASK_COMPLETED T1"]
    events = reply(story, "C", node_id="N1", claim=True)
    assert shape(events) == ["OWNER_REPLY_RECORDED N1", "STEP_COMPLETED N1", "N03 N1"]
    assert events[2].payload["report"] == events[1].ref


def test_reply_c_of_the_last_open_step_completes_the_task_with_it() -> None:
    story = at_work()
    events = reply(story, "C", node_id="N1", claim=True)
    assert shape(events) == [
        "OWNER_REPLY_RECORDED N1", "STEP_COMPLETED N1", "N03 N1", "TASK_COMPLETED T1",
    ]  # fmt: skip
    assert observed(story).task_completed == events[3].ref


def test_reply_c_lifts_the_block_that_it_answers() -> None:
    story = at_work("N1", "N2")
    block(story)
    block(story, "")
    events = reply(story, "C", node_id="N1")
    assert shape(events) == [
        "OWNER_REPLY_RECORDED N1", "OWNER_RESUMED N1", "N09 N1", "STEP_COMPLETED N1",
    ]  # fmt: skip
    assert ([*observed(story).blocks], step(story).state) == ([""], "COMPLETED")
    assert shape(reply(story, "C"))[1:] == ["OWNER_RESUMED T1", "TASK_COMPLETED T1"]
    assert (observed(story).blocks, bool(observed(story).task_completed)) == ({}, True)
    block(story)
    story.start("N1")  # past the block
    events = reply(story, "C", node_id="N1", claim=True)
    assert shape(events)[1:] == ["OWNER_RESUMED N1", "STEP_COMPLETED N1", "N03 N1"]
    assert events[3].payload["report"] == events[2].ref


def test_reply_d_changes_nothing_but_that_it_was_given() -> None:
    story = at_work()
    block(story)
    before = observed(story).blocks
    assert shape(reply(story, "D", resume_token="RT-9")) == ["OWNER_REPLY_RECORDED T1"]
    assert (observed(story).blocks, observed(story).acknowledged_tokens) == (before, ("RT-9",))


def test_tokens_that_were_acknowledged_are_kept_newest_last_and_not_without_end() -> None:
    story = Story()
    for number in range(tokens_kept_max + 5):
        reply(story, "D", resume_token=f"RT-{number}")
    reply(story, "D", resume_token="RT-50")
    kept = observed(story).acknowledged_tokens
    assert (len(kept), kept[0], kept[-1]) == (tokens_kept_max, "RT-5", "RT-50")
    assert len(set(kept)) == tokens_kept_max


# External jobs and downloads


def external(story: Story, state: str, **more: Any) -> list[Event]:
    said = {"provider": "slurm", "job_id": "4711", "state": state, **more}
    return see(story, "EXTERNAL_OBSERVED", "", "external_job", **said)


def test_an_external_job_is_kept_by_provider_and_id_with_all_its_facts() -> None:
    story = at_work()
    external(story, "pending", facts={"queue": "long"}, node="N1")
    (event,) = external(story, "PENDING", facts={"provider_job_id": "4711"})
    assert (event.entity.type, event.entity.id) == ("external_job", "slurm:4711")
    assert observed(story).external == {
        "slurm:4711": ExternalJob(
            "slurm", "4711", "PENDING", "N1", {"queue": "long", "provider_job_id": "4711"},
            event.ref, story.now - 1.0,
        )
    }  # fmt: skip


def test_only_a_change_of_an_external_jobs_state_is_progress() -> None:
    story = at_work()
    seen = []
    for state in ("SUBMITTED", "RUNNING", "RUNNING", "COMPLETED", "COMPLETED"):
        before = observed(story).progress_ref
        external(story, state)
        seen.append(observed(story).progress_ref != before)
    assert seen == [True, True, False, True, False]
    assert observed(story).external["slurm:4711"].changed_at == story.now - 1.0


def test_a_pending_claim_without_evidence_is_accepted() -> None:
    story = Story()
    for state in EXTERNAL_STATES:
        assert external(story, state)[0].payload["state"] == state


def test_a_download_is_kept_as_last_seen_and_is_progress() -> None:
    story = at_work()
    for status in DOWNLOAD_STATUSES:
        before = observed(story).progress_ref
        (event,) = see(
            story, "DOWNLOAD_OBSERVED", "corpus", "download", status=status.lower(), node="N1",
            path="/data/x", size_bytes=10, checksum="sha256:ab",
        )  # fmt: skip
        found = observed(story).downloads["corpus"]
        assert (found.status, found.ref, found.at) == (status, event.ref, story.now)
        assert (found.path, found.size_bytes, found.checksum) == ("/data/x", 10, "sha256:ab")
        assert (found.node, observed(story).progress_ref) == ("N1", event.ref)
        assert before != event.ref


def test_what_nobody_speaks_of_any_more_is_the_first_to_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold_observed, "external_jobs_max", 2)
    monkeypatch.setattr(fold_observed, "downloads_max", 2)
    story = Story()
    for job in ("a", "b", "a", "c"):
        external(story, "RUNNING", job_id=job)
        see(story, "DOWNLOAD_OBSERVED", job, "download", status="COMPLETE", path="x")
    assert [*observed(story).external] == ["slurm:a", "slurm:c"]
    assert [*observed(story).downloads] == ["a", "c"]


# Health


def test_an_executors_beat_says_how_the_work_is_and_an_owners_only_that_it_is_there() -> None:
    story = at_work()
    before = observed(story).progress_ref
    story.do(c.Beat(("N1",), ok=False))
    assert (observed(story).errors, observed(story).heartbeat_at) == (0, story.now)
    story.do(c.Beat(("N1",)))
    assert observed(story).progress_ref == before
    story.add("N2")
    story.start("N2", executor=WORKER)
    story.actor = "executor:x"
    for number in (1, 2):
        story.do(c.Beat(("N2",), ok=False, facts={"speed": "low"}))
        assert observed(story).errors == number
    before = observed(story).progress_ref
    (event,) = story.do(c.Beat(("N2",)))
    assert (observed(story).errors, observed(story).progress_ref) == (0, event.ref)
    assert before != event.ref


def test_one_beat_for_several_nodes_counts_once() -> None:
    story = Story()
    for name in ("N1", "N2", "N3"):
        story.add(name)
        story.start(name, executor=WORKER)
    story.actor = "executor:x"
    events = story.do(c.Beat(("N1", "N2", "N3"), ok=False))
    assert (len(events), observed(story).errors) == (3, 1)


def test_failures_count_until_something_succeeds() -> None:
    for success in ("artifact", "step", "done"):
        story = Story()
        for name in ("N1", "N2"):
            story.bring_to(name, "RUNNING")
            story.fail(name)
        story.bring_to("N3", "VERIFYING" if success == "done" else "RUNNING")
        assert observed(story).errors == (0 if success == "done" else 2)
        story.add("N4")
        story.start("N4")
        story.fail("N4", interruption=True)
        before = observed(story).errors
        assert before
        if success == "artifact":
            story.register("N3", "A-1")
        elif success == "step":
            see(story, "STEP_COMPLETED", "N3")
        else:
            story.conclude("N3")
        assert (observed(story).errors, observed(story).success_at) == (0, story.now)


def test_what_was_recalled_for_an_instruction_has_not_failed() -> None:
    story = at_work()
    move = {"from": "RUNNING", "to": "RETRYABLE", "edge": "N04", "signature": "recalled",
            "failure_class": "transient-agent", "steering": "ST-1"}  # fmt: skip
    story.commit(Draft("STATE_TRANSITION", "node", "N1", move))
    assert observed(story).errors == 0


# What others wrote


def test_an_observation_of_no_node_here_is_a_signal_and_no_step() -> None:
    story = at_work()
    (event,) = say(story, "STEP_PROGRESS", "N9")
    say(story, "STEP_COMPLETED", "N9")
    assert observed(story).steps == {}
    assert event.ref != observed(story).progress_ref
    say(story, "BLOCKED_CONFIRMED", "N9", reason="x")
    assert [*observed(story).blocks] == [""]
    say(story, "OWNER_RESUMED", "N9")
    assert observed(story).blocks == {}


def test_others_may_name_the_node_in_the_payload() -> None:
    story = at_work()
    say(story, "STEP_PROGRESS", "T1", "task", node="N1")
    assert step(story).state == "RUNNING"


def test_a_failure_type_that_there_is_not_is_kept_and_never_counted() -> None:
    story = at_work()
    say(story, "BLOCKED_CONFIRMED", reason="x", failure_type="WEATHER", needs="sun")
    assert (observed(story).blocks["N1"].failure_type, observed(story).blocks["N1"].needs) == (
        "WEATHER", ("sun",),
    )  # fmt: skip
    say(story, "OWNER_RESUMED")
    assert observed(story).retries == {}


def test_what_others_wrote_takes_no_more_room_than_what_perdure_writes() -> None:
    story = at_work()
    many = {f"f{number}": "v" * 5_000 for number in range(facts_kept_max + 10)}
    say(story, "STEP_PROGRESS", facts=many, summary="s" * 100_000)
    found = step(story)
    assert (len(found.facts), [*found.facts][-1]) == (facts_kept_max, f"f{facts_kept_max + 9}")
    assert {len(value) for value in found.facts.values()} == {fact_chars_max}
    assert len(found.summary) < 10_000


@pytest.mark.parametrize("kind", fold_observed.OBSERVATIONS)
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"facts": ["a=b"], "summary": {"a": 1}, "needs": 7, "node": ["N1"], "letter": None},
        {"provider": 1, "job_id": 2.5, "state": True, "facts": {"a": None, "b": [1]}},
        {"download_id": "d", "status": 4, "size_bytes": 1 << 80, "path": None},
        {"size_bytes": -1, "resume_token": {"x": 1}, "failure_type": ["TIMEOUT"]},
        {"size_bytes": 1.5, "reason": "\ud800", "safe_next_step": 3, "letter": "ABC"},
    ],
)
def test_a_malformed_observation_never_stops_the_fold(kind: str, payload: dict[str, Any]) -> None:
    story = at_work()
    for about, name in (("node", "N1"), ("task", "T1"), ("download", "d"), ("unit", "")):
        say(story, kind, name, about, **payload)
    replica, tip = replay(story.journal)
    copy = Story(begun=False)
    copy.replica, copy.tip = replica, tip
    assert copy.snapshot() == story.snapshot()


# Refusals


def test_observing_a_node_that_there_is_not_is_refused() -> None:
    story = at_work()
    for command in (
        o.Observe("STEP_PROGRESS", "node", "N9"),
        o.Observe("STEP_COMPLETED", "node", "N9"),
        o.Observe("STEP_COMPLETED", "task", "T1"),
        o.Observe(
            "EXTERNAL_OBSERVED", "external_job", "",
            payload={"provider": "p", "job_id": "1", "state": "RUNNING", "node": "N9"},
        ),
        o.ConfirmBlock("N9", "x", ("y",), "z"),
        o.RecordReply("A", "N9"),
    ):  # fmt: skip
        error = refusal(story, command)
        assert isinstance(error, NotFoundError)
        assert error.code == "unknown_node"


def test_an_unknown_word_is_refused_with_the_words_that_there_are() -> None:
    story = at_work()
    for command, words, near in (
        (
            o.Observe("EXTERNAL_OBSERVED", "external_job", "",
                      payload={"provider": "p", "job_id": "1", "state": "RUNING"}),
            EXTERNAL_STATES, ["RUNNING"],
        ),
        (
            o.Observe("DOWNLOAD_OBSERVED", "download", "d",
                      payload={"status": "COMPLET", "path": "x"}),
            DOWNLOAD_STATUSES, ["COMPLETE", "INCOMPLETE"],
        ),
        (o.ConfirmBlock("N1", "x", ("y",), "z", "TIME_OUT"), FAILURE_TYPES, ["TIMEOUT"]),
        (o.RecordReply("B", reason="x", safe_next_step="z", failure_type="DISK"),
         FAILURE_TYPES, []),
        (o.RecordReply("F"), "ABCDE", []),
        (o.RecordReply(""), "ABCDE", []),
    ):  # fmt: skip
        error = refusal(story, command)
        assert (error.code, error.exit_code, error.suggestions) == ("unknown_word", 2, near)
        assert all(word in error.fix for word in words)


def test_kinds_that_are_not_observed_are_refused() -> None:
    error = refusal(Story(), o.Observe("OWNER_RESUMED", "node", "N1"))
    assert (error.code, error.exit_code) == ("unknown_kind", 2)


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"reason": " "}, ["reason"]),
        ({"needs": ()}, ["need"]),
        ({"needs": ("",)}, ["need"]),
        ({"reason": "", "safe_next_step": ""}, ["reason", "safe-next-step"]),
    ],
)
def test_a_block_without_its_parts_is_refused_and_names_them(
    more: dict[str, Any], missing: list[str]
) -> None:
    said = {"reason": "x", "needs": ("y",), "safe_next_step": "z", **more}
    error = refusal(at_work(), o.ConfirmBlock("N1", **said))
    assert (error.code, error.rule, error.exit_code) == ("block_incomplete", "OB-3", 2)
    assert all(f"--{name}" in error.fix for name in missing)


def test_reply_b_takes_a_reason_and_a_safe_next_step() -> None:
    for more in ({"reason": "x"}, {"safe_next_step": "z"}, {}):
        error = refusal(at_work(), o.RecordReply("B", **more))  # type: ignore[arg-type]
        assert (error.code, error.exit_code) == ("block_incomplete", 2)


@pytest.mark.parametrize(
    ("about", "payload", "code"),
    [
        ("external_job", {"provider": "", "job_id": "1", "state": "RUNNING"}, "bad_name"),
        ("external_job", {"provider": "a:b", "job_id": "1", "state": "RUNNING"}, "bad_name"),
        ("external_job", {"provider": "p", "job_id": "1\n2", "state": "RUNNING"}, "bad_name"),
        ("external_job", {"provider": "p", "job_id": "x" * 2_000, "state": "RUNNING"}, "bad_name"),
        ("download", {"status": "COMPLETE", "path": ""}, "bad_name"),
        ("download", {"status": "COMPLETE", "path": "x", "size_bytes": -1}, "bad_size"),
        ("download", {"status": "COMPLETE", "path": "x", "size_bytes": 1 << 70}, "bad_size"),
        ("download", {"status": "COMPLETE", "path": "x", "size_bytes": True}, "bad_size"),
        ("download", {"status": "COMPLETE", "path": "x", "checksum": "a\tb"}, "bad_name"),
    ],
)
def test_names_and_sizes_that_cannot_be_read_are_refused(
    about: str, payload: dict[str, Any], code: str
) -> None:
    kind = "DOWNLOAD_OBSERVED" if about == "download" else "EXTERNAL_OBSERVED"
    error = refusal(Story(), o.Observe(kind, about, "d", payload=payload))
    assert (error.code, error.exit_code) == (code, 2)


@pytest.mark.parametrize(
    "facts",
    [{"": "x"}, {"a": "x" * (fact_chars_max + 1)}, {"a": 1}, {f"f{n}": "" for n in range(65)}],
)
def test_facts_that_are_none_too_long_or_too_many_are_refused(facts: dict[str, Any]) -> None:
    story = at_work()
    for command in (
        o.Observe("STEP_PROGRESS", "node", "N1", facts=facts),
        o.ConfirmBlock("N1", "x", ("y",), "z", facts=facts),
        o.RecordReply("D", facts=facts),
        c.Beat(("N1",), facts=facts),
    ):
        error = refusal(story, command)
        assert isinstance(error, UsageError)
        assert error.code == ("too_large" if len(facts) > 1 else "bad_fact")


def test_a_contract_of_a_process_is_renewed_by_a_beat_as_before() -> None:
    story = Story()
    story.add("N1")
    story.start("N1", executor=ME)
    (event,) = story.do(c.Beat(("N1",), "note", facts={"a": "b"}))
    assert (event.payload["ok"], event.payload["facts"]) == (True, {"a": "b"})
    assert story.replica.state.contracts["inv-N1-1"].last_beat_at == story.now
