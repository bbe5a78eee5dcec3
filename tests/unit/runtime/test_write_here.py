"""``steering/write-here.md``: taken by rename, logged exactly once, never written again."""

import os
from typing import Any

import pytest
from tests.crash.disk import Killed
from tests.crash.machine import Machine

from perdure.core.events import Event
from perdure.core.model import text_bytes_max
from perdure.runtime import write_here
from perdure.runtime.halt import HaltRuntime

FILE = "steering/write-here.md"
WORDS = "# To whom it may concern\n\nUse metric units.\n"


@pytest.fixture
def machine(workspace: str) -> Machine:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    machine.open("T").add_node("N1", "first")
    machine.boot_process()
    return machine


def logged(runtime: HaltRuntime) -> list[Event]:
    return [event for event in runtime.events() if event.kind == "STEERING_LOGGED"]


def taken(machine: Machine) -> list[str]:
    folder = f"{machine.root}/steering/taken"
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def test_what_is_written_there_becomes_an_instruction(machine: Machine) -> None:
    machine.write(FILE, WORDS.encode())
    runtime = machine.open()
    (event,) = logged(runtime)
    (name,) = taken(machine)
    assert event.payload["verbatim"] == WORDS
    assert event.payload["source"] == "write-here"
    assert event.payload["received_via"] == f"steering/taken/{name}"
    assert event.actor.startswith("coordinator:")
    assert machine.bytes_of(f"steering/taken/{name}") == WORDS.encode()
    assert machine.bytes_of(FILE) is None
    entry = runtime.state.steering[event.entity.id]
    assert (entry.reading, bool(entry.acknowledged)) == ("amendment", True)
    assert runtime.node("N1").directives == (WORDS.strip(),)


def test_each_file_is_taken_once_and_the_copy_stays_as_it_is(machine: Machine) -> None:
    runtime = machine.open()
    for number in range(3):
        machine.write(FILE, f"instruction {number}".encode())
        machine.clock.advance(1.0)
        runtime.engine.tick()
    before = {name: machine.bytes_of(f"steering/taken/{name}") for name in taken(machine)}
    assert len(before) == 3
    for _ in range(3):
        runtime.engine.tick()
    machine.boot_process()
    again = machine.open()
    assert [event.payload["verbatim"] for event in logged(again)] == [
        "instruction 0", "instruction 1", "instruction 2",
    ]  # fmt: skip
    assert {name: machine.bytes_of(f"steering/taken/{name}") for name in taken(machine)} == before


def test_a_short_command_takes_it_before_it_does_anything(machine: Machine) -> None:
    machine.write(FILE, WORDS.encode())
    runtime = machine.attach()
    runtime.note("a short command")
    kinds = [event.kind for event in runtime.events()][-8:]
    assert kinds.index("STEERING_LOGGED") < len(kinds) - 1 - kinds[::-1].index("NOTE")
    assert runtime.events()[-1].payload["text"] == "a short command"


def test_looking_does_not_take_it(machine: Machine) -> None:
    machine.write(FILE, WORDS.encode())
    runtime = machine.attach()
    runtime.status()
    runtime.frontier()
    assert machine.bytes_of(FILE) == WORDS.encode()


def test_it_stays_on_record_once_when_its_op_id_is_forgotten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.core.fold.ops_kept_max", 2)
    machine.write(FILE, WORDS.encode())
    runtime = machine.open()
    for number in range(3):
        runtime.note("another", op=f"another-{number}")
    machine.boot_process()
    again = machine.open()
    again.engine.tick()
    assert len(logged(again)) == 1


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n"])
def test_a_file_without_words_is_left_alone(machine: Machine, data: bytes) -> None:
    machine.write(FILE, data)
    runtime = machine.open()
    assert machine.bytes_of(FILE) == data
    assert logged(runtime) == []
    assert taken(machine) == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfhurry", "hurry"),
        ("sch\u00f6n".encode("utf-16"), "sch\u00f6n"),
        ("hurry".encode("utf-16-be"), "\0h\0u\0r\0r\0y"),
        (b"\xfe\xff" + "hurry".encode("utf-16-be"), "hurry"),
        (b"caf\xe9", "caf\udce9"),
        (b"\xff\xfea", "\udcff\udcfea"),
    ],
)
def test_words_of_any_editor_are_kept(machine: Machine, data: bytes, text: str) -> None:
    machine.write(FILE, data)
    (event,) = logged(machine.open())
    assert event.payload["verbatim"] == text


def test_a_file_that_is_being_written_is_given_a_moment(machine: Machine) -> None:
    machine.write(FILE, WORDS.encode())
    now = machine.clock.now()
    os.utime(f"{machine.root}/{FILE}", (now, now))
    machine.open()
    assert machine.clock.slept_s == [pytest.approx(write_here.quiet_s, abs=0.01)]


@pytest.mark.parametrize(("writes", "waits"), [(3, 3), (1_000, 10)])
def test_somebody_who_goes_on_writing_is_waited_for_but_not_for_ever(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, writes: int, waits: int
) -> None:
    machine.write(FILE, b"part 0\n")
    path, clock = f"{machine.root}/{FILE}", machine.clock
    sleep = clock.sleep

    def touch() -> None:
        now_ns = int(clock.now() * 1e9) - 1_000
        os.utime(path, ns=(now_ns, now_ns))

    def write_on(seconds: float) -> None:
        sleep(seconds)
        if len(clock.slept_s) < writes:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"part {len(clock.slept_s)}\n")
            touch()

    touch()
    monkeypatch.setattr(clock, "sleep", write_on)
    (event,) = logged(machine.open())
    assert len(clock.slept_s) == pytest.approx(waits, abs=1)
    assert event.payload["verbatim"].count("part") == min(writes, len(clock.slept_s) + 1)


def test_a_file_of_the_future_is_not_waited_for(machine: Machine) -> None:
    machine.write(FILE, WORDS.encode())
    os.utime(f"{machine.root}/{FILE}", (4e9, 4e9))
    assert len(logged(machine.open())) == 1
    assert machine.clock.slept_s == []


# Deaths in between


def die(machine: Machine) -> Any:
    def killed(*_: Any, **__: Any) -> None:
        machine.disk.die()
        raise Killed

    return killed


@pytest.mark.parametrize("step", ["log_taken", "steer"])
def test_a_crash_behind_the_rename_leaves_it_for_the_next_look(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    machine.write(FILE, WORDS.encode())
    with monkeypatch.context() as patch:
        patch.setattr(write_here, step, die(machine))
        with pytest.raises(Killed):
            machine.open()
    machine.boot_process()
    assert len(taken(machine)) == 1
    assert len(logged(machine.open())) == 1
    machine.boot_process()
    assert len(logged(machine.open())) == 1


def test_a_crash_behind_the_log_is_propagated_by_the_next_opening(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write(FILE, WORDS.encode())
    with monkeypatch.context() as patch:
        patch.setattr("perdure.runtime.steering.propagate", die(machine))
        with pytest.raises(Killed):
            machine.open()
    machine.boot_process()
    runtime = machine.open()
    assert len(logged(runtime)) == 1
    assert runtime.node("N1").directives == (WORDS.strip(),)


def test_the_bytes_are_synced_before_the_name_is_taken(machine: Machine) -> None:
    runtime = machine.open()
    machine.disk.make_dirs(runtime.engine.layout.taken)
    machine.write(FILE, WORDS.encode())
    before = len(machine.disk.fuse.trace)
    runtime.engine.tick()
    steps = [step.split()[0] for step in machine.disk.fuse.trace[before:]]
    # The file; the rename with the two directories; the words; what follows from them.
    assert steps == [
        "fsync", "replace", "fsync", "fsync", "write", "fdatasync", "write", "fdatasync",
    ]  # fmt: skip


# What cannot be taken in


def test_what_cannot_be_read_is_set_aside_and_reported_once(machine: Machine) -> None:
    os.symlink("/etc/hostname", f"{machine.root}/{FILE}")
    runtime = machine.open()
    (note,) = [event for event in runtime.events() if "set_aside" in event.payload]
    assert os.path.lexists(f"{machine.root}/{note.payload['set_aside']}")
    assert taken(machine) == []
    assert logged(runtime) == []
    runtime.engine.tick()
    machine.boot_process()
    again = machine.open()
    assert len([event for event in again.events() if "set_aside" in event.payload]) == 1


def test_more_words_than_an_event_holds_are_set_aside(machine: Machine) -> None:
    machine.write(FILE, b"x" * (text_bytes_max + 1))
    runtime = machine.open()
    (note,) = [event for event in runtime.events() if "set_aside" in event.payload]
    assert str(text_bytes_max) in note.payload["reason"]
    assert len(machine.bytes_of(note.payload["set_aside"]) or b"") == text_bytes_max + 1


def test_a_directory_of_that_name_is_nobodys_words(machine: Machine) -> None:
    os.mkdir(f"{machine.root}/{FILE}")
    runtime = machine.open()
    assert os.path.isdir(f"{machine.root}/{FILE}")
    assert logged(runtime) == []


def test_what_others_put_beside_the_taken_files_is_not_ours_to_read(machine: Machine) -> None:
    machine.write("steering/taken/my notes.md", b"private")
    assert logged(machine.open()) == []
    assert taken(machine) == ["my notes.md"]
