"""Instances within instances, as real processes that are killed, asked and answered."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.nested import (
    ASKING,
    INNER,
    MIDDLE,
    ONE_TASK,
    ROUTES,
    TASK,
    card,
    coordinator_of,
    count,
    events_of,
    instances_of,
    kill_and_wait,
    moves_of,
    only_instance,
    phases_of,
    read_json,
    write_cards,
)
from tests.integration.shell import Done, call, finish, start


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory with the task, its cards and a gate that nobody has opened."""
    write_cards(tmp_path)
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def open_gate(top: Path) -> int:
    """Returns when a command waits behind the gate."""
    return os.open(top / "gate", os.O_WRONLY)


def let_through(gate: int, text: str = "through\n") -> None:
    os.write(gate, text.encode())
    os.close(gate)


def test_an_instance_three_deep_is_one_node_for_each_level(top: Path) -> None:
    run = start("-C", "w", "run", "task.yaml", cwd=str(top))
    let_through(open_gate(top))
    done = finish(run)
    assert (done.code, done.err) == (0, "")
    middle = only_instance(top / "w")
    inner = only_instance(middle)
    assert (top / "w/artifacts/use/used.txt").read_text() == "through\n"
    assert phases_of(inner) == ["intake", "plan", "work", "gather", "verify", "report"]
    assert phases_of(middle) == ["intake", "plan", "work", "verify", "report"]
    for instance, depth, above in ((middle, 2, []), (inner, 3, ["test.middle"])):
        began = events_of(instance)[0]["payload"]
        assert began["parent"].get("depth", 2) == depth
        assert began["parent"].get("sops", []) == above
        assert began["sop"]["version"] == "1.0.0"
        assert read_json(instance / "result.json")["status"] == "done"
    # What the outermost has is a copy that it registered and verified itself (NC-2).
    registry = read_json(top / "w/artifacts/registry.json")
    assert registry["A-survey"]["path"] == "artifacts/survey/second.txt"
    assert call("-C", "w", "verify", cwd=str(top)).code == 0


@pytest.mark.timeout(120)
def test_killed_at_each_level_everything_is_finished_exactly_once(top: Path) -> None:
    workspace = top / "w"
    run = start("-C", "w", "run", "task.yaml", cwd=str(top))
    os.close(open_gate(top))
    middle = only_instance(workspace)
    inner = only_instance(middle)

    # The innermost alone: its parent sees it die, and goes on with the same instance.
    kill_and_wait(coordinator_of(inner))
    wait_for_attempt(top, inner, 2)
    # The one in the middle: what it had started is stopped and goes on below the next.
    kill_and_wait(coordinator_of(middle))
    wait_for_attempt(top, inner, 3)
    # The outermost: the same line again.
    kill_and_wait(coordinator_of(workspace))
    run.communicate(timeout=50)
    run = start("-C", "w", "run", "task.yaml", cwd=str(top))
    wait_for_attempt(top, inner, 4)
    let_through(open_gate(top))
    done = finish(run)
    assert done.code == 0, done.out

    assert instances_of(workspace) == [middle]
    assert instances_of(middle) == [inner]
    assert count(middle / "tmp/before.count") == 1
    assert count(inner / "tmp/first.count") == 1
    for place, node in ((workspace, "survey"), (middle, "call"), (inner, "second")):
        assert moves_of(place, node).count("N06") == 1
    # Whatever was ended of the innermost was ended by us, and failed at nothing.
    ends = [e["payload"] for e in events_of(inner) if e["payload"].get("edge") == "N04"]
    assert len(ends) == 3
    assert all(end["interruption"] for end in ends)
    assert (workspace / "artifacts/use/used.txt").read_text() == "through\n"
    for place in (workspace, middle, inner):
        assert call("-C", str(place), "verify").code == 0


def wait_for_attempt(top: Path, inner: Path, number: int) -> None:
    """Until the command behind the gate is that of this attempt: the former one was ended first."""
    while sum(edge in ("N02", "N11") for edge in moves_of(inner, "second")) < number:
        os.close(open_gate(top))
    os.close(open_gate(top))


def test_questions_travel_up_and_answers_travel_down_two_levels(tmp_path: Path) -> None:
    write_cards(tmp_path, inner=ASKING)
    run = call("-C", "w", "run", "task.yaml", cwd=str(tmp_path))
    assert run.code == 10, run.out
    workspace = tmp_path / "w"
    middle = only_instance(workspace)
    inner = only_instance(middle)
    # It was on record where it arose before anybody waited for it (IO-3), and on each level above.
    result = read_json(inner / "result.json")
    asked = {one["ref"].split("#")[1]: one for one in result["open_questions"]}
    assert set(asked) == {"Q-001", "fit-to-use"}
    assert result["status"] in ("blocked(ask:Q-001)", "blocked(ask:fit-to-use)")
    status = call("-C", "w", "status", "--json", cwd=str(tmp_path)).data
    assert status["nodes"] == {"survey": "BLOCKED", "use": "PENDING"}
    questions = {text: name for name, text in status["questions"].items()}
    assert set(questions) == {"Which one?", "Is it fit to use?"}
    shown = call("-C", "w", "show", questions["Which one?"], "--json", cwd=str(tmp_path)).data
    assert list(shown["options"]) == ["red", "blue"]

    def rule(*words: str) -> None:
        ruled = call("-C", "w", *words, "--actor", "gatekeeper:ann", cwd=str(tmp_path))
        assert ruled.code == 0, ruled.err

    rule("answer", questions["Which one?"], "the red one", "--choice", "red")
    rule("approve", questions["Is it fit to use?"])
    again = call("-C", "w", "run", "task.yaml", cwd=str(tmp_path))
    assert again.code == 0, again.out
    assert instances_of(workspace) == [middle]
    assert instances_of(middle) == [inner]
    assert count(inner / "tmp/second.count") == 1
    rulings = {
        event["payload"]["question_id"]: (event["payload"]["ruling"], event["payload"]["authority"])
        for event in events_of(inner)
        if event["payload"].get("op") == "answer"
    }
    assert rulings == {
        "Q-001": ("answer", "gatekeeper:ann"),
        "fit-to-use": ("approve", "gatekeeper:ann"),
    }
    assert moves_of(inner, "first") == ["N01", "N02", "N05", "N09", "N02", "N03", "N06"]


def write_one(directory: Path, work: str, **more: str) -> None:
    (directory / "one.yaml").write_text(card(work, **more), encoding="utf-8")
    (directory / "task.yaml").write_text(ONE_TASK, encoding="utf-8")


FAILS = """
    - id: make
      run: exit 1
      retry: 1
      outputs: [artifacts/make/made.txt]
"""


def test_a_failure_without_a_way_out_is_told_and_called_anew(tmp_path: Path) -> None:
    suspends = ROUTES.replace("method_switch_or_escalate", "suspend_with_handoff_note")
    write_one(tmp_path, FAILS, routes=suspends)
    run = call("-C", "w", "run", "task.yaml", cwd=str(tmp_path))
    assert run.code == 10, run.out
    workspace = tmp_path / "w"
    first, second = instances_of(workspace)
    for instance in (first, second):
        result = read_json(instance / "result.json")
        assert result["status"] == "failed(transient-agent)"
        assert result["failure"]["route"] == "suspend_with_handoff_note"
        page = (instance / result["handoff_note"]).read_text(encoding="utf-8")
        assert "make: exit 1" in page
        notes = [e for e in events_of(instance) if e["payload"].get("op") == "handoff"]
        assert len(notes) == 1
    # A retry is a fresh invocation, which names what was there before.
    assert "previous" not in read_json(first / "invocation.json")
    assert read_json(second / "invocation.json")["previous"] == first.name
    failures = [e["payload"] for e in events_of(workspace) if e["payload"].get("edge") == "N04"]
    assert {failure["failure_class"] for failure in failures} == {"transient-agent"}
    assert "test.one failed: make: exit 1" in failures[0]["signature"]


def test_what_another_method_could_cure_is_asked_and_goes_on_as_the_same(tmp_path: Path) -> None:
    cured = FAILS.replace(
        "exit 1",
        'echo x >> tmp/tries; test $(wc -l < tmp/tries) = 2 && echo m > "$PERDURE_SCOPE/made.txt"',
    )
    write_one(tmp_path, cured)
    run = call("-C", "w", "run", "task.yaml", cwd=str(tmp_path))
    assert run.code == 10, run.out
    workspace = tmp_path / "w"
    (question,) = call("-C", "w", "status", "--json", cwd=str(tmp_path)).data["questions"]
    answered = call("-C", "w", "answer", question, "again", "--choice", "retry",
                    "--actor", "gatekeeper:ann", cwd=str(tmp_path))  # fmt: skip
    assert answered.code == 0, answered.err
    again = call("-C", "w", "run", "task.yaml", cwd=str(tmp_path))
    assert again.code == 0, again.out
    assert moves_of(only_instance(workspace), "make") == ["N01", "N02", "N04", "N11", "N03", "N06"]
    assert moves_of(workspace, "call") == ["N01", "N02", "N05", "N09", "N02", "N03", "N06"]


GAPPED = """
    - id: make
      run: echo made > "$PERDURE_SCOPE/made.txt"
      outputs: [artifacts/make/made.txt]
    - id: more
      run: exit 65
      outputs: [artifacts/more/more.txt]
"""


def test_gaps_are_questions_of_the_parent_that_hold_nothing(tmp_path: Path) -> None:
    write_one(
        tmp_path, GAPPED, routes=ROUTES.replace("quarantine_and_replan", "decompose_and_report")
    )
    run = call("-C", "w", "run", "task.yaml", "--json", cwd=str(tmp_path))
    workspace = tmp_path / "w"
    assert run.data["counts"] == {"DONE": 1}, run.out
    result = read_json(only_instance(workspace) / "result.json")
    assert result["status"] == "done_with_gaps"
    (gap,) = result["open_questions"]
    assert gap["ref"] == f"{only_instance(workspace).name}#more"
    (text,) = run.data["questions"].values()
    assert text.startswith("call is done with a gap: more could not be done: more: exit 65.")
    assert read_json(workspace / "artifacts/call/result.json") == result


@pytest.mark.parametrize("way", ["out of strikes", "held"])
def test_what_waits_for_a_way_out_is_a_gap_where_the_card_says_so(tmp_path: Path, way: str) -> None:
    retry, code = ("0", "1") if way == "out of strikes" else ("3", "127")
    work = GAPPED.replace("exit 65", f"exit {code}\n      retry: {retry}")
    routes = ROUTES.replace("method_switch_or_escalate", "decompose_and_report")
    write_one(tmp_path, work, routes=routes.replace("block_ask_user", "decompose_and_report"))
    run = call("-C", "w", "run", "task.yaml", "--json", cwd=str(tmp_path))
    assert run.data["counts"] == {"DONE": 1}, run.out
    result = read_json(only_instance(tmp_path / "w") / "result.json")
    assert result["status"] == "done_with_gaps"
    (gap,) = result["open_questions"]
    assert gap["text"].startswith("more could not be done: more: ")
    assert phases_of(only_instance(tmp_path / "w"))[-1] == "report"


MAKES = """
    - id: make
      run: echo made > "$PERDURE_SCOPE/made.txt"
      outputs: [artifacts/make/made.txt]
"""


def refusal_of(directory: Path) -> tuple[str, str]:
    """Code and rule of what a run refuses before anything has started."""
    run = call("-C", "w", "run", "task.yaml", "--json", cwd=str(directory))
    assert run.code not in (0, 1, 10), run.out
    assert '"started"' not in run.out
    assert not (directory / "w/instances").exists()
    assert run.error["fix"]
    return run.error["code"], run.error["rule"]


def test_a_card_that_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    write_one(tmp_path, MAKES)
    (tmp_path / "one.yaml").unlink()
    assert refusal_of(tmp_path)[0] == "sop_unknown"


def test_side_effects_above_those_of_the_node_are_refused(tmp_path: Path) -> None:
    write_one(tmp_path, MAKES, routes="side_effects: [S0, S2]" + ROUTES)
    assert refusal_of(tmp_path) == ("sop_profile", "SC-1")


def test_a_procedure_within_itself_is_refused_also_further_down(tmp_path: Path) -> None:
    middle = MIDDLE.replace("inner.yaml", "again.yaml")
    again = INNER.replace("test.inner", "test.middle")
    write_cards(tmp_path, middle=middle, again=again)
    assert refusal_of(tmp_path) == ("sop_recursion", "AP-N4")


def test_depth_four_is_refused(tmp_path: Path) -> None:
    outer = MIDDLE.replace("test.middle", "test.outer").replace("inner.yaml", "middle.yaml")
    outer = outer.replace("files: [middle.yaml]", "files: [middle.yaml, inner.yaml]")
    task = TASK.replace("./middle.yaml", "./outer.yaml")
    write_cards(tmp_path, outer=outer, task=task)
    assert refusal_of(tmp_path) == ("too_deep", "DP-1")


def test_inputs_that_do_not_fit_the_card_are_refused(tmp_path: Path) -> None:
    write_cards(tmp_path, task=TASK.replace("gate: ./gate", "gates: ./gate"))
    assert refusal_of(tmp_path)[0] == "sop_inputs"


def test_a_child_cannot_write_outside_its_instance(tmp_path: Path) -> None:
    outside = MAKES.replace(
        "echo made >",
        "mkdir -p $PERDURE_WORKSPACE/../../artifacts/evil; echo x > $PERDURE_WORKSPACE/../../evil;"
        " echo x > $PERDURE_WORKSPACE/../../contracts/evil; echo made >",
    )
    write_one(tmp_path, outside)
    run = call("-C", "w", "run", "task.yaml", "--json", cwd=str(tmp_path))
    assert run.code == 0, run.out
    workspace = tmp_path / "w"
    started = next(e for line in run.out.splitlines()
                   if (e := json.loads(line)).get("event") == "started")  # fmt: skip
    if started["enforced"]["writes"] == "policy only":
        pytest.skip("this kernel does not hold a child to its scope")
    assert not list(workspace.rglob("evil"))
    instance = only_instance(workspace).name
    assert f"instances/{instance}" in started["enforced"]["write"]


def test_a_child_runs_no_more_at_once_than_its_parent_may(tmp_path: Path) -> None:
    at_work = "$PERDURE_WORKSPACE/tmp/at-work"
    alone = "".join(
        f"    - id: n{number}\n"
        f"      run: mkdir {at_work} && date > $PERDURE_SCOPE/o && rmdir {at_work}\n"
        "      retry: 1\n"
        for number in range(8)
    )
    write_one(tmp_path, alone + MAKES)
    run = call("-C", "w", "run", "task.yaml", "--jobs", "1", cwd=str(tmp_path))
    assert run.code == 0, run.out


def test_status_shows_the_tree_and_qualified_references_lead_into_it(top: Path) -> None:
    run = start("-C", "w", "run", "task.yaml", cwd=str(top))
    gate = open_gate(top)
    middle = only_instance(top / "w")
    inner = only_instance(middle)
    (entry,) = call("-C", "w", "status", "--json", cwd=str(top)).data["instances"]
    assert (entry["instance"], entry["node"], entry["sop"]) == (
        middle.name, "survey", "test.middle@1.0.0",
    )  # fmt: skip
    (below,) = entry["instances"]
    assert (below["instance"], below["phase"], below["running"]) == (inner.name, "gather", True)
    assert below["counts"] == {"DONE": 1, "RUNNING": 1}
    text = call("-C", "w", "status", cwd=str(top)).out
    assert f"> {inner.name} (call is RUNNING): test.inner@1.0.0, gather, at work" in text
    shown = call("-C", "w", "show", f"{inner.name}#second", "--json", cwd=str(top)).data
    assert (shown["type"], shown["state"]) == ("node", "RUNNING")
    own = call("-C", str(inner), "status", cwd=str(top)).out
    assert f"test.inner 1.0.0, phase gather, for call of {middle.name}" in own
    missing = call("-C", "w", "show", "inv-none#second", "--json", cwd=str(top))
    assert (missing.code, missing.error["code"]) == (3, "unknown_instance")
    let_through(gate)
    assert finish(run).code == 0


def test_a_run_that_is_interrupted_leaves_every_level_at_a_commit_boundary(top: Path) -> None:
    run = start("-C", "w", "run", "task.yaml", cwd=str(top))
    os.close(open_gate(top))
    middle = only_instance(top / "w")
    inner = only_instance(middle)
    run.send_signal(signal.SIGINT)
    assert finish(run).code == 128 + signal.SIGINT
    for place in (inner, middle, top / "w"):
        assert read_json(place / "lease.json")["released"]
        assert events_of(place)[-1]["payload"]["to"] == "SUSPENDED"
        assert not (place / "result.json").exists()
    again = start("-C", "w", "run", "task.yaml", cwd=str(top))
    let_through(open_gate(top))
    assert finish(again).code == 0
    # What was stopped with the run has failed at nothing.
    for place, node in ((top / "w", "survey"), (middle, "call"), (inner, "second")):
        ends = [e["payload"] for e in events_of(place) if e["payload"].get("edge") == "N04"]
        assert all(end["interruption"] for end in ends), (node, ends)


def test_the_root_is_an_instance_like_any_other_and_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        card(MAKES).replace("outputs:", "inputs: [{name: word, schema: text}]\noutputs:", 1),
        encoding="utf-8",
    )

    def sop_run(*words: str) -> Done:
        return call(*words[:2], "sop", "run", "one.yaml", *words[2:], "--json", cwd=str(tmp_path))

    first = call("sop", "run", "one.yaml", "word=a", "--json", cwd=str(tmp_path))
    assert (first.code, first.data["result"]["status"]) == (0, "done")
    workspace = Path(first.data["workspace"])
    assert workspace.parent == tmp_path / ".perdure/tasks"
    assert call("status", "--json", cwd=str(tmp_path)).data["instance"]["phase"] == "report"
    journal = (workspace / "journal.jsonl").read_bytes()
    assert call("sop", "run", "one.yaml", "word=a", "--json", cwd=str(tmp_path)).code == 0
    assert (workspace / "journal.jsonl").read_bytes() == journal
    other = call("sop", "run", "one.yaml", "word=b", "--json", cwd=str(tmp_path))
    assert other.data["workspace"] != str(workspace)
    refused = sop_run("-C", str(workspace), "word=b")
    assert (refused.code, refused.error["code"]) == (4, "other_instance")
    call("init", "plain", cwd=str(tmp_path))
    refused = sop_run("-C", str(tmp_path / ".perdure/tasks/plain"), "word=b")
    assert (refused.code, refused.error["code"]) == (4, "other_instance")
