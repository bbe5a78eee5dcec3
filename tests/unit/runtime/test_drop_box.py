"""What lies in the drop box and is no message: kept, reported once, out of the way."""

import errno
import json
import os
from typing import Any

import pytest
from tests.crash.disk import CutDisk, Killed
from tests.crash.machine import Machine

from perdure.core.events import Event
from perdure.core.model import text_bytes_max
from perdure.errors import StorageError
from perdure.runtime import recover
from perdure.runtime.calls import ingest
from perdure.runtime.halt import HaltRuntime
from perdure.storage import spool

BOX = "steering/spool"
WORDS: dict[str, Any] = {"text": "Metric units", "reading": "amendment"}


@pytest.fixture
def machine(workspace: str) -> Machine:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    machine.open("T").add_node("N1", "first")
    machine.boot_process()
    return machine


def message(message_id: str, command: str = "steer", **args: Any) -> bytes:
    return json.dumps(
        {"id": message_id, "command": command, "args": args, "actor": "sponsor:ann", "at": 1.0}
    ).encode()


def notes(runtime: HaltRuntime) -> list[Event]:
    return [event for event in runtime.events() if "set_aside" in event.payload]


def box(machine: Machine) -> list[str]:
    return sorted(os.listdir(f"{machine.root}/{BOX}"))


NO_MESSAGES = {
    "torn": ("m1.json", message("m1", **WORDS)[:40]),
    "empty": ("m1.json", b""),
    "half a character": ("m1.json", b'{"id":"m1\xe2\x82'),
    "no JSON": ("m1.json", b"Please hurry\n"),
    "another shape": ("m1.json", b"[1, 2]"),
    "too deep": ("m1.json", b"[" * 100_000),
    "under another name": ("m1.json", message("m2", **WORDS)),
    "named like nothing of ours": ("notes to self.txt", b"milk"),
    "a name of other letters": ("caf\u00e9.json", message("m1")),
    "named like an answer": ("m1.RESULT.json", b"{}"),
}


@pytest.mark.parametrize(("name", "data"), NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_what_is_no_message_is_set_aside_whole_and_reported_once(
    machine: Machine, name: str, data: bytes
) -> None:
    machine.write(f"{BOX}/{name}", data)
    machine.write(f"{BOX}/behind.json", message("behind", "note", text="behind it"))
    runtime = machine.open()
    (note,) = notes(runtime)
    where = note.payload["set_aside"]
    assert where.startswith("tmp/recovered/drop-box-")
    assert machine.bytes_of(where) == data
    assert note.payload["reason"]
    assert note.actor.startswith("coordinator:")
    assert f"{BOX}/{name}" not in machine.file_names()
    assert "behind" in runtime.state.ops
    assert [entry for entry in box(machine) if not entry.endswith(".result.json")] == []
    machine.clock.advance(1.0)
    runtime.engine.tick()
    assert len(notes(runtime)) == 1


@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("elsewhere", path)])
def test_what_is_no_file_is_set_aside_too(machine: Machine, make: Any) -> None:
    make(f"{machine.root}/{BOX}/m1.json")
    runtime = machine.open()
    (note,) = notes(runtime)
    assert os.path.lexists(f"{machine.root}/{note.payload['set_aside']}")
    assert box(machine) == ["m1.result.json"]


def test_a_huge_file_is_not_read(machine: Machine) -> None:
    with open(f"{machine.root}/{BOX}/m1.json", "wb") as file:
        file.truncate(1 << 32)
    before = machine.disk.bytes_read
    runtime = machine.open()
    assert machine.disk.bytes_read - before < 1 << 20
    (note,) = notes(runtime)
    assert "bytes" in note.payload["reason"]
    assert os.path.getsize(f"{machine.root}/{note.payload['set_aside']}") == 1 << 32


def test_whoever_waits_for_an_answer_gets_one(machine: Machine) -> None:
    machine.write(f"{BOX}/m1.json", message("m1")[:30])
    runtime = machine.open()
    answer = spool.take_result(machine.disk, runtime.engine.layout, "m1")
    assert answer is not None
    assert (answer["error"]["code"], answer["exit_code"]) == ("bad_message", 2)


def test_a_file_in_the_making_is_never_touched(machine: Machine) -> None:
    making = (".m1.json.tmp-7-1", ".m2.json", ".hidden")
    for name in making:
        machine.write(f"{BOX}/{name}", b"{")
        os.utime(f"{machine.root}/{BOX}/{name}", (2e9, 2e9))
    runtime = machine.open()
    assert notes(runtime) == []
    assert box(machine) == sorted(making)


def test_what_was_set_aside_costs_the_next_look_nothing(machine: Machine) -> None:
    machine.write(f"{BOX}/m1.json", b"{")
    runtime = machine.open()
    spool.take_result(machine.disk, runtime.engine.layout, "m1")
    runtime.engine.tick()
    before = len(machine.disk.fuse.trace)
    with runtime.engine.writing():
        assert ingest(runtime.engine) == 0
    assert machine.disk.fuse.trace[before:] == []


def test_a_crash_between_the_report_and_the_move_reports_it_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write(f"{BOX}/m1.json", b"{")

    def die(*_: Any) -> None:
        machine.disk.die()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(spool, "move_aside", die)
        with pytest.raises(Killed):
            machine.open()
    machine.boot_process()
    assert "m1.json" in box(machine)
    runtime = machine.open()
    assert len(notes(runtime)) == 1
    assert box(machine) == ["m1.result.json"]


def test_a_short_command_takes_in_what_a_dead_coordinator_left(machine: Machine) -> None:
    machine.write(f"{BOX}/m1.json", b"{")
    machine.write(f"{BOX}/m2.json", message("m2", **WORDS, nodes=["N1"]))
    runtime = machine.attach()
    runtime.engine.actor = "executor:x"
    runtime.start("N1", session=True)
    assert len(notes(runtime)) == 1
    entry = runtime.state.steering["ST-001"]
    assert list(entry.reached) == ["N1"], "it was propagated before the start"
    assert [event.actor for event in runtime.events() if event.kind == "STEERING_LOGGED"] == [
        "sponsor:ann"
    ]


# Instructions that cannot be carried out as they are


@pytest.mark.parametrize(
    "args",
    [
        {"nodes": ["N9"]},
        {"reading": "maybe"},
        {"changes": {"colour": "red"}},
        {"changes": 7},
        {"revoke": ["nobody"]},
        {"id": "no id at all"},
    ],
    ids=str,
)
def test_words_that_are_refused_are_kept_as_a_question_to_the_coordinator(
    machine: Machine, args: dict[str, Any]
) -> None:
    """Their sender may be gone, and nothing that people say is lost."""
    machine.write(f"{BOX}/m1.json", message("m1", **{**WORDS, **args}))
    runtime = machine.open()
    (entry,) = runtime.state.steering.values()
    assert (entry.reading, bool(entry.acknowledged)) == ("question", True)
    (logged,) = [event for event in runtime.events() if event.kind == "STEERING_LOGGED"]
    assert logged.payload["verbatim"] == "Metric units"
    (question,) = runtime.state.questions.values()
    assert question.to == "coordinator"
    assert runtime.node("N1").directives == ()
    answer = spool.take_result(machine.disk, runtime.engine.layout, "m1")
    assert answer is not None
    assert answer["exit_code"] != 0
    assert logged.ref in answer["error"]["fix"]


def test_words_of_somebody_who_has_no_say_are_refused_and_not_kept(machine: Machine) -> None:
    data = json.loads(message("m1", **WORDS)) | {"actor": "executor:x"}
    machine.write(f"{BOX}/m1.json", json.dumps(data).encode())
    runtime = machine.open()
    assert runtime.state.steering == {}
    answer = spool.take_result(machine.disk, runtime.engine.layout, "m1")
    assert answer is not None
    assert answer["error"]["code"] == "role_may_not"


def test_words_that_are_too_many_for_the_journal_are_set_aside_as_a_file(machine: Machine) -> None:
    text = "x" * (text_bytes_max + 1)
    machine.write(f"{BOX}/m1.json", message("m1", text=text))
    runtime = machine.open()
    (note,) = notes(runtime)
    kept = json.loads(machine.bytes_of(note.payload["set_aside"]) or b"")
    assert kept["args"]["text"] == text
    assert box(machine) == ["m1.result.json"]


@pytest.mark.parametrize(
    "args",
    [{"text": 5}, {"text": None}, {"text": ["x"]}, {"nodes": "N1"}, {"nodes": {"N1": 1}},
     {"nodes": [1]}, {"revoke": "pay"}],
    ids=str,
)  # fmt: skip
def test_what_is_no_text_is_not_made_one(machine: Machine, args: dict[str, Any]) -> None:
    machine.write(f"{BOX}/m1.json", message("m1", **{**WORDS, **args}))
    runtime = machine.open()
    assert runtime.node("N1").directives == ()
    answer = spool.take_result(machine.disk, runtime.engine.layout, "m1")
    assert answer is not None
    assert answer["error"]["code"] == "bad_message"


# One message is not the trouble of all (INV-8)


class FussyDisk(CutDisk):
    """A disk on which some names cannot be removed, moved or read, as a sticky directory has it."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def _refuse(self, path: str) -> None:
        if path.endswith(self.names):
            error = PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            raise StorageError.from_os(error, path, "Trying")

    def rename(self, source: str, target: str) -> None:
        self._refuse(source)
        super().rename(source, target)

    def unlink(self, path: str, *, durable: bool) -> None:
        self._refuse(path)
        super().unlink(path, durable=durable)

    def sync_file(self, path: str) -> None:
        self._refuse(path)
        super().sync_file(path)


def test_what_cannot_be_removed_is_carried_out_once_reported_and_stops_nobody(
    machine: Machine,
) -> None:
    machine.write(f"{BOX}/m1.json", message("m1", "note", text="said once"))
    machine.write(f"{BOX}/junk", b"junk")
    machine.write(f"{BOX}/m2.json", message("m2", "note", text="said too"))
    for _ in range(2):
        machine.boot_process()
        machine.disk = FussyDisk("/m1.json", "/junk")
        runtime = machine.open()
        assert recover.summary(runtime.engine, runtime.recovered)["inbox_empty"]
        before = machine.journal()
        runtime.engine.tick()
        assert machine.journal() == before
    texts = [event.payload["text"] for event in runtime.events() if event.kind == "NOTE"]
    assert texts.count("said once") == texts.count("said too") == 1
    stays = [text.split(":")[1].split(";")[0] for text in texts if text.startswith("stays in")]
    assert sorted(stays) == [" junk", " m1.json"]
    assert {"m1.json", "junk"} < set(box(machine))
    machine.boot_process()
    machine.open()
    assert {"m1.json", "junk"}.isdisjoint(box(machine)), "once it may, it cleans up"


def test_a_file_that_one_message_names_and_nobody_can_read_is_that_message_s_trouble(
    machine: Machine,
) -> None:
    runtime = machine.open()
    runtime.start("N1", session=True)
    machine.write("artifacts/N1/a.txt", b"secret")
    machine.boot_process()
    machine.disk = FussyDisk("/artifacts/N1/a.txt")
    runtime = machine.open()
    data = message("m1", "artifact", node="N1", path="artifacts/N1/a.txt")
    machine.write(f"{BOX}/m1.json", data.replace(b"sponsor:ann", b"coordinator:c"))
    machine.write(f"{BOX}/m2.json", message("m2", "note", text="said too"))
    runtime.engine.tick()
    answer = spool.take_result(machine.disk, runtime.engine.layout, "m1")
    assert answer is not None
    assert answer["error"]["code"] == "permission_denied"
    assert "m2" in runtime.state.ops
    assert runtime.cancel(["N1"], "it goes on").ref
