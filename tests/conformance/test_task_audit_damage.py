"""Workspaces that are damaged in one way each: exactly the item that owns the damage fails."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance import audited as w
from tests.crash.sim_machine import ROOT, SimMachine

from perdure.core.batch import inventory_digest
from perdure.core.codec import decode_line
from perdure.core.events import Event
from perdure.core.model import contract_bytes_max
from perdure.core.task_audit_items import ITEMS
from perdure.service.task_audits import audit_answer
from perdure.service.tasks import Service
from perdure.testing import SimDisk

Damage = Callable[[SimMachine], object]


def where(wanted: dict[str, Any], change: Callable[[Event], object], *, of: str = "") -> Damage:
    """Forge the first event whose payload has these values."""

    def damage(machine: SimMachine) -> None:
        seq = w.first(machine, wanted, of)
        w.forged(machine, lambda event: change(event) if event.seq == seq else None)

    return damage


def setting(name: str, value: Any) -> Callable[[Event], object]:
    """Another value in the payload."""
    return lambda event: event.payload.update({name: value})


def _plain_note(event: Event) -> None:
    """The event says something else altogether."""
    ended = {"tx_end": True} if "tx_end" in event.payload else {}
    event.kind, event.payload = "NOTE", {"op": "note", "text": "nothing to see", **ended}


def _first_check(name: str, value: Any) -> Callable[[Event], object]:
    return lambda event: event.payload["checks"][0].update({name: value})


def _with_another_artifact(name: str) -> Callable[[Event], object]:
    """The verdict was on this artifact besides; what the checksum is does not matter then."""
    return lambda event: event.payload["artifacts"].update({name: ""})


def _unaudited(machine: SimMachine) -> None:
    """A node that asks for an audit was DONE by the runtime's own checks."""
    added = w.first(machine, {"op": "add_node", "target": "N1"})
    done = w.first(machine, {"edge": "N06"}, "N1")

    def edit(event: Event) -> None:
        if event.seq == added:
            event.payload["after"]["verification_level"] = "V2"
        elif event.seq == done:
            event.payload["level"] = "V2"

    w.forged(machine, edit)


def _own_verdict(machine: SimMachine) -> None:
    started = w.first(machine, {"edge": "N02"}, "N1")
    done = w.first(machine, {"edge": "N06"}, "N1")

    def edit(event: Event) -> None:
        if event.seq == started:
            event.payload["executor"] = {"actor": "executor:me", "kind": "session"}
        elif event.seq == done:
            event.payload["verifier"] = "executor:me"

    w.forged(machine, edit)


def _lowered(machine: SimMachine) -> None:
    """A node that asked for an audit asks for none any more, on nobody's word."""
    added = w.first(machine, {"op": "add_node", "target": "S1"})
    amended = w.first(machine, {"op": "amend_node", "target": "S1"})

    def edit(event: Event) -> None:
        if event.seq == added:
            event.payload["after"]["verification_level"] = "V2"
        elif event.seq == amended:
            event.actor = "coordinator:main"
            event.payload["after"]["verification_level"] = "V1"

    w.forged(machine, edit)


def _over_budget(machine: SimMachine) -> None:
    added = w.first(machine, {"op": "add_node", "target": "S1"})
    claimed = w.first(machine, {"edge": "N03"}, "S1")

    def edit(event: Event) -> None:
        if event.seq == added:
            event.payload["after"]["spec"]["budget"] = {"max_tokens": 10}
        elif event.seq == claimed:
            event.payload["usage"] = {"tokens": 11}

    w.forged(machine, edit)


def _tried_again(machine: SimMachine) -> None:
    """Out of strikes, and nobody named another method."""
    where({"op": "answer", "method": "by hand"}, lambda e: e.payload.pop("method"))(machine)


def _silence_is_consent(event: Event) -> None:
    event.payload["by_default"] = True


def _dispatched_while_halted(machine: SimMachine) -> None:
    """The probe between the halt and the next worker was never made; the rest is as it was."""
    seq = w.first(machine, {"op": "mode", "probing": True})
    after = [event for event in _events(machine) if event.seq > seq]
    landed = next(e.seq for e in after if e.payload.get("op") == "slot_closed")
    left = next(e.seq for e in after if e.payload.get("op") == "mode")

    def edit(event: Event) -> None:
        if event.seq in (seq, landed):
            _plain_note(event)
        elif event.seq == left:
            event.payload.update(authority="coordinator:main", by_hand=False)

    w.forged(machine, edit)


def _events(machine: SimMachine) -> list[Event]:
    return [decode_line(line) for line in machine.journal().splitlines()]


def _same_unit_twice(contract: Any) -> None:
    """The second worker has a unit of the first one; counted and signed as it has to be."""
    keys = ["k2", "k3"]
    contract["units"].update(
        keys=[{"key": key, "item": key} for key in keys], sha256=inventory_digest(keys)
    )


def _other_inventory(contract: Any) -> None:
    contract["units"]["sha256"] = "0" * 64


def _archived(machine: SimMachine) -> None:
    """Archived, with no word of what was learnt."""
    seq = w.first(machine, {"op": "decision"})

    def edit(event: Event) -> None:
        if event.seq == seq:
            event.kind = "STATE_TRANSITION"
            event.payload = {"from": "FINAL_AUDIT", "to": "ARCHIVED", "edge": "T10"}

    w.forged(machine, edit)


def _executing(event: Event) -> None:
    """The task was at work when the coordinator died, and not in RECOVERING when it went on."""
    event.kind = "STATE_TRANSITION"
    event.payload = {"from": "DECOMPOSING", "to": "EXECUTING", "edge": "T03"}


def _unit_twice(machine: SimMachine) -> None:
    path = f"{ROOT}/artifacts/P/findings.jsonl"
    data = machine.disk.read(path)
    w.put(machine, path, data + data.splitlines(keepends=True)[0])


def _finding_gone(machine: SimMachine) -> None:
    path = f"{ROOT}/artifacts/P/findings.jsonl"
    w.put(machine, path, b"".join(machine.disk.read(path).splitlines(keepends=True)[:-1]))


def _fragment_gone(machine: SimMachine) -> None:
    found = w.state_of(machine).state.artifacts.values()
    w.gone(machine, next(one.path for one in found if one.kind == "fragment"))


def _quarantined_gone(machine: SimMachine) -> None:
    found = w.state_of(machine).state.artifacts.values()
    w.gone(
        machine,
        next(one.path for one in found if one.status == "quarantined" and one.kind != "fragment"),
    )


def _child_unfinished(machine: SimMachine) -> None:
    child = w.state_of(machine).state.nodes["C1"].child_ref
    w.gone(machine, f"instances/{child}/result.json")


def _contract_of(node: str, machine: SimMachine) -> str:
    found = [event for event in _events(machine) if event.entity.id == node]
    return str(next(e.payload["contract"] for e in found if "contract_sha256" in e.payload))


def _entry_edited(machine: SimMachine) -> None:
    path = f"{w.PROJECT}/memory/entries.jsonl"
    w.put(machine, path, machine.disk.read(path).replace(b"takes 1 MB", b"takes 9 MB"))


def _index_edited(machine: SimMachine) -> None:
    path = f"{w.PROJECT}/memory/MEM-INDEX.md"
    w.put(machine, path, b"# Memory index\n\nTrust me.\n")


DAMAGES: dict[str, tuple[str, Damage]] = {
    "a projection is missing": ("A1.1", lambda m: w.gone(m, "artifacts/registry.json")),
    "a contract is missing": ("A1.2", lambda m: w.gone(m, _contract_of("N1", m))),
    "a contract was changed": ("A1.2", lambda m: w.flipped(m, _contract_of("F1", m))),
    "a node was DONE with what was never registered": (
        "A1.3",
        where({"edge": "N06"}, lambda e: e.payload["artifacts"].update({"A-none": "ab" * 32})),
    ),
    "a node was DONE with the work of another": (
        "A1.3",
        where({"edge": "N06"}, _with_another_artifact("A-N1"), of="G1"),
    ),
    "a node was DONE with what did not count any more": (
        "A1.3",
        where({"edge": "N06"}, _with_another_artifact("A-F1"), of="F1"),
    ),
    "a projection was edited": ("A2.1", lambda m: w.flipped(m, "checkpoint.json")),
    "an artifact was changed": ("A2.2", lambda m: w.put(m, "artifacts/N1/a.txt", b"b")),
    "an artifact is missing": ("A2.2", lambda m: w.gone(m, "artifacts/G1/g.txt")),
    "a node was DONE though a check had failed": (
        "A2.3",
        where({"edge": "N06"}, _first_check("passed", False)),
    ),
    "a node was DONE with nothing to show": (
        "A2.3",
        where({"edge": "N06"}, setting("artifacts", {})),
    ),
    "an event comes from an epoch that was over": (
        "A3.1",
        where({"op": "decision"}, lambda e: setattr(e, "epoch", 1)),
    ),
    "a takeover went straight on": ("A3.1", where({"op": "decision"}, _executing)),
    "a recovery does not say what it repaired": (
        "A3.1",
        where({"op": "recovered"}, lambda e: e.payload.pop("repaired")),
    ),
    "a change of several events has no end": (
        "A3.2",
        where({"edge": "N02"}, lambda e: e.payload.pop("tx_end"), of="N1"),
    ),
    "a unit was done twice": ("A3.3", _unit_twice),
    "a finding is gone that was counted": ("A3.3", _finding_gone),
    "what a crash tore off is gone": ("A3.4", _fragment_gone),
    "what was set aside is on no record": ("A3.4", where({"kind": "fragment"}, _plain_note)),
    "a byte of the journal is another one": ("A4.1", lambda m: w.flipped(m, "journal.jsonl")),
    "the journal was cut": (
        "A4.1",
        lambda m: w.put(m, "journal.jsonl", b"\n".join(m.journal().split(b"\n")[:-5]) + b"\n"),
    ),
    "what was quarantined is gone": ("A4.2", _quarantined_gone),
    "a verification was lowered unasked": ("A5.1", _lowered),
    "a node was verified below its level": (
        "A5.1",
        where({"edge": "N06"}, setting("level", "V0"), of="N1"),
    ),
    "an audit was asked for and none was made": ("A5.1", _unaudited),
    "the producer verified its own work": ("A5.1", _own_verdict),
    "a verdict is nobody's": ("A5.1", where({"edge": "N06"}, setting("verifier", ""))),
    "VERIFYING was skipped": ("A5.2", where({"edge": "N03"}, _plain_note, of="N1")),
    "a node became DONE by another edge": (
        "A5.2",
        where({"edge": "N06"}, setting("edge", "N02"), of="N1"),
    ),
    "a contract names no goal": (
        "A6.1",
        lambda m: w.reissued(m, "N1", "STATE_TRANSITION", lambda c: c.update(goal=" ")),
    ),
    "a contract is for another node": (
        "A6.1",
        lambda m: w.reissued(
            m, "N1", "STATE_TRANSITION", lambda c: c["parent"].update(node_id="N2")
        ),
    ),
    "a contract is too large to be read": (
        "A6.2",
        lambda m: w.reissued(
            m, "N1", "STATE_TRANSITION", lambda c: c.update(constraints=["x" * contract_bytes_max])
        ),
    ),
    "the journal repeats a whole log": (
        "A6.2",
        where({"edge": "N04"}, setting("detail", "x" * 100_000)),
    ),
    "work over its budget was claimed as done": ("A6.3", _over_budget),
    "a nested task was used before it had ended": ("A7.1", _child_unfinished),
    "a failure has no class": ("A7.2", where({"edge": "N04"}, setting("failure_class", ""))),
    "dispatch went on without a probe": ("A7.2", _dispatched_while_halted),
    "a method was tried after its last strike": ("A7.3", _tried_again),
    "nobody was asked when a method was out of strikes": (
        "A7.3",
        where({"op": "ask", "question_id": "Q-F1-2"}, setting("node", None)),
    ),
    "two workers had one unit": (
        "A8.1",
        lambda m: w.reissued(m, "P", "DECISION", _same_unit_twice),
    ),
    "a worker's inventory is another one": (
        "A8.2",
        lambda m: w.reissued(m, "B", "DECISION", _other_inventory),
    ),
    "a mode does not follow from how work ended": (
        "A8.3",
        where({"op": "mode", "mode": "B"}, setting("first_death_rate", 0.9)),
    ),
    "a change of mode that was due is missing": (
        "A8.3",
        where({"op": "mode", "mode": "B"}, _plain_note),
    ),
    "an instruction was never acknowledged": ("A9.1", where({"op": "acknowledged"}, _plain_note)),
    "an instruction was never classified": ("A9.1", where({"op": "classify"}, _plain_note)),
    "silence was taken for consent": (
        "A9.2",
        where({"op": "answer", "ruling": "approve"}, _silence_is_consent),
    ),
    "another content was approved": (
        "A9.2",
        where({"op": "answer", "gate": "G-G1-review"}, setting("content", "0" * 64)),
    ),
    "an executor approved": (
        "A9.2",
        where({"op": "answer", "gate": "G-G1-review"}, setting("authority", "executor:me")),
    ),
    "an escalation names no attempts": (
        "A9.3",
        where({"kind": "escalation"}, lambda e: e.payload["package"].update(signatures=[])),
    ),
    "an escalation has no default": ("A9.3", where({"kind": "escalation"}, setting("default", ""))),
    "archived without proposals": ("A10.1", _archived),
    "an entry of the memory store was edited": ("A10.2", _entry_edited),
    "the memory index was edited": ("A10.3", _index_edited),
    "a node was added by who may not": (
        "A11.1",
        where({"op": "add_node", "target": "N1"}, lambda e: setattr(e, "actor", "executor:me")),
    ),
    "a cancellation has no reason": ("A11.2", where({"op": "cancel"}, setting("rationale", ""))),
    "the goal was changed by who may not": (
        "A11.2",
        where({"new": "less"}, setting("authority", "executor:me")),
    ),
    "an external effect was nobody's to allow": (
        "A11.2",
        where({"op": "answer", "gate": "G-E1-start"}, setting("gate", "G-other")),
    ),
    "a verdict is a bare score": ("A11.3", where({"edge": "N06"}, setting("checks", "3/3 PASS"))),
    "a check names no method": ("A11.3", where({"edge": "N06"}, _first_check("method", ""))),
}

EXIT_6 = {"A4.1"}
"""Damage to the journal itself: what is behind it cannot be audited."""


@pytest.fixture
def machine() -> SimMachine:
    return w.lived()


def test_a_workspace_that_nothing_happened_to_fails_nothing(machine: SimMachine) -> None:
    record = w.audited(machine).record
    assert w.failing(record) == {}
    assert [entry.item for entry in record.items] == [factory().id for factory in ITEMS]
    assert len(record.items) == 32
    not_judged = {entry.item: entry.why for entry in record.items if entry.verdict == "N/A"}
    assert not_judged == {"A6.3": "no attempt told what it has used"}


@pytest.mark.parametrize("name", DAMAGES)
def test_exactly_the_item_that_owns_a_damage_fails(machine: SimMachine, name: str) -> None:
    item, damage = DAMAGES[name]
    damage(machine)
    found = w.audited(machine)
    assert list(w.failing(found.record)) == [item], w.failing(found.record)
    assert not found.record.passed
    assert bool(found.damage) == (item in EXIT_6)
    answer = audit_answer(Service(ROOT, actor="verifier:other", world=machine.world))
    assert answer["exit_code"] == (6 if item in EXIT_6 else 1)
    assert bool(answer["cannot"]) == (item in EXIT_6)


def test_every_item_can_fail() -> None:
    assert {item for item, _ in DAMAGES.values()} == {factory().id for factory in ITEMS}


def test_auditing_changes_nothing(machine: SimMachine) -> None:
    assert isinstance(machine.disk, SimDisk)
    before = machine.disk.tree()
    w.audited(machine)
    assert machine.disk.tree() == before


def test_a_journal_of_others_is_audited_without_an_error(machine: SimMachine) -> None:
    with open("tests/golden/foreign/reference.jsonl", "rb") as file:
        machine.disk.replace(f"{ROOT}/journal.jsonl", file.read(), durable=True)
    record = w.audited(machine).record
    assert len(record.items) == len(ITEMS)
    assert all(entry.results or entry.why for entry in record.items)
    json.dumps(w.as_dict(record))
