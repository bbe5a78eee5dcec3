"""Proving a job: each kind of defect is named with its place and its cure, and nothing is touched.

The cases that other languages share are in docs/vectors (tests/conformance/test_job_vectors.py).
"""

import errno
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.sim_host import our_state

from perdure.errors import NotFoundError, StorageError
from perdure.jobs import log_check
from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import encode_line, item_hash
from perdure.jobs.log_check import log_lines
from perdure.jobs.records import AsOf
from perdure.jobs.report import JobReport, told_max
from perdure.jobs.scan import group_bytes_max
from perdure.jobs.status import job_errors, job_status
from perdure.testing import SimDisk, sim_world

JOB = "/data/jobs/docs"
AT = "2026-11-30T11:43:57.755+00:00"
LONG = "x" * (group_bytes_max // 4)


def line(key: str, **payload: Any) -> bytes:
    return encode_line(key, payload, AT)[1]


def state(*keys: str, errors: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "job": "docs",
        "version": 1,
        "started_at": AT,
        "updated_at": AT,
        "cursor": None,
        "completed": {item_hash(key): AT for key in keys},
        "errors": errors or [],
        "stats": {"processed": len(keys), "failed": len(errors or []), "resumes": 0},
        "finished_at": None,
        **fields,
    }


def entry(key: str, **fields: Any) -> dict[str, Any]:
    known = {"key": key, "hash": item_hash(key), "error": "no", "attempts": 1, "last_at": AT}
    return known | fields


def job(log: bytes | None, state: dict[str, Any] | None, **files: bytes) -> SimDisk:
    disk = SimDisk()
    if log is not None:
        disk.write(f"{JOB}/findings.jsonl", log)
    if state is not None:
        disk.write(f"{JOB}/state.json", json.dumps(state).encode())
    for name, data in {"SUMMARY.md": b"# Job\n", **files}.items():
        disk.write(f"{JOB}/{name}", data)
    return disk


def defects(report: JobReport) -> list[str]:
    return [defect.what for defect in report.defects]


def notices(report: JobReport) -> list[str]:
    return [notice.what for notice in report.notices]


# A job that holds


def test_a_job_of_ours_holds_while_it_is_open_and_after() -> None:
    world = sim_world()
    with CheckpointedJob(JOB, "docs", world=world) as running:
        for number in range(300):
            running.record_finding(f"k{number}", {"n": number})
        running.record_error("bad", "no")
        report = verify_job(world.disk, JOB)
        assert report.ok
        assert (report.counts["items"], report.counts["errors"]) == (300, 1)
        assert notices(report) == ["state_behind"]
        assert running.record_finding("more"), "nobody took the job away"
        running.finish()
    report = verify_job(world.disk, JOB)
    assert (report.ok, report.job, report.exit_code) == (True, "docs", 0)
    assert (report.defects, report.notices) == ([], [])
    assert report.counts["completed"] == report.counts["lines"] == 301


def test_verifying_changes_nothing() -> None:
    disk = job(line("a") + b"{torn", state("a", "lost", errors=[{}]))
    before, steps = disk.tree(), len(disk.log)
    assert not verify_job(disk, JOB).ok
    assert disk.tree() == before
    assert len(disk.log) == steps


@pytest.mark.parametrize("there", [None, f"{JOB}/.lock", f"{JOB}/notes.txt", JOB])
def test_a_directory_without_any_of_the_three_files_is_no_job(there: str | None) -> None:
    disk = SimDisk()
    if there is not None:
        disk.write(there, b"")
    with pytest.raises(NotFoundError, match="holds no job") as refused:
        verify_job(disk, JOB)
    assert (refused.value.exit_code, refused.value.code) == (3, "no_job")


def test_a_job_that_has_not_begun_holds() -> None:
    report = verify_job(job(None, None), JOB)
    assert report.ok
    assert sorted(notices(report)) == ["no_log", "no_state"]
    assert set(report.counts.values()) == {0}
    assert verify_job(job(b"", state()), JOB).notices == []


def test_a_file_that_may_not_be_read_is_an_error_that_asks_for_the_right_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = job(line("a"), state("a"))
    read_chunks = SimDisk.read_chunks

    def refused(disk: SimDisk, path: str, *rest: int, **more: int) -> Iterator[bytes]:
        if path.endswith("findings.jsonl"):
            raise StorageError.from_os(OSError(errno.EACCES, "denied"), path, "Reading")
        return read_chunks(disk, path, *rest, **more)

    monkeypatch.setattr(SimDisk, "read_chunks", refused)
    for call in (verify_job, job_status, partial(job_errors, limit=1)):
        with pytest.raises(StorageError, match="permission_denied") as caught:
            call(disk, JOB)
        assert "read access" in caught.value.fix


@pytest.mark.parametrize(
    "data",
    [
        b'{"job":"docs","completed":{},"cursor":' + b"[" * 100_000,
        b'{"job":"docs","completed":{},"cursor":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"job":"docs","completed":{},"errors":' + b"[" * 100_000,
        b'{"job":"docs","completed":' + b"[" * 100_000,
    ],
)
def test_a_state_that_is_nested_too_deeply_is_a_defect(data: bytes) -> None:
    disk = job(line("a"), None)
    disk.write(f"{JOB}/state.json", data)
    assert defects(verify_job(disk, JOB)) == ["state"]
    assert job_status(disk, JOB)["stats"]["processed"] == 1


# Lines


def test_of_two_lines_for_one_item_both_are_named() -> None:
    log = line("a") + line("b") + b"\n" + line("c") + line("b", n=2) + line("b", n=3)
    report = verify_job(job(log, state("a", "b", "c")), JOB)
    assert (report.counts["duplicated"], report.counts["items"]) == (2, 3)
    first, second = report.defects
    assert first.message == 'line 5 is for the same item as line 2: "b".'
    assert (first.line, first.key, first.hash) == (5, "b", item_hash("b"))
    assert first.byte == log.index(b'{"n":2')
    assert second.message.startswith("line 6 is for the same item as line 2")
    assert "line 5 or line 2" in first.fix


def test_a_thousand_bad_lines_are_counted_and_a_hundred_told() -> None:
    log = b"bad\n" * 1_000 + line("a") * 300 + b"bad\n" + line("b")
    claimed = [f"lost{number}" for number in range(200)]
    report = verify_job(job(log, state("a", *claimed)), JOB)
    assert report.counts["bad_lines"] == 1_001
    assert report.counts["duplicated"] == 299
    assert report.counts["lost"] == 200
    for what in ("bad_line", "duplicate", "lost"):
        assert defects(report).count(what) == told_max
    assert report.defects[0].line == 1


def test_the_cure_of_a_bad_line_says_whether_the_next_start_clears_it() -> None:
    log = b"old\n" + line("a", t=LONG) + line("b", t=LONG) + line("c", t=LONG * 2)
    log += b"recent\n" + line("d")
    old, recent = verify_job(job(log, state("a", "b", "c", "d")), JOB).defects
    assert (old.line, old.byte, recent.line) == (1, 0, 5)
    assert "sed -n 1p" in old.fix
    assert "Start the job" in recent.fix


def test_only_what_follows_the_last_finding_is_a_torn_tail() -> None:
    log = line("a") + b"bad\n" + line("b") + b"bad\n\nworse\n\0\0\0"
    report = verify_job(job(log, state("a", "b")), JOB)
    assert defects(report) == ["bad_line"]
    (torn,) = report.notices
    assert (torn.what, torn.line, torn.byte) == ("torn_tail", 4, len(log) - 14)
    assert report.counts["torn_bytes"] == 14
    assert "line 4, byte" in torn.message


def test_a_last_line_without_newline_counts_when_its_key_proves_it_whole() -> None:
    report = verify_job(job(line("a") + line("b")[:-1], state("a")), JOB)
    assert (report.ok, report.counts["items"], report.counts["torn_bytes"]) == (True, 2, 0)
    assert "no_newline" in notices(report)
    hash_only = json.dumps({"_hash": item_hash("b")}).encode()
    report = verify_job(job(line("a") + hash_only, state("a")), JOB)
    assert (report.ok, report.counts["items"]) == (True, 1)
    assert report.counts["torn_bytes"] == len(hash_only)


def test_a_forged_hash_tells_the_right_one() -> None:
    forged = line("a").replace(item_hash("a").encode(), item_hash("b").encode())
    (defect,) = verify_job(job(forged, state("a")), JOB).defects
    assert (defect.what, defect.line, defect.key) == ("forged", 1, "a")
    assert item_hash("a") in defect.fix


def test_text_of_others_stays_inside_its_sentence() -> None:
    key = 'x"\n# not a heading\r\u2028`rm -rf`' + "y" * 500
    report = verify_job(job(line(key) * 2, state(errors=[entry(key)])), JOB)
    assert report.defects[0].key == key
    for found in (*report.defects, *report.notices):
        assert len(found.message) < 200
        assert len(found.message.splitlines()) == 1


def test_a_line_longer_than_any_finding_is_bad_and_not_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_check, "line_bytes_max", 1_000)
    log = line("a") + line("b", t=LONG) + line("c")
    report = verify_job(job(log, state("a", "c")), JOB)
    (defect,) = report.defects
    assert (defect.what, defect.line) == ("bad_line", 2)
    assert "longer than 1000 bytes" in defect.message
    kept = [piece.data for piece in log_lines(log[n : n + 100] for n in range(0, len(log), 100))]
    assert max(map(len, kept)) <= 1_100


@given(
    st.lists(st.sampled_from([b"", b"a", b"bcd", b"\r", b"\xe2\x80\xa8", b"ef" * 20])),
    st.integers(1, 7),
    st.booleans(),
)
def test_lines_do_not_depend_on_how_the_file_is_cut_into_pieces(
    texts: list[bytes], size: int, is_ended: bool
) -> None:
    data = b"\n".join(texts) + (b"\n" if is_ended else b"")
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = list(log_lines(pieces))
    whole = data.split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert [entry.data for entry in found] == whole
    assert [entry.number for entry in found] == list(range(1, len(whole) + 1))
    assert all(data[e.byte : e.byte + e.size_bytes] == e.data for e in found)
    assert [e.ended for e in found] == [data[e.byte + e.size_bytes :][:1] == b"\n" for e in found]


# state.json


def test_what_state_json_claims_and_no_line_proves_is_lost() -> None:
    disk = job(line("a"), state("a", "b"))
    report = verify_job(disk, JOB)
    (defect,) = report.defects
    assert (defect.what, defect.hash, defect.line) == ("lost", item_hash("b"), None)
    assert f"perdure job retry {JOB} --lost" in defect.fix
    assert (report.counts["completed"], report.counts["items"]) == (2, 1)


def test_the_command_that_cures_a_loss_can_be_pasted() -> None:
    disk = SimDisk()
    disk.write("/my jobs/state.json", json.dumps(state("a")).encode())
    report = verify_job(disk, "/my jobs")
    assert "perdure job retry '/my jobs' --lost" in report.defects[1].fix


def test_state_json_that_cannot_be_read_hides_no_defect_of_the_log() -> None:
    disk = job(line("a") * 2, None)
    disk.write(f"{JOB}/state.json", b'{"job":"docs","completed":{"0123')
    report = verify_job(disk, JOB)
    assert defects(report) == ["state", "duplicate"]
    assert report.job is None
    assert "state_behind" not in notices(report)


@pytest.mark.parametrize(
    ("layout", "fields"),
    [
        ("as a program of others writes it", {}),
        ("with a list of hashes", {"completed": [item_hash("a"), item_hash("b")]}),
    ],
)
def test_any_layout_of_state_json_is_compared(layout: str, fields: dict[str, Any]) -> None:
    report = verify_job(job(line("a"), state("a", "b", **fields)), JOB)
    assert defects(report) == ["lost"], layout


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (["x"], "is no mapping"),
        ({"attempts": 1}, "has no good key"),
        (entry("x") | {"key": ""}, "has no good key"),
        (entry("x", hash=item_hash("y")), "has another hash"),
        (entry("x", attempts="2"), "does not count its attempts"),
        (entry("x", attempts=True), "does not count its attempts"),
        (entry("x", error=None), "does not say in texts"),
        (entry("w"), "is of the same item as an earlier one"),
    ],
    ids=str,
)
def test_an_entry_of_the_error_queue_is_named_with_its_fault(bad: Any, words: str) -> None:
    report = verify_job(job(line("a"), state("a", errors=[entry("w"), bad])), JOB)
    assert not report.ok
    told = [defect.message for defect in report.defects if defect.what == "error_entry"]
    assert len(told) == 1
    assert told[0].startswith("entry 2 of the error queue")
    assert words in told[0]


def test_an_entry_for_an_item_that_is_done_is_only_a_notice() -> None:
    report = verify_job(job(line("a"), state("a", errors=[entry("a"), entry("b")])), JOB)
    assert (report.ok, report.counts["errors"]) == (True, 1)
    assert notices(report) == ["stale_error"]


@pytest.mark.parametrize("offset", [5, 10_000])
def test_a_position_that_the_log_does_not_have_is_a_notice(offset: int) -> None:
    disk = job(line("a"), None)
    known = our_state(AsOf(offset, 3, "0" * 16, 0), {item_hash("a"): AT})
    disk.write(f"{JOB}/state.json", known)
    report = verify_job(disk, JOB)
    assert (report.ok, notices(report)) == (True, ["as_of"])
    disk.write(f"{JOB}/state.json", known.replace(b'"page":7', b'"page":8'))
    report = verify_job(disk, JOB)
    assert (report.ok, notices(report)) == (True, ["as_of"])
    assert "changed" in report.notices[0].message
    assert "reads the whole log" in report.notices[0].fix


@pytest.mark.parametrize("version", [1.5, 10**400])
def test_a_later_version_is_told_as_it_is_and_not_at_any_length(version: float) -> None:
    (defect,) = verify_job(job(line("a"), state("a", version=version)), JOB).defects
    assert f"has version {str(version)[:3]}" in defect.message
    assert len(defect.message) < 100


# The rest of the directory


def test_what_crashes_left_beside_the_files_is_told() -> None:
    disk = job(line("a"), state("a"))
    for name in (
        ".state.json.tmp-7-0",
        ".torn/x",
        ".torn/y",
        "state.json.corrupt-20261130T114357Z",
    ):
        disk.write(f"{JOB}/{name}", b"...")
    report = verify_job(disk, JOB)
    assert report.ok
    assert sorted(notices(report)) == ["set_aside", "state_aside", "temp_file"]
    assert any("2 pieces" in notice.message for notice in report.notices)


# Somebody is writing


class Watched:
    """A disk whose reader is interrupted by others, before each piece of a file."""

    def __init__(self, disk: SimDisk, between: Callable[[str], None]) -> None:
        self.disk = disk
        self.between = between

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        self.between(path)
        for piece in self.disk.read_chunks(path, 4_096, offset):
            yield piece
            self.between(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


def test_a_job_that_is_being_written_raises_no_false_alarm() -> None:
    world = sim_world()
    assert isinstance(world.disk, SimDisk)
    with CheckpointedJob(JOB, "docs", world=world) as running:
        numbers = iter(range(10_000))

        def go_on(path: str) -> None:
            """One more item and one more failure, and all files renewed."""
            number = next(numbers)
            running.record_finding(f"k{number}", {"n": number})
            running.record_error(f"bad{number}", "no")
            if number < 400:  # else the log would grow as fast as it is read
                running.checkpoint()

        for number in range(300):
            go_on(str(number))
        report = verify_job(Watched(world.disk, go_on), JOB)  # type: ignore[arg-type]
    assert next(numbers) > 103, "it was written meanwhile"
    assert (report.ok, report.defects) == (True, [])
    assert report.counts["items"] > 100
    assert set(notices(report)) <= {"state_behind"}


def test_a_log_that_grows_as_fast_as_it_is_read_is_read_to_an_end() -> None:
    disk = job(line("k") * 2, state("k"))
    numbers = count()

    def append(path: str) -> None:
        if path.endswith("findings.jsonl"):
            file = disk.open_append(path)
            file.append(b"".join(line(f"k{next(numbers)}") for _ in range(50)))
            file.close()

    report = verify_job(Watched(disk, append), JOB)  # type: ignore[arg-type]
    assert report.counts["items"] < 200
    assert defects(report) == ["duplicate"]


def test_half_a_line_that_is_being_written_is_no_defect() -> None:
    disk = job(line("a"), state("a"))

    def append(path: str) -> None:
        if path.endswith("state.json"):
            file = disk.open_append(f"{JOB}/findings.jsonl")
            file.append(line("b")[:10])
            file.close()

    report = verify_job(Watched(disk, append), JOB)  # type: ignore[arg-type]
    assert (report.ok, notices(report)) == (True, ["torn_tail"])


def test_temporary_files_of_a_living_process_are_not_told() -> None:
    disk = job(line("a"), state("a"))
    disk.write(f"{JOB}/.SUMMARY.md.tmp-7-0", b"...")

    def renew(path: str) -> None:
        disk.unlink(f"{JOB}/.SUMMARY.md.tmp-7-0", durable=False)
        disk.write(f"{JOB}/.SUMMARY.md.tmp-7-1", b"...")

    report = verify_job(Watched(disk, renew), JOB)  # type: ignore[arg-type]
    assert report.notices == []


def test_memory_is_about_a_hundred_bytes_an_item() -> None:
    items = 40_000
    log = b"".join(line(f"https://example.org/{number}", t="x" * 100) for number in range(items))
    disk = job(log, state(*(f"https://example.org/{number}" for number in range(items))))
    tracemalloc.start()
    try:
        report = verify_job(disk, JOB)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (report.ok, report.counts["items"]) == (True, items)
    # One piece of the log and its lines besides, and once the bytes of state.json.
    assert peak_bytes < 120 * items + (8 << 20)
