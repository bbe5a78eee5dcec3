"""Where a job may be: its directory, its name, and what may not stand in the place of its files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import RefusedError, UsageError
from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import encode_line
from perdure.jobs.status import job_errors, job_status
from perdure.service.jobs import name_of
from perdure.storage.disk import RealDisk

AT = "2026-11-30T11:43:57.755+00:00"


@pytest.mark.parametrize(
    "directory",
    ["", "a\0b", "\ud800", "caf\udce9", b"data", None, 7],
    ids=ascii,
)
def test_what_is_no_directory_is_refused_and_nothing_is_made(
    directory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="bad_directory") as caught:
        CheckpointedJob(directory, "docs")
    assert "the directory of the job" in caught.value.message
    assert os.listdir(tmp_path) == []


def test_the_current_directory_is_named_by_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    CheckpointedJob(".", "docs").close()
    assert "findings.jsonl" in os.listdir(tmp_path)


# In the place of its files


def link(path: Path) -> None:
    target = path.parent.parent / "elsewhere"
    target.write_bytes(b"not of this job\n")
    path.symlink_to(target)


KINDS: dict[str, Callable[[Path], None]] = {
    "a symbolic link": link,
    "a directory": Path.mkdir,
    "neither a file nor a directory": os.mkfifo,
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    directory = tmp_path / "job"
    with CheckpointedJob(directory, "docs") as made:
        made.record_finding("a")
    return directory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["findings.jsonl", "state.json", ".recent.jsonl", ".lock"])
def test_what_is_no_file_is_named_and_nothing_is_read_through_it(
    job: Path, name: str, kind: str
) -> None:
    (job / name).unlink(missing_ok=True)
    KINDS[kind](job / name)
    before = sorted(os.listdir(job))
    with pytest.raises(RefusedError, match=r"not_a_file|not_a_log") as caught:
        CheckpointedJob(job, "docs")
    assert f"{job / name} is {kind}" in caught.value.message
    assert caught.value.fix
    assert sorted(os.listdir(job)) == before
    report = verify_job(RealDisk(), str(job))
    what = {"findings.jsonl": "log", "state.json": "state"}.get(name, "file")
    told = [defect for defect in report.defects if f"is {kind}" in defect.message]
    assert [defect.what for defect in told] == [what]
    assert "elsewhere" not in str(report)
    assert report.counts["bad_lines"] == 0
    notices = job_status(RealDisk(), str(job))["notices"]
    assert any(f"is {kind}" in notice["message"] for notice in notices)
    assert job_errors(RealDisk(), str(job), limit=1)["total"] == 0
    if kind == "a directory":
        (job / name).rmdir()
    else:
        (job / name).unlink()
    CheckpointedJob(job, "docs").close()


@pytest.mark.parametrize(("name", "kind"), [("SUMMARY.md", "a directory"), (".torn", "a file")])
def test_what_only_some_starts_would_need_is_refused_by_all(
    job: Path, name: str, kind: str
) -> None:
    (job / name).unlink(missing_ok=True)
    if kind == "a directory":
        (job / name).mkdir()
    else:
        (job / name).write_bytes(b"")
    with pytest.raises(RefusedError, match="not_a_file"):
        CheckpointedJob(job, "docs")
    assert [defect.what for defect in verify_job(RealDisk(), str(job)).defects] == ["file"]


# Names in state.json


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines", "\x1b[31m"])
def test_a_state_json_with_no_proper_name_is_named_by_all(tmp_path: Path, name: str) -> None:
    (tmp_path / "findings.jsonl").write_bytes(encode_line("a", {}, AT)[1])
    text = json.dumps({"job": name, "completed": {}})
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(RefusedError, match="bad_state_name") as caught:
        CheckpointedJob(tmp_path, name_of(RealDisk(), str(tmp_path)))
    assert "state.json" in caught.value.message
    assert caught.value.message.isprintable()
    (defect,) = verify_job(RealDisk(), str(tmp_path)).defects
    assert defect.what == "state"
    assert "names the job" in defect.message
    assert defect.fix == caught.value.fix
    assert (tmp_path / "state.json").read_text() == text


def test_a_cursor_with_half_a_character_is_shown(tmp_path: Path) -> None:
    with CheckpointedJob(tmp_path / "job", "docs") as job:
        for number in range(400):
            job.record_finding(str(number))
    job = CheckpointedJob(tmp_path / "job", "docs")
    job.set_cursor("caf\udce9")
    job.record_finding("more")
    assert b"udce9" in (tmp_path / "job" / ".recent.jsonl").read_bytes()
    assert job_status(RealDisk(), str(tmp_path / "job"))["cursor"] == "caf\udce9"
    job.close()


@pytest.mark.parametrize("depth", [250, 900, 100_000])
def test_a_cursor_line_that_is_nested_too_deeply_is_skipped(tmp_path: Path, depth: int) -> None:
    CheckpointedJob(tmp_path / "job", "docs").close()
    line = b'{"n":9,"cursor":' + b"[" * depth + b"]" * depth + b"}\n"
    (tmp_path / "job" / ".recent.jsonl").write_bytes(line)
    told = job_status(RealDisk(), str(tmp_path / "job"))
    assert [notice["what"] for notice in told["notices"]] == ["bad_recent_line"]
    with CheckpointedJob(tmp_path / "job", "docs") as job:
        assert [notice.what for notice in job.notices] == ["bad_recent_line"]
    assert job.cursor is None


# Errors that cannot be told


class Mute:
    """An error whose text cannot be asked for."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_refused_and_the_job_goes_on(tmp_path: Path) -> None:
    with CheckpointedJob(tmp_path / "job", "docs") as job:
        with pytest.raises(UsageError, match="bad_error") as caught:
            job.record_error("a", Mute())  # type: ignore[arg-type]
        assert "Mute" in caught.value.message
        assert job.errors == []
        assert job.record_finding("b")
        assert job.record_error("a", "no answer") == 1
