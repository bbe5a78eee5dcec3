"""Adding to a memory store, with the process killed or the power lost after each step.

Whatever happens, an entry is there whole or not at all, one that was acknowledged is there, no id
comes twice, and the index never speaks of what is not there; the next writer puts the rest right.
"""

import errno

from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, Thoroughness, last_step, states_of, told
from tests.crash.test_transfer_steps import killed, steps_of

from perdure.core.memory import Entry
from perdure.errors import StorageError
from perdure.memory.store import Added, Shelf, Store

DIRECTORY = "/some/.perdure/memory"
MANY = Thoroughness(12, 1, 1)


def store(machine: SimMachine) -> Store:
    return Store("project", DIRECTORY, machine.disk, machine.clock)


def put(machine: SimMachine, statement: str, *, over: tuple[str, ...] = ()) -> Added:
    def make(shelf: Shelf, name: str) -> Entry:
        return Entry(
            id=name,
            kind="env",
            scope="project:p",
            statement=statement,
            evidence_refs=("T#J-1",),
            created="2026-01-01T00:00:00.000+00:00",
            supersedes=over,
            freshness="stable",
            by="coordinator:main",
            op=statement,
        )

    return store(machine).add(make, op=statement)


def said(machine: SimMachine) -> list[str]:
    return [entry.statement for entry in store(machine).read().reading.entries]


def add(machine: SimMachine) -> None:
    put(machine, "the new one", over=("MEM-0001",))


def started(*, edited: bool = False, torn: bool = False) -> SimMachine:
    machine = SimMachine.new()
    machine.disk.make_dirs("/some/.perdure")
    for statement in ("the first", "the second"):
        put(machine, statement)
    if edited:
        machine.disk.replace(f"{DIRECTORY}/MEM-INDEX.md", b"mine\n", durable=True)
    if torn:
        file = machine.disk.open_append(f"{DIRECTORY}/entries.jsonl")
        file.append(b'{"id":"MEM-0003","kind":"en')
        file.sync()
        file.close()
    return machine.end()


def check(machine: SimMachine, tally: Tally) -> None:
    tally.add("states")
    before = ["the first", "the second"]
    shelf = store(machine).read()
    assert shelf.reading.damage is None
    assert shelf.judged.state != "ahead"
    assert said(machine) in (before, [*before, "the new one"])
    add(machine)
    put(machine, "a later one")
    assert said(machine) == [*before, "the new one", "a later one"]
    after = store(machine).read()
    assert [entry.id for entry in after.reading.entries] == [f"MEM-000{n}" for n in (1, 2, 3, 4)]
    assert after.chains.by == {"MEM-0001": "MEM-0003"}
    assert after.notices == []


def die_everywhere(start: SimMachine, tally: Tally, name: str) -> None:
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    count = steps_of(trial, add)
    chance = chance_for(name)
    for steps in range(1, count):
        dead = killed(start, add, steps)
        for _, left in states_of(dead.disk, QUICK, chance):
            with told("cut after", last_step(dead), left.story()):
                check(dead.next(left, power_cut=True), tally)
        with told("killed after", last_step(dead)):
            check(dead.end(), tally)


def test_an_add_that_dies_anywhere_leaves_the_entry_whole_or_not_at_all(tally: Tally) -> None:
    die_everywhere(started(), tally, "memory-add")


def test_an_add_that_puts_a_torn_tail_aside_may_die_anywhere(tally: Tally) -> None:
    start = started(torn=True)
    die_everywhere(start, tally, "memory-torn")
    machine = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    add(machine)
    kept = [path for path in machine.disk.tree() if "/recovered/" in path]
    assert [machine.disk.tree()[path] for path in kept] == [b'{"id":"MEM-0003","kind":"en']


def test_an_add_over_an_edited_index_keeps_the_edit_wherever_it_dies(tally: Tally) -> None:
    start = started(edited=True)
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    count = steps_of(trial, add)
    for steps in range(1, count):
        dead = killed(start, add, steps)
        machine = dead.end()
        with told("killed after", last_step(dead)):
            check(machine, tally)
            kept = [d for p, d in machine.disk.tree().items() if "MEM-INDEX" in p]
            assert b"mine\n" in kept


def test_the_first_entry_ever_is_there_whole_or_the_store_is_empty(tally: Tally) -> None:
    start = SimMachine.new().end()

    def first(machine: SimMachine) -> None:
        put(machine, "the first")

    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    count = steps_of(trial, first)
    for steps in range(1, count):
        dead = killed(start, first, steps)
        for _, left in states_of(dead.disk, QUICK, chance_for("memory-first")):
            tally.add("states")
            machine = dead.next(left, power_cut=True)
            with told("cut after", last_step(dead), left.story()):
                assert said(machine) in ([], ["the first"])
                first(machine)
                assert said(machine) == ["the first"]


def test_an_acknowledged_entry_outlives_the_power(tally: Tally) -> None:
    machine = started()
    add(machine)
    for _, left in states_of(machine.disk, QUICK, chance_for("memory-acknowledged")):
        after = machine.next(left, power_cut=True)
        assert said(after)[-1] == "the new one"
        check(after, tally)


def test_what_was_read_is_durable_before_it_is_cited(tally: Tally) -> None:
    """Killed before its sync, the line may be seen and go with the power; what cites it may not."""
    start = started()
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    chance = chance_for("memory-cited")
    for steps in range(1, steps_of(trial, add)):
        machine = killed(start, add, steps).end()
        seen = said(machine)
        store(machine).make_sure()
        for _, left in states_of(machine.disk, MANY, chance):
            tally.add("states")
            assert said(machine.next(left, power_cut=True)) == seen


def test_a_step_that_fails_loses_nothing_and_repeats_nothing(tally: Tally) -> None:
    start = started()
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    chance = chance_for("memory-failed")
    for number in range(1, steps_of(trial, add) + 1):
        machine = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
        machine.disk.fail(len(machine.disk.log) + number, errno.ENOSPC)
        acknowledged = False
        try:
            add(machine)
            acknowledged = True
        except StorageError:
            tally.add("states")
        machine.disk.heal()
        with told("step", number, last_step(machine)):
            assert not acknowledged or said(machine)[-1] == "the new one"
            check(machine, tally)
            for _, left in states_of(machine.disk, MANY, chance):
                assert said(machine.next(left, power_cut=True))[2:] == [
                    "the new one",
                    "a later one",
                ]
