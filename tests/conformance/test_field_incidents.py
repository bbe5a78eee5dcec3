"""The eight incidents of the field run that shaped the protocol, against this runtime."""

import json
import os
from itertools import pairwise

import pytest
from tests.conformance.host import Host, edges, moves

from perdure import (
    EvidenceError,
    FencedError,
    LeaseHeldError,
    RefusedError,
    TransitionError,
)
from perdure.core.codec import Scan


def sequence(host: Host) -> list[int]:
    """The seq of every committed line, read from the file itself."""
    scan = Scan()
    numbers = [event.seq for events in scan.commits([host.read()]) for event in events]
    assert scan.damage is None
    return numbers


def test_1_sequence_numbers_never_collide_across_restarts_and_writers(host: Host) -> None:
    runtime = host.open()
    runtime.note("by the first")
    host.die(runtime)
    runtime = host.resume(pid=101)
    runtime.note("by the second")
    runtime.close()
    one, other = host.attach(102), host.attach(103)
    for number in range(4):
        (one, other)[number % 2].note("by turns")
    one.close()
    other.close()
    with host.resume(pid=104) as runtime:
        assert runtime.note("by the last").seq == len(sequence(host))
    assert sequence(host) == list(range(1, len(sequence(host)) + 1))


@pytest.mark.parametrize("damage", ["torn", "empty", "gone", "edited", "noise"])
def test_2_a_torn_registry_is_rebuilt_to_the_same_bytes(host: Host, damage: str) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        host.finish(runtime, "N1")
    views = ("artifacts/registry.json", "task-graph.json", "checkpoint.json", ".snapshot.json")
    before = {view: host.read(view) for view in views}
    journal = host.read()
    for view in views:
        path = os.path.join(host.workspace, view)
        data = before[view]
        if damage == "gone":
            os.unlink(path)
            continue
        with open(path, "wb") as stream:
            stream.write({
                "torn": data[: len(data) // 2],
                "empty": b"",
                "edited": data.replace(b'"current"', b'"CURRENT"').replace(b"DONE", b"D0NE"),
                "noise": bytes(range(256)),
            }[damage])  # fmt: skip
    with host.resume() as runtime:
        assert runtime.node("N1").state == "DONE"
        assert runtime.registry["A-N1"].status == "current"
    assert {view: host.read(view) for view in views} == before
    assert host.read() == journal, "a cache is repaired without an event"


def test_3_a_changed_file_fails_the_walk_and_new_content_gets_a_new_path(host: Host) -> None:
    with host.open() as runtime:
        runtime.register_artifact("A-1", host.write("out/report.md", "first"))
        host.write("out/report.md", "changed in place")
        with pytest.raises(RefusedError) as caught:
            runtime.register_artifact("A-2", "out/report.md")
        assert caught.value.rule == "AR-3"
        runtime.register_artifact("A-2", host.write("out/report.v2.md", "second"))
        walk = runtime.integrity_walk()
        assert walk["A-1"].startswith("FAIL")
        assert "out/report.md" in walk["A-1"]
        assert walk["A-2"] == "PASS"
        assert not runtime.status()["all_integrity_pass"]
        assert (runtime.verify_artifact("A-1"), runtime.verify_artifact("A-2")) == (False, True)


def test_4_a_worker_that_died_silently_is_not_done(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first", outputs=["artifacts/N1/report.md"])
        runtime.start("N1")
        # It says that it has finished, and has written nothing.
        runtime.transition("N1", "VERIFYING", evidence="all done, 12 files written")
        for claim in (None, [], "all done", ["artifacts/N1/report.md"], ["A-N1 verified"]):
            with pytest.raises(EvidenceError) as caught:
                runtime.transition("N1", "DONE", claim)
            assert caught.value.rule == "PD-J1"
        assert runtime.node("N1").state == "VERIFYING"


def test_5_work_whose_process_died_is_retryable_as_an_interruption(host: Host) -> None:
    runtime = host.open()
    runtime.add_node("N1", "done before")
    runtime.add_node("N2", "under way", deps=["N1"])
    host.finish(runtime, "N1")
    runtime.start("N2")
    host.write("artifacts/N2/half.txt", "truncat")
    host.die(runtime)

    with host.resume(pid=101) as runtime:
        node = runtime.node("N2")
        assert (node.state, node.interruptions, node.strikes) == ("RETRYABLE", 1, 0)
        assert node.failure_class == "transient-agent"
        assert runtime.node("N1").state == "DONE"
        assert runtime.frontier() == ["N2"]
        takeover = next(e for e in runtime.events() if e.payload.get("op") == "takeover")
        assert "pid 100" in takeover.payload["text"]
        assert runtime.recovered.found
        assert runtime.recovered.repaired
        runtime.start("N2")
        assert not os.path.exists(os.path.join(host.workspace, "artifacts/N2/half.txt"))
        host.write("artifacts/N2/whole.txt", "whole")
        runtime.submit("N2")
        assert runtime.node("N2").state == "DONE"
        assert [a.path for a in runtime.registry.values() if a.produced_by_node == "N2"] == [
            "artifacts/N2/whole.txt"
        ]


def test_6_illegal_moves_are_refused_and_leave_no_trace(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first")
        before = host.read()
        for target in ("VERIFYING", "DONE", "BLOCKED", "RETRYABLE", "QUARANTINED", "NONSENSE"):
            with pytest.raises(TransitionError) as caught:
                runtime.transition("N1", target, ["J-1"])
            assert caught.value.rule
        host.finish(runtime, "N1")
        after = host.read()
        for target in ("READY", "RUNNING", "VERIFYING", "PENDING"):
            with pytest.raises(TransitionError):
                runtime.transition("N1", target, ["J-1"])
        assert host.read() == after
    assert after.startswith(before)


def test_7_one_coordinator_at_a_time(host: Host) -> None:
    first = host.open()
    first.add_node("N1", "first")
    before = host.read()
    for open_it in (host.open, host.resume):
        with pytest.raises(LeaseHeldError) as caught:
            open_it(pid=101)
        assert "pid 100" in str(caught.value)
    beside = host.attach(101)
    assert beside.frontier() == ["N1"], "reading needs no lease"
    with pytest.raises(LeaseHeldError):
        beside.note("me too")
    assert host.read() == before

    second = host.resume()
    second.note("by the second object")
    for call in (lambda: first.note("late"), lambda: first.transition("N1", "READY")):
        with pytest.raises(FencedError):
            call()
    first.close()
    assert second.note("still mine").epoch == 2
    assert [event.seq for event in second.events()] == sequence(host)
    second.close()
    beside.close()


def test_8_a_cycle_of_rejections_keeps_the_ledger_sane(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "a draft that somebody judges", retry_budget=5)
        for number in (1, 2, 3):
            runtime.start("N1")
            path = host.write(f"artifacts/N1/draft-{number}.md", f"draft {number}")
            runtime.register_artifact(f"A-draft-{number}", path, node_id="N1")
            runtime.transition("N1", "VERIFYING", [f"A-draft-{number}"])
            if number < 3:
                runtime.decision(f"DR-{number}", "rejected: too long")
                runtime.transition("N1", "RETRYABLE", [f"DR-{number}"], diagnosis="too long")
        runtime.transition("N1", "DONE", ["A-draft-3"])
        assert edges(runtime, "N1") == [
            *("N01", "N02", "N03", "N07"),
            *("N11", "N03", "N07"),
            *("N11", "N03", "N06"),
        ]
        statuses = [runtime.registry[f"A-draft-{n}"].status for n in (1, 2, 3)]
        assert statuses == ["quarantined", "quarantined", "current"]
        assert runtime.node("N1").artifacts == ("A-draft-3",)
        assert runtime.integrity_walk() == {"A-draft-3": "PASS"}
        assert [host.read(f"artifacts/old/A-draft-{n}-{n}/draft-{n}.md") for n in (1, 2)] == [
            b"draft 1",
            b"draft 2",
        ]
        # Every move begins where the one before it ended.
        own = [move.payload for move in moves(runtime) if move.entity.id == "N1"]
        assert all(before["to"] == after["from"] for before, after in pairwise(own))
        status = runtime.status()
    numbers = sequence(host)
    assert numbers == list(range(1, len(numbers) + 1))
    with host.resume() as runtime:
        assert runtime.status() == status
    registry = json.loads(host.read("artifacts/registry.json"))
    assert registry["as_of"]["seq"] == len(numbers)
