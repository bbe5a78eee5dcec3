"""Exporting and importing, with the process killed or the power lost after each step.

Whatever happens, the exported file is whole or not there, and so is the imported workspace; doing
it again afterwards comes to the same bytes and leaves nothing of the first try behind.
"""

import contextlib
import errno

from tests.crash import scenes, workloads
from tests.crash.sim_machine import ROOT, SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, last_step, states_of, told

from perdure.errors import StorageError
from perdure.runtime.bundle_in import check_bundle
from perdure.runtime.engine import Engine
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.inspection import verify_workspace
from perdure.service.transfer import export_task, import_task
from perdure.storage.workspace import Layout, is_workspace
from perdure.testing import Killed, SimDisk, SimProcesses

FILE = "/some/task.tar.gz"
TARGET = "/other/place/w"
ME = "coordinator:main"


def lived(*, tier: int = 1) -> SimMachine:
    machine = SimMachine.new()
    machine.tier = tier
    workloads.graph_run(machine)
    machine.disk.make_dirs("/other")
    return machine.end()


def export(machine: SimMachine) -> None:
    export_task(ROOT, FILE, actor=ME, force=True, world=machine.world)


def lay_down(machine: SimMachine) -> None:
    import_task(FILE, TARGET, "/other", actor=ME, world=machine.world)


def exported() -> SimMachine:
    machine = lived()
    export(machine)
    return machine


def steps_of(machine: SimMachine, work: object) -> int:
    before = len(machine.disk.log)
    assert callable(work)
    work(machine)
    return len(machine.disk.log) - before


def killed(start: SimMachine, work: object, steps: int) -> SimMachine:
    machine = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    machine.disk.kill_after(steps)
    assert callable(work)
    with contextlib.suppress(Killed):
        work(machine)
    assert machine.disk.is_dead
    return machine


def files_below(disk: SimDisk, directory: str) -> dict[str, object]:
    return {path: data for path, data in disk.tree().items() if path.startswith(f"{directory}/")}


def litter(disk: SimDisk) -> list[str]:
    names = [path for path in disk.tree() if ROOT not in path]
    return [name for name in names if ".tmp-" in name or ".import.lock" in name]


def check_exported(machine: SimMachine, whole: object, tally: Tally) -> None:
    tally.add("states")
    found = machine.disk.tree().get(FILE)
    assert found in (None, whole)
    export(machine)
    assert machine.disk.tree()[FILE] == whole


def test_an_export_that_dies_anywhere_leaves_the_whole_file_or_none(tally: Tally) -> None:
    start = lived()
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    count = steps_of(trial, export)
    whole = trial.disk.tree()[FILE]
    assert not litter(trial.disk)
    chance = chance_for("export")
    for steps in range(1, count):
        dead = killed(start, export, steps)
        for _, left in states_of(dead.disk, QUICK, chance):
            with told("cut after", last_step(dead), left.story()):
                check_exported(dead.next(left, power_cut=True), whole, tally)
        with told("killed after", last_step(dead)):
            check_exported(dead.end(), whole, tally)


def check_imported(machine: SimMachine, whole: dict[str, object], tally: Tally) -> None:
    tally.add("states")
    if is_workspace(machine.disk, TARGET):
        assert journal_of(machine) == machine.journal()
        assert files_below(machine.disk, TARGET).keys() == whole.keys()
    else:
        assert not files_below(machine.disk, TARGET)
    lay_down(machine)
    found = files_below(machine.disk, TARGET)
    rebuilt = {Layout(TARGET).snapshot, Layout(TARGET).task_graph, Layout(TARGET).checkpoint}
    rebuilt |= {Layout(TARGET).registry, Layout(TARGET).inbox}
    rebuilt |= {f"{Layout(TARGET).docs}/{name}" for name in ("task-plan.md", "progress.md")}
    assert {k: v for k, v in found.items() if k not in rebuilt} == {
        k: v for k, v in whole.items() if k not in rebuilt
    }
    assert found.keys() == whole.keys()


def journal_of(machine: SimMachine) -> bytes:
    data = machine.disk.tree()[f"{TARGET}/journal.jsonl"]
    assert isinstance(data, bytes)
    return data


def test_an_import_that_dies_anywhere_leaves_a_whole_workspace_or_none(tally: Tally) -> None:
    start = exported()
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    count = steps_of(trial, lay_down)
    whole = files_below(trial.disk, TARGET)
    assert not litter(trial.disk)
    chance = chance_for("import")
    for steps in range(1, count):
        dead = killed(start, lay_down, steps)
        for _, left in states_of(dead.disk, QUICK, chance):
            with told("cut after", last_step(dead), left.story()):
                check_imported(dead.next(left, power_cut=True), whole, tally)
        with told("killed after", last_step(dead)):
            check_imported(dead.end(), whole, tally)


def test_an_acknowledged_import_outlives_the_power(tally: Tally) -> None:
    machine = exported()
    lay_down(machine)
    whole = files_below(machine.disk, TARGET)
    for _, left in states_of(machine.disk, QUICK, chance_for("acknowledged")):
        tally.add("states")
        assert left.tree()[f"{TARGET}/journal.jsonl"] == machine.journal()
        check_imported(machine.next(left, power_cut=True), whole, tally)


def test_a_step_of_an_import_that_fails_leaves_nothing_behind(tally: Tally) -> None:
    start = exported()
    trial = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
    count = steps_of(trial, lay_down)
    for number in range(1, count + 1):
        machine = start.next(start.disk.holding(start.disk.files.copy()), power_cut=False)
        machine.disk.fail(len(machine.disk.log) + number, errno.EIO)
        try:
            lay_down(machine)
        except StorageError:
            tally.add("states")
        machine.disk.heal()
        with told("step", number, last_step(machine)):
            if is_workspace(machine.disk, TARGET):
                assert journal_of(machine) == machine.journal()
            else:
                assert not files_below(machine.disk, TARGET)
            lay_down(machine)
            assert journal_of(machine) == machine.journal()
            assert not [n for n in litter(machine.disk) if ".tmp-" in n]


def test_an_interrupted_task_is_taken_over_on_another_machine_with_nothing_lost() -> None:
    start = SimMachine.new()
    scenes.at_work(start)
    machine = start.end()
    export(machine)
    lay_down(machine)
    world = machine.world._replace(processes=SimProcesses(200, host="other-host"))
    runtime = HaltRuntime.resume(TARGET, actor=ME, world=world)
    state = runtime.state
    runtime.close()
    assert not state.contracts
    assert [node.interruptions for node in state.nodes.values()] == [0, 1, 0]
    assert journal_of(machine).startswith(machine.journal())
    assert verify_workspace(Engine(TARGET, world, ME)).ok


def test_at_tier_2_the_imported_task_has_its_mirror_at_once() -> None:
    machine = lived(tier=2)
    export(machine)
    assert check_bundle(machine.disk, FILE)[0].tier == 2
    lay_down(machine)
    tree = machine.disk.tree()
    assert tree[f"{TARGET}/journal-mirror.jsonl"] == tree[f"{TARGET}/journal.jsonl"]
