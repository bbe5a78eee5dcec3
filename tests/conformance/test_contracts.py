"""Contracts: self-contained, generated, checked by their generator, and taken back in sight."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
import msgspec
import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.core.actions import AgentCall, PythonCall
from perdure.core.batch import inventory_digest
from perdure.core.contract import Contract, InstanceOrder, contract_schema
from perdure.core.dispatch_commands import OpenSlot
from perdure.core.model import Budget, Criterion, MapSpec, Node, Spec, contract_bytes_max
from perdure.errors import RefusedError, StorageError, UsageError
from perdure.runtime import work
from perdure.runtime.contract_file import Planned
from perdure.runtime.contracts import (
    Terms,
    Units,
    issue_audit_contract,
    issue_slot_contract,
)

LANDLOCK = {"writes": "landlock", "network": "landlock (TCP)", "abi": 6}


def document(host: Host, invocation: str | None) -> dict[str, Any]:
    """A contract as its executor reads it; it is what the published schema says."""
    found = json.loads(host.read(f"contracts/{invocation}.json"))
    jsonschema.validate(found, contract_schema())
    return dict(found)


def batch_at_work(rt: HaltRuntime, keys: Sequence[str] = "abcd", **more: Any) -> Node:
    batch = MapSpec(run=("tool",), list=tuple(keys), shard=2, **more)
    rt.add_node("B", "many", spec=Spec(map=batch, budget=Budget(max_cost_usd=1.0)))
    counted = {"total": len(keys), "sha256": inventory_digest(keys)}
    work.start(rt.engine, "B", units=lambda node: Units(counted, 0))
    return rt.node("B")


def units(keys: Sequence[str]) -> list[Mapping[str, Any]]:
    return [{"key": key, "item": {"path": f"{key}.txt"}} for key in keys]


def plan(keys: Sequence[str]) -> Planned:
    return Planned(len(keys), inventory_digest(keys))


def test_pd_c1_a_contract_holds_all_that_its_executor_needs(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N0", "before", outputs=["artifacts/N0/a.txt"])
    rt.start("N0")
    host.write("artifacts/N0/a.txt")
    rt.submit("N0")
    spec = Spec(
        goal="sum it up",
        inputs=("shared/notes.txt",),
        outputs=("artifacts/N1/sum.md",),
        acceptance_criteria=(Criterion("nonempty", {"path": "artifacts/N1/sum.md"}),),
        constraints=("be brief",),
        budget=Budget(max_wall_s=7200.0, max_tokens=1000),
        python=PythonCall("sum:main", {"n": 1}),
    )
    rt.add_node("N1", "sum", deps=["N0"], spec=spec)
    rt.start("N1")
    found = document(host, rt.node("N1").invocation)
    inputs = [{"path": "artifacts/N0/a.txt", "artifact_id": "A-N0"}, {"path": "shared/notes.txt"}]
    assert found["parent"] == {"task_id": "T1", "node_id": "N1", "goal": "g"}
    assert found["inputs"] == inputs
    assert found["outputs"] == ["artifacts/N1/sum.md"]
    assert found["acceptance"][0]["check"] == "nonempty"
    assert found["python"] == {"call": "sum:main", "args": {"n": 1}}
    assert found["executor_kind"] == "python"
    assert found["budget"] == {"max_wall_s": 7200.0, "max_wall_hours": 2.0, "max_tokens": 1000}
    assert found["message"] == (
        f"Read contracts/{found['invocation_id']}.json and carry it out;"
        " everything you need is in it."
    )
    assert found["recall"] == f"contracts/{found['invocation_id']}.recalled"
    assert any(found["recall"] in text for text in found["constraints"])
    assert any("skeleton" in text for text in found["constraints"])
    assert any("asking" in text for text in found["constraints"])
    assert found["constraints"][-1] == "be brief"
    [start] = [event for event in rt.events() if event.payload.get("edge") == "N02"][-1:]
    assert start.payload["budget"] == {"max_wall_s": 7200.0, "max_tokens": 1000}


def test_pd_c1_where_to_write_is_said_as_it_is_granted(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.add_node("N2", "second", spec=Spec(outputs=("shared/b.txt",), grants=("network:read",)))
    rt.add_node("N3", "third", spec=Spec(outputs=(), grants=("network:read",)))
    for name in ("N1", "N2", "N3"):
        rt.start(name)
    told = [document(host, rt.node(name).invocation) for name in ("N1", "N2", "N3")]
    assert [contract["constraints"][0] for contract in told] == [
        "Write only below artifacts/N1/ and tmp/.",
        "Write only below artifacts/N2/ and tmp/, and what authority_grants lists besides.",
        "Write only below artifacts/N3/ and tmp/.",
    ]
    assert "write:shared/b.txt" in told[1]["authority_grants"]


def test_a_contract_says_what_holds_its_executor(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.add_node("N2", "second")
    rt.start("N1")
    terms = Terms(
        enforcement=LANDLOCK,
        wall_s=60.0,
        instance=InstanceOrder("instances/inv-1"),
    )
    work.start(rt.engine, "N2", terms=terms, payload={"child_ref": "inv-1"})
    plain, told = (document(host, rt.node(name).invocation) for name in ("N1", "N2"))
    assert plain["enforcement"] == {"writes": "policy only", "network": "policy only"}
    assert plain["executor_kind"] == "session"
    assert told["enforcement"] == LANDLOCK
    assert told["budget"]["max_wall_s"] == 60.0
    assert told["instance"] == {"directory": "instances/inv-1", "previous": ""}
    [start] = [event for event in rt.events() if event.payload.get("edge") == "N02"][-1:]
    assert start.payload["child_ref"] == "inv-1"
    assert start.payload["budget"] == {"max_wall_s": 60.0}


def test_a_person_can_hold_a_contract_that_a_run_issues(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    terms = Terms(holder="executor:ann", ttl_s=3600.0)
    work.start(rt.engine, "N1", terms=terms)
    [contract] = rt.state.contracts.values()
    assert (contract.executor.actor, contract.executor.kind) == ("executor:ann", "session")
    assert contract.expires_at == contract.issued_at + 3600.0
    host.write("artifacts/N1/a.txt")
    with rt.engine.acting_as("executor:ann"):
        rt.submit("N1")
    assert rt.node("N1").state == "DONE"


def test_pd_c2_a_worker_gets_its_units_by_name(host: Host, rt: HaltRuntime) -> None:
    schema = {"type": "object", "required": ["_key"]}
    node = batch_at_work(rt, schema=schema, timeout_s=30.0)
    issued = issue_slot_contract(
        rt.engine, node, units=units("cd"), plan=plan("cd"), skip=["a", "b"]
    )
    found = document(host, issued.invocation_id)
    shard = f"artifacts/B/shards/{issued.invocation_id}"
    assert found["units"] == {"total": 2, "sha256": inventory_digest("cd"), "keys": units("cd")}
    assert found["outputs"] == [f"{shard}/findings.jsonl", f"{shard}/ledger.jsonl"]
    assert os.path.isdir(os.path.join(host.workspace, shard))
    assert found["authority_grants"][0] == f"write:{shard}/*"
    assert "write:artifacts/B/*" not in found["authority_grants"]
    assert (found["skip"], found["schema"], found["run"]) == (["a", "b"], schema, ["tool"])
    assert found["reporting"]["ledger_required"]
    assert found["budget"]["max_wall_s"] == 30.0
    assert (found["executor_kind"], found["attempt"], found["map"]) == ("shard", 1, None)
    assert issued.invocation_id != node.invocation


def test_pd_c2_a_shard_of_an_agent_names_the_agent(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("B", "many", spec=Spec(map=MapSpec(list=("a",), run=("x",))))
    counted = {"total": 1, "sha256": inventory_digest("a")}
    work.start(rt.engine, "B", units=lambda node: Units(counted, 0))
    agent = AgentCall("claude", model="m")
    node = msgspec.structs.replace(rt.node("B"), spec=Spec(map=MapSpec(agent=agent, list=("a",))))
    issued = issue_slot_contract(rt.engine, node, units=units("a"), plan=plan("a"))
    found = document(host, issued.invocation_id)
    assert (found["run"], found["agent"]) == (None, {"agent": "claude", "model": "m"})


@pytest.mark.parametrize(
    ("given", "planned", "code"),
    [
        ("aab", plan("aab"), "contract_units_twice"),
        ("ab", plan("abc"), "contract_units_mismatch"),
        ("abc", plan("abd"), "contract_units_mismatch"),
        ("", plan("a"), "contract_units_mismatch"),
    ],
)
def test_pd_c3_units_that_are_not_the_plan_are_not_sent(
    host: Host, rt: HaltRuntime, given: str, planned: Planned, code: str
) -> None:
    node = batch_at_work(rt)
    before = os.listdir(os.path.join(host.workspace, "contracts"))
    with pytest.raises(RefusedError) as caught:
        issue_slot_contract(rt.engine, node, units=units(given), plan=planned)
    assert (caught.value.code, caught.value.rule) == (code, "PD-C3")
    assert os.listdir(os.path.join(host.workspace, "contracts")) == before


def test_pd_c3_the_name_of_a_contract_is_never_used_again(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = iter(["one", "one", "two", *["one"] * 3])
    monkeypatch.setattr(host.ids, "token", lambda: next(tokens))
    for name in ("N1", "N2", "N3"):
        rt.add_node(name, name)
    rt.start("N1")
    first = host.read(f"contracts/{rt.node('N1').invocation}.json")
    rt.start("N2")
    assert str(rt.node("N2").invocation).endswith("-two")
    with pytest.raises(RefusedError) as caught:
        rt.start("N3")
    assert (caught.value.code, caught.value.rule) == ("contract_exists", "PD-C3")
    assert host.read(f"contracts/{rt.node('N1').invocation}.json") == first
    assert rt.node("N3").state == "PENDING"


def test_pd_c3_what_is_on_disk_is_what_was_meant(
    rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rt.add_node("N1", "first")
    disk = rt.engine.disk
    monkeypatch.setattr(type(disk), "read", lambda self, path, *rest: b"something else")
    with pytest.raises(StorageError) as caught:
        rt.start("N1")
    monkeypatch.undo()
    assert (caught.value.code, caught.value.rule) == ("contract_not_read_back", "PD-C3")
    assert rt.node("N1").state == "PENDING"
    rt.start("N1")


def test_c_contract_more_than_fits_is_refused_before_anything_is_sent(
    host: Host, rt: HaltRuntime
) -> None:
    many = [f"{number:05}" + "x" * 200 for number in range(contract_bytes_max // 200)]
    node = batch_at_work(rt)
    with pytest.raises(RefusedError) as caught:
        issue_slot_contract(rt.engine, node, units=units(many), plan=plan(many))
    assert (caught.value.code, caught.value.rule) == ("contract_too_large", "C-CONTRACT")
    assert len(os.listdir(os.path.join(host.workspace, "contracts"))) == 1


def test_an_auditor_may_write_its_verdict_and_nothing_else(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", spec=Spec(grants=("write:shared/*",), constraints=("be brief",)))
    host.finish(rt, "N1")
    files = {"artifacts/N1/out.txt": "0" * 64}
    issued = issue_audit_contract(
        rt.engine,
        rt.node("N1"),
        rubric=("is it true",),
        independence=("I1", "I2"),
        files=files,
        agent=AgentCall("codex"),
        terms=Terms(enforcement=LANDLOCK, wall_s=60.0),
    )
    found = document(host, issued.invocation_id)
    place = f"tmp/audits/{issued.invocation_id}"
    assert found["authority_grants"] == [f"write:{place}/*"]
    assert found["outputs"] == [f"{place}/verdict.json"]
    assert os.path.isdir(os.path.join(host.workspace, place))
    assert found["audit"] == {
        "rubric": ["is it true"],
        "independence": ["I1", "I2"],
        "files": files,
        "producer": "coordinator:main",
        "verdict": f"{place}/verdict.json",
    }
    assert (found["effect"], found["previous_failure"], found["run"]) == ("S0", "", None)
    assert {"path": "artifacts/N1/out.txt", "artifact_id": "A-N1"} in found["inputs"]
    assert not any("artifacts/N1/ and tmp/" in text for text in found["constraints"])
    assert found["executor_kind"] == "audit"


def test_au_1_a_grant_that_is_none_is_refused_where_it_is_written(rt: HaltRuntime) -> None:
    with pytest.raises(UsageError) as caught:
        rt.add_node("N1", "first", spec=Spec(grants=("write:journal.jsonl",)))
    assert (caught.value.code, caught.value.rule) == ("bad_grant", "AU-1")
    assert "N1" not in rt.state.nodes


def recalled(host: Host, invocation: str | None) -> dict[str, Any] | None:
    path = f"contracts/{invocation}.recalled"
    if not os.path.exists(os.path.join(host.workspace, path)):
        return None
    return dict(json.loads(host.read(path)))


def test_recall_a_worker_whose_contract_is_void_finds_the_file_that_says_why(
    host: Host, rt: HaltRuntime
) -> None:
    for name in ("N1", "N2", "N3", "N4"):
        rt.add_node(name, name)
        rt.start(name)
    names = {name: rt.node(name).invocation for name in ("N1", "N2", "N3", "N4")}
    assert [recalled(host, invocation) for invocation in names.values()] == [None] * 4
    rt.steering("ST-1", "in metres", reading="amendment", nodes=["N1"])
    rt.cancel(["N2"], reason="not needed")
    host.write("artifacts/N3/a.txt")
    rt.submit("N3")
    rt.fail("N4", "transient-agent", "exit 1")
    told = recalled(host, names["N1"])
    assert told is not None
    assert told["why"].startswith("recalled by steering ST-1")
    [left] = [e for e in rt.events() if e.entity.id == "N1" and e.payload.get("from") == "RUNNING"]
    assert told["ref"] == left.ref
    cancelled = recalled(host, names["N2"])
    assert cancelled is not None
    assert cancelled["why"] == "not needed"
    assert recalled(host, names["N3"]) is None, "handed in"
    assert recalled(host, names["N4"]) is None, "its holder said so itself"


def test_recall_is_told_once_a_batch_of_commands_is_committed(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.start("N1")
    invocation = rt.node("N1").invocation
    with rt.batch():
        rt.note("before")
        rt.cancel(["N1"], reason="not needed")
        assert recalled(host, invocation) is None
    told = recalled(host, invocation)
    assert told is not None
    assert told["why"] == "not needed"


def test_recall_a_session_that_resume_takes_over_is_told(host: Host) -> None:
    runtime = host.open()
    runtime.add_node("N1", "first")
    runtime.close()
    session = host.attach(300, actor="executor:x")
    session.start("N1", session=True)
    invocation = session.node("N1").invocation
    host.resume(400).close()
    told = recalled(host, invocation)
    assert told is not None
    assert "took it over" in told["why"]


def test_recall_when_a_node_is_taken_back_its_workers_are_told(host: Host, rt: HaltRuntime) -> None:
    node = batch_at_work(rt)
    issued = issue_slot_contract(rt.engine, node, units=units("ab"), plan=plan("ab"))
    slot = OpenSlot("B", issued.invocation_id, issued.sha256, "executor:x", 2)
    rt.engine.execute(slot)
    assert recalled(host, issued.invocation_id) is None
    rt.cancel(["B"], reason="not needed")
    assert recalled(host, issued.invocation_id) is not None
    assert recalled(host, node.invocation) is not None


def test_recall_a_file_that_cannot_be_written_stops_nothing(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rt.add_node("N1", "first")
    rt.start("N1")
    invocation = rt.node("N1").invocation
    os.mkdir(os.path.join(host.workspace, f"contracts/{invocation}.recalled"))
    rt.cancel(["N1"], reason="not needed")
    assert rt.node("N1").state == "CANCELLED"
    rt.note("goes on")


def test_a_contract_is_what_its_type_says(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    rt.start("N1")
    data = host.read(f"contracts/{rt.node('N1').invocation}.json")
    contract = msgspec.json.decode(data, type=Contract, strict=True)
    assert contract.invocation_id == rt.node("N1").invocation
    assert contract.epoch == 1
