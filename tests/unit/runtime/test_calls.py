"""Calls by name: an op id is carried out once, however often and however late it comes."""

import pytest
from tests.crash.machine import Machine, replay

from perdure.core.codec import encode_commit
from perdure.core.events import Draft
from perdure.core.model import ops_kept_max
from perdure.errors import RefusedError
from perdure.runtime.calls import perform
from perdure.runtime.halt import HaltRuntime

FIRST_MS = 1_800_000_000_000


@pytest.fixture
def machine(workspace: str) -> Machine:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    return machine


def op_id(number: int, token: str = "ab") -> str:
    """Op ids of one sender, a millisecond apart."""
    return f"op-{FIRST_MS + number}-{token}"


def with_many_ops(machine: Machine, count: int) -> HaltRuntime:
    """A task in which this many op ids have been used."""
    machine.open("T").close()
    state, tip = replay(machine.root)
    lines = []
    for number in range(count):
        draft = Draft("NOTE", "task", "T", {"op": "note", "text": "x"})
        commit = encode_commit(
            tip, [draft], ts="", actor="a:b", epoch=state.epoch, op=op_id(number)
        )
        tip = commit.tip
        lines.append(commit.data)
    machine.write("journal.jsonl", machine.journal() + b"".join(lines))
    machine.boot_process()
    return machine.open()


def test_an_op_id_that_is_no_longer_remembered_is_refused_and_not_run_again(
    machine: Machine,
) -> None:
    runtime = with_many_ops(machine, ops_kept_max + 3)
    before = runtime.seq_last
    for forgotten in (op_id(0), op_id(2), op_id(-5, "from-before-all")):
        with pytest.raises(RefusedError) as caught:
            perform(runtime.engine, "note", {"text": "again"}, op=forgotten)
        assert (caught.value.code, caught.value.exit_code) == ("op_too_old", 4)
    assert runtime.seq_last == before


def test_op_ids_that_are_remembered_new_or_without_a_time_are_taken(machine: Machine) -> None:
    runtime = with_many_ops(machine, ops_kept_max + 3)
    again = perform(runtime.engine, "note", {"text": "again"}, op=op_id(3))
    assert again["repeated"] is True
    for fresh in (op_id(3, "other"), op_id(10 * ops_kept_max), "invoice-7"):
        before = runtime.seq_last
        perform(runtime.engine, "note", {"text": "new"}, op=fresh)
        assert runtime.seq_last == before + 1
