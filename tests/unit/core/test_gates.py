"""Which gates a node has, what their approval is bound to, and how they hold it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.story import ME, Story
from tests.unit.core.test_decide import refusal

from perdure.core import commands as c
from perdure.core import gates, views
from perdure.core.codec import to_json
from perdure.core.criteria import parse_criterion
from perdure.core.frontier import due_gates, frontier
from perdure.core.machine import startable
from perdure.core.model import Budget, Criterion, Node, Spec, State
from perdure.core.people import DELEGATIONS, Gate, gates_max

START = Gate("G-go", "start", "May it start?")
DONE = Gate("G-look", "done", "Is it good?")


def task(allowed: tuple[str, ...] = (), **delegation: str) -> Story:
    story = Story(begun=False)
    story.do(c.StartTask("T1", standing_authorities=allowed, delegation=delegation))
    return story


def ids(story: Story, node_id: str = "N1") -> list[tuple[str, str]]:
    found = gates.gates_of(story.replica.state, story.node(node_id))
    return [(gate.gate_id, gate.blocks) for gate in found]


def ask(story: Story, gate_id: str, files: dict[str, str] | None = None) -> None:
    story.do(c.AskGate("N1", gate_id, files or {}))


def approve(story: Story, gate_id: str, files: dict[str, str] | None = None) -> None:
    ask(story, gate_id, files)
    story.rule(gate_id, "approve", files=files or {})


# Which gates there are


@pytest.mark.parametrize("effect", ["S0", "S1", "S2"])
def test_what_can_be_repeated_has_no_gate_unless_the_task_says_so(effect: str) -> None:
    story = task()
    story.add("N1", effect=effect)
    assert ids(story) == []


@pytest.mark.parametrize(
    ("rung", "found"),
    [
        ("AUTO", []),
        ("AUTO_WITH_BUDGET", [("G-N1-start", "start")]),
        ("STANDING_AUTHORITY", [("G-N1-start", "start")]),
        ("REVIEW_REQUIRED", [("G-N1-review", "done")]),
        ("EXPLICIT_APPROVAL", [("G-N1-start", "start")]),
        ("SOMETHING_ELSE", [("G-N1-start", "start")]),
    ],
)
def test_each_rung_of_the_ladder_makes_its_gate(rung: str, found: list[tuple[str, str]]) -> None:
    story = task(S1=rung)
    story.add("N1", effect="S1")
    story.add("N2", effect="S0")
    assert ids(story) == found
    assert ids(story, "N2") == []


def test_every_rung_is_tried_above() -> None:
    assert len(DELEGATIONS) == 5


@pytest.mark.parametrize("limit", [{"max_wall_s": 60.0}, {"max_cost_usd": 0.0}, {"max_tokens": 9}])
def test_a_budget_that_limits_something_spares_the_gate(limit: dict[str, Any]) -> None:
    story = task(S1="AUTO_WITH_BUDGET")
    story.add("N1", effect="S1", budget=Budget(**limit))
    assert ids(story) == []


@pytest.mark.parametrize(("allowed", "open_"), [((), 1), (("N2",), 1), (("N1",), 0), (("*",), 0)])
def test_a_standing_authority_spares_the_gate_of_what_it_names(
    allowed: tuple[str, ...], open_: int
) -> None:
    story = task(allowed)
    story.add("N1", effect="S3")
    assert len(ids(story)) == open_


def test_an_authority_that_is_revoked_brings_the_gate_back() -> None:
    story = task(("*",))
    story.add("N1", effect="S3")
    assert frontier(story.replica) == ["N1"]
    story.replica.state.standing_authorities = ()
    assert ids(story) == [("G-N1-start", "start")]
    assert frontier(story.replica) == []


def test_a_declared_gate_takes_the_place_of_the_implied_one_of_the_same_move() -> None:
    story = task(S1="EXPLICIT_APPROVAL", S2="REVIEW_REQUIRED")
    story.add("N1", effect="S1", gates=(START,))
    story.add("N2", effect="S1", gates=(DONE,))
    story.add("N3", effect="S2", gates=(DONE,))
    assert ids(story) == [("G-go", "start")]
    assert ids(story, "N2") == [("G-N2-start", "start"), ("G-look", "done")]
    assert ids(story, "N3") == [("G-look", "done")]


def test_each_human_criterion_is_a_judgement_with_its_rubric() -> None:
    story = task(S0="REVIEW_REQUIRED")
    human = {
        "human": {"rubric": "Fair?", "judge": "ann", "rounds": 1, "default": "reject",
                  "timeout": "1h"}
    }  # fmt: skip
    criteria = (parse_criterion("exists: a"), parse_criterion(human), parse_criterion("human"))
    story.add("N1", acceptance_criteria=criteria)
    first, second = gates.gates_of(story.replica.state, story.node("N1"))
    assert (first.gate_id, first.blocks, first.rubric) == ("G-N1-judge", "done", "Fair?")
    assert (first.gatekeeper, first.revise_max, first.fallback) == (("ann",), 1, "reject")
    assert first.timeout_s == 3_600.0
    assert (second.gate_id, bool(second.rubric)) == ("G-N1-judge2", True)
    assert [gates.kind_of(gate) for gate in (first, second, DONE)] == [
        "judgement",
        "judgement",
        "gate",
    ]
    assert [item for item, _ in gates.judgements(story.node("N1"))] == list(criteria[1:])


def test_v3_alone_is_a_judgement_by_title_and_goal() -> None:
    story = task()
    story.add("N1", verification_level="V3")
    assert ids(story) == [("G-N1-judge", "done")]
    assert [item for item, _ in gates.judgements(story.node("N1"))] == [None]


def test_gates_of_the_start_come_first() -> None:
    story = task(S1="EXPLICIT_APPROVAL")
    story.add("N1", effect="S1", gates=(DONE,), acceptance_criteria=(parse_criterion("human"),))
    assert ids(story) == [("G-N1-start", "start"), ("G-look", "done"), ("G-N1-judge", "done")]
    state, node = story.replica.state, story.node("N1")
    assert [g.gate_id for g in gates.gates_at(state, node, "start")] == ["G-N1-start"]
    assert [g.gate_id for g in gates.gates_at(state, node, "done")] == ["G-look", "G-N1-judge"]
    assert gates.gate_named(state, node, "G-look") == DONE
    assert gates.gate_named(state, node, "G-none") is None


@pytest.mark.parametrize(
    "bad",
    [
        {"gate_id": "a b"},
        {"gate_id": ""},
        {"content": ("../x",)},
        {"content": ("/etc/passwd",)},
        {"timeout_s": 0.0},
        {"timeout_s": -1.0},
        {"timeout_s": 1e300},
        {"revise_max": -1},
        {"gate_id": "G-N1-start"},
        {"gate_id": "G-N1-review", "blocks": "start"},
        {"blocks": "sometimes"},
        {"fallback": "approve"},
    ],
)
def test_a_gate_that_could_not_be_asked_is_not_written(bad: dict[str, Any]) -> None:
    story = Story()
    spec = Spec(gates=(msgspec.structs.replace(DONE, **bad),))
    assert refusal(story, c.AddNode("N1", "x", spec=spec)).code in (
        "bad_gate",
        "bad_id",
        "bad_spec",
    )


def test_a_node_has_no_more_gates_than_people_can_be_asked_about() -> None:
    made = tuple(msgspec.structs.replace(DONE, gate_id=f"G-{n}") for n in range(gates_max + 1))
    error = refusal(Story(), c.AddNode("N1", "x", spec=Spec(gates=made)))
    assert (error.code, str(gates_max) in error.message) == ("bad_gate", True)
    Story().do(c.AddNode("N1", "x", spec=Spec(gates=made[1:])))


def test_two_gates_of_a_node_have_two_ids() -> None:
    story = Story()
    twice = Spec(gates=(START, msgspec.structs.replace(DONE, gate_id="G-go")))
    assert refusal(story, c.AddNode("N1", "x", spec=twice)).code == "bad_gate"
    judged = Spec(
        gates=(msgspec.structs.replace(DONE, gate_id="G-N1-judge"),),
        acceptance_criteria=(parse_criterion("human"),),
    )
    assert refusal(story, c.AddNode("N1", "x", spec=judged)).code == "bad_gate"
    story.add("N1", gates=(START,))
    assert refusal(story, c.AmendNode("N1", {"spec": twice}, "so")).code == "bad_gate"


HUMAN = st.sampled_from(["rubric", "judge", "rounds", "default", "timeout_s"])


@given(st.dictionaries(HUMAN, st.none() | st.integers() | st.text() | st.lists(st.integers())))
def test_no_record_of_others_keeps_the_gates_from_being_known(params: dict[str, Any]) -> None:
    human = Criterion("human", params)
    node = Node("N1", "x", Spec(acceptance_criteria=(human,)), effect="S3")
    state = State(nodes={"N1": node}, delegation={"S3": "?"})
    found = gates.gates_of(state, node)
    assert [gate.gate_id for gate in found] == ["G-N1-start", "G-N1-judge"]
    for gate in found:
        assert gates.content_digest(state, node, gate, {})


# Content


def finished(story: Story, node_id: str, artifact_id: str, **more: Any) -> str:
    """Add a node, register one artifact for it, and finish it; the path of that artifact."""
    story.add(node_id)
    story.start(node_id)
    story.register(node_id, artifact_id, **more)
    story.claim(node_id)
    story.conclude(node_id)
    return story.replica.state.artifacts[artifact_id].path


def test_a_start_is_about_what_the_deps_made_and_an_end_about_what_the_node_made() -> None:
    story = Story()
    one, two = finished(story, "D1", "A-1"), finished(story, "D2", "A-2")
    story.add("N1", "D1", "D2", gates=(START, DONE))
    state, node = story.replica.state, story.node("N1")
    assert gates.gate_paths(state, node, START) == (one, two)
    assert gates.gate_paths(state, node, DONE) == ()
    story.register("N1", "A-3", "artifacts/N1/out")
    story.register("N1", "A-4", "artifacts/N1/out.v2", value="cd" * 32)
    assert gates.gate_paths(state, story.node("N1"), DONE) == ("artifacts/N1/out.v2",)


def test_a_gate_that_names_its_content_is_about_that_alone() -> None:
    story = Story()
    finished(story, "D1", "A-1")
    gate = msgspec.structs.replace(START, content=("docs/plan.md", "x", "docs/plan.md"))
    story.add("N1", "D1", gates=(gate,))
    state, node = story.replica.state, story.node("N1")
    assert gates.gate_paths(state, node, gate) == ("docs/plan.md", "x")
    assert gates.complete_files(state, node, gate, {"x": "1"}) == {"docs/plan.md": "", "x": "1"}
    assert gates.registered_files(state, node, gate) == {}


def test_a_commit_is_content_that_need_not_be_read() -> None:
    story = Story()
    finished(story, "D1", "A-1", path="git:abc1234", value="abc1234")
    story.add("N1", "D1", gates=(START,))
    state, node = story.replica.state, story.node("N1")
    assert gates.gate_paths(state, node, START) == ()
    assert gates.complete_files(state, node, START, {}) == {"git:abc1234": "abc1234"}


DESCRIBING: list[dict[str, Any]] = [
    {"title": "another"},
    {"priority": 9},
    {"spec": {"goal": "to please"}},
    {"spec": {"constraints": ["be quick"]}},
    {"spec": {"retry_budget": 9}},
    {"spec": {"cost": 3.0}},
    {"directives": ("be nice",)},
]
CHANGING: list[dict[str, Any]] = [
    {"effect": "S2"},
    {"spec": {"run": "rm -r x"}},
    {"spec": {"map": {"run": "x", "list": ["a"]}}},
    {"spec": {"inputs": ["other"]}},
    {"spec": {"outputs": ["artifacts/N1/o"]}},
    {"spec": {"acceptance_criteria": [{"check": "exists", "params": {"path": "a"}}]}},
    {"spec": {"env": {"A": "1"}}},
    {"spec": {"budget": {"max_wall_s": 5}}},
]


def with_changes(node: Node, change: dict[str, Any]) -> Node:
    fields = msgspec.to_builtins(node)
    spec = {**fields["spec"], **change.get("spec", {})}
    return msgspec.convert({**fields, **change, "spec": spec}, Node)


@pytest.mark.parametrize("change", DESCRIBING)
@pytest.mark.parametrize("gate", [START, DONE])
def test_a_description_is_no_content(gate: Gate, change: dict[str, Any]) -> None:
    state, node = State(), Node("N1", "x", Spec(gates=(START, DONE), run="make"))
    before = gates.content_digest(state, node, gate, {"a": "1"})
    assert gates.content_digest(state, with_changes(node, change), gate, {"a": "1"}) == before


@pytest.mark.parametrize("change", CHANGING)
def test_what_is_done_is_content_of_a_start_and_not_of_a_result(change: dict[str, Any]) -> None:
    state, node = State(), Node("N1", "x", Spec(gates=(START, DONE), run="make"))
    changed = with_changes(node, change)
    for gate, same in ((START, False), (DONE, True)):
        before = gates.content_digest(state, node, gate, {"a": "1"})
        assert (gates.content_digest(state, changed, gate, {"a": "1"}) == before) is same


@pytest.mark.parametrize(
    "files", [{}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": "1"}, {"a": ""}, {"a": "\ud800"}]
)
def test_other_files_are_another_content(files: dict[str, str]) -> None:
    state, node = State(), Node("N1", "x", Spec())
    for gate in (START, DONE):
        before = gates.content_digest(state, node, gate, {"a": "1"})
        assert gates.content_digest(state, node, gate, files) != before
        wider = msgspec.structs.replace(gate, scope="also abroad")
        assert gates.content_digest(state, node, wider, {"a": "1"}) != before


# Approvals


def test_an_approval_holds_for_its_files_its_spec_and_its_scope() -> None:
    story = Story()
    gate = msgspec.structs.replace(START, content=("plan",), scope="here")
    story.add("N1", run="make", gates=(gate,))
    approve(story, "G-go", {"plan": "1"})
    state, node = story.replica.state, story.node("N1")
    assert gates.approval_of(state, node, gate, None) is not None
    assert gates.approval_of(state, node, gate, {"plan": "1"}) is not None
    for files in ({}, {"plan": ""}, {"plan": "2"}, {"plan": "1", "more": "1"}):
        assert gates.approval_of(state, node, gate, files) is None
    wider = msgspec.structs.replace(gate, scope="also abroad")
    longer = msgspec.structs.replace(gate, content=("plan", "more"))
    for other in (wider, longer):
        assert gates.approval_of(state, node, other, None) is None
    changed = with_changes(node, {"spec": {"run": "make all"}})
    assert gates.approval_of(state, changed, gate, None) is None
    assert gates.approval_of(state, changed, gate, {"plan": "1"}) is None


def test_an_approval_of_one_gate_is_none_of_another() -> None:
    story = Story()
    other = msgspec.structs.replace(START, gate_id="G-2")
    story.add("N1", gates=(START, other))
    approve(story, "G-go")
    assert not startable(story.replica.state, story.node("N1"))
    approve(story, "G-2")
    assert startable(story.replica.state, story.node("N1"))


# Holding a start


def test_a_start_gate_holds_its_node_and_says_which_and_why() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    story.add("N2")

    def held() -> str:
        assert frontier(story.replica) == ["N2"]
        return views.held(story.replica)["N1"]

    assert held() == "gate G-go is not approved"
    ask(story, "G-go")
    assert held() == "May it start?"
    assert views.stuck(story.replica)[0]["question"] == "G-go"
    refused = refusal(story, c.MoveNode("N1", "RUNNING"))
    assert "question G-go about it is open" in refused.message
    story.rule("G-go", "reject", "not this week")
    assert held() == "gate G-go was refused, and nothing has changed since"
    story.do(c.AmendNode("N1", {"spec": {"run": "later", "gates": [START]}}, "later"))
    assert held() == "gate G-go is not approved"
    ask(story, "G-go")
    story.rule("G-go", "approve", files={})
    assert frontier(story.replica) == ["N1", "N2"]
    assert "N1" not in views.held(story.replica)
    story.finish("N1")


def test_a_node_may_try_again_without_another_approval() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    approve(story, "G-go")
    story.start("N1")
    story.fail("N1")
    assert frontier(story.replica) == ["N1"]
    story.finish("N1")


def test_a_gate_is_due_when_nothing_else_keeps_its_node() -> None:
    story = Story()
    story.add("D1")
    story.add("N1", "D1", gates=(START, msgspec.structs.replace(START, gate_id="G-2"), DONE))
    story.add("N2", gates=(msgspec.structs.replace(START, gate_id="G-3"),), draft=True)

    def due() -> list[str]:
        return [gate.gate_id for _, gate in due_gates(story.replica)]

    assert due() == []
    story.finish("D1")
    assert due() == ["G-go", "G-2"]
    path = next(iter(story.replica.paths))
    ask(story, "G-go", {path: "ab" * 32})
    assert due() == ["G-2"]
    story.rule("G-go", "approve", files={path: "ab" * 32})
    ask(story, "G-2", {path: "ab" * 32})
    assert due() == []
    story.rule("G-2", "reject", "no", files={path: "ab" * 32})
    assert due() == []
    story.do(c.AmendNode("N1", {"title": "another"}, "nicer"))
    assert due() == []
    spec = msgspec.structs.replace(story.node("N1").spec, run="other")
    story.do(c.AmendNode("N1", {"spec": spec}, "otherwise"))
    assert due() == ["G-go", "G-2"]


def test_another_question_about_the_node_comes_before_its_gates() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    story.do(c.AskQuestion("which way?", node_id="N1"))
    assert due_gates(story.replica) == []
    story.rule("Q-001", "answer", "left")
    assert len(due_gates(story.replica)) == 1


def test_a_question_about_a_spec_that_changed_is_due_again() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    ask(story, "G-go")
    story.do(c.AmendNode("N1", {"title": "another"}, "nicer"))
    assert due_gates(story.replica) == []
    spec = Spec(run="other", gates=(START,))
    story.do(c.AmendNode("N1", {"spec": spec}, "otherwise"))
    assert [gate for _, gate in due_gates(story.replica)] == [START]
    (asked,) = story.do(c.AskGate("N1", "G-go"))
    assert (asked.payload["question_id"], asked.payload["replaces"]) == ("G-go.2", "G-go")
    assert list(story.replica.state.questions) == ["G-go.2"]
    assert due_gates(story.replica) == []


def test_a_gate_that_an_amendment_takes_away_leaves_no_question() -> None:
    story = Story()
    story.add("N1", gates=(START,))
    ask(story, "G-go")
    story.actor = "sponsor:ann"
    _, event = story.do(c.AmendNode("N1", {"spec": Spec()}, "needs no asking"))
    assert story.replica.state.questions == {}
    assert story.replica.state.closed_questions == {"G-go": event.ref}
    assert frontier(story.replica) == ["N1"]


def test_a_named_content_that_was_refused_is_due_for_a_look_at_the_disk() -> None:
    story = Story()
    gate = msgspec.structs.replace(START, content=("plan",))
    story.add("N1", gates=(gate,))
    ask(story, "G-go", {"plan": "1"})
    (refused,) = story.rule("G-go", "reject", "too long")
    assert [found for _, found in due_gates(story.replica)] == [gate]
    assert story.decide(c.AskGate("N1", "G-go", {"plan": "1"})).answer == refused.ref
    (asked,) = story.do(c.AskGate("N1", "G-go", {"plan": "2"}))
    assert asked.payload["question_id"] == "G-go.2"


# At the start itself


def test_a_start_is_refused_when_the_disk_holds_something_else_than_was_approved() -> None:
    story = Story()
    gate = msgspec.structs.replace(START, content=("plan",))
    story.add("N1", gates=(gate,))
    approve(story, "G-go", {"plan": "1"})
    contract = c.IssuedContract("inv-1", "ab" * 32, ME, None, {})
    wrong: list[dict[str, dict[str, str]]] = [
        {}, {"G-go": {}}, {"G-go": {"plan": "2"}}, {"other": {"plan": "1"}},
    ]  # fmt: skip
    for contents in wrong:
        move = c.MoveNode("N1", "RUNNING", contract=contract, contents=contents)
        error = refusal(story, move)
        assert (error.code, error.rule) == ("approval_void", "GA-3")
    void, asked = story.do(c.AskGate("N1", "G-go", {"plan": "2"}))
    assert (void.payload["op"], void.payload["gate"]) == ("void", "G-go")
    assert story.node("N1").approvals == {}
    assert asked.payload["package"]["changes"] == {"since": "J-5", "changed": ["plan"]}
    story.rule("G-go", "approve", files={"plan": "2"})
    right = {"G-go": {"plan": "2"}}
    story.do(c.MoveNode("N1", "RUNNING", contract=contract, contents=right))
    assert story.state_of("N1") == "RUNNING"


def test_the_state_with_gates_is_stored_as_it_is_read_back() -> None:
    story = Story()
    story.add("N1", gates=(START, DONE), acceptance_criteria=(parse_criterion("human: ok?"),))
    approve(story, "G-go")
    story.start("N1")
    story.register("N1", "A-1")
    story.claim("N1")
    story.conclude("N1")
    stored = to_json(story.replica.state)
    assert to_json(msgspec.json.decode(stored, type=State)) == stored
