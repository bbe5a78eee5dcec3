"""Items A7.1 to A7.3: nested tasks, classes of failures, strikes."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.story import Story
from tests.unit.core.test_audit_parallel import on_disk
from tests.unit.core.test_task_audit_items import failures, of

from perdure.core import commands as c
from perdure.core.actions import SopCall
from perdure.core.audit_containment import ChildrenAreOver, FailuresHaveClasses, StrikesEscalate
from perdure.core.events import Draft
from perdure.core.model import FAILURE_CLASSES
from perdure.core.task_audit import DiskFacts
from perdure.errors import HaltError

STEPS = (
    "start", "start", "fails", "is interrupted", "fails to verify", "is done otherwise",
    "is amended", "gets a budget", "is answered",
)  # fmt: skip


def take(story: Story, step: str) -> None:
    """One step at N1; what is refused is not done."""
    with contextlib.suppress(HaltError):
        if step == "start":
            story.start("N1")
        elif step == "fails":
            story.fail("N1")
        elif step == "is interrupted":
            story.fail("N1", interruption=True)
        elif step == "fails to verify":
            story.claim("N1")
            story.conclude("N1", passed=False)
        elif step == "is done otherwise":
            story.do(c.RetryNode("N1", "try that", f"m{story.node('N1').attempts}"))
        elif step == "is amended":
            story.do(c.AmendNode("N1", {"spec": {"goal": f"at {story.now}"}}, "clearer"))
        elif step == "gets a budget":
            story.do(c.ChangePolicy("retry_budget", 2, "patience is short"))
        else:
            for name in list(story.replica.state.questions):
                story.rule(name, "answer", "go on")


@settings(max_examples=80)
@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_strikes_counted_from_the_events_alone_are_those_that_were_lived(steps: list[str]) -> None:
    story = Story()
    story.add("N1")
    for step in steps:
        take(story, step)
    item = StrikesEscalate()
    assert failures(on_disk(story, DiskFacts(), item)) == []
    node = story.node("N1")
    counted = item._tries["N1"].strikes if "N1" in item._tries else {}
    lived = {method: count for method, count in node.strikes_by_method.items() if count}
    assert {method: count for method, count in counted.items() if count} == lived
    assert failures(of(story, FailuresHaveClasses)) == []


def out_of_strikes() -> Story:
    story = Story()
    story.add("N1", retry_budget=2)
    for _ in range(2):
        story.start("N1")
        story.fail("N1")
    return story


def test_a_start_that_the_runtime_would_have_refused_is_seen() -> None:
    story = out_of_strikes()
    assert failures(of(story, StrikesEscalate)) == []
    start = {"from": "RETRYABLE", "to": "RUNNING", "edge": "N11", "invocation": "inv-9"}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", start))
    found = failures(of(story, StrikesEscalate))
    assert len(found) == 1
    assert "after 2 strikes, with a budget of 2" in found[0]


@pytest.mark.parametrize("kind", [*FAILURE_CLASSES, "interruption"])
def test_each_class_of_failure_is_one(kind: str) -> None:
    story = Story()
    story.add("N1")
    story.start("N1")
    if kind == "interruption":
        story.fail("N1", interruption=True)
    else:
        story.fail("N1", kind)
    findings = of(story, FailuresHaveClasses)
    assert findings.results
    assert failures(findings) == []


@pytest.mark.parametrize(
    ("edge", "payload"),
    [
        ("N04", {"failure_class": "bad luck", "signature": "exit 3"}),
        ("N04", {"failure_class": "transient-agent", "signature": " "}),
        ("N05", {"reason": "no key"}),
        ("N07", {}),
        ("N08", {"diagnosis": ""}),
    ],
)
def test_a_failure_that_says_too_little_is_seen(edge: str, payload: dict[str, str]) -> None:
    story = Story()
    move = {"from": "RUNNING", "to": "RETRYABLE", "edge": edge, **payload}
    story.commit(Draft("STATE_TRANSITION", "node", "N1", move))
    assert len(failures(of(story, FailuresHaveClasses))) == 1


# Nested tasks


def calling(*, done: bool) -> Story:
    story = Story()
    story.add("C1", sop=SopCall("card"))
    if done:
        story.finish("C1")
    else:
        story.start("C1")
    return story


@pytest.mark.parametrize(
    ("done", "child", "fails"),
    [
        (True, {"terminal": True, "result": "done"}, False),
        (True, {"terminal": True, "result": {"status": "done_with_gaps"}}, False),
        (True, {"terminal": False, "result": "done"}, True),
        (True, {"terminal": True, "result": ""}, True),
        (True, {"terminal": True, "result": "failed(transient-agent)"}, True),
        (True, None, True),
        (False, {"terminal": False, "result": ""}, False),
        (False, {"terminal": True, "result": "blocked(ask:Q-1)"}, False),
        (False, {"terminal": True, "result": "more or less"}, True),
    ],
)
def test_a_nested_task_is_used_once_it_is_over(
    done: bool,
    child: dict[str, object] | None,
    fails: bool,
) -> None:
    story = calling(done=done)
    name = story.node("C1").child_ref or ""
    facts = DiskFacts(instances={} if child is None else {name: child})
    assert bool(failures(on_disk(story, facts, ChildrenAreOver()))) == fails
