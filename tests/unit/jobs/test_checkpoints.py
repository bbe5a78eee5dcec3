"""When ``state.json`` and ``SUMMARY.md`` are written, and what they may say (JB-2)."""

import errno
import json
from typing import Any

import msgspec
import pytest
from tests.unit.jobs.sim_host import NAME, SimHost, line

from perdure.errors import StorageError
from perdure.jobs.checkpoints import (
    first_records_max,
    renewal_interval_s,
    renewal_share,
    small_state_bytes_max,
)
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.records import Failure, Finding
from perdure.testing import SimDisk


def written(host: SimHost, first: int) -> list[str]:
    """The files that were replaced since step ``first``, in order."""
    renames = [op for op in host.disk.log[first:] if op.kind == "rename"]
    return [op.target.rpartition("/")[2] for op in renames]


def large(host: SimHost, items: int = 400) -> CheckpointedJob:
    """A job with a state.json that is not small, and a fresh checkpoint; its process is new."""
    host.open().record_many([Finding(f"item-{n}", {"n": n}) for n in range(items)])
    host.jobs[-1].close()
    assert len(host.read("state.json")) > small_state_bytes_max
    host.kill()
    return host.open()


def beyond_the_first(job: CheckpointedJob) -> None:
    """Use up the records of a process that renew the summary each."""
    job.record_many([Finding(f"early-{n}", {}) for n in range(first_records_max)])


# The first records


def test_each_of_the_first_records_renews_both_files_of_a_small_job(host: SimHost) -> None:
    job = host.open()
    for number in range(first_records_max):
        first = len(host.disk.log)
        if number % 2:
            job.record_error(f"item-{number}", "failed")
        else:
            job.record_finding(f"item-{number}")
        assert written(host, first)[-2:] == ["state.json", "SUMMARY.md"]
        assert f"item-{number}" in host.summary()
        assert host.state()["stats"]["processed"] == job.processed
    first = len(host.disk.log)
    job.record_finding("one more")
    assert written(host, first) == []


def test_a_group_counts_as_so_many_records(host: SimHost) -> None:
    job = host.open()
    outcomes: list[Finding | Failure] = [Finding(str(n), {}) for n in range(first_records_max - 1)]
    outcomes.append(Failure("x", "failed"))
    job.record_many(outcomes)
    first = len(host.disk.log)
    job.record_finding("one more")
    assert written(host, first) == []


def test_a_state_that_is_not_small_does_not_go_with_every_record(host: SimHost) -> None:
    job = large(host)
    first = len(host.disk.log)
    job.record_finding("a")
    assert written(host, first) == ["SUMMARY.md"]
    assert item_hash("a") not in host.state()["completed"]
    assert '`"a"`' in host.summary()


# Later


def test_later_the_summary_is_renewed_after_an_interval_and_only_by_a_record(
    host: SimHost,
) -> None:
    job = host.open()
    beyond_the_first(job)
    first = len(host.disk.log)
    job.record_finding("soon")
    host.clock.advance(renewal_interval_s * 0.9)
    job.record_finding("still soon")
    assert written(host, first) == []
    host.clock.advance(renewal_interval_s * 0.2)
    job.set_cursor(1)
    assert written(host, first) == []
    job.record_error("late", "failed")
    assert "SUMMARY.md" in written(host, first)
    assert "late" in host.summary()


def test_a_slow_renewal_is_followed_by_a_long_pause(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that renewals take at most a twentieth of the run."""
    job = host.open()
    beyond_the_first(job)
    replace = SimDisk.replace

    def slow(disk: SimDisk, path: str, data: bytes, *, durable: bool) -> None:
        host.clock.advance(0.5)
        replace(disk, path, data, durable=durable)

    monkeypatch.setattr(SimDisk, "replace", slow)
    host.clock.advance(renewal_interval_s)
    began = host.clock.monotonic()
    job.record_finding("slow")
    took = host.clock.monotonic() - began
    assert took >= 0.5
    first = len(host.disk.log)
    host.clock.advance(renewal_share * took - 0.1)
    job.record_finding("too soon")
    assert written(host, first) == []
    host.clock.advance(0.2)
    job.record_finding("due")
    assert "SUMMARY.md" in written(host, first)


def test_state_json_follows_when_the_log_grew_by_as_much_as_its_own_size(host: SimHost) -> None:
    job = large(host)
    beyond_the_first(job)
    job.checkpoint()
    size = len(host.read("state.json"))
    before = len(host.read("findings.jsonl"))
    first = len(host.disk.log)
    number = 0
    while "state.json" not in written(host, first):
        number += 1
        host.clock.advance(renewal_interval_s * 1.5)
        job.record_finding(f"late-{number}", {"text": "x" * 500})
    grown = len(host.read("findings.jsonl")) - before
    assert size <= grown <= size + 700
    assert number > 5


def test_lines_about_errors_count_as_growth_as_well(host: SimHost) -> None:
    job = large(host)
    beyond_the_first(job)
    job.checkpoint()
    first = len(host.disk.log)
    for number in range(200):
        host.clock.advance(renewal_interval_s * 1.5)
        job.record_error(f"bad-{number}", "x" * 300)
        if "state.json" in written(host, first):
            break
    assert number < 199
    assert host.read(".recent.jsonl") == b""


def test_what_is_written_for_an_item_stays_in_proportion_to_its_line(host: SimHost) -> None:
    job = large(host)
    beyond_the_first(job)
    first = len(host.disk.log)
    before = len(host.read("findings.jsonl"))
    for number in range(5_000):
        host.clock.advance(0.001)
        job.record_finding(f"https://archive.example/{number:06d}", {"text": "x" * 100})
    grown = len(host.read("findings.jsonl")) - before
    total = sum(len(op.data) for op in host.disk.log[first:] if op.kind == "write")
    assert "state.json" in written(host, first)
    assert total <= 3 * grown


# Requests, the opening, and the end


def test_a_requested_checkpoint_writes_both_files(host: SimHost) -> None:
    job = large(host)
    beyond_the_first(job)
    job.record_finding("a")
    first = len(host.disk.log)
    job.checkpoint()
    assert written(host, first) == ["state.json", "SUMMARY.md"]
    assert item_hash("a") in host.state()["completed"]


def test_an_opening_renews_both_files_of_a_small_job_and_the_summary_of_any(
    host: SimHost,
) -> None:
    host.open().record_finding("a")
    host.kill()
    host.open()
    assert written(host, 0)[-2:] == ["state.json", "SUMMARY.md"]
    large(host)
    assert "SUMMARY.md" in written(host, 0)
    assert "state.json" not in written(host, 0)
    assert "Resumes: 3" in host.summary()
    assert host.state()["stats"]["resumes"] == 2


def test_resumes_of_a_large_job_are_counted_without_a_checkpoint(host: SimHost) -> None:
    large(host)
    for resumes in (2, 3, 4):
        host.kill()
        assert host.open().state["stats"]["resumes"] == resumes


def test_the_end_writes_what_a_large_job_has_not_written_yet(host: SimHost) -> None:
    job = large(host)
    beyond_the_first(job)
    job.record_finding("a")
    job.close()
    assert item_hash("a") in host.state()["completed"]
    assert "stopped" in host.summary()


# The cursor


def test_finishing_writes_each_file_once(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    first = len(host.disk.log)
    job.finish()
    assert written(host, first) == ["state.json", "SUMMARY.md"]
    assert "Status: finished" in host.summary()


def test_a_cursor_is_kept_by_the_next_renewal_and_before_the_summary_shows_it(
    host: SimHost,
) -> None:
    job = large(host)
    job.set_cursor({"page": 1})
    first = len(host.disk.log)
    job.record_finding("a")
    steps = host.write_steps(first)
    kept = steps.index("write .recent.jsonl")
    assert steps[kept + 1] == "sync_file .recent.jsonl"
    shown = next(n for n, step in enumerate(steps) if step.startswith("rename .SUMMARY.md"))
    assert steps.index("sync_file findings.jsonl") < kept < shown
    assert '{"page":1}' in host.summary()
    host.kill()
    assert host.open().cursor == {"page": 1}


def test_a_cursor_that_did_not_change_is_not_kept_again(host: SimHost) -> None:
    job = large(host)
    job.set_cursor({"page": 1})
    job.record_finding("a")
    first = len(host.disk.log)
    job.record_finding("b")
    assert "write .recent.jsonl" not in host.write_steps(first)


def test_a_cursor_of_a_large_job_of_another_implementation_is_kept_too(host: SimHost) -> None:
    """Lines beside a state.json that does not number them would not count."""
    completed = {item_hash(str(n)): "" for n in range(400)}
    host.write("findings.jsonl", b"".join(line(str(n)) for n in range(400)))
    state = {"job": NAME, "version": 1, "completed": completed, "cursor": "old"}
    state["theirs"] = "x" * 500_000  # so that the log is a small part of it
    host.write("state.json", json.dumps(state).encode())
    job = host.open()
    assert "as_of" not in host.state()
    job.set_cursor("new")
    job.record_finding("a")
    host.kill()
    assert host.open().cursor == "new"


# state.json and .recent.jsonl


def test_state_json_is_safe_before_the_lines_it_includes_are_dropped(host: SimHost) -> None:
    job = host.open()
    first = len(host.disk.log)
    job.record_error("a", "failed")
    steps = host.write_steps(first)
    renamed = next(n for n, step in enumerate(steps) if step.startswith("rename .state.json"))
    assert steps[renamed + 1] == "sync_dir job"
    assert steps.index("truncate .recent.jsonl") > renamed + 1


def test_lines_that_state_json_includes_do_not_count_again(host: SimHost) -> None:
    job = host.open()
    job.record_error("a", "failed")
    job.record_error("a", "failed")
    job.reset_attempts()
    recent = host.state()["as_of"]["recent"]
    host.kill()
    entry = {"key": "a", "hash": item_hash("a"), "error": "x", "attempts": 2, "last_at": ""}
    lines = [{"n": recent - 1, "error": entry}, {"n": recent, "cursor": "old"}]
    host.write(".recent.jsonl", b"".join(json.dumps(one).encode() + b"\n" for one in lines))
    job = host.open()
    assert job.errors[0].attempts == 0
    assert job.cursor is None


def test_numbers_of_lines_go_on_for_ever(host: SimHost) -> None:
    seen = [0]
    for number in range(5):
        job = host.open()
        job.record_error(f"item-{number}", "failed")
        seen.append(host.state()["as_of"]["recent"])
        host.kill()
    assert seen == sorted(set(seen))


@pytest.mark.parametrize(
    "bad",
    [
        b"not json\n",
        b'{"n":"x"}\n',
        b"\xff\n",
        b'{"n":9,"error":{"key":"","hash":"","error":"","attempts":1,"last_at":""}}\n',
        b'{"n":10,"err',
    ],
)
def test_a_bad_line_there_is_told_and_the_others_count(host: SimHost, bad: bytes) -> None:
    job = large(host)
    job.record_error("a", "failed")
    host.kill()
    host.write(".recent.jsonl", host.read(".recent.jsonl") + bad)
    job = host.open()
    assert [(entry.key, entry.attempts) for entry in job.errors] == [("a", 1)]
    (notice,) = job.notices
    assert notice.what in {"bad_recent_line", "recent_torn"}
    assert bad.strip() not in host.read(".recent.jsonl")
    host.kill()
    assert host.open().notices == ()


def test_of_attempts_beside_a_state_of_another_implementation_more_count(host: SimHost) -> None:
    job = large(host)
    for key in ("a", "b", "done"):
        job.record_error(key, "failed")
        job.record_error(key, "failed")
    job.set_cursor("ours")
    job.record_finding("x")
    host.kill()
    theirs: dict[str, Any] = {**host.state(), "cursor": "theirs"}
    del theirs["as_of"]
    theirs["errors"] = [
        {"key": "a", "hash": item_hash("a"), "error": "theirs", "attempts": 5, "last_at": ""},
        {"key": "c", "hash": item_hash("c"), "error": "theirs", "attempts": 1, "last_at": ""},
    ]
    host.write("state.json", json.dumps(theirs).encode())
    host.write("findings.jsonl", host.read("findings.jsonl") + line("done"))
    job = host.open()
    attempts = {entry.key: entry.attempts for entry in job.errors}
    assert attempts == {"a": 5, "b": 2, "c": 1}
    assert job.cursor == "theirs"


def test_deleting_the_file_costs_attempts_and_cursor_and_no_finding(host: SimHost) -> None:
    job = large(host)
    job.record_error("a", "failed")
    job.record_finding("b")
    host.kill()
    host.remove(".recent.jsonl")
    job = host.open()
    assert job.errors == []
    assert job.is_done("b")


# What state.json says


def test_state_json_says_how_much_of_the_log_it_knows(host: SimHost) -> None:
    job = host.open()
    as_of = host.state()["as_of"]
    assert len(as_of.pop("state")) == 16
    assert as_of == {"offset": 0, "line_bytes": 0, "hash": "", "recent": 0}
    job.record_finding("a")
    last = host.read("findings.jsonl")
    as_of = host.state()["as_of"]
    assert (as_of["offset"], as_of["line_bytes"]) == (len(last), len(last))
    assert len(as_of["hash"]) == 16
    job.record_many([Finding("b", {}), Finding("c", {"n": 1})])
    log = host.read("findings.jsonl")
    as_of = host.state()["as_of"]
    assert as_of["offset"] == len(log)
    assert as_of["line_bytes"] == len(log.splitlines(keepends=True)[-1])


def test_what_somebody_else_appends_meanwhile_is_read_by_the_next_opening(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    host.disk.open_append(host.path("findings.jsonl")).append(line("theirs"))
    job.record_finding("b")
    job.close()
    job = host.open()
    assert [job.is_done(key) for key in ("a", "theirs", "b")] == [True] * 3
    assert job.notices == ()


def test_a_summary_that_cannot_be_written_is_an_error(host: SimHost) -> None:
    job = host.open()
    host.disk.fail(lambda op: "SUMMARY" in op.path, errno.ENOSPC)
    with pytest.raises(StorageError, match="disk_full"):
        job.record_finding("a")


def test_a_finding_that_cannot_be_shown_does_not_keep_a_job_from_opening(host: SimHost) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    raw = msgspec.json.encode({"_key": "deep"})[:-1] + b',"x":' + deep + b"}\n"
    odd = b'\xef\xbb\xbf{"x":NaN,"_key":"odd"}\r\n'
    half = b'{"x":"\\ud800","_key":"half"}\n'
    host.write("findings.jsonl", line("a") + odd + half + raw + line("b"))
    job = host.open()
    for key in ("a", "odd", "half", "b"):
        assert job.is_done(key)
        assert f'"{key}"' in host.summary()
