"""Items A3.1 to A4.2: what an interruption leaves, and what history keeps."""

from typing import Any

import msgspec
import pytest
from tests.unit.core.story import ME, Story
from tests.unit.core.test_audit_truth import judged_on
from tests.unit.core.test_task_audit_items import failures

from perdure.core.audit_recovery import (
    HistoryWhole,
    NothingHalf,
    NothingLost,
    RecoveryFirst,
    TailsKept,
    UnitsOnce,
)
from perdure.core.events import Draft, Event
from perdure.core.fold import Replica
from perdure.core.model import Artifact, Integrity, MapSpec
from perdure.core.task_audit import DiskFacts, Findings, Seen

FILE = "tmp/recovered/journal-tail-7-ab.bin"


class Epochs(Story):
    """A story that more than one coordinator has told; its events are seen as they are made."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.epoch = 1
        super().__init__()

    def commit(self, *drafts: Draft, op: str | None = None) -> list[Event]:
        events = super().commit(*drafts, op=op)
        for event in events:
            event.epoch = self.epoch
        self.seen += events
        return events

    def findings(self) -> Findings:
        item, replica = RecoveryFirst(), Replica()
        for event in self.seen:
            replica.apply(msgspec.structs.replace(event))
            item.see(event, replica)
        return item.judge(replica, DiskFacts())

    def note(self, **payload: Any) -> Event:
        return self.commit(Draft("NOTE", "task", "T1", payload))[0]

    def take_over(self) -> Event:
        self.epoch += 1
        return self.note(op="takeover", text="it was gone", epoch=self.epoch - 1)

    def move(self, source: str, target: str) -> None:
        payload = {"from": source, "to": target, "edge": "T"}
        self.commit(Draft("STATE_TRANSITION", "task", "T1", payload))


# A3.1


def test_a_takeover_that_recovers_first_holds() -> None:
    story = Epochs()
    story.add("N1")
    story.move("INIT", "EXECUTING")
    story.start("N1")
    story.move("EXECUTING", "RECOVERING")
    story.take_over()
    story.fail("N1", interruption=True)
    story.note(op="recovered", found=["N1"], repaired=["N1: RETRYABLE"])
    story.move("RECOVERING", "EXECUTING")
    story.start("N1")
    findings = story.findings()
    assert failures(findings) == []
    assert len(findings.results) == 3


def test_a_task_that_nobody_else_had_is_not_judged() -> None:
    story = Epochs()
    story.add("N1")
    story.start("N1")
    assert story.findings().results == ()


@pytest.mark.parametrize("state", ["EXECUTING", "SUSPENDED"])
def test_a_takeover_goes_through_recovering(state: str) -> None:
    story = Epochs()
    story.move("INIT", state)
    story.take_over()
    (failed,) = failures(story.findings())
    assert f"the task was {state}" in failed


def test_a_takeover_says_why() -> None:
    story = Epochs()
    story.epoch = 2
    event = story.note(op="takeover", text=" ", epoch=1)
    assert failures(story.findings()) == [
        f"{event.ref}: it does not say why the lease was taken over"
    ]


def test_a_takeover_does_not_speak_of_what_is_to_come() -> None:
    story = Epochs()
    story.note(op="takeover", text="it was gone", epoch=7)
    (failed,) = failures(story.findings())
    assert "speaks of epoch 7" in failed


def test_nothing_starts_while_a_dead_process_holds_a_contract() -> None:
    story = Epochs()
    story.add("N1")
    story.add("N2")
    story.start("N1")
    story.epoch = 2
    story.start("N2")
    (failed,) = failures(story.findings())
    assert "starts while N1 is left open" in failed


def test_a_session_goes_on_over_a_takeover() -> None:
    story = Epochs()
    story.add("N1")
    story.add("N2")
    story.start("N1", executor=msgspec.structs.replace(ME, kind="session"))
    story.epoch = 2
    story.start("N2")
    assert failures(story.findings()) == []


def test_whoever_was_taken_over_writes_no_more() -> None:
    story = Epochs()
    story.epoch = 3
    story.note(op="note", text="new")
    story.epoch = 2
    story.note(op="note", text="old")
    (failed,) = failures(story.findings())
    assert "comes from epoch 2, which was over" in failed


def test_what_is_reopened_is_told_in_the_same_commit() -> None:
    back = Draft(
        "STATE_TRANSITION", "node", "N1",
        {"from": "DONE", "to": "READY", "edge": "RC1", "finding": "gone"},
    )  # fmt: skip
    told = Draft(
        "NOTE", "task", "T1", {"op": "recovered", "found": ["N1"], "repaired": ["N1: READY"]}
    )
    story = Epochs()
    story.add("N1")
    story.finish("N1")
    story.commit(back, told)
    assert failures(story.findings()) == []
    story.finish("N1")
    story.commit(back)
    story.commit(told)
    (failed,) = failures(story.findings())
    assert "no recovery says so" in failed


@pytest.mark.parametrize(
    ("payload", "fails"),
    [
        ({"found": ["a"], "repaired": ["b"]}, False),
        ({"found": [], "repaired": ["moved a to b, as had been committed"]}, False),
        ({"found": [], "repaired": []}, True),
        ({"found": ["a"]}, True),
        ({"found": "all", "repaired": "of it"}, True),
    ],
)
def test_a_recovery_says_what_it_found_and_did(payload: dict[str, Any], *, fails: bool) -> None:
    story = Epochs()
    story.note(op="recovered", **payload)
    assert len(failures(story.findings())) == fails


# A3.2


def test_a_change_of_several_events_has_an_end() -> None:
    story = Story()
    note = Draft("NOTE", "task", "T1", {"op": "note", "text": "x"})
    story.commit(note, note)
    item, replica = NothingHalf(), Replica()
    events = story.events()
    for event in events:
        item.see(event, replica)
    assert failures(item.judge(replica, DiskFacts())) == []
    item = NothingHalf()
    for event in events[:-1]:
        item.see(event, replica)
    (failed,) = failures(item.judge(replica, DiskFacts()))
    assert failed.startswith(f"{events[-2].ref}: ")


# A3.3


def batch(state: str = "DONE", total: int | None = None) -> Story:
    story = Story()
    story.add("B", map=MapSpec(("work",), list=("a", "b")))
    story.start("B")
    if total is not None:
        cites = {"from": "READY", "to": "RUNNING", "contract": "c.json", "contract_sha256": "ab"}
        story.commit(Draft("STATE_TRANSITION", "node", "B", cites))
    story.register("B", "A-B")
    if state == "DONE":
        story.claim("B")
        story.conclude("B")
    return story


def of_units(story: Story, total: int | None = None, **found: Any) -> Findings:
    contracts = {"c.json": Seen("ab", 9)} if total is not None else {}
    texts: dict[str, dict[str, Any]] = {"c.json": {"units": {"total": total}}}
    disk = DiskFacts(ledgers={"B": found}, contracts=contracts, contract_texts=texts)
    disk.artifacts["A-B"] = Seen("ab" * 32, 3)
    return judged_on(story, UnitsOnce, disk)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"done": 2, "repeated": 0, "problem": ""}, ""),
        ({"done": 2, "repeated": 1, "problem": ""}, "1 units stand more than once"),
        ({"done": 1, "repeated": 0, "problem": "an item is lost."}, "an item is lost."),
    ],
)
def test_a_unit_is_done_once(found: dict[str, Any], said: str) -> None:
    failed = failures(of_units(batch(), **found))
    assert failed == ([f"B: {said}"] if said else [])


def test_of_a_node_that_is_done_no_unit_is_missing() -> None:
    (failed,) = failures(of_units(batch(total=2), 2, done=1))
    assert "2 units ordered, and 1 have a finding" in failed
    assert failures(of_units(batch(total=2), 2, done=2)) == []
    assert failures(of_units(batch("RUNNING", total=2), 2, done=1)) == []


def test_findings_that_were_changed_since_are_for_a2_2() -> None:
    disk = DiskFacts(ledgers={"B": {"done": 1, "repeated": 9}})
    disk.artifacts["A-B"] = Seen(problem="changed")
    findings = judged_on(batch(), UnitsOnce, disk)
    assert (findings.results, bool(findings.why)) == ((), True)


# A3.4


def torn(status: str = "quarantined") -> Story:
    story = Story()
    payload = {
        "path": FILE, "kind": "fragment", "status": status,
        "integrity": {"algo": "sha256", "value": "ab" * 32, "size_bytes": 3, "checked_at": ""},
    }  # fmt: skip
    story.commit(Draft("ARTIFACT_REGISTERED", "artifact", "F-7", payload))
    return story


def test_a_torn_tail_is_kept_and_counts_for_nothing() -> None:
    seen = DiskFacts(artifacts={"F-7": Seen("ab" * 32, 3)})
    assert failures(judged_on(torn(), TailsKept, seen)) == []
    assert failures(judged_on(torn("current"), TailsKept, seen)) == ["F-7: it counts as current"]
    gone = DiskFacts(artifacts={"F-7": Seen(problem="missing")})
    assert failures(judged_on(torn(), TailsKept, gone)) == ["F-7: missing"]
    assert failures(judged_on(torn(), TailsKept, DiskFacts())) == ["F-7: was not looked at"]


@pytest.mark.parametrize("words", ["{}", "completed from the journal; {}", "{}, and more"])
def test_what_a_recovery_set_aside_is_on_record(words: str) -> None:
    told = words.format(f"set aside as {FILE}")
    note = Draft("NOTE", "task", "T1", {"op": "recovered", "found": ["x"], "repaired": [told]})
    seen = DiskFacts(artifacts={"F-7": Seen("ab" * 32, 3)})
    kept, lost = torn(), Story()
    kept.commit(note)
    lost.commit(note)
    assert failures(judged_on(kept, TailsKept, seen)) == []
    (failed,) = failures(judged_on(lost, TailsKept, seen))
    assert FILE in failed


# A4.1, A4.2


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        (DiskFacts(), []),
        (DiskFacts(mirror="whole", unchained=3), []),
        (DiskFacts(damage="line 3, byte 9: not JSON"), ["journal.jsonl: line 3, byte 9: not JSON"]),
        (DiskFacts(mirror="it ends at J-2"), ["journal-mirror.jsonl: it ends at J-2"]),
    ],
)
def test_damage_and_a_mirror_that_differs_are_told(disk: DiskFacts, said: list[str]) -> None:
    assert failures(judged_on(Story(), HistoryWhole, disk)) == said


def test_lines_without_a_chain_value_are_told() -> None:
    findings = judged_on(Story(), HistoryWhole, DiskFacts(unchained=3))
    assert "3 lines of other writers" in findings.results[0].note


def test_what_was_superseded_keeps_its_bytes_and_its_heir() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.register("N1", "A")
    story.register("N1", "B", value="cd" * 32, supersedes="A")
    whole = DiskFacts(artifacts={"A": Seen("ab" * 32, 3), "B": Seen(problem="missing")})
    assert failures(judged_on(story, NothingLost, whole)) == []  # B counts: it is for A2.2
    gone = DiskFacts(artifacts={"A": Seen(problem="missing")})
    assert failures(judged_on(story, NothingLost, gone)) == ["A: missing"]


def test_a_pointer_to_nothing_fails() -> None:
    replica = Replica()
    story = Story()
    story.bring_to("N1", "QUARANTINED")
    replica.apply_all(story.events())
    integrity = Integrity("sha256", "ab" * 32, 3, "")
    replica.state.artifacts["A"] = Artifact("a", "doc", "N1", None, integrity, "superseded(by:B)")
    replica.state.nodes["N1"].successors = ("N9",)
    found = failures(NothingLost().judge(replica, DiskFacts()))
    assert found == [
        "A: is superseded by B, which does not exist", "N1: points to N9, which does not exist",
    ]  # fmt: skip
