"""Journal lines: their fields, the chain over them, and what a scan makes of damage."""

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.codec import (
    EMPTY_TIP,
    GENESIS,
    ChainTip,
    Commit,
    Scan,
    chain,
    decode_line,
    encode_commit,
    from_json,
    judge_tail,
    moment,
    proves,
    timestamp,
    to_indented_json,
    to_json,
)
from perdure.core.events import Draft, Event
from perdure.core.model import Integrity, State


def note(text: str = "x") -> Draft:
    return Draft("NOTE", "task", "T1", {"op": "note", "text": text})


def commit(tip: ChainTip, *drafts: Draft, op: str | None = None) -> Commit:
    return encode_commit(
        tip, drafts, ts="2027-01-15T08:00:00.000+00:00", actor="a:b", epoch=3, op=op
    )


def scan(
    data: bytes, tip: ChainTip = EMPTY_TIP, *, size: int = 1 << 20
) -> tuple[Scan, list[Event]]:
    found = Scan(tip)
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    return found, [event for events in found.commits(chunks) for event in events]


def three() -> list[Commit]:
    first = commit(EMPTY_TIP, note("one"))
    second = commit(first.tip, note("two"), note("three"), note("four"))
    return [first, second, commit(second.tip, note("five"))]


def whole() -> bytes:
    return b"".join(part.data for part in three())


# Lines


def test_a_line_has_the_fields_of_the_protocol_and_h_is_the_last() -> None:
    line = json.loads(commit(EMPTY_TIP, note()).data)
    assert list(line) == ["seq", "ts", "actor", "kind", "tx", "entity", "payload", "evidence",
                          "epoch", "h"]  # fmt: skip
    assert (line["seq"], line["actor"], line["epoch"], line["tx"]) == (1, "a:b", 3, None)
    assert line["entity"] == {"type": "task", "id": "T1"}


def test_one_event_carries_no_commit_mark_and_several_carry_one_each() -> None:
    lines = [json.loads(line) for line in whole().splitlines()]
    assert [line.get("c") for line in lines] == [None, [1, 3], [2, 3], [3, 3], None]


def test_the_last_event_of_a_tx_says_so_and_no_other_does() -> None:
    lines = [json.loads(line) for line in three()[1].data.splitlines()]
    assert [line["payload"].get("tx_end") for line in lines] == [None, None, True]
    assert len({line["tx"] for line in lines}) == 1


def test_an_op_id_is_on_every_line_of_its_commit() -> None:
    lines = commit(EMPTY_TIP, note(), note(), op="op-1").data.splitlines()
    assert [json.loads(line)["op"] for line in lines] == ["op-1", "op-1"]


def test_h_is_the_hash_of_the_running_value_and_the_bytes_before_it() -> None:
    value = GENESIS
    for line in whole().splitlines():
        head = line[: line.rindex(b',"h":')]
        value = sha256(value + head).digest()
        assert json.loads(line)["h"] == value.hex()[:16]


def test_the_tip_of_a_commit_is_where_a_scan_of_its_bytes_ends() -> None:
    data, found = b"", Scan()
    for part in three():
        data += part.data
        found = scan(data)[0]
        assert found.tip == part.tip
    assert found.tip.offset == len(data)
    assert found.damage is None


def test_what_is_returned_as_committed_is_what_reading_it_back_gives() -> None:
    odd = Draft("NOTE", "task", "T1", {"tuple": (1, 2), "numbers": {1: "one"}, "none": None})
    part = commit(EMPTY_TIP, odd, note("\ud800 \u2028 \0"))
    assert scan(part.data)[1] == list(part.events)


def test_chunks_may_end_anywhere() -> None:
    data = whole()
    for size in (1, 7, 64):
        found, events = scan(data, size=size)
        assert ([event.seq for event in events], found.damage) == ([1, 2, 3, 4, 5], None)


def test_a_scan_goes_on_from_any_commit() -> None:
    first, second, third = three()
    found, events = scan(second.data + third.data, first.tip)
    assert [event.seq for event in events] == [2, 3, 4, 5]
    assert found.tip == third.tip


def test_u2028_and_nul_inside_a_text_do_not_end_a_line() -> None:
    part = commit(EMPTY_TIP, note("a\u2028b\u2029c\x85d\0e\rf"))
    assert part.data.count(b"\n") == 1
    assert scan(part.data)[1][0].payload["text"] == "a\u2028b\u2029c\x85d\0e\rf"


def test_time_is_iso_with_an_offset_and_milliseconds() -> None:
    assert timestamp(1_800_000_000.1239) == "2027-01-15T08:00:00.123+00:00"


# Lines by others


def test_a_line_without_h_is_accepted_counted_and_enters_the_chain() -> None:
    foreign = b'{"seq":"1","ts":"t","actor":"x:y","kind":"NOTE","payload":null,"entity":"T1"}\n'
    found, events = scan(foreign)
    assert (events[0].seq, events[0].payload, found.unchained) == (1, {}, 1)
    ours = commit(found.tip, note())
    assert scan(foreign + ours.data)[0].damage is None
    edited = foreign.replace(b'"t"', b'"u"') + ours.data
    damage = scan(edited)[0].damage
    assert damage is not None
    assert "h does not match" in damage.reason


def test_crlf_trailing_blanks_and_blank_lines_are_tolerated() -> None:
    lines = whole().splitlines()
    data = b"\r\n".join(lines[:1]) + b"  \r\n\n" + b"\r\n".join(lines[1:]) + b"\r\n \n"
    found, events = scan(data)
    assert ([event.seq for event in events], found.damage) == ([1, 2, 3, 4, 5], None)


def test_blank_lines_at_the_end_belong_to_what_was_read() -> None:
    found, _ = scan(whole() + b"\n\r\n")
    assert found.tip.offset == len(whole()) + 3
    more = commit(found.tip, note("after them"))
    again, events = scan(whole() + b"\n\r\n" + more.data)
    assert (events[-1].payload["text"], again.damage) == ("after them", None)
    assert again.tip == more.tip


def test_blanks_without_a_newline_are_a_tail_that_nothing_may_be_written_behind() -> None:
    found, _ = scan(whole() + b"  ")
    assert found.damage is not None
    assert found.tip.offset == len(whole())
    assert judge_tail(b"  ", found.tip)


def test_lines_that_are_not_folded_are_not_counted_as_unchained() -> None:
    found, _ = scan(whole() + b"not a line of ours\n")
    assert found.damage is not None
    assert found.unchained == 0


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"1", b"null", b'{"seq":1}', b'{"seq":1,"kind":7}', b'{"kind":"NOTE"}', b"\xff",
     b'{"seq":1,"kind":"NOTE","payload":[1]}', b'{"seq":1,"kind":"N\\ud8', b"{" * 100_000,
     b'{"seq":1,"kind":"NOTE","payload":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"],
)  # fmt: skip
def test_what_is_no_event_raises_valueerror(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_line(line)


def test_unknown_fields_are_ignored_and_missing_optional_ones_have_defaults() -> None:
    event = decode_line(b'{"seq":3,"ts":null,"kind":"ODD","colour":"red","c":null,"op":null}')
    assert (event.seq, event.kind, event.actor, event.evidence) == (3, "ODD", "", [])


# Damage


def test_damage_names_the_line_and_the_byte() -> None:
    data = bytearray(whole())
    start = data.index(b'{"seq":3')
    data[start + 60] ^= 1
    damage = scan(bytes(data))[0].damage
    assert damage is not None
    assert (damage.line, damage.byte) == (3, start)


def test_every_flipped_bit_of_a_journal_is_noticed() -> None:
    data = whole()
    last_newline = len(data) - 1
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << (at % 8)
        found, events = scan(bytes(flipped))
        assert found.damage is not None, at
        assert [event.seq for event in events] in ([], [1], [1, 2, 3, 4]), at
        assert at != last_newline or len(events) == 4


@pytest.mark.parametrize("gone", range(5))
def test_a_removed_line_is_noticed(gone: int) -> None:
    lines = whole().splitlines(keepends=True)
    rest = b"".join(line for number, line in enumerate(lines) if number != gone)
    found, _ = scan(rest)
    assert (found.damage is None) == (gone == 4)  # the end of a journal is proved by projections


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (3, 4), (1, 3)])
def test_swapped_lines_are_noticed(one: int, other: int) -> None:
    lines = whole().splitlines(keepends=True)
    lines[one], lines[other] = lines[other], lines[one]
    assert scan(b"".join(lines))[0].damage is not None


def test_nothing_of_an_unfinished_commit_is_handed_out() -> None:
    first, second, _ = three()
    for length in range(1, len(second.data)):
        found, events = scan(first.data + second.data[:length])
        assert [event.seq for event in events] == [1]
        assert found.tip == first.tip
        assert found.damage is not None


@pytest.mark.parametrize("mark", ["[1,1,1]", "[2,2]", "[]", "[3,2]", "[0,1]"])
def test_a_commit_mark_out_of_place_is_damage(mark: str) -> None:
    line = b'{"seq":1,"ts":"","actor":"","kind":"NOTE","c":' + mark.encode() + b"}\n"
    found, events = scan(line)
    assert (events, found.damage is not None) == ([], True)


def test_a_commit_inside_another_is_damage() -> None:
    first, second, third = three()
    head = second.data.splitlines(keepends=True)[0]
    single = commit(ChainTip(2, 0, scan_value(first.data + head), 0, b""), note())
    for follower in (single.data, third.data, second.data):
        assert scan(first.data + head + follower)[0].damage is not None


def scan_value(data: bytes) -> bytes:
    value = GENESIS
    for line in data.splitlines():
        value = chain(value, line)[0]
    return value


# Proving a position


def test_a_tip_is_proved_by_its_own_line_and_by_no_other() -> None:
    first, second, third = three()
    data = whole()
    for part in (first, second, third):
        line = data[part.tip.start : part.tip.offset - 1]
        assert proves(part.tip, line)
        assert not proves(part.tip, line[:40] + b"?" + line[41:])
    assert not proves(second.tip, third.data[:-1])


def test_a_tip_on_a_crlf_line_is_proved_too() -> None:
    data = commit(EMPTY_TIP, note()).data.replace(b"\n", b"\r\n")
    tip = scan(data)[0].tip
    assert proves(tip, data[tip.start : tip.offset - 1])


# JSON of records


def test_json_of_any_text_goes_both_ways() -> None:
    state = State(task_id="T1", goal_statement="\ud800 \u2028 \0 \U0001f600", created="now")
    for sort in (False, True):
        assert from_json(to_json(state, sort=sort), State) == state


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"tier":"\\u0041"}', b'{"tier":"A"}', b'{"goal_statement":"\\ud800'],
)
def test_json_that_is_not_the_record_raises_valueerror(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(data, State)


def test_sorted_json_has_its_keys_in_order_also_with_lone_surrogates() -> None:
    for text in ("plain", "\ud800"):
        value = {"b": text, "a": {"z": 1, "y": Integrity("git", "v", 0, "now")}}
        assert list(json.loads(to_json(value, sort=True))) == ["a", "b"]


# The time of an event


@given(st.integers(-10_000_000_000, 100_000_000_000))
def test_a_time_that_was_written_is_read_back(milliseconds: int) -> None:
    seconds = milliseconds / 1_000
    found = moment(timestamp(seconds))
    assert found is not None
    assert timestamp(found) == timestamp(seconds)
    assert abs(found - seconds) < 0.001


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01T00:00:10", 10.0),
        ("1970-01-01 00:00:10.5", 10.5),
        ("1970-01-02", 86_400.0),
        ("now", None),
        ("", None),
        ("1970-13-01T00:00:10Z", None),
        ("\ud800", None),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200.0),
    ],
)
def test_times_of_others_are_read_where_they_are_times(text: str, seconds: float | None) -> None:
    assert moment(text) == seconds


@pytest.mark.parametrize("text", ["plain", "\u00e9\u2028", "\ud800", "\\ud800 \udfff"])
def test_indented_json_says_the_same_whatever_the_text(text: str) -> None:
    value = {"goal": text, "units": [1, {"key": text}]}
    shown = to_indented_json(value)
    assert json.loads(shown) == value
    assert len(shown.splitlines()) > len(value)
