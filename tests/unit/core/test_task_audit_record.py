"""What an audit comes to: verdicts from results alone, bounded, and complete in the digest."""

import re

from perdure.core.codec import Scan
from perdure.core.fold import Replica
from perdure.core.task_audit import (
    AuditRecord,
    DiskFacts,
    Findings,
    Item,
    ItemRecord,
    bad,
    ok,
    results_kept_max,
)
from perdure.core.task_audit_items import GROUPS
from perdure.core.task_audit_record import (
    digest_of,
    failed_items,
    inputs_kept_max,
    item_record,
    make_record,
    record_markdown,
)


class Said(Item):
    """An item that says what it is told to."""

    id = "A2.9"
    title = "It is so"
    rule = "INV-2"
    method = "It was looked at."

    def __init__(self, findings: Findings, tier: int = 1) -> None:
        self.findings = findings
        self.tier = tier

    def judge(self, replica: Replica, disk: DiskFacts) -> Findings:
        return self.findings


def entry(findings: Findings, *, tier: int = 1, wanted: int = 1) -> ItemRecord:
    return item_record(Said(findings, wanted), findings, tier)


def record_of(*findings: Findings, damage: str = "") -> AuditRecord:
    items, disk = [Said(one) for one in findings], DiskFacts(damage=damage)
    return make_record(items, Replica(), disk, Scan().tip, audited_at="now", auditor="verifier:v")


def test_a_verdict_follows_from_the_results_alone() -> None:
    assert entry(Findings((ok("a"), ok("b")))).verdict == "PASS"
    assert entry(Findings((ok("a"), bad("b", "is not")))).verdict == "FAIL"
    nothing = entry(Findings(why="there is nothing"))
    assert (nothing.verdict, nothing.why, nothing.digest) == ("N/A", "there is nothing", "")


def test_what_a_tier_does_not_ask_for_is_not_judged() -> None:
    skipped = entry(Findings((bad("a", "is not"),)), tier=1, wanted=2)
    assert (skipped.verdict, skipped.results) == ("N/A", ())
    assert "tier 2" in skipped.why
    assert entry(Findings((bad("a", "is not"),)), tier=2, wanted=2).verdict == "FAIL"


def test_what_does_not_hold_is_listed_first_and_the_rest_is_counted() -> None:
    results = (*(ok(f"n{number}") for number in range(1_000)), bad("last", "is not"))
    found = entry(Findings(results))
    assert (found.looked_at, found.failed, len(found.results)) == (1_001, 1, results_kept_max)
    assert found.results[0].ref == "last"
    assert len(found.inputs) == inputs_kept_max + 1
    assert found.inputs[-1] == f"and {1_001 - inputs_kept_max} more"


def test_the_digest_is_over_results_that_are_not_listed_too() -> None:
    results = [ok(f"n{number}") for number in range(results_kept_max + 5)]
    before = entry(Findings(tuple(results))).digest
    results[-1] = ok("another")
    assert entry(Findings(tuple(results))).digest != before
    assert re.fullmatch("[0-9a-f]{16}", before)
    assert digest_of([ok("a", "b")]) != digest_of([bad("a", "b")]) != digest_of([ok("ab")])


def test_a_record_passes_when_nothing_failed_and_nothing_is_damaged() -> None:
    good, wrong, none = Findings((ok("a"),)), Findings((bad("a", "x"),)), Findings(why="none")
    assert record_of(good, none).passed
    assert dict(record_of(good, none).counts) == {"PASS": 1, "FAIL": 0, "N/A": 1}
    record = record_of(good, wrong)
    assert not record.passed
    assert [one.verdict for one in failed_items(record)] == ["FAIL"]
    assert not record_of(good, damage="line 2, byte 7: not JSON").passed


def test_the_page_has_all_that_somebody_needs_to_do_it_again() -> None:
    results = tuple(ok(f"n{number}") for number in range(results_kept_max + 3))
    page = record_markdown(
        record_of(Findings((bad("A-1", "is missing"),)), Findings(results), Findings(why="none")),
        GROUPS,
    )
    for words in (
        "not passed", "J-1 to J-0", "A2 Truth", "### A2.9 FAIL: It is so", "Rule INV-2.",
        "It was looked at.", "Inputs: A-1.", "| A-1 | **no** | is missing |", "and 3 more",
        "Not applicable: none.", "digest `",
    ):  # fmt: skip
        assert words in page


def test_words_of_others_start_nothing_on_the_page() -> None:
    evil = "x|y\n# Passed\n<script>[a](b)`c`"
    page = record_markdown(record_of(Findings((bad(evil, evil),), inputs=(evil,))), GROUPS)
    assert "\n# Passed" not in page
    assert "<script>" not in page.replace("\\<", "")
    assert "x\\|y" in page
