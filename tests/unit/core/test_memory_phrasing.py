"""How a statement reads: orders, progress, and the states of the task at hand."""

import pytest

from perdure.core.memory_phrasing import imperative, progress, state_of_own

FACTS = (
    "Free-tier quotas on provider P are per-day; lowering concurrency never removes the wall.",
    "Use of the cache is slow on NFS",
    "Run time of the suite is 4 minutes",
    "The API returns 500 for page 7",
    "Check digits are computed modulo 97",
    "Tests write to tmp",
    "Write requests fail over 1 MB",
    "Set operations are slow",
    "The deploy key was never rotated",
    "Open files are limited to 256 on macOS",
    "Die Quote gilt pro Tag",
    "供应商的免费额度按天计算",
    "リトライは3回までで失敗する",
    "Retry budgets reset at midnight UTC",
    "Log files live in /var/log",
    "Update 4.2 breaks the parser",
    "Load is highest on Mondays",
    "Copy protection makes the PDF unreadable",
    "Test data lives in S3",
)
ORDERS = (
    "Always probe before resume",
    "Never use the free tier",
    "Use SQLite for this",
    "Do not run the tests in parallel",
    "Please set TMPDIR first",
    "The quota is small, so use fewer workers",
    "You must log in first",
    "Make sure the cache is warm",
    "Check the quota before starting",
    "Prüfe zuerst die Quote",
    "Utilisez le cache",
    "不要并行运行测试",
    "必ず先に確認する",
    "Всегда проверяйте квоту",
    "항상 먼저 확인하세요",
    "Siempre usa el caché",
    "Increase the timeout to 60 s",
)


@pytest.mark.parametrize("statement", FACTS)
def test_a_fact_is_neither_an_order_nor_progress(statement: str) -> None:
    assert (imperative(statement), progress(statement)) == ("", "")


@pytest.mark.parametrize("statement", ORDERS)
def test_an_order_is_seen_with_its_words(statement: str) -> None:
    order = imperative(statement)
    assert order
    assert order in statement


@pytest.mark.parametrize(
    "statement",
    ["We finished step 12", "N1 is DONE", "step 3 of 5 is complete", "37 of 40 done",
     "N4: VERIFYING"],
)  # fmt: skip
def test_progress_is_seen(statement: str) -> None:
    assert progress(statement) in statement
    assert progress(statement)


def test_a_state_counts_only_behind_a_name_of_the_task_at_hand() -> None:
    assert state_of_own("The survey node N1 is DONE now", {"N1"}) == "N1 is DONE"
    assert state_of_own("T1 = EXECUTING", {"T1"}) == "T1 = EXECUTING"
    assert state_of_own("DONE is a state of nodes", {"N1"}) == ""
    assert state_of_own("N2 is DONE", {"N1"}) == ""
    assert state_of_own("N1 is well done", {"N1"}) == ""
