"""What an attempt at a batch node finds: units, ledger, and what of its job still counts."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.control import inventory as inventory_module
from perdure.control.batch import BatchNodes
from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.control.inventory import Inventory, Uncounted, take_inventory
from perdure.control.ledger import LedgerLine, OpenedLedger, group_bytes_max, open_ledger
from perdure.core.batch import inventory_digest, recipe_of
from perdure.errors import RefusedError, StorageError
from perdure.jobs.records import Failure, Finding
from perdure.ports import AppendFile
from perdure.storage.disk import RealDisk

KEYS = ["a", "b", "c"]


# The ledger


def line(unit: str, status: str = "ok", **more: str) -> LedgerLine:
    return LedgerLine(unit, status, "artifacts/B/findings.jsonl", "2026-11-30T00:00:00Z", **more)


def opened(root: str, *, disk: RealDisk | None = None) -> OpenedLedger:
    return open_ledger(
        disk or RealDisk(), f"{root}/ledger.jsonl", aside=lambda name: f"{root}/aside/{name}"
    )


def put(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(data)


def written(root: str, *lines: LedgerLine) -> bytes:
    """A ledger with these lines, closed; its bytes."""
    ledger = opened(root).ledger
    ledger.append(lines)
    ledger.close()
    return Path(f"{root}/ledger.jsonl").read_bytes()


def test_a_ledger_says_the_last_status_of_each_unit(workspace: str) -> None:
    written(workspace, line("a", "fail", reason="exit 1"), line("b"), line("a"))
    found = opened(workspace)
    assert (found.statuses, found.notice) == ({"a": "ok", "b": "ok"}, "")


def test_a_ledger_line_leaves_out_what_it_does_not_know(workspace: str) -> None:
    data = written(workspace, line("a"), line("b", "fail", reason="exit 1", spec="00"))
    first, second = map(json.loads, data.splitlines())
    assert set(first) == {"unit_id", "status", "artifact", "ts"}
    assert (second["reason"], second["spec"]) == ("exit 1", "00")


@pytest.mark.parametrize(
    "tail",
    [b'{"unit_id":"c","sta', b"\0" * 4096, b"\xff\xfe\n", b"[]\nnonsense\n", b'{"unit_id":"c"}\n',
     b'{"unit_id":"c","status":"ok"}'],
    ids=["half", "zeros", "bytes", "lines", "no-status", "no-line-feed"],
)  # fmt: skip
def test_a_torn_end_is_set_aside_and_cut(workspace: str, tail: bytes) -> None:
    whole = written(workspace, line("a"), line("b"))
    put(f"{workspace}/ledger.jsonl", whole + tail)
    found = opened(workspace)
    found.ledger.append([line("c")])
    assert found.statuses == {"a": "ok", "b": "ok"}
    assert f"the last {len(tail)} bytes of the ledger were torn" in found.notice
    aside = Path(f"{workspace}/aside/ledger.jsonl.torn-{len(whole)}")
    assert aside.read_bytes() == tail
    assert opened(workspace).statuses == {"a": "ok", "b": "ok", "c": "ok"}


def test_a_ledger_that_is_damaged_inside_is_set_aside_whole(workspace: str) -> None:
    whole = written(workspace, line("a"), line("b"), line("c"))
    damaged = whole[:10] + b"\n" + whole[11:]
    put(f"{workspace}/ledger.jsonl", damaged)
    found = opened(workspace)
    assert found.statuses == {}
    assert "was damaged at byte 0" in found.notice
    assert Path(f"{workspace}/aside/ledger.jsonl").read_bytes() == damaged
    assert Path(f"{workspace}/ledger.jsonl").read_bytes() == b""


def test_a_ledger_of_another_program_may_have_crlf_and_blank_lines(workspace: str) -> None:
    put(f"{workspace}/ledger.jsonl", b'{"unit_id":1,"status":"skip","x":2}\r\n\n \r\n')
    assert opened(workspace).statuses == {"1": "skip"}


def test_a_directory_in_the_place_of_a_ledger_is_an_error_that_says_so(workspace: str) -> None:
    os.mkdir(f"{workspace}/ledger.jsonl")
    with pytest.raises(StorageError, match="not a ledger"):
        opened(workspace)


class CountingDisk(RealDisk):
    """Counts the syncs of what is appended to."""

    __slots__ = ("syncs",)

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0

    def open_append(self, path: str) -> Any:
        return CountingFile(self, super().open_append(path))


class CountingFile:
    def __init__(self, disk: CountingDisk, file: AppendFile) -> None:
        self.disk, self.file = disk, file

    def append(self, data: bytes) -> None:
        assert len(data) < 2 * group_bytes_max
        self.file.append(data)

    def sync(self) -> None:
        self.disk.syncs += 1
        self.file.sync()

    def close(self) -> None:
        self.file.close()


def test_lines_of_a_group_share_one_sync(workspace: str) -> None:
    disk = CountingDisk()
    ledger = opened(workspace, disk=disk).ledger
    ledger.append([line(str(n)) for n in range(1_000)])
    assert disk.syncs == 1
    ledger.append([])
    assert disk.syncs == 1
    ledger.append(line("x" * 10_000) for _ in range(300))
    assert disk.syncs == 4


# The inventory


class Bench:
    """A workspace with one batch node, ``B``, and whoever opens its job."""

    def __init__(self, directory: str) -> None:
        self.host = Host(directory)
        self.runtime: HaltRuntime = self.host.open()
        self.root = self.host.workspace
        self.beside = os.path.normpath(f"{self.root}/.")
        """The directory of the task file: there was none, so it is the workspace."""

    def add(self, **fields: Any) -> None:
        policy = fields.pop("resume_policy", "reverify_if_amended")
        self.runtime.add_node("B", "batch", map={"run": "true", **fields}, resume_policy=policy)

    def inventory(self) -> Inventory | Uncounted:
        return take_inventory(self.runtime.engine, self.runtime.state.nodes["B"])

    def counted(self) -> Inventory:
        found = self.inventory()
        assert isinstance(found, Inventory), found
        return found

    def refused(self) -> Uncounted:
        found = self.inventory()
        assert isinstance(found, Uncounted), found.order
        return found

    def job(self) -> BatchJob:
        return BatchJob(self.runtime.engine, self.runtime.state.nodes["B"])

    def attempt(self, *done: str, failed: tuple[str, ...] = (), marked: bool = True) -> int:
        """One attempt that does these units; returns how many were done before it."""
        job = self.job()
        before = job.adopt(self.counted().items.keys)
        job.job.record_many([Finding(key, {}) for key in done])
        if marked:
            job.settle([SettledUnit(key, True) for key in done])
        job.job.record_many([Failure(key, "exit 1") for key in failed])
        job.settle([SettledUnit(key, False, "exit 1") for key in failed])
        job.close()
        return before

    def ledger(self) -> list[tuple[str, str]]:
        data = self.host.read("artifacts/B/ledger.jsonl")
        return [(e["unit_id"], e["status"]) for e in map(json.loads, data.splitlines())]

    def aside(self) -> list[str]:
        """What was set aside, below ``tmp/recovered``."""
        top = Path(f"{self.root}/tmp/recovered")
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file())


@pytest.fixture
def bench(workspace: str) -> Bench:
    return Bench(workspace)


def test_an_inventory_names_total_digest_and_a_sample(bench: Bench) -> None:
    bench.host.write("urls.txt", "".join(f"u{n}\n" for n in range(9)) + "u3\n")
    bench.add(items="urls.txt")
    found = bench.counted()
    assert found.order == {
        "items": "urls.txt",
        "total": 9,
        "sha256": inventory_digest(f"u{n}" for n in range(9)),
        "duplicates": 1,
        "sample": ["u0", "u4", "u8"],
    }


@pytest.mark.parametrize(
    ("name", "text", "key", "keys"),
    [
        ("i.txt", "\ufeffone\r\n\ntwo\r\n", None, ["one", "two"]),
        ("i.jsonl", '{"id": "a", "n": 1}\n\n{"id": 7}\n', "id", ["a", "7"]),
        ("i.csv", 'note,id\n"two\nlines",a\nx,b\ny,b\n"p\nq\nr",c\n', "id", ["a", "b", "c"]),
        ("i.csv", "id\n", "id", []),
        ("i.txt", "", None, []),
    ],
)
def test_items_of_every_form_are_counted_and_found_again(
    bench: Bench, name: str, text: str, key: str | None, keys: list[str]
) -> None:
    bench.host.write(name, text)
    bench.add(items=name, key=key)
    assert bench.counted().items.keys == keys


def test_items_of_the_workspace_and_beside_the_task_file_are_told_apart(workspace: str) -> None:
    host = Host(workspace)
    runtime = HaltRuntime(
        host.workspace, "T1", source={"directory": "../project"}, world=host.world()
    )
    for path in ("tmp/i.txt", "../project/i.txt", "../project/tmp/i.txt", "artifacts/A/i.txt"):
        host.write(path, path)
    found = {}
    for number, items in enumerate(("i.txt", "tmp/i.txt", "artifacts/A/i.txt", "./tmp/i.txt")):
        runtime.add_node(f"B{number}", "b", map={"run": "true", "items": items})
        counted = take_inventory(runtime.engine, runtime.state.nodes[f"B{number}"])
        assert isinstance(counted, Inventory)
        [found[items]] = counted.items.keys
    assert found == {
        "i.txt": "../project/i.txt",
        "tmp/i.txt": "tmp/i.txt",
        "artifacts/A/i.txt": "artifacts/A/i.txt",
        "./tmp/i.txt": "../project/tmp/i.txt",
    }


def test_files_of_a_glob_are_units_by_their_paths(bench: Bench) -> None:
    for path in ("docs/a.md", "docs/b/c.md", "docs/d.txt", "artifacts/B/files/e.md"):
        bench.host.write(path)
    bench.add(glob="**/*.md")
    found = bench.counted()
    assert found.items.keys == ["docs/a.md", "docs/b/c.md"], "without the node's own files"
    assert (found.order["glob"], found.order["total"]) == ("**/*.md", 2)


@pytest.mark.parametrize(
    ("fields", "text", "failure_class", "said"),
    [
        ({"items": "none.txt"}, "", "permanent-resource", "there is no file of items none.txt"),
        ({"items": "i.jsonl"}, "[1", "permanent-resource", "i.jsonl:1: the line is not JSON"),
        ({"items": "artifacts/A/i.jsonl"}, "[1", "permanent-spec", "the line is not JSON"),
        ({"items": "artifacts/A/none"}, "", "permanent-resource", "there is no file"),
        ({"items": "artifacts"}, "", "permanent-resource", "is a directory"),
        ({"glob": "*.nothing"}, "", "permanent-resource", "names no file"),
        ({"list": ["a\0b"]}, "", "permanent-spec", "NUL"),
        ({"items": "tmp/out/i.txt"}, "", "permanent-spec", "leaves the workspace"),
    ],
)
def test_what_cannot_be_counted_is_a_failure_of_the_class_that_cures_it(
    bench: Bench, fields: dict[str, Any], text: str, failure_class: str, said: str
) -> None:
    for path in ("i.jsonl", "artifacts/A/i.jsonl"):
        bench.host.write(path, text)
    os.symlink("/", f"{bench.root}/tmp/out")
    bench.add(**fields)
    found = bench.refused()
    assert found.failure_class == failure_class
    assert said in found.error.message


def test_items_that_change_while_they_are_read_are_no_inventory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.host.write("i.txt", "a\nb\nc\n")
    real = inventory_module.read_items

    def changed_behind(source: str, **more: Any) -> Any:
        items = real(source, **more)
        bench.host.write(path, "a\nX\nc\n")
        return items

    monkeypatch.setattr(inventory_module, "read_items", changed_behind)
    bench.add(items="i.txt")
    found = bench.refused()
    assert found.failure_class == "permanent-resource"
    assert "i.txt changed while it was read: 'b'" in found.error.message


# The job of an attempt


def test_a_first_attempt_begins_with_nothing(bench: Bench) -> None:
    bench.add(list=KEYS)
    assert bench.attempt("a") == 0
    assert bench.ledger() == [("a", "ok")]
    assert bench.aside() == []


def test_the_next_attempt_goes_on_with_what_is_left(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.attempt("a", failed=("b",))
    assert bench.attempt("b", "c") == 1
    assert bench.ledger() == [("a", "ok"), ("b", "fail"), ("b", "ok"), ("c", "ok")]


def test_a_finding_without_its_ledger_line_is_read_back_and_marked(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.attempt("a", "b", marked=False)
    assert bench.ledger() == []
    assert bench.attempt() == 2
    assert bench.ledger() == [("a", "skip-evidence"), ("b", "skip-evidence")]
    assert bench.attempt() == 2
    assert len(bench.ledger()) == 2, "it is marked once"


def test_a_unit_that_only_a_checkpoint_claims_is_not_done(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.attempt("a", "b")
    path = Path(f"{bench.root}/artifacts/B/findings.jsonl")
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(first)
    assert bench.attempt() == 1


def test_a_damaged_ledger_is_made_again_from_the_findings(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.attempt(*KEYS)
    ledger = Path(f"{bench.root}/artifacts/B/ledger.jsonl")
    ledger.write_bytes(b"nonsense\n" + ledger.read_bytes())
    assert bench.attempt() == 3
    assert bench.ledger() == [(key, "skip-evidence") for key in KEYS]
    assert bench.aside() == ["B-0/artifacts/B/ledger.jsonl"]


def test_units_that_left_the_inventory_are_passed_over_and_may_come_back(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.attempt("a", "b", failed=("c",))
    bench.runtime.amend_node("B", "less", map={"run": "true", "list": ["b", "d"]})
    assert bench.attempt("d") == 1
    assert bench.ledger()[3:] == [("a", "skip"), ("c", "skip"), ("d", "ok")]
    bench.runtime.amend_node("B", "more", map={"run": "true", "list": ["a", "b", "d"]})
    assert bench.attempt() == 3
    assert bench.ledger()[6:] == [("a", "skip-evidence")]


def amend_command(bench: Bench) -> None:
    bench.runtime.amend_node("B", "another command", map={"run": "false", "list": KEYS})


def amend_variables(bench: Bench) -> None:
    bench.runtime.amend_node("B", "another variable", env={"MODE": "fast"})


def amend_workers(bench: Bench) -> None:
    batch = {"run": "true", "list": KEYS, "workers": 7, "timeout_s": 9.0}
    bench.runtime.amend_node("B", "another number of workers", map=batch)


def nothing(bench: Bench) -> None:
    """The same again."""


@pytest.mark.parametrize(
    ("policy", "amend", "kept"),
    [
        ("reverify_if_amended", nothing, True),
        ("reverify_if_amended", amend_workers, True),
        ("reverify_if_amended", amend_command, False),
        ("reverify_if_amended", amend_variables, False),
        ("skip_if_checksum", nothing, True),
        ("skip_if_checksum", amend_command, True),
        ("never_skip", nothing, False),
        ("never_skip", amend_command, False),
    ],
)
def test_resume_policy_says_whether_what_is_done_counts(
    bench: Bench, policy: str, amend: Callable[[Bench], None], kept: bool
) -> None:
    bench.add(list=KEYS, resume_policy=policy)
    bench.attempt("a", "b")
    bench.host.write("artifacts/B/files/side", "of a unit")
    amend(bench)
    assert bench.attempt() == (2 if kept else 0)
    moved = ["B-0/artifacts/B/" + name for name in ("findings.jsonl", "files/side", "state.json")]
    assert set(moved) <= set(bench.aside()) if not kept else bench.aside() == []
    assert os.path.exists(f"{bench.root}/artifacts/B/files/side") is kept


def test_findings_of_two_recipes_do_not_count_once_they_have_to_be_of_one(bench: Bench) -> None:
    bench.add(list=KEYS, resume_policy="skip_if_checksum")
    bench.attempt("a")
    amend_command(bench)
    assert bench.attempt("b") == 1
    bench.runtime.amend_node("B", "stricter", resume_policy="reverify_if_amended")
    assert bench.attempt() == 0


@pytest.mark.parametrize("record", [None, b"", b"{}", b'{"recipes": 3}\n'])
def test_findings_that_nothing_says_the_recipe_of_do_not_count(
    bench: Bench, record: bytes | None
) -> None:
    bench.add(list=KEYS)
    bench.attempt("a")
    path = Path(f"{bench.root}/artifacts/B/.batch.json")
    if record is None:
        path.unlink()
    else:
        path.write_bytes(record)
    assert bench.attempt() == 0
    recipes = json.loads(path.read_bytes())["recipes"]
    assert recipes == [recipe_of(bench.runtime.state.nodes["B"].spec)]


def test_the_recipe_is_on_record_before_anything_is_done(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.job().close()
    record = json.loads(bench.host.read("artifacts/B/.batch.json"))
    recipe = recipe_of(bench.runtime.state.nodes["B"].spec)
    assert record == {"recipes": [recipe], "strikes": 0}


def test_a_ledger_says_what_made_a_finding_where_that_is_known(bench: Bench) -> None:
    bench.add(list=KEYS, resume_policy="skip_if_checksum")
    bench.attempt("a", marked=False)
    first = recipe_of(bench.runtime.state.nodes["B"].spec)
    bench.attempt("b", marked=False)
    amend_command(bench)
    bench.attempt("c")
    data = bench.host.read("artifacts/B/ledger.jsonl")
    made = {entry["unit_id"]: entry.get("spec") for entry in map(json.loads, data.splitlines())}
    second = recipe_of(bench.runtime.state.nodes["B"].spec)
    assert made == {"a": first, "b": None, "c": second}, "b was read back when both were possible"


def attempts_of(job: BatchJob) -> list[int]:
    return [entry.attempts for entry in job.job.errors]


def test_units_get_new_attempts_after_a_failure_and_not_after_an_interruption(
    bench: Bench,
) -> None:
    bench.add(list=KEYS)
    bench.attempt(failed=("a",))
    job = bench.job()
    assert attempts_of(job) == [1]
    job.close()
    bench.runtime.state.nodes["B"].strikes = 1  # as N04 leaves it
    job = bench.job()
    assert attempts_of(job) == [0]
    job.job.record_error("a", "exit 1")
    job.close()
    job = bench.job()
    assert attempts_of(job) == [1]
    job.close()


def test_side_file_of_a_unit_is_named_by_its_ledger_line(bench: Bench) -> None:
    bench.add(list=KEYS)
    job = bench.job()
    job.adopt(KEYS)
    side = job.job.write_artifact("a", b"content")
    job.job.record_many([Finding("a", {}), Finding("b", {})])
    job.settle([SettledUnit("a", True), SettledUnit("b", True)])
    job.close()
    data = bench.host.read("artifacts/B/ledger.jsonl")
    found = [entry["artifact"] for entry in map(json.loads, data.splitlines())]
    assert found == [os.path.relpath(side, bench.root), "artifacts/B/findings.jsonl"]


def test_findings_that_are_registered_are_never_added_to(bench: Bench) -> None:
    bench.add(list=KEYS)
    bench.attempt("a")
    bench.runtime.register_artifact("A-log", "artifacts/B/findings.jsonl")
    before = bench.host.read("artifacts/B/findings.jsonl")
    with pytest.raises(RefusedError, match="registered as A-log"):
        bench.job()
    assert bench.host.read("artifacts/B/findings.jsonl") == before


def test_a_finished_job_has_a_log_even_when_there_was_nothing_to_do(bench: Bench) -> None:
    bench.host.write("i.txt", "")
    bench.add(items="i.txt")
    job = bench.job()
    assert job.adopt(bench.counted().items.keys) == 0
    job.finish()
    assert bench.host.read("artifacts/B/findings.jsonl") == b""
    assert bench.host.read("artifacts/B/ledger.jsonl") == b""


# Slots


class Turns:
    """Stands for a batch node at work: how many units it has, and how many may run at once."""

    is_sharded = True

    def __init__(self, units: int, workers: int = 99) -> None:
        self.units = units
        self.workers = workers
        self.started = 0

    def can_start(self, jobs: int) -> bool:
        return self.started < min(self.units, self.workers, jobs)

    def start_one(self) -> None:
        self.started += 1


def sharing(bench: Bench, jobs: int, **batches: Turns) -> tuple[BatchNodes, dict[str, Turns]]:
    engine_of: Any = bench.runtime
    nothing_ends: Any = None
    all_is_sent: Any = None
    nodes = BatchNodes(engine_of, nothing_ends, all_is_sent, jobs=jobs, emit=lambda event: None)
    for name, batch in batches.items():
        at_work: Any = batch
        nodes._at_work[name] = at_work
        nodes._turns.append(name)
    return nodes, batches


def started(batches: dict[str, Turns]) -> list[int]:
    return [batch.started for batch in batches.values()]


def test_free_slots_go_to_batch_nodes_in_turn(bench: Bench) -> None:
    nodes, batches = sharing(bench, 9, A=Turns(9), B=Turns(9), C=Turns(9))
    nodes.fill(5)
    assert started(batches) == [2, 2, 1]
    nodes.fill(1)
    assert started(batches) == [2, 2, 2], "the turn goes on where it stood"
    nodes.fill(0)
    assert started(batches) == [2, 2, 2]


def test_what_a_node_cannot_use_goes_to_the_others(bench: Bench) -> None:
    nodes, batches = sharing(bench, 9, A=Turns(9, workers=1), B=Turns(2), C=Turns(9))
    nodes.fill(7)
    assert started(batches) == [1, 2, 4]
    nodes.fill(99)
    assert started(batches) == [1, 2, 9], "and no more than there is"


def test_a_batch_node_starts_only_while_each_can_have_a_slot(bench: Bench) -> None:
    nodes, _ = sharing(bench, 2, A=Turns(9))
    assert nodes.has_room()
    nodes, _ = sharing(bench, 2, A=Turns(9), B=Turns(9))
    assert not nodes.has_room()
