"""A state.json that others changed, and lines of the log that no crash explains."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.jobs.sim_host import AT, ROOT, SimHost, line, our_state

from perdure.jobs import lines, repair, scan
from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.log import line_mark
from perdure.jobs.records import AsOf, Finding, damaged_max
from perdure.jobs.report import JobReport
from perdure.jobs.scan import group_bytes_max
from perdure.jobs.status import job_status
from perdure.service.jobs import retry_items
from perdure.storage.disk import RealDisk

FAR = line("far", text="x" * 5_000) + line("away", text="x" * group_bytes_max)
"""So much that no crash explains what stands before it."""


def verified(host: SimHost) -> JobReport:
    return verify_job(host.disk, ROOT)


def whats(job: CheckpointedJob) -> list[tuple[str, int | None]]:
    return [(notice.what, notice.line) for notice in job.notices]


def told(host: SimHost) -> list[tuple[str, int | None]]:
    """The damage that ``status`` names."""
    notices = job_status(host.disk, ROOT, processes=host.world.processes)["notices"]
    return [(one["what"], one["line"]) for one in notices]


def proven(log: bytes, completed: dict[str, str], **fields: Any) -> bytes:
    """A state.json of ours that knows all of the log."""
    last = log.splitlines(keepends=True)[-1]
    return our_state(AsOf(len(log), len(last), line_mark(last), 0), completed, **fields)


# A state.json that was changed


def removed(data: bytes) -> bytes:
    fields = json.loads(data)
    del fields["completed"][item_hash("b")]
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "an entry less": removed,
    "another digit": lambda data: data.replace(item_hash("b")[:8].encode(), b"01234567", 1),
    "a second name": lambda data: data.replace(b'"errors":', b'"completed":{},"errors":', 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_items_do_not_run_again_because_somebody_changed_state_json(
    host: SimHost, change: Callable[[bytes], bytes]
) -> None:
    job = host.open()
    for key in "abc":
        job.record_finding(key)
    job.close()
    host.kill()
    before = host.read("state.json")
    host.write("state.json", change(before))
    assert host.read("state.json") != before
    report = verified(host)
    assert "as_of" in {notice.what for notice in report.notices}
    job = host.open()
    assert [job.is_done(key) for key in "abc"] == [True] * 3
    assert not job.record_finding("b")
    job.close()
    assert verified(host).counts["duplicated"] == 0


def test_a_program_that_keeps_fields_does_not_take_cursor_and_attempts_back(host: SimHost) -> None:
    host.open().record_many([Finding(f"item-{n}", {}) for n in range(400)])
    host.jobs[-1].close()
    host.kill()
    job = host.open()
    job.set_cursor("ours")
    job.record_error("x", "failed")
    host.kill()
    assert b'"cursor":"ours"' in host.read(".recent.jsonl")
    theirs = host.state()
    theirs["cursor"] = "theirs, further on"
    error = {"key": "x", "hash": item_hash("x"), "error": "no", "attempts": 3, "last_at": AT}
    theirs["errors"] = [error]
    theirs["stats"]["resumes"] = 9
    host.write("state.json", json.dumps(theirs).encode())
    job = host.open()
    assert job.cursor == "theirs, further on"
    assert [(entry.key, entry.attempts) for entry in job.errors] == [("x", 3)]
    assert job.state["stats"]["resumes"] == 10


def test_a_line_that_a_proven_state_json_lacks_is_a_defect_with_a_cure(host: SimHost) -> None:
    log = line("a") + line("b") + line("c")
    host.write("findings.jsonl", log + line("d"))
    host.write("state.json", proven(log, {item_hash("a"): AT, item_hash("c"): AT}))
    report = verified(host)
    (defect,) = report.defects
    assert (defect.what, defect.line, defect.key) == ("state", 2, "b")
    assert defect.byte == len(line("a"))
    assert f"perdure job retry {ROOT} --lost" in defect.fix
    assert "state_behind" in {notice.what for notice in report.notices}
    job = host.open()
    assert not job.is_done("b")
    assert job.forget([]) == 0
    assert job.is_done("b")
    job.close()
    assert verified(host).ok


# Damage


def damaged(host: SimHost) -> CheckpointedJob:
    """A job whose log has a bad line far from its end, met by an opening that read all of it."""
    host.write("findings.jsonl", line("a") + b"not a finding\n" + line("b") + FAR)
    job = host.open()
    assert whats(job) == [("bad_line", 2)]
    return job


def test_damage_is_told_at_every_start_until_it_is_dealt_with(host: SimHost) -> None:
    job = damaged(host)
    for number in range(3):
        job.record_finding(f"more-{number}")
        job.close()
        host.kill()
        assert told(host) == [("bad_line", 2)]
        job = host.open()
        assert whats(job) == [("bad_line", 2)]
        assert "line 2, byte" in host.summary()
        assert "not JSON" in job.notices[0].message
        assert "--lost" in job.notices[0].fix
        assert job.state["stats"]["processed"] == 5 + number
    assert host.state()["as_of"]["damaged"] == [[2, len(line("a"))]]


def test_new_damage_is_told_beside_what_was_known(host: SimHost) -> None:
    damaged(host).close()
    host.kill()
    more = b"worse\n" + line("c") + line("longer", text="x" * group_bytes_max)
    host.write("findings.jsonl", host.read("findings.jsonl") + more)
    assert told(host) == [("bad_line", 2), ("bad_line", 6)]
    for _ in range(2):
        job = host.open()
        assert whats(job) == [("bad_line", 2), ("bad_line", 6)]
        job.close()
        host.kill()
    assert host.state()["as_of"]["damaged_count"] == 2


@pytest.mark.parametrize("cure", [line("x"), b" " * 13 + b"\n"], ids=["corrected", "blanked"])
def test_a_line_that_a_person_put_right_is_not_told_and_counts(host: SimHost, cure: bytes) -> None:
    bad = b"?" * (len(cure) - 1) + b"\n"
    host.write("findings.jsonl", line("a") + bad + line("b") + FAR)
    host.open().close()
    host.kill()
    host.write("findings.jsonl", host.read("findings.jsonl").replace(bad, cure))
    assert told(host) == []
    job = host.open()
    assert (job.notices, job.is_done("x")) == ((), cure == line("x"))
    job.close()
    assert "damaged" not in host.state()["as_of"]
    assert verified(host).ok


def test_only_the_first_damaged_lines_are_named_and_all_are_counted(host: SimHost) -> None:
    count = damaged_max + 5
    host.write("findings.jsonl", line("a") + b"bad\n" * count + FAR)
    host.open().close()
    host.kill()
    job = host.open()
    assert [what for what, _ in whats(job)] == ["bad_line"] * damaged_max + ["bad_lines"]
    assert "5 more" in job.notices[-1].message


def test_asked_for_damage_is_set_aside_and_its_items_run_again(host: SimHost) -> None:
    job = damaged(host)
    log = host.read("findings.jsonl")
    first = len(host.disk.log)
    assert job.set_damage_aside() == 1
    steps = host.write_steps(first)
    kept = next(n for n, step in enumerate(steps) if step.startswith("rename"))
    assert steps[kept + 1] == "sync_dir .torn"
    blanked = steps.index("write findings.jsonl")
    assert kept + 1 < blanked < steps.index("sync_file findings.jsonl")
    assert host.read("findings.jsonl") == log.replace(b"not a finding", b" " * 13)
    (name,) = host.disk.list_dir(host.path(".torn"))
    assert host.read(f".torn/{name}") == b"not a finding\n"
    assert whats(job) == [("set_aside", None)]
    assert "1 lines" in host.summary()
    first = len(host.disk.log)
    assert job.set_damage_aside() == 0
    assert host.write_steps(first) == []
    job.close()
    host.kill()
    assert host.open().notices == ()
    assert verified(host).ok


def test_damage_is_set_aside_and_what_it_held_forgotten_by_one_pass(host: SimHost) -> None:
    job = host.open()
    for key in ("a", "b", "c"):
        job.record_finding(key)
    job.close()
    host.kill()
    host.write("findings.jsonl", host.read("findings.jsonl").replace(b'"b"', b'"b}'))
    job = host.open()
    assert job.set_damage_aside(forget=list(job.state["completed"])) == 1
    assert [job.is_done(key) for key in ("a", "b", "c")] == [True, False, True]
    job.record_finding("b")
    job.close()
    host.kill()
    assert host.open().notices == ()
    assert verified(host).ok


def test_damage_to_a_line_that_counted_is_cured_completely(host: SimHost) -> None:
    """As a flipped bit before as_of: the opening does not read there, and touches nothing."""
    job = host.open()
    for key in ("a", "b", "c"):
        job.record_finding(key)
    job.close()
    host.kill()
    log = host.read("findings.jsonl").replace(b'"b"', b'"b}')
    host.write("findings.jsonl", log)
    bad, lost = verified(host).defects
    assert (bad.what, bad.line, lost.what) == ("bad_line", 2, "lost")
    assert f"perdure job retry {ROOT} --lost" in bad.fix
    job = host.open()
    assert host.read("findings.jsonl") == log
    assert job.set_damage_aside() == 1
    assert job.forget(job.state["completed"]) == 1
    assert not job.is_done("b")
    assert job.record_finding("b")
    job.close()
    assert verified(host).ok


def test_a_line_that_the_next_start_clears_says_so(host: SimHost) -> None:
    host.write("findings.jsonl", line("a") + b"bad\n" + line("b"))
    (defect,) = verified(host).defects
    assert "Start the job" in defect.fix
    host.open()
    assert verified(host).ok


def test_damage_here_and_there_is_kept_in_few_files(host: SimHost) -> None:
    log = (b"bad\n" + line("a")) * 50 + FAR + b"worse\n" + FAR
    host.write("findings.jsonl", log)
    job = host.open()
    assert job.set_damage_aside() == 51
    names = host.disk.list_dir(host.path(".torn"))
    kept = {int(name.rpartition("-")[2]): host.read(f".torn/{name}") for name in names}
    assert sorted(kept) == [0, log.index(b"worse")]
    assert all(log[start:].startswith(data) for start, data in kept.items())
    assert len(host.read("findings.jsonl")) == len(log)


def test_a_line_longer_than_any_finding_is_set_aside_in_pieces(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lines, repair, scan):
        monkeypatch.setattr(module, "line_bytes_max", 1_000)
    long = b"y" * 2_500
    log = line("a") + long + b"\n" + line("b")
    host.write("findings.jsonl", log + FAR)
    monkeypatch.setattr(scan, "group_bytes_max", 100)
    job = host.open()
    assert job.set_damage_aside() == 2, "the long line of FAR is too long here as well"
    names = host.disk.list_dir(host.path(".torn"))
    kept = {int(name.rpartition("-")[2]): host.read(f".torn/{name}") for name in names}
    assert all(len(data) <= 1_000 for data in kept.values())
    assert b"".join(kept[start] for start in sorted(kept)).startswith(long)
    host.kill()
    assert host.open().notices == ()


def test_retry_of_lost_items_sets_damage_aside_and_says_how_much(tmp_path: Path) -> None:
    with CheckpointedJob(tmp_path / "job", "docs") as job:
        for key in "abc":
            job.record_finding(key)
    log = tmp_path / "job" / "findings.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"b"', b'"b}'))
    answer = retry_items("job", str(tmp_path), [], every=False, lost=True)
    assert (answer["set_aside"], answer["forgotten"], answer["reset"]) == (1, 1, None)
    assert retry_items("job", str(tmp_path), [], every=True, lost=False)["set_aside"] is None
    with CheckpointedJob(tmp_path / "job", "docs") as job:
        assert [job.is_done(key) for key in "abc"] == [True, False, True]
        job.record_finding("b")
    assert verify_job(RealDisk(), str(tmp_path / "job")).ok
