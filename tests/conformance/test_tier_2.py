"""Tier 2 over the library and in a run: its default level, its receipts, its walks.

The mirror of the journal is in ``tests/crash/test_mirror_steps.py``, changes of several artifacts
in ``tests/crash/test_tier_2_steps.py``, many units in ``tests/integration/test_ledger_first.py``.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.host import Host
from tests.conformance.test_run import Project

from perdure import EvidenceError, HaltRuntime
from perdure.control.taskfile import load_task_file
from perdure.control.walks import Walks
from perdure.core.audits import audit_plan
from perdure.core.model import Policies
from perdure.runtime.calls import perform
from perdure.service.tasks import Service


@pytest.fixture
def host(workspace: str) -> Host:
    return Host(workspace)


def opened(host: Host, *, tier: int = 2, **policies: Any) -> HaltRuntime:
    return HaltRuntime(
        host.workspace, "T1", tier=tier, policies=Policies(**policies), world=host.world()
    )


# The default level


@pytest.mark.parametrize(("tier", "level"), [(0, "V1"), (1, "V1"), (2, "V2")])
def test_a_node_that_names_no_level_has_that_of_its_tier(host: Host, tier: int, level: str) -> None:
    with opened(host, tier=tier) as rt:
        rt.add_node("N1", "by the library")
        perform(rt.engine, "add", {"node": "N2"})
        assert [rt.node(name).verification_level for name in ("N1", "N2")] == [level, level]
    text = f"task_id: t\ntier: {tier}\nnodes:\n  - id: a\n    run: 'true'\n"
    (plan,) = load_task_file("/p/task.yaml", text.encode()).nodes
    assert plan.verification_level == level


def test_a_level_that_is_named_wins_over_that_of_the_tier(host: Host) -> None:
    with opened(host) as rt:
        rt.add_node("N1", "by the library", verification_level="V1")
        perform(rt.engine, "add", {"node": "N2", "verify": "V1"})
        assert {rt.node(name).verification_level for name in ("N1", "N2")} == {"V1"}
    text = "task_id: t\ntier: 2\nnodes:\n  - {id: a, run: 'true', verify: V1}\n"
    (plan,) = load_task_file("/p/task.yaml", text.encode()).nodes
    assert plan.verification_level == "V1"


def test_the_audit_by_default_is_by_another_authority(host: Host) -> None:
    with opened(host) as rt:
        rt.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
        plan = audit_plan(rt.state, rt.node("N1"))
        assert plan is not None
        assert plan.independence == ("I1", "I2", "I5")
        rt.start("N1")
        host.write("artifacts/N1/a.txt")
        rt.submit("N1")
        assert rt.node("N1").state == "VERIFYING", "checks alone make nothing DONE"


# Receipts


def sends(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("send", "Publish it", effect="S2", outputs=["artifacts/send/out.txt"],
                verification_level="V1")  # fmt: skip
    rt.start("send")
    host.write("artifacts/send/out.txt")


def test_c_s2_an_effect_that_can_be_repeated_is_done_only_with_its_receipt(host: Host) -> None:
    with opened(host) as rt:
        sends(host, rt)
        order = host.read(f"contracts/{rt.node('send').invocation}.json").decode()
        assert "Record a RECEIPT of each external effect" in order
        before = rt.seq_last
        for claim in (
            lambda: rt.submit("send"),
            lambda: rt.transition("send", "VERIFYING", "sent, says the worker"),
        ):
            with pytest.raises(EvidenceError) as caught:
                claim()
            assert (caught.value.code, caught.value.rule) == ("receipt_missing", "C-S2")
            assert (rt.node("send").state, rt.seq_last) == ("RUNNING", before)
        rt.receipt("send", "message 4711")
        rt.submit("send")
        assert rt.node("send").state == "DONE"


@pytest.mark.parametrize("tier", [0, 1])
def test_below_tier_2_an_effect_that_can_be_repeated_owes_no_receipt(host: Host, tier: int) -> None:
    with opened(host, tier=tier) as rt:
        sends(host, rt)
        rt.submit("send")
        assert rt.node("send").state == "DONE"


def test_each_attempt_at_a_repeatable_effect_proves_its_own(host: Host) -> None:
    with opened(host) as rt:
        sends(host, rt)
        rt.receipt("send", "message 4711")
        rt.fail("send", "transient-agent", "exit 1")
        assert rt.frontier() == ["send"], "it is repeated, and nobody is asked"
        rt.start("send")
        host.write("artifacts/send/out.txt")
        with pytest.raises(EvidenceError):
            rt.submit("send")
        rt.receipt("send", "message 4712")
        rt.submit("send")
        assert rt.node("send").state == "DONE"


def test_a_death_before_the_receipt_of_a_repeatable_effect_holds_nothing(host: Host) -> None:
    rt = opened(host)
    sends(host, rt)
    host.die(rt)
    with host.resume(pid=101) as again:
        assert (again.node("send").state, again.frontier()) == ("RETRYABLE", ["send"])
        assert again.state.questions == {}


# Walks


class Walking:
    """The walks of one coordinator, looked at as its loop does."""

    def __init__(self, host: Host, rt: HaltRuntime) -> None:
        self.host, self.rt = host, rt
        self.told: list[dict[str, Any]] = []
        self.walks = Walks(rt.engine, wake=lambda: None, emit=self.told.append)

    def look(self) -> int:
        """Look until nothing is under way; returns how many walks came in."""
        before = len(self.told)
        self.walks.look()
        while self.walks.under_way:
            self.walks.look()
        return len(self.told) - before

    def damage(self, path: str, text: str = "CONTENT") -> None:
        """Other bytes, of the same length and time: only reading the file tells."""
        full = os.path.join(self.host.workspace, path)
        seen = os.stat(full)
        Path(full).write_text(text, encoding="utf-8")
        os.utime(full, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def questions(self) -> list[str]:
        return [name for name in self.rt.state.questions if name.startswith("Q-walk")]


def with_files(host: Host, rt: HaltRuntime, *names: str) -> None:
    for name in names:
        rt.add_node(name, name, outputs=[f"artifacts/{name}/a.txt"], verification_level="V1")
        rt.start(name)
        host.write(f"artifacts/{name}/a.txt", "content")
        rt.submit(name)


@pytest.fixture
def walking(host: Host) -> Walking:
    rt = opened(host, walk_every_commits=50, walk_every_s=900.0)
    with_files(host, rt, "N1", "N2")
    return Walking(host, rt)


def test_wk_1_a_walk_is_due_after_so_many_seconds(host: Host, walking: Walking) -> None:
    assert walking.look() == 0
    host.clock.advance(899.0)
    assert walking.look() == 0
    host.clock.advance(1.0)
    assert walking.look() == 1
    walk = walking.rt.state.walk
    assert walk is not None
    assert (walk.checked, walk.failed) == (2, ())
    assert walking.look() == 0
    host.clock.advance(900.0)
    assert walking.look() == 1


def test_wk_1_a_walk_is_due_after_so_many_commits(walking: Walking) -> None:
    while walking.rt.seq_last < 49:
        walking.rt.note("one more")
    assert walking.look() == 0
    walking.rt.note("and one")
    assert walking.look() == 1
    assert walking.rt.state.walk is not None
    for _ in range(49):
        walking.rt.note("one more")
    assert walking.look() == 0
    walking.rt.note("and one")
    assert walking.look() == 1


@pytest.mark.parametrize("tier", [0, 1])
def test_below_tier_2_nothing_is_walked(host: Host, tier: int) -> None:
    with opened(host, tier=tier, walk_every_commits=1) as rt:
        with_files(host, rt, "N1")
        host.clock.advance(10_000.0)
        assert Walking(host, rt).look() == 0


def test_wk_1_the_sponsor_is_asked_once_about_a_file_that_is_not_as_registered(
    host: Host, walking: Walking
) -> None:
    walking.damage("artifacts/N1/a.txt")
    for round_number in (1, 2, 3):
        host.clock.advance(900.0)
        assert walking.look() == 1
        assert walking.walks.suspects == {"N1"}
        assert walking.questions() == ["Q-walk"], round_number
    question = walking.rt.state.questions["Q-walk"]
    assert question.to == "sponsor"
    assert "artifacts/N1/a.txt" in question.text
    assert "artifacts/N2/a.txt" not in question.text
    walking.damage("artifacts/N1/a.txt", "content")
    host.clock.advance(900.0)
    assert walking.look() == 1
    assert walking.walks.suspects == set()
    walk = walking.rt.state.walk
    assert walk is not None
    assert walk.failed == ()


def test_the_next_run_begins_with_what_the_last_walk_found(host: Host, walking: Walking) -> None:
    walking.damage("artifacts/N1/a.txt")
    host.clock.advance(900.0)
    assert walking.look() == 1
    for text, suspects in (("CONTENT", {"N1"}), ("content", set())):
        walking.damage("artifacts/N1/a.txt", text)
        again = Walking(host, walking.rt)
        assert again.walks.suspects == {"N1"}, "before anything starts"
        assert again.look() == 1, "at once, it may have been put right"
        assert again.walks.suspects == suspects
        assert again.look() == 0
    assert walking.questions() == ["Q-walk"]


def test_a_file_that_was_set_aside_is_not_walked(host: Host, walking: Walking) -> None:
    rt = walking.rt
    rt.add_node("N3", "N3", outputs=["artifacts/N3/a.txt"], verification_level="V1",
                accept=["nonempty: artifacts/N3/a.txt"])  # fmt: skip
    rt.start("N3")
    host.write("artifacts/N3/a.txt", "")
    rt.submit("N3")
    assert rt.node("N3").state == "RETRYABLE"
    host.clock.advance(900.0)
    assert walking.look() == 1
    assert walking.told[-1]["checked"] == 2


def test_the_two_numbers_are_policies_of_the_task(host: Host) -> None:
    text = "task_id: t\npolicies: {walk_every_commits: 7, walk_every_s: 30s}\nnodes:\n  - id: a\n"
    policies = load_task_file("/p/task.yaml", text.encode()).policies
    assert (policies.walk_every_commits, policies.walk_every_s) == (7, 30.0)
    with opened(host) as rt:
        with_files(host, rt, "N1")
        walking = Walking(host, rt)
        assert walking.look() == 0
        with rt.engine.acting_as("sponsor:ada"):
            perform(rt.engine, "policy", {"name": "walk_every_commits", "value": 2, "reason": "r"})
        assert walking.look() == 1


# In a run

RUN = """
task_id: t
tier: 2
policies: {walk_every_commits: 1}
nodes:
  - id: a
    run: printf content > "$PERDURE_SCOPE/a.txt"
    outputs: [artifacts/a/a.txt]
    verify: V1
  - id: b
    deps: [a]
    run: printf other > "$PERDURE_SCOPE/b.txt"
    outputs: [artifacts/b/b.txt]
    verify: V1
"""


def test_c_s2_a_command_that_succeeds_without_its_receipt_has_failed(workspace: str) -> None:
    project = Project(workspace)
    text = RUN.replace("  - id: a\n", "  - id: a\n    effect: S2\n    retry: 1\n")
    report = project.run(text)
    assert report["outcome"] == "needs_person"
    assert [event["node"] for event in project.told("failed")] == ["a"]
    assert "no receipt" in project.told("failed")[0]["why"]
    assert project.node("a")["state"] == "RETRYABLE"


def test_a_run_walks_and_the_status_tells_it(workspace: str) -> None:
    project = Project(workspace)
    report = project.run(RUN)
    assert report["outcome"] == "finished"
    assert project.told("walked")
    status = project.service.status()
    assert status["walk"]["failed"] == []
    assert status["walk"]["ref"] == project.told("walked")[-1]["ref"]
    assert project.told("walked")[-1]["checked"] == status["walk"]["checked"] == 2


WAITING = """  - id: c
    deps: [a]
    run: >-
      until [ -e "$PERDURE_TASK_DIR/go" ]; do sleep 0.02; done;
      printf third > "$PERDURE_SCOPE/c.txt"
    outputs: [artifacts/c/c.txt]
    verify: V1
"""


def test_what_a_walk_of_a_run_finds_keeps_what_rests_on_it_from_starting(workspace: str) -> None:
    project = Project(workspace)

    def tamper(event: dict[str, Any], _: Any) -> None:
        if event["event"] == "done" and event["node"] == "a":
            path = Path(project.workspace, "artifacts/a/a.txt")
            seen = path.stat()
            path.write_text("CONTENT", encoding="utf-8")
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        if event["event"] == "walked" and event["failed"]:
            (project.directory / "go").touch()

    report = project.run(RUN.replace("deps: [a]", "deps: [a, c]") + WAITING, on=tamper)
    assert project.node("c")["state"] == "DONE"
    assert report["outcome"] == "needs_person"
    assert project.node("b")["state"] in ("PENDING", "READY")
    (question,) = [name for name in report["questions"] if name.startswith("Q-walk")]
    assert "artifacts/a/a.txt" in report["questions"][question]


def test_short_commands_never_walk(workspace: str) -> None:
    project = Project(workspace)
    text = RUN.replace("walk_every_commits: 1", "walk_every_commits: 1000")
    assert project.run(text)["outcome"] == "finished"
    assert project.told("walked") == []
    service = Service(project.workspace, actor="sponsor:ada")
    service.call("policy", {"name": "walk_every_commits", "value": 1, "reason": "now"})
    service.call("note", {"text": "one more"})
    service.verify()
    status = service.status()
    assert "walk" not in status
    assert [e for e in project.journal() if e.payload.get("op") == "walk"] == []
