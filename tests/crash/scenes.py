"""Workspaces in need of recovery: each function leaves one, with nobody at work in it."""

import json
import os

from tests.crash.disk import Fuse
from tests.crash.machine import Machine


def at_work(root: str) -> Machine:
    """A task with one node DONE, one RUNNING and one waiting."""
    machine = Machine(root)
    machine.boot_process(Fuse())
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
    return machine


def busy(root: str) -> Machine:
    """The same, and its process is killed."""
    machine = at_work(root)
    machine.kill_process()
    return machine


def orphan_at_work(root: str) -> Machine:
    return busy(root)


def with_tail(root: str, tail: bytes) -> Machine:
    machine = busy(root)
    with open(f"{root}/journal.jsonl", "ab") as file:
        file.write(tail)
    return machine


def torn_in_half_a_character(root: str) -> Machine:
    return with_tail(root, b'{"t":"\xe2\x82')


def torn_into_zeros(root: str) -> Machine:
    return with_tail(root, b"\0" * 4096)


def torn_into_noise(root: str) -> Machine:
    return with_tail(root, bytes(range(256)) * 3)


def torn_commit_of_several_lines(root: str) -> Machine:
    machine = at_work(root)
    length = len(machine.journal())
    (runtime,) = machine.runtimes
    with runtime.batch():
        for number in range(4):
            runtime.note(f"note {number}")
    machine.kill_process()
    data = machine.journal()[length:]
    lines = data.splitlines(keepends=True)
    with open(f"{root}/journal.jsonl", "rb+") as file:
        file.truncate(length + len(data) - len(lines[-1]) // 2 - len(lines[-1]))
    return machine


def blank_lines_at_the_end(root: str) -> Machine:
    return with_tail(root, b"\n\n")


def file_of_done_work_gone(root: str) -> Machine:
    machine = busy(root)
    os.unlink(f"{root}/artifacts/N1/a.txt")
    machine.lost_paths.add("artifacts/N1/a.txt")
    return machine


def projections_gone(root: str) -> Machine:
    machine = busy(root)
    for name in (".snapshot.json", "task-graph.json", "checkpoint.json", "artifacts/registry.json"):
        if os.path.exists(f"{root}/{name}"):
            os.unlink(f"{root}/{name}")
    return machine


def projections_damaged(root: str) -> Machine:
    machine = busy(root)
    machine.boot_process(Fuse())
    machine.open().close()
    machine.kill_process()
    for name in (".snapshot.json", "task-graph.json", "checkpoint.json"):
        with open(f"{root}/{name}", "rb+") as file:
            file.seek(10)
            file.write(b"#")
    return machine


def lease_file_empty(root: str) -> Machine:
    machine = busy(root)
    with open(f"{root}/lease.json", "wb"):
        pass
    return machine


def litter_of_other_processes(root: str) -> Machine:
    machine = busy(root)
    for name in (
        ".lease.json.tmp-7-1",
        "contracts/.inv.json.tmp-7-2",
        "artifacts/.registry.tmp-7-3",
    ):
        with open(f"{root}/{name}", "wb") as file:
            file.write(b'{"half":')
    return machine


def message_in_the_drop_box(root: str) -> Machine:
    machine = busy(root)
    message = {
        "id": "msg-1",
        "command": "steer",
        "args": {"id": "ST-1", "text": "turn left"},
        "actor": "sponsor:ann",
        "at": machine.clock.now(),
    }
    with open(f"{root}/steering/spool/msg-1.json", "w") as file:
        json.dump(message, file)
    return machine


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
)
