"""Items A8.1 to A8.3: one owner, whole inventories, modes that follow."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.story import Story
from tests.unit.core.test_task_audit_items import failures, of

from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core.audit_parallel import InventoriesMatch, ModesFollow, OneOwner
from perdure.core.batch import inventory_digest
from perdure.core.dispatching import Death
from perdure.core.events import Draft
from perdure.core.model import MapSpec
from perdure.core.task_audit import DiskFacts, Findings, Item, Seen
from perdure.errors import HaltError

ENDS: dict[str, dict[str, Any]] = {
    "landed": {"end": "landed", "landed": 1, "left": 0},
    "silent": {"end": "silent", "landed": 0, "left": 1, "first": True, "observation": "nothing"},
    "killed": {"end": "killed", "landed": 0, "left": 1, "first": False, "observation": "signal 9"},
    "wall": {
        "end": "failed", "landed": 0, "left": 1, "first": True, "cause": "network",
        "observation": "no route",
    },
    "recalled": {"end": "recalled", "landed": 0, "left": 1},
}  # fmt: skip
STEPS = (*ENDS, "A by hand", "B by hand", "C by hand", "probe", "another policy", "a command dies")


def dispatching() -> Story:
    story = Story()
    story.add("B", map=MapSpec(("work",), list=("a",), shard=1))
    story.start("B")
    return story


def take(story: Story, step: str, number: int) -> None:
    """One step; what is refused is not done."""
    with contextlib.suppress(HaltError):
        if step in ENDS:
            name = f"inv-s{number}"
            story.do(d.OpenSlot("B", name, "ab" * 32, "executor:w", 1))
            story.do(d.CloseSlot(name, **ENDS[step]))
        elif step.endswith("by hand"):
            story.do(d.ChangeMode(step[0], "somebody says so"))  # type: ignore[arg-type]
        elif step == "probe":
            story.do(d.ChangeMode("C", "a file can be written", probing=True))
        elif step == "another policy":
            story.do(c.ChangePolicy("halt_after", 3, "it is flaky"))
        else:
            story.add(f"N{number}", run="true")
            story.start(f"N{number}")
            death = Death("killed", first=True, cause="quota", observation="quota")
            story.fail(f"N{number}", "transient-environment", death=death)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(STEPS), max_size=25))
def test_modes_counted_from_the_events_alone_are_those_that_were_lived(steps: list[str]) -> None:
    story = dispatching()
    for number, step in enumerate(steps):
        take(story, step, number)
    findings = of(story, ModesFollow)
    assert failures(findings) == []
    if findings.results and findings.results[-1].ref == "ends":
        assert f"mode {story.replica.state.health.mode};" in findings.results[-1].note


@settings(max_examples=40)
@given(st.lists(st.sampled_from(STEPS), min_size=6, max_size=25), st.data())
def test_a_mode_that_is_told_otherwise_is_seen(steps: list[str], data: st.DataObject) -> None:
    """Whatever change by policy is dropped or invented, the count does not come out any more."""
    story = dispatching()
    for number, step in enumerate(steps):
        take(story, step, number)
    events = [e for e in story.events() if e.payload.get("op") == "mode"]
    changes = [e for e in events if e.payload.get("authority") == "reference policy"]
    if not changes:
        return
    wrong = data.draw(st.sampled_from(changes))
    item: Item = ModesFollow()
    replica = type(story.replica)()
    for event in story.events():
        if event.seq == wrong.seq:
            event.payload["first_death_rate"] = event.payload["first_death_rate"] + 0.5
        replica.apply(event)
        item.see(event, replica)
    assert len(failures(item.judge(replica, DiskFacts()))) == 1


def test_an_invented_change_of_mode_is_seen() -> None:
    story = dispatching()
    take(story, "landed", 1)
    payload = {"op": "mode", "mode": "B", "authority": "reference policy", "rationale": "x"}
    story.commit(Draft("DECISION", "task", "T1", payload))
    assert failures(of(story, ModesFollow)) == ["J-8: no end of work made mode B due"]


def test_without_dispatched_work_there_is_nothing_to_judge() -> None:
    story = Story()
    for item in (OneOwner, InventoriesMatch, ModesFollow):
        findings = of(story, item)
        assert not findings.results
        assert findings.why


# Slots and their contracts


def with_slots(*workers: tuple[str, list[str], bool]) -> tuple[Story, DiskFacts]:
    """Workers with these units; whether each is closed before the next one is sent."""
    story, facts = dispatching(), DiskFacts()
    for name, keys, closed in workers:
        digest = inventory_digest(keys)
        story.do(d.OpenSlot("B", name, "cd" * 32, "executor:w", len(keys), digest))
        path = f"contracts/{name}.json"
        facts.contracts[path] = Seen("cd" * 32, 500)
        units = {"total": len(keys), "sha256": digest, "keys": [{"key": key} for key in keys]}
        facts.contract_texts[path] = {"units": units}
        if closed:
            story.do(d.CloseSlot(name, "landed", len(keys), 0))
    return story, facts


def on_disk(story: Story, facts: DiskFacts, item: Item) -> Findings:
    replica = type(story.replica)()
    for event in story.events():
        replica.apply(event)
        item.see(event, replica)
    return item.judge(replica, facts)


def test_the_same_unit_may_go_to_another_worker_once_the_first_is_over() -> None:
    story, facts = with_slots(("inv-1", ["a", "b"], True), ("inv-2", ["b"], False))
    assert failures(on_disk(story, facts, OneOwner())) == []
    story, facts = with_slots(("inv-1", ["a", "b"], False), ("inv-2", ["b"], False))
    assert len(failures(on_disk(story, facts, OneOwner()))) == 1


def test_another_attempt_begins_with_free_units() -> None:
    story, facts = with_slots(("inv-1", ["a"], False))
    story.fail("B", interruption=True)
    story.start("B")
    story.do(d.OpenSlot("B", "inv-9", "cd" * 32, "executor:w", 1))
    facts.contracts["contracts/inv-9.json"] = Seen("cd" * 32, 500)
    facts.contract_texts["contracts/inv-9.json"] = {"units": {"keys": [{"key": "a"}]}}
    assert failures(on_disk(story, facts, OneOwner())) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"total": 3}, "counted"),
        ({"sha256": "0" * 64}, "digest"),
        ({"keys": [{"key": "a"}, {"key": "a"}]}, "twice"),
        ({"keys": [{"key": "a"}, {"key": "c"}]}, "digest"),
        ({"keys": None}, "counted"),
    ],
)
def test_an_inventory_that_does_not_come_out_fails(change: dict[str, Any], why: str) -> None:
    story, facts = with_slots(("inv-1", ["a", "b"], True))
    assert failures(on_disk(story, facts, InventoriesMatch())) == []
    facts.contract_texts["contracts/inv-1.json"]["units"].update(change)
    found = failures(on_disk(story, facts, InventoriesMatch()))
    assert len(found) == 1
    assert why in found[0]


def test_a_contract_that_is_not_the_one_cited_is_not_judged_here() -> None:
    story, facts = with_slots(("inv-1", ["a"], True))
    facts.contracts["contracts/inv-1.json"] = Seen("ef" * 32, 500)
    findings = on_disk(story, facts, InventoriesMatch())
    assert (findings.results, "A1.2" in findings.why) == ((), True)


def test_two_nodes_that_owe_one_output_may_not_be_at_work_at_once() -> None:
    story = Story()
    story.add("N1", outputs=("shared/out",))
    story.add("N2", outputs=("shared/out/part.txt",))
    story.start("N1")
    story.fail("N1")
    story.start("N2")
    assert failures(of(story, OneOwner)) == []
    story.start("N1")
    assert len(failures(of(story, OneOwner))) == 1
