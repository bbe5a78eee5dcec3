"""The examples of jobs, run as people run them: on real texts and a real service, and killed.

The service of ``examples/http-fetch`` says in a log of its own what it delivered, with a receipt
for each good answer; that is what the findings are held against.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integration.shell import PERDURE, Done, call, environment
from tests.integration.test_real_faults import until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
INDEX = EXAMPLES / "text-index"
FETCH = EXAMPLES / "http-fetch"
workers = 4

TEXTS = {
    "alpha.py": '#!/usr/bin/env python3\n"""Alpha, the first."""\n\nimport os\n',
    "beta/README": "Beta\n====\n\nIt's the second.",
    "beta/LICENSE": "",
    "beta/notes.rst": "\n\n.. note:: größer als 3\n",
    "gamma.txt": b"# Gamma\n\xff\xfe is no UTF-8\n",
    "gamma.bin": b"\0",
    "__pycache__/alpha.py": "",
}
INDEXED = {"root/alpha.py", "root/beta/LICENSE", "root/beta/notes.rst", "root/gamma.txt"}


def run(script: Path, *arguments: object) -> Done:
    line = [sys.executable, "-B", str(script), *map(str, arguments)]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def findings(job: Path) -> list[dict[str, Any]]:
    log = job / "findings.jsonl"
    return [json.loads(line) for line in log.read_bytes().split(b"\n") if line]


def count_lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def run_and_kill(line: list[str], log: Path, lines: int, **more: str) -> None:
    """Start it, and kill it once so many further items are recorded."""
    wanted = count_lines(log) + lines
    child = subprocess.Popen(
        line, env=environment(**more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: True if count_lines(log) >= wanted or child.poll() is not None else None)
    child.kill()
    assert child.wait() == -signal.SIGKILL, "it was over before it could be killed"


def check_verified(job: Path) -> None:
    verdict = call("job", "verify", str(job), "--json")
    assert verdict.code == 0, verdict
    counts = verdict.data["counts"]
    assert (counts["lost"], counts["duplicated"], counts["bad_lines"]) == (0, 0, 0)


# The index of texts


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        target = tmp_path / "texts" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path / "texts"


def test_index_says_what_is_in_each_text(tmp_path: Path, texts: Path) -> None:
    job = tmp_path / "job"
    done = run(INDEX / "index.py", job, "--root", texts)
    assert (done.code, done.err) == (0, "")
    assert f"{len(INDEXED)} texts are in the index, 0 could not be read" in done.out
    found = {finding["_key"]: finding for finding in findings(job)}
    assert set(found) == INDEXED
    alpha = found["root/alpha.py"]
    assert (alpha["title"], alpha["lines"], alpha["words"]) == ("Alpha, the first", 4, 9)
    assert found["root/beta/notes.rst"]["words"] == 3
    assert found["root/beta/LICENSE"]["title"] == ""
    words = json.loads((job / found["root/beta/notes.rst"]["words_in"]).read_bytes())
    assert words == {"note": 1, "größer": 1, "als": 1}
    assert run(INDEX / "check.py", job, "--root", texts).code == 0
    check_verified(job)


def test_index_goes_on_where_it_was_and_reads_nothing_again(tmp_path: Path, texts: Path) -> None:
    job = tmp_path / "job"
    assert run(INDEX / "index.py", job, "--root", texts).code == 0
    before = (job / "findings.jsonl").read_bytes()
    (texts / "alpha.py").write_text("changed since")
    (texts / "delta.md").write_text("# Delta\n")
    done = run(INDEX / "index.py", job, "--root", texts)
    assert done.out.startswith(f"{len(INDEXED)} texts are in the index\n")
    after = (job / "findings.jsonl").read_bytes()
    assert after.startswith(before)
    assert [finding["_key"] for finding in findings(job)][len(INDEXED) :] == ["root/delta.md"]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda lines: lines[1:], "not in the index"),
        (lambda lines: [*lines, lines[0]], "2 findings"),
        (lambda lines: [line.replace(b'"lines":4', b'"lines":5') for line in lines], "of lines"),
        (lambda lines: [line.replace(b"root/", b"other/") for line in lines], "not on disk"),
    ],
    ids=["lost", "twice", "wrong", "unknown"],
)
def test_check_of_the_index_notices_what_is_not_so(
    tmp_path: Path,
    texts: Path,
    damage: Callable[[list[bytes]], list[bytes]],
    complaint: str,
) -> None:
    job = tmp_path / "job"
    assert run(INDEX / "index.py", job, "--root", texts).code == 0
    lines = sorted((job / "findings.jsonl").read_bytes().splitlines(keepends=True))
    (job / "findings.jsonl").write_bytes(b"".join(damage(lines)))
    checked = run(INDEX / "check.py", job, "--root", texts)
    assert checked.code == 1
    assert complaint in checked.err


def test_text_that_cannot_be_read_is_listed_and_the_others_are_indexed(
    tmp_path: Path, texts: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    # Its side file cannot be written, because a directory has its name.
    key = "root/gamma.txt"
    with_path = [sys.executable, "-c", SIDE_FILE, str(job), key]
    side_file = subprocess.run(with_path, capture_output=True, text=True, check=True).stdout
    Path(side_file, "in the way").mkdir(parents=True)
    done = run(INDEX / "index.py", job, "--root", texts)
    assert done.code == 1
    assert key in done.err
    assert "1 could not be read" in done.out
    assert {finding["_key"] for finding in findings(job)} == INDEXED - {key}


SIDE_FILE = """
import sys
from perdure import CheckpointedJob
with CheckpointedJob(sys.argv[1], "texts") as job:
    print(job.artifact_path(sys.argv[2], ".json"), end="")
"""


def test_texts_of_this_python_are_indexed_once_each_however_often_it_is_killed(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job"
    line = [sys.executable, "-B", str(INDEX / "index.py"), str(job)]
    for lines in (40, 200, 1, 300):
        run_and_kill(line, job / "findings.jsonl", lines)
    done = run(INDEX / "index.py", job)
    assert done.code == 0, done.err
    again = run(INDEX / "check.py", job)
    assert again.code == 0, again.err
    assert int(again.out.split()[0]) > 500
    state = json.loads((job / "state.json").read_bytes())
    assert state["stats"]["processed"] == len(findings(job)) == len(state["completed"])
    assert state["stats"]["resumes"] == 4
    check_verified(job)


# The service


class Service(NamedTuple):
    """The service of the example, and what it believes to have delivered."""

    url: str
    log: Path

    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def good(self) -> dict[str, str]:
        """Receipt to page, of each good answer."""
        sent = [answer for answer in self.answers() if answer["status"] == 200]
        good = {answer["receipt"]: f"{self.url}/page/{answer['page']}" for answer in sent}
        assert len(good) == len(sent)
        return good

    def write_list(self, directory: Path, pages: int) -> Path:
        urls = directory / "urls.txt"
        urls.write_text("".join(f"{self.url}/page/{n}\n" for n in range(1, pages + 1)))
        return urls


@contextlib.contextmanager
def service(directory: Path, *options: object) -> Iterator[Service]:
    log = directory / "answers.jsonl"
    line = [sys.executable, "-B", str(FETCH / "server.py"), "--log", str(log)]
    child = subprocess.Popen([*line, *map(str, options)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield Service(child.stdout.readline().strip(), log)
    finally:
        child.terminate()
        child.communicate()


def command_line(job: Path, urls: Path, attempts: int) -> list[str]:
    options = ["--workers", str(workers), "--timeout", "1s", "--max-attempts", str(attempts)]
    command = [sys.executable, "-B", str(FETCH / "fetch.py"), "{}"]
    return ["map", "--job", str(job), "--items", str(urls), *options, "--", *command]


def harvest_line(job: Path, urls: Path) -> list[object]:
    return [job, urls, "--timeout", "0.5", "--wait", "0.05", "--workers", workers]


def check_fetched(service: Service, job: Path, pages: set[int], *, kills: int = 0) -> None:
    """Each page has one finding, with a receipt that the service gave out for it.

    Without a kill each good answer is in one finding. A kill loses the answers that were under
    way, at most one for each worker: they were asked for again.
    """
    found = findings(job)
    good = service.good()
    urls = Counter(finding["_key"] for finding in found)
    assert set(urls) == {f"{service.url}/page/{number}" for number in pages}
    assert set(urls.values()) == {1}
    receipts = {finding["receipt"]: finding["_key"] for finding in found}
    assert len(receipts) == len(found)
    assert receipts.items() <= good.items()
    assert len(good) - len(found) <= kills * workers
    check_verified(job)


def test_pages_are_fetched_by_a_command_with_retries_and_the_rest_is_queued(
    tmp_path: Path,
) -> None:
    pages, gone, patient = 17, [16, 17], [5, 15]  # the patient ones answer the third time
    job = tmp_path / "job"
    with service(tmp_path, "--pages", pages, "--gone", len(gone)) as found:

        def refusals() -> Counter[int]:
            return Counter(a["page"] for a in found.answers() if a["status"] in (410, 429))

        line = command_line(job, found.write_list(tmp_path, pages), attempts=2)
        done = call(*line)
        assert done.code == 1, done
        check_fetched(found, job, set(range(1, pages + 1)) - {*gone, *patient})
        assert refusals() == dict.fromkeys([*gone, *patient], 2)
        queued = call("job", "errors", str(job), "--json").data["errors"]
        reasons = {entry["key"].rpartition("/")[2]: entry["error"] for entry in queued}
        assert {entry["attempts"] for entry in queued} == {2}
        assert set(reasons) == {"5", "15", "16", "17"}
        assert "429 Too Many Requests" in reasons["5"]
        assert "410 Gone" in reasons["17"]

        assert call(*line).code == 1
        assert refusals() == dict.fromkeys([*gone, *patient], 2), "none was tried again"

        assert call("job", "retry", str(job)).code == 0
        assert call(*line).code == 1
        assert refusals() == {**dict.fromkeys(gone, 4), **dict.fromkeys(patient, 2)}
        check_fetched(found, job, set(range(1, pages + 1)) - {*gone})


def test_pages_fetched_by_a_command_that_is_killed_have_one_finding_each(tmp_path: Path) -> None:
    pages, kills = 24, (3, 1, 8)
    job = tmp_path / "job"
    with service(tmp_path, "--pages", pages) as found:
        line = command_line(job, found.write_list(tmp_path, pages), attempts=3)
        for lines in kills:
            run_and_kill([*PERDURE, *line], job / "findings.jsonl", lines)
        done = call(*line)
        assert done.code == 0, done
        check_fetched(found, job, set(range(1, pages + 1)), kills=len(kills))


def test_pages_fetched_with_the_library_have_each_good_answer_in_one_finding(
    tmp_path: Path,
) -> None:
    pages, gone = 40, 1
    job = tmp_path / "job"
    with service(tmp_path, "--pages", pages, "--gone", gone) as found:
        urls = found.write_list(tmp_path, pages)
        done = run(FETCH / "harvest.py", *harvest_line(job, urls))
        assert done.code == 1, done
        assert f"{pages - gone} pages fetched, 1 not" in done.out
        assert re.search(r"/page/40: .*410 Gone.* \(3 attempts\)", done.out)
        check_fetched(found, job, set(range(1, pages)))
        statuses = Counter(answer["status"] for answer in found.answers())
        assert statuses == {200: pages - gone, 500: 4, 429: 8, 410: 3}


def test_pages_fetched_with_the_library_that_is_killed_have_one_finding_each(
    tmp_path: Path,
) -> None:
    pages, kills = 60, (5, 1, 10, 15)
    job = tmp_path / "job"
    with service(tmp_path, "--pages", pages) as found:
        urls = found.write_list(tmp_path, pages)
        line = [sys.executable, "-B", str(FETCH / "harvest.py")]
        for lines in kills:
            run_and_kill([*line, *map(str, harvest_line(job, urls))], job / "findings.jsonl", lines)
        done = run(FETCH / "harvest.py", *harvest_line(job, urls))
        assert done.code == 0, done
        check_fetched(found, job, set(range(1, pages + 1)), kills=len(kills))


def test_pages_are_fetched_by_a_task_whose_batch_node_is_killed(tmp_path: Path) -> None:
    pages = 24
    job = tmp_path / "w/artifacts/pages"
    with service(tmp_path, "--pages", pages) as found:
        line = ["-C", str(tmp_path / "w"), "run", str(FETCH / "task.yaml"), "--jobs", str(workers)]
        for lines in (3, 10):
            run_and_kill([*PERDURE, *line], job / "findings.jsonl", lines, PAGES=found.url)
        done = call(*line, PAGES=found.url)
        assert done.code == 0, done
        check_fetched(found, job, set(range(1, pages + 1)), kills=2)
    totals = json.loads((tmp_path / "w/artifacts/totals/totals.json").read_bytes())
    assert totals["pages"] == pages
    assert call("-C", str(tmp_path / "w"), "verify").code == 0
