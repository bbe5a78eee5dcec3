"""Secrets never come into the files of a workspace, and what is folded is what was written."""

import json
import os
from typing import Any

import pytest
from tests.crash.disk import Fuse, Killed
from tests.crash.machine import Machine, check_live_equals_replayed, replay

from perdure.errors import RefusedError
from perdure.runtime.calls import ingest, perform
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.masking import declared_secrets, declaring, mask_message, masker_of
from perdure.storage import spool

TOKEN = "ghp_" + "aB3dE5fG7h" * 3 + "iJ9kL1"
MARK = "[masked:github-token]"
FILE = "steering/write-here.md"


@pytest.fixture
def machine(workspace: str) -> Machine:
    machine = Machine(f"{workspace}/w")
    machine.boot_process()
    return machine


def everything(machine: Machine) -> bytes:
    """All bytes of all files, names included."""
    found = []
    for name in machine.file_names():
        with open(name, "rb") as file:
            found += [os.path.relpath(name, machine.root).encode(), file.read()]
    assert len(found) > 4
    return b"\n".join(found)


def test_a_commit_is_masked_and_says_so(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.note(f"it printed {TOKEN} and {TOKEN}")
    event = runtime.events()[-1]
    assert event.payload["text"] == f"it printed {MARK} and {MARK}"
    assert event.payload["masked"] == {"github-token": 2}
    assert runtime.state.masked == {"github-token": 2}
    check_live_equals_replayed(machine, runtime)
    runtime.close()
    assert TOKEN.encode() not in everything(machine)


def test_a_commit_without_a_secret_says_nothing_of_masks(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.note("see https://example.org/a?b=c of task-plan, with a sk-etch")
    assert "masked" not in runtime.events()[-1].payload
    assert runtime.state.masked == {}


def test_a_batch_is_folded_as_it_is_written(machine: Machine) -> None:
    runtime = machine.open("T")
    with runtime.batch():
        runtime.note(f"one {TOKEN}")
        runtime.note("two")
        runtime.note(f"three {TOKEN}")
    assert runtime.state.masked == {"github-token": 2}
    check_live_equals_replayed(machine, runtime)
    assert TOKEN.encode() not in machine.journal()


@pytest.mark.parametrize(
    "spec",
    [
        {"run": f"curl -H 'X: {TOKEN}' host"},
        {"run": ["curl", TOKEN]},
        {"run": "true", "env": {"KEY": TOKEN}},
        {"agent": {"agent": "claude", "args": ["--key", TOKEN]}},
        {"python": {"call": "m:f", "args": {"key": TOKEN}}},
        {"outputs": [f"artifacts/N1/{TOKEN}.txt"]},
    ],
)
def test_what_would_be_run_with_a_secret_in_it_is_refused(
    machine: Machine, spec: dict[str, Any]
) -> None:
    runtime = machine.open("T")
    before = machine.journal()
    with pytest.raises(RefusedError) as caught:
        perform(runtime.engine, "add", {"node": "N1", "spec": spec})
    assert (caught.value.code, caught.value.rule) == ("secret_in_spec", "SE-1")
    assert "N1: spec" in caught.value.message
    assert "variable" in caught.value.fix
    assert TOKEN not in caught.value.message
    assert machine.journal() == before


def test_what_a_node_is_told_in_words_is_masked(machine: Machine) -> None:
    runtime = machine.open("T")
    perform(runtime.engine, "add", {"node": "N1", "spec": {"goal": f"use {TOKEN}", "run": "true"}})
    assert runtime.node("N1").spec.goal == f"use {MARK}"
    perform(runtime.engine, "amend", {"node": "N1", "reason": TOKEN, "spec": {"goal": "other"}})
    assert TOKEN.encode() not in machine.journal()
    check_live_equals_replayed(machine, runtime)


def test_an_artifact_with_a_secret_for_a_name_is_refused(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    runtime.start("N1")
    machine.write(f"artifacts/N1/{TOKEN}.txt", b"x")
    with pytest.raises(RefusedError) as caught:
        runtime.submit("N1")
    assert caught.value.code == "secret_in_path"
    assert TOKEN.encode() not in machine.journal()


def test_an_id_with_a_secret_for_a_name_is_refused(machine: Machine) -> None:
    runtime = machine.open("T")
    before = machine.journal()
    for args in ({"node": TOKEN, "spec": {}}, {"node": TOKEN, "spec": {"goal": "g"}}):
        with pytest.raises(RefusedError) as caught:
            perform(runtime.engine, "add", args)
        assert (caught.value.code, caught.value.rule) == ("secret_in_id", "SE-1")
        assert TOKEN not in caught.value.message
    assert machine.journal() == before


def test_a_task_with_a_secret_for_a_name_leaves_nothing_behind(workspace: str) -> None:
    with pytest.raises(RefusedError) as caught:
        HaltRuntime(f"{workspace}/new", TOKEN)
    assert caught.value.code == "secret_in_id"
    assert os.listdir(workspace) == []


def test_an_operation_with_a_secret_for_a_name_is_refused(machine: Machine) -> None:
    runtime = machine.open("T")
    before = machine.journal()
    with pytest.raises(RefusedError) as caught:
        perform(runtime.engine, "note", {"text": "x"}, op=f"op-{TOKEN}")
    assert caught.value.code == "secret_in_id"
    assert machine.journal() == before


def test_a_document_with_a_secret_for_a_name_is_refused(machine: Machine) -> None:
    runtime = machine.open("T")
    machine.write(f"tmp/{TOKEN}.md", b"x")
    before = machine.journal()
    args = {"path": f"tmp/{TOKEN}.md", "purpose": "draft", "directory": machine.root}
    with pytest.raises(RefusedError) as caught:
        perform(runtime.engine, "doc", args)
    assert caught.value.code == "secret_in_path"
    assert machine.journal() == before


def test_the_same_words_with_a_secret_are_the_same_instruction(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    args = {"text": f"use {TOKEN}", "id": "ST-1", "reading": "amendment"}
    first = perform(runtime.engine, "steer", args, op="op-a")
    assert first["masked"] == {"github-token": 1}
    (event,) = [e for e in runtime.events() if e.kind == "STEERING_LOGGED"]
    assert event.payload["verbatim"] == f"use {MARK}"
    assert event.payload["masked"] == {"github-token": 1}
    before = runtime.seq_last
    perform(runtime.engine, "steer", args, op="op-b")
    assert runtime.seq_last == before, "said again"
    assert perform(runtime.engine, "steer", args, op="op-a")["repeated"]
    assert TOKEN.encode() not in everything(machine)
    check_live_equals_replayed(machine, runtime)


def test_a_message_in_the_drop_box_is_masked_and_its_mask_is_recorded(machine: Machine) -> None:
    runtime = machine.open("T")
    said = mask_message(masker_of(runtime.engine), "note", {"text": f"saw {TOKEN}"})
    assert said == {"text": f"saw {MARK}", "masked": {"github-token": 1}}
    message = spool.Message("m1", "note", said, "executor:main", machine.clock.now())
    spool.drop(machine.disk, runtime.engine.layout, message)
    with runtime.engine.writing():
        ingest(runtime.engine)
    (event,) = [e for e in runtime.events() if e.kind == "NOTE" and "masked" in e.payload]
    assert event.payload["masked"] == {"github-token": 1}
    assert runtime.state.masked == {"github-token": 1}


def test_a_mask_is_counted_in_the_commit_of_its_own_call(machine: Machine) -> None:
    runtime = machine.open("T")
    for number, text in enumerate(("plain", f"theirs {TOKEN}")):
        message = spool.Message(f"m{number}", "note", {"text": text}, "executor:main", number + 1.0)
        spool.drop(machine.disk, runtime.engine.layout, message)
    machine.clock.advance(1.0)
    perform(runtime.engine, "note", {"text": f"ours {TOKEN} {TOKEN}"})
    said = {e.payload["text"]: e.payload.get("masked") for e in runtime.events()[-3:]}
    assert said == {
        "plain": None,
        f"theirs {MARK}": {"github-token": 1},
        f"ours {MARK} {MARK}": {"github-token": 2},
    }
    check_live_equals_replayed(machine, runtime)


def test_a_message_that_would_run_a_secret_never_comes_into_the_drop_box(machine: Machine) -> None:
    masker = masker_of(machine.open("T").engine)
    for args in (
        {"node": "N1", "spec": {"run": TOKEN}},
        {"node": "N1", "into": [{"node": "A", "title": "a", "spec": {"run": ["x", TOKEN]}}]},
    ):
        with pytest.raises(RefusedError) as caught:
            mask_message(masker, "amend", args)
        assert caught.value.code == "secret_in_spec"
    words = mask_message(masker, "amend", {"node": "N1", "reason": TOKEN, "spec": {"goal": TOKEN}})
    assert TOKEN not in json.dumps(words)


def test_a_file_of_instructions_is_masked_where_it_is_kept(machine: Machine) -> None:
    machine.open("T").close()
    machine.boot_process()
    machine.write(FILE, f"log in with {TOKEN}\n".encode())
    runtime = machine.open()
    (event,) = [e for e in runtime.events() if e.kind == "STEERING_LOGGED"]
    assert event.payload["verbatim"] == f"log in with {MARK}\n"
    assert event.payload["masked"] == {"github-token": 1}
    runtime.close()
    assert TOKEN.encode() not in everything(machine)


def test_a_death_at_any_step_of_taking_a_secret_in_leaves_one_masked_instruction(
    workspace: str,
) -> None:
    for step in range(1, 80):
        machine = Machine(f"{workspace}/w{step}")
        machine.boot_process()
        machine.open("T").close()
        machine.boot_process()
        machine.write(FILE, f"log in with {TOKEN}\n".encode())
        machine.boot_process(Fuse(step, "after"))
        try:
            machine.open().close()
            done = True
        except Killed:
            done = False
        machine.kill_process()
        machine.boot_process()
        runtime = machine.open()
        logged = [e for e in runtime.events() if e.kind == "STEERING_LOGGED"]
        assert [e.payload["verbatim"] for e in logged] == [f"log in with {MARK}\n"], step
        runtime.close()
        assert TOKEN.encode() not in everything(machine), step
        if done:
            assert step > 10
            return
    raise AssertionError("it has more steps than were tried")


def test_a_contract_holds_no_secret_of_an_older_journal(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "say prod-value-77")
    environment = {**runtime.engine.world.environment, "PERDURE_SECRETS": "KEY"}
    environment["KEY"] = "prod-value-77"
    runtime.engine.world = runtime.engine.world._replace(environment=environment)
    runtime.start("N1")
    folder = f"{machine.root}/contracts"
    for name in os.listdir(folder):
        assert b"prod-value-77" not in (machine.bytes_of(f"contracts/{name}") or b"")
    assert masker_of(runtime.engine).mask_text("prod-value-77")[0] == "[masked:KEY]"


def test_a_task_names_its_secrets_and_the_journal_keeps_the_names(machine: Machine) -> None:
    environment = {"KEY": "hunter22", "OTHER": "unrelated"}
    world = machine.world()._replace(environment=environment)
    runtime = HaltRuntime(
        machine.root, "T", world=world, source={"secrets": ["KEY"]}, goal="with hunter22"
    )
    runtime.note("unrelated hunter22")
    assert declared_secrets(runtime.engine) == {"KEY": "hunter22"}
    assert declaring(runtime.engine) == {"PERDURE_SECRETS": "KEY"}
    assert runtime.events()[-1].payload["text"] == "unrelated [masked:KEY]"
    assert runtime.state.goal_statement == "with [masked:KEY]"
    assert runtime.state.masked == {"KEY": 2}
    runtime.close()
    assert b"hunter22" not in machine.journal()
    assert replay(machine.root)[0].source["secrets"] == ["KEY"]
