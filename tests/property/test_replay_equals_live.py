"""Whatever happens, replaying the journal gives what was lived: byte for byte.

One machine lives over the pure core, with thousands of steps; another over the real runtime in a
real directory, where it closes, resumes, attaches beside, and reads its projections back.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.unit.core.story import ME, Story, replay

from perdure import HaltRuntime
from perdure.core import commands as c
from perdure.core import observed_commands as o
from perdure.core.fold import Replica
from perdure.core.inbox_page import inbox_page
from perdure.core.machine import retry_budget
from perdure.core.model import FAILURE_CLASSES, NODE_STATES, TASK_STATES, Executor, Integrity, Spec
from perdure.core.people import READINGS, RULINGS, Gate
from perdure.core.projection import (
    checkpoint_view,
    graph_view,
    registry_view,
    seal,
    seal_snapshot,
    unseal_snapshot,
)
from perdure.core.recovery import check_consistency
from perdure.errors import FencedError, HaltError
from perdure.storage.projections import load_snapshot
from perdure.storage.workspace import Layout

NODE = st.sampled_from([f"N{n}" for n in range(4)])
NODES = st.lists(NODE, max_size=2, unique=True)
CHARACTER = st.characters() | st.characters(categories=["Cs"])
TEXT = st.text(CHARACTER, min_size=1, max_size=20).filter(str.strip)
OP = st.none() | st.sampled_from([f"op-{n}" for n in range(8)])
PATH = st.sampled_from(["a.txt", "a.v2.txt", "b.txt", "b.v3.txt", "c.txt"])
CONTENT = st.sampled_from(["ab" * 32, "cd" * 32])
SPONSOR, GATEKEEPER, COORDINATOR = "sponsor:ann", "gatekeeper:bert", "coordinator:main"
POINT = st.sampled_from(["", "start", "done"])
PLAN = "plan.md"
"""The file that every gate is about."""


class CoreMachine(RuleBasedStateMachine):
    """Random commands over decide and fold."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story(allowed=("N1", "N2"))
        self.contracts = 0

    def attempt(self, command: c.Command, op: str | None = None, by: str = COORDINATOR) -> None:
        before, length = self.story.snapshot(), len(self.story.journal)
        self.story.actor = by
        if op is not None and op in self.story.replica.state.ops:
            return  # the engine answers it without deciding
        refused = None
        try:
            self.story.do(command, op=op)
        except HaltError as error:
            refused = error
        if refused is not None:
            assert refused.code
            assert refused.message
            assert (self.story.snapshot(), len(self.story.journal)) == (before, length)

    @initialize(states=st.lists(st.sampled_from(NODE_STATES), max_size=2), point=POINT)
    def begin_in_the_middle(self, states: list[str], point: str) -> None:
        for number, state in enumerate(states):
            self.story.bring_to(f"N{number}", state)
        for node in ("N2", "N3"):
            self.go_on_with(node, "ab" * 32, well=True, point=point)

    @rule(
        node=NODE,
        deps=NODES,
        effect=st.sampled_from(["S0", "S3"]),
        outputs=st.sampled_from([None, (), ("a.txt",)]),
        old=st.none() | NODE,
        point=POINT,
    )
    def add(
        self, *, node: str, deps: list[str], effect: Any, outputs: Any, old: str | None, point: Any
    ) -> None:
        gates = (Gate(f"G-{node}", point, content=(PLAN,), fallback="reject"),) if point else ()
        spec = Spec(outputs=outputs, retry_budget=2, gates=gates)
        command = c.AddNode(node, "a node", tuple(deps), spec, effect=effect, successor_of=old)
        self.attempt(command)

    @rule(node=NODE, title=TEXT, priority=st.integers(-2, 2), op=OP)
    def add_with_an_op(self, node: str, title: str, priority: int, op: str | None) -> None:
        self.attempt(c.AddNode(node, title, priority=priority), op)

    @rule(node=NODE, deps=NODES, priority=st.integers(0, 3))
    def amend(self, node: str, deps: list[str], priority: int) -> None:
        self.attempt(c.AmendNode(node, {"deps": deps, "priority": priority}, "so"))

    @rule(node=NODE, goal=TEXT)
    def replan(self, node: str, goal: str) -> None:
        spec = msgspec.to_builtins(Spec(goal=goal, retry_budget=2))
        self.attempt(c.AmendNode(node, {"spec": spec}, "so"))

    @rule(node=NODE, proof=TEXT, op=OP)
    def receipt(self, node: str, proof: str, op: str | None) -> None:
        self.attempt(c.RecordReceipt(node, proof), op)

    @rule(node=NODE, session=st.booleans(), plan=CONTENT, op=OP)
    def start(self, node: str, session: bool, plan: str, op: str | None) -> None:
        self.contracts += 1
        who = Executor("executor:x", "session") if session else ME
        expires = self.story.now + 60 if session else None
        contract = c.IssuedContract(f"inv-{self.contracts}", "ab" * 32, who, expires, {})
        contents = {f"G-{node}": {PLAN: plan}}
        self.attempt(c.MoveNode(node, "RUNNING", contract=contract, contents=contents), op)

    @rule(node=NODE, to=st.sampled_from(NODE_STATES), text=TEXT)
    def move(self, node: str, to: str, text: str) -> None:
        payload = {"reason": text, "wake": text, "manifest": text, "decision": text,
                   "authority": text, "diagnosis": text, "replacement": text}  # fmt: skip
        self.attempt(c.MoveNode(node, to, ("J-1",), payload))

    @rule(node=NODE, passed=st.booleans(), plan=CONTENT)
    def conclude(self, node: str, passed: bool, plan: str) -> None:
        known = self.story.replica.state.nodes.get(node)
        passed = passed and bool(known and known.artifacts)  # as the runtime's own verdicts
        verdict = c.Verdict(passed, "verifier:v1", "V1", ({"passed": passed},), {}, "why")
        contents = {f"G-{node}": {PLAN: plan}}
        self.attempt(c.MoveNode(node, "DONE", verdict=verdict, contents=contents))

    @rule(node=NODE, kind=st.sampled_from(FAILURE_CLASSES), interruption=st.booleans(), text=TEXT)
    def fail(self, node: str, kind: str, interruption: bool, text: str) -> None:
        self.attempt(c.FailNode(node, kind, text, interruption=interruption))

    @rule(node=NODE, method=st.sampled_from(["", "default", "other"]), op=OP)
    def retry(self, node: str, method: str, op: str | None) -> None:
        self.attempt(c.RetryNode(node, "because", method), op)

    @rule(nodes=NODES)
    def cancel(self, nodes: list[str]) -> None:
        self.attempt(c.CancelNodes(tuple(nodes), "not wanted"))

    @rule(node=st.none() | NODE, path=PATH, value=CONTENT, name=st.sampled_from(["", "A-1", "A-2"]),
          supersedes=st.none() | st.just("A-1"))  # fmt: skip
    def register(self, node: str | None, path: str, value: str, name: str,
                 supersedes: str | None) -> None:  # fmt: skip
        integrity = Integrity("sha256", value, 3, "now")
        self.attempt(c.RegisterArtifact(name, path, "doc", integrity, node, supersedes=supersedes))

    @rule(node=NODE, name=st.sampled_from(["A-1", "A-2", "A-N1"]))
    def attach(self, node: str, name: str) -> None:
        self.attempt(c.AttachArtifact(node, name))

    @rule(nodes=NODES)
    def beat(self, nodes: list[str]) -> None:
        if nodes:
            self.attempt(c.Beat(tuple(nodes)))

    @rule(node=NODE, kind=st.sampled_from(["STEP_PROGRESS", "STEP_COMPLETED", "TASK_COMPLETED"]),
          text=TEXT, claim=st.booleans(), op=OP)  # fmt: skip
    def observe(self, node: str, kind: str, text: str, claim: bool, op: str | None) -> None:
        self.attempt(o.Observe(kind, "node", node, text, {text: text}, claim=claim), op)
        job = {"provider": "p", "job_id": node, "state": "RUNNING" if claim else "FAILED"}
        self.attempt(o.Observe("EXTERNAL_OBSERVED", "external_job", "", text, {}, job))
        got = {"status": "CORRUPT", "path": "x", "size_bytes": len(text)}
        self.attempt(o.Observe("DOWNLOAD_OBSERVED", "download", node, text, {}, got))

    @rule(node=st.just("") | NODE, text=TEXT, letter=st.sampled_from("ABCDE"),
          kind=st.sampled_from(["", "TIMEOUT"]), token=st.sampled_from(["", "RT-1"]))  # fmt: skip
    def reply(self, node: str, text: str, letter: str, kind: str, token: str) -> None:
        self.attempt(o.ConfirmBlock(node, text, (text,), text, kind, resume_token=token))
        self.attempt(
            o.RecordReply(letter, node, text, {text: text}, text, (), text, kind, token, True)
        )

    @rule(node=NODE, plan=CONTENT, well=st.booleans(), point=POINT)
    def go_on_with(self, node: str, plan: str, *, well: bool, point: str) -> None:
        """Whatever is next for a node: most random calls alone come to nothing."""
        known = self.story.replica.state.nodes.get(node)
        if known is None:
            self.add(node=node, deps=[], effect="S0", outputs=None, old=None, point=point)
            return
        asked = [q for q in self.story.replica.state.questions.values() if q.node == node]
        if asked and asked[0].gate:
            command = c.AnswerQuestion(
                asked[0].question_id, "approve" if well else "reject", "so", files={PLAN: plan}
            )
            self.attempt(command, by=GATEKEEPER)
        elif known.state == "RUNNING" and well:
            self.register(node, f"{node}-{known.attempts}.txt", plan, "", None)
            self.attempt(c.MoveNode(node, "VERIFYING", ("J-1",)))
        elif known.state == "RUNNING":
            self.fail(node, "transient-agent", interruption=False, text="exit 3")
        elif known.state == "VERIFYING":
            self.conclude(node, well, plan)
        else:
            self.ask_at_a_gate(node, plan)
            self.start(node, session=False, plan=plan, op=None)

    @rule(text=TEXT, op=OP)
    def say(self, text: str, op: str | None) -> None:
        self.attempt(c.WriteNote(text, "hint"), op)
        self.attempt(c.RecordDecision("", text))

    @rule(
        text=TEXT,
        steering=st.sampled_from(["", "ST-001", "ST-002"]),
        nodes=NODES,
        reading=st.sampled_from(["", *READINGS]),
        changes=st.sampled_from([{}, {"priority": 2}, {"goal": "briefly"}, {"map": 7}]),
        again=st.booleans(),
    )
    def steer(
        self, *, text: str, steering: str, nodes: list[str], reading: str, changes: Any, again: bool
    ) -> None:
        said = "re-stated" if again else "original"
        command = c.LogSteering(
            steering, text, provenance=said, reading=reading, targets=tuple(nodes), changes=changes,
            revokes=("N1",) if again else (),
        )  # fmt: skip
        self.attempt(command, by=SPONSOR)

    @rule()
    def propagate(self) -> None:
        for name, steering in list(self.story.replica.state.steering.items()):
            if not steering.acknowledged:
                self.attempt(c.PropagateSteering(name, "as it was said"))
                assert self.story.replica.state.steering[name].acknowledged, "never refused"

    @rule(node=st.none() | NODE, text=TEXT, keep=st.booleans(), limit=st.none() | st.just(30.0))
    def ask(self, node: str | None, text: str, keep: bool, limit: float | None) -> None:
        self.attempt(c.AskQuestion(text, node_id=node, keep_working=keep, timeout_s=limit))

    @rule(node=NODE, plan=CONTENT)
    def ask_at_a_gate(self, node: str, plan: str) -> None:
        self.attempt(c.AskGate(node, f"G-{node}", {PLAN: plan}))

    @rule(
        which=st.integers(0, 3),
        ruling=st.sampled_from(RULINGS),
        text=TEXT,
        plan=CONTENT,
        changes=st.sampled_from([{}, {"goal": "briefly"}]),
        silent=st.booleans(),
    )
    def rule_on_a_question(
        self, *, which: int, ruling: Any, text: str, plan: str, changes: Any, silent: bool
    ) -> None:
        asked = list(self.story.replica.state.questions.values())
        if not asked:
            return
        question = asked[which % len(asked)]
        choice = question.options[0] if question.options and not question.gate else ""
        command = c.AnswerQuestion(
            question.question_id, ruling, text, choice, changes if ruling == "revise" else {},
            {PLAN: plan}, by_default=silent,
        )  # fmt: skip
        self.attempt(command, by=SPONSOR if question.to == "sponsor" else GATEKEEPER)

    @rule(text=TEXT, nodes=NODES, failed=st.booleans(), given_up=st.booleans())
    def another_goal(self, text: str, nodes: list[str], failed: bool, given_up: bool) -> None:
        state = self.story.replica.state
        done = [name for name in nodes if name in state.nodes and state.nodes[name].state == "DONE"]
        others = tuple(name for name in nodes if name not in done) if given_up else ()
        why = dict.fromkeys(done, "it does not hold") if failed else {}
        self.attempt(c.AmendGoal(text, "so", tuple(done), why, others), by=SPONSOR)

    @rule(node=NODE, other=NODE, value=st.sampled_from([0.0, 1.0, 5.0]))
    def replan_by_hand(self, node: str, other: str, value: float) -> None:
        parts = tuple(c.AddNode(f"{node}{letter}", "a part") for letter in "ab")
        self.attempt(c.SplitNode(node, parts, "too large"))
        self.attempt(c.QuarantineNode(node, "no need", other))
        self.attempt(c.ChangePolicy("revise_max", value, "so"))

    @rule(to=st.sampled_from(TASK_STATES))
    @precondition(lambda self: len(self.story.journal) > 3_000)
    def move_task(self, to: str) -> None:
        if to != "ARCHIVED":
            self.attempt(c.MoveTask(to, "so"))

    @rule()
    def go_on_from_a_snapshot(self) -> None:
        found = unseal_snapshot(self.story.snapshot())
        assert found is not None
        self.story.replica, self.story.tip = Replica(found[0]), found[1]

    @invariant()
    def replaying_gives_what_was_lived(self) -> None:
        replica, tip = replay(self.story.journal)
        assert tip == self.story.tip
        assert seal_snapshot(replica.state, tip) == self.story.snapshot()
        assert replica.paths == self.story.replica.paths
        assert check_consistency(replica) == []

    @invariant()
    def no_method_is_tried_beyond_its_budget(self) -> None:
        state = self.story.replica.state
        for node in state.nodes.values():
            budget = retry_budget(state, node)
            assert max(node.strikes_by_method.values(), default=0) <= budget
            assert node.state != "RUNNING" or node.method_strikes < budget

    @invariant()
    def a_question_is_open_or_settled_and_about_a_node_that_waits(self) -> None:
        state = self.story.replica.state
        assert not state.questions.keys() & state.closed_questions.keys()
        for question in state.questions.values():
            node = state.nodes.get(question.node or "")
            if question.gate:
                assert node is not None
                assert node.state not in ("RUNNING", "DONE", "CANCELLED")
                assert question.gate not in node.approvals

    @invariant()
    def no_effect_without_a_receipt_is_left_to_be_repeated(self) -> None:
        for node in self.story.replica.state.nodes.values():
            if node.effect == "S3" and node.receipt is None:
                assert node.state not in ("VERIFYING", "DONE", "RETRYABLE"), node


class DiskMachine(RuleBasedStateMachine):
    """Random calls of the library over a real directory."""

    def __init__(self) -> None:
        super().__init__()
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="perdure-"))
        self.workspace = os.path.join(self.root, "w")
        self.runtime = HaltRuntime(self.workspace, "T1", goal="the goal")
        self.files = 0

    def teardown(self) -> None:
        self.runtime.close()
        shutil.rmtree(self.root)

    def file(self, node: str, text: str) -> str:
        self.files += 1
        path = f"artifacts/{node}/{self.files}.txt"
        full = os.path.join(self.workspace, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as stream:
            stream.write(text)
        return path

    @initialize()
    def begin(self) -> None:
        self.runtime.add_node("N0", "first")

    @rule(node=NODE, deps=NODES, point=POINT, op=OP)
    def add(self, node: str, deps: list[str], point: str, op: str | None) -> None:
        gates = [{"gate_id": f"G-{node}", "blocks": point}] if point else []
        with suppress(HaltError):
            self.runtime.add_node(node, f"title of {node}", deps=deps, gates=gates, op=op)

    @rule(node=NODE, ok=st.booleans())
    def work(self, node: str, ok: bool) -> None:
        with suppress(HaltError):
            self.runtime.start(node, session=not ok)
            self.file(node, f"by {node}")
            if ok:
                self.runtime.submit(node)
            else:
                self.runtime.fail(node, "transient-agent", "exit 3")

    @rule(node=NODE, to=st.sampled_from(NODE_STATES))
    def move(self, node: str, to: str) -> None:
        with suppress(HaltError):
            self.runtime.transition(node, to, ["J-1"], reason="r", wake="w", diagnosis="d")

    @rule(node=NODE, name=st.sampled_from(["", "A-1"]), op=OP)
    def register(self, node: str, name: str, op: str | None) -> None:
        with suppress(HaltError):
            self.runtime.register_artifact(name, self.file(node, "text"), node_id=node, op=op)

    @rule(node=NODE, text=TEXT, whole=st.booleans())
    def batch(self, node: str, text: str, whole: bool) -> None:
        before = self.runtime.seq_last
        with suppress(HaltError, ZeroDivisionError), self.runtime.batch():
            self.runtime.note(text)
            self.runtime.transition(node, "READY")
            if not whole:
                raise ZeroDivisionError
        assert whole or self.runtime.seq_last == before

    @rule(text=TEXT)
    def say(self, text: str) -> None:
        self.runtime.note(text)
        self.runtime.steering("", text)

    @rule(text=TEXT, nodes=NODES, reading=st.sampled_from(READINGS), op=OP)
    def steer(self, text: str, nodes: list[str], reading: str, op: str | None) -> None:
        with suppress(HaltError):
            self.runtime.steering("", text, reading=reading, nodes=nodes, op=op)

    @rule(node=st.none() | NODE, text=TEXT, op=OP)
    def ask(self, node: str | None, text: str, op: str | None) -> None:
        with suppress(HaltError):
            self.runtime.ask(text, node, op=op)

    @rule(which=st.integers(0, 3), ruling=st.sampled_from(["answer", "approve", "reject"]), op=OP)
    def rule_on_a_question(self, which: int, ruling: str, op: str | None) -> None:
        asked = list(self.runtime.state.questions)
        if asked:
            name = asked[which % len(asked)]
            with suppress(HaltError):
                getattr(self.runtime, ruling)(name, "so be it", by=GATEKEEPER, op=op)

    @rule(text=TEXT, op=OP)
    def another_goal(self, text: str, op: str | None) -> None:
        with suppress(HaltError):
            self.runtime.goal(text, "so", by=SPONSOR, op=op)

    @rule()
    def close_and_resume(self) -> None:
        self.runtime.close()
        self.runtime = HaltRuntime.resume(self.workspace)

    @rule()
    def supersede(self) -> None:
        old, self.runtime = self.runtime, HaltRuntime.resume(self.workspace)
        with pytest.raises(FencedError):
            old.note("too late")

    @rule()
    def write_without_coordinating(self) -> None:
        self.runtime.close()
        beside = HaltRuntime.attach(self.workspace)
        beside.note("a short command")
        beside.close()
        self.runtime = HaltRuntime.resume(self.workspace)

    @invariant()
    def replaying_gives_what_is_live(self) -> None:
        engine = self.runtime.engine
        with open(engine.layout.journal, "rb") as stream:
            replica, tip = replay(stream.read())
        assert tip == engine.journal.tip
        assert seal_snapshot(replica.state, tip) == seal_snapshot(engine.replica.state, tip)
        assert self.runtime.status()["seq_last"] == len(self.runtime.events()) == tip.seq
        views = (graph_view, registry_view)
        assert [v(replica.state) for v in views] == [v(engine.replica.state) for v in views]

    @rule()
    def what_is_on_disk_is_true(self) -> None:
        self.runtime.note("the last word")  # whatever was undone before
        self.runtime.close()
        layout = Layout(self.workspace)
        found = load_snapshot(self.runtime.engine.disk, layout)
        assert found is not None
        with open(layout.journal, "rb") as stream:
            replica, tip = replay(stream.read())
        assert seal_snapshot(found[0], found[1]) == seal_snapshot(replica.state, tip)
        rebuilt = {
            layout.task_graph: seal(graph_view(replica.state), tip),
            layout.registry: seal(registry_view(replica.state), tip),
            layout.checkpoint: seal(checkpoint_view(replica), tip),
        }
        state = replica.state
        if state.questions or state.closed_questions or state.steering:
            rebuilt[layout.inbox] = inbox_page(replica)
        for path, data in rebuilt.items():
            with open(path, "rb") as stream:
                assert stream.read() == data, path
        for path in (*rebuilt, layout.snapshot):
            os.unlink(path)
        self.runtime = HaltRuntime.resume(self.workspace)


def test_over_the_core() -> None:
    run_state_machine_as_test(
        CoreMachine, settings=settings(max_examples=100, stateful_step_count=40)
    )


def test_over_the_runtime_in_a_real_directory() -> None:
    run_state_machine_as_test(
        DiskMachine,
        settings=settings(
            max_examples=15,
            stateful_step_count=15,
            suppress_health_check=list(HealthCheck),
        ),
    )
