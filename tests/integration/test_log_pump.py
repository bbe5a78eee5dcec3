"""Children print through a process that masks secrets; what they print is never raw in a file."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.control.log_pump import LogPump
from perdure.control.log_pump_main import held_bytes_max
from perdure.host import SystemClock

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
PASSWORD = "correct-horse-battery"


@pytest.fixture
def pump() -> Iterator[LogPump]:
    made = LogPump({"DB_PASSWORD": PASSWORD}, SystemClock())
    yield made
    made.close()


def start(pump: LogPump, log: Path, script: str) -> tuple[subprocess.Popen[bytes], str]:
    """A shell that prints through the pump into ``log``."""
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    sink, name = pump.open(target)
    child = subprocess.Popen(["/bin/sh", "-c", script], stdout=sink, stderr=sink)
    os.close(sink)
    os.close(target)
    return child, name


def run(pump: LogPump, log: Path, script: str) -> bytes:
    child, name = start(pump, log, script)
    child.wait()
    assert pump.flush([name]) == ""
    return log.read_bytes()


def test_what_is_no_secret_comes_through_as_it_is(pump: LogPump, tmp_path: Path) -> None:
    said = run(pump, tmp_path / "log", r"printf 'one\r\ntwo \303\244\377\n\nthree'")
    assert said == b"one\r\ntwo \xc3\xa4\xff\n\nthree"


def test_secrets_are_masked_by_shape_and_by_name(pump: LogPump, tmp_path: Path) -> None:
    said = run(pump, tmp_path / "log", f"echo 'a {TOKEN} b'; echo 'pw={PASSWORD};' >&2")
    assert TOKEN.encode() not in said
    assert PASSWORD.encode() not in said
    assert said.startswith(b"a [masked:")
    assert b"pw=[masked:DB_PASSWORD];" in said


@pytest.mark.parametrize("before", [0, 17, 40, 5_000])
def test_a_secret_in_a_line_without_end_is_masked_wherever_it_is_cut(
    pump: LogPump, tmp_path: Path, before: int
) -> None:
    size = held_bytes_max + 65_536
    text = (("x" * 89 + f" {TOKEN} ") * (size * 2 // 130))[before:]
    (tmp_path / "said").write_text(text + "x" * before)
    said = run(pump, tmp_path / "log", f"cat {tmp_path}/said")
    whole = text.count(TOKEN)
    assert said.count(b"[masked:github-token]") >= whole
    assert TOKEN.encode() not in said
    assert b"ghp_" not in said


def test_a_secret_that_comes_in_pieces_is_masked(pump: LogPump, tmp_path: Path) -> None:
    half = len(TOKEN) // 2
    script = f"printf 'x {TOKEN[:half]}'; sleep 0.05; printf '{TOKEN[half:]} y\\n'"
    said = run(pump, tmp_path / "log", script)
    assert said.startswith(b"x [masked:")
    assert said.endswith(b" y\n")


def test_a_private_key_of_many_lines_is_masked(pump: LogPump, tmp_path: Path) -> None:
    body = "\n".join(["MIIEpAIBAAKCAQEA" + "b" * 48] * 20)
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    said = run(pump, tmp_path / "log", f"printf 'before\\n'; cat <<'E'\n{key}\nafter\nE\n")
    assert b"MIIEpAIBAAKCAQEA" not in said
    assert said.startswith(b"before\n")
    assert said.endswith(b"after\n")


def test_a_line_that_does_not_end_is_written_in_the_end(pump: LogPump, tmp_path: Path) -> None:
    size = 3 * held_bytes_max
    said = run(pump, tmp_path / "log", f"head -c {size} /dev/zero | tr '\\0' x")
    assert said == b"x" * size


def test_progress_without_a_newline_is_seen_while_it_runs(pump: LogPump, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child, _ = start(pump, log, "printf '50 percent'; read forever < /dev/zero")
    give_up_at = time.monotonic() + 10
    while not log.read_bytes() and time.monotonic() < give_up_at:
        os.sched_yield()
    child.kill()
    child.wait()
    assert log.read_bytes() == b"50 percent"


def test_several_children_keep_their_logs_apart(pump: LogPump, tmp_path: Path) -> None:
    started = [start(pump, tmp_path / str(n), f"seq {n} 2000") for n in range(1, 9)]
    for child, _ in started:
        child.wait()
    assert pump.flush([name for _, name in started]) == ""
    for n in range(1, 9):
        expected = "".join(f"{i}\n" for i in range(n, 2001))
        assert (tmp_path / str(n)).read_text() == expected


def test_many_that_end_at_once_lose_nothing_and_end_no_other(pump: LogPump, tmp_path: Path) -> None:
    for number in range(100):
        said = run(pump, tmp_path / str(number), f"echo {number} && exit 1")
        assert said == f"{number}\n".encode()


def test_children_go_on_when_their_coordinator_lets_go(tmp_path: Path) -> None:
    pump = LogPump({}, SystemClock())
    log, gate = tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)
    child, _ = start(pump, log, f"cat {gate}; echo 'late {TOKEN}'")
    pump.close()
    gate.write_text("opened\n")
    assert child.wait() == 0
    give_up_at = time.monotonic() + 10
    while not log.read_bytes().endswith(b"]\n") and time.monotonic() < give_up_at:
        os.sched_yield()
    assert log.read_bytes().startswith(b"opened\nlate [masked:")


def test_another_process_takes_over_from_one_that_was_killed(pump: LogPump, tmp_path: Path) -> None:
    assert run(pump, tmp_path / "first", "echo one") == b"one\n"
    assert pump._process is not None
    os.kill(pump._process.pid, signal.SIGKILL)
    pump._process.wait()
    assert run(pump, tmp_path / "second", "echo two") == b"two\n"


def test_a_log_that_cannot_be_written_ends_the_pipe_and_is_told(
    pump: LogPump, tmp_path: Path
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    target = os.open("/dev/full", os.O_WRONLY)
    sink, name = pump.open(target)
    child = subprocess.Popen(["/bin/sh", "-c", "while echo x; do :; done"], stdout=sink)
    os.close(sink)
    os.close(target)
    assert child.wait() != 0
    assert "No space left" in pump.flush([name])
