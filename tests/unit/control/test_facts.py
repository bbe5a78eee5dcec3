"""What supervision reads outside the journal is read as it is, or not at all."""

import pytest

from perdure import HaltRuntime
from perdure.control.facts import gather_facts, ledger_tail_bytes
from perdure.core.model import MapSpec
from perdure.core.supervision_records import Facts
from perdure.runtime.contracts import Units
from perdure.runtime.reader import Reader
from perdure.runtime.work import start
from perdure.runtime.world import World
from perdure.testing import SimDisk, sim_world

W = "/w"
LEDGER = f"{W}/artifacts/B/ledger.jsonl"
LINE = b'{"unit_id": "u%d", "status": "ok", "artifact": "x", "ts": "%s"}\n'


@pytest.fixture
def world() -> World:
    world = sim_world()
    with HaltRuntime(W, "T", world=world) as runtime:
        runtime.add_node("B", "batch", map=MapSpec(run="true", list=("u1", "u2")))
        inventory = {"total": 2, "sha256": "0" * 64, "source": "list", "sample": []}
        start(runtime.engine, "B", units=lambda _: Units(inventory, 0))
    return world


def gathered(world: World) -> Facts:
    reader = Reader(W, world, "recorder:test")
    reader.load()
    return gather_facts(reader, world.clock.now())


def ledger(world: World, data: bytes) -> float | None:
    assert isinstance(world.disk, SimDisk)
    world.disk.replace(LEDGER, data, durable=False)
    return gathered(world).ledgers.get("B")


def test_the_newest_whole_line_of_a_ledger_counts(world: World) -> None:
    assert gathered(world).ledgers == {}
    lines = LINE % (1, b"2027-01-15T07:59:00+00:00") + LINE % (2, b"2027-01-15T08:59:30+01:00")
    assert ledger(world, lines) == 1_800_000_000.0 - 30
    assert ledger(world, lines + b'{"unit_id": "u3", "ts": "2027') == 1_800_000_000.0 - 30
    assert ledger(world, lines + b"\0\0\0\n{}\n[]\n") == 1_800_000_000.0 - 30


def test_no_line_counts_as_later_than_its_file(world: World) -> None:
    assert ledger(world, LINE % (1, b"2099-01-01T00:00:00+00:00")) == 1_800_000_000.0


@pytest.mark.parametrize("data", [b"", b"\n", b"nothing\n", b'{"ts": "soon"}\n', b'{"ts": "2027-'])
def test_a_ledger_that_says_nothing_is_no_fact(world: World, data: bytes) -> None:
    assert ledger(world, data) is None


def test_a_long_ledger_is_read_from_its_end(world: World) -> None:
    many = (LINE % (1, b"2027-01-15T07:00:00+00:00")) * (2 * ledger_tail_bytes // 80)
    assert ledger(world, many + LINE % (2, b"2027-01-15T07:59:59+00:00")) == 1_800_000_000.0 - 1


def test_a_disk_that_fails_is_no_fact(world: World) -> None:
    assert isinstance(world.disk, SimDisk)
    lines = LINE % (1, b"2027-01-15T07:59:00+00:00")
    assert ledger(world, lines) is not None
    world.disk.fail(lambda op: op.kind == "read" and op.path == LEDGER, 5, times=None)
    assert gathered(world).ledgers == {}


def test_a_file_that_cannot_be_read_is_neither_there_nor_missing(world: World) -> None:
    disk = world.disk
    assert isinstance(disk, SimDisk)
    path = f"{W}/artifacts/N1/a.txt"
    with HaltRuntime(W, world=world) as runtime:
        runtime.add_node("N1", "first")
        runtime.start("N1")
        disk.replace(path, b"good", durable=True)
        runtime.register_artifact("A1", "artifacts/N1/a.txt", node_id="N1")
    assert gathered(world).artifacts == {"A1": "whole"}
    world.clock.sleep(1)
    disk.replace(path, b"good", durable=True)  # another time, so that it is hashed
    disk.fail(lambda op: op.kind == "read" and op.path == path, 5, times=None)
    assert gathered(world).artifacts == {}


@pytest.mark.parametrize(("silent_s", "told"), [(1860, "for 31 min,"), (18_000, "for 5 h,")])
def test_how_long_a_session_was_silent_is_told_in_a_fitting_unit(silent_s: int, told: str) -> None:
    world = sim_world()
    with HaltRuntime(W, "T", world=world) as runtime:
        runtime.add_node("N1", "by hand")
        runtime.start("N1", session=True)
    reader = Reader(W, world, "recorder:test")
    reader.load()
    facts = gather_facts(reader, world.clock.now() + silent_s)
    assert told in facts.executors["N1"].observation
