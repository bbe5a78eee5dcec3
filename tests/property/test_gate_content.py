"""Whatever people and coordinators do, in whatever order: no gate opens for what nobody approved.

Lists of calls with files and specs that change under them, most of which are refused. The journal
alone is read: each start and each end behind a gate must have a consent to exactly what it was, and
nothing that took that consent back since.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.story import ME, Story, replay

from perdure.core import commands as c
from perdure.core.codec import to_json
from perdure.core.frontier import due_gates, frontier
from perdure.core.machine import startable
from perdure.core.people import Gate
from perdure.errors import HaltError, RefusedError

START = Gate("G-s", "start", content=("plan",), revise_max=4)
DONE = Gate("G-d", "done", content=("report",), revise_max=4)
RUNS = ("make", "make all")


class World:
    """One node behind two gates, two files on disk, and what was consented to."""

    def __init__(self) -> None:
        self.story = Story()
        self.story.add("N1", gates=(START, DONE), run=RUNS[0], retry_budget=99)
        self.files = {"plan": "1", "report": "1"}

    def content(self, gate_id: str) -> dict[str, str]:
        path = "plan" if gate_id == "G-s" else "report"
        return {path: self.files[path]}

    # Each may be refused.

    def edit(self, path: str, value: str) -> None:
        self.files[path] = value

    def ask(self, gate_id: str) -> None:
        self.story.do(c.AskGate("N1", gate_id, self.content(gate_id)))

    def rule(self, gate_id: str, ruling: Any, more: dict[str, Any]) -> None:
        files = self.content(gate_id) if ruling == "approve" else None
        self.story.rule(gate_id, ruling, "so", files=files, **more)

    def respecify(self, run: str) -> None:
        spec = msgspec.structs.replace(self.story.node("N1").spec, run=run)
        self.story.do(c.AmendNode("N1", {"spec": spec}, "so"))

    def describe(self, title: str) -> None:
        self.story.do(c.AmendNode("N1", {"title": title}, "so"))

    def start(self) -> None:
        number = self.story.node("N1").attempts + 1
        contract = c.IssuedContract(f"inv-{number}", "ab" * 32, ME, None, {})
        payload = {"plan": self.files["plan"], "run": self.story.node("N1").spec.run}
        contents = {"G-s": self.content("G-s")}
        self.story.do(
            c.MoveNode("N1", "RUNNING", (), payload, contract=contract, contents=contents)
        )

    def claim(self) -> None:
        if self.story.state_of("N1") == "RUNNING":
            self.story.register("N1", f"A-{self.story.node('N1').attempts}")
        self.story.claim("N1")

    def go_on(self) -> None:
        """The next step of somebody who wants it done."""
        state, gated = self.story.state_of("N1"), list(self.story.replica.state.questions)
        if gated and gated[0].startswith("G-"):
            self.rule(gated[0][:3], "approve", NO_CHANGE)
        elif gated:
            self.story.rule(gated[0], "answer", "go on")
        elif state == "RUNNING":
            self.claim()
        elif state == "VERIFYING":
            self.verify(passed=True)
        elif frontier(self.story.replica):
            try:
                self.start()
            except RefusedError:
                self.ask("G-s")
        else:
            self.ask("G-s")

    def verify(self, passed: bool) -> None:
        node = self.story.node("N1")
        report = {"report": self.files["report"]}
        verdict = c.Verdict(
            passed, "verifier:v1", "V1", (report,), dict.fromkeys(node.artifacts, "ab")
        )
        contents = {"G-d": self.content("G-d")}
        self.story.do(c.MoveNode("N1", "DONE", verdict=verdict, contents=contents))


GATE = st.sampled_from(["G-s", "G-d"])
VALUE = st.sampled_from(["1", "2", ""])
NO_CHANGE: dict[str, Any] = {}
RULING = st.sampled_from(
    [("approve", NO_CHANGE)] * 5
    + [("reject", NO_CHANGE), ("revise", NO_CHANGE)]
    + [("revise", {"changes": {"run": run}}) for run in RUNS]
)
Step = Callable[[World], None]
OTHER: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda path, value: lambda w: w.edit(path, value),
              st.sampled_from(["plan", "report"]), VALUE),
    st.builds(lambda value: lambda w: w.edit("report", value), VALUE),
    st.builds(lambda gate: lambda w: w.ask(gate), GATE),
    st.builds(lambda gate, ruling: lambda w: w.rule(gate, *ruling), GATE, RULING),
    st.builds(lambda gate, ruling: lambda w: w.rule(gate, *ruling), GATE, RULING),
    st.builds(lambda run: lambda w: w.respecify(run), st.sampled_from(RUNS)),
    st.builds(lambda title: lambda w: w.describe(title), st.sampled_from(["a", "b"])),
    st.just(lambda w: w.start()),
    st.just(lambda w: w.claim()),
    st.builds(lambda passed: lambda w: w.verify(passed), st.sampled_from([True, True, False])),
    st.just(lambda w: w.story.fail("N1")),
    st.just(lambda w: w.story.do(c.AskQuestion("well?", node_id="N1"))),
    st.just(lambda w: w.story.rule("Q-001", "answer", "well")),
)  # fmt: skip


def go_on(world: World) -> None:
    world.go_on()


STEP: st.SearchStrategy[Step] = st.tuples(st.integers(0, 2), OTHER).map(
    lambda drawn: go_on if drawn[0] else drawn[1]
)


def check_journal(story: Story) -> None:
    """Read from the bytes alone: what was consented to, and what went through a gate."""
    consent: dict[str, dict[str, Any]] = {}
    asked: dict[str, str] = {}
    spec: dict[str, Any] = {}
    open_: set[str] = set()
    for event in story.events():
        payload = event.payload
        if event.kind == "AMENDMENT" and "spec" in (payload.get("after") or {}):
            spec = payload["after"]["spec"]
        op = payload.get("op")
        if op == "ask":
            if payload.get("replaces"):
                open_.remove(payload["replaces"])
            assert payload["question_id"] not in asked, "an id was asked twice"
            asked[payload["question_id"]] = spec.get("run", "")
            open_.add(payload["question_id"])
        elif op == "answer":
            open_.remove(payload["question_id"])
            consent.pop(payload.get("gate", ""), None)
            if payload["ruling"] == "approve":
                run = asked[payload["question_id"]]
                consent[payload["gate"]] = {"files": payload["files"], "run": run}
        elif op == "void":
            consent.pop(payload["gate"], None)
        elif payload.get("edge") in ("N02", "N11"):
            given = consent["G-s"]
            assert given["files"] == {"plan": payload["plan"]}
            assert given["run"] == payload["run"]
        elif payload.get("edge") == "N06":
            assert consent["G-d"]["files"] == payload["checks"][0]
        if payload.get("edge") in ("N07", "N08", "N06"):
            open_ = {name for name in open_ if name.startswith("Q-")}
        if payload.get("edge") in ("N06", "N08"):
            open_ = set()
    left = {name for name in story.replica.state.questions if not name.startswith("E-")}
    assert left == {name for name in open_ if not name.startswith("E-")}


@settings(max_examples=300)
@given(st.lists(STEP, min_size=12, max_size=50))
def test_no_gate_opens_for_what_nobody_approved(steps: list[Step]) -> None:
    world = World()
    story = world.story
    for step in steps:
        with contextlib.suppress(HaltError):
            step(world)
        node = story.node("N1")
        assert (frontier(story.replica) == ["N1"]) is startable(story.replica.state, node)
        if due_gates(story.replica):
            assert frontier(story.replica) == []
    check_journal(story)
    assert to_json(replay(story.journal)[0].state) == to_json(story.replica.state)
