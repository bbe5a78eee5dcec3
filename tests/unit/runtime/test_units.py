"""The verdict on a batch node's units: contract, ledger and findings have to agree."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.core.batch import inventory_digest
from perdure.core.model import Criterion
from perdure.runtime.probe import CitedContract
from perdure.runtime.verify import CheckResult, run_checks
from perdure.storage.disk import RealDisk

KEYS = ["a", "b", "c"]
CONTRACT = "contracts/inv-1.json"


class Batch:
    """The files of a batch node ``B`` whose units are done."""

    def __init__(self, root: Path, keys: list[str] | None = None) -> None:
        self.root = root
        self.keys = KEYS if keys is None else keys
        self.units: dict[str, Any] = {
            "total": len(self.keys),
            "sha256": inventory_digest(self.keys),
        }
        self.ledger = [self.unit(key, "ok") for key in self.keys]
        self.findings = [self.finding(key) for key in self.keys]
        self.cited = ""
        """The sha256 that the journal has of the contract; empty: that of what is there."""

    def unit(self, key: str, status: str) -> str:
        return json.dumps({"unit_id": key, "status": status, "artifact": "x", "ts": "t"})

    def finding(self, key: str) -> str:
        return json.dumps({"n": 1, "_hash": "0" * 16, "_key": key, "_at": "t"})

    def put(self, path: str, data: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def judged(self) -> CheckResult:
        contract = json.dumps({"units": self.units}).encode()
        self.put(CONTRACT, contract)
        self.put("artifacts/B/ledger.jsonl", lines(self.ledger))
        self.put("artifacts/B/findings.jsonl", lines(self.findings))
        cited = self.cited or hashlib.sha256(contract).hexdigest()
        [result] = run_checks(
            RealDisk(),
            str(self.root),
            "B",
            [Criterion("units")],
            environment={},
            timeout_s=1.0,
            contract=CitedContract(CONTRACT, cited),
        )
        return result

    def refusal(self) -> str:
        result = self.judged()
        assert not result.passed, result.detail
        return result.detail


def lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


@pytest.fixture
def batch(workspace: str) -> Batch:
    return Batch(Path(workspace))


def test_units_that_are_all_done_pass_and_name_what_was_read(batch: Batch) -> None:
    result = batch.judged()
    assert result.passed
    assert result.detail == (
        "artifacts/B/ledger.jsonl: all 3 units of the contract are done, each with its finding."
    )
    read = {
        path: hashlib.sha256((batch.root / path).read_bytes()).hexdigest()
        for path in (CONTRACT, "artifacts/B/ledger.jsonl", "artifacts/B/findings.jsonl")
    }
    assert {entry["path"]: entry["sha256"] for entry in result.inputs} == read


def test_a_batch_without_units_passes(workspace: str) -> None:
    assert Batch(Path(workspace), []).judged().passed


def test_units_that_were_passed_over_do_not_count(batch: Batch) -> None:
    batch.ledger = [batch.unit("gone", "ok"), *batch.ledger, batch.unit("gone", "skip")]
    batch.findings.append(batch.finding("gone"))
    assert batch.judged().passed


def test_order_and_repetition_in_the_ledger_do_not_matter(batch: Batch) -> None:
    batch.ledger = [
        batch.unit("c", "fail"), batch.unit("b", "skip-evidence"), batch.unit("a", "ok"),
        batch.unit("c", "ok"), batch.unit("b", "ok"),
    ]  # fmt: skip
    assert batch.judged().passed


def test_a_unit_whose_last_word_is_failure_is_named(batch: Batch) -> None:
    batch.ledger.append(batch.unit("b", "fail"))
    assert "unit b failed" in batch.refusal()


def test_a_ledger_that_lacks_a_unit_is_incomplete(batch: Batch) -> None:
    del batch.ledger[1]
    assert "it has 2 units, and the contract 3" in batch.refusal()


def test_as_many_units_that_are_others_are_no_proof(batch: Batch) -> None:
    batch.ledger[1] = batch.unit("x", "ok")
    batch.findings[1] = batch.finding("x")
    assert "its units are not those of the contract" in batch.refusal()


def test_a_ledger_without_findings_is_only_a_claim(batch: Batch) -> None:
    batch.findings = batch.findings[:1]
    detail = batch.refusal()
    assert "unit b has no finding; unit c has no finding" in detail


@pytest.mark.parametrize("bad", ["nonsense", "[1]", "{}", '{"_key": 1}', "\x00\x00"])
def test_a_line_of_the_log_that_is_no_finding_is_named(batch: Batch, bad: str) -> None:
    batch.findings.insert(1, bad)
    assert "line 2 of artifacts/B/findings.jsonl is no finding" in batch.refusal()


def test_what_other_programs_write_into_a_log_is_read(batch: Batch) -> None:
    batch.findings = [
        "\ufeff" + batch.findings[0] + "\r", "", "   ", *batch.findings[1:],
        '{"_hash": "00000000deadbeef"}',
    ]  # fmt: skip
    assert batch.judged().passed


def test_a_contract_that_was_changed_is_not_believed(batch: Batch) -> None:
    batch.cited = "0" * 64
    assert "contracts/inv-1.json is not the contract that the journal cites" in batch.refusal()


def test_a_contract_that_names_no_units_proves_nothing(batch: Batch) -> None:
    batch.units = {"total": None, "problem": "there is no file of items"}
    assert "contracts/inv-1.json names no units" in batch.refusal()


def test_a_missing_contract_or_ledger_or_log_is_a_failed_check(batch: Batch) -> None:
    batch.judged()
    criteria = [Criterion("units")]
    for path in (CONTRACT, "artifacts/B/ledger.jsonl", "artifacts/B/findings.jsonl"):
        data = (batch.root / path).read_bytes()
        (batch.root / path).unlink()
        digest = hashlib.sha256(json.dumps({"units": batch.units}).encode()).hexdigest()
        [result] = run_checks(
            RealDisk(),
            str(batch.root),
            "B",
            criteria,
            environment={},
            timeout_s=1.0,
            contract=CitedContract(CONTRACT, digest),
        )
        assert (result.passed, result.detail) == (False, f"{path} is not there.")
        batch.put(path, data)


def test_a_units_check_with_parameters_of_its_own_is_the_plain_one(batch: Batch) -> None:
    batch.judged()
    [result] = run_checks(
        RealDisk(),
        str(batch.root),
        "B",
        [Criterion("units", {"total": 4})],
        environment={},
        timeout_s=1.0,
        contract=CitedContract(CONTRACT, "0" * 64),
    )
    assert "it has 3 units, not 4" in result.detail
