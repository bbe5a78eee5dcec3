"""Clock, ids and processes of the simulated machine, and the worlds made of them."""

import pytest

from perdure.ports import Clock, Disk, Ids, Processes
from perdure.runtime.halt import HaltRuntime
from perdure.testing import SimClock, SimDisk, SimIds, SimProcesses, next_world, sim_world


def test_they_are_what_the_ports_ask_for() -> None:
    ports: tuple[Disk, Clock, Ids, Processes] = (SimDisk(), SimClock(), SimIds(), SimProcesses())
    assert all(ports)


def test_a_sleep_moves_the_clock_and_a_step_only_the_wall() -> None:
    clock = SimClock(100.0, monotonic_s=5.0)
    clock.sleep(2.0)
    clock.sleep(-1.0)
    assert (clock.now(), clock.monotonic()) == (102.0, 7.0)
    clock.step(-50.0)
    assert (clock.now(), clock.monotonic()) == (52.0, 7.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)


def test_ids_are_counted_and_a_copy_goes_on_by_itself() -> None:
    ids = SimIds()
    assert [ids.token(), ids.token()] == ["00000001", "00000002"]
    other = ids.copy()
    assert ids.token() == other.token() == "00000003"


def test_processes_see_each_other_stop_go_on_and_die() -> None:
    mine = SimProcesses(100)
    theirs = mine.seen_from(200)
    them = theirs.me()
    assert (mine.state(them), theirs.state(mine.me())) == ("alive", "alive")
    mine.stop(200)
    assert mine.state(them) == "stopped"
    mine.cont(200)
    assert mine.state(them) == "alive"
    mine.kill(200)
    assert mine.state(them) == "gone"
    assert theirs.me().pid == 0, "what is left of the dead speaks for nobody"
    with pytest.raises(ValueError, match="no process 200"):
        mine.stop(200)


def test_a_reused_pid_is_another_process() -> None:
    mine = SimProcesses()
    first = mine.spawn(200)
    with pytest.raises(ValueError, match="is running"):
        mine.spawn(200)
    second = mine.reuse(200)
    assert (mine.state(first), mine.state(second)) == ("gone", "alive")


def test_after_a_reboot_nothing_of_the_old_boot_lives() -> None:
    mine = SimProcesses()
    other = mine.spawn()
    mine.reboot()
    assert mine.state(other) == "gone"
    assert mine.me().pid == 0
    again = mine.seen_from(other.pid)
    assert again.me().boot_id != other.boot_id
    assert mine.state(again.me()) == "alive"


def test_of_another_host_nothing_is_known() -> None:
    assert SimProcesses().state(SimProcesses(host="elsewhere").me()) == "unknown"


def test_the_process_of_a_killed_disk_is_gone_from_the_table() -> None:
    processes = SimProcesses()
    world = sim_world(SimDisk(cut_after=0), processes=processes)
    assert world.processes.me().pid == 0
    alive = sim_world(processes=processes.seen_from(200))
    assert isinstance(alive.disk, SimDisk)
    me = alive.processes.me()
    alive.disk.kill()
    assert processes.state(me) == "gone"


@pytest.mark.parametrize("power_cut", [False, True])
def test_the_next_world_goes_on_where_the_old_one_is_and_touches_nothing_of_it(
    power_cut: bool,
) -> None:
    disk = SimDisk()
    world = sim_world(disk)
    runtime = HaltRuntime("/w", "T", world=world)
    runtime.note("hello")
    holder = world.processes.me()
    left = disk.survive_kill()
    again = next_world(world, left, power_cut=power_cut)
    other = next_world(world, left, power_cut=power_cut)
    assert again.processes.me() == other.processes.me() != holder
    assert (again.processes.me().boot_id == holder.boot_id) != power_cut
    assert again.processes.state(holder) == "gone"
    assert again.clock.now() == world.clock.now() + 1.0
    assert again.ids.token() == other.ids.token()
    with HaltRuntime.resume("/w", world=again) as resumed:
        assert [event.payload.get("text") for event in resumed.events()][-2] == "hello"
    runtime.close()


def test_the_next_world_needs_a_simulated_one() -> None:
    world = sim_world()._replace(ids=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sim_world"):
        next_world(world, SimDisk())
