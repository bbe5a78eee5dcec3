"""A command is filled in without a shell, and what it printed is judged by one table."""

import os
from pathlib import Path
from typing import Any

import pytest

from perdure.control.item_command import (
    ItemCommand,
    RunningItem,
    error_output_bytes_max,
    input_of,
)
from perdure.control.item_list import Item
from perdure.control.item_outcome import output_bytes_max, payload_of, problem_of
from perdure.control.outcome import Ended
from perdure.errors import NotFoundError, UsageError
from perdure.jobs.records import Failure, Finding
from perdure.runtime.world import World, real_world
from perdure.storage.disk import RealDisk
from perdure.testing import SimClock


def command(
    words: str | tuple[str, ...], cwd: str = "/", path: str = os.defpath, world: World | None = None
) -> ItemCommand:
    return ItemCommand(
        words,
        directory="/jobs/x",
        cwd=cwd,
        environment={"PATH": path},
        artifact_path=lambda key: f"/jobs/x/files/{key}",
        world=world or real_world(),
    )


def fill(*words: str, key: str = "K", value: Any = None) -> tuple[Any, bool]:
    return command(words)._fill(Item(key, value, None, 1))


# Placeholders


def test_key_is_put_wherever_a_place_for_it_is() -> None:
    assert fill("get", "{}", "-o", "{}.html") == (("get", "K", "-o", "K.html"), True)
    assert fill("get", "{}{}", key="a b;$(x)") == (("get", "a b;$(x)a b;$(x)"), True)


def test_field_is_put_only_where_the_item_has_it() -> None:
    value = {"name": "Turin", "n": 3, "on": True, "none": None, "list": [1, "x"], "": "never"}
    words = ("x", "{name}-{n}", "{on}", "{none}", "{list}", "{other}", "{ name }", "{}")
    filled = ("x", "Turin-3", "true", "null", '[1,"x"]', "{other}", "{ name }", "K")
    assert fill(*words, value=value) == (filled, True)
    assert fill("awk", "{print $1}", "{name}") == (("awk", "{print $1}", "{name}"), False)


def test_what_was_put_in_is_not_looked_at_again() -> None:
    assert fill("x", "{}", key="{name}", value={"name": "N"}) == (("x", "{name}"), True)
    assert fill("x", "{name}", value={"name": "{}"}) == (("x", "{}"), True)


def test_doubled_braces_mean_nothing_special() -> None:
    assert fill("x", "{{}}", "{{name}}", value={"name": "N"}) == (("x", "{K}", "{N}"), True)


def test_shell_line_is_never_filled_in() -> None:
    assert command("echo {}")._fill(Item("K", None, None, 1)) == ("echo {}", False)


def test_item_without_a_place_goes_to_standard_input() -> None:
    assert input_of(Item("gr\u00fcn", None, None, 1)) == "gr\u00fcn\n".encode()
    value = {"id": 1, "t": "\u2028"}
    assert input_of(Item("1", value, "", 1)) == '{"id":1,"t":"\u2028"}\n'.encode()


# Finding the program


def test_program_is_looked_for_where_the_child_will_look(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    here = str(tmp_path)
    command(("tool", "{}"), path=f"/nowhere:{tool.parent}").require_program()
    command(("bin/tool",), cwd=here).require_program()
    command(("tool",), cwd=here, path="bin").require_program()
    command(("tool",), cwd=str(tool.parent), path="").require_program()
    for words, folder in ((("tool",), "/nowhere"), (("./tool",), str(tool.parent))):
        with pytest.raises(NotFoundError, match="there is no program") as caught:
            command(words, cwd=here, path=folder).require_program()
        assert (caught.value.code, caught.value.exit_code) == ("command_not_found", 3)


def test_program_that_may_not_be_executed_is_said_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotFoundError, match="tool is not executable"):
        command(("./tool",), cwd=str(tmp_path)).require_program()
    with pytest.raises(NotFoundError, match="there is no program"):
        command(("./folder",), cwd=str(tmp_path)).require_program()


def test_program_that_the_item_names_is_not_looked_for() -> None:
    command(("{}", "--version")).require_program()
    command("no-such-program").require_program()


@pytest.mark.parametrize("words", [(), ("",)])
def test_there_has_to_be_a_command(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="there is no command"):
        command(words).require_program()


# What was printed


@pytest.mark.parametrize(
    ("printed", "payload"),
    [
        (b'{"a": 1, "b": [null]}\n', {"a": 1, "b": [None]}),
        (b"", {}),
        (b" \n\t\n", {}),
        (b"{}", {}),
        (b"7\n", {"output": 7}),
        (b"[1, 2]", {"output": [1, 2]}),
        (b"null", {"output": None}),
        (b'"text"\n', {"output": "text"}),
        (b"007\n", {"output": "007"}),
        (b"NaN\n", {"output": "NaN"}),
        (b"  two\nlines \r\n\n", {"output": "  two\nlines "}),
        (b'{"a": 1}\n{"a": 2}\n', {"output": '{"a": 1}\n{"a": 2}'}),
        (b'{"cut": "off', {"output": '{"cut": "off'}),
        ("gr\u00fcn\n".encode(), {"output": "gr\u00fcn"}),
    ],
)
def test_output_becomes_a_payload(printed: bytes, payload: dict[str, Any]) -> None:
    assert payload_of(printed) == payload


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (b"\xff\xfe", "its output is not UTF-8"),
        (b'{"_hash": 1}', "it printed the key '_hash', which is reserved"),
        (b'{"x": 1, "_item": "y"}', "it printed the key '_item', which is reserved"),
        (b" " * (output_bytes_max + 1), "it printed more than 16,777,216 bytes"),
    ],
)
def test_output_that_cannot_be_a_finding_is_an_error(printed: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        payload_of(printed)


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        (Ended("exited", exit_code=0), ""),
        (Ended("exited", exit_code=0, leftovers=((7, "sleep"),)), ""),
        (Ended("exited", exit_code=3), "exit 3"),
        (Ended("exited", signal=9), "ended by signal 9 (SIGKILL)"),
        (Ended("exited", signal=99), "ended by signal 99"),
        (Ended("exited"), "its exit code is unknown"),
        (Ended("timed_out", exit_code=0, limit_s=1.5), "stopped at the time limit of 1.5 s"),
        (Ended("not_started", reason="x could not be started"), "x could not be started"),
        (
            Ended("exited", exit_code=0, leftovers=((7, "sh"), (8, "tee")), cut=True),
            "its output is not whole: what it left running (sh, tee) was still adding to it",
        ),
    ],
)
def test_end_of_a_command_is_a_success_or_a_reason(ended: Ended, problem: str) -> None:
    assert problem_of(ended) == problem


# While it runs


class Endless:
    """A command that ends only when it is stopped."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def poll(self) -> Ended | None:
        return Ended("stopped", signal=15) if self.reasons else None

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        self.reasons.append(reason)


@pytest.mark.parametrize(
    ("ending", "size", "error"),
    [
        (".out", output_bytes_max, ""),
        (".out", output_bytes_max + 1, "it printed more than 16,777,216 bytes"),
        (".err", error_output_bytes_max, ""),
        (".err", error_output_bytes_max + 1, "it printed more than 268,435,456 bytes of errors"),
    ],
)
def test_what_a_running_command_prints_is_watched(
    tmp_path: Path, ending: str, size: int, error: str
) -> None:
    clock = SimClock()
    base = str(tmp_path / "x")
    at_work = Endless()
    running = RunningItem(
        Item("K", None, None, 1),
        1,
        at_work,  # type: ignore[arg-type]
        base=base,
        artifact="/nowhere",
        world=real_world()._replace(clock=clock),
    )
    Path(base + ending).touch()
    os.truncate(base + ending, size)
    assert running.poll() is None
    assert at_work.reasons == [], "it is not looked at all the time"
    clock.advance(1)
    assert running.poll() is None
    assert at_work.reasons == ([error] if error else [])
    if error:
        settled = running.poll()
        assert settled is not None
        assert settled.outcome == Failure("K", error)
        assert os.listdir(tmp_path) == []


# What has ended


class NotedDisk(RealDisk):
    """The real disk, and what was made durable, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_file(self, path: str) -> None:
        self.synced.append(path)
        super().sync_file(path)

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().sync_dir(path)


class Ready:
    """A command that has ended."""

    def poll(self) -> Ended:
        return Ended("exited", exit_code=0)


def settle(root: Path, disk: RealDisk) -> Finding | Failure | None:
    running = RunningItem(
        Item("K", {"id": "K"}, "d1gest", 1),
        1,
        Ready(),  # type: ignore[arg-type]
        base=str(root / "x"),
        artifact=str(root / "files" / "ab" / "K.html"),
        world=real_world()._replace(disk=disk),
    )
    settled = running.poll()
    assert settled is not None
    return settled.outcome


def test_file_of_an_item_is_durable_before_its_finding_is_made(tmp_path: Path) -> None:
    (tmp_path / "x.out").write_text('{"n": 1}')
    disk = NotedDisk()
    assert settle(tmp_path, disk) == Finding("K", {"n": 1}, "d1gest")
    assert disk.synced == []
    (tmp_path / "files" / "ab").mkdir(parents=True)
    (tmp_path / "files" / "ab" / "K.html").write_text("<p>")
    (tmp_path / "x.out").write_text("")
    assert settle(tmp_path, disk) == Finding("K", {}, "d1gest")
    folder = tmp_path / "files" / "ab"
    paths = [folder / "K.html", folder, folder.parent, tmp_path]
    assert disk.synced == [str(path) for path in paths]


def test_output_that_is_gone_is_an_error_and_not_an_empty_finding(tmp_path: Path) -> None:
    outcome = settle(tmp_path, RealDisk())
    assert isinstance(outcome, Failure)
    assert outcome.error.startswith("its output cannot be kept: Reading failed")
