"""``perdure map`` and ``perdure job`` as people start, watch, stop and repeat them.

Killing it at random, with its disk full or its directory taken, is in ``test_job_faults``.
"""

import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shell import PERDURE, Done, call, environment, finish, start
from tests.integration.test_cli_run import open_the_gate, read_all, wait_until_at_work
from tests.integration.test_real_faults import mounted, until
from tests.tidy.test_start_up import DEAR, loaded_by

# Each says on a line of its own in `ran` that it ran.
TELL = 'echo "$1" >> ran'
WAIT = "echo at work > at-work; echo x > gate; echo done"


def items(directory: Path, *names: str, file: str = "items.txt") -> str:
    (directory / file).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return file


def shell(script: str) -> list[str]:
    """A command that finds its item in $1."""
    return ["--", "sh", "-c", script, "sh", "{}"]


def run_map(directory: Path, *arguments: str, **more: str) -> Done:
    return call("map", "--job", "job", *arguments, cwd=str(directory), **more)


def findings(directory: Path, job: str = "job") -> list[dict[str, Any]]:
    log = directory / job / "findings.jsonl"
    return [json.loads(line) for line in log.read_bytes().split(b"\n") if line.strip()]


def keys(directory: Path) -> list[str]:
    return sorted(finding["_key"] for finding in findings(directory))


def ran(directory: Path) -> Counter[str]:
    """How often each item was started."""
    return Counter((directory / "ran").read_text(encoding="utf-8").splitlines())


def verified(directory: Path, expected: Sequence[str]) -> None:
    """Each of the items has one finding, and the job is proved."""
    verdict = call("job", "verify", "job", "--json", cwd=str(directory))
    assert verdict.code == 0, verdict.out
    assert (verdict.data["counts"]["lost"], verdict.data["counts"]["duplicated"]) == (0, 0)
    assert keys(directory) == sorted(expected)


def texts(done: Done) -> list[str]:
    """What it printed, without the time of day."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in done.out.splitlines()]


# Items, each once


def test_three_hundred_items_are_done_once_and_not_again(tmp_path: Path) -> None:
    names = [f"item-{number}" for number in range(300)]
    line = ["--items", items(tmp_path, *names), "--workers", "8", *shell(f"{TELL}; echo done")]
    done = run_map(tmp_path, *line)
    assert (done.code, done.err) == (0, "")
    assert texts(done)[0] == "job job: 300 items, 0 done"
    assert "all done: 300 of 300 items done" in done.out
    verified(tmp_path, names)
    again = run_map(tmp_path, *line)
    assert again.code == 0
    assert texts(again)[:2] == [
        "job job: 300 items, 300 done",
        "all done: 300 of 300 items done (0 now)",
    ]
    assert ran(tmp_path) == dict.fromkeys(names, 1)
    state = json.loads((tmp_path / "job/state.json").read_bytes())
    assert state["job"] == "job"
    assert state["finished_at"]
    assert not any((tmp_path / "job/.run").iterdir())


JSONL = '{"id": "a", "n": 1}\n\n{"id": "b", "n": 2}\r\n{"id": 3, "n": 3}\n'
SOURCES = {
    "lines": ("words.txt", "\ufeffa\r\n\n  \nb c\n", ["{}"], [], {"a": "a", "b c": "b c"}),
    "jsonl": ("x.jsonl", JSONL, ["{}={n}"], ["--key", "id"], {"a": "a=1", "b": "b=2", "3": "3=3"}),
    "ndjson": ("x.ndjson", '{"id": "a"}\n', ["{id}"], ["--key", "id"], {"a": "a"}),
    "texts": ("x.jsonl", '"a"\n"b\\nc"\n', ["{}"], [], {"a": "a", "b\nc": "b\nc"}),
    "csv": ("x.csv", 'id,t\n1,"x, y"\n2,z\n', ["{t}"], [], {"1": "x, y", "2": "z"}),
    "column": ("x.csv", "n,id\n1,a\n2,b\n", ["{n}"], ["--key", "id"], {"a": 1, "b": 2}),
    "format": ("list", '{"id": "a"}\n', ["{}"], ["--format", "jsonl", "--key", "id"], {"a": "a"}),
    "dashes": ("words.txt", "-n\n--help\n", ["{}x"], [], {"-n": "-nx", "--help": "--helpx"}),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_items_come_from_files_of_every_format(tmp_path: Path, kind: str) -> None:
    name, text, words, options, outputs = SOURCES[kind]
    (tmp_path / name).write_bytes(text.encode())
    done = run_map(tmp_path, "--items", name, *options, "--", "printf", "%s", *words)
    assert done.code == 0, done
    assert {f["_key"]: f["output"] for f in findings(tmp_path)} == outputs


@pytest.mark.parametrize("kind", ["lines", "jsonl", "csv"])
def test_items_come_from_standard_input(tmp_path: Path, kind: str) -> None:
    _, text, words, options, outputs = SOURCES[kind]
    line = ["map", "--job", "job", "--items", "-", "--format", kind, *options, "--"]
    done = subprocess.run(
        [*PERDURE, *line, "printf", "%s", *words],
        input=text.encode(),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {f["_key"]: f["output"] for f in findings(tmp_path)} == outputs


def test_standard_input_that_is_closed_is_named(tmp_path: Path) -> None:
    line = [*PERDURE, "map", "--job", "job", "--items", "-", "--", "true"]
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&-', "sh", *line],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done
    assert "standard input is closed" in done.stderr
    assert not (tmp_path / "job").exists()


def test_files_of_a_pattern_are_items_and_those_of_the_job_are_not(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/a.txt", "sub/deep/c.txt", ".hidden.txt", "other.md"):
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    expected = {f"texts/{n}": n for n in ("b.txt", "sub/a.txt", "sub/deep/c.txt")}
    for pattern in ("texts/**/*.txt", "**/*.txt"):
        done = run_map(tmp_path, "--glob", pattern, "--", "cat", "{}")
        assert done.code == 0, done
        (tmp_path / "job/files").mkdir(exist_ok=True)
        (tmp_path / "job/files/x.txt").touch()
        assert {f["_key"]: f["output"] for f in findings(tmp_path)} == expected


def test_item_without_a_placeholder_comes_on_standard_input(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": "a", "t": "ä\\n"}\n', encoding="utf-8")
    assert run_map(tmp_path, "--items", "x.jsonl", "--key", "id", "--", "cat").code == 0
    (finding,) = findings(tmp_path)
    assert (finding["id"], finding["t"], finding["_key"]) == ("a", "ä\n", "a")
    assert finding["_item"], "so that a change of it is seen"
    line = ["--items", items(tmp_path, "x y", "{t}"), "--", "sed", "s/$/!/"]
    done = call("map", "--job", "job2", *line, cwd=str(tmp_path))
    assert done.code == 0, done
    assert [f["output"] for f in findings(tmp_path, "job2")] == ["x y!", "{t}!"]


def test_item_never_meets_a_shell_nor_becomes_two_arguments(tmp_path: Path) -> None:
    name = "a; touch 'made by' $(touch evil) `touch evil` \"x\" *"
    line = ["--items", items(tmp_path, name), "--", sys.executable, "-c"]
    done = run_map(tmp_path, *line, "import json, sys; print(json.dumps(sys.argv[1:]))", "{}")
    assert done.code == 0, done
    assert findings(tmp_path)[0]["output"] == [name]
    assert sorted(os.listdir(tmp_path)) == ["items.txt", "job"]


def test_output_becomes_the_finding(tmp_path: Path) -> None:
    printed = {
        '{"n": 1, "t": {"u": null}}': {"n": 1, "t": {"u": None}},
        "[1, 2]": {"output": [1, 2]},
        '"x"': {"output": "x"},
        "two\nlines\n\n": {"output": "two\nlines"},
        " \n": {},
    }
    (tmp_path / "x.jsonl").write_text(
        "".join(json.dumps({"id": str(n), "say": text}) + "\n" for n, text in enumerate(printed)),
        encoding="utf-8",
    )
    line = ["--items", "x.jsonl", "--key", "id", "--workers", "1", "--", "printf", "%s", "{say}"]
    assert run_map(tmp_path, *line).code == 0
    found = [{k: v for k, v in f.items() if k[0] != "_"} for f in findings(tmp_path)]
    assert found == list(printed.values())


def test_command_is_told_about_its_item(tmp_path: Path) -> None:
    script = (
        'cat > "$PERDURE_FILE" < /dev/null; printf "%s\\n" "$PERDURE_JOB" "$PERDURE_KEY" '
        '"$PERDURE_ATTEMPT" "$PERDURE_FILE" "$(pwd)" >&2; test "$PERDURE_ATTEMPT" = 2 '
        '|| { echo "attempt $PERDURE_ATTEMPT" >&2; exit 3; }; '
        'echo "[\\"$PERDURE_JOB\\", \\"$PERDURE_KEY\\", \\"$PERDURE_FILE\\", \\"$(pwd)\\"]"'
    )
    line = ["--items", items(tmp_path, "a/b"), "--retry-wait", "0.01s", *shell(script)]
    done = run_map(tmp_path, *line)
    assert done.code == 0, done
    assert "failed a/b: exit 3: attempt 1" in texts(done)
    job, key, file, where = findings(tmp_path)[0]["output"]
    assert (job, key, where) == (f"{tmp_path}/job", "a/b", str(tmp_path))
    assert Path(file).is_file()
    assert Path(file).is_relative_to(tmp_path / "job/files")


def test_workspace_of_another_command_plays_no_part(tmp_path: Path) -> None:
    line = ["map", "--job", "job", "--items", items(tmp_path, "a"), "--", "pwd"]
    done = call("-C", str(tmp_path / "elsewhere"), *line, cwd=str(tmp_path))
    assert done.code == 0, done
    assert findings(tmp_path)[0]["output"] == str(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["items.txt", "job"]


def test_job_keeps_its_name_when_its_directory_is_moved(tmp_path: Path) -> None:
    line = ["--items", items(tmp_path, "a"), "--", "true"]
    assert run_map(tmp_path, "--name", "nightly", *line).code == 0
    (tmp_path / "job").rename(tmp_path / "moved")
    done = call("map", "--job", "moved/", *line, cwd=str(tmp_path))
    assert texts(done)[0] == "job nightly: 1 item, 1 done"
    assert call("job", "status", "moved", cwd=str(tmp_path)).out.startswith("job nightly: finished")


# Failing


def test_failed_items_are_tried_again_within_their_limit_and_then_listed(tmp_path: Path) -> None:
    script = f'{TELL}; case "$1" in bad*) echo "no $1" >&2; exit 1;; esac'
    line = ["--items", items(tmp_path, "bad-1", "good", "bad-2"), "--retry-wait", "0.01s"]
    done = run_map(tmp_path, *line, *shell(script))
    assert done.code == 1
    assert ran(tmp_path) == {"bad-1": 3, "bad-2": 3, "good": 1}
    assert "some failed: 1 of 3 items done, 2 failed" in done.out
    assert "perdure job errors job" in done.out
    assert "perdure job retry job" in done.out
    again = run_map(tmp_path, *line, *shell(script))
    assert again.code == 1
    assert texts(again)[0] == "job job: 3 items, 1 done, 2 failed too often"
    assert ran(tmp_path)["bad-1"] == 3
    more = run_map(tmp_path, "--max-attempts", "4", *line, *shell(script))
    assert more.code == 1
    assert ran(tmp_path) == {"bad-1": 4, "bad-2": 4, "good": 1}
    assert call("job", "retry", "job", "bad-1", cwd=str(tmp_path)).code == 0
    assert run_map(tmp_path, *line, *shell(TELL)).code == 1
    assert keys(tmp_path) == ["bad-1", "good"]
    listed = call("job", "errors", "job", cwd=str(tmp_path)).out
    assert re.match(r"bad-2  \(4 attempts, .*\)\n  exit 1: no bad-2\n$", listed)


def test_item_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    script = 'test "$1" = quick || { sleep 600 & echo $! > pid; wait; }'
    line = ["--timeout", "0.5s", "--max-attempts", "1", *shell(script)]
    done = run_map(tmp_path, "--items", items(tmp_path, "slow", "quick"), *line)
    assert done.code == 1
    assert "failed slow: stopped at the time limit of 0.5 s" in texts(done)
    assert keys(tmp_path) == ["quick"]
    pid = int((tmp_path / "pid").read_text(encoding="ascii"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_of_many_failures_the_first_have_a_line_and_the_rest_is_counted(tmp_path: Path) -> None:
    names = [str(number) for number in range(50)]
    done = run_map(
        tmp_path, "--items", items(tmp_path, *names), "--max-attempts", "1", "--", "false", "{}"
    )
    assert done.code == 1
    lines = texts(done)
    assert sum(line.startswith("failed ") for line in lines) == 20
    assert any("more of this is not shown" in line for line in lines)
    assert "some failed: 0 of 50 items done, 50 failed" in lines
    page = call("job", "errors", "job", "--limit", "30", "--json", cwd=str(tmp_path)).data
    rest = call("job", "errors", "job", "--after", page["next"], "--json", cwd=str(tmp_path)).data
    assert page["total"] == 50
    listed = [entry["key"] for entry in [*page["errors"], *rest["errors"]]]
    assert sorted(listed) == sorted(names)
    assert rest["next"] is None


def test_field_that_is_reserved_is_an_error_of_its_item(tmp_path: Path) -> None:
    script = 'echo "{\\"$1\\": 1}"'
    line = ["--items", items(tmp_path, "_hash", "ok"), "--max-attempts", "1", *shell(script)]
    done = run_map(tmp_path, *line)
    assert done.code == 1
    assert "failed _hash: it printed the key '_hash', which is reserved" in texts(done)
    verified(tmp_path, ["ok"])


# Refused before anything is made


def not_executable(directory: Path) -> str:
    (directory / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
    return "./tool"


REFUSALS: dict[str, tuple[Callable[[Path], list[str]], int, str]] = {
    "bad line": (lambda d: ["--items", "x.jsonl", "--key", "id", "--", "true"], 2, "x.jsonl:2: "),
    "no field": (lambda d: ["--items", "x.jsonl", "--key", "no", "--", "true"], 2, "x.jsonl:1: "),
    "no UTF-8": (lambda d: ["--items", "bad.txt", "--", "true"], 2, "bad.txt:2: "),
    "no file": (lambda d: ["--items", "none.txt", "--", "true"], 3, "none.txt"),
    "no items": (lambda d: ["--", "true"], 2, "--items"),
    "no program": (lambda d: ["--items", "ok.txt", "--", "no-such"], 3, "'no-such'"),
    "no path": (lambda d: ["--items", "ok.txt", "--", "./no-such"], 3, "'./no-such'"),
    "not executable": (
        lambda d: ["--items", "ok.txt", "--", not_executable(d)], 3, "not executable",
    ),
    "no time": (lambda d: ["--items", "ok.txt", "--timeout", "x", "--", "true"], 2, "--timeout"),
    "no workers": (lambda d: ["--items", "ok.txt", "--workers", "0", "--", "true"], 2, "workers"),
    "a directory": (lambda d: ["--items", ".", "--", "true"], 2, "a directory"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_malformed_call_makes_no_job(tmp_path: Path, what: str) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": "a"}\n{"id"\n', encoding="utf-8")
    (tmp_path / "ok.txt").write_text("a\n", encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"a\n\xff\n")
    arguments, code, told = REFUSALS[what]
    done = run_map(tmp_path, *arguments(tmp_path))
    assert done.code == code, done
    assert told in done.err
    assert "fix: " in done.err
    assert not (tmp_path / "job").exists()
    assert done.out == ""


def test_directory_that_may_only_be_read_is_named(workspace: str) -> None:
    with mounted(f"{workspace}/small", "2m") as small:
        line = ["map", "--job", f"{small}/job", "--items", items(Path(workspace), "a"), "--"]
        assert call(*line, "true", cwd=workspace).code == 0
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        done = call(*line, "true", cwd=workspace)
        assert done.code == 7, done
        assert "read_only" in done.err
        assert f"{small}/job" in done.err
        retried = call("job", "retry", f"{small}/job", cwd=workspace)
        assert retried.code == 7


# Watched and stopped


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A directory in which the command WAIT waits for its gate to be opened."""
    os.mkfifo(tmp_path / "at-work")
    os.mkfifo(tmp_path / "gate")
    items(tmp_path, "a", "b", "c")
    return tmp_path


def start_waiting(directory: Path, *options: str) -> "subprocess.Popen[str]":
    line = ["--items", "items.txt", "--workers", "1", *options, *shell(WAIT)]
    child = start("map", "--job", "job", *line, cwd=str(directory))
    wait_until_at_work(directory)
    return child


def read_until(child: "subprocess.Popen[str]", words: str) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if words in line:
            return
    raise AssertionError(f"it never said {words!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_finishes_what_is_at_work(waiting: Path, number: signal.Signals) -> None:
    child = start_waiting(waiting)
    child.send_signal(number)
    read_until(child, f"finishing what is at work (signal {number.value})")
    open_the_gate(waiting)
    done = finish(child)
    assert done.code == 128 + number
    assert "interrupted: 1 of 3 items done" in done.out
    assert "run the same line again" in done.out
    verified(waiting, ["a"])
    done = run_map(waiting, "--items", "items.txt", *shell("true"))
    assert done.code == 0, done
    verified(waiting, ["a", "b", "c"])


def test_second_signal_kills_what_is_at_work_and_costs_no_attempt(waiting: Path) -> None:
    child = start_waiting(waiting)
    child.send_signal(signal.SIGINT)
    read_until(child, "finishing what is at work")
    child.send_signal(signal.SIGINT)
    done = finish(child)
    assert done.code == 130
    assert "killing what is at work (signal 2)" in done.out
    assert "interrupted: 0 of 3 items done" in done.out
    assert "stopped    1 at work, to be run again" in done.out
    assert call("job", "errors", "job", cwd=str(waiting)).out == "nothing has failed\n"
    assert findings(waiting) == []


def test_command_of_a_killed_run_is_stopped_by_the_next(waiting: Path) -> None:
    child = start_waiting(waiting)
    child.kill()
    finish(child)
    done = run_map(waiting, "--items", "items.txt", *shell("true"))
    assert done.code == 0, done
    assert any(
        text.startswith("stopped what a former run had left running") for text in texts(done)
    )
    verified(waiting, ["a", "b", "c"])


def test_second_process_is_told_who_has_the_job_while_looking_goes_on(waiting: Path) -> None:
    child = start_waiting(waiting)
    second = run_map(waiting, "--items", "items.txt", "--", "true")
    assert second.code == 5
    assert f"pid {child.pid}" in second.err
    assert call("job", "retry", "job", cwd=str(waiting)).code == 5
    status = call("job", "status", "job", cwd=str(waiting))
    assert status.out.startswith("job job: running, 0 done, none failed")
    assert f"run by     pid {child.pid} on" in status.out
    assert call("job", "verify", "job", cwd=str(waiting)).code == 0
    child.send_signal(signal.SIGINT)
    open_the_gate(waiting)
    assert finish(child).code == 130
    assert "run by     nobody now" in call("job", "status", "job", cwd=str(waiting)).out


def test_reader_that_goes_away_does_not_stop_it(waiting: Path) -> None:
    child = start_waiting(waiting)
    assert child.stdout is not None
    child.stdout.close()
    open_the_gate(waiting)
    for _ in "bc":
        wait_until_at_work(waiting)
        open_the_gate(waiting)
    assert child.wait(timeout=50) == 0
    assert child.stderr is not None
    assert child.stderr.read() == ""
    child.stderr.close()
    verified(waiting, ["a", "b", "c"])


def test_events_for_programs_are_a_line_of_json_each(tmp_path: Path) -> None:
    script = 'test "$1" = a || { echo "no $1" >&2; exit 1; }'
    names = items(tmp_path, "a", "b", "a")
    line = ["--items", names, "--workers", "1", "--max-attempts", "2", "--retry-wait", "0.01s"]
    done = run_map(tmp_path, *line, "--json", *shell(script))
    assert (done.code, done.err) == (1, "")
    *events, last = [json.loads(text) for text in done.out.splitlines()]
    kinds = [event["event"] for event in events if event["event"] != "progress"]
    assert kinds == ["opened", "failed", "retry_round", "failed", "incomplete"]
    assert all(event["wall_s"] >= 0 for event in events)
    failed = [event for event in events if event["event"] == "failed"]
    assert [(e["key"], e["error"], e["attempts"]) for e in failed] == [
        ("b", "exit 1: no b", 1),
        ("b", "exit 1: no b", 2),
    ]
    progress = [event for event in events if event["event"] == "progress"]
    assert progress[-1]["done"] + progress[-1]["failed"] == progress[-1]["total"] == 2
    assert last["schema_version"] == 1
    data = last["data"]
    assert (data["outcome"], data["exit_code"], data["signal"]) == ("incomplete", 1, 0)
    assert (data["total"], data["done"], data["failed"]) == (2, 1, 1)
    assert data["duplicates"] == [{"key": "a", "first": 1, "line": 3, "same": True}]
    assert data["summary"] == str(tmp_path / "job/SUMMARY.md")


def test_what_came_of_an_item_is_recorded_before_the_next_one_starts(tmp_path: Path) -> None:
    names = items(tmp_path, "a", "b", "c")
    count = 'cat "$PERDURE_JOB/findings.jsonl" 2>/dev/null | wc -l'
    assert run_map(tmp_path, "--items", names, "--workers", "1", *shell(count)).code == 0
    assert {line["_key"]: line["output"] for line in findings(tmp_path)} == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize("colour", [True, False])
def test_terminal_shows_a_bar_and_keeps_the_lines(tmp_path: Path, colour: bool) -> None:
    names = items(tmp_path, *(str(number) for number in range(40)))
    ours, theirs = pty.openpty()
    said = environment(TERM="xterm-256color", COLUMNS="100")
    said |= {} if colour else {"NO_COLOR": "1"}
    if colour:
        said.pop("NO_COLOR", None)
    line = ["--items", names, "--max-attempts", "1", *shell('test "$1" != 7')]
    child = subprocess.Popen(
        [*PERDURE, "map", "--job", "job", *line],
        cwd=tmp_path,
        env=said,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    text = read_all(ours)
    os.close(ours)
    assert child.wait(timeout=50) == 1, text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "failed 7: exit 1" in plain
    assert "━" in plain, "a bar"
    assert "39/40 done, 1 failed" in plain
    assert "some failed: 39 of 40 items done, 1 failed" in plain
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is back"
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", text)) is colour


# F18


def test_f18_killed_half_way_with_other_items_the_second_time_does_each_once(
    tmp_path: Path,
) -> None:
    workers, names = 4, [f"item-{number}" for number in range(60)]
    bad = [name for name in names if name.endswith("7")]
    script = f'{TELL}; case "$1" in *7) exit 1;; esac; echo "$2"'
    options = ["--workers", str(workers), "--retry-wait", "0.01s"]

    def line(source: str, run: str) -> list[str]:
        return ["--items", source, *options, *shell(script), run]

    first = start("map", "--job", "job", *line(items(tmp_path, *names), "first"), cwd=str(tmp_path))
    log = tmp_path / "job/findings.jsonl"
    until(lambda: True if log.exists() and log.read_bytes().count(b"\n") >= 30 else None)
    first.kill()
    finish(first)
    kept = log.read_bytes().rpartition(b"\n")[0] + b"\n"

    changed = ["brand-new", *reversed(names)]
    changed.insert(9, names[20])
    done = run_map(tmp_path, *line(items(tmp_path, *changed), "second"))
    assert done.code == 1, done
    assert f"duplicates {names[20]} in line " in done.out
    assert log.read_bytes().startswith(kept), "what the first run found is kept"
    verified(tmp_path, [name for name in changed if name not in bad and name != names[20]]
             + [names[20]])  # fmt: skip
    found = Counter(finding["output"] for finding in findings(tmp_path))
    assert found["first"] >= 30
    assert found["second"] == 61 - len(bad) - found["first"]
    twice = {name: count for name, count in ran(tmp_path).items() if count > 1 and name not in bad}
    # What was at work when it was killed, and what had ended and was being recorded.
    assert len(twice) <= 2 * workers
    assert set(twice.values()) <= {2}
    queued = call("job", "errors", "job", "--json", cwd=str(tmp_path)).data["errors"]
    assert {entry["key"]: entry["attempts"] for entry in queued} == dict.fromkeys(bad, 3)
    assert all(ran(tmp_path)[name] <= 4 for name in bad)


# The job commands


def test_job_of_another_program_is_looked_at_and_continued(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "findings.jsonl").write_text('{"n": 1, "_key": "a"}\n', encoding="utf-8")
    for command in ("status", "verify", "errors"):
        before = sorted(os.listdir(job))
        assert call("job", command, "job", cwd=str(tmp_path)).code == 0
        assert sorted(os.listdir(job)) == before, "looking writes nothing"
    done = run_map(tmp_path, "--items", items(tmp_path, "a", "b"), *shell(TELL))
    assert done.code == 0, done
    assert ran(tmp_path) == {"b": 1}
    verified(tmp_path, ["a", "b"])


def test_a_log_that_is_no_file_is_named(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "findings.jsonl").mkdir()
    for command, code in {"status": 0, "verify": 1, "errors": 0, "retry": 4}.items():
        done = call("job", command, "job", cwd=str(tmp_path))
        assert done.code == code, (command, done)
        if command != "errors":  # which looks at the queue only
            assert "findings.jsonl is a directory" in done.out + done.err


def test_text_of_items_cannot_move_the_cursor(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('"\\u001b[2J\\nb"\n', encoding="utf-8")
    script = "printf '\\033[31mred\\033[0m' >&2; exit 1"
    line = ["--items", "x.jsonl", "--max-attempts", "1", *shell(script)]
    for done in (
        run_map(tmp_path, *line),
        call("job", "errors", "job", cwd=str(tmp_path)),
        call("job", "status", "job", cwd=str(tmp_path)),
    ):
        assert "\x1b" not in done.out
    assert '"\\u001b[2J\\nb"' in call("job", "errors", "job", cwd=str(tmp_path)).out


def test_looking_at_a_job_loads_nothing_dear(tmp_path: Path) -> None:
    assert run_map(tmp_path, "--items", items(tmp_path, "a"), "--", "true").code == 0
    for command in ("status", "errors", "verify"):
        loaded = loaded_by("job", command, str(tmp_path / "job"))
        assert loaded & DEAR == set(), command


def test_executable_of_the_user_is_found_beside_the_items(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    shutil.copy("/bin/echo", tool)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    done = run_map(tmp_path, "--items", items(tmp_path, "a"), "--", "./tool", "{}")
    assert done.code == 0, done
    assert findings(tmp_path)[0]["output"] == "a"
