"""The snapshot is believed only where its own sum and the journal prove it."""

import shutil

import pytest
from tests.crash.machine import Machine, replay

from perdure.errors import CorruptError


@pytest.fixture
def machine(workspace: str) -> Machine:
    """A closed workspace, with a snapshot that speaks of all of its journal."""
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    runtime = machine.open("T")
    runtime.add_node("N1", "the right title")
    runtime.close()
    machine.kill_process()
    return machine


def titles_after_opening(machine: Machine) -> list[str]:
    machine.boot_process()
    runtime = machine.open()
    titles = [node.title for node in runtime.state.nodes.values()]
    runtime.close()
    assert runtime.state == replay(machine.root)[0]
    return titles


def snapshot_of(machine: Machine) -> bytes:
    data = machine.bytes_of(".snapshot.json")
    assert data is not None
    return data


def test_snapshot_that_was_edited_is_not_believed(machine: Machine) -> None:
    data = snapshot_of(machine)
    assert data.count(b"the right title") == 1
    machine.write(".snapshot.json", data.replace(b"the right title", b"the wrong title"))
    assert titles_after_opening(machine) == ["the right title"]


def test_snapshot_whose_sum_is_right_but_whose_line_is_not_in_the_journal_is_not_believed(
    machine: Machine,
) -> None:
    """It stands for another history of the same length, as after copying files about."""
    other = Machine(f"{machine.root}-2")
    other.boot_process()
    runtime = other.open("T")
    runtime.add_node("N1", "the wrong title")
    runtime.close()
    other.kill_process()
    assert len(other.journal()) == len(machine.journal())
    machine.write(".snapshot.json", snapshot_of(other))
    assert titles_after_opening(machine) == ["the right title"]
    shutil.rmtree(other.root)


def test_snapshot_that_was_made_for_an_earlier_line_is_completed_from_there(
    machine: Machine,
) -> None:
    old = snapshot_of(machine)
    machine.boot_process()
    runtime = machine.open()
    runtime.add_node("N2", "a later one")
    runtime.close()
    machine.write(".snapshot.json", old)
    assert titles_after_opening(machine) == ["the right title", "a later one"]


def test_journal_shorter_than_the_snapshot_is_refused(machine: Machine) -> None:
    data = machine.journal()
    machine.write("journal.jsonl", data[: data.rfind(b"\n", 0, len(data) - 1) + 1])
    machine.boot_process()
    with pytest.raises(CorruptError) as caught:
        machine.open()
    assert caught.value.code == "journal_truncated"
