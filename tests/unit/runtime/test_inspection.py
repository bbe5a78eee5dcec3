"""A full verification believes no snapshot, and calls damage by its name."""

import os
from collections.abc import Callable

import pytest
from tests.crash.machine import Machine

from perdure.errors import CorruptError, HaltError
from perdure.service.tasks import Service


@pytest.fixture
def machine(workspace: str) -> Machine:
    """A workspace that was closed properly: its snapshot covers the whole journal."""
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    runtime = machine.open("T")
    for number in range(5):
        runtime.note(f"note {number}")
    runtime.close()
    return machine


def service(machine: Machine) -> Service:
    return Service(machine.root, actor="sponsor:ada", world=machine.world())


def flip(machine: Machine, position: int) -> None:
    data = bytearray(machine.journal())
    data[position] ^= 1
    with open(f"{machine.root}/journal.jsonl", "r+b") as file:
        file.write(data)


@pytest.mark.parametrize("line", [1, 3, 7])
def test_flipped_byte_in_old_history_is_named_although_a_snapshot_covers_it(
    machine: Machine, line: int
) -> None:
    start = sum(len(text) for text in machine.journal().splitlines(keepends=True)[: line - 1])
    flip(machine, start + 60)
    if line == 1:
        assert service(machine).status()["total"] == 0, "opening reads the tail alone"
    data = service(machine).verify()
    assert (data["ok"], data["exit_code"]) == (False, 6)
    kinds = [problem["what"] for problem in data["problems"]]
    assert "journal" in kinds
    assert "torn_tail" not in kinds
    (problem,) = [p for p in data["problems"] if p["what"] == "journal"]
    assert f"line {line}, byte {start}" in problem["message"]
    assert "torn" not in problem["message"]


def test_unfinished_commit_is_a_torn_tail_and_no_damage(machine: Machine) -> None:
    with open(f"{machine.root}/journal.jsonl", "ab") as file:
        file.write(b'{"seq":8,"ts":"2027')
    data = service(machine).verify()
    (problem,) = data["problems"]
    assert (problem["what"], data["exit_code"]) == ("torn_tail", 6)
    assert "perdure resume" in problem["fix"]


def test_verifying_changes_nothing(machine: Machine) -> None:
    flip(machine, 60)
    before = {name: machine.bytes_of(name) for name in ("journal.jsonl", *machine.projections())}
    service(machine).verify()
    service(machine).doctor()
    assert {name: machine.bytes_of(name) for name in before} == before


LOOKS: list[Callable[[Service], object]] = [
    Service.status,
    Service.verify,
    Service.doctor,
    Service.resume,
    lambda service: service.call("note", {"text": "hello"}),
]


@pytest.mark.parametrize("look", LOOKS, ids=["status", "verify", "doctor", "resume", "note"])
def test_journal_that_is_gone_beside_its_snapshot_is_damage_to_everybody(
    machine: Machine, look: Callable[[Service], object]
) -> None:
    os.unlink(f"{machine.root}/journal.jsonl")
    with pytest.raises(CorruptError) as caught:
        look(service(machine))
    assert (caught.value.code, caught.value.exit_code) == ("journal_missing", 6)
    assert not os.path.exists(f"{machine.root}/journal.jsonl")


@pytest.mark.parametrize("look", LOOKS, ids=["status", "verify", "doctor", "resume", "note"])
def test_where_nothing_was_there_is_nothing_to_miss(
    workspace: str, look: Callable[[Service], object]
) -> None:
    with pytest.raises(HaltError) as caught:
        look(Service(f"{workspace}/elsewhere", actor="sponsor:ada"))
    assert (caught.value.code, caught.value.exit_code) == ("no_workspace", 3)


@pytest.mark.parametrize("changed", [b'{"goal":"another"}', None])
def test_contract_that_was_changed_or_lost_is_named(
    machine: Machine, changed: bytes | None
) -> None:
    machine.boot_process()
    runtime = machine.open()
    runtime.add_node("N1", "the only one")
    runtime.start("N1")
    path = f"contracts/{runtime.node('N1').invocation}.json"
    runtime.close()
    assert service(machine).verify()["ok"]
    if changed is None:
        os.unlink(f"{machine.root}/{path}")
    else:
        machine.write(path, changed)
    (problem,) = service(machine).verify()["problems"]
    assert (problem["what"], problem["where"]) == ("contract", path)
