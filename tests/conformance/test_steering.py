"""Steering, rule by rule: S1 to S4, ST-1 to ST-3, FR-2, and the interrupted-steering scenario.

Each process of a scenario is a runtime of its own on a real directory; a kill takes it without any
of its exit hooks.
"""

import json
import os
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.core import commands as c
from perdure.core.codec import encode_commit
from perdure.core.decide import decide
from perdure.core.events import Event
from perdure.core.people import READINGS
from perdure.errors import HaltError
from perdure.runtime import recover
from perdure.runtime.calls import perform
from perdure.storage import spool
from perdure.storage.workspace import Layout

SAID = "Leave the deprecated modules out\u2028of the report"
ANNA = "sponsor:anna"


def begin(host: Host) -> HaltRuntime:
    """N1 is DONE, N2 rests on it and is at work, N3 is free."""
    runtime = host.open()
    runtime.add_node("N1", "first")
    runtime.add_node("N2", "second", deps=["N1"])
    runtime.add_node("N3", "third")
    host.finish(runtime, "N1")
    runtime.start("N2")
    return runtime


def steer(runtime: HaltRuntime, text: str = SAID, **args: Any) -> dict[str, Any]:
    """As the command line does it."""
    with runtime.engine.acting_as(ANNA):
        return perform(runtime.engine, "steer", {"text": text, **args})


def of(runtime: HaltRuntime, steering_id: str) -> list[Event]:
    """The events that an instruction has caused."""
    return [event for event in runtime.events() if event.payload.get("steering") == steering_id]


def die_between_the_commits(host: Host, runtime: HaltRuntime, **how: Any) -> str:
    """The words are logged, and the process is killed before anything acts on them."""
    engine = runtime.engine
    with engine.writing(), engine.acting_as(ANNA):
        logged = engine.execute(c.LogSteering("", SAID, **how))
    host.die(runtime)
    return logged.events[0].entity.id


# S1


def test_s1_words_are_durable_verbatim_before_anything_acts_on_them(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = begin(host)
    seen: list[bytes] = []

    def look(replica: Any, command: c.Command, context: c.Context) -> c.Decision:
        if isinstance(command, c.PropagateSteering):
            seen.append(host.read())
        return decide(replica, command, context)

    monkeypatch.setattr("perdure.runtime.engine.decide", look)
    answer = steer(runtime)
    (before,) = seen
    last = json.loads(before.splitlines()[-1])
    assert (last["kind"], last["payload"]["verbatim"]) == ("STEERING_LOGGED", SAID)
    assert (last["actor"], f"J-{last['seq']}") == (ANNA, answer["committed"])
    assert json.loads(before.splitlines()[-2])["payload"].get("steering") is None


@pytest.mark.parametrize("reading", ["", *READINGS])
def test_s1_however_it_is_read_the_words_come_first(host: Host, reading: str) -> None:
    runtime = begin(host)
    before = runtime.seq_last
    steer(runtime, reading=reading)
    assert list(runtime.events())[before].kind == "STEERING_LOGGED"


def test_s1_the_same_words_under_the_same_id_are_one_instruction(host: Host) -> None:
    runtime = begin(host)
    first = steer(runtime, id="ST-1", reading="amendment")
    journal = host.read()
    again = steer(runtime, id="ST-1", reading="amendment")
    assert host.read() == journal
    assert again == {**first, "repeated": True}


def test_s1_a_refused_instruction_is_on_no_record(host: Host) -> None:
    runtime = begin(host)
    journal = host.read()
    for args in ({"nodes": ["N9"]}, {"reading": "maybe"}, {"changes": {"colour": "red"}}):
        with pytest.raises(HaltError):
            steer(runtime, **args)
    assert host.read() == journal


# S2 and ST-1


def test_s2_the_reading_is_on_record_before_its_effects(host: Host) -> None:
    runtime = begin(host)
    answer = steer(runtime, reading="amendment", nodes=["N2"])
    first, *rest = of(runtime, answer["steering"])
    assert (first.kind, first.payload["op"], first.payload["reading"]) == (
        "DECISION", "classify", "amendment",
    )  # fmt: skip
    assert rest[0].kind == "STATE_TRANSITION"


def test_st_1_in_doubt_the_stronger_reading_holds_and_is_put_to_the_sponsor(host: Host) -> None:
    runtime = begin(host)
    answer = steer(runtime)
    assert answer["reading"] == "amendment"
    assert set(answer["applied"]) == {"N2", "N3"}
    (question,) = runtime.state.questions.values()
    assert (question.kind, question.to) == ("confirmation", "sponsor")


# S3


def test_s3_contracts_in_flight_are_recalled_and_specs_amended(host: Host) -> None:
    runtime = begin(host)
    recalled = runtime.node("N2").invocation
    answer = steer(runtime, reading="amendment", nodes=["N2"])
    assert answer["recalled"] == ["N2"]
    assert runtime.state.contracts == {}
    node = runtime.node("N2")
    assert (node.state, node.strikes, node.amended_by[-1]) == (
        "READY", 0, answer["applied"]["N2"].rpartition(" ")[2],
    )  # fmt: skip
    runtime.start("N2")
    assert node.invocation != recalled
    contract = json.loads(host.read(f"contracts/{runtime.node('N2').invocation}.json"))
    assert SAID in contract["constraints"]


def test_s3_a_worker_whose_contract_was_recalled_submits_nothing(host: Host) -> None:
    runtime = begin(host)
    steer(runtime, reading="amendment", nodes=["N2"])
    host.write("artifacts/N2/out.txt")
    with pytest.raises(HaltError) as refused:
        runtime.submit("N2")
    assert refused.value.rule == "N03"


def test_s3_what_a_recalled_worker_brings_late_is_not_that_of_the_next_contract(
    host: Host,
) -> None:
    runtime = begin(host)
    late = runtime.node("N2").invocation
    steer(runtime, reading="amendment", nodes=["N2"])
    host.write("artifacts/N2/out.txt", "by the old instructions")
    worker = runtime.engine
    before = host.read()
    with worker.acting_as(f"executor:{late}"):
        for bring in (
            lambda: runtime.register_artifact("A-late", "artifacts/N2/out.txt", node_id="N2"),
            lambda: worker.execute(c.AskQuestion("Is that all?", node_id="N2")),
        ):
            with pytest.raises(HaltError) as refused:
                bring()
            assert (refused.value.code, refused.value.rule) == ("not_yours", "AU-2")
    assert host.read() == before
    runtime.start("N2")
    assert not os.path.exists(f"{host.workspace}/artifacts/N2/out.txt"), "out of the way"


def test_s3_an_effect_that_may_have_happened_is_held_for_a_person(host: Host) -> None:
    host_world = host.world()
    runtime = HaltRuntime(host.workspace, "T1", standing_authorities=["pay"], world=host_world)
    runtime.add_node("pay", "pay", effect="S3")
    runtime.start("pay")
    answer = steer(runtime, reading="amendment")
    assert answer["recalled"] == ["pay"]
    assert runtime.node("pay").state == "BLOCKED"
    assert [q.kind for q in runtime.state.questions.values()] == ["effect"]


# S4


def test_s4_it_is_acknowledged_with_the_log_the_reading_and_what_was_done_where(host: Host) -> None:
    runtime = begin(host)
    answer = steer(runtime, reading="amendment", nodes=["N1", "N2"])
    note = runtime.events()[int(answer["acknowledged"][2:]) - 1]
    assert (note.kind, note.payload["op"]) == ("NOTE", "acknowledged")
    assert note.payload["log"] == answer["committed"]
    assert note.payload["applied"] == answer["applied"]
    assert answer["applied"]["N1"] == "DONE, corrected by N1.fix1"
    assert answer["applied"]["N2"].startswith("recalled J-")
    assert answer["applied"]["N1.fix1"].startswith("corrective node J-")


# ST-2, ST-3


def test_st_2_restated_words_are_tagged_and_act_only_once(host: Host) -> None:
    runtime = begin(host)
    first = steer(runtime, "N1 is wrong", reading="amendment", nodes=["N1"])
    again = steer(runtime, "N1 is wrong", reading="amendment", nodes=["N1"], restated=True)
    assert again["steering"] != first["steering"]
    (logged,) = [e for e in runtime.events() if e.ref == again["committed"]]
    assert logged.payload["provenance"] == "re-stated"
    assert (again["same_as"], again["applied"]) == (first["steering"], first["applied"])
    assert [name for name in runtime.state.nodes if ".fix" in name] == ["N1.fix1"]


def test_st_3_done_work_stands_and_a_corrective_node_follows(host: Host) -> None:
    runtime = begin(host)
    steer(runtime, "N1 is wrong", reading="amendment", nodes=["N1"])
    assert runtime.node("N1").state == "DONE"
    assert runtime.node("N1.fix1").deps == ("N1",)
    assert "N1.fix1" in runtime.node("N2").deps
    assert "N2" not in runtime.frontier()
    host.finish(runtime, "N1.fix1")
    assert "N2" in runtime.frontier()


# FR-2


def test_fr_2_the_frontier_is_that_of_the_steered_graph_at_the_next_start(host: Host) -> None:
    runtime = begin(host)
    runtime.add_node("N4", "fourth")
    assert runtime.frontier() == ["N3", "N4"]
    steer(runtime, "first of all", nodes=["N4"], changes={"priority": 5}, reading="amendment")
    assert runtime.frontier() == ["N4", "N3"]


def test_fr_2_whoever_starts_next_propagates_first(host: Host) -> None:
    """Also a short command, behind a process that died between the two commits."""
    runtime = begin(host)
    steering_id = die_between_the_commits(host, runtime, targets=("N3",))
    short = host.attach(101, actor="executor:worker")
    short.start("N3", session=True)
    entry = short.state.steering[steering_id]
    assert entry.acknowledged
    assert list(entry.reached) == ["N3"], "the contract that was issued carries it"
    short.close()


# The interrupted-steering scenario


def test_interrupted_steering_that_landed_is_propagated_before_anything_runs(host: Host) -> None:
    runtime = begin(host)
    steering_id = die_between_the_commits(host, runtime)
    with host.resume(101) as resumed:
        entry = resumed.state.steering[steering_id]
        assert (entry.reading, bool(entry.acknowledged)) == ("amendment", True)
        assert resumed.node("N2").directives == resumed.node("N3").directives == (SAID,)
        told = recover.summary(resumed.engine, resumed.recovered)
        assert told["last_contact"] == {"ref": entry.ref, "at": entry.at, "by": ANNA}
        assert told["inbox_empty"] is True
        assert any(steering_id in line for line in told["found"])
        assert any(steering_id in line for line in told["repaired"])
    with host.resume(102) as again:
        assert again.recovered.repaired == (), "recovering twice is recovering once"


def test_interrupted_steering_is_repaired_in_the_one_commit_of_the_recovery(host: Host) -> None:
    runtime = begin(host)
    runtime.move_task("EXECUTING")
    before = len(runtime.events())
    steering_id = die_between_the_commits(host, runtime)
    with host.resume(101) as resumed:
        events = resumed.events()[before + 1 :]
        assert len({event.tx for event in events}) == 1
        caused = [event for event in events if event.payload.get("steering") == steering_id]
        by_ref = {event.ref: event for event in events}
        for event in caused:
            if event.payload.get("edge") == "N12":
                assert by_ref[event.payload["amendment"]].kind == "AMENDMENT"
        entry = resumed.state.steering[steering_id]
        assert by_ref[entry.acknowledged].payload["op"] == "acknowledged"


def test_a_halt_that_landed_is_not_undone_by_the_recovery_that_finds_it(host: Host) -> None:
    runtime = begin(host)
    runtime.move_task("EXECUTING")
    die_between_the_commits(host, runtime, reading="halt")
    with host.resume(101) as resumed:
        assert resumed.state.fsm_task == "SUSPENDED"
        assert resumed.state.contracts == {}


def test_interrupted_steering_in_the_drop_box_has_landed_too(host: Host) -> None:
    runtime = begin(host)
    host.die(runtime)
    world = host.world(101)
    args = {"text": SAID, "reading": "amendment", "nodes": ["N3"]}
    spool.drop(
        world.disk,
        Layout(host.workspace),
        spool.Message("said-1", "steer", args, ANNA, host.clock.now()),
    )
    with host.resume(102) as resumed:
        assert resumed.node("N3").directives == (SAID,)
        told = recover.summary(resumed.engine, resumed.recovered)
        assert told["last_contact"]["by"] == ANNA
        assert told["inbox_empty"] is True


def test_interrupted_steering_that_did_not_land_is_said_again(host: Host) -> None:
    """The summary shows that nobody heard it: an older word is the last, and nothing waits."""
    runtime = begin(host)
    heard = steer(runtime, "Be brief", reading="clarification")
    torn = torn_logging(runtime)
    host.die(runtime)
    with open(f"{host.workspace}/journal.jsonl", "ab") as journal:
        journal.write(torn)
    with host.resume(101) as resumed:
        told = recover.summary(resumed.engine, resumed.recovered)
        assert told["last_contact"]["ref"] == heard["committed"]
        assert told["inbox_empty"] is True
        assert list(resumed.state.steering) == [heard["steering"]]
        answer = steer(resumed, SAID, reading="amendment", nodes=["N3"], restated=True)
        entry = resumed.state.steering[answer["steering"]]
        assert entry.provenance == "re-stated"
        assert resumed.node("N3").directives == (SAID,)


def torn_logging(runtime: HaltRuntime) -> bytes:
    """The first half of the line that would have put the words on record."""
    decision = decide(runtime.engine.replica, c.LogSteering("", SAID), runtime.engine.context())
    commit = encode_commit(
        runtime.engine.journal.tip, decision.drafts, ts="now", actor=ANNA, epoch=1
    )
    return commit.data[: len(commit.data) // 2]


def test_the_summary_says_when_something_waits_unread(host: Host) -> None:
    runtime = begin(host)
    assert recover.summary(runtime.engine, runtime.recovered)["inbox_empty"] is True
    host.write("steering/write-here.md", "Be brief\n")
    assert recover.summary(runtime.engine, runtime.recovered)["inbox_empty"] is False
    runtime.engine.tick()
    assert recover.summary(runtime.engine, runtime.recovered)["inbox_empty"] is True


def test_what_was_logged_and_never_propagated_by_others_is_propagated(host: Host) -> None:
    """A journal of another implementation knows no acknowledgement."""
    runtime = begin(host)
    with runtime.engine.writing():
        runtime.engine.execute(c.LogSteering("ST-1", "one", reading="clarification"))
        runtime.engine.execute(c.LogSteering("ST-2", "two", targets=("N3",)))
    host.die(runtime)
    with host.resume(101) as resumed:
        assert all(entry.acknowledged for entry in resumed.state.steering.values())
        assert resumed.node("N3").directives == ("two",)
