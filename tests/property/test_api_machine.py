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
from tests.crash.checks import check_evidence, check_live
from tests.crash.sim_machine import ROOT, SimMachine
from tests.property.api_model import NodeModel, TaskModel, retry_budget

from perdure import HaltRuntime
from perdure.errors import FencedError, HaltError, LeaseHeldError
from perdure.runtime.world import World
from perdure.testing import Killed, SimProcesses, power_loss_states, sim_world

NAME = st.sampled_from([f"N{n}" for n in range(4)])
UNLUCKY = st.just("N3")
"""The one that is cancelled; if all were, nothing else would happen to them."""
DEPS = st.lists(NAME, max_size=2, unique=True).map(tuple)
OP = st.none() | st.sampled_from([f"op-{n}" for n in range(6)])
TEXT = st.sampled_from(
    ["plain", "a\u2028b", "lone \ud800", "nul \0", "\U0001f600" * 3, "x" * 5_000]
)
DATA = st.sampled_from([b"", b"a", b"b" * 70_000])
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
        self.machine.end()

    # Calls

    def attempt(self, call: Callable[[], object], models: Models) -> None:
        """Make a call that the model says will go through these states, or be refused."""
        journal = self.machine.journal()
        try:
            call()
        except HaltError:
            assert models is None, "refused, where the model is not"
            assert self.machine.journal() == journal, "a refusal has written"
        except Killed:
            self.may_be = models or [self.model]
        else:
            assert models is not None, "accepted, where the model refuses"
            self.model = models[-1]
            self.machine.acknowledge()
        self.bury_if_dead()

    def bury_if_dead(self) -> None:
        """A process may also die by the last step of a call that returned all the same."""
        if self.dead:
            self.may_be = self.may_be or [self.model]
            self.machine.bury()

    @initialize()
    def begin(self) -> None:
        self.add("N0", (), None)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, deps=DEPS, op=OP)
    def add(self, name: str, deps: tuple[str, ...], op: str | None) -> None:
        outputs = [f"artifacts/{name}/out"]
        accept = [f"nonempty: artifacts/{name}/out"]
        self.attempt(
            lambda: self.runtime.add_node(
                name,
                name,
                deps=deps,
                op=op,
                outputs=outputs,
                accept=accept,
                retry_budget=retry_budget,
            ),
            self.model.add(name, deps, op),
        )

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, data=DATA, how=st.sampled_from(["start", "write", "whole"]))
    def work(self, name: str, data: bytes, how: str) -> None:
        """The parts of an attempt; together they are what most attempts are."""
        if how != "write":
            self.attempt(lambda: self.runtime.start(name), self.model.start(name))
        node = self.model.nodes.get(name)
        if self.dead or node is None or node.state != "RUNNING" or how == "start":
            return
        with contextlib.suppress(Killed):
            self.machine.write(f"artifacts/{name}/out", data)
            self.model.write(name, data)
        self.bury_if_dead()
        if how == "whole" and not self.dead:
            self.submit(name)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def submit(self, name: str) -> None:
        self.attempt(lambda: self.runtime.submit(name), self.model.submit(name))

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def claim_only(self, name: str) -> None:
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
        models = self.model.check(name)
        if models is not None:
            self.attempt(lambda: self.runtime.check(name), models)

    @precondition(lambda self: not self.dead)
    @rule(name=NAME)
    def fail(self, name: str) -> None:
        self.attempt(
            lambda: self.runtime.fail(name, "transient-agent", "exit 3"), self.model.fail(name)
        )

    @precondition(lambda self: not self.dead)
    @rule(name=NAME, method=st.sampled_from(["default", "other", "third"]))
    def retry(self, name: str, method: str) -> None:
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
            other = self.machine.attach()
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
