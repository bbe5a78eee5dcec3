"""A task of tier 2 as its commands see it: what each of them does about two journals (J-2)."""

from collections.abc import Callable

import pytest
from tests.crash.sim_machine import ROOT, SimMachine

from perdure.core.codec import Scan
from perdure.errors import CorruptError, LeaseHeldError, NotFoundError, RefusedError
from perdure.runtime.engine import Engine
from perdure.runtime.halt import HaltRuntime
from perdure.service.tasks import Service
from perdure.storage.workspace import find_workspace
from perdure.testing import Op, SimDisk, next_world

JOURNAL, MIRROR = f"{ROOT}/journal.jsonl", f"{ROOT}/journal-mirror.jsonl"
SNAPSHOT = f"{ROOT}/.snapshot.json"


@pytest.fixture
def machine() -> SimMachine:
    """A task of tier 2 with a few notes, closed; another process has begun."""
    machine = SimMachine.new()
    machine.tier = 2
    runtime = machine.open("T")
    for number in range(5):
        runtime.note(f"note {number}")
    runtime.close()
    machine.boot_process()
    return machine


def service(machine: SimMachine) -> Service:
    return Service(ROOT, actor="sponsor:ada", world=machine.world)


def flip(disk: SimDisk, path: str, at: int) -> None:
    data = bytearray(disk.read(path))
    data[at] ^= 1
    disk.write(path, bytes(data))


def both(machine: SimMachine) -> tuple[bytes | None, bytes | None]:
    return machine.bytes_of("journal.jsonl"), machine.bytes_of("journal-mirror.jsonl")


def first_commit(disk: SimDisk) -> int:
    """Byte where the first commit ends."""
    scan = Scan()
    next(scan.commits(disk.read_chunks(JOURNAL)))
    return scan.tip.offset


def lose_projections(disk: SimDisk) -> None:
    for name in (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json"):
        disk.unlink(f"{ROOT}/{name}", durable=True)


def second_line(machine: SimMachine) -> int:
    return machine.journal().index(b"\n") + 60


# What it costs


def test_a_lower_tier_has_no_mirror_and_asks_nothing_of_one() -> None:
    for tier in (0, 1):
        machine = SimMachine.new()
        machine.tier = tier
        runtime = machine.open("T")
        runtime.note("x")
        assert machine.bytes_of("journal-mirror.jsonl") is None
        assert not [op for op in machine.disk.log if "mirror" in op.path + op.target]
        assert runtime.engine.journal.mirror is None


def test_opening_and_committing_read_the_end_of_the_mirror_and_never_all_of_it(
    machine: SimMachine,
) -> None:
    runtime = machine.open("T")
    for number in range(40):
        runtime.note(f"more {number} " + "x" * 500)
    runtime.close()
    machine.boot_process()
    read = bytes_read(machine.disk, MIRROR)
    runtime = machine.open("T")
    runtime.note("one")
    runtime.note("two")
    runtime.close()
    assert 0 < sum(read) < 3_000


def bytes_read(disk: SimDisk, path: str) -> list[int]:
    """Will hold how many bytes each read of that file returns."""
    found = list[int]()
    plain, chunks = disk.read, disk.read_chunks

    def read(of: str, offset: int = 0, length: int | None = None) -> bytes:
        data = plain(of, offset, length)
        if of == path:
            found.append(len(data))
        return data

    def in_chunks(of: str, chunk_bytes: int = 1 << 20, offset: int = 0) -> object:
        for data in chunks(of, chunk_bytes, offset):
            if of == path:
                found.append(len(data))
            yield data

    disk.read, disk.read_chunks = read, in_chunks  # type: ignore[method-assign, assignment]
    return found


def test_a_commit_costs_two_writes_and_two_syncs(machine: SimMachine) -> None:
    runtime = machine.open("T")
    before = len(machine.disk.log)
    runtime.note("x")
    steps = [(op.kind, op.path) for op in machine.disk.log[before:]]
    assert steps == [
        ("write", JOURNAL), ("write", MIRROR), ("sync_file", JOURNAL), ("sync_file", MIRROR),
    ]  # fmt: skip


# Looking


@pytest.mark.parametrize("harm", ["flipped", "gone", "cut"])
def test_looking_at_a_damaged_journal_says_that_the_mirror_is_whole(
    machine: SimMachine, harm: str
) -> None:
    if harm == "flipped":
        machine.disk.unlink(SNAPSHOT, durable=True)
        flip(machine.disk, JOURNAL, second_line(machine))
    elif harm == "gone":
        machine.disk.unlink(JOURNAL, durable=True)
    else:
        machine.disk.truncate(JOURNAL, second_line(machine))
    before = both(machine)
    for look in (service(machine).status, service(machine).log):
        with pytest.raises(CorruptError) as caught:
            look()
        assert caught.value.exit_code == 6
        assert "mirror is whole up to J-7" in caught.value.message
        assert "perdure resume" in caught.value.fix
    assert both(machine) == before


def damage_both(machine: SimMachine, journal_line: int, mirror_line: int) -> None:
    """Flip a bit in another line of each, with nothing to begin from but the first byte."""
    lines = machine.journal().splitlines(keepends=True)
    lose_projections(machine.disk)
    for path, line in ((JOURNAL, journal_line), (MIRROR, mirror_line)):
        flip(machine.disk, path, len(b"".join(lines[: line - 1])) + 60)


@pytest.mark.parametrize(("journal_line", "mirror_line"), [(5, 3), (3, 5)])
def test_looking_names_the_cure_where_each_of_the_two_is_damaged_in_another_line(
    machine: SimMachine, journal_line: int, mirror_line: int
) -> None:
    damage_both(machine, journal_line, mirror_line)
    before = both(machine)
    with pytest.raises(CorruptError) as caught:
        service(machine).status()
    assert "whole up to J-7" in caught.value.message
    assert "perdure resume" in caught.value.fix
    data = service(machine).verify()
    assert data["exit_code"] == 6
    (fix,) = {p["fix"] for p in data["problems"] if p["what"] == "journal"}
    assert "perdure resume" in fix
    assert "whole up to J-7" in fix
    assert both(machine) == before
    assert service(machine).resume()["repaired"]
    assert service(machine).verify()["problems"] == []


def test_looking_promises_nothing_where_the_same_line_is_damaged_in_both(
    machine: SimMachine,
) -> None:
    damage_both(machine, 4, 4)
    with pytest.raises(CorruptError) as caught:
        service(machine).status()
    assert "from a copy" in caught.value.fix
    (fix,) = {p["fix"] for p in service(machine).verify()["problems"] if p["what"] == "journal"}
    assert "from a copy" in fix


def test_a_workspace_whose_journal_is_gone_is_still_found(machine: SimMachine) -> None:
    machine.disk.unlink(JOURNAL, durable=True)
    assert find_workspace(machine.disk, ROOT, None) == ROOT
    with HaltRuntime.resume(ROOT, world=machine.world) as runtime:
        assert runtime.state.seq > 7


def test_without_a_mirror_the_cure_is_a_copy(machine: SimMachine) -> None:
    machine.disk.unlink(MIRROR, durable=True)
    machine.disk.unlink(SNAPSHOT, durable=True)
    flip(machine.disk, JOURNAL, second_line(machine))
    for call in (service(machine).status, service(machine).resume):
        with pytest.raises(CorruptError, match="from a copy"):
            call()


def test_a_directory_with_neither_is_no_workspace(machine: SimMachine) -> None:
    for path in (JOURNAL, MIRROR, SNAPSHOT):
        machine.disk.unlink(path, durable=True)
    with pytest.raises(NotFoundError):
        service(machine).status()


# Verifying


def problems(machine: SimMachine) -> list[tuple[str, str, str]]:
    data = service(machine).verify()
    assert data["exit_code"] == (6 if data["problems"] else 0), data
    return [(p["what"], p["message"], p["fix"]) for p in data["problems"]]


def test_verify_compares_both_in_full(machine: SimMachine) -> None:
    assert problems(machine) == []
    flip(machine.disk, MIRROR, second_line(machine))
    ((what, message, fix),) = problems(machine)
    assert what == "mirror"
    assert "line 2, at byte" in message
    assert "perdure resume" in fix
    findings = service(machine).doctor()["findings"]
    assert any("differs from the journal" in finding["finding"] for finding in findings)
    assert service(machine).resume()["repaired"]
    assert problems(machine) == []


def test_verify_knows_the_cure_of_a_damaged_journal_that_a_snapshot_hides(
    machine: SimMachine,
) -> None:
    whole = machine.journal()
    flip(machine.disk, JOURNAL, second_line(machine))
    service(machine).status()  # opening reads the tail alone
    ((what, _, fix),) = problems(machine)
    assert what == "journal"
    assert "mirror is whole up to J-7" in fix
    data = service(machine).resume()
    assert any("the journal was damaged: line 2" in text for text in data["found"])
    assert any("restored from its mirror" in text for text in data["repaired"])
    assert machine.journal().startswith(whole)
    assert problems(machine) == []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda disk: disk.unlink(MIRROR, durable=True), "is gone"),
        (lambda disk: disk.truncate(MIRROR, 40), "J-1 to J-7 are not in it"),
    ],
)
def test_verify_tells_a_mirror_that_is_gone_or_short(
    machine: SimMachine, harm: Callable[[SimDisk], object], said: str
) -> None:
    harm(machine.disk)
    ((what, message, _),) = problems(machine)
    assert what == "mirror"
    assert said in message
    assert service(machine).resume()["exit_code"] in (0, 10, 11)
    assert problems(machine) == []


def test_a_commit_that_only_the_journal_has_yet_is_a_notice(machine: SimMachine) -> None:
    machine.disk.truncate(MIRROR, len(machine.journal()) - 20)
    assert problems(machine) == []
    notices = service(machine).verify()["notices"]
    assert any("does not have all of J-7 yet" in notice["message"] for notice in notices)


# Short commands


@pytest.mark.parametrize(
    "harm",
    [
        lambda disk: disk.unlink(MIRROR, durable=True),
        lambda disk: disk.truncate(MIRROR, 40),
        lambda disk: disk.write(MIRROR, disk.read(MIRROR).replace(b"note 4", b"note 5")),
        lambda disk: disk.open_append(MIRROR).append(disk.read(MIRROR)[-300:]),
        lambda disk: disk.truncate(JOURNAL, first_commit(disk)),
    ],
    ids=["gone", "short", "another last line", "longer", "journal shorter"],
)
def test_a_short_command_leaves_to_a_recovery_what_no_crash_explains(
    machine: SimMachine, harm: Callable[[SimDisk], object]
) -> None:
    lose_projections(machine.disk)
    whole = machine.journal()
    harm(machine.disk)
    before = both(machine)
    with (
        HaltRuntime.attach(ROOT, world=machine.world) as runtime,
        pytest.raises(CorruptError) as caught,
    ):
        runtime.note("not now")
    assert caught.value.code == "mirror_disagrees"
    assert "perdure resume" in caught.value.fix
    assert both(machine) == before
    machine.boot_process()
    assert service(machine).resume()["repaired"]
    assert machine.journal().startswith(whole)
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
        runtime.note("now")
    assert len(set(both(machine))) == 1


def test_a_short_command_completes_a_creation_that_was_cut_short() -> None:
    machine = SimMachine.new()
    machine.tier = 2
    machine.open("T")
    machine.boot_process()
    machine.disk.truncate(JOURNAL, first_commit(machine.disk))
    lose_projections(machine.disk)
    machine.disk.unlink(MIRROR, durable=True)
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
        runtime.note("x")
    assert len(set(both(machine))) == 1


@pytest.mark.parametrize("torn", [b"", b'{"seq":8,"ts', b"\0" * 99], ids=["", "torn", "zeros"])
def test_a_short_command_finds_in_the_mirror_the_commit_that_the_journal_lost(
    machine: SimMachine, torn: bytes
) -> None:
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
        runtime.note("written to both, and lost from one")
    machine.boot_process()
    whole = machine.journal()
    start = whole[:-1].rindex(b"\n") + 1
    machine.disk.truncate(JOURNAL, start)
    lose_projections(machine.disk)
    machine.disk.open_append(JOURNAL).append(torn)
    with HaltRuntime.attach(ROOT, world=machine.world) as runtime:
        runtime.note("the next one")
        fragments = [a for a in runtime.registry.values() if a.kind == "fragment"]
        assert len(fragments) == (torn[:1] == b"\0"), "what the mirror bears out is not kept twice"
    assert machine.journal().startswith(whole)
    assert len(set(both(machine))) == 1


def test_lines_of_another_program_in_the_journal_alone_are_taken_into_the_mirror_by_a_recovery(
    machine: SimMachine,
) -> None:
    for seq in (8, 9, 10):
        line = (
            b'{"seq":%d,"ts":"2027-01-15T08:00:00Z","actor":"x","kind":"NOTE","tx":null,'
            b'"entity":{"type":"task","id":"T"},"payload":{"op":"note","text":"hello"},'
            b'"evidence":[]}\n' % seq
        )
        machine.disk.open_append(JOURNAL).append(line)
    with (
        HaltRuntime.attach(ROOT, world=machine.world) as runtime,
        pytest.raises(CorruptError, match="begins at byte"),
    ):
        runtime.note("x")
    machine.boot_process()
    with machine.open("T") as runtime:
        assert any("completed from the journal" in text for text in runtime.recovered.repaired)
        assert runtime.state.unchained == 3
    assert len(set(both(machine))) == 1


# Coordinators


def test_a_mirror_that_vanishes_under_a_coordinator_stops_its_next_commit(
    machine: SimMachine,
) -> None:
    runtime = machine.open("T")
    runtime.note("before")
    machine.disk.unlink(MIRROR, durable=True)
    before = machine.journal()
    with pytest.raises(CorruptError, match="it is gone"):
        runtime.note("after")
    assert machine.journal() == before
    runtime.close()
    machine.boot_process()
    with machine.open("T") as after:
        assert "the journal mirror was gone" in after.recovered.found
        after.note("and on it goes")
    assert len(set(both(machine))) == 1


def test_a_restored_mirror_is_another_file_and_is_gone_on_with(machine: SimMachine) -> None:
    attached = HaltRuntime.attach(ROOT, world=machine.world)
    attached.note("one")
    whole = machine.disk.read(MIRROR)
    machine.disk.unlink(MIRROR, durable=True)
    machine.disk.replace(MIRROR, whole, durable=True)
    attached.note("two")
    attached.close()
    assert len(set(both(machine))) == 1


def test_nothing_is_restored_while_a_coordinator_lives(machine: SimMachine) -> None:
    holder = machine.open("T")
    flip(machine.disk, JOURNAL, second_line(machine))
    before = both(machine)
    processes = machine.world.processes
    other = machine.world._replace(
        disk=machine.disk.beside(), processes=processes.seen_from(processes.unused_pid())
    )
    with pytest.raises(LeaseHeldError):
        HaltRuntime.resume(ROOT, world=other)
    assert both(machine) == before
    holder.close()
    HaltRuntime.resume(ROOT, world=other).close()
    assert len(set(both(machine))) == 1


def test_another_task_is_refused_before_anything_is_restored(machine: SimMachine) -> None:
    machine.disk.unlink(JOURNAL, durable=True)
    before = machine.disk.read(MIRROR)
    with pytest.raises(RefusedError) as caught:
        machine.open("OTHER")
    assert caught.value.code == "task_mismatch"
    assert both(machine) == (None, before)


def test_a_run_that_names_its_task_restores_a_journal_that_it_cannot_read(
    machine: SimMachine,
) -> None:
    whole = machine.journal()
    machine.disk.unlink(SNAPSHOT, durable=True)
    flip(machine.disk, JOURNAL, second_line(machine))
    with machine.open("T") as runtime:
        assert any("restored from its mirror" in text for text in runtime.recovered.repaired)
        recorded = [e.payload for e in runtime.events() if e.payload.get("op") == "recovered"]
        assert any("the journal was damaged" in text for text in recorded[-1]["found"])
    assert machine.journal().startswith(whole)


def test_a_full_disk_while_the_journal_is_restored_leaves_everything_for_the_next(
    machine: SimMachine,
) -> None:
    machine.disk.unlink(SNAPSHOT, durable=True)
    flip(machine.disk, JOURNAL, second_line(machine))
    before = both(machine)

    def on_copy(op: Op) -> bool:
        return op.kind == "write" and ".journal.jsonl.tmp-" in op.path

    machine.disk.fail(on_copy, 28, partial_bytes=30)
    with pytest.raises(Exception, match="disk_full"):
        machine.open("T")
    assert both(machine) == before
    machine.disk.heal()
    machine.open("T").close()
    assert len(set(both(machine))) == 1


def test_the_mirror_goes_with_a_workspace_that_is_moved(machine: SimMachine) -> None:
    files = machine.disk.files.copy()
    world = next_world(machine.world, machine.disk.holding(files))
    world.disk.rename(ROOT, "/some/elsewhere")
    with HaltRuntime.resume("/some/elsewhere", world=world) as runtime:
        runtime.note("here")
        tip = runtime.engine.journal.tip
    assert world.disk.stat("/some/elsewhere/journal-mirror.jsonl").size_bytes == tip.offset  # type: ignore[union-attr]


def test_a_reader_takes_no_notice_of_the_mirror(machine: SimMachine) -> None:
    machine.disk.unlink(MIRROR, durable=True)
    reader = Engine(ROOT, machine.world, "executor:main")
    assert reader.load() is None
    assert service(machine).status()["task_id"] == "T"
