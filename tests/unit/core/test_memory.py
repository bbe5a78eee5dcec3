"""The lines of a memory store, their chain, and what an unfinished write leaves."""

import random
from datetime import date

import pytest

from perdure.core.codec import GENESIS
from perdure.core.memory import Chains, Entry, encode_entry, flags_of, read_entries
from perdure.core.memory_index import index_page, judge_index
from perdure.core.memory_search import rank


def entry(number: int, statement: str = "s", **fields: object) -> Entry:
    given: dict[str, object] = {
        "id": f"MEM-{number:04d}", "kind": "method", "scope": "global", "statement": statement,
        "evidence_refs": ("T#J-1",), "created": "2026-01-01", "supersedes": (),
        "freshness": "stable", "by": "coordinator:main",
    }  # fmt: skip
    return Entry(**(given | fields))  # type: ignore[arg-type]


def lines(*entries: Entry) -> bytes:
    data = b""
    for one in entries:
        data += encode_entry(read_entries(data).value, one)
    return data


THREE = lines(entry(1, "one"), entry(2, "twö\u2028"), entry(3, "three"))


def test_what_was_written_is_read() -> None:
    reading = read_entries(THREE)
    assert [one.statement for one in reading.entries] == ["one", "twö\u2028", "three"]
    assert (reading.offset, reading.torn, reading.damage) == (len(THREE), b"", None)
    assert THREE[reading.last :].count(b"\n") == 1
    assert read_entries(b"").value == GENESIS


@pytest.mark.parametrize("length", range(1, len(THREE)))
def test_a_prefix_is_what_a_crash_leaves_and_never_damage(length: int) -> None:
    reading = read_entries(THREE[:length])
    assert reading.damage is None
    assert len(reading.entries) in (
        THREE[:length].count(b"\n"),
        THREE[:length].count(b"\n") + reading.unended,
    )
    assert THREE[:length] == THREE[: reading.offset] + reading.torn


def test_a_changed_byte_never_loses_a_line_unseen() -> None:
    """What looks like an unfinished write is told from damage by the index, which knew more."""
    rng = random.Random(7)
    page = index_page(read_entries(THREE))
    for _ in range(400):
        at = rng.randrange(len(THREE))
        changed = bytearray(THREE)
        changed[at] ^= 1 << rng.randrange(8)
        reading = read_entries(bytes(changed))
        if len(reading.entries) < 3:
            seen = reading.damage is not None or judge_index(page, reading).state == "ahead"
            assert seen, at
        else:
            assert at == len(THREE) - 1, "only a newline that nothing follows may be anything"


def test_an_id_that_is_there_already_is_damage() -> None:
    reading = read_entries(THREE + encode_entry(read_entries(THREE).value, entry(3, "again")))
    assert reading.damage is not None
    assert reading.damage.line == 4


def test_what_counts_is_what_nothing_supersedes() -> None:
    chains = Chains(
        [
            entry(1),
            entry(2, supersedes=("MEM-0001",)),
            entry(3),
            entry(4, supersedes=("MEM-0002", "MEM-0003")),
        ]
    )
    assert [one.id for one in chains.heads] == ["MEM-0004"]
    assert chains.head_of("MEM-0001").id == "MEM-0004"
    assert [one.id for one in chains.chain_of("MEM-0001")][-1] == "MEM-0004"
    assert chains.dangling() == {}
    assert Chains([entry(2, supersedes=("MEM-0001",))]).dangling() == {"MEM-0002": ["MEM-0001"]}


def test_a_circle_of_lines_by_others_ends() -> None:
    chains = Chains([entry(1, supersedes=("MEM-0002",)), entry(2, supersedes=("MEM-0001",))])
    assert chains.head_of("MEM-0001").id in ("MEM-0001", "MEM-0002")
    assert len(chains.chain_of("MEM-0001")) <= 2


def test_flags_tell_what_to_mind() -> None:
    today = date(2026, 6, 1)
    assert flags_of(entry(1), today) == []
    assert flags_of(entry(1, evidence_refs=()), today) == ["draft"]
    assert flags_of(entry(1, freshness="recheck-after:2026-05-01"), today) == ["due"]
    assert flags_of(entry(1, freshness="recheck-after:2026-07-01"), today) == []
    assert flags_of(entry(1, kind="env"), today) == ["recheck"]
    assert flags_of(entry(1), today, superseded=True) == ["superseded"]


def test_the_index_is_judged_by_the_entries() -> None:
    reading, before = read_entries(THREE), read_entries(lines(entry(1, "one")))
    page = index_page(reading)
    assert judge_index(page, reading).state == "whole"
    assert judge_index(index_page(before), reading).state == "stale"
    assert judge_index(page, before).state == "ahead"
    assert judge_index(page.replace(b"three", b"tree"), reading).state == "edited"
    assert judge_index(b"", reading).state == "edited"
    assert judge_index(None, reading).state == "missing"


def test_no_statement_breaks_out_of_the_index() -> None:
    nasty = "`x` <!-- y --> \n# heading\n- MEM-9999 \u202e"
    page = index_page(read_entries(lines(entry(1, nasty)))).decode()
    assert not [line for line in page.splitlines() if line.startswith("# heading")]
    assert page.count("<!--") == 1 or "`" in page.split("<!--")[0]


def test_search_finds_words_in_any_order_also_without_blanks() -> None:
    known = [
        entry(1, "The limit of shop X is 5 requests a second"),
        entry(2, "Shop Y is closed on Sundays"),
        entry(3, "店铺X的接口每秒超过五个请求返回429错误"),
    ]
    assert [one.number for one in rank("requests limit", known)] == [1]
    assert [one.number for one in rank("接口", known)] == [3]
    assert rank("zebra", known) == []
    assert len(rank("", known)) == 3
