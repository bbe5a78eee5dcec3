"""The test vectors of the job contract, against perdure and against two other implementations.

The vectors were written by hand and have other readers: a red test here is a broken promise, not an
expectation to be renewed.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.foreign_jobs.programs import answer, call, each_program

from perdure.errors import RefusedError
from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import Line, item_hash, judge_line
from perdure.jobs.status import job_status
from perdure.storage.disk import RealDisk

VECTORS = Path(__file__).resolve().parents[2] / "docs" / "vectors"
CASES = sorted((VECTORS / "directories").iterdir())
LINES = json.loads((VECTORS / "lines.json").read_bytes())

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def expected(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "expected.json").read_bytes())
    return found


def bytes_of(line: dict[str, Any]) -> bytes:
    return bytes.fromhex(line["hex"]) if "hex" in line else line["text"].encode()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


@pytest.fixture
def copy(case: Path, tmp_path: Path) -> Path:
    """The files of a case in a place of their own."""
    return Path(shutil.copytree(case / "before", tmp_path / "job"))


def resumes_of(directory: Path) -> int:
    found: int = json.loads((directory / "state.json").read_bytes())["stats"]["resumes"]
    return found


def compare(wanted: dict[str, Any], found: dict[str, Any], directory: Path) -> None:
    """``found`` is what the program says of the job; what it wrote is in ``directory``."""
    found["log_bytes"] = (directory / "findings.jsonl").stat().st_size
    if "resumes" in wanted:
        found["resumes"] = resumes_of(directory)
    assert found == wanted


# Hashes and lines


def test_every_key_has_its_hash() -> None:
    keys = json.loads((VECTORS / "item_hash.json").read_bytes())
    assert len(keys) > 20
    assert [item_hash(entry["key"]) for entry in keys] == [entry["hash"] for entry in keys]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["about"])
def test_a_line_counts_as_what_it_is(line: dict[str, Any]) -> None:
    found = judge_line(bytes_of(line))
    if isinstance(found, Line):
        kind = "unprovable" if found.key is None else "finding"
        wanted = (line["is"], line["hash"], line.get("key"), line.get("forged", False))
        assert (kind, found.hash, found.key, found.forged) == wanted
    else:
        assert ("bad" if found else "blank") == line["is"]


@pytest.fixture
def log_of_all(tmp_path: Path) -> Path:
    (tmp_path / "findings.jsonl").write_bytes(b"".join(bytes_of(e) + b"\n" for e in LINES))
    return tmp_path


ALL_HASHES = sorted(line["hash"] for line in LINES if "hash" in line)
ALL_BAD = [number for number, line in enumerate(LINES, 1) if line["is"] == "bad"]


def test_all_those_lines_are_a_log(log_of_all: Path) -> None:
    report = verify_job(RealDisk(), str(log_of_all))
    assert [d.line for d in report.defects if d.what == "bad_line"] == ALL_BAD
    assert report.counts["items"] == len(ALL_HASHES) == len(set(ALL_HASHES))
    with CheckpointedJob(log_of_all, "vectors") as job:
        assert sorted(job.state["completed"]) == ALL_HASHES
        # What could not be read is kept: none of it is dropped silently.
        kept = b"".join(path.read_bytes() for path in (log_of_all / ".torn").iterdir())
    assert all(bytes_of(LINES[number - 1]) in kept for number in ALL_BAD)


@each_program
def test_all_those_lines_are_a_log_for_others(program: str, log_of_all: Path) -> None:
    done = call(program, "open", log_of_all, "vectors")
    assert json.loads(done.stdout)["completed"] == ALL_HASHES
    assert [int(number) for number in re.findall(r"line (\d+), byte", done.stderr)] == ALL_BAD


# Directories


def test_the_cases_cover_what_a_job_may_look_like() -> None:
    verdicts = [expected(case)["verify"] for case in CASES]
    told = {entry["what"] for v in verdicts for entry in (*v["defects"], *v["notices"])}
    assert {"lost", "duplicate", "bad_line", "forged", "state", "no_log"} <= told
    assert {"torn_tail", "no_newline", "unprovable", "state_behind", "stale_error"} <= told
    assert {v["exit_code"] for v in verdicts} == {0, 1}


@each_case
def test_a_case_is_opened_as_it_says(case: Path, copy: Path) -> None:
    wanted = expected(case).get("open_by_perdure", expected(case)["open"])
    before = contents(copy)
    if "refused" in wanted:
        with pytest.raises(RefusedError):
            CheckpointedJob(copy, "vectors")
        assert contents(copy) == before
        return
    with CheckpointedJob(copy, "vectors") as job:
        names = ("key", "hash", "attempts")
        found = {
            "completed": sorted(job.state["completed"]),
            "cursor": job.cursor,
            "errors": [{name: entry[name] for name in names} for entry in job.errors],
        }
        compare(wanted, found, copy)
        # What is recorded next is a line of its own, whatever stood before it.
        assert job.record_finding("next", {"n": 1})
    last = (copy / "findings.jsonl").read_bytes()[wanted["log_bytes"] :]
    assert json.loads(last)["_key"] == "next"


@each_program
@each_case
def test_a_case_is_opened_by_others_as_it_says(program: str, case: Path, copy: Path) -> None:
    wanted = expected(case)["open"]
    before = contents(copy)
    if "refused" in wanted:
        assert call(program, "open", copy, "vectors").returncode
        assert contents(copy) == before
        return
    compare(wanted, answer(program, "open", copy, "vectors"), copy)


@each_case
def test_verify_finds_in_a_case_what_it_says(case: Path) -> None:
    wanted = expected(case)["verify"]
    before = contents(case / "before")
    report = verify_job(RealDisk(), str(case / "before"))
    assert contents(case / "before") == before

    def places(entries: list[Any]) -> list[Any]:
        built = [msgspec.to_builtins(entry) for entry in entries]
        names = ("what", "line", "byte", "hash")
        return [{n: e[n] for n in names if e.get(n) is not None} for e in built]

    def by_text(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(entries, key=str)

    assert report.exit_code == wanted["exit_code"]
    assert report.counts == wanted["counts"]
    assert by_text(places(report.defects)) == by_text(wanted["defects"])
    notices = [{n: v for n, v in e.items() if n != "hash"} for e in wanted["notices"]]
    assert by_text(places(report.notices)) == by_text(notices)
    assert all(entry.message and entry.fix for entry in (*report.defects, *report.notices))


@each_case
def test_status_counts_in_a_case_what_opening_it_would(case: Path) -> None:
    wanted = expected(case)
    status = job_status(RealDisk(), str(case / "before"))
    counts = wanted["verify"]["counts"]
    assert status["stats"]["processed"] == counts["completed"]
    assert status["stats"]["failed"] == counts["errors"]
    if "refused" not in wanted["open"]:
        opened = wanted.get("open_by_perdure", wanted["open"])
        assert status["cursor"] == opened["cursor"]


@each_case
def test_opening_leaves_only_what_a_person_has_to_settle(case: Path, copy: Path) -> None:
    if "refused" in expected(case)["open"]:
        return
    CheckpointedJob(copy, "vectors").close()
    report = verify_job(RealDisk(), str(copy))
    assert {defect.what for defect in report.defects} <= {"lost", "duplicate", "forged"}
    found = {defect["what"] for defect in expected(case)["verify"]["defects"]}
    assert {defect.what for defect in report.defects} == found - {"bad_line", "state", "no_log"}
    assert {n.what for n in report.notices} <= {"unprovable", "set_aside", "state_aside"}
