"""An op id that comes again is answered with what it came to at first, whatever came since."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.runtime import evidence
from perdure.runtime.calls import perform

ANNA = "gatekeeper:anna"
SAM = "sponsor:sam"


@pytest.fixture
def host(workspace: str) -> Host:
    return Host(workspace)


@pytest.fixture
def rt(host: Host) -> Iterator[HaltRuntime]:
    with host.open() as runtime:
        for name in ("a", "b", "first"):
            runtime.add_node(name, name)
        runtime.add_node("later", "later", deps=["a", "b", "first"])
        runtime.add_node("pay", "Pay it", effect="S3", gates=["Correct?"])
        yield runtime


def at_work(host: Host, rt: HaltRuntime, name: str) -> None:
    rt.start(name)
    host.write(f"artifacts/{name}/out")


def done(host: Host, rt: HaltRuntime) -> None:
    host.finish(rt, "first")
    at_work(host, rt, "a")


def begun(host: Host, rt: HaltRuntime) -> None:
    at_work(host, rt, "a")


def failed(host: Host, rt: HaltRuntime) -> None:
    begun(host, rt)
    rt.fail("a", "transient-agent", "exit 3")


def at_its_gate(host: Host, rt: HaltRuntime) -> None:
    rt.amend_node("a", "so", gates=[{"question": "Good?", "revise_max": 1}])
    begun(host, rt)
    rt.submit("a")


def asked_twice(host: Host, rt: HaltRuntime) -> None:
    begun(host, rt)
    rt.ask("Which?", "a")
    rt.ask("And then?", "a")


def held(host: Host, rt: HaltRuntime) -> None:
    with rt.engine.acting_as(SAM):
        rt.amend_node("pay", "so", gates=[], effect="S0")
    rt.add_node("send", "Send it", effect="S3", outputs=["artifacts/send/log"])
    perform(rt.engine, "steer", {"text": "go on", "reading": "clarification"})
    with pytest.raises(Exception, match="G-send-start"):
        rt.start("send")
    rt.approve("G-send-start", by=ANNA)
    rt.start("send")
    rt.fail("send", "transient-agent", "exit 3")


def nothing(host: Host, rt: HaltRuntime) -> None:
    pass


Step = Callable[[Host, HaltRuntime], None]

CALLS: list[tuple[str, dict[str, Any], str, Step]] = [
    ("goal", {"text": "new", "reason": "r", "reverify": ["first"], "supersede": ["b"]}, SAM, done),
    ("policy", {"name": "revise_max", "value": 5, "reason": "r", "window": "May"}, SAM, nothing),
    ("amend", {"node": "a", "reason": "r", "title": "t", "spec": {"goal": "g"}}, "", nothing),
    ("amend", {"node": "a", "reason": "r", "verification_level": "V0"}, SAM, nothing),
    ("split", {"node": "a", "into": [{"node": "a1", "title": "1"}], "reason": "r"}, "", nothing),
    ("quarantine", {"node": "a", "reason": "r", "replacement": "b"}, "", nothing),
    ("quarantine", {"node": "a", "reason": "r"}, "", nothing),
    ("cancel", {"nodes": ["a", "later"], "reason": "r"}, "", nothing),
    ("start", {"node": "a"}, "executor:w", nothing),
    ("fail", {"node": "a", "failure_class": "permanent-resource", "reason": "r"}, "", begun),
    ("receipt", {"node": "send", "proof": "p"}, ANNA, held),
    ("answer", {"question": "Q-send-1", "text": "yes", "choice": "done"}, ANNA, held),
    ("submit", {"node": "a"}, "", begun),
    ("submit", {"node": "a", "no_check": True}, "", begun),
    ("retry", {"node": "a", "reason": "r", "method": "m"}, "", failed),
    ("approve", {"question": "G-a-review"}, ANNA, at_its_gate),
    ("reject", {"question": "G-a-review", "text": "no"}, ANNA, at_its_gate),
    ("revise", {"question": "G-a-review", "changes": {"goal": "g"}}, ANNA, at_its_gate),
    ("answer", {"question": "Q-001", "text": "yes"}, ANNA, asked_twice),
    ("pause", {"reason": "r"}, "", done),
    ("ask", {"text": "Which?", "node": "a"}, "", begun),
    ("observe", {"what": "progress", "node": "a", "summary": "s"}, "", begun),
    ("observe", {"what": "completed", "node": "a", "summary": "s"}, "", begun),
    ("observe", {"what": "completed", "node": "b", "summary": "s"}, "", nothing),
    (
        "observe",
        {"what": "external", "provider": "p", "job_id": "7", "state": "RUNNING",
         "facts": {"status_url": "u"}, "node": "a"},
        "", begun,
    ),
    ("block", {"node": "a", "reason": "r", "needs": ["n"], "safe_next_step": "s"}, "", begun),
    ("reply", {"letter": "A", "node": "a", "summary": "s"}, "", begun),
    ("reply", {"letter": "C", "node": "a", "summary": "s"}, "", begun),
]  # fmt: skip


@pytest.mark.parametrize(
    "call", CALLS, ids=[f"{number}-{call[0]}" for number, call in enumerate(CALLS)]
)
def test_the_same_op_again_is_told_as_it_was(host: Host, rt: HaltRuntime, call: Any) -> None:
    name, args, actor, first = call
    first(host, rt)
    if name == "pause":
        rt.fail("a", "transient-agent", "exit 3")
    with rt.engine.acting_as(actor or rt.engine.actor):
        told = perform(rt.engine, name, args, op="once")
    rt.note("and something else")
    if rt.state.fsm_task != "SUSPENDED":
        rt.amend_node("pay", "later", title="Pay them")
    before = rt.seq_last
    with rt.engine.acting_as(actor or rt.engine.actor):
        again = perform(rt.engine, name, args, op="once")
    assert again.pop("repeated") is True
    told.pop("why", None)  # why a claim was not possible is on record nowhere
    assert again == told
    assert rt.seq_last == before


def test_the_same_call_while_the_first_is_still_checking_is_told_what_it_came_to(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever got no answer in time calls again under the same op id."""
    at_its_gate(host, rt)
    told: list[dict[str, Any]] = []

    def meanwhile(engine: Any, node: Any) -> Any:
        monkeypatch.undo()
        told.append(perform(engine, "approve", {"question": "G-a-review"}, op="once"))
        return evidence.verify_node(engine, node)

    monkeypatch.setattr("perdure.runtime.rulings.verify_node", meanwhile)
    with rt.engine.acting_as(ANNA):
        late = perform(rt.engine, "approve", {"question": "G-a-review"}, op="once")
    assert late == {**told[0], "repeated": True}
    assert (late["state"], late["ruling"]) == ("DONE", "approve")


def test_an_op_of_another_call_is_told_as_what_it_was(rt: HaltRuntime) -> None:
    perform(rt.engine, "note", {"text": "x"}, op="once")
    for name in ("goal", "policy", "amend", "split", "quarantine", "start", "observe", "pause"):
        assert perform(rt.engine, name, {}, op="once") == {"committed": "J-8", "repeated": True}
