"""Workspaces in need of recovery: each function leaves one, with nobody at work in it.

They do their damage through the Disk port, so they run on the real disk and on the simulated one.
"""

from tests.crash.workloads import AnyMachine

from perdure.core import commands as c
from perdure.ports import Disk
from perdure.storage import spool


def at_work(machine: AnyMachine) -> None:
    """A task with one node DONE, one RUNNING and one waiting."""
    machine.boot_process()
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    runtime.add_node("N2", "second", deps=["N1"])
    runtime.add_node("N3", "third", deps=["N2"])
    runtime.move_task("EXECUTING")
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.submit("N1")
    runtime.start("N2")
    machine.write("artifacts/N2/half.txt", b"half")
    runtime.register_artifact("", "artifacts/N2/half.txt", node_id="N2")
    machine.write("artifacts/N2/stray.txt", b"stray")
    machine.acknowledge()


def busy(machine: AnyMachine) -> Disk:
    """The same, and its process is killed. Returns the disk of another one, to do damage with."""
    at_work(machine)
    machine.boot_process()
    return machine.disk


def orphan_at_work(machine: AnyMachine) -> None:
    busy(machine)


def with_tail(machine: AnyMachine, tail: bytes) -> None:
    busy(machine).open_append(machine.layout.journal).append(tail)


def torn_in_half_a_character(machine: AnyMachine) -> None:
    with_tail(machine, b'{"t":"\xe2\x82')


def torn_into_zeros(machine: AnyMachine) -> None:
    with_tail(machine, b"\0" * 4096)


def torn_into_noise(machine: AnyMachine) -> None:
    with_tail(machine, bytes(range(256)) * 3)


def torn_commit_of_several_lines(machine: AnyMachine) -> None:
    at_work(machine)
    length = len(machine.journal())
    with machine.runtimes[-1].batch():
        for number in range(4):
            machine.runtimes[-1].note(f"note {number}")
    machine.boot_process()
    data = machine.journal()[length:]
    last = data.splitlines(keepends=True)[-1]
    cut = length + len(data) - len(last) // 2 - len(last)
    machine.disk.truncate(machine.layout.journal, cut)


def blank_lines_at_the_end(machine: AnyMachine) -> None:
    with_tail(machine, b"\n\n")


def file_of_done_work_gone(machine: AnyMachine) -> None:
    busy(machine).unlink(f"{machine.root}/artifacts/N1/a.txt", durable=False)
    machine.lost_paths.add("artifacts/N1/a.txt")


def projections_gone(machine: AnyMachine) -> None:
    disk = busy(machine)
    for name in (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json"):
        disk.unlink(f"{machine.root}/{name}", durable=False)


def projections_damaged(machine: AnyMachine) -> None:
    busy(machine)
    machine.open().close()
    machine.boot_process()
    for name in (".snapshot.json", "task-graph.json", "checkpoint.json"):
        machine.disk.rewrite(f"{machine.root}/{name}", 10, b"#")


def lease_file_empty(machine: AnyMachine) -> None:
    busy(machine).replace(machine.layout.lease, b"", durable=False)


def litter_of_other_processes(machine: AnyMachine) -> None:
    disk = busy(machine)
    for name in (
        ".lease.json.tmp-7-1",
        "contracts/.inv.json.tmp-7-2",
        "artifacts/.registry.tmp-7-3",
    ):
        disk.replace(f"{machine.root}/{name}", b'{"half":', durable=False)


def message_in_the_drop_box(machine: AnyMachine) -> None:
    disk = busy(machine)
    args = {"id": "ST-1", "text": "turn left"}
    message = spool.Message("msg-1", "steer", args, "sponsor:ann", machine.clock.now())
    spool.drop(disk, machine.layout, message)
    machine.promised.append("msg-1")


def words_on_record_alone(machine: AnyMachine) -> None:
    """The process was killed between the two commits of an instruction."""
    at_work(machine)
    engine = machine.runtimes[-1].engine
    with engine.writing():
        engine.execute(c.LogSteering("ST-1", "metric units"))
    machine.acknowledge()
    machine.boot_process()


def words_in_a_file(machine: AnyMachine) -> None:
    busy(machine)
    machine.write("steering/write-here.md", b"metric units\n")
    machine.disk.sync_file(f"{machine.root}/steering/write-here.md")
    machine.disk.sync_dir(f"{machine.root}/steering")


def words_in_a_file_that_was_taken(machine: AnyMachine) -> None:
    """The process was killed between the rename and the commit."""
    words_in_a_file(machine)
    folder = f"{machine.root}/steering"
    machine.disk.make_dirs(f"{folder}/taken")
    taken = f"{folder}/taken/20270115080000-0000aaaa.md"
    machine.disk.rename(f"{folder}/write-here.md", taken)


def no_messages_in_the_drop_box(machine: AnyMachine) -> None:
    disk = busy(machine)
    for name in ("torn.json", "README"):
        disk.replace(f"{machine.layout.spool}/{name}", b'{"id":"torn","comm', durable=True)


SCENES = (
    orphan_at_work,
    torn_in_half_a_character,
    torn_into_zeros,
    torn_into_noise,
    torn_commit_of_several_lines,
    blank_lines_at_the_end,
    file_of_done_work_gone,
    projections_gone,
    projections_damaged,
    lease_file_empty,
    litter_of_other_processes,
    message_in_the_drop_box,
    words_on_record_alone,
    words_in_a_file,
    words_in_a_file_that_was_taken,
    no_messages_in_the_drop_box,
)
