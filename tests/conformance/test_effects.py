"""Local destructive effects (S1): what may be changed is copied first, whole, or nothing starts."""

import hashlib
import json
import os
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.core.batch import inventory_digest
from perdure.core.model import MapSpec, Spec
from perdure.errors import RefusedError
from perdure.runtime import saved_files, work
from perdure.runtime.contracts import Units


def saved(rt: HaltRuntime, node_id: str) -> list[dict[str, Any]]:
    """What each start of a node says of the copies; empty where it says nothing."""
    starts = [e for e in rt.events() if e.entity.id == node_id and e.payload.get("to") == "RUNNING"]
    return [e.payload.get("saved", {}) for e in starts]


def entries(host: Host, said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The list of copies that a start cites, by path; each copy has the bytes that it says."""
    data = host.read(said["manifest"])
    assert hashlib.sha256(data).hexdigest() == said["sha256"]
    found = json.loads(data)["files"]
    assert len(found) == said["files"]
    for entry in found:
        if "copy" in entry:
            copy = host.read(entry["copy"])
            assert (hashlib.sha256(copy).hexdigest(), len(copy)) == (
                entry["sha256"], entry["size_bytes"],
            )  # fmt: skip
    return {entry["path"]: entry for entry in found}


def content(host: Host, entry: dict[str, Any]) -> str:
    return host.read(entry["copy"]).decode()


def add(rt: HaltRuntime, *grants: str, outputs: tuple[str, ...] | None = None) -> None:
    rt.add_node("N1", "first", spec=Spec(grants=grants, outputs=outputs), effect="S1")


def test_c_s1_what_may_be_changed_is_copied_before_the_start(host: Host, rt: HaltRuntime) -> None:
    host.write("shared/deep/a.txt", "old a")
    host.write("shared/b.txt", "old b")
    host.write("other/c.txt", "not granted")
    add(rt, "write:shared/*", outputs=("out/d.txt",))
    host.write("out/d.txt", "old d")
    rt.start("N1")
    [said] = saved(rt, "N1")
    found = entries(host, said)
    assert {path: content(host, entry) for path, entry in found.items()} == {
        "out/d.txt": "old d",
        "shared/b.txt": "old b",
        "shared/deep/a.txt": "old a",
    }
    assert said["bytes"] == 15
    assert said["manifest"].startswith("artifacts/old/N1-1")
    host.write("shared/b.txt", "new b")
    assert content(host, entries(host, said)["shared/b.txt"]) == "old b"
    contract = json.loads(host.read(f"contracts/{rt.node('N1').invocation}.json"))
    assert any("artifacts/old/" in text for text in contract["constraints"])


def test_c_s1_each_attempt_has_copies_of_its_own(host: Host, rt: HaltRuntime) -> None:
    host.write("shared/a.txt", "first")
    add(rt, "write:shared/a.txt")
    rt.start("N1")
    host.write("shared/a.txt", "second")
    rt.fail("N1", "transient-agent", "exit 1")
    rt.start("N1")
    told = [content(host, entries(host, said)["shared/a.txt"]) for said in saved(rt, "N1")]
    assert told == ["first", "second"]


def test_c_s1_a_batch_node_is_copied_for_when_it_starts(host: Host, rt: HaltRuntime) -> None:
    host.write("shared/a.txt", "old")
    spec = Spec(map=MapSpec(run=("x",), list=("a",)), grants=("write:shared/*",))
    rt.add_node("B", "many", spec=spec, effect="S1")
    units = Units({"total": 1, "sha256": inventory_digest("a")}, 0)
    work.start(rt.engine, "B", units=lambda node: units)
    [said] = saved(rt, "B")
    assert set(entries(host, said)) == {"shared/a.txt"}


def test_c_s1_without_anything_to_copy_the_node_just_starts(host: Host, rt: HaltRuntime) -> None:
    add(rt, "write:shared/*")
    rt.start("N1")
    rt.add_node("N2", "second", effect="S1")
    rt.start("N2")
    host.write("elsewhere/a.txt", "x")
    rt.add_node("N3", "third", spec=Spec(grants=("write:elsewhere/*",)), effect="S0")
    rt.start("N3")
    assert [saved(rt, name) for name in ("N1", "N2", "N3")] == [[{}], [{}], [{}]]
    assert not os.path.exists(os.path.join(host.workspace, "artifacts/old"))


def test_c_s1_copies_hold_nothing_of_the_runtime(host: Host, rt: HaltRuntime) -> None:
    above = os.path.dirname(host.workspace)
    for name in ("plan.txt", ".perdure/tasks/T2/journal.jsonl"):
        host.write(f"../{name}", "mine")
    add(rt, f"write:{above}/*")
    rt.start("N1")
    [said] = saved(rt, "N1")
    assert set(entries(host, said)) == {os.path.realpath(os.path.join(above, "plan.txt"))}


def test_c_s1_a_link_is_told_and_what_is_written_through_a_granted_one_is_copied(
    host: Host, rt: HaltRuntime
) -> None:
    host.write("real/a.txt", "old")
    root = host.workspace
    os.symlink(os.path.join(root, "real"), os.path.join(root, "granted"))
    os.symlink(os.path.join(root, "elsewhere"), os.path.join(root, "real/link"))
    add(rt, "write:granted/*")
    rt.start("N1")
    found = entries(host, saved(rt, "N1")[0])
    assert content(host, found["real/a.txt"]) == "old"
    assert found["real/link"]["link_to"] == os.path.realpath(os.path.join(root, "elsewhere"))


@pytest.mark.parametrize("limit", ["saved_files_max", "saved_bytes_max"])
def test_c_s1_more_than_is_copied_does_not_start(
    host: Host, rt: HaltRuntime, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(saved_files, limit, 2)
    for name in "abc":
        host.write(f"shared/{name}.txt", name)
    add(rt, "write:shared/*")
    with pytest.raises(RefusedError) as caught:
        rt.start("N1")
    assert (caught.value.code, caught.value.rule) == ("too_much_to_save", "C-S1")
    assert "limit" in caught.value.message
    assert rt.node("N1").state == "PENDING"
    assert not os.path.exists(os.path.join(host.workspace, "artifacts/old"))
