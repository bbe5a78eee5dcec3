"""HALT-03 and HALT-06 as rules: phases, results, and what a parent believes of a child."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.nested import ROUTES, card
from tests.unit.core.story import Story

from perdure import HaltRuntime
from perdure.control.executor_port import Order, Report
from perdure.control.executors import order_for
from perdure.control.nested import SopExecutor, start_facts
from perdure.control.nested_copies import copy_outputs, output_names
from perdure.control.nested_questions import ask_gaps, ask_up, deliver_answers
from perdure.control.outcome import Ended
from perdure.core import commands as c
from perdure.core import instance as i
from perdure.core.actions import SopCall
from perdure.core.dispatch_commands import MovePhase, RecordPlan
from perdure.core.model import Node, Policies
from perdure.core.rules import explain_rule
from perdure.errors import EvidenceError, HaltError, RefusedError, TransitionError, UsageError
from perdure.runtime import work
from perdure.runtime.instance_files import read_result, write_result
from perdure.service.instances import run_instance
from perdure.storage.workspace import Layout

MAKES = """
    - id: make
      run: echo made > "$PERDURE_SCOPE/made.txt"
      outputs: [artifacts/make/made.txt]
"""
ASKS = MAKES.replace("outputs:", "gate: Is it fit to use?\n      outputs:")
DONE = Ended("exited", exit_code=0)


@pytest.mark.parametrize(
    "rule", ["AP-N4", "DP-1", "FE-1", "IO-2", "NC-2", "NS-1", "QA-1", "SC-1", "SC-3"]
)
def test_the_rule_can_be_explained(rule: str) -> None:
    assert explain_rule(rule)["meaning"]


class Caller:
    """A parent with one node that calls a procedure, and the child it has called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runtime = HaltRuntime(directory / "w", "top", policies=Policies(nesting_depth_max=3))
        self.executor = SopExecutor(self.runtime.engine)
        self.write(MAKES)

    def write(self, nodes: str, **more: str) -> None:
        (self.directory / "one.yaml").write_text(card(nodes, **more), encoding="utf-8")

    def add(self, **fields: Any) -> None:
        call = SopCall(str(self.directory / "one.yaml"))
        outputs = ("artifacts/call/made.txt",)
        self.runtime.add_node("call", "calls", sop=call, outputs=outputs, **fields)

    @property
    def node(self) -> Node:
        return self.runtime.state.nodes["call"]

    def start(self) -> Order:
        engine = self.runtime.engine
        work.start(engine, "call", payload=start_facts(engine, self.node))
        order = order_for(engine, self.node)
        self.executor.launch(order)
        return order

    @property
    def child(self) -> Path:
        return self.directory / "w/instances" / str(self.node.child_ref)

    def run_child(self) -> int:
        told: list[dict[str, Any]] = []
        data = run_instance(
            str(self.child),
            jobs=1,
            actor="coordinator:child",
            emit=told.append,
            on_loop=lambda interrupt: None,
        )
        return int(data["exit_code"])

    def fail(self, failure_class: str = "transient-agent", **more: Any) -> None:
        self.runtime.fail("call", failure_class, "it failed", **more)


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    caller = Caller(tmp_path)
    yield caller
    caller.runtime.close()


@pytest.fixture
def order(caller: Caller) -> Order:
    """The order of a child that has reported that it is done."""
    caller.add()
    order = caller.start()
    assert caller.run_child() == 0
    return order


def rewritten(caller: Caller, change: Callable[[Any], object]) -> None:
    path = caller.child / "result.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    change(result)
    path.write_text(json.dumps(result), encoding="utf-8")


def signature_of(report: Report) -> str:
    assert not report.claims
    assert not report.questions
    assert report.failure is not None
    assert report.failure[0] == "transient-agent"
    return report.failure[1]


# IO-2, NC-2: what a parent believes


def test_nc_2_nothing_of_a_child_is_here_before_its_end_was_read(
    caller: Caller, order: Order
) -> None:
    assert not list((caller.directory / "w/artifacts/call").glob("*"))
    report = caller.executor.read_end(order, DONE)
    assert report.claims
    assert (caller.directory / "w/artifacts/call/made.txt").read_text() == "made\n"
    assert caller.executor.read_end(order, DONE) == report  # read again after a crash


def unregistered(result: Any) -> None:
    result["artifacts"][0]["artifact_id"] = "A-nobody"


def another_path(result: Any) -> None:
    result["artifacts"][0]["path"] = "invocation.json"


def another_checksum(result: Any) -> None:
    result["artifacts"][0]["checksum_sha256"] = "ab" * 32


def of_another(result: Any) -> None:
    result["invocation_id"] = "inv-another"


def of_another_card(result: Any) -> None:
    result["sop"]["version"] = "2.0.0"


def with_a_gap_elsewhere(result: Any) -> None:
    result["status"] = "done_with_gaps"
    result["open_questions"] = [{"ref": "inv-another#make", "text": "It is missing."}]


def with_a_gap_of_no_words(result: Any) -> None:
    result["status"] = "done_with_gaps"
    result["open_questions"] = [{"ref": f"{result['invocation_id']}#make", "text": " "}]


def that_gives_back(result: Any) -> None:
    result["usage"] = {"cost_usd": -5.0}


def from_the_future(result: Any) -> None:
    result["seq_last"] += 1_000


@pytest.mark.parametrize(
    "change",
    [
        unregistered,
        another_path,
        another_checksum,
        of_another,
        of_another_card,
        with_a_gap_elsewhere,
        with_a_gap_of_no_words,
        that_gives_back,
        from_the_future,
    ],
)
def test_io_2_a_child_that_claims_what_its_journal_does_not_bear_out_has_failed(
    caller: Caller, order: Order, change: Callable[[Any], object]
) -> None:
    rewritten(caller, change)
    assert signature_of(caller.executor.read_end(order, DONE)).startswith("child_unregistered:")
    assert not (caller.directory / "w/artifacts/call/made.txt").exists()


def test_io_2_what_a_child_has_registered_and_not_verified_does_not_count(caller: Caller) -> None:
    caller.add()
    order = caller.start()
    sop = {"id": "test.one", "version": "1.0.0", "phases": ["intake", "plan", "verify", "report"]}
    with HaltRuntime(caller.child, str(caller.node.child_ref), sop=sop) as child:
        child.add_node("make", "makes")
        child.start("make")
        (caller.child / "artifacts/make/made.txt").write_text("made\n", encoding="utf-8")
        made = child.register_artifact("A", "artifacts/make/made.txt", node_id="make")
        for phase in ("intake", "plan", "verify"):
            child.engine.execute(MovePhase(phase))
        child.cancel(["make"], "not verified")
        child.engine.execute(MovePhase("report"))
        listed = i.ResultArtifact("made", "A", made.path, made.integrity.value)
        ref = i.SopRef("test.one", "1.0.0")
        result = i.Result(str(caller.node.child_ref), "done", ref, (listed,))
        write_result(child.engine, result)
    assert "was not verified there" in signature_of(caller.executor.read_end(order, DONE))


def test_io_2_a_child_that_has_not_entered_its_last_phase_has_not_reported(caller: Caller) -> None:
    caller.add()
    order = caller.start()
    sop = {"id": "test.one", "version": "1.0.0", "phases": ["intake", "plan", "verify", "report"]}
    with HaltRuntime(caller.child, str(caller.node.child_ref), sop=sop) as child:
        child.add_node("make", "makes", outputs=["artifacts/make/made.txt"])
        child.start("make")
        (caller.child / "artifacts/make/made.txt").write_text("made\n", encoding="utf-8")
        child.submit("make")
        for phase in ("intake", "plan", "verify"):
            child.engine.execute(MovePhase(phase))
        ((name, made),) = child.registry.items()
        listed = i.ResultArtifact("made", name, made.path, made.integrity.value)
        ref = i.SopRef("test.one", "1.0.0")
        write_result(child.engine, i.Result(str(caller.node.child_ref), "done", ref, (listed,)))
    assert "in phase verify" in signature_of(caller.executor.read_end(order, DONE))


def test_io_2_what_changes_before_it_is_copied_is_not_copied(caller: Caller, order: Order) -> None:
    """Between the look at it and the copy of it, that is."""
    engine = caller.runtime.engine
    result = read_result(engine.disk, str(caller.child))
    assert result is not None
    (caller.child / "artifacts/make/made.txt").write_text("something else\n", encoding="utf-8")
    with pytest.raises(EvidenceError, match="changed while it was copied"):
        copy_outputs(engine, caller.node, result, str(caller.child), {"made": "made.txt"})
    assert not (caller.directory / "w/artifacts/call/made.txt").exists()


def test_io_2_the_result_of_an_earlier_end_is_gone_before_work_goes_on(caller: Caller) -> None:
    caller.write(ASKS)
    caller.add()
    caller.start()
    assert caller.run_child() == 10
    assert (caller.child / "result.json").exists()
    interrupted = run_instance(
        str(caller.child),
        jobs=1,
        actor="coordinator:child",
        emit=lambda event: None,
        on_loop=lambda interrupt: interrupt(15),
    )
    assert interrupted["exit_code"] == 128 + 15
    assert not (caller.child / "result.json").exists()


def test_io_2_an_output_that_is_not_on_disk_any_more_is_no_output(
    caller: Caller, order: Order
) -> None:
    (caller.child / "artifacts/make/made.txt").write_text("something else\n", encoding="utf-8")
    assert "not what was registered" in signature_of(caller.executor.read_end(order, DONE))
    (caller.child / "artifacts/make/made.txt").unlink()
    assert "missing" in signature_of(caller.executor.read_end(order, DONE))


def test_io_1_a_status_is_one_of_the_closed_set(caller: Caller, order: Order) -> None:
    rewritten(caller, lambda result: result.update(status="finished"))
    assert "is no status" in signature_of(caller.executor.read_end(order, DONE))
    (caller.child / "result.json").write_bytes(b"\x00 nothing")
    assert "cannot be read" in signature_of(caller.executor.read_end(order, DONE))
    assert i.read_status("failed(everything)") is None
    assert i.read_status("blocked(ask:Q-1)") == ("blocked", "Q-1")


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (Ended("exited", exit_code=1), "exit 1 without a result to match"),
        (Ended("exited", exit_code=10), "exit 10 without a result to match"),
        (Ended("exited", signal=9), "signal 9"),
        (Ended("timed_out", limit_s=5.0), "timed out after 5 s"),
    ],
)
def test_io_2_a_result_that_does_not_fit_the_end_proves_nothing(
    caller: Caller, order: Order, ended: Ended, why: str
) -> None:
    assert signature_of(caller.executor.read_end(order, ended)) == why


def test_io_2_a_child_that_ends_well_without_a_result_is_a_silent_death(caller: Caller) -> None:
    caller.add()
    order = caller.start()
    assert "without a result" in signature_of(caller.executor.read_end(order, DONE))


@pytest.mark.parametrize(
    ("code", "failure_class"),
    [(3, "permanent-resource"), (5, "transient-environment"), (6, "permanent-resource")],
)
def test_fe_1_an_instance_that_cannot_be_opened_says_why(
    caller: Caller, code: int, failure_class: str
) -> None:
    caller.add()
    order = caller.start()
    tail = "09:00:00 something\nperdure: sop_changed (SC-3): it was changed.\n  fix: put it back\n"
    report = caller.executor.read_end(order, Ended("exited", exit_code=code, log_tail=tail))
    why = "the instance could not be opened: sop_changed (SC-3): it was changed."
    assert report.failure == (failure_class, why)


# Which instance a start is of


def test_nc_1_an_instance_that_was_interrupted_goes_on(caller: Caller) -> None:
    caller.add()
    caller.start()
    first = caller.node.child_ref
    caller.fail(interruption=True)
    assert start_facts(caller.runtime.engine, caller.node) == {"child_ref": first}
    caller.start()
    assert caller.node.child_ref == first
    assert caller.node.invocation != first


def test_nc_1_one_that_was_done_when_its_parent_died_is_not_done_again(
    caller: Caller, order: Order
) -> None:
    caller.fail(interruption=True)
    assert start_facts(caller.runtime.engine, caller.node) == {"child_ref": caller.node.child_ref}
    caller.start()
    seq = HaltRuntime.attach(caller.child).seq_last
    assert caller.run_child() == 0
    assert HaltRuntime.attach(caller.child).seq_last == seq


def test_fe_2_one_that_was_turned_down_or_failed_is_called_anew(
    caller: Caller, order: Order
) -> None:
    first = caller.node.child_ref
    caller.fail()
    assert start_facts(caller.runtime.engine, caller.node) == {}
    caller.start()
    assert caller.node.child_ref == caller.node.invocation != first
    invocation = json.loads((caller.child / "invocation.json").read_text(encoding="utf-8"))
    assert invocation["previous"] == first


def test_fe_2_another_call_is_another_instance(caller: Caller) -> None:
    caller.add()
    caller.start()
    caller.fail(interruption=True)
    caller.runtime.amend_node("call", "another", sop=SopCall("./other.yaml"))
    assert start_facts(caller.runtime.engine, caller.node) == {}


def test_sc_3_an_instance_runs_the_copy_that_it_was_called_with(caller: Caller) -> None:
    caller.add()
    caller.start()
    caller.write(MAKES.replace("echo made", "echo another"))  # what lies elsewhere may change
    (copy,) = caller.child.glob("sops/*/card.yaml")
    copy.write_text(copy.read_text().replace("One level", "One"), encoding="utf-8")
    with pytest.raises(RefusedError) as caught:
        caller.run_child()
    assert (caught.value.code, caught.value.rule) == ("sop_changed", "SC-3")


@pytest.mark.parametrize("change", ["broken", "gone", "larger"])
def test_sc_3_a_card_that_changes_elsewhere_keeps_no_instance_from_going_on(
    caller: Caller, change: str
) -> None:
    caller.add()
    caller.start()
    caller.fail(interruption=True)
    if change == "larger":
        routes = f"{ROUTES}side_effects: [S2]\n"
        caller.write(MAKES.replace("outputs:", "effect: S2\n      outputs:"), routes=routes)
    elif change == "broken":
        (caller.directory / "one.yaml").write_text("sop_id: [", encoding="utf-8")
    else:
        (caller.directory / "one.yaml").unlink()
    caller.executor.require_installed(caller.node, str(caller.directory))
    order = caller.start()
    assert not caller.executor.launch(order).network
    assert caller.run_child() == 0
    assert caller.executor.read_end(order, DONE).claims


# What is refused before anything starts


def refusal(caller: Caller) -> tuple[str, str]:
    with pytest.raises(HaltError) as caught:
        caller.executor.require_installed(caller.node, str(caller.directory))
    return caught.value.code, caught.value.rule


def test_nc_2_a_node_cannot_owe_what_its_procedure_does_not_make(caller: Caller) -> None:
    caller.runtime.add_node(
        "call", "calls", sop=SopCall(str(caller.directory / "one.yaml")),
        outputs=("artifacts/call/maid.txt",),
    )  # fmt: skip
    with pytest.raises(UsageError) as caught:
        caller.executor.require_installed(caller.node, str(caller.directory))
    assert (caught.value.code, caught.value.rule) == ("sop_outputs", "NC-2")
    assert caught.value.suggestions == ["artifacts/call/made.txt"]


def test_nc_2_outputs_of_one_name_are_told_apart_by_the_output() -> None:
    outputs = {"a": "artifacts/x/t.csv", "b": "artifacts/y/t.csv", "c": "artifacts/z/c.csv"}
    assert output_names(outputs) == {"a": "a/t.csv", "b": "b/t.csv", "c": "c.csv"}
    assert output_names({"r": "artifacts/x/result.json"}) == {"r": "r/result.json"}


def test_sc_1_side_effects_above_those_of_the_node_are_refused(caller: Caller) -> None:
    caller.write(MAKES, routes="side_effects: [S0, S1]" + ROUTES)
    caller.add()
    assert refusal(caller) == ("sop_profile", "SC-1")


def test_sc_1_a_node_of_that_class_may_call_it(caller: Caller) -> None:
    caller.write(MAKES, routes="side_effects: [S0, S1]" + ROUTES)
    caller.add(effect="S1")
    caller.executor.require_installed(caller.node, str(caller.directory))


def test_fr_1_an_agent_that_is_missing_further_down_is_said_first(caller: Caller) -> None:
    agent = "agent: {command: [./no-such-agent]}"
    caller.write(MAKES.replace('run: echo made > "$PERDURE_SCOPE/made.txt"', agent))
    caller.add()
    assert refusal(caller) == ("executor_missing", "FR-1")


def as_child(caller: Caller, depth: int, *sops: str) -> None:
    """Make the caller's task itself an instance at this depth."""
    state = caller.runtime.state
    state.parent = i.Parent("above", "N", "inv-above", depth, sops)


def test_dp_1_the_limit_counts_the_root(caller: Caller) -> None:
    caller.add()
    as_child(caller, 2)
    caller.executor.require_installed(caller.node, str(caller.directory))
    as_child(caller, 3)
    assert refusal(caller) == ("too_deep", "DP-1")


def test_ap_n4_a_procedure_above_is_not_run_again(caller: Caller) -> None:
    caller.add()
    as_child(caller, 2, "test.other", "test.one")
    assert refusal(caller) == ("sop_recursion", "AP-N4")


# Questions and answers


def asked(caller: Caller) -> Order:
    caller.write(ASKS)
    caller.add()
    order = caller.start()
    assert caller.run_child() == 10
    return order


def test_qa_1_a_question_of_a_child_holds_its_node_and_no_other(caller: Caller) -> None:
    order = asked(caller)
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    assert not report.claims
    assert report.failure is None
    caller.runtime.add_node("else", "something else")
    ask_up(caller.runtime.engine, "call", report.questions)
    assert caller.node.state == "BLOCKED"
    (question,) = caller.runtime.state.questions.values()
    assert question.text == "Is it fit to use?"
    assert question.options == ("approve", "reject")
    instance = caller.node.child_ref
    assert question.package["links"] == [
        f"{instance}#G-make-review",
        f"instances/{instance}/artifacts/make/made.txt",
    ]
    assert caller.runtime.frontier() == ["else"]
    before = caller.runtime.seq_last
    ask_gaps(caller.runtime.engine, "call", report.questions)  # the same question is not a gap too
    assert caller.runtime.seq_last == before


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.update(open_questions=[]),
        lambda result: result["open_questions"][0].update(ref="inv-other#G-make-review"),
        lambda result: result["open_questions"][0].update(ref=result["invocation_id"] + "#Q-none"),
        lambda result: result["open_questions"][0].update(text="Send the money?"),
        lambda result: result["open_questions"][0].update(to="nobody"),
    ],
)
def test_qa_1_what_a_child_does_not_ask_in_its_own_journal_is_not_passed_on(
    caller: Caller, change: Callable[[Any], object]
) -> None:
    order = asked(caller)
    rewritten(caller, change)
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    assert signature_of(report).startswith("child_unregistered:")
    assert report.questions == ()


@pytest.mark.parametrize("said", ["ruling", "choice", "words"])
def test_qa_2_an_answer_is_taken_in_by_the_child_once(caller: Caller, said: str) -> None:
    order = asked(caller)
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    ask_up(caller.runtime.engine, "call", report.questions)
    (question,) = caller.runtime.state.questions
    if said == "ruling":
        caller.runtime.approve(question, by="gatekeeper:eve")
    else:
        choice = "approve" if said == "choice" else ""
        text = "it is good" if choice else "Approve"
        caller.runtime.answer(question, text, choice=choice, by="gatekeeper:eve")
    assert caller.node.state == "READY"
    caller.start()
    down = caller.runtime.engine, caller.node, str(caller.node.child_ref), str(caller.child)
    assert deliver_answers(*down) == 1  # as if its parent had died before it was there
    box = Path(Layout(str(caller.child)).spool)
    (message,) = box.glob("*.json")
    data = message.read_bytes()
    assert caller.run_child() == 0
    message.write_bytes(data)  # as if the death had come before it was removed
    assert caller.run_child() == 0
    child = HaltRuntime.attach(caller.child)
    answers = [e for e in child.events() if e.payload.get("op") == "answer"]
    assert [e.payload["authority"] for e in answers] == ["gatekeeper:eve"]
    assert caller.executor.read_end(order_for(caller.runtime.engine, caller.node), DONE).claims


def test_qa_1_what_a_child_asks_is_on_record_together_with_its_node_that_waits(
    caller: Caller,
) -> None:
    order = asked(caller)
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    (one,) = report.questions
    another = one._replace(ref=f"{caller.node.child_ref}#Q-another", text="What then?")
    before = caller.runtime.seq_last
    ask_up(caller.runtime.engine, "call", (one, another))
    assert caller.node.state == "BLOCKED"
    assert len(caller.runtime.state.questions) == 2
    written = [event for event in caller.runtime.events() if event.seq > before]
    assert [event.c for event in written] == [[n, len(written)] for n in range(1, len(written) + 1)]


def test_qa_2_a_refusal_goes_down_as_one(caller: Caller) -> None:
    order = asked(caller)
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    ask_up(caller.runtime.engine, "call", report.questions)
    (question,) = caller.runtime.state.questions
    caller.runtime.answer(question, "not like this", choice="reject", by="gatekeeper:eve")
    caller.start()
    assert caller.run_child() == 10  # made again, and asked about again
    child = HaltRuntime.attach(caller.child)
    (answer,) = [e for e in child.events() if e.payload.get("op") == "answer"]
    assert (answer.payload["ruling"], answer.payload["answer"]) == ("reject", "not like this")


def test_qa_2_answers_go_down_in_the_order_in_which_they_were_given(caller: Caller) -> None:
    gates = "gates: [{id: one, question: One?}, {id: two, question: Two?}]"
    caller.write(MAKES.replace("outputs:", f"{gates}\n      outputs:"))
    caller.add()
    order = caller.start()
    assert caller.run_child() == 10
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    ask_up(caller.runtime.engine, "call", report.questions)
    one, two = caller.runtime.state.questions
    caller.runtime.approve(two, by="gatekeeper:eve")
    caller.runtime.reject(one, "again", by="gatekeeper:eve")
    caller.start()
    caller.run_child()
    child = HaltRuntime.attach(caller.child)
    said = [e.payload for e in child.events() if e.payload.get("op") == "answer"]
    assert [(payload["gate"], payload["ruling"]) for payload in said] == [
        ("two", "approve"),
        ("one", "reject"),
    ]


def test_qa_2_what_a_child_does_not_ask_any_more_is_not_answered(caller: Caller) -> None:
    order = asked(caller)
    report = caller.executor.read_end(order, Ended("exited", exit_code=10))
    ask_up(caller.runtime.engine, "call", report.questions)
    (question,) = caller.runtime.state.questions
    with HaltRuntime.resume(caller.child) as child:
        child.approve("G-make-review", by="gatekeeper:ann")
    caller.runtime.approve(question, by="gatekeeper:eve")
    engine, node = caller.runtime.engine, caller.node
    assert deliver_answers(engine, node, str(node.child_ref), str(caller.child)) == 0


def test_qa_2_what_steers_a_node_steers_its_instance_once(caller: Caller) -> None:
    caller.add()
    caller.start()
    caller.runtime.steering("S1", "in capitals", reading="amendment", nodes=["call"])
    for _ in range(2):
        caller.start()
        caller.fail(interruption=True)
    assert caller.run_child() == 0
    child = HaltRuntime.attach(caller.child)
    logged = [e.payload["verbatim"] for e in child.events() if e.kind == "STEERING_LOGGED"]
    assert logged == ["in capitals"]
    assert child.state.nodes["make"].directives == ("in capitals",)


# Phases

SOP = {"id": "test.x", "version": "1.0.0", "phases": ["intake", "plan", "work", "verify", "report"]}


def instance() -> Story:
    story = Story(begun=False)
    story.do(c.StartTask("inv-x", "goal", sop=SOP))
    return story


def move(story: Story, to: str, **facts: Any) -> None:
    story.do(MovePhase(to, facts))


def test_sc_3_a_task_that_is_no_instance_has_no_phases() -> None:
    for command in (MovePhase("intake"), RecordPlan({})):
        with pytest.raises(RefusedError) as caught:
            Story().do(command)
        assert caught.value.code == "not_an_instance"


def test_fsn_1_phases_are_entered_in_their_order() -> None:
    story = instance()
    for phase in ("intake", "plan", "work", "verify", "report"):
        assert story.do(MovePhase(phase))[0].entity.type == "instance"
        assert story.replica.state.phase == phase
        assert story.do(MovePhase(phase)) == []


@pytest.mark.parametrize(
    ("at", "to"),
    [
        (0, "plan"), (1, "work"), (2, "verify"), (3, "report"), (3, "plan"), (4, "intake"),
        (4, "plan"), (5, "verify"), (3, "unheard-of"),
    ],
)  # fmt: skip
def test_fsn_1_no_phase_is_passed_over_and_few_lead_back(at: int, to: str) -> None:
    story = instance()
    for phase in SOP["phases"][:at]:
        move(story, phase)
    with pytest.raises(TransitionError) as caught:
        move(story, to, why="because")
    assert caught.value.code in ("phase_order", "unknown_phase")


def test_fsn_1_the_way_back_into_work_needs_a_reason() -> None:
    story = instance()
    for phase in SOP["phases"][:4]:
        move(story, phase)
    with pytest.raises(HaltError):
        move(story, "work")
    move(story, "work", why="N1 is READY again")
    assert story.replica.state.phase == "work"


def test_fsn_1_nothing_is_reported_while_a_node_may_still_be_done() -> None:
    story = instance()
    story.add("N1")
    story.add("N2", "N1")
    for phase in SOP["phases"][:4]:
        move(story, phase)
    with pytest.raises(TransitionError):
        move(story, "report")
    story.do(c.CancelNodes(("N1",), "not wanted"))  # what waits for it never starts: a gap
    move(story, "report")
