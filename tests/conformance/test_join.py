"""Section 5 of HALT-07 and PD-J1: what workers leave is joined by content, and by disk alone.

The workers are real processes that do as they are told; the run is the service call behind
``perdure run``.
"""

import errno
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.shard_project import WORKER, ShardProject, task

from perdure.control import shard_worker
from perdure.control.confinement import capability
from perdure.control.executor_port import Order
from perdure.core.batch import inventory_digest
from perdure.core.model import id_key
from perdure.errors import StorageError
from perdure.runtime.world import real_world
from perdure.storage.disk import RealDisk

KEYS = ("u1", "u2", "u3", "u4", "u5")


@pytest.fixture
def project(workspace: str) -> ShardProject:
    return ShardProject(workspace)


def finish(project: ShardProject, text: str, **options: Any) -> None:
    """Run the task to its end, with each unit done once."""
    report = project.run(text, **options)
    assert report["outcome"] == "finished", project.events
    keys = json.loads("[" + text.partition("list: [")[2].partition("]")[0] + "]")
    assert sorted(project.done()) == sorted(keys)
    assert {unit for unit, status in project.ledger() if status == "ok"} == set(keys)


# Contracts and slots


def test_each_worker_gets_its_units_by_name_and_once(project: ShardProject) -> None:
    finish(project, task(*KEYS, shard=2))
    assert project.units_sent() == [["u1", "u2"], ["u3", "u4"], ["u5"]]
    assert sorted(project.begun()) == sorted(KEYS)
    contract = project.slot_contracts()[0]
    assert contract["units"]["total"] == 2
    assert contract["units"]["sha256"] == inventory_digest(["u1", "u2"])
    assert contract["executor_kind"] == "shard"


def test_slot_is_recorded_before_its_worker_begins_and_closed_after_its_units(
    project: ShardProject,
) -> None:
    finish(project, task(*KEYS, shard=2))
    opened, closed = project.ops("slot"), project.ops("slot_closed")
    assert [slot["units"] for slot in opened] == [2, 2, 1]
    assert sorted(slot["id"] for slot in opened) == sorted(slot["id"] for slot in closed)
    assert project.ends() == ["landed"] * 3
    assert project.node("B")["state"] == "DONE"
    for slot in opened:
        assert slot["contract_sha256"]
        assert slot["units_sha256"]


def test_items_that_are_more_than_keys_are_in_the_contract(project: ShardProject) -> None:
    (project.directory / "items.jsonl").write_text(
        '{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n', encoding="utf-8"
    )
    text = task("x").replace('list: ["x"]', "items: items.jsonl\n      key: id")
    assert project.run(text)["outcome"] == "finished"
    assert project.slot_contracts()[0]["units"]["keys"] == [
        {"key": "a", "item": {"id": "a", "n": 1}},
        {"key": "b", "item": {"id": "b", "n": 2}},
    ]
    assert all(len(line["_item"]) == 16 for line in project.lines("findings.jsonl"))


@pytest.mark.skipif(not capability().writes, reason="this kernel has no Landlock")
def test_worker_cannot_write_into_the_findings_of_its_node(project: ShardProject) -> None:
    project.behave(u1=["outside"])
    finish(project, task("u1"))
    [finding] = project.lines("findings.jsonl")
    assert finding["outside"] == "PermissionError"


# Deaths: what is on disk counts, and nothing else


def test_units_before_a_death_stay_and_the_rest_goes_out_with_a_skip_list(
    project: ShardProject,
) -> None:
    project.behave(u2=["kill"])
    finish(project, task("u1", "u2", "u3"))
    assert project.ends() == ["killed", "landed"]
    assert project.units_sent() == [["u1", "u2", "u3"], ["u2", "u3"]]
    assert project.slot_contracts()[1]["skip"] == ["u1"]
    assert project.begun() == ["u1", "u2", "u2", "u3"]
    [death, _] = project.ops("slot_closed")
    assert (death["landed"], death["left"], death["first"]) == (1, 2, False)


def test_success_without_a_file_is_a_silent_death(project: ShardProject) -> None:
    project.behave(u1=["silent"])
    finish(project, task("u1", "u2"))
    assert project.ends() == ["silent", "landed", "landed"]
    [death, *_] = project.ops("slot_closed")
    assert death["first"] is True
    assert "reported success" in death["observation"]


def test_finding_without_its_ledger_line_is_not_complete(project: ShardProject) -> None:
    project.behave(u1=["finding_then_kill"])
    finish(project, task("u1"))
    assert project.begun() == ["u1", "u1"]


def test_half_a_finding_is_not_complete_even_with_its_ledger_line(project: ShardProject) -> None:
    project.behave(u1=["half"])
    finish(project, task("u1"))
    assert project.begun() == ["u1", "u1"]
    assert any("was not finished" in notice for notice in project.notices())
    [death, _] = project.ops("slot_closed")
    assert death["first"] is False, "there was some output"


def test_ledger_line_without_a_finding_is_not_complete(project: ShardProject) -> None:
    project.behave(u1=["ledger_only"])
    finish(project, task("u1", "u2"))
    assert project.begun() == ["u1", "u2", "u1"]


def test_shard_that_landed_nothing_comes_back_in_halves(project: ShardProject) -> None:
    project.behave(u1=["kill"])
    finish(project, task("u1", "u2", "u3", "u4", shard=4), jobs=1)
    assert project.units_sent() == [["u1", "u2", "u3", "u4"], ["u1", "u2"], ["u3", "u4"]]


def test_unit_that_kills_each_worker_fails_alone_and_the_others_are_done(
    project: ShardProject,
) -> None:
    project.behave(u2=["kill"] * 20)
    text = task(*KEYS, more="max_attempts: 2\n", shard=5) + "    retry: 1\n"
    report = project.run(text)
    assert report["outcome"] != "finished"
    assert sorted(project.done()) == ["u1", "u3", "u4", "u5"]
    assert ("u2", "fail") in project.ledger()


def test_death_of_a_worker_is_no_failure_of_its_units(project: ShardProject) -> None:
    project.behave(u1=["kill"], u2=["ok"])
    finish(project, task("u1", "u2", more="max_attempts: 1\n", shard=2))


class FullDisk(RealDisk):
    """Has no room left for more than what is there."""

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        if path.endswith("/room"):
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise StorageError.from_os(full, path, "Writing")
        super().replace(path, data, durable=durable)


def test_full_disk_is_not_laid_to_the_charge_of_a_worker(project: ShardProject) -> None:
    project.behave(u1=["kill"])
    finish(project, task("u1", "u2"), world=real_world()._replace(disk=FullDisk()))
    assert project.ends() == ["abandoned", "landed"], "no death among them"
    [failure] = project.node("B")["failures"]
    assert failure["failure_class"] == "transient-environment"
    assert "ENOSPC" in failure["signature"]


def test_unit_that_a_worker_gives_up_is_tried_again_within_its_limit(
    project: ShardProject,
) -> None:
    project.behave(u2=["fail"])
    finish(project, task("u1", "u2"))
    assert project.begun() == ["u1", "u2", "u2"]
    assert project.ends() == ["landed", "landed"]


def test_unit_that_fails_as_often_as_it_may_fails_the_attempt_by_name(
    project: ShardProject,
) -> None:
    project.behave(u2=["fail"] * 9)
    text = task("u1", "u2", more="max_attempts: 1\n") + "    retry: 1\n"
    project.run(text)
    assert project.done() == ["u1"]
    assert ("u2", "fail") in project.ledger()
    assert any("u2" in str(event.get("why")) for event in project.told("failed"))


def test_finding_against_the_schema_is_a_failure_of_its_unit(project: ShardProject) -> None:
    project.behave(u1=["bad_finding"])
    schema = "schema: {type: object, properties: {size: {type: integer}}, required: [size]}\n"
    finish(project, task("u1", "u2", more=schema))
    assert project.begun() == ["u1", "u2", "u1"]
    assert {line["_key"]: line["size"] for line in project.lines("findings.jsonl")}["u1"] == 2


def test_finding_for_a_unit_of_others_counts_for_nothing(project: ShardProject) -> None:
    project.behave(u1=["foreign"])
    finish(project, task("u1"))
    assert any("was not given: stranger" in notice for notice in project.notices())


def test_file_that_a_unit_names_is_kept_in_a_place_of_its_own(project: ShardProject) -> None:
    project.behave(u1=["artifact"])
    finish(project, task("u1"))
    [line] = project.lines("ledger.jsonl")
    path = Path(project.workspace) / line["artifact"]
    assert path.read_text(encoding="utf-8") == "of u1"
    assert path.is_relative_to(Path(project.workspace) / "artifacts/B/files")


def test_unit_whose_file_is_missing_is_not_complete(project: ShardProject) -> None:
    project.behave(u1=["no_artifact"])
    finish(project, task("u1"))
    assert project.begun() == ["u1", "u1"]


def test_leftover_of_a_worker_is_stopped_and_named_and_its_slot_closes(
    project: ShardProject,
) -> None:
    project.behave(u1=["fork"])
    finish(project, task("u1"))
    [told] = project.told("leftovers")
    assert [name for _, name in told["processes"]] == ["sleep"]
    assert project.ends() == ["landed"]


# The unit that goes first


def test_one_unit_goes_first_and_the_others_follow_when_it_is_done(project: ShardProject) -> None:
    finish(project, task(*KEYS, more="smoke: true\n", shard=2), jobs=4)
    assert project.units_sent()[0] == ["u1"]
    [first, *_] = project.ops("slot_closed")
    order = [event.payload.get("op") for event in project.journal()]
    assert order.index("slot_closed") < [i for i, op in enumerate(order) if op == "slot"][1]
    assert first["end"] == "landed"


def test_unit_that_goes_first_and_fails_ends_the_attempt(project: ShardProject) -> None:
    project.behave(u1=["fail"] * 9)
    text = task(*KEYS, more="smoke: true\n") + "    retry: 1\n"
    project.run(text)
    assert set(project.begun()) == {"u1"}
    assert any("smoke test failed" in str(event.get("why")) for event in project.told("failed"))


def test_smoke_holds_for_a_command_for_each_unit_as_well(project: ShardProject) -> None:
    text = task(*KEYS, more="smoke: true\n").replace("      shard: 3\n", "")
    text = text.split("      run:")[0] + "      run: exit 3\n      smoke: true\n"
    report = project.run(text + "    retry: 1\n", jobs=4)
    assert report["outcome"] != "finished"
    [failed, *_] = project.told("failed")
    assert failed["why"].startswith("smoke test failed: exit 3")


# A worker's surroundings


def test_program_that_is_not_there_ends_the_attempt_at_once(project: ShardProject) -> None:
    text = task("u1").split("      run:")[0] + "      run: [no-such-program-here]\n      shard: 2\n"
    report = project.run(text)
    assert report["outcome"] != "finished"
    assert not project.ops("slot")


def test_worker_that_cannot_be_started_leaves_no_open_slot(
    project: ShardProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = shard_worker.start_order, list[str]()

    def start_the_second(engine: Any, executor: Any, order: Order, **more: Any) -> Any:
        if not refused:
            refused.append(order.invocation)
            raise StorageError("its log cannot be opened.", code="io_error", fix="Look at it.")
        return start(engine, executor, order, **more)

    monkeypatch.setattr(shard_worker, "start_order", start_the_second)
    finish(project, task("u1"))
    [closed, _] = project.ops("slot_closed")
    assert [closed["id"]] == refused
    assert closed["end"] == "abandoned"
    assert closed["text"].startswith("it could not be started")


def test_workers_are_held_to_the_budget_of_their_node(
    project: ShardProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"type": "result", "subtype": "success", "is_error": False, "total_cost_usd": 1.5}
    agent = project.directory / "bin" / "claude"
    agent.parent.mkdir()
    work, tell = shlex.join([sys.executable, str(WORKER)]), shlex.quote(json.dumps(said))
    agent.write_text(f"#!/bin/sh\n{work} && echo {tell}\n", encoding="utf-8")
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{agent.parent}{os.pathsep}{os.environ['PATH']}")
    text = task(*KEYS, shard=1).split("      run:")[0] + "      agent: claude\n      shard: 1\n"
    report = project.run(text + "    budget: {cost_usd: 2}\n    retry: 1\n", jobs=1)
    assert report["outcome"] != "finished"
    [failed, *_] = project.told("failed")
    assert failed["why"].startswith("budget spent: ")
    assert project.begun() == ["u1", "u2"]


def test_units_too_long_for_one_contract_are_split(project: ShardProject) -> None:
    lines = "".join(json.dumps({"id": f"u{n}", "text": "x" * 60_000}) + "\n" for n in range(1, 9))
    (project.directory / "items.jsonl").write_text(lines, encoding="utf-8")
    text = task("x", shard=8).replace('list: ["x"]', "items: items.jsonl\n      key: id")
    assert project.run(text)["outcome"] == "finished"
    assert sorted(project.done()) == [f"u{n}" for n in range(1, 9)]
    assert all(len(units) <= 4 for units in project.units_sent())


def test_mode_of_dispatch_follows_the_workers(project: ShardProject) -> None:
    keys = [f"u{n}" for n in range(1, 13)]
    project.behave(**{key: ["kill"] for key in keys[:4]})
    finish(project, task(*keys, shard=1), jobs=1)
    modes = [payload["mode"] for payload in project.ops("mode")]
    assert modes[0] == "B"
    assert project.ends().count("killed") == 4
    assert project.node("B")["state"] == "DONE"


def test_wall_of_the_environment_halts_dispatch_and_a_probe_leads_out(
    project: ShardProject,
) -> None:
    keys = [f"u{n}" for n in range(1, 7)]
    project.behave(u1=["lose_the_network", "lose_the_network"])
    finish(project, task(*keys, more="max_attempts: 1\n", shard=1), jobs=1)
    modes = [(payload["mode"], payload.get("probing", False)) for payload in project.ops("mode")]
    assert ("C", False) in modes
    assert modes.index(("C", True)) < modes.index(("A", False))
    deaths = [end for end in project.ops("slot_closed") if end["end"] == "failed"]
    assert {death["cause"] for death in deaths} == {"network"}


def test_lost_login_ends_the_attempt_with_a_question_to_a_person(project: ShardProject) -> None:
    project.behave(u1=["lose_the_login"] * 9)
    report = project.run(task(*KEYS, shard=2), jobs=1)
    assert report["outcome"] != "finished"
    assert project.node("B")["state"] == "BLOCKED"
    assert len(project.ops("slot")) == 1, "nobody else is sent against the same wall"


# What is left of former attempts


def interrupt_at(project: ShardProject, key: str) -> Callable[..., None]:
    """Interrupts the run once a worker hangs at this unit."""
    begun = threading.Event()

    def wait(interrupt: Callable[[int], None]) -> None:
        path = Path(f"{project.workspace}/tmp/hangs-{key}")
        give_up_at = time.monotonic() + 40
        while not path.exists() and time.monotonic() < give_up_at:
            begun.wait(0.005)
        interrupt(15)

    def on(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "started":
            threading.Thread(target=wait, args=(interrupt,)).start()

    return on


def test_units_that_landed_before_an_interruption_are_not_done_again(
    project: ShardProject,
) -> None:
    project.behave(u2=["hang"])
    text = task("u1", "u2", "u3")
    project.run(text, on=interrupt_at(project, "u2"))
    assert project.ends() == ["recalled"]
    assert project.done() == ["u1"]
    finish(project, text)
    assert project.begun() == ["u1", "u2", "u2", "u3"]
    assert project.node("B").get("strikes", 0) == 0


def late(project: ShardProject, invocation: str, key: str, **more: Any) -> None:
    """What a worker brings that everybody takes for dead."""
    directory = project.shard_dir(invocation)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "findings.jsonl").open("a", encoding="utf-8") as findings:
        findings.write(json.dumps({"_key": key} | more) + "\n")
    with (directory / "ledger.jsonl").open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps({"unit_id": key, "status": "ok"}) + "\n")


def test_late_output_of_a_dead_worker_is_judged_and_counts(project: ShardProject) -> None:
    project.behave(u1=["kill"])

    def on(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "slot_died":
            late(project, event["slot"], "u1", late=True)

    # Its unit waits for the next round, so that nobody else brings it meanwhile.
    report = project.run(task("u1", "u2", shard=1), on=on, jobs=1)
    assert report["outcome"] == "finished"
    [noted] = project.ops("late_output")
    assert noted["landed"] == 1
    assert project.begun().count("u1") == 1
    assert [line for line in project.lines("findings.jsonl") if line.get("late")]


def test_of_two_former_workers_with_one_unit_the_lower_id_counts_and_the_other_is_told(
    project: ShardProject,
) -> None:
    project.behave(u1=["kill", "hang"])
    text = task("u1", "u2", shard=1)
    project.run(text, on=interrupt_at(project, "u1"), jobs=1)
    sent = zip(project.ops("slot"), project.units_sent(), strict=True)
    both = sorted((slot["id"] for slot, units in sent if units == ["u1"]), key=id_key)
    assert len(both) == 2
    for size, name in enumerate(both, 11):
        late(project, name, "u1", size=size)
    finish(project, text)
    assert {line["_key"]: line["size"] for line in project.lines("findings.jsonl")}["u1"] == 11
    assert any("u1 came twice with different findings" in told for told in project.notices())


def test_late_output_of_an_attempt_that_is_over_is_set_aside(project: ShardProject) -> None:
    project.behave(u1=["ok"], u2=["hang"])
    text = task("u1", "u2", "u3")
    project.run(text, on=interrupt_at(project, "u2"))
    [old] = [slot["id"] for slot in project.ops("slot")]

    def on(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "shards_adopted":
            late(project, old, "u3", size=99)

    finish(project, text, on=on)
    [noted] = project.ops("late_output")
    assert noted["landed"] == 0
    assert (Path(project.workspace) / noted["set_aside"] / "findings.jsonl").exists()
    assert {line["_key"]: line["size"] for line in project.lines("findings.jsonl")}["u3"] == 2


def test_rt_3_output_that_still_comes_into_a_sealed_directory_is_told_once_and_counts_nothing(
    project: ShardProject,
) -> None:
    project.behave(u2=["hang"])
    text = task("u1", "u2", "u3")
    project.run(text, on=interrupt_at(project, "u2"))
    [old] = [slot["id"] for slot in project.ops("slot")]
    sealed = Path(project.workspace) / "artifacts/B/shards-closed/1" / old / "findings.jsonl"

    def on(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "shards_adopted":
            with sealed.open("a", encoding="utf-8") as findings:  # as a file that was open would
                findings.write('{"_key": "u3", "size": 99}\n')

    finish(project, text, on=on)
    [noted] = project.ops("late_output")
    assert (noted["id"], noted["landed"]) == (old, 0)
    assert noted["set_aside"] == f"artifacts/B/shards-closed/1/{old}"
    assert any(noted["set_aside"] in notice for notice in project.notices())
    assert {line["_key"]: line["size"] for line in project.lines("findings.jsonl")}["u3"] == 2


def test_never_skip_counts_nothing_of_former_workers(project: ShardProject) -> None:
    project.behave(u2=["hang"])
    text = task("u1", "u2") + "    resume: never_skip\n"
    project.run(text, on=interrupt_at(project, "u2"))
    finish(project, text)
    assert project.begun().count("u1") == 2


def test_amended_worker_starts_from_nothing(project: ShardProject) -> None:
    project.behave(u2=["hang"])
    text = task("u1", "u2")
    project.run(text, on=interrupt_at(project, "u2"))
    finish(project, text.replace('shard_worker.py"]', 'shard_worker.py", more]'))
    assert project.begun().count("u1") == 2
    assert not project.service.status().get("slots")


def test_other_shard_size_keeps_what_is_done(project: ShardProject) -> None:
    project.behave(u2=["hang"])
    project.run(task("u1", "u2", "u3"), on=interrupt_at(project, "u2"))
    finish(project, task("u1", "u2", "u3", shard=1))
    assert project.begun().count("u1") == 1
    assert project.units_sent()[1:] == [["u2"], ["u3"]]


def test_failed_verdict_leaves_nothing_that_workers_had_brought(project: ShardProject) -> None:
    check = "    accept:\n      - script: test -e $PERDURE_TASK_DIR/well\n"

    def on(event: dict[str, Any], interrupt: Callable[[int], None]) -> None:
        if event["event"] == "failed":
            (project.directory / "well").touch()

    project.behave(u2=["kill"])
    finish(project, task("u1", "u2") + check, on=on)
    assert project.begun().count("u1") == 2
    assert not project.ops("late_output")
