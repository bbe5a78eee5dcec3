"""The pass over the journal and the look at the disk: what an audit believes, and up to where."""

import functools
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import audited as w
from tests.crash.sim_machine import JOURNAL, ROOT, SimMachine
from tests.crash.workloads import call

from perdure.core.task_audit import AuditRecord, ItemRecord
from perdure.core.task_audit_items import ITEMS
from perdure.errors import CorruptError, HaltError, NotFoundError
from perdure.runtime.engine import Engine
from perdure.runtime.task_audits import Audited, Extras, audit_task, looks_max
from perdure.storage.workspace import Layout

FOREIGN = sorted((Path(__file__).parents[2] / "golden/foreign").glob("*.jsonl"))


def lived(tier: int = 1) -> SimMachine:
    """A workspace with two nodes that are done."""
    machine = SimMachine.new()
    machine.tier = tier
    runtime = machine.open("T")
    for node in ("N1", "N2"):
        runtime.add_node(node, node, outputs=[f"artifacts/{node}/a.txt"])
        call(machine, runtime, "start", node=node)
        machine.write(f"artifacts/{node}/a.txt", node.encode())
        call(machine, runtime, "submit", node=node)
    runtime.close()
    return machine


def audited(machine: SimMachine, **more: Any) -> Audited:
    return audit_task(Engine(ROOT, machine.world, "verifier:other"), **more)


def item(record: AuditRecord, name: str) -> ItemRecord:
    return next(entry for entry in record.items if entry.item == name)


def lines(machine: SimMachine) -> list[bytes]:
    return machine.journal().splitlines(keepends=True)


# What is believed


def test_no_snapshot_and_no_projection_is_believed() -> None:
    machine = lived()
    whole = audited(machine).record
    w.put(machine, Layout(ROOT).snapshot, b"{}")
    record = audited(machine).record
    assert (record.seq, record.h, record.counts) == (whole.seq, whole.h, whole.counts)


def test_the_same_prefix_and_the_same_disk_give_the_same_record() -> None:
    machine = lived()
    first, second = audited(machine).record, audited(machine).record
    assert first.items == second.items


def test_an_audit_needs_no_lock_and_disturbs_nobody() -> None:
    machine = lived()
    runtime = machine.open()
    before = machine.disk.tree()
    assert w.failing(audited(machine).record) == {}
    assert machine.disk.tree() == before
    call(machine, runtime, "note", text="undisturbed")
    runtime.close()


def test_no_workspace_is_told_as_such() -> None:
    with pytest.raises(NotFoundError) as caught:
        audited(SimMachine.new())
    assert caught.value.code == "no_workspace"


def test_a_workspace_whose_journal_is_gone_is_damaged_and_not_absent() -> None:
    machine = lived()
    w.gone(machine, "journal.jsonl")
    with pytest.raises(CorruptError):
        audited(machine)


# Up to where


@pytest.mark.parametrize("line", [1, 2, 5, 9])
def test_what_is_before_the_damage_is_audited_and_the_place_is_told(line: int) -> None:
    machine = lived()
    every = lines(machine)
    start = sum(map(len, every[: line - 1]))
    data = bytearray(machine.journal())
    data[start + 40] ^= 1
    w.put(machine, "journal.jsonl", bytes(data))
    found = audited(machine)
    assert f"line {line}, byte {start}" in found.damage
    assert found.record.seq < line
    assert list(w.failing(found.record)) == ["A4.1"]
    assert not found.record.passed
    assert found.damage in item(found.record, "A4.1").results[0].note


def test_an_audit_of_some_items_does_not_pass_over_damage() -> None:
    machine = lived()
    w.flipped(machine, "journal.jsonl")
    found = audited(machine, items=ITEMS[:3])
    assert w.failing(found.record) == {}
    assert (found.record.passed, bool(found.damage)) == (False, True)


def test_a_commit_that_was_cut_off_is_no_damage() -> None:
    machine = lived()
    whole = audited(machine).record
    for tail in (b'{"seq":', w.NOISE):
        w.put(machine, "journal.jsonl", b"".join(lines(machine)) + tail)
        found = audited(machine)
        assert (found.damage, found.record.seq) == ("", whole.seq)
        w.put(machine, "journal.jsonl", machine.journal().removesuffix(tail))


def test_a_prefix_is_audited_with_the_files_of_today() -> None:
    machine = lived()
    ends = [seq for seq in range(1, len(lines(machine)) + 1) if _is_end(machine, seq)]
    assert len(ends) > 5
    for seq in ends:
        record = audited(machine, upto=seq).record
        assert (record.seq, w.failing(record)) == (seq, {})
    w.gone(machine, "artifacts/N2/a.txt")
    assert w.failing(audited(machine, upto=ends[0]).record) == {}
    assert list(w.failing(audited(machine, upto=ends[-1]).record)) == ["A2.2"]


def _is_end(machine: SimMachine, seq: int) -> bool:
    try:
        audited(machine, items=(), upto=seq)
    except NotFoundError:
        return False
    return True


def test_a_prefix_that_is_not_there_is_refused() -> None:
    machine = lived()
    with pytest.raises(NotFoundError) as caught:
        audited(machine, upto=10_000)
    assert (caught.value.code, caught.value.rule) == ("unknown_event", "A-4")


# Commits in between


def _meanwhile(machine: SimMachine, left: list[int], scope: str) -> dict[str, Any]:
    """Called at each look at the disk: somebody commits, and puts the file right at the end."""
    if left[0]:
        left[0] -= 1
        runtime = machine.attach("coordinator:other")
        call(machine, runtime, "note", text="meanwhile")
        runtime.close()
        if not left[0]:
            w.put(machine, "artifacts/N1/a.txt", b"N1")
    return {}


@pytest.mark.parametrize(("commits", "fails"), [(1, False), (looks_max + 1, True)])
def test_what_was_committed_during_the_look_is_looked_at_again(
    commits: int, *, fails: bool
) -> None:
    machine = lived()
    w.put(machine, "artifacts/N1/a.txt", b"gone for now")
    runtime = machine.open()
    from_units = {"map": {"run": ["work"], "list": ["a"]}}
    call(machine, runtime, "add", node="B", spec=from_units)
    runtime.close()
    left = [commits]
    look = functools.partial(_meanwhile, machine, left)
    _begin(machine, "B")
    record = audited(machine, extras=Extras(ledger=look)).record
    assert ("A2.2" in w.failing(record)) == fails


def _begin(machine: SimMachine, node: str) -> None:
    """The batch node has been at work once, so that its ledger is looked at."""

    def edit(event: Any) -> None:
        if event.kind == "NOTE" and event.payload.get("text") == "begin":
            event.kind = "STATE_TRANSITION"
            event.entity = type(event.entity)("node", node)
            event.payload = {"from": "READY", "to": "RUNNING", "edge": "N02", "contract": "inv-b"}

    runtime = machine.open()
    call(machine, runtime, "note", text="begin")
    runtime.close()
    w.forged(machine, edit)


# Others


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
def test_a_journal_of_others_fails_only_for_what_is_not_there(path: Path) -> None:
    machine = SimMachine.new()
    machine.disk.make_dirs(ROOT, durable=True)
    machine.disk.replace(JOURNAL, path.read_bytes(), durable=True)
    record = audited(machine).record
    assert set(w.failing(record)) <= {"A1.1", "A1.2", "A2.2"}  # files that we have not got
    assert "carry no chain value" in item(record, "A4.1").results[0].note
    assert all(entry.why for entry in record.items if entry.verdict == "N/A")
    runtime = machine.open()
    runtime.close()
    assert "A1.1" not in w.failing(audited(machine).record)


def test_the_mirror_of_tier_2_is_compared() -> None:
    machine = lived(tier=2)
    assert w.failing(audited(machine).record) == {}
    w.flipped(machine, "journal-mirror.jsonl")
    found = audited(machine)
    assert list(w.failing(found.record)) == ["A4.1"]
    assert (found.damage, found.record.passed) == ("", False)


def test_whatever_is_there_is_audited_or_refused_and_never_fails_otherwise() -> None:
    whole = lived().journal()
    for size in range(0, len(whole), 97):
        machine = SimMachine.new()
        machine.disk.make_dirs(ROOT, durable=True)
        machine.disk.replace(JOURNAL, whole[:size], durable=True)
        try:
            record = audited(machine).record
        except HaltError:
            continue
        assert len(record.items) == len(ITEMS)
