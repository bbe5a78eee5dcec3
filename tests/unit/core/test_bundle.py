"""The manifest of an exported task, and which names of files it may hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import bundle as b
from perdure.core.codec import to_json
from perdure.errors import CorruptError, RefusedError

JOURNAL = b.BundleFile("journal.jsonl", "0" * 64, 10, 5)


def manifest(*names: str, **more: object) -> b.Manifest:
    files = tuple(b.BundleFile(name, "1" * 64, 3, 7) for name in names)
    told: dict[str, object] = {"files": (JOURNAL, *files), **more}
    fixed = (b.KIND, b.FORMAT, "T", "then", 1, "EXECUTING", 3, "0" * 16, "f" * 64)
    return b.Manifest(*fixed, **told)  # type: ignore[arg-type]


def test_a_manifest_reads_back_as_it_was() -> None:
    whole = manifest("artifacts/a/ä.txt", missing=(b.Told("x", "y"),), masked={"token": 2})
    assert b.read_manifest(b.seal_manifest(whole)) == whole
    assert not whole.is_whole
    assert whole.size_bytes == 13


def test_any_changed_byte_of_a_manifest_is_noticed() -> None:
    data = b.seal_manifest(manifest("artifacts/a/b"))
    for at in range(len(data)):
        spoiled = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(CorruptError):
            b.read_manifest(spoiled)


def test_a_newer_format_is_refused_and_not_called_damaged() -> None:
    body = to_json({"kind": b.KIND, "format": b.FORMAT + 1, "new": []})[:-1]
    digest = b.sha256(body).hexdigest()[:16]
    with pytest.raises(RefusedError) as refusal:
        b.read_manifest(body + f',"sum":"{digest}"}}'.encode())
    assert refusal.value.code == "bundle_too_new"


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../x", "artifacts/../../x", "artifacts//a", "./artifacts/a", "C:x", "",
        "artifacts\\a", "artifacts/a\nb", "artifacts/\udc80", "lease.json", "LEASE.json",
        ".journal.lock", ".run", ".snapshot.json", "task-graph.json", "artifacts/registry.json",
        "Artifacts/Registry.json", "journal-mirror.jsonl", "instances/inv-1/lease.json",
        "INSTANCES/inv-1/instances/inv-2/.snapshot.json", "artifacts/a/.x.tmp-1-2",
        "steering/spool/op-1.result.json", "artifacts/job/.lock",
    ],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_or_is_the_runtimes_own_is_never_taken(name: str) -> None:
    assert b.name_problem(name)
    if name:
        with pytest.raises(CorruptError):
            b.read_manifest(b.seal_manifest(manifest(name)))


@pytest.mark.parametrize("names", [("docs/a", "docs/a"), ("docs/a", "docs/a/b")])
def test_names_that_cannot_stand_beside_each_other_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(CorruptError, match=r"twice|directory"):
        b.read_manifest(b.seal_manifest(manifest(*names)))


def test_what_a_task_needs_is_carried() -> None:
    for name in (
        "journal.jsonl", "contracts/inv-1.json", "artifacts/n/out.txt", "artifacts/old/a-1",
        "sops/inputs.json", "steering/taken/x.md", "steering/spool/op-1.json", "docs/notes.md",
        "supervision.json", "tmp/recovered/x", "instances/inv-1/journal.jsonl",
        "instances/inv-1/result.json",
    ):  # fmt: skip
        assert b.name_problem(name) == ""


def test_names_that_differ_by_case_or_by_composition_collide() -> None:
    assert b.colliding(["a/B", "A/c", "d"]) == [("a", "A")]
    assert b.colliding(["x/\u00e9", "x/e\u0301"]) == [("x/\u00e9", "x/e\u0301")]
    assert b.colliding(["a/b", "a/c"]) == []


@given(st.lists(st.sampled_from(["instances", "inv-1", "a", "artifacts"]), min_size=1, max_size=9))
def test_a_path_is_its_workspace_and_the_rest(parts: list[str]) -> None:
    path = "/".join(parts)
    above, inner = b.workspace_of(path), b.within(path)
    assert (f"{above}/{inner}" if above else inner) == path
    assert not inner.startswith("instances/") or inner.count("/") == 1
