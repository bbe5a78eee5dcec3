"""A job in use: what each call makes durable, what it refuses, and what a failure leaves."""

import errno
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.jobs.sim_host import NAME, ROOT, SimHost, line

from perdure.errors import CorruptError, HaltError, RefusedError, StorageError, UsageError
from perdure.jobs.engine import cursor_bytes_max
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.mapping import MapReport
from perdure.jobs.position import shown_line_bytes_max
from perdure.jobs.records import Failure, Finding, error_chars_max
from perdure.jobs.scan import group_bytes_max
from perdure.testing import Op


def on(name: str, kind: str) -> Callable[[Op], bool]:
    """Picks the steps of one kind on one file."""
    return lambda op: op.kind == kind and op.path.endswith(f"/{name}")


# Findings


def test_a_finding_is_one_line_with_the_payload_first(host: SimHost) -> None:
    job = host.open()
    assert job.record_finding("a", {"title": "A", "n": 1})
    assert host.log() == [
        {
            "title": "A",
            "n": 1,
            "_hash": item_hash("a"),
            "_key": "a",
            "_at": "2027-01-15T08:00:00.000+00:00",
        }
    ]
    assert host.read("findings.jsonl").startswith(b'{"title":"A","n":1,"_hash":')


def test_a_finding_is_written_and_synced_before_anything_else_is(host: SimHost) -> None:
    job = host.open()
    first = len(host.disk.log)
    job.record_finding("a")
    assert host.write_steps(first)[:2] == ["write findings.jsonl", "sync_file findings.jsonl"]


def test_an_item_is_done_from_its_finding_on(host: SimHost) -> None:
    job = host.open()
    assert not job.is_done("a")
    job.record_finding("a")
    assert job.is_done("a")
    assert not job.is_done("b")
    assert job.processed == 1


def test_recording_an_item_again_keeps_the_first_finding(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a", {"n": 1})
    first = len(host.disk.log)
    assert not job.record_finding("a", {"n": 2})
    assert host.write_steps(first) == []
    assert [found["n"] for found in host.log()] == [1]


def test_an_item_that_is_more_than_its_key_leaves_its_digest(host: SimHost) -> None:
    host.open().record_finding("a", item="0123456789abcdef")
    assert host.log()[0]["_item"] == "0123456789abcdef"


@pytest.mark.parametrize("name", ["_hash", "_key", "_at", "_item"])
def test_a_reserved_key_in_the_payload_is_refused_and_nothing_is_written(
    host: SimHost, name: str
) -> None:
    job = host.open()
    with pytest.raises(ValueError, match="reserved_key") as caught:
        job.record_finding("a", {name: "x"})
    assert isinstance(caught.value, UsageError)
    assert host.log() == []
    assert not job.is_done("a")
    job.record_finding("a", {"fine": 1})
    assert job.is_done("a")


@pytest.mark.parametrize("key", ["", "\ud800", 7, None, b"bytes", ["a"]])
def test_a_key_that_is_no_text_is_refused_by_every_call(host: SimHost, key: Any) -> None:
    job = host.open()
    calls: list[Callable[[], object]] = [
        lambda: job.is_done(key),
        lambda: job.record_finding(key),
        lambda: job.record_error(key, "failed"),
        lambda: job.record_many([Finding("a", {}), Finding(key, {})]),
        lambda: job.record_many([Finding("a", {}), Failure(key, "failed")]),
        lambda: job.artifact_path(key),
    ]
    for call in calls:
        with pytest.raises(UsageError) as caught:
            call()
        assert caught.value.rule == "JB-4"
    assert host.log() == []
    assert job.errors == []


@pytest.mark.parametrize("payload", [{"x": object()}, {"x": float("nan")}, {1: 2}, "text", [1]])
def test_a_payload_that_is_not_json_is_refused_and_the_job_goes_on(
    host: SimHost, payload: Any
) -> None:
    job = host.open()
    with pytest.raises(UsageError):
        job.record_finding("a", payload)
    assert host.log() == []
    job.record_finding("b")
    assert job.processed == 1


# Errors


def test_an_error_is_queued_with_its_attempts(host: SimHost) -> None:
    job = host.open()
    assert job.record_error("a", "no answer") == 1
    host.clock.advance(5.0)
    assert job.record_error("a", "no answer again") == 2
    (entry,) = job.errors
    assert (entry.key, entry.hash, entry.attempts) == ("a", item_hash("a"), 2)
    assert (entry.error, entry.last_at[17:19]) == ("no answer again", "05")
    assert not job.is_done("a")


def test_an_attempt_is_synced_before_the_call_returns(host: SimHost) -> None:
    job = host.open()
    first = len(host.disk.log)
    job.record_error("a", "no answer")
    steps = host.write_steps(first)
    wrote = steps.index("write .recent.jsonl")
    assert steps[wrote + 1] == "sync_file .recent.jsonl"


def test_success_clears_the_error(host: SimHost) -> None:
    job = host.open()
    job.record_error("a", "no answer")
    job.record_finding("a")
    assert job.errors == []
    assert job.state["stats"] == {"processed": 1, "failed": 0, "resumes": 0}
    host.kill()
    assert host.open().errors == []


def test_an_error_of_an_item_that_is_done_changes_nothing(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    assert job.record_error("a", "late") == 0
    assert job.errors == []


def test_an_error_need_not_be_text_and_is_cut(host: SimHost) -> None:
    job = host.open()
    job.record_error("a", OSError("broken"))  # type: ignore[arg-type]
    job.record_error("b", "x" * 10_000)
    job.record_error("c", "half \ud800 a character")
    texts = [entry.error for entry in job.errors]
    assert texts[0] == "broken"
    assert len(texts[1]) == error_chars_max
    assert texts[2] == "half \\ud800 a character"


def test_retryable_items_come_oldest_failure_first_and_only_below_the_bound(
    host: SimHost,
) -> None:
    job = host.open()
    for key in ("a", "b", "c", "a", "b", "a"):
        job.record_error(key, "failed")
    assert [entry.key for entry in job.retryable(3)] == ["c", "b"]
    assert [entry.key for entry in job.retryable()] == ["c", "b"]
    assert [entry.key for entry in job.retryable(4)] == ["c", "b", "a"]
    assert list(job.retryable(1)) == []


def test_retryable_does_not_change_while_it_is_gone_through(host: SimHost) -> None:
    job = host.open()
    for key in ("a", "b"):
        job.record_error(key, "failed")
    seen = []
    for entry in job.retryable():
        seen.append(entry.key)
        job.record_error(entry.key, "failed again")
    assert seen == ["a", "b"]


def test_attempts_can_be_reset_for_some_or_for_all(host: SimHost) -> None:
    job = host.open()
    for key in ("a", "b", "c"):
        job.record_error(key, "failed")
    assert job.reset_attempts(["b", "unknown"]) == 1
    assert [(entry.key, entry.attempts) for entry in job.errors] == [("a", 1), ("b", 0), ("c", 1)]
    host.kill()
    job = host.open()
    assert [(entry.key, entry.attempts) for entry in job.errors] == [("a", 1), ("b", 0), ("c", 1)]
    assert job.reset_attempts() == 3
    assert job.record_error("a", "failed") == 1


# Several at once


def test_outcomes_that_are_recorded_together_share_one_write_and_one_sync(host: SimHost) -> None:
    job = host.open()
    first = len(host.disk.log)
    outcomes = [Finding("a", {"n": 1}), Failure("x", "failed"), Finding("b", {"n": 2})]
    assert job.record_many(outcomes) == 2
    steps = host.write_steps(first)
    for name in ("findings.jsonl", ".recent.jsonl"):
        assert steps.count(f"write {name}") == 1
        assert steps[steps.index(f"write {name}") + 1] == f"sync_file {name}"
    assert [found["_key"] for found in host.log()] == ["a", "b"]
    assert [entry.key for entry in job.errors] == ["x"]


def test_what_is_done_or_comes_twice_in_a_group_is_skipped(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a", {"n": 0})
    outcomes = [
        Finding("a", {"n": 1}),
        Finding("b", {"n": 1}),
        Finding("b", {"n": 2}),
        Failure("b", "x"),
        Failure("c", "first"),
        Failure("c", "second"),
    ]
    assert job.record_many(outcomes) == 1
    assert [(found["_key"], found["n"]) for found in host.log()] == [("a", 0), ("b", 1)]
    assert [(entry.key, entry.attempts) for entry in job.errors] == [("c", 1)]


def test_nothing_of_a_group_is_written_when_one_outcome_is_refused(host: SimHost) -> None:
    job = host.open()
    with pytest.raises(UsageError):
        job.record_many([Finding("a", {}), Finding("b", {"_key": "forged"})])
    assert host.log() == []
    assert job.record_many([]) == 0


def test_a_group_that_is_too_long_becomes_several_appends(host: SimHost) -> None:
    job = host.open()
    text = "x" * (group_bytes_max // 3)
    first = len(host.disk.log)
    job.record_many([Finding(str(n), {"text": text}) for n in range(5)])
    writes = [op for op in host.disk.log[first:] if op.path.endswith("findings.jsonl") and op.data]
    assert [op.data.count(b"\n") for op in writes] == [2, 2, 1]
    assert all(len(op.data) <= group_bytes_max for op in writes)
    assert job.processed == 5


# The cursor


def test_the_cursor_is_nothing_at_first_and_then_what_was_set(host: SimHost) -> None:
    job = host.open()
    assert job.cursor is None
    value: dict[str, Any] = {"last": ["a", 1, None, 0.5]}
    job.set_cursor(value)
    value["last"].append("changed later")
    job.cursor["last"].append("changed by a reader")
    assert job.cursor == {"last": ["a", 1, None, 0.5]}


@pytest.mark.parametrize("value", [object(), float("inf"), "x" * cursor_bytes_max])
def test_a_cursor_that_is_not_json_or_too_long_is_refused(host: SimHost, value: object) -> None:
    job = host.open()
    job.set_cursor(1)
    with pytest.raises(UsageError) as caught:
        job.set_cursor(value)
    assert caught.value.rule == "JB-4"
    assert job.cursor == 1


def test_a_cursor_with_half_a_character_is_kept(host: SimHost) -> None:
    job = host.open()
    job.set_cursor("\ud800")
    job.close()
    assert host.open().cursor == "\ud800"


def test_setting_the_cursor_writes_nothing_by_itself(host: SimHost) -> None:
    job = host.open()
    first = len(host.disk.log)
    job.set_cursor(1)
    assert host.write_steps(first) == []


# The state


def test_the_state_is_the_mapping_of_state_json(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    job.record_error("b", "failed")
    job.set_cursor({"last": "b"})
    job.checkpoint()
    written = host.state()
    assert written.pop("as_of")["recent"] == 1
    assert job.state == written
    assert list(written) == [
        "job", "version", "started_at", "updated_at", "cursor", "completed", "errors", "stats",
        "finished_at",
    ]  # fmt: skip


def test_the_state_is_a_copy(host: SimHost) -> None:
    job = host.open()
    job.state["completed"]["0123456789abcdef"] = "now"
    assert job.state["completed"] == {}


# Failures


def test_after_a_failed_append_the_item_is_neither_done_nor_an_error(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    host.disk.fail(on("findings.jsonl", "write"), errno.ENOSPC, partial_bytes=9)
    with pytest.raises(StorageError, match="disk_full") as caught:
        job.record_finding("b")
    assert "ENOSPC" in str(caught.value)
    assert caught.value.exit_code == 7
    assert not job.is_done("b")
    assert job.errors == []


def test_after_a_failed_sync_nothing_is_written_any_more(host: SimHost) -> None:
    job = host.open()
    host.disk.fail(on("findings.jsonl", "sync_file"), errno.EIO)
    with pytest.raises(StorageError):
        job.record_finding("a")
    before = len(host.disk.log)
    calls: list[Callable[[], object]] = [
        lambda: job.record_finding("a"),
        lambda: job.record_finding("b"),
        lambda: job.record_error("a", "failed"),
        lambda: job.record_many([Finding("c", {})]),
        lambda: job.set_cursor(1),
        job.reset_attempts,
        lambda: job.write_artifact("a", b""),
        job.checkpoint,
        job.finish,
    ]
    for call in calls:
        with pytest.raises(StorageError, match="EIO") as caught:
            call()
        assert caught.value.code == "io_error"
        assert "Open the job again" in caught.value.fix
    job.close()
    assert [step for step in host.write_steps(before) if "holder" not in step] == []
    assert not job.is_done("a")


def test_a_new_object_goes_on_after_a_failure(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    host.disk.fail(on("findings.jsonl", "write"), errno.ENOSPC, partial_bytes=9)
    with pytest.raises(StorageError):
        job.record_finding("b")
    again = host.open()
    assert again.is_done("a")
    assert not again.is_done("b")
    again.record_finding("b")
    assert [found["_key"] for found in host.log()] == ["a", "b"]


def test_a_failed_attempt_at_keeping_an_attempt_does_not_count(host: SimHost) -> None:
    job = host.open()
    job.record_error("a", "once")
    host.disk.fail(on(".recent.jsonl", "sync_file"), errno.EIO)
    with pytest.raises(StorageError):
        job.record_error("a", "twice")
    assert job.errors[0].attempts == 1
    with pytest.raises(StorageError):
        job.record_finding("b")


def test_a_checkpoint_that_fails_ends_the_job_and_the_finding_counts(host: SimHost) -> None:
    job = host.open()
    host.disk.fail(lambda op: op.path.endswith("state.json"), errno.ENOSPC)
    host.disk.fail(lambda op: "state.json.tmp" in op.path, errno.ENOSPC)
    with pytest.raises(StorageError):
        job.record_finding("a")
    assert job.is_done("a")
    with pytest.raises(StorageError):
        job.record_finding("b")
    host.disk.heal()
    assert host.open().is_done("a")


def test_an_interruption_in_the_middle_of_a_call_ends_the_object(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = host.open()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job._engine.log, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        job.record_finding("a")
    with pytest.raises(StorageError, match="interrupted"):
        job.record_finding("a")
    job.close()
    assert not host.open().is_done("a")


def test_a_log_that_was_replaced_by_another_file_is_noticed_at_the_next_checkpoint(
    host: SimHost,
) -> None:
    job = host.open()
    job.record_finding("a")
    host.disk.replace(f"{ROOT}/findings.jsonl", line("z"), durable=True)
    with pytest.raises(CorruptError, match="log_replaced"):
        job.checkpoint()
    with pytest.raises(CorruptError):
        job.record_finding("b")


# The end


def test_finishing_writes_the_end_and_releases_the_job(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    job.record_error("b", "failed")
    host.clock.advance(1.0)
    job.finish()
    assert host.state()["finished_at"] == "2027-01-15T08:00:01.000+00:00"
    assert "finished" in host.summary()
    CheckpointedJob(ROOT, NAME, world=host.beside()).close()


def test_after_the_end_calls_are_refused_and_questions_answered(host: SimHost) -> None:
    for end in (CheckpointedJob.finish, CheckpointedJob.close):
        job = host.open()
        job.record_finding("a", {})
        end(job)
        calls: list[Callable[[], object]] = [
            lambda job=job: job.record_finding("b"),  # type: ignore[misc]
            lambda job=job: job.record_error("b", "x"),  # type: ignore[misc]
            lambda job=job: job.set_cursor(1),  # type: ignore[misc]
            job.checkpoint,
        ]
        for call in calls:
            with pytest.raises(RefusedError) as caught:
                call()
            assert (caught.value.code, caught.value.rule) == ("closed", "JB-3")
        assert job.is_done("a")
        assert job.processed == 1
        assert job.state["stats"]["processed"] == 1
        assert job.cursor is None


def test_ending_twice_is_harmless_but_a_closed_job_cannot_be_finished(host: SimHost) -> None:
    job = host.open()
    job.finish()
    job.finish()
    job.close()
    job = host.open()
    job.close()
    job.close()
    with pytest.raises(RefusedError):
        job.finish()


def test_a_finished_job_counts_as_finished_until_something_new_is_recorded(host: SimHost) -> None:
    job = host.open()
    job.finish()
    job = host.open()
    assert job.state["finished_at"]
    assert "finished" in host.summary()
    job.set_cursor(1)
    job.checkpoint()
    assert host.state()["finished_at"]
    job.record_error("a", "failed")
    assert host.state()["finished_at"] is None


def test_a_with_block_closes_the_job_and_does_not_finish_it(host: SimHost) -> None:
    def interrupted() -> None:
        with host.open() as job:
            job.record_finding("a")
            job.set_cursor("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert host.state()["finished_at"] is None
    assert host.state()["cursor"] == "a"
    assert "stopped" in host.summary()


def test_a_job_that_is_dropped_is_closed(host: SimHost) -> None:
    job = CheckpointedJob(ROOT, NAME, world=host.world)
    job.set_cursor("here")
    del job
    assert host.state()["cursor"] == "here"
    CheckpointedJob(ROOT, NAME, world=host.beside()).close()


def test_closing_a_job_that_has_nothing_new_leaves_its_state_alone(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    host.write("state.json", b"somebody else's hand")
    job.close()
    assert host.read("state.json") == b"somebody else's hand"


# Threads


def test_threads_may_record_at_the_same_time(host: SimHost) -> None:
    job = host.open()

    def record(first: int) -> None:
        for number in range(first, first + 20):
            job.record_finding(str(number), {"n": number})
            job.record_finding("everybody's", {"n": number})

    threads = [threading.Thread(target=record, args=(20 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [found["_key"] for found in host.log()]
    assert len(keys) == len(set(keys)) == 81 == job.processed


def test_a_call_from_inside_a_call_is_refused_and_not_waited_for(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler makes one that interrupts the main thread."""
    job = host.open()
    refused = []

    def inside(data: bytes, append: Callable[[bytes], None] = job._engine.log._append) -> None:
        try:
            job.checkpoint()
        except HaltError as error:
            refused.append(error.code)
        append(data)

    monkeypatch.setattr(job._engine.log, "_append", inside)
    job.record_finding("a")
    assert refused == ["job_busy"]
    assert host.log()[0]["_key"] == "a"


class TakenMeanwhile:
    """A guard that another thread has just taken, and gives back when it is waited for."""

    def __init__(self, guard: threading.Lock) -> None:
        self.guard = guard
        self.release = guard.release

    def acquire(self, blocking: bool = True) -> bool:
        return blocking and self.guard.acquire()


def test_a_thread_waits_for_another_also_when_the_last_call_was_its_own(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    claim = job._engine.claim
    claim.guard = TakenMeanwhile(claim.guard)  # type: ignore[assignment]
    job.record_finding("b")
    assert job.processed == 2


# What the log cannot prove


def test_forgetting_drops_what_the_log_cannot_prove_and_nothing_else(host: SimHost) -> None:
    host.write("findings.jsonl", line("a"))
    claimed = {item_hash(key): "" for key in ("a", "lost")}
    state = {"job": NAME, "version": 1, "completed": claimed}
    host.write("state.json", json.dumps(state).encode())
    job = host.open()
    assert job.is_done("lost")
    assert job.forget([item_hash("a"), item_hash("lost"), item_hash("never")]) == 1
    assert job.is_done("a")
    assert not job.is_done("lost")
    host.kill()
    assert not host.open().is_done("lost")


# The summary


def test_the_summary_shows_the_last_findings_and_a_long_one_by_its_key(host: SimHost) -> None:
    job = host.open()
    for number in range(30):
        job.record_finding(f"item-{number}", {"n": number})
    job.record_finding("long", {"text": "x" * shown_line_bytes_max})
    shown = host.summary()
    assert "item-10" not in shown
    assert "item-12" in shown
    assert "item-29" in shown
    assert "long" in shown
    assert "xxxx" not in shown
    assert job.summary_path == f"{ROOT}/SUMMARY.md"


def test_map_goes_through_items_and_records_them(host: SimHost) -> None:
    job = host.open()
    report = job.map(lambda key: {"length": len(key)}, ["a", "bb", "a"], workers=2)
    assert isinstance(report, MapReport)
    assert (report.processed, report.duplicates) == (2, 1)
    assert sorted(found["length"] for found in host.log()) == [1, 2]
