"""A command for each of many items, with real processes, signals and kills."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.crash.tally import chance_for

from perdure.control.item_outcome import output_bytes_max

REPOSITORY = Path(__file__).resolve().parents[2]

Event = dict[str, Any]


def python_environment() -> dict[str, str]:
    """So that ``-m tests.integration.map_child`` is found from anywhere."""
    paths = [os.environ.get("PYTHONPATH", ""), str(REPOSITORY), str(REPOSITORY / "src")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class Child:
    """One run of a map in a process of its own."""

    def __init__(self, words: list[str], cwd: Path) -> None:
        self.events: list[Event] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.map_child", *words],
            cwd=cwd,
            stdout=subprocess.PIPE,
            env=python_environment(),
            text=True,
        )

    def wait_for(self, is_it: Callable[[Event], bool]) -> Event:
        """Read events up to the first one of that kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if is_it(self.events[-1]):
                return self.events[-1]
        raise AssertionError(f"it did not happen; what did: {self.events}")

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Read all events; the exit code, negative after a signal that ended it."""
        out, _ = self.process.communicate()
        self.events += [json.loads(line) for line in out.splitlines() if line.endswith("}")]
        return self.process.returncode

    def of_kind(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event["event"] in kinds]


class Scene:
    """A directory with items, and the runs over them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.children: list[Child] = []

    def start(self, items: list[str] | str, *words: str, **options: Any) -> Child:
        """Start a map; a text as command is a shell line with the item as its first argument."""
        name = "items.txt"
        if isinstance(items, str):
            name = items
        else:
            (self.root / name).write_text("".join(f"{item}\n" for item in items))
        command = list(words) if len(words) > 1 else ["sh", "-c", words[0], "sh", "{}"]
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        self.children.append(Child(["job", name, *flags, "--", *command], self.root))
        return self.children[-1]

    def map(self, items: list[str] | str, *words: str, **options: Any) -> Child:
        """Run a map to its end."""
        child = self.start(items, *words, **options)
        child.end()
        return child

    def fifo(self, name: str) -> Path:
        os.mkfifo(self.root / name)
        return self.root / name

    def log(self) -> bytes:
        return (self.root / "job" / "findings.jsonl").read_bytes()

    def findings(self) -> dict[str, dict[str, Any]]:
        """The findings by key; each key has one, and nothing else stands in the log."""
        lines = [json.loads(line) for line in self.log().splitlines()]
        by_key = {line["_key"]: line for line in lines}
        assert len(by_key) == len(lines)
        return by_key

    def findings_so_far(self) -> list[str]:
        """Keys of the whole lines of the log; a kill may have left half a line behind them."""
        return [json.loads(line)["_key"] for line in self.log().splitlines(True) if b"\n" in line]

    def errors(self) -> dict[str, tuple[str, int]]:
        state = json.loads((self.root / "job" / "state.json").read_bytes())
        return {e["key"]: (e["error"], e["attempts"]) for e in state["errors"]}

    def is_finished(self) -> bool:
        state = json.loads((self.root / "job" / "state.json").read_bytes())
        return state["finished_at"] is not None

    def at_work(self) -> list[str]:
        """Processes that run in this scene's directory."""
        found = []
        for process in psutil.process_iter(["cwd", "cmdline", "status"]):
            seen = process.info
            if seen["cwd"] == str(self.root) and seen["status"] != psutil.STATUS_ZOMBIE:
                found.append(" ".join(seen["cmdline"] or []))
        return found


@pytest.fixture
def scene(workspace: str) -> Iterator[Scene]:
    scene = Scene(Path(workspace))
    yield scene
    for child in scene.children:
        child.process.kill()  # harmless when it has ended
        child.process.wait()
        assert child.process.stdout is not None
        child.process.stdout.close()
    left = scene.at_work()
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == workspace:
            process.kill()
    assert left == []


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# What a command is given, and what becomes of what it prints


def test_command_gets_its_item_in_its_words_and_its_variables(scene: Scene) -> None:
    line = 'printf "%s\\n" "$1" "$PERDURE_KEY" "$PERDURE_ATTEMPT" "$PERDURE_JOB" "$PWD"; cat'
    child = scene.map(["a b; $(touch oops)"], line)
    assert child.process.returncode == 0
    key = "a b; $(touch oops)"
    given = [key, key, "1", str(scene.root / "job"), str(scene.root)]
    assert scene.findings()[key]["output"].split("\n") == given
    assert not (scene.root / "oops").exists()
    assert scene.is_finished()
    assert os.listdir(scene.root / "job" / ".run") == []
    assert not (scene.root / "job" / "files").exists()


def test_item_without_a_place_in_the_command_comes_on_standard_input(scene: Scene) -> None:
    big = "x" * 200_000  # more than a pipe holds
    (scene.root / "in.jsonl").write_text(
        json.dumps({"id": 1, "t": "gr\u00fcn\u2028"}) + "\n" + json.dumps({"id": 2, "t": big})
    )
    scene.map("in.jsonl", "sh", "-c", "cat", key="id")
    found = scene.findings()
    assert (found["1"]["id"], found["1"]["t"], found["2"]["t"]) == (1, "gr\u00fcn\u2028", big)
    assert len(found["1"]["_item"]) == 16


def test_fields_of_a_table_are_words(scene: Scene) -> None:
    (scene.root / "in.csv").write_text('city,country\n"Turin","it, maybe"\n')
    scene.map("in.csv", "echo", "{city}", "{country}", "{mayor}")
    assert scene.findings()["Turin"]["output"] == "Turin it, maybe {mayor}"


def test_file_of_an_item_is_where_the_finding_says(scene: Scene) -> None:
    scene.map(["a"], 'echo content > "$PERDURE_FILE"; printf %s "$PERDURE_FILE"')
    path = Path(scene.findings()["a"]["output"])
    assert path.read_text() == "content\n"
    assert scene.root / "job" / "files" in path.parents


def test_reasons_of_failures_name_the_last_line_of_standard_error(scene: Scene) -> None:
    line = """
    case $1 in
      code) echo first >&2; echo ' the last ' >&2; echo >&2; exit 3;;
      long) printf '%0600d' 0 >&2; exit 1;;
      silent) echo not on stderr; exit 4;;
      signal) kill -9 $$;;
      reserved) echo '{"_key": "x"}';;
      latin) printf '\\377';;
      good) echo fine >&2; echo '{"n": 1}';;
    esac"""
    keys = ["code", "long", "silent", "signal", "reserved", "latin", "good"]
    child = scene.map(keys, line, attempts=1)
    assert child.process.returncode == 1
    assert {key: error for key, (error, _) in scene.errors().items()} == {
        "code": "exit 3: the last",
        "long": "exit 1: " + "0" * 500,
        "silent": "exit 4",
        "signal": "ended by signal 9 (SIGKILL)",
        "reserved": "it printed the key '_key', which is reserved",
        "latin": "its output is not UTF-8",
    }
    assert scene.findings()["good"]["n"] == 1
    told = {event["key"]: event["error"] for event in child.of_kind("failed")}
    assert told == {key: error for key, (error, _) in scene.errors().items()}


def test_program_that_cannot_start_is_told_before_or_as_an_error_of_its_item(scene: Scene) -> None:
    child = scene.map(["a"], "no-such-program", "{}")
    assert child.process.returncode == 3
    assert child.events[-1]["code"] == "command_not_found"
    assert not (scene.root / "job").exists()
    child = scene.map(["./no-such-program", "echo"], "{}", "x", attempts=1)
    assert "could not be started" in scene.errors()["./no-such-program"][0]
    assert scene.findings()["echo"]["output"] == "x"


def test_more_output_than_a_finding_may_have_is_an_error(scene: Scene) -> None:
    size = output_bytes_max + 1
    scene.map(["much"], f"head -c {size} /dev/zero | tr '\\0' x", attempts=1)
    assert scene.errors()["much"][0] == "it printed more than 16,777,216 bytes"
    assert os.listdir(scene.root / "job" / ".run") == []


def test_command_that_prints_too_much_is_stopped_before_it_ends(scene: Scene) -> None:
    never = scene.fifo("never")
    line = f"head -c {output_bytes_max + 1} /dev/zero; cat {never}"
    scene.map(["endless"], line, attempts=1)
    assert scene.errors()["endless"] == ("it printed more than 16,777,216 bytes", 1)


def test_time_limit_stops_the_whole_item_and_costs_an_attempt(scene: Scene) -> None:
    line = '[ "$1" = fast ] || { sleep 3600 & sleep 3600; }'
    child = scene.map(["slow", "fast"], line, attempts=2, timeout=0.3)
    assert child.process.returncode == 1
    assert scene.errors() == {"slow": ("stopped at the time limit of 0.3 s", 2)}
    assert list(scene.findings()) == ["fast"]
    assert not scene.is_finished()


# Processes that a command leaves behind (F13)


def test_leftover_in_a_session_of_its_own_is_found_named_and_stopped(scene: Scene) -> None:
    child = scene.map(["a", "b"], "setsid sleep 3600 & echo done", workers=2)
    assert child.process.returncode == 0
    assert {key: found["output"] for key, found in scene.findings().items()} == {
        "a": "done",
        "b": "done",
    }
    events = child.of_kind("leftovers")
    assert {event["key"] for event in events} == {"a", "b"}
    processes = [process for event in events for process in event["processes"]]
    assert [name for _, name in processes] == ["sleep", "sleep"]
    assert not any(is_running(pid) for pid, _ in processes)


def test_leftover_that_hides_in_every_way_is_stopped_at_the_end_of_the_run(scene: Scene) -> None:
    # It leaves its session, its environment and its parent: only adoption proves where it is from.
    hide = 'mkfifo "at-$PERDURE_KEY"; env -i "$(command -v setsid)" "$(command -v sh)" -c '
    program = '\'echo hidden > "$0"; exec "$1" 3600\' '
    wait = '"at-$PERDURE_KEY" "$(command -v sleep)" & read hidden < "at-$PERDURE_KEY"; echo $!'
    child = scene.map(["a", "b"], hide + program + wait, workers=1)
    assert child.process.returncode == 0
    [event] = child.of_kind("leftovers")
    assert event["key"] is None
    pids = {found["output"] for found in scene.findings().values()}
    assert {pid for pid, _ in event["processes"]} == pids
    assert not any(is_running(pid) for pid in pids)


def test_output_that_something_left_running_was_still_writing_is_no_finding(scene: Scene) -> None:
    child = scene.map(["a"], "(while :; do echo more; done) & exit 0", attempts=1)
    assert child.process.returncode == 1
    assert "its output is not whole: what it left running (sh)" in scene.errors()["a"][0]
    assert scene.log() == b""


# F16: output that was cut off

PRODUCER = """
i=0
while [ $i -lt 300 ]; do
  i=$((i+1)); echo "line $i"
  [ $i = 30 ] && ! [ -e first ] && { touch first; echo $$ > ready; cat never; }
done
exit 0"""


def test_f16_output_of_a_killed_producer_is_never_a_finding(scene: Scene) -> None:
    ready = scene.fifo("ready")
    scene.fifo("never")
    child = scene.start(["p"], PRODUCER)
    producer = int(ready.read_text())
    assert len(next((scene.root / "job" / ".run").glob("*.out")).read_text().split("\n")) == 31
    os.kill(producer, signal.SIGKILL)
    assert child.end() == 0
    [failed] = child.of_kind("failed")
    assert failed["error"].startswith("ended by signal 9 (SIGKILL)")
    assert len(scene.findings()["p"]["output"].split("\n")) == 300


def test_f16_output_of_a_producer_whose_run_was_killed_is_never_a_finding(scene: Scene) -> None:
    ready = scene.fifo("ready")
    scene.fifo("never")
    child = scene.start(["p"], PRODUCER)
    producer = int(ready.read_text())
    child.kill()
    assert is_running(producer), "it is no part of the process that was killed"
    child = scene.map(["p"], PRODUCER)
    [stopped] = child.of_kind("orphans_stopped")
    assert producer in [pid for pid, _ in stopped["processes"]]
    assert not is_running(producer)
    assert child.of_kind("failed") == [], "an interruption is no attempt"
    assert len(scene.findings()["p"]["output"].split("\n")) == 300
    assert os.listdir(scene.root / "job" / ".run") == []


def test_orphan_that_was_never_recorded_is_stopped_too(scene: Scene) -> None:
    ready = scene.fifo("ready")
    never = scene.fifo("never")
    child = scene.start(["p"], f"echo $$ > {ready}; cat {never}")
    producer = int(ready.read_text())
    child.kill()
    # As if the kill had come between the start of the command and its record.
    for record in (scene.root / "job" / ".run").glob("*.[0-9]*.json"):
        record.unlink()
    child = scene.map(["p"], "true")
    assert producer in [pid for pid, _ in child.of_kind("orphans_stopped")[0]["processes"]]
    assert not is_running(producer)


# F18: killed in the middle, and another list of items

TWENTY = """
echo "$1 $PERDURE_ATTEMPT" >> started
case $1 in
  3) [ -e open ];;
  5) exit 1;;
  1[1-9]|20) [ -e open ] || cat gate;;
esac && echo "made of $1 at attempt $PERDURE_ATTEMPT" """


def test_f18_killed_batch_goes_on_with_changed_items_and_keeps_what_it_has(scene: Scene) -> None:
    scene.fifo("gate")
    numbers = [str(n) for n in range(1, 21)]
    child = scene.start(numbers, TWENTY, workers=2, wait=30)
    child.wait_for(lambda event: (event.get("done"), event.get("running")) == (8, 2))
    child.kill()
    first = scene.log()
    assert set(scene.findings()) == set(numbers[:10]) - {"3", "5"}
    (scene.root / "open").touch()
    before = Counter((scene.root / "started").read_text().split("\n")[:-1])
    assert len(before) == 12
    items = ["7", *reversed(numbers[:15]), "new", *numbers[15:], "7"]
    child = scene.map(items, TWENTY, workers=2)
    assert child.process.returncode == 1
    assert scene.log().startswith(first)
    assert set(scene.findings()) == ({*numbers, "new"} - {"5"})
    assert scene.errors() == {"5": ("exit 1", 3)}
    after = Counter((scene.root / "started").read_text().split("\n")[:-1]) - before
    again = {"3 2": 1, "5 2": 1, "5 3": 1}
    rest = {f"{n} 1": 1 for n in [*range(11, 21), "new"]}
    assert after == {**again, **rest}
    report = child.events[-1]
    assert (report["outcome"], report["skipped"], report["processed"]) == ("incomplete", 8, 12)
    assert report["duplicate_count"] == 2
    assert {(d["key"], d["line"]) for d in report["duplicates"]} == {("7", 10), ("7", 23)}
    assert child.of_kind("opened")[0]["queued"] == 2


# Signals


def lines_from(fifo: Path, count: int) -> list[str]:
    """So many lines that several processes write, one after the other."""
    descriptor = os.open(fifo, os.O_RDWR)  # never at its end
    try:
        text = b""
        while text.count(b"\n") < count:
            text += os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    return sorted(text.decode().split())


@pytest.fixture
def two_at_work(scene: Scene) -> Child:
    """Four items, of which the commands of two wait to be let go."""
    ready = scene.fifo("ready")
    for key in "abcd":
        scene.fifo(f"gate-{key}")
    child = scene.start(list("abcd"), f"echo $1 > {ready}; cat gate-$1", workers=2)
    assert lines_from(ready, 2) == ["a", "b"]
    return child


def interrupt(child: Child, number: int, *, at_once: bool) -> None:
    child.process.send_signal(number)
    told = child.wait_for(lambda event: event["event"] == "stopping")
    assert (told["signal"], told["at_once"]) == (number, at_once)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_finishes_what_is_at_work_and_starts_nothing(
    scene: Scene, two_at_work: Child, number: int
) -> None:
    child = two_at_work
    interrupt(child, number, at_once=False)
    for key in "ab":
        (scene.root / f"gate-{key}").write_text("whole\n")
    assert child.end() == 128 + number
    found = scene.findings()
    assert {key: found[key]["output"] for key in found} == {"a": "whole", "b": "whole"}
    report = child.events[-1]
    assert (report["outcome"], report["done"], report["interrupted"]) == ("interrupted", 2, 0)
    assert child.of_kind("failed") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_kills_what_is_at_work_and_records_nothing_of_it(
    scene: Scene, two_at_work: Child, number: int
) -> None:
    child = two_at_work
    interrupt(child, number, at_once=False)
    (scene.root / "gate-a").write_text("whole\n")
    child.wait_for(lambda event: event.get("done") == 1)
    interrupt(child, number, at_once=True)
    assert child.end() == 128 + number
    assert scene.at_work() == []
    assert list(scene.findings()) == ["a"]
    assert scene.errors() == {}
    assert child.events[-1]["interrupted"] == 1
    assert os.listdir(scene.root / "job" / ".run") == []


def test_command_that_ignores_sigterm_is_killed_by_the_second_signal(scene: Scene) -> None:
    ready = scene.fifo("ready")
    line = f"trap '' TERM INT; echo $1 > {ready}; while :; do sleep 3600; done"
    child = scene.start(["a"], line)
    lines_from(ready, 1)
    interrupt(child, signal.SIGINT, at_once=False)
    interrupt(child, signal.SIGINT, at_once=True)
    assert child.end() == 130


def test_signal_while_a_round_is_waited_for_ends_the_run(scene: Scene) -> None:
    child = scene.start(["a"], "exit 1", wait=3600)
    child.wait_for(lambda event: event["event"] == "retry_round")
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 130
    assert scene.errors() == {"a": ("exit 1", 1)}


def test_second_process_is_refused_with_the_pid_of_the_first(
    scene: Scene, two_at_work: Child
) -> None:
    other = scene.map(["a"], "true")
    assert other.process.returncode == 5
    assert str(two_at_work.process.pid) in other.events[-1]["message"]
    interrupt(two_at_work, signal.SIGINT, at_once=False)
    interrupt(two_at_work, signal.SIGINT, at_once=True)
    assert two_at_work.end() == 130


# When it cannot go on


def test_full_disk_ends_the_run_with_nothing_at_work_and_nothing_lost(scene: Scene) -> None:
    ready, never = scene.fifo("ready"), scene.fifo("never")
    line = f"[ $1 != waits ] || {{ echo > {ready}; cat {never}; }}"
    items = ["waits", *(f"item-{n}" for n in range(50))]
    child = scene.start(items, line, workers=2, full_after=10)
    lines_from(ready, 1)
    assert child.end() == 7
    assert child.events[-1]["code"] == "disk_full"
    assert scene.at_work() == []
    assert 10 <= len(scene.findings()) < 50
    child = scene.map(items, "true", "{}")
    assert child.process.returncode == 0
    assert set(scene.findings()) == set(items)


def test_nothing_starts_while_a_command_of_a_former_run_cannot_be_stopped(scene: Scene) -> None:
    # Here it is the shell that this run was started from, which is never signalled.
    records = scene.root / "job" / ".run"
    records.mkdir(parents=True)
    record = records / "run-former.json"
    record.write_text('{"pid":0,"started":0.0,"invocation":"run-former","node":""}')
    (scene.root / "items.txt").write_text("a\n")
    words = [sys.executable, "-m", "tests.integration.map_child", "job", "items.txt", "--", "true"]
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *words],
        cwd=scene.root,
        env={**python_environment(), "PERDURE_INVOCATION": "run-former.7"},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, told[-1]["code"]) == (5, "orphans_left")
    assert [event["event"] for event in told] == ["opened", "error"]
    assert record.exists(), "the next run has to know it as well"
    assert scene.log() == b""


# Killed again and again


@pytest.mark.timeout(300)
def test_map_that_is_killed_again_and_again_loses_nothing_and_does_nothing_twice(
    scene: Scene,
) -> None:
    chance = chance_for("map", "kill")
    items = [f"item-{n}" for n in range(2_000)]
    done = 0
    for _ in range(5):
        child = scene.start(items, "true", "{}")
        target = done + chance.randrange(50, 300)
        child.wait_for(lambda event, target=target: event.get("done", 0) >= target)
        child.kill()
        done = len(scene.findings_so_far())
        assert done >= target, "what was told is on the disk"
        if chance.random() < 0.5:
            chance.shuffle(items)
    # And once more while it puts in order what the last kill left.
    child = scene.map(items, "true", "{}", die_at=chance.randrange(1, 12))
    assert child.process.returncode == -signal.SIGKILL
    child = scene.map(items, "true", "{}")
    assert child.process.returncode == 0
    assert set(scene.findings()) == set(items)
    assert child.events[-1]["outcome"] == "finished"
    assert scene.errors() == {}
    assert os.listdir(scene.root / "job" / ".run") == []


def test_death_at_any_step_of_the_recovery_is_recovered_from(scene: Scene) -> None:
    ready, never = scene.fifo("ready"), scene.fifo("never")
    line = f"[ $1 = a ] || {{ echo > {ready}; cat {never}; }}"
    child = scene.start(["a", "b"], line)
    child.wait_for(lambda event: event.get("done") == 1)
    lines_from(ready, 1)
    child.kill()
    first = scene.log()
    for at in range(1, 16):
        child = scene.map(["a", "b"], "true", "{}", die_at=at)
        assert child.process.returncode == -signal.SIGKILL
        assert scene.log() == first
    assert scene.at_work() == [], "the last of them got as far as stopping what was left"
    assert scene.map(["a", "b"], "true", "{}").process.returncode == 0
    assert set(scene.findings()) == {"a", "b"}
