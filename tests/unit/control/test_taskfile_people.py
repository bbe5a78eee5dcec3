"""What a task file says of people is read whole, and a mistake in it has its place."""

import pytest
from tests.unit.control.test_taskfile import load, node, problems_of

from perdure.core.model import Policies
from perdure.core.people import Gate

FULL = """\
task: t
policies: {revise_max: 2, goal_window_s: 1d, nudges_max: 0}
people:
  sponsor: ada
  gatekeeper: [bob, eve]
  gates: {G-plan-review: eve, budget-ok: [ada, bob]}
delegation: {S1: REVIEW_REQUIRED, S2: EXPLICIT_APPROVAL}
nodes:
  - id: plan
    run: ls
    gate: Is the plan good?
  - id: spend
    effect: S2
    verify: V3
    gates:
      - id: budget-ok
        blocks: start
        question: May it cost this much?
        context: |
          The plan says 40.
        options: [all of it, half of it]
        consequences: the money is gone
        links: ["https://example.org/plan"]
        content: [./out//plan.txt, out/plan.txt]
        scope: this quarter
        gatekeeper: ada
        timeout: 2d
        fallback: reject
        revise_max: 1
      - Was it well spent?
  - id: judged
    verify: V3
    accept:
      - exists: artifacts/judged/x
      - human: Is it fair?
  - {id: reviewed, effect: S1, verify: V3}
"""


def test_gates_are_read_whole() -> None:
    task = load(FULL)
    plan, spend, judged, reviewed = task.nodes
    assert plan.spec.gates == (Gate("G-plan-review", "done", "Is the plan good?"),)
    budget, spent = spend.spec.gates
    assert budget == Gate(
        "budget-ok",
        "start",
        "May it cost this much?",
        context="The plan says 40.\n",
        options=("all of it", "half of it"),
        consequences="the money is gone",
        links=("https://example.org/plan",),
        content=("out/plan.txt",),
        scope="this quarter",
        gatekeeper=("ada",),
        timeout_s=172_800.0,
        fallback="reject",
        revise_max=1,
    )
    assert spent == Gate("G-spend-review", "done", "Was it well spent?")
    assert {n.verification_level for n in (spend, judged, reviewed)} == {"V3"}
    assert plan.verification_level == "V1"


def test_checks_of_a_judged_node_keep_their_own_level() -> None:
    judged = load(FULL).nodes[2]
    levels = [(c.check, c.level) for c in judged.spec.acceptance_criteria]
    assert levels == [("exists", "V1"), ("human", "V3")]


def test_people_and_delegation_are_read() -> None:
    task = load(FULL)
    assert task.people == {
        "sponsor": "ada",
        "gatekeeper": ["bob", "eve"],
        "gates": {"G-plan-review": "eve", "budget-ok": ["ada", "bob"]},
    }
    assert task.delegation == {"S1": "REVIEW_REQUIRED", "S2": "EXPLICIT_APPROVAL"}
    assert task.policies == Policies(revise_max=2, goal_window_s=86_400.0, nudges_max=0)
    assert load("task: t\nnodes: [{id: a}]").delegation == {}


def test_gate_that_names_only_what_it_blocks_gets_the_id_of_the_ladder() -> None:
    [plan] = load(node("gate: {blocks: start, question: Go?}")).nodes
    assert plan.spec.gates == (Gate("G-a-start", "start", "Go?"),)


def test_gate_that_the_ladder_may_make_can_have_a_gatekeeper() -> None:
    text = "task: t\npeople: {gates: {G-a-judge: ada}}\nnodes: [{id: a}]"
    assert load(text).people == {"gates": {"G-a-judge": "ada"}}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("gate:", "4:10: gate is empty"),
        ("gate: [x]", "4:11: a gate must be a question, or a mapping"),
        ("gate: {}", "4:11: a gate without question (add question"),
        ("gate: {ask: x}", "4:12: a gate has no key 'ask' (write question)"),
        ("gate: {question: x, blocks: end}", "4:33: gate.blocks cannot be 'end' (use one of st"),
        ("gate: {question: x, id: a b}", "4:29: gate.id 'a b' is not an id"),
        ("gate: {question: x, options: y}", "4:34: gate.options must be a list"),
        ("gate: {question: x, content: [../y]}", "4:35: the path '../y' climbs out"),
        ("gate: {question: x, gatekeeper: {a: b}}", "4:37: gate.gatekeeper must be a name"),
        ("gate: {question: x, gatekeeper: []}", "4:37: gate.gatekeeper names nobody"),
        ("gate: {question: x, gatekeeper: [a b]}", "4:38: gate.gatekeeper: 'a b' holds a blank"),
        ("gate: {question: x, timeout: soon}", "4:34: gate.timeout must be a time above 0"),
        ("gate: {question: x, fallback: reject}", "4:25: gate.fallback means nothing without a t"),
        (
            "gate: {question: x, timeout: 1, fallback: approve}",
            "4:47: gate.fallback cannot be 'approve' (use one of remain-blocked, reject)",
        ),
        ("gate: {question: x, revise_max: -1}", "4:37: gate.revise_max must be a whole number"),
        ("gates: x", "4:12: gates must be a list of gates"),
        ("gates: []", "4:12: gates must be a list of gates"),
        ("gates: [a, b]", "4:16: the gate id 'G-a-review' is taken (line 4)"),
        ("gate: {question: x, id: G-a-start}", "4:29: the gate id 'G-a-start' is that of a gate"),
        ("gates: [a]\ngate: b", "5:5: a node has either gate or gates"),
        ("approval: x", "4:5: a node has no key 'approval' (write gate)"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_gate_is_one_problem_with_its_place(body: str, problem: str) -> None:
    found = problems_of(node(body))
    assert len(found) == 1, found
    assert found[0].startswith(problem)


def test_two_nodes_may_not_have_one_gate() -> None:
    gate = "gate: {id: ok, question: x}"
    [problem] = problems_of(f"task: t\nnodes:\n  - {{id: a, {gate}}}\n  - {{id: b, {gate}}}\n")
    assert problem == "4:24: the gate id 'ok' is taken (line 3) (give this gate an id of its own)"


def test_a_node_has_a_limited_number_of_gates() -> None:
    gates = ", ".join(f"{{id: g{i}, question: x}}" for i in range(17))
    [problem] = problems_of(node(f"gates: [{gates}]"))
    assert problem.startswith("4:12: the node has 17 gates; 16 is the most")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("people: {sponsor: {a: b}}", "2:19: people.sponsor must be a name, or a list of names"),
        ("people: {gatekeeper: []}", "2:22: people.gatekeeper names nobody"),
        ("people: {gatekeeper: [' ']}", "2:23: each of people.gatekeeper is empty"),
        ("people: {sponsor: role x}", "2:19: people.sponsor: 'role x' holds a blank"),
        ("people: {gates: [x]}", "2:17: people.gates must be a mapping of gate ids to names"),
        ("people: {gates: {G-b-start: x}}", "2:18: there is no gate 'G-b-start' (did you mean G"),
        ("people: {gates: {far-from-it: x}}", "2:18: there is no gate 'far-from-it' (name a gate"),
        ("people: {gates: {G-a-start: {}}}", "2:29: people.gates.G-a-start must be a name"),
        ("delegation: AUTO", "2:13: delegation must be a mapping of S0, S1, S2, S3"),
        ("delegation: {S4: AUTO}", "2:14: delegation has no key 'S4'"),
        ("delegation: {S1: auto}", "2:18: delegation.S1 cannot be 'auto' (use one of AUTO, "),
        ("policies: {revise_max: 1h}", "2:24: policies.revise_max must be a whole number"),
    ],
)
def test_mistake_about_people_is_named(text: str, problem: str) -> None:
    found = problems_of(f"task: t\n{text}\nnodes: [{{id: a}}]")
    assert len(found) == 1, found
    assert found[0].startswith(problem)
