"""Checks may take long: nobody is locked out meanwhile, and nobody's word is written over."""

import sys

import pytest
from tests.integration.shell import call

from perdure import CheckFailedError, HaltRuntime, TransitionError

PERDURE = f"{sys.executable} -m perdure"


def begin(workspace: str, check: str) -> None:
    """A task whose node N1 is at work, and is checked by this command."""
    assert call("-C", workspace, "init", "T1").code == 0
    added = call(
        "-C", workspace, "add", "N1", "First", "--output", "none", "--accept", f"script: {check}"
    )
    assert added.code == 0, added.err
    assert call("-C", workspace, "start", "N1").code == 0


def notes(workspace: str) -> list[str]:
    events = call("-C", workspace, "log", "--limit", "100", "--json").data["events"]
    return [event["payload"]["text"] for event in events if event["kind"] == "NOTE"]


@pytest.mark.parametrize("how", ["submit", "check"])
def test_others_write_while_a_check_runs(workspace: str, how: str) -> None:
    begin(workspace, f"{PERDURE} note 'said by the check'")
    if how == "check":
        assert call("-C", workspace, "submit", "N1", "--no-check").code == 0
    done = call("-C", workspace, how, "N1")
    assert (done.code, done.err) == (0, "")
    assert notes(workspace) == ["said by the check"]


@pytest.mark.parametrize("how", ["submit", "check"])
def test_verdict_on_a_node_that_was_settled_meanwhile_is_refused(workspace: str, how: str) -> None:
    begin(workspace, f"{PERDURE} --actor coordinator:ada cancel N1 --reason 'not wanted any more'")
    if how == "check":
        assert call("-C", workspace, "submit", "N1", "--no-check").code == 0
    done = call("-C", workspace, how, "N1", "--json")
    assert done.code == 4
    assert (done.error["code"], done.error["rule"]) == ("illegal_transition", "N06")
    assert "became CANCELLED while it was being checked" in done.error["message"]
    assert call("-C", workspace, "show", "N1", "--json").data["state"] == "CANCELLED"
    assert call("-C", workspace, "verify").code == 0


def test_coordinator_that_checks_can_be_left_a_message(workspace: str) -> None:
    with HaltRuntime(f"{workspace}/w", "T1") as runtime:
        runtime.add_node(
            "N1", "First", outputs="none", accept=f"script: {PERDURE} note 'said by the check'"
        )
        runtime.start("N1")
        runtime.transition("N1", "VERIFYING", ["J-1"])
        runtime.transition("N1", "DONE", ["J-1"])
        assert runtime.node("N1").state == "DONE"
    assert notes(f"{workspace}/w") == ["said by the check"]


def test_check_that_fails_leaves_a_transition_where_it_was(workspace: str) -> None:
    with HaltRuntime(f"{workspace}/w", "T1") as runtime:
        runtime.add_node("N1", "First", outputs="none", accept="script: exit 3")
        runtime.start("N1")
        runtime.transition("N1", "VERIFYING", ["J-1"])
        with pytest.raises(CheckFailedError):
            runtime.transition("N1", "DONE", ["J-1"])
        assert runtime.node("N1").state == "VERIFYING"
        with pytest.raises(TransitionError):
            runtime.transition("N1", "READY")
