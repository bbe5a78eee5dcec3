"""What the next attempt finds in its node's scope: nothing that could mislead it, nothing lost."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.runtime.scope import clear_scope, products_below, set_aside

LIST = {"list": ["a"], "run": "true"}


class Scope:
    """A workspace with one node, ``N``."""

    def __init__(self, directory: str) -> None:
        self.host = Host(directory)
        self.runtime: HaltRuntime = self.host.open()

    def add(self, **fields: Any) -> None:
        self.runtime.add_node("N", "node", **fields)

    def put(self, *names: str) -> None:
        for name in names:
            self.host.write(f"artifacts/N/{name}")

    def clear(self) -> list[str]:
        return clear_scope(self.runtime.engine, self.runtime.state.nodes["N"])

    def left(self) -> set[str]:
        top = Path(self.host.workspace, "artifacts/N")
        return {str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir()}


@pytest.fixture
def scope(workspace: str) -> Scope:
    return Scope(workspace)


JOB = {"findings.jsonl", "state.json", "SUMMARY.md", ".recent.jsonl", ".torn/x", "files/ab/c"}


def test_a_plain_node_keeps_its_ledgers_and_nothing_else(scope: Scope) -> None:
    scope.add()
    scope.put("ledger.jsonl", "deep/ledger.jsonl", "out.txt", "deep/out.txt", ".hidden", "files/x")
    moved = scope.clear()
    assert scope.left() == {"ledger.jsonl", "deep/ledger.jsonl"}
    assert len(moved) == 4
    assert all(os.path.exists(f"{scope.host.workspace}/{path}") for path in moved)


def test_a_job_that_a_command_keeps_in_its_scope_stays_with_its_files(scope: Scope) -> None:
    scope.add()
    scope.put(*(f"jobs/one/{name}" for name in JOB), "jobs/one/half.txt", "jobs/.other", "files/x")
    scope.clear()
    assert scope.left() == {f"jobs/one/{name}" for name in JOB}


def test_files_of_a_job_without_its_findings_do_not_stay(scope: Scope) -> None:
    scope.add()
    scope.put(*JOB - {"findings.jsonl"})
    scope.clear()
    assert scope.left() == {"state.json", "SUMMARY.md"}


def test_bookkeeping_of_a_job_is_no_product_and_its_side_files_are(scope: Scope) -> None:
    scope.add()
    scope.put(*(f"job/{name}" for name in JOB), "out.txt", ".config")
    found = products_below(scope.runtime.engine, "artifacts/N")
    assert found == ["artifacts/N/.config", "artifacts/N/job/files/ab/c", "artifacts/N/out.txt"]


def test_a_batch_node_keeps_everything_while_its_findings_are_there(scope: Scope) -> None:
    scope.add(map=LIST, outputs=["out/index"])
    scope.put(*JOB, "ledger.jsonl", ".batch.json", "made-by-a-unit.txt")
    scope.host.write("out/index")
    before = scope.left()
    assert scope.clear() == []
    assert scope.left() == before
    assert os.path.exists(f"{scope.host.workspace}/out/index")


def test_a_batch_node_without_its_findings_keeps_nothing(scope: Scope) -> None:
    scope.add(map=LIST, outputs=["out/index"])
    scope.put(*JOB - {"findings.jsonl"}, "ledger.jsonl", ".batch.json", "made-by-a-unit.txt")
    scope.host.write("out/index")
    moved = scope.clear()
    assert moved == ["tmp/recovered/N-0/artifacts/N", "tmp/recovered/N-0/out/index"]
    assert scope.left() == set()
    assert scope.clear() == [], "once more finds nothing"


def test_findings_that_are_no_file_do_not_count_as_there(scope: Scope) -> None:
    scope.add(map=LIST)
    scope.put("findings.jsonl/x", "state.json")
    assert scope.clear() == ["tmp/recovered/N-0/artifacts/N"]


def test_findings_go_first_when_a_registered_file_keeps_the_scope_in_place(scope: Scope) -> None:
    scope.add(map=LIST)
    scope.put(*JOB, "ledger.jsonl", "kept.txt")
    scope.runtime.register_artifact("A-kept", "artifacts/N/kept.txt")
    moved = set_aside(scope.runtime.engine, scope.runtime.state.nodes["N"])
    assert moved[0] == "tmp/recovered/N-0/artifacts/N/findings.jsonl"
    assert scope.left() == {"kept.txt"}


def test_a_second_time_goes_to_a_place_of_its_own(scope: Scope) -> None:
    scope.add(map=LIST)
    for number in ("", ".2", ".3"):
        scope.put("state.json")
        assert scope.clear() == [f"tmp/recovered/N-0{number}/artifacts/N"]
