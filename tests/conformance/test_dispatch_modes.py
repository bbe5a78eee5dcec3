"""Modes A, B and C as a run applies them (PD-H1 to PD-H3), on a simulated clock."""

import os
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.control.dispatch_control import DispatchControl
from perdure.control.endings import Claim, Endings
from perdure.control.life_signs import LifeSigns
from perdure.control.pacing import RetryPacing
from perdure.core import commands as c
from perdure.core.dispatching import Cause, Death, Usage


class Run:
    """A coordinator that dispatches, and what its control says."""

    def __init__(self, host: Host, runtime: HaltRuntime) -> None:
        self.host = host
        self.runtime = runtime
        self.events: list[dict[str, Any]] = []
        self.control = DispatchControl(runtime.engine, self.events.append)
        self.number = 0

    def dispatch(self, *, deaths: int = 0) -> str:
        """Start one more node."""
        self.number += 1
        name = f"N{self.number}"
        self.runtime.add_node(name, name)
        self.runtime.start(name)
        self.control.began(name, deaths=deaths)
        return name

    def die(
        self, name: str, *, first: bool = True, environment: bool = False, cause: Cause = "",
        retry_after_s: float | None = None,
    ) -> None:  # fmt: skip
        failure = "transient-environment" if environment else "transient-agent"
        death = Death("failed", first, cause, "seen")
        self.runtime.engine.execute(c.FailNode(name, failure, "exit 1", death=death))
        self.control.ended(name, landed=False, cause=cause, retry_after_s=retry_after_s)
        self.control.look(wanted=True)

    def land(self, name: str) -> None:
        self.host.write(f"artifacts/{name}/o")
        self.runtime.submit(name)
        self.control.ended(name, landed=True)
        self.control.look(wanted=True)

    def halt(self, *, cause: Cause = "network", retry_after_s: float | None = None) -> None:
        for _ in range(2):
            name = self.dispatch()
            self.die(name, environment=True, cause=cause, retry_after_s=retry_after_s)
        assert self.mode == "C"

    @property
    def mode(self) -> str:
        return self.runtime.state.health.mode

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


@pytest.fixture
def run(host: Host, rt: HaltRuntime) -> Run:
    return Run(host, rt)


def test_pd_h1_in_a_what_died_once_is_tried_again_and_what_died_twice_waits(run: Run) -> None:
    run.control.report_untouched("B", 3)
    assert run.control.may_retry("N1", 1)
    assert not run.control.may_retry("N1", 2)
    run.control.report_untouched("B", 0)
    assert run.control.may_retry("N1", 2)


def test_pd_h1_in_b_only_untouched_work_goes_and_then_the_dead_one_at_a_time(run: Run) -> None:
    for _ in range(3):
        run.die(run.dispatch())
    assert run.mode == "B"
    assert run.told("mode")[-1]["before"] == "A"
    run.control.report_untouched("", 1)
    assert run.control.may_dispatch_untouched()
    assert not run.control.may_retry("N1", 1)
    run.control.report_untouched("", 0)
    assert run.control.may_retry("N1", 1)
    assert not run.control.may_retry("N2", 1, more=1)
    run.control.began("N1", deaths=1)
    assert not run.control.may_retry("N2", 1)
    run.control.ended("N1", landed=True)
    assert run.control.may_retry("N2", 1)


def test_pd_h2_two_failures_of_the_environment_in_a_row_halt_dispatch(run: Run) -> None:
    run.halt()
    assert run.control.capacity(8) == 0
    assert not run.control.may_dispatch_untouched()
    assert not run.control.may_retry("N1", 1)
    assert run.control.is_halted


def test_pd_h3_a_halt_ends_by_a_probe_a_small_batch_and_its_landing(run: Run) -> None:
    run.halt()
    assert 0 < run.control.due_in_s() <= 1.0
    run.control.look(wanted=True)
    assert run.control.is_halted  # not due yet
    run.host.clock.advance(1.0)
    run.control.look(wanted=True)
    health = run.runtime.state.health
    assert (health.mode, health.probing) == ("C", True)
    assert run.control.capacity(8) == 1
    probe = run.dispatch()
    assert run.control.capacity(8) == 0
    run.land(probe)
    assert run.mode == "A"
    assert run.runtime.state.health.window == ()
    assert run.control.capacity(8) == 8


def test_pd_h3_a_probe_that_dies_of_the_environment_waits_longer(run: Run) -> None:
    run.halt()
    run.host.clock.advance(1.0)
    run.control.look(wanted=True)
    run.die(run.dispatch(), environment=True, cause="network")
    assert run.control.is_halted
    run.control.look(wanted=True)
    assert 1.0 < run.control.due_in_s() <= 2.0


def test_pd_h3_a_probe_that_fails_itself_sends_nothing(run: Run) -> None:
    run.halt()
    run.host.write("tmp/probe-dispatch/in-the-way")
    run.host.clock.advance(1.0)
    run.control.look(wanted=True)
    assert run.control.is_halted
    assert run.told("probe_failed")


def test_rt_1_probes_of_a_paced_retry_that_fail_come_farther_apart(run: Run) -> None:
    pacing = RetryPacing(run.runtime.engine)
    name = run.dispatch()
    run.die(name, environment=True)
    node = run.runtime.state.nodes[name]
    pacing.hold_back(node)
    run.host.write(f"tmp/probe-{name}/in-the-way")
    waits = []
    for _ in range(9):
        waits.append(pacing.due_in_s())
        run.host.clock.advance(waits[-1])
        assert pacing.probe(node)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    os.unlink(f"{run.host.workspace}/tmp/probe-{name}/in-the-way")
    os.rmdir(f"{run.host.workspace}/tmp/probe-{name}")
    assert pacing.probe(node) == ""
    pacing.hold_back(node)
    assert pacing.due_in_s() == 1.0


def test_pd_h2_a_retry_waits_as_long_as_its_wall_says(run: Run) -> None:
    pacing = RetryPacing(run.runtime.engine)
    name = run.dispatch()
    run.die(name, environment=True)
    node = run.runtime.state.nodes[name]
    pacing.hold_back(node, at_least_s=10_800.0)
    assert pacing.due_in_s() == 10_800.0
    pacing.hold_back(node, at_least_s=0.25)
    assert pacing.due_in_s() == 1.0


def test_pd_h2_a_quota_with_a_time_is_waited_for_until_then(run: Run) -> None:
    run.halt(cause="quota", retry_after_s=3_600.0)
    run.control.look(wanted=True)
    run.host.clock.advance(3_599.0)
    run.control.look(wanted=True)
    assert run.control.is_halted
    run.host.clock.advance(1.0)
    run.control.look(wanted=True)
    assert not run.control.is_halted


def test_pd_h2_a_quota_without_a_time_is_a_matter_for_a_person(run: Run) -> None:
    run.halt(cause="quota")
    run.control.look(wanted=True)
    assert run.control.waits_for_person
    assert run.control.due_in_s() == float("inf")
    run.host.clock.advance(1e6)
    run.control.look(wanted=True)
    assert run.control.is_halted
    # The next run is somebody's wish: it probes.
    again = DispatchControl(run.runtime.engine, run.events.append)
    assert not again.waits_for_person
    again.look(wanted=True)
    run.host.clock.advance(1.0)
    again.look(wanted=True)
    assert not again.is_halted


def test_pd_h3_nothing_is_probed_when_nothing_waits_to_be_dispatched(run: Run) -> None:
    run.halt()
    before = run.runtime.state.seq
    run.host.clock.advance(1e6)
    run.control.look(wanted=False)
    assert run.runtime.state.seq == before


# Signs of life


@pytest.fixture
def signs(run: Run) -> LifeSigns:
    return LifeSigns(run.runtime.engine, run.events.append)


def watched(run: Run, signs: LifeSigns) -> str:
    name = run.dispatch()
    node = run.runtime.state.nodes[name]
    scope = run.runtime.engine.layout.node_scope(name)
    signs.watch(node.invocation or "", name, (scope,))
    return name


def test_rt_3_a_silent_worker_is_suspected_once_with_observation_and_policy(
    run: Run, signs: LifeSigns
) -> None:
    name = watched(run, signs)
    heartbeat_s = run.runtime.state.policies.heartbeat_s
    factor = run.runtime.state.policies.suspected_dead_factor
    run.host.clock.advance(heartbeat_s * factor + 1)
    for _ in range(3):
        signs.look()
        run.host.clock.advance(heartbeat_s)
    (told,) = run.told("suspected")
    assert told["node"] == name
    assert told["silent_s"] > told["allowed_s"]
    notes = [e for e in run.runtime.events() if e.payload.get("op") == "suspected"]
    assert len(notes) == 1
    assert "suspected_dead_factor" in notes[0].payload["policy"]
    assert run.runtime.state.nodes[name].state == "RUNNING"  # nobody is ended for silence (F12)
    run.land(name)
    assert run.runtime.state.nodes[name].state == "DONE"


def test_rt_3_a_worker_whose_files_grow_has_heartbeats_and_no_suspicion(
    run: Run, signs: LifeSigns
) -> None:
    name = watched(run, signs)
    heartbeat_s = run.runtime.state.policies.heartbeat_s
    for turn in range(8):
        run.host.write(f"artifacts/{name}/part{turn}", "x" * (turn + 1))
        run.host.clock.advance(heartbeat_s)
        signs.look()
    beats = [e for e in run.runtime.events() if e.kind == "HEARTBEAT"]
    assert len(beats) == 8
    assert not run.told("suspected")


def test_rt_3_what_usually_takes_long_may_be_silent_for_long(run: Run, signs: LifeSigns) -> None:
    policies = run.runtime.state.policies
    done = watched(run, signs)
    run.host.clock.advance(10 * policies.heartbeat_s)
    signs.forget(run.runtime.state.nodes[done].invocation or "", landed=True)
    watched(run, signs)
    run.host.clock.advance(29 * policies.heartbeat_s)
    signs.look()
    assert not run.told("suspected")
    run.host.clock.advance(2 * policies.heartbeat_s)
    signs.look()
    assert run.told("suspected")


# Budgets


def test_a_claim_that_has_spent_more_than_its_budget_is_a_failure(run: Run) -> None:
    runtime = run.runtime
    runtime.add_node("N1", "N1", budget={"max_cost_usd": 1.0})
    runtime.start("N1")
    run.host.write("artifacts/N1/o")
    endings = Endings(runtime, RetryPacing(runtime.engine), run.events.append)
    landed = endings.claim("N1", wall_s=1.0, usage=Usage(wall_s=1.0, cost_usd=1.5))
    assert not landed
    assert runtime.state.nodes["N1"].state == "RETRYABLE"
    (failed,) = run.told("failed")
    assert failed["why"].startswith("budget spent: ")
    assert failed["death"]["mode"] == "failed"
    usage = runtime.state.nodes["N1"].usage
    assert usage is not None
    assert usage.cost_usd == 1.5


def test_claims_of_one_turn_are_one_commit_and_one_that_is_empty_holds_up_no_other(
    run: Run,
) -> None:
    runtime = run.runtime
    for name in ("N1", "N2", "N3"):
        runtime.add_node(name, name)
        runtime.start(name)
    endings = Endings(runtime, RetryPacing(runtime.engine), run.events.append)
    run.host.write("artifacts/N1/o")
    run.host.write("artifacts/N2/o")
    before = len(run.host.read().splitlines())
    landed = endings.claim_all([Claim("N1", "", 1.0), Claim("N2", "", 1.0)])
    assert landed == {"N1", "N2"}
    written = list(runtime.events())[before:]
    assert [event.c for event in written] == [[n, len(written)] for n in range(1, len(written) + 1)]
    assert endings.claim_all([Claim("N3", "", 1.0)]) == set()
    assert runtime.state.nodes["N3"].state == "RETRYABLE"


def test_of_claims_of_one_turn_the_one_beyond_its_budget_is_a_failure(run: Run) -> None:
    runtime = run.runtime
    for name in ("N1", "N2"):
        runtime.add_node(name, name, budget={"max_cost_usd": 1.0})
        runtime.start(name)
        run.host.write(f"artifacts/{name}/o")
    endings = Endings(runtime, RetryPacing(runtime.engine), run.events.append)
    spent = Usage(wall_s=1.0, cost_usd=1.5)
    assert endings.claim_all([Claim("N1", "", 1.0, spent), Claim("N2", "", 1.0)]) == {"N2"}
    assert runtime.state.nodes["N1"].state == "RETRYABLE"
    assert runtime.state.nodes["N2"].state == "VERIFYING"
