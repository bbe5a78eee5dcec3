"""What the end of an instance comes to, case by case; and how an answer is passed down."""

from typing import Any

import pytest
from tests.unit.core.story import Story

from perdure.control.handoff import handoff_page
from perdure.control.nested_questions import ruling_for
from perdure.control.phases import PhaseWatch
from perdure.control.report import RunReport
from perdure.control.result import InstanceVerdict, judge_instance
from perdure.control.sop_card import ROUTES, Card
from perdure.core import commands as c
from perdure.core.people import Question

PHASES = ["intake", "plan", "work", "verify", "report"]
SOP = {"id": "test.x", "version": "1.0.0", "phases": PHASES}
OUTPUTS = {"made": "artifacts/N1/A1.txt"}
CLASSES = ("transient-environment", "transient-agent", "permanent-spec", "permanent-resource")


def story() -> Story:
    told = Story(begun=False)
    told.do(c.StartTask("inv-1", "goal", sop=SOP))
    told.add("N1", outputs=("artifacts/N1/A1.txt",), retry_budget=1)
    return told


def card(**routes: str) -> Card:
    escalation = {name.replace("_", "-"): route for name, route in routes.items()}
    return Card("test.x", "1.0.0", "X", "for tests", (), escalation)


def judged(told: Story, of: Card, outcome: str = "failed", **report: Any) -> InstanceVerdict:
    ended = RunReport(outcome, {}, **report)
    proven = [name for name, path in OUTPUTS.items() if path in told.replica.paths]
    return judge_instance(told.replica.state, ended, of, OUTPUTS, proven)


def done(told: Story) -> None:
    told.start("N1")
    told.register("N1", "A1")
    told.claim("N1")
    told.conclude("N1")


def test_all_outputs_registered_is_done() -> None:
    told = story()
    done(told)
    assert judged(told, card(), "finished") == InstanceVerdict("done")


def test_an_output_that_no_node_made_is_a_failure_and_not_a_gap() -> None:
    told = story()
    done(told)
    ended = RunReport("finished", {})
    outputs = {**OUTPUTS, "more": "artifacts/N1/more.txt"}
    verdict = judge_instance(told.replica.state, ended, card(), outputs, ["made"])
    assert verdict.status == "failed(permanent-spec)"
    assert verdict.failure is not None
    assert verdict.failure.signature == "no node made more"


def test_what_was_given_up_is_a_gap_and_so_is_what_it_owed() -> None:
    told = story()
    told.do(c.CancelNodes(("N1",), "not wanted"))
    verdict = judged(told, card(), "finished")
    assert verdict.status == "done_with_gaps"
    assert [gap.ref for gap in verdict.questions] == ["inv-1#N1", "inv-1#made"]


def test_a_question_of_the_work_comes_before_every_failure() -> None:
    told = story()
    told.add("N2")
    told.start("N1")
    told.do(c.FailNode("N1", "permanent-spec", "exit 65"))
    told.start("N2")
    told.do(c.AskQuestion("Which?", "Q-7", "N2", ("red", "blue"), "red", to="sponsor"))
    verdict = judged(told, card(permanent_spec="suspend_with_handoff_note"))
    assert verdict.status == "blocked(ask:Q-7)"
    (one,) = verdict.questions
    assert (one.ref, one.options, one.default, one.to) == (
        "inv-1#Q-7", ("red", "blue"), "red", "sponsor",
    )  # fmt: skip


@pytest.mark.parametrize("failure_class", CLASSES)
@pytest.mark.parametrize("route", ROUTES)
def test_fe_1_each_class_takes_the_way_out_that_the_card_names(
    failure_class: str, route: str
) -> None:
    told = story()
    told.start("N1")
    told.do(c.FailNode("N1", failure_class, "it broke"))
    verdict = judged(told, card(**{failure_class.replace("-", "_"): route}), "needs_person")
    if route in ("block_ask_user", "method_switch_or_escalate"):
        assert verdict.status == f"blocked(ask:{next(iter(told.replica.state.questions))})"
    elif route == "decompose_and_report":
        assert verdict.status == "done_with_gaps"
        assert "it broke" in verdict.questions[0].text
    else:
        assert verdict.status == f"failed({failure_class})"
        assert verdict.failure is not None
        assert (verdict.failure.route, "it broke" in verdict.failure.signature) == (route, True)


@pytest.mark.parametrize("failure_class", CLASSES)
def test_fe_1_a_class_without_a_route_suspends_and_is_told(failure_class: str) -> None:
    told = story()
    told.start("N1")
    told.do(c.FailNode("N1", failure_class, "it broke"))
    verdict = judged(told, card(), "needs_person")
    assert verdict.status == f"failed({failure_class})"
    assert verdict.failure is not None
    assert verdict.failure.route == "suspend_with_handoff_note"
    assert "it broke" in handoff_page(told.replica.state, verdict)


def test_fe_1_work_that_failed_its_checks_may_have_a_route_of_its_own() -> None:
    told = story()
    told.start("N1")
    told.register("N1", "A1")
    told.claim("N1")
    told.conclude("N1", passed=False)
    suspends = card(transient_agent="suspend_with_handoff_note")
    assert judged(told, suspends).status == "failed(transient-agent)"
    reports = Card("x", "1", "X", "", (), {**suspends.escalation, "acceptance_failed": ROUTES[4]})
    assert judged(told, reports).status == "done_with_gaps"


def test_damage_is_a_failure_that_says_so() -> None:
    told = story()
    done(told)
    verdict = judged(told, card(), "failed", damaged=("A1 FAIL: it changed",))
    assert verdict.failure is not None
    assert "A1 FAIL: it changed" in verdict.failure.signature


# The way down


def question(kind: str, *options: str) -> Question:
    return Question("Q-1", "Which?", None, "J-1", options, kind=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "said", "command", "args"),
    [
        ("question", {"answer": "red one"}, "answer", {"text": "red one"}),
        ("question", {"answer": "x", "choice": "red"}, "answer", {"text": "x", "choice": "red"}),
        ("question", {"answer": "red"}, "answer", {"text": "red", "choice": "red"}),
        ("question", {"answer": "x", "choice": "green"}, "answer", {"text": "x"}),
        ("question", {"ruling": "approve"}, "approve", {"text": ""}),
        ("confirmation", {"ruling": "reject", "answer": "no"}, "reject", {"text": "no"}),
        ("gate", {"ruling": "approve", "answer": "good"}, "approve", {"text": "good"}),
        ("gate", {"answer": "Approve"}, "approve", {"text": "Approve"}),
        ("gate", {"answer": "why", "choice": "reject"}, "reject", {"text": "why"}),
        ("gate", {"answer": "make it shorter"}, "reject", {"text": "make it shorter"}),
        ("judgement", {"ruling": "reject"}, "reject", {"text": "rejected"}),
        ("escalation", {"answer": "x", "choice": "y"}, "answer", {"text": "x", "choice": "y"}),
        ("escalation", {"ruling": "approve"}, "answer", {"text": "approve"}),
        ("effect", {"answer": "p", "choice": "done"}, "answer", {"text": "p", "choice": "done"}),
    ],
)  # fmt: skip
def test_an_answer_is_passed_down_as_the_child_takes_it(
    kind: str, said: dict[str, str], command: str, args: dict[str, str]
) -> None:
    options = ("red", "blue") if kind == "question" else ()
    found = ruling_for(question(kind, *options), {"ruling": "answer", **said})
    assert found == (command, {"question": "Q-1", **args})


# Phases


class Told:
    """As much of a runtime as the phases need."""

    def __init__(self, told: Story) -> None:
        self.told = told
        self.engine = self

    @property
    def state(self) -> Any:
        return self.told.replica.state

    def execute(self, command: c.Command) -> None:
        self.told.do(command)

    def batch(self) -> "Told":
        return self

    def __enter__(self) -> None:
        return

    def __exit__(self, *ended: object) -> None:
        return


def watched(told: Story, **phase_of: str) -> tuple[PhaseWatch, list[str]]:
    entered: list[str] = []
    watch = PhaseWatch(
        Told(told),  # type: ignore[arg-type]
        PHASES,
        phase_of,
        lambda event: entered.append(event["state"]),
    )
    watch.begin()
    watch.advance()
    return watch, entered


def test_the_phase_is_that_of_the_first_open_node_and_goes_back_with_it() -> None:
    told = story()
    told.add("N2", "N1")
    watch, entered = watched(told, N1="work", N2="verify")
    assert entered == ["intake", "plan", "work"]
    done(told)
    watch.see({"event": "done"})
    assert entered[3:] == ["verify"]
    told.add("fix")  # of no phase, so of the last one of work
    watch.see({"event": "graph"})
    assert entered[4:] == ["work"]
    told.do(c.CancelNodes(("fix", "N2"), "not wanted"))
    watch.report()
    assert entered[5:] == ["verify", "report"]


def test_the_plan_is_on_record_once_before_any_work() -> None:
    told = story()
    watched(told, N1="work")
    (plan,) = [event for event in told.events() if event.payload.get("op") == "plan"]
    units = plan.payload["units"]
    assert (units["total"], units["sample"], units["phases"]) == (1, ["N1"], {"work": 1})
