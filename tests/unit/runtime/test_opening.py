"""Opening a workspace: created once, refused where it is not ours, cheap however long its past."""

import contextlib
import json
import os

import pytest
from tests.crash.disk import CutDisk, Fuse, Killed
from tests.crash.machine import MTIME_NS, Machine, replay

from perdure.core.codec import EMPTY_TIP, encode_commit
from perdure.core.events import Draft
from perdure.errors import CorruptError, LeaseHeldError, NotFoundError, RefusedError, StorageError
from perdure.runtime.halt import HaltRuntime


@pytest.fixture
def machine(workspace: str) -> Machine:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    return machine


def listing(root: str) -> dict[str, bytes]:
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[path] = file.read()
    return found


def test_directory_that_does_not_exist_becomes_a_workspace(machine: Machine) -> None:
    machine.root = f"{machine.root}/deeper/still"
    runtime = machine.open("T")
    assert (runtime.state.task_id, runtime.state.fsm_task) == ("T", "DECOMPOSING")
    assert runtime.recovered.committed == ""


def test_another_task_id_is_refused_and_nothing_is_changed(machine: Machine) -> None:
    machine.open("T").close()
    before = listing(machine.root)
    with pytest.raises(RefusedError) as caught:
        machine.open("OTHER")
    assert caught.value.code == "task_mismatch"
    assert "'T'" in str(caught.value)
    assert listing(machine.root) == before


def test_without_a_task_id_nothing_is_created(machine: Machine) -> None:
    for opening in (machine.open, machine.attach):
        with pytest.raises(NotFoundError) as caught:
            opening()
        assert caught.value.code == "no_workspace"
        assert not os.path.exists(machine.root)
    os.mkdir(machine.root)
    for opening in (machine.open, machine.attach):
        with pytest.raises(NotFoundError):
            opening()
        assert os.listdir(machine.root) == []


@pytest.mark.parametrize("at", range(1, 30))
def test_unfinished_creation_is_completed(machine: Machine, at: int) -> None:
    machine.boot_process(Fuse(at))
    with contextlib.suppress(Killed):
        machine.open("T")
    machine.boot_process()
    assert machine.open("T").state.task_id == "T"
    replay(machine.root)


def test_journal_that_is_gone_is_not_made_anew(machine: Machine) -> None:
    machine.open("T").close()
    os.unlink(machine.layout.journal)
    for opening in (lambda: machine.open("T"), machine.open):
        with pytest.raises(CorruptError) as caught:
            opening()
        assert caught.value.code == "journal_missing"
        assert not os.path.exists(machine.layout.journal)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"hello\n", b'{"level":"info"}\n', b"\0" * 100, b'{"seq":1,"ts":"","actor":"a"'],
)
def test_file_that_is_no_journal_is_refused_and_left_alone(
    machine: Machine, content: bytes
) -> None:
    machine.write("journal.jsonl", content)
    for opening in (lambda: machine.open("T"), machine.open, machine.attach):
        with pytest.raises(CorruptError) as caught:
            opening()
        assert caught.value.exit_code == 6
        assert machine.journal() == content


def test_directory_in_the_place_of_the_journal_is_refused(machine: Machine) -> None:
    os.makedirs(machine.layout.journal)
    with pytest.raises(CorruptError, match="dir, not a file"):
        machine.open("T")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_that_may_not_be_written_is_named_as_such(machine: Machine) -> None:
    machine.open("T").close()
    machine.kill_process()
    os.chmod(machine.root, 0o555)
    try:
        with pytest.raises(StorageError) as caught:
            machine.open()
        assert caught.value.code == "permission_denied"
        assert machine.attach().state.task_id == "T"
    finally:
        os.chmod(machine.root, 0o755)


class ReadOnlyDisk(CutDisk):
    """A file system that lets nobody write."""

    def __init__(self) -> None:
        super().__init__(_RefusingFuse())


class _RefusingFuse(Fuse):
    def pass_through(self, what, act, half=None):  # type: ignore[no-untyped-def]
        raise OSError(30, os.strerror(30))


def test_read_only_file_system_can_be_looked_at_and_says_why_it_cannot_be_worked_on(
    machine: Machine,
) -> None:
    machine.open("T").note("hello")
    machine.boot_process()
    machine.disk = ReadOnlyDisk()
    os.unlink(machine.layout.journal_lock)
    runtime = machine.attach()
    assert runtime.status()["seq_last"] == 3
    with pytest.raises(StorageError) as caught:
        machine.open()
    assert caught.value.code == "read_only"


def test_failed_opening_gives_the_lease_back(machine: Machine) -> None:
    machine.open("T").close()
    machine.boot_process()
    journal = machine.journal()
    lines = journal.splitlines(keepends=True)
    machine.write("journal.jsonl", lines[0].replace(b"survive", b"perish!") + b"".join(lines[1:]))
    os.unlink(machine.layout.snapshot)
    with pytest.raises(CorruptError):
        machine.open()
    machine.write("journal.jsonl", journal)
    world = machine.world()._replace(processes=machine.processes.seen_from(999), disk=CutDisk())
    HaltRuntime.resume(machine.root, world=world).close()


def test_second_process_is_refused_and_a_second_object_takes_over(machine: Machine) -> None:
    first = machine.open("T")
    world = machine.world()._replace(processes=machine.processes.seen_from(999), disk=CutDisk())
    with pytest.raises(LeaseHeldError):
        HaltRuntime.resume(machine.root, world=world)
    first.note("still here")
    second = machine.open()
    assert second.engine.epoch == 2
    assert "this very process" in second.recovered.found[0]


# Journals of other writers


FOREIGN = (
    '{"seq":"1","ts":"2026-01-01T00:00:00Z","actor":"coord:x","kind":"INSTANCE_STARTED","tx":null,'
    '"entity":{"type":"task","id":"T"},"payload":{"task":"T","desc":"by others"},"evidence":null}\n'
    '{"seq":"2","ts":"2026-01-01T00:00:01Z","actor":"coord:x","kind":"STATE_TRANSITION",'
    '"entity":{"type":"node","id":"W1"},"payload":{"from":"PENDING","to":"READY"},"evidence":[]}\n'
    '{"seq":"3","ts":"2026-01-01T00:00:02Z","actor":"coord:x","kind":"SOMETHING_ELSE",'
    '"entity":"T","payload":null,"evidence":["J-1"]}\n'
)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n"])
def test_journal_of_another_writer_is_opened_and_continued(machine: Machine, ending: str) -> None:
    data = FOREIGN.replace("\n", ending).encode()
    machine.write("journal.jsonl", data)
    runtime = machine.open()
    assert (runtime.state.task_id, runtime.state.goal_statement) == ("T", "by others")
    assert runtime.node("W1").state == "READY"
    assert runtime.state.unchained == 3
    for number in range(3):
        runtime.note(f"ours {number}")
    runtime.close()
    assert machine.journal().startswith(data.rstrip())
    machine.boot_process()
    runtime = machine.open()
    assert runtime.recovered.committed == ""
    runtime.note("ours after that")
    assert [event.seq for event in runtime.events()] == list(range(1, runtime.seq_last + 1))
    texts = [event.payload.get("text") for event in runtime.events() if event.kind == "NOTE"]
    assert texts[-4:] == ["ours 0", "ours 1", "ours 2", "ours after that"]


# What opening costs


def with_events(machine: Machine, count: int) -> None:
    """A workspace with this many events behind a fresh snapshot."""
    machine.open("T").close()
    state, tip = replay(machine.root)
    drafts = [Draft("NOTE", "task", "T", {"op": "note", "text": "x" * 100})] * count
    commit = encode_commit(tip, drafts[:0] or drafts, ts="", actor="a", epoch=state.epoch)
    assert tip != EMPTY_TIP
    with open(machine.layout.journal, "ab") as file:
        file.write(commit.data)
    machine.boot_process()
    runtime = machine.open()
    runtime.note("the last one")
    runtime.close()


def bytes_read_to_open(machine: Machine) -> tuple[int, int]:
    """How many bytes attaching reads, and resuming."""
    counts = []
    for opening in (machine.attach, machine.open):
        machine.boot_process()
        opening()
        counts.append(machine.disk.bytes_read)
    return counts[0], counts[1]


def test_opening_reads_as_much_after_20_000_events_as_after_100(workspace: str) -> None:
    read = {}
    for count in (100, 20_000):
        machine = Machine(f"{workspace}/{count}")
        machine.boot_process()
        with_events(machine, count)
        machine.journal()
        read[count] = bytes_read_to_open(machine)
    for few, many in zip(read[100], read[20_000], strict=True):
        assert many < few + 2_000, read


def test_opening_reads_the_tail_behind_the_snapshot_and_no_more(machine: Machine) -> None:
    with_events(machine, 1_000)
    machine.boot_process()
    before = bytes_read_to_open(machine)[0]
    tail = 0
    runtime = machine.open()
    for _ in range(10):
        length = len(machine.journal())
        runtime.note("y" * 1_000)
        tail += len(machine.journal()) - length
    machine.boot_process()
    machine.attach()
    assert before + tail <= machine.disk.bytes_read < before + tail + 5_000


def test_unchanged_artifacts_are_not_read_again(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "one")
    runtime.start("N1")
    machine.write("artifacts/N1/a.bin", b"a" * 1_000_000)
    runtime.submit("N1")
    runtime.close()
    assert max(bytes_read_to_open(machine)) < 100_000
    os.utime(f"{machine.root}/artifacts/N1/a.bin", ns=(MTIME_NS + 1, MTIME_NS + 1))
    assert bytes_read_to_open(machine)[1] > 1_000_000


# What waits in the drop box


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("note", {}),
        ("artifact", {"node": "N1"}),
        ("cancel", {"nodes": 7}),
        ("add", {"node": "N1", "priority": "high"}),
        ("no-such-call", {}),
    ],
)
def test_message_that_fits_no_command_is_answered_and_stops_nobody(
    machine: Machine, command: str, args: dict[str, object]
) -> None:
    machine.open("T").close()
    for number, entry in enumerate([(command, args), ("note", {"text": "behind it"})]):
        message = {"id": f"m{number}", "command": entry[0], "args": entry[1], "actor": "coord:b"}
        data = json.dumps({**message, "at": float(number)}).encode()
        machine.write(f"steering/spool/m{number}.json", data)
    machine.boot_process()
    runtime = machine.open()
    assert [event.payload["text"] for event in runtime.events() if event.kind == "NOTE"] == [
        "behind it"
    ]
    answer = json.loads(machine.bytes_of("steering/spool/m0.result.json"))
    assert answer["exit_code"] != 0
    assert answer["error"]["message"] != ""
    assert not os.path.exists(f"{machine.root}/steering/spool/m0.json")


@pytest.mark.parametrize(
    ("command", "args"),
    [("start", {"node": "N1"}), ("add", {"node": "N2", "title": "x"})],
)
def test_message_that_may_not_wait_is_refused_and_not_carried_out(
    machine: Machine, command: str, args: dict[str, object]
) -> None:
    machine.open("T").add_node("N1", "first")
    message = {"id": "m0", "command": command, "args": args, "actor": "a:b", "at": 0.0}
    machine.write("steering/spool/m0.json", json.dumps(message).encode())
    machine.boot_process()
    runtime = machine.open()
    assert {name: node.state for name, node in runtime.state.nodes.items()} == {"N1": "PENDING"}
    answer = json.loads(machine.bytes_of("steering/spool/m0.result.json"))
    assert (answer["error"]["code"], answer["exit_code"]) == ("not_spoolable", 4)
    assert not os.path.exists(f"{machine.root}/steering/spool/m0.json")
