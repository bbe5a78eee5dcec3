"""The public API against a small model, on a disk whose processes die and whose power fails.

``HaltRuntime`` runs on a simulated machine; ``api_model`` says what must come of each call. A
process may be killed after any step of the disk, in whatever call it then is, recovery included,
and the power may fail with it: what is found afterwards must be one of the states that the call
goes through, and never less than what had been acknowledged. After each step the state is the
model's, the journal from its first byte gives the live state byte for byte, and every file that is
on record has its bytes.
"""

import contextlib
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any

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
from tests.crash.checks import check_evidence, check_live, whole_commits
from tests.crash.sim_machine import ROOT, SimMachine
from tests.property.api_model import GatePoint, NodeModel, Refused, TaskModel, retry_budget

from perdure import HaltRuntime
from perdure.core.task_audit_record import failed_items
from perdure.errors import FencedError, HaltError, LeaseHeldError
from perdure.runtime.task_audits import audit_task
from perdure.runtime.world import World
from perdure.testing import Killed, SimProcesses, power_loss_states, sim_world

NAME = st.sampled_from([f"N{n}" for n in range(4)])
UNLUCKY = st.just("N3")
"""The one that is cancelled; if all were, nothing else would happen to them."""
GATES: dict[str, GatePoint] = {"N1": "start", "N2": "done"}
"""Nodes that a person has to let start, and whose result a person has to accept."""
QUESTION = st.sampled_from(["Q-A", "Q-B", "Q-C"])
ANNA = "gatekeeper:anna"
DEPS = st.lists(NAME, max_size=2, unique=True).map(tuple)
OP = st.none() | st.sampled_from([f"op-{n}" for n in range(6)])
TEXT = st.sampled_from(
    ["plain", "a\u2028b", "lone \ud800", "nul \0", "\U0001f600" * 3, "x" * 5_000]
)
DATA = st.sampled_from([b"a", b"", b"b" * 70_000])
LIVES = st.lists(st.tuples(st.sampled_from(["kill", "power"]), st.integers(0, 40)), max_size=2)
"""Recoveries that die themselves, and how, after how many steps."""

Models = list[TaskModel] | None


class ApiMachine(RuleBasedStateMachine):
    """One workspace, one process at it after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = SimMachine.new()
        self.model = TaskModel()
        self.may_be: list[TaskModel] = []
        """What a call that a death cut short may have come to."""
        self.runtime = self.machine.open("T")

    @property
    def dead(self) -> bool:
        return self.machine.disk.is_dead

    def teardown(self) -> None:
        """Whatever was done and whoever died: an audit of what a recovery leaves fails nothing."""
        self.machine.end()
        if not whole_commits(self.machine.journal()):
            return
        self.machine.boot_process()
        runtime = self.machine.open("T")
        runtime.close()
        record = audit_task(runtime.engine).record
        failed = {item.item: item.results[:3] for item in failed_items(record)}
        assert not failed, failed

    # Calls

    def one_of(self, states: str, name: str) -> str:
        """The node of this name, unless it is in none of these states and another one is."""
        nodes = self.model.nodes
        found = [other for other, node in nodes.items() if node.state in states.split()]
        return found[0] if found and name not in found else name

    def attempt(self, call: Callable[[], object], models: Models) -> None:
        """Make a call that the model says will go through these states, or be refused."""
        journal = self.machine.journal()
        try:
            call()
        except HaltError:
            if isinstance(models, Refused):
                self.model = models[-1]
                self.machine.acknowledge()
            else:
                assert models is None, "refused, where the model is not"
                assert self.machine.journal() == journal, "a refusal has written"
        except Killed:
            self.may_be = models or [self.model]
        else:
            assert models is not None, "accepted, where the model refuses"
            assert not isinstance(models, Refused), "accepted, where the model refuses"
            self.model = models[-1]
            self.machine.acknowledge()
        self.bury_if_dead()

    def bury_if_dead(self) -> None:
        """A process may also die by the last step of a call that returned all the same."""
        if self.dead:
            self.may_be = self.may_be or [self.model]
            self.machine.bury()

    @initialize(deps=st.sampled_from([(), ("N0",)]))
    def begin(self, deps: tuple[str, ...]) -> None:
        for name in ("N0", *GATES):
            self.add(name, deps if name in GATES else (), None)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, deps=DEPS, op=OP)
    def add(self, name: str, deps: tuple[str, ...], op: str | None) -> None:
        outputs = [f"artifacts/{name}/out"]
        accept = [f"nonempty: artifacts/{name}/out"]
        point = GATES.get(name, "")
        gates = [{"gate_id": f"G-{name}", "blocks": point}] if point else []
        self.attempt(
            lambda: self.runtime.add_node(
                name,
                name,
                deps=deps,
                op=op,
                outputs=outputs,
                accept=accept,
                retry_budget=retry_budget,
                gates=gates,
            ),
            self.model.add(name, deps, op, point),
        )

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, data=DATA, how=st.sampled_from(["whole", "start", "write"]))
    def work(self, name: str, data: bytes, how: str) -> None:
        """The parts of an attempt; together they are what most attempts are."""
        if how != "write":
            self.attempt(lambda: self.runtime.start(name), self.model.start(name))
        if not self.is_at_work(name) or how == "start":
            return
        with contextlib.suppress(Killed):
            self.machine.write(f"artifacts/{name}/out", data)
            self.model.write(name, data)
        self.bury_if_dead()
        if how == "whole" and not self.dead:
            self.hand_in(name)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def submit(self, name: str) -> None:
        self.hand_in(self.one_of("RUNNING VERIFYING", name))

    def hand_in(self, name: str) -> None:
        self.attempt(lambda: self.runtime.submit(name), self.model.submit(name))

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def claim_only(self, name: str) -> None:
        name = self.one_of("RUNNING", name)
        node = self.model.nodes.get(name)
        models = self.model.submit(name)
        if node is None or node.state != "RUNNING":
            return
        self.attempt(
            lambda: self.runtime.submit(name, check=False),
            None if models is None else models[:2],
        )

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def check(self, name: str) -> None:
        name = self.one_of("VERIFYING", name)
        models = self.model.check(name)
        if models is not None:
            self.attempt(lambda: self.runtime.check(name), models)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def fail(self, name: str) -> None:
        name = self.one_of("RUNNING", name)
        self.attempt(
            lambda: self.runtime.fail(name, "transient-agent", "exit 3"), self.model.fail(name)
        )

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, method=st.sampled_from(["default", "other", "third"]))
    def retry(self, name: str, method: str) -> None:
        name = self.one_of("RETRYABLE BLOCKED", name)
        self.attempt(
            lambda: self.runtime.retry(name, "because", method=method),
            self.model.retry(name, method),
        )

    @precondition(lambda self: not self.dead)
    @rule(name=UNLUCKY, op=OP)
    def cancel(self, name: str, op: str | None) -> None:
        self.attempt(
            lambda: self.runtime.cancel([name], "not wanted", op=op), self.model.cancel(name, op)
        )

    @precondition(lambda self: not self.dead)
    @rule(text=TEXT, op=OP)
    def note(self, text: str, op: str | None) -> None:
        self.attempt(lambda: self.runtime.note(text, op=op), self.model.note(text, op))

    @precondition(lambda self: not self.dead)
    @rule(name=st.sampled_from(["ST-1", "ST-2"]), text=st.sampled_from(["left", "right"]))
    def steer(self, name: str, text: str) -> None:
        self.attempt(lambda: self.runtime.steering(name, text), self.model.steer(name, text))

    # People

    @precondition(lambda self: not self.dead)
    @rule(question_id=QUESTION, name=NAME | st.none(), keep=st.booleans(), busy=st.booleans())
    def ask(self, question_id: str, name: str | None, keep: bool, busy: bool) -> None:
        self.put(question_id, self.one_of("RUNNING", name) if busy and name else name, keep)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, data=DATA, question_id=QUESTION, keep=st.booleans())
    def work_until_a_question(self, name: str, data: bytes, question_id: str, keep: bool) -> None:
        self.work(name, data, "write" if self.is_at_work(name) else "start and write")
        if self.is_at_work(name):
            self.put(question_id, name, keep)
        if self.is_at_work(name):
            self.hand_in(name)

    def is_at_work(self, name: str) -> bool:
        node = self.model.nodes.get(name)
        return not self.dead and node is not None and node.state == "RUNNING"

    def put(self, question_id: str, name: str | None, keep: bool) -> None:
        self.attempt(
            lambda: self.runtime.ask("which?", name, question_id=question_id, keep_working=keep),
            self.model.ask(question_id, name, keep),
        )

    @precondition(lambda self: not self.dead and self.model.questions)
    @rule(question_id=QUESTION, any_other=st.booleans())
    def answer(self, question_id: str, any_other: bool) -> None:
        asked = [i for i, question in self.model.questions.items() if question.content is None]
        if any_other and asked and question_id not in asked:
            question_id = asked[0]
        self.attempt(
            lambda: self.runtime.answer(question_id, "this one", by=ANNA),
            self.model.answer(question_id),
        )

    @precondition(lambda self: not self.dead)
    @rule(name=st.sampled_from(sorted(GATES)), data=DATA, refuse=st.booleans())
    def go_to_a_gate(self, name: str, data: bytes, refuse: bool) -> None:
        """Work on what is behind a gate, or rule on what stands there."""
        question_id = self.model.question_of_gate(name)
        if question_id is None:
            self.work(name, data, "whole")
        else:
            self.rule_at_a_gate(name, question_id, refuse)

    @precondition(lambda self: not self.dead)
    @rule(name=st.sampled_from(sorted(GATES)), refuse=st.booleans())
    def rule_where_nothing_may_be_asked(self, name: str, refuse: bool) -> None:
        question_id = self.model.question_of_gate(name) or f"G-{name}"
        self.rule_at_a_gate(name, question_id, refuse)

    def rule_at_a_gate(self, name: str, question_id: str, refuse: bool) -> None:
        node = self.model.nodes.get(name)
        if refuse and node is not None and node.rounds < 2:  # after three rounds it escalates
            self.attempt(
                lambda: self.runtime.reject(question_id, "not like this", by=ANNA),
                self.model.reject(name),
            )
        else:
            self.attempt(
                lambda: self.runtime.approve(question_id, by=ANNA), self.model.approve(name)
            )

    @precondition(lambda self: not self.dead)
    @rule(texts=st.lists(TEXT, min_size=1, max_size=4), whole=st.booleans())
    def batch(self, texts: list[str], whole: bool) -> None:
        """All of it is one commit, or nothing of it is there."""

        def call() -> None:
            with contextlib.suppress(ZeroDivisionError), self.runtime.batch():
                for text in texts:
                    self.runtime.note(text)
                if not whole:
                    raise ZeroDivisionError

        after = self.model
        for text in texts if whole else ():
            after = after.note(text, None)[-1]
        self.attempt(call, [self.model, after])

    # Others at the same workspace

    def beside(self) -> World:
        """Another process of this machine."""
        world = self.machine.world
        assert isinstance(world.processes, SimProcesses)
        other = world.processes.seen_from(world.processes.unused_pid())
        return sim_world(
            self.machine.disk.beside(), clock=self.machine.clock, ids=world.ids, processes=other
        )  # type: ignore[arg-type]

    @precondition(lambda self: not self.dead)
    @rule()
    def write_beside_the_coordinator(self) -> None:
        other = HaltRuntime.attach(ROOT, world=self.beside())
        with pytest.raises(LeaseHeldError):
            other.note("not mine to say")
        assert other.status()["seq_last"] == self.runtime.seq_last
        other.close()

    @precondition(lambda self: not self.dead)
    @rule(text=TEXT, op=OP, name=UNLUCKY)
    def attach_while_nobody_coordinates(self, text: str, op: str | None, name: str) -> None:
        def calls() -> None:
            self.runtime.close()
            other = self.machine.attach("coordinator:short")
            other.note(text, op=op)
            with contextlib.suppress(HaltError):
                other.cancel([name], "by a short command")
            other.close()
            self.runtime = self.machine.open()

        noted = self.model.note(text, op)
        cancelled = noted[-1].cancel(name, None) or [noted[-1]]
        models = [self.model, *noted, *cancelled]
        self.attempt(calls, [*models, *(model.reopened() for model in models)])
        if not self.dead:
            self.model = cancelled[-1].reopened()

    @precondition(lambda self: not self.dead)
    @rule()
    def supersede(self) -> None:
        old = self.runtime

        def call() -> None:
            self.runtime = self.machine.open()

        self.attempt(call, [self.model, self.model.reopened()])
        if not self.dead:
            with pytest.raises(FencedError):
                old.note("too late")

    # Ends

    @rule(how=st.sampled_from(["kill", "power"]), lives=LIVES, cut=st.integers(0, 80),
          seed=st.integers(0, 1 << 16))  # fmt: skip
    def end_and_reopen(self, how: str, lives: list[tuple[str, int]], cut: int, seed: int) -> None:
        """This process ends; some recoveries end too; the last one lives for ``cut`` more steps."""
        may_be = self.may_be if self.dead else [self.model]
        chance = Random(seed)
        for next_how, steps in lives:
            self.begin_process(how, steps, chance)
            with contextlib.suppress(Killed):
                self.machine.open()
            self.machine.bury()
            how = next_how
        self.begin_process(how, None, chance)
        promised = self.machine.acknowledged
        self.runtime = self.machine.open()
        assert self.machine.journal().startswith(promised), "an acknowledged event is gone"
        view = self.view()
        fitting = [after for model in may_be if (after := model.reopened()).view() == view]
        assert fitting, f"no state of the call explains {view}"
        self.model, self.may_be = fitting[0], []
        if cut < 60:
            self.machine.disk.kill_after(cut + 1)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, seed=st.integers(0, 1 << 16))
    def lose_a_file(self, name: str, seed: int) -> None:
        """Somebody removes what is on record, and another process finds out."""
        node = self.model.nodes.get(name, NodeModel(()))
        if node.state != "DONE":
            return
        self.machine.lost_paths.add(f"artifacts/{name}/out")
        with contextlib.suppress(Killed):
            self.machine.disk.unlink(f"{ROOT}/artifacts/{name}/out", durable=True)
        if self.dead:
            self.may_be = [self.model, self.model.bereft(name)]
            self.bury_if_dead()
            return
        self.model = self.model.bereft(name)
        self.end_and_reopen("kill", [], 80, seed)

    def begin_process(self, how: str, cut_after: int | None, chance: Random) -> None:
        machine = self.machine
        if how == "kill":
            self.machine = machine.end(cut_after=cut_after)
            return
        model = chance.choice(("independent", "ordered"))
        left = list(power_loss_states(machine.disk, model, chance=chance, limit=8))
        machine.disk.kill()
        machine.bury()
        disk = chance.choice(left)
        self.machine = machine.next(disk.holding(disk.files, cut_after=cut_after), power_cut=True)

    # What must hold

    def view(self) -> dict[str, Any]:
        state = self.runtime.state
        current = {
            name: [state.artifacts[a] for a in node.artifacts] for name, node in state.nodes.items()
        }
        notes = [e.payload for e in self.runtime.events() if e.kind == "NOTE"]
        return {
            "nodes": {
                name: "OPEN" if node.state in ("PENDING", "READY") else node.state
                for name, node in state.nodes.items()
            },
            "deps": {name: node.deps for name, node in state.nodes.items()},
            "registered": {
                name: self.machine.bytes_of(artifact.path)
                for name, artifacts in current.items()
                for artifact in artifacts
                if artifact.status == "current"
            },
            "ops": set(state.ops),
            "notes": [payload["text"] for payload in notes if payload["op"] == "note"],
            "steering": {
                e.entity.id: e.payload["verbatim"]
                for e in self.runtime.events()
                if e.kind == "STEERING_LOGGED"
            },
            "questions": {
                question.question_id: question.node
                for question in state.questions.values()
                if question.kind in ("question", "gate")
            },
        }

    @invariant()
    def the_state_is_the_models_and_the_journals(self) -> None:
        if self.dead:
            return
        assert self.view() == self.model.view()
        assert set(self.runtime.frontier()) == self.model.frontier()
        check_live(self.machine, self.runtime)
        check_evidence(self.machine, self.runtime.state)
        events = list(self.runtime.events())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for name, node in self.model.nodes.items():
            if node.state == "DONE":
                (artifact,) = (
                    a
                    for a in self.runtime.state.artifacts.values()
                    if a.produced_by_node == name and a.status == "current"
                )
                assert artifact.integrity.value == sha256(node.registered or b"").hexdigest()


def test_the_library_does_what_the_model_says_whatever_dies() -> None:
    run_state_machine_as_test(
        ApiMachine,
        settings=settings(
            max_examples=60, stateful_step_count=25, suppress_health_check=list(HealthCheck)
        ),
    )
