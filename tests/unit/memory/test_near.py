"""Which statements say nearly the same: the measured set that the threshold was chosen on."""

# ruff: noqa: RUF001  (pairs in other scripts)

import pytest

from perdure.core.memory import Entry
from perdure.memory.near import near_entries

SAME = [
    (
        "Free-tier model quotas on provider P are per-day.",
        "The free-tier model quotas of provider P are counted per day.",
    ),
    ("The API of site X returns 500 for page 7.", "Site X's API returns 500 for page 7"),
    (
        "Tests must not run in parallel because they share port 8080.",
        "Tests share port 8080, so they cannot run in parallel.",
    ),
    (
        "PDF tables span pages in reports from 2019 onwards",
        "In reports from 2019 onwards PDF tables span pages",
    ),
    (
        "Python 3.11 is the oldest version on the build machines.",
        "The build machines have Python 3.11 as their oldest version.",
    ),
    (
        "Anna prefers short summaries without tables",
        "Anna prefers summaries that are short and without tables",
    ),
    ("供应商的免费额度按天计算", "供应商免费额度是按天计算的"),
    ("测试共用端口8080，不能并行运行", "测试因共用端口8080而不能并行运行"),
    ("無料枠の上限は日単位で計算される", "無料枠の上限は1日単位で計算される"),
    ("The nightly export takes 40 minutes", "Nightly export takes about 40 minutes"),
    (
        "Lowering concurrency slows the quota wall but does not remove it.",
        "Lower concurrency only slows the wall of the quota, it does not remove it.",
    ),
    ("무료 할당량은 하루 단위로 계산된다", "무료 할당량은 일 단위로 계산된다"),
    ("Die Freikontingente gelten pro Tag", "Das Freikontingent gilt pro Tag"),
]
DIFFERENT = [
    (
        "Free-tier model quotas on provider P are per-day.",
        "The API of provider P returns 429 when quotas are used up.",
    ),
    ("The API of site X returns 500 for page 7.", "The API of site X needs a token in the header."),
    (
        "Tests share port 8080, so they cannot run in parallel.",
        "Tests need a database that listens on port 5432.",
    ),
    (
        "PDF tables span pages in reports from 2019 onwards",
        "PDF text of scanned reports is an image",
    ),
    (
        "Python 3.11 is the oldest version on the build machines.",
        "The build machines have no network after 18:00.",
    ),
    ("Anna prefers short summaries without tables", "Anna approves gates only in the morning"),
    ("供应商的免费额度按天计算", "供应商的接口需要令牌"),
    ("测试共用端口8080，不能并行运行", "测试需要数据库监听端口5432"),
    ("無料枠の上限は日単位で計算される", "無料枠の申請には電話番号が必要"),
    ("The nightly export takes 40 minutes", "The nightly export fails when the disk is full"),
    (
        "Lowering concurrency slows the quota wall but does not remove it.",
        "Concurrency above 8 makes the scraper return empty pages.",
    ),
    ("무료 할당량은 하루 단위로 계산된다", "무료 계정은 전화번호가 필요하다"),
    ("The staging server has 4 GB of memory.", "The staging server has its own database."),
    ("Reports of 2019 have two columns.", "Reports of 2021 use footnotes in tables."),
]


def entry(statement: str) -> Entry:
    return Entry(
        id="MEM-0001", kind="env", scope="global", statement=statement, evidence_refs=(),
        created="2026-01-01", supersedes=(), freshness="stable", by="",
    )  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_thing_said_twice_is_seen(one: str, other: str) -> None:
    assert near_entries(one, [entry(other)])
    assert near_entries(other, [entry(one)])


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_things_about_one_subject_are_two(one: str, other: str) -> None:
    assert not near_entries(one, [entry(other)])
    assert not near_entries(other, [entry(one)])
