"""Parallel dispatch, rule by rule: FSN-2, PD-H1, PD-H3, PD-J1, RT-3."""

from typing import Any

import pytest
from tests.conformance.host import Host
from tests.unit.core.story import ME, Story, replay

from perdure import HaltError, HaltRuntime
from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core.dispatching import DEATH_MODES, Death, Usage
from perdure.core.model import Executor, MapSpec
from perdure.core.projection import checkpoint_view
from perdure.core.recovery import Findings, check_consistency, plan_recovery
from perdure.core.views import status
from perdure.runtime.calls import perform

SHARDED = MapSpec(("tool",), list=("a", "b", "c"), shard=3)
SHA = "ab" * 32


def dispatching(*nodes: str) -> Story:
    """These batch nodes at work, B alone when none is named."""
    story = Story()
    for name in nodes or ("B",):
        story.add(name, map=SHARDED)
        story.start(name)
    return story


def open_slot(story: Story, invocation: str = "inv-1", node: str = "B", **more: Any) -> None:
    story.do(d.OpenSlot(node, invocation, SHA, f"executor:{invocation}", more.pop("units", 3)))


def close_slot(
    story: Story, end: str = "landed", invocation: str = "inv-1", **more: Any
) -> list[str]:
    """Close it; the ops of what was committed."""
    landed = more.pop("landed", 3 if end == "landed" else 0)
    command = d.CloseSlot(
        invocation,
        end,  # type: ignore[arg-type]
        landed,
        more.pop("left", 3 - landed),
        observation=more.pop("observation", "seen"),
        **more,
    )
    return [event.payload["op"] for event in story.do(command)]


def refused(story: Story, command: c.Command) -> HaltError:
    seq = story.replica.state.seq
    with pytest.raises(HaltError) as caught:
        story.do(command)
    assert story.replica.state.seq == seq, "a refusal has written nothing"
    assert caught.value.fix
    return caught.value


# Slots (HALT-07 section 3)


def test_fsn_2_a_slot_is_on_record_before_its_worker_is_sent() -> None:
    story = dispatching()
    (event,) = story.do(d.OpenSlot("B", "inv-1", SHA, "executor:inv-1", 3, "cd" * 32))
    assert (event.kind, event.entity.type, event.entity.id) == ("DECISION", "slot", "inv-1")
    assert event.payload["contract"] == event.evidence[0] == "contracts/inv-1.json"
    assert (event.payload["contract_sha256"], event.payload["units"]) == (SHA, 3)
    slot = story.replica.state.slots["inv-1"]
    assert (slot.node, slot.executor, slot.units, slot.epoch) == ("B", "executor:inv-1", 3, 1)


def test_fsn_2_of_two_claims_of_one_invocation_the_earlier_holds() -> None:
    story = dispatching("B", "D")
    open_slot(story)
    for node in ("B", "D"):
        error = refused(story, d.OpenSlot(node, "inv-1", SHA, "executor:late", 3))
        assert (error.code, error.rule, error.exit_code) == ("slot_taken", "FSN-2", 4)
        assert "B" in error.message
    node_contract = story.node("B").invocation
    assert node_contract is not None
    error = refused(story, d.OpenSlot("B", node_contract, SHA, "executor:late", 3))
    assert error.code == "slot_taken"
    assert story.replica.state.slots["inv-1"].executor == "executor:inv-1"


def test_fsn_2_only_a_batch_node_at_work_has_slots() -> None:
    story = dispatching()
    story.add("N1")
    story.start("N1")
    story.add("E", map=SHARDED)
    for node in ("N1", "E"):
        error = refused(story, d.OpenSlot(node, "inv-9", SHA, "executor:x", 3))
        assert (error.code, error.rule) == ("not_dispatching", "FSN-2")
    assert refused(story, d.OpenSlot("B", "inv-9", SHA, "executor:x", 0)).rule == "PD-C3"
    assert refused(story, d.OpenSlot("B", "../x", SHA, "executor:x", 1)).code == "bad_id"


def test_pd_j1_a_slot_closes_with_what_the_disk_holds() -> None:
    story = dispatching()
    open_slot(story)
    assert close_slot(story, landed=2, left=1, usage=Usage(tokens=7)) == ["slot_closed"]
    state = story.replica.state
    assert state.slots == {}
    assert state.health.window == (False,)
    assert story.node("B").usage == Usage(tokens=7)


def test_pd_j1_nothing_on_disk_is_no_landing() -> None:
    story = dispatching()
    open_slot(story)
    error = refused(story, d.CloseSlot("inv-1", "landed", 0, 3))
    assert (error.code, error.rule) == ("evidence_missing", "PD-J1")
    assert close_slot(story, "silent", first=True) == ["slot_closed"]
    assert story.replica.state.health.deaths == {"silent": 1}


def test_pd_j1_units_that_failed_by_the_ledger_are_output() -> None:
    story = dispatching()
    open_slot(story)
    assert close_slot(story, "landed", landed=0, left=0) == ["slot_closed"]


@pytest.mark.parametrize(
    "command",
    [
        d.CloseSlot("inv-1", "landed", 4, 0),
        d.CloseSlot("inv-1", "landed", 2, 2),
        d.CloseSlot("inv-1", "landed", -1, 0),
        d.CloseSlot("inv-1", "bored", 3, 0),  # type: ignore[arg-type]
        d.CloseSlot("inv-1", "failed", 0, 3, cause="weather", observation="x"),  # type: ignore[arg-type]
    ],
)
def test_an_end_that_cannot_be_is_refused(command: d.CloseSlot) -> None:
    story = dispatching()
    open_slot(story)
    error = refused(story, command)
    assert (error.code, error.exit_code) == ("bad_slot", 2)


@pytest.mark.parametrize("end", DEATH_MODES)
def test_every_death_says_what_was_seen(end: str) -> None:
    story = dispatching()
    open_slot(story)
    nothing_seen = d.CloseSlot("inv-1", end, 0, 3)  # type: ignore[arg-type]
    assert refused(story, nothing_seen).code == "empty_text"
    close_slot(story, end, first=True)
    assert story.replica.state.health.deaths == {end: 1}


def test_a_death_behind_some_output_is_no_first_death() -> None:
    story = dispatching()
    open_slot(story)
    close_slot(story, "killed", landed=1, left=2, first=True)
    assert story.replica.state.health.window == (False,)


def test_a_slot_closes_once() -> None:
    story = dispatching()
    open_slot(story)
    close_slot(story)
    error = refused(story, d.CloseSlot("inv-1", "landed", 3, 0))
    assert (error.code, error.rule, error.exit_code) == ("unknown_slot", "PD-J1", 3)


def test_the_slots_of_a_closed_node_are_abandoned() -> None:
    story = dispatching()
    open_slot(story)
    story.do(c.CancelNodes(("B",), "not wanted"))
    assert story.replica.state.slots == {}
    assert check_consistency(story.replica) == []


def test_slots_outlive_an_interruption_and_are_told_of_a_takeover() -> None:
    story = dispatching()
    open_slot(story)
    open_slot(story, "inv-2")
    story.fail("B", interruption=True)
    assert set(story.replica.state.slots) == {"inv-1", "inv-2"}
    assert check_consistency(story.replica) == []
    context = c.Context(story.now, "coordinator:main")
    told = plan_recovery(story.replica, Findings(takeover="its holder is gone"), context).found
    assert any("B has 2 open slots" in line for line in told)
    assert plan_recovery(story.replica, Findings(), context).found == ()


def test_a_slot_without_its_node_is_inconsistent() -> None:
    story = dispatching()
    open_slot(story)
    story.replica.state.slots["inv-1"].node = "gone"
    assert check_consistency(story.replica) == ["slot inv-1 is open for nobody who waits for it"]


# Suspicion and late output (RT-3)


def test_rt_3_silence_is_suspected_once_and_ends_nothing() -> None:
    story = dispatching()
    open_slot(story)
    command = d.Suspect("inv-1", 93.0, 90.0, "3 times the median unit time (30 s)", "ledger line 4")
    (event,) = story.do(command)
    assert (event.kind, event.payload["op"], event.entity.id) == ("NOTE", "suspected", "inv-1")
    assert event.payload["policy"]
    assert event.payload["last_sign"]
    assert story.do(command) == []
    state = story.replica.state
    assert state.slots["inv-1"].suspected == event.ref
    assert status(story.replica, limit=9)["slots"][0]["suspected"] == event.ref
    close_slot(story)
    assert state.health.deaths == {}, "it came back, and no death is on record"


def test_rt_3_the_executor_of_a_plain_node_is_suspected_likewise() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    invocation = story.node("N1").invocation or ""
    (event,) = story.do(d.Suspect(invocation, 901.0, 900.0, "three heartbeats"))
    assert event.entity.type == "contract"
    assert story.do(d.Suspect(invocation, 999.0, 900.0, "three heartbeats")) == []
    assert story.node("N1").state == "RUNNING"
    assert status(story.replica, limit=9)["running"][0]["suspected"] == event.ref
    assert refused(story, d.Suspect("inv-9", 1.0, 1.0, "x")).code == "unknown_slot"


def test_rt_3_late_output_is_judged_or_set_aside_and_on_record() -> None:
    story = dispatching()
    open_slot(story)
    error = refused(story, d.RecordLate("B", "inv-1", 1))
    assert error.code == "slot_open"
    close_slot(story, "killed", first=True)
    (landed,) = story.do(d.RecordLate("B", "inv-1", 2, why="it wrote on"))
    assert (landed.payload["op"], landed.payload["landed"]) == ("late_output", 2)
    (aside,) = story.do(d.RecordLate("B", "inv-0", set_aside="tmp/recovered/inv-0", why="epoch 1"))
    assert aside.payload["set_aside"] == "tmp/recovered/inv-0"
    for command in (
        d.RecordLate("B", "inv-1"),
        d.RecordLate("B", "inv-1", 1, set_aside="tmp/x"),
        d.RecordLate("B", "inv-1", -1),
    ):
        assert refused(story, command).code == "bad_slot"
    story.fail("B", interruption=True)
    assert refused(story, d.RecordLate("B", "inv-1", 1)).code == "not_dispatching"
    story.do(d.RecordLate("B", "inv-1", set_aside="tmp/recovered/inv-1"))


# Modes (HALT-07 section 4)


def die(story: Story, number: int, cause: str = "", **more: Any) -> list[str]:
    open_slot(story, f"inv-{number}")
    return close_slot(story, "failed", f"inv-{number}", first=True, cause=cause, **more)


def land(story: Story, number: int) -> list[str]:
    open_slot(story, f"inv-{number}")
    return close_slot(story, "landed", f"inv-{number}")


def mode_of(story: Story) -> str:
    return story.replica.state.health.mode


def test_pd_h1_the_mode_changes_in_the_commit_of_the_end_that_causes_it() -> None:
    story = dispatching()
    assert die(story, 1) == die(story, 2) == ["slot_closed"]
    assert die(story, 3) == ["slot_closed", "mode"]
    assert mode_of(story) == "B"
    for number in range(4, 9):
        assert land(story, number) == ["slot_closed"]
    assert land(story, 9) == ["slot_closed", "mode"], "2 of the last 8 are not above 0.25"
    assert mode_of(story) == "A"
    last = replay(story.journal)[0].state.health
    assert last == story.replica.state.health


def test_pd_h1_plain_nodes_count_as_slots_do() -> None:
    story = Story()
    for number in range(3):
        story.add(f"N{number}")
        story.start(f"N{number}", executor=ME)
        story.fail(f"N{number}", death=Death("killed", True, observation="signal 9"))
    assert mode_of(story) == "B"
    assert story.replica.state.health.deaths == {"killed": 3}


def test_pd_h1_work_of_people_and_interruptions_do_not_count() -> None:
    story = Story()
    for number in range(4):
        story.add(f"N{number}")
        by_hand = number % 2 == 0
        story.start(f"N{number}", executor=Executor("executor:ben") if by_hand else ME)
        story.fail(f"N{number}", death=Death("killed", True), interruption=not by_hand)
    assert story.replica.state.health.window == ()


def test_pd_h3_two_walls_in_a_row_halt_and_nothing_is_sent() -> None:
    story = dispatching()
    die(story, 1, "quota")
    assert die(story, 2, "rate_limit") == ["slot_closed", "mode"]
    assert mode_of(story) == "C"
    error = refused(story, d.OpenSlot("B", "inv-3", SHA, "executor:x", 3))
    assert (error.code, error.rule, error.exit_code) == ("dispatch_halted", "PD-H3", 4)


def test_pd_h3_in_flight_work_lands_and_lifts_nothing() -> None:
    story = dispatching()
    open_slot(story, "inv-0")
    die(story, 1, "network")
    die(story, 2, "network")
    assert close_slot(story, "landed", "inv-0") == ["slot_closed"]
    assert mode_of(story) == "C"


def test_pd_h3_a_halt_is_left_by_a_probe_that_survives() -> None:
    story = dispatching()
    die(story, 1, "network")
    die(story, 2, "network")
    story.do(d.ChangeMode("C", "a probe has passed", probing=True))
    assert die(story, 3, "network") == ["slot_closed", "mode"]
    health = story.replica.state.health
    assert (health.mode, health.probing) == ("C", False)
    story.do(d.ChangeMode("C", "a probe has passed", probing=True))
    assert land(story, 4) == ["slot_closed", "mode"]
    health = story.replica.state.health
    assert (health.mode, health.window, health.environment_failures) == ("A", (), 0)


def test_pd_h3_there_is_nothing_to_probe_while_work_is_dispatched() -> None:
    story = dispatching()
    for mode in ("A", "B", "C"):
        error = refused(story, d.ChangeMode(mode, "x", probing=True))  # type: ignore[arg-type]
        assert (error.code, error.rule) == ("not_halted", "PD-H3")


def test_pd_h3_what_a_person_chooses_holds_until_a_person_changes_it() -> None:
    story = dispatching()
    story.actor = "sponsor:ann"
    (event,) = story.do(d.ChangeMode("C", "the bill is too high"))
    assert (event.payload["authority"], event.payload["by_hand"]) == ("sponsor:ann", True)
    story.actor = "coordinator:main"
    error = refused(story, d.ChangeMode("C", "a probe has passed", probing=True))
    assert (error.code, error.rule) == ("halted_by_hand", "PD-H3")
    assert story.do(d.ChangeMode("C", "still")) == []
    story.do(d.ChangeMode("B", "carefully"))
    assert land(story, 1) == ["slot_closed"]
    assert mode_of(story) == "B"
    die(story, 2, "disk")
    assert die(story, 3, "disk") == ["slot_closed", "mode"], "a wall halts all the same"
    story.do(d.ChangeMode("A", "there is room now"))
    assert story.replica.state.health.window == ()
    assert refused(story, d.ChangeMode("C", " ")).code == "empty_text"
    assert refused(story, d.ChangeMode("D", "x")).code == "bad_mode"  # type: ignore[arg-type]


def test_the_same_mode_again_writes_nothing() -> None:
    assert dispatching().do(d.ChangeMode("A", "as ever")) == []


def test_credentials_halt_before_every_node_has_asked_for_them() -> None:
    story = Story()
    for number in range(2):
        story.add(f"N{number}")
        story.start(f"N{number}", executor=ME)
        story.fail(f"N{number}", "permanent-resource", death=Death("failed", True, "credentials"))
    assert mode_of(story) == "C"
    assert story.node("N1").state == "BLOCKED"


def test_a_held_effect_says_how_its_attempt_died() -> None:
    story = Story(allowed=("N1",))
    story.add("N1", effect="S3")
    story.start("N1", executor=ME)
    events = story.fail("N1", death=Death("killed"), usage=Usage(tokens=5))
    moves = [event.payload for event in events if event.kind == "STATE_TRANSITION"]
    assert (moves[0]["edge"], moves[0]["death"], moves[0]["usage"]) == (
        "N05", {"mode": "killed"}, {"tokens": 5},
    )  # fmt: skip
    assert story.replica.state.health.deaths == {"killed": 1}


def test_usage_of_every_attempt_adds_up() -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    story.fail("N1", death=Death("failed"), usage=Usage(tokens=5, cost_usd=0.5))
    story.start("N1")
    story.do(c.MoveNode("N1", "VERIFYING", payload={"usage": {"tokens": 6, "wall_s": 1.5}}))
    used = story.node("N1").usage
    assert used is not None
    assert (used.tokens, used.cost_usd, used.wall_s) == (11, 0.5, 1.5)
    assert status(story.replica, limit=9)["usage"] == {
        "tokens": 11, "cost_usd": 0.5, "wall_s": 1.5,
    }  # fmt: skip
    story.add("N2")
    story.start("N2")
    error = refused(story, c.MoveNode("N2", "VERIFYING", payload={"usage": "much"}))
    assert (error.code, error.exit_code) == ("bad_usage", 2)


# What is shown


def test_the_checkpoint_shows_modes_slots_and_their_parameters() -> None:
    story = dispatching()
    open_slot(story)
    die(story, 2)
    view = checkpoint_view(story.replica)
    modes = view["modes"]
    assert (modes["dispatch_mode"], modes["first_death_rate_window"]) == ("A", [True])
    assert (modes["first_death_rate"], modes["window_size"]) == (0.125, 8)
    active = {entry["invocation_id"]: entry for entry in view["active_contracts"]}
    assert set(active) == {story.node("B").invocation, "inv-1"}
    assert active["inv-1"] == {
        "invocation_id": "inv-1", "node": "B", "executor": "executor:inv-1", "units": 3,
    }  # fmt: skip
    names = ("first_death_window", "mixed_threshold", "halt_after", "probe_slots")
    assert all(view["policy_params"][name]["reason"] for name in names)


def call(rt: HaltRuntime, what: str, **args: Any) -> Any:
    with rt.engine.acting_as("sponsor:ann"):
        return perform(rt.engine, what, args)


def test_a_person_changes_mode_and_parameters_with_reason_and_window(
    host: Host, rt: HaltRuntime
) -> None:
    changed = call(rt, "dispatch", mode="c", reason="too dear")
    assert changed["committed"] == rt.state.health.since
    assert (changed["dispatch"]["dispatch_mode"], changed["dispatch"]["by_hand"]) == ("C", True)
    again = call(rt, "dispatch", mode="C", reason="too dear")
    assert again["repeated"]
    call(rt, "dispatch", mode="A", reason="it is cheap at night")
    assert call(rt, "dispatch", mode="A", reason="as it is")["repeated"]
    call(rt, "policy", name="first_death_window", value="16", reason="noisy", window="last week")
    call(rt, "policy", name="mixed_threshold", value="0", reason="careful")
    assert rt.state.policies.first_death_window == 16
    for name, value in (("halt_after", "1.5"), ("halt_after", "0"), ("mixed_threshold", "-1")):
        with pytest.raises(HaltError) as caught:
            call(rt, "policy", name=name, value=value, reason="x")
        assert caught.value.code == "bad_policy"


def test_an_op_id_changes_the_mode_once(host: Host, rt: HaltRuntime) -> None:
    with rt.engine.acting_as("sponsor:ann"):
        args = {"mode": "C", "reason": "stop"}
        first = perform(rt.engine, "dispatch", args, op="op-1")
        second = perform(rt.engine, "dispatch", args, op="op-1")
    assert second["repeated"]
    assert second["dispatch"] == first["dispatch"]
