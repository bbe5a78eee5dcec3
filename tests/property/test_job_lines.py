"""Any finding comes back from its line, no part of a line passes for it, and a scan is exact."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_codec_round_trip import TEXT, VALUE, normal

from perdure.jobs.lines import (
    RESERVED_KEYS,
    BadLine,
    Line,
    Scanned,
    encode_line,
    item_hash,
    judge_line,
    scan_lines,
)

AT = "2027-01-15T08:00:00.000+00:00"
KEY = st.text(min_size=1)
PAYLOAD = st.dictionaries(TEXT.filter(lambda name: name not in RESERVED_KEYS), VALUE, max_size=5)
LINE = st.builds(lambda key, payload: encode_line(key, payload, AT)[1], KEY, PAYLOAD)

# Lines as they come after accidents, and by other hands.
PIECE = st.sampled_from(
    [
        b'{"_key":"a"}',
        b'{"_key":"a","_at":"now"}',
        b'{"_key":"b","_hash":"0123456789abcdef"}',
        b'{"_hash":"0123456789abcdef"}',
        b'{"_key":',
        b'"c"}',
        b'{"x":{',
        b"}}",
        b'{"_key":7}',
        b'{"x":"\\ud800","_key":"d"}',
        b'{"x":"\xff","_key":"e"}',
        b'{"x":"\xc3\xa4","_key":"f"}',
        b"{}",
        b"[",
        b",",
        b" ",
        b"\0",
        b"\r\n",
        b"\n",
        b"\n",
        b"\xef\xbb\xbf",
    ]
)
LOG = st.lists(PIECE | LINE, max_size=14).map(b"".join) | st.binary(max_size=200)


@given(KEY, PAYLOAD, st.none() | st.just("0123456789abcdef"))
def test_any_finding_comes_back(key: str, payload: dict[str, Any], item: str | None) -> None:
    name, line = encode_line(key, payload, AT, item)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert judge_line(line) == Line(item_hash(key), key, AT, False)
    assert name == item_hash(key)
    read = json.loads(line)
    assert (read.pop("_hash"), read.pop("_key"), read.pop("_at")) == (name, key, AT)
    assert read.pop("_item", None) == item
    assert read == normal(payload)


@given(LINE, st.data())
def test_no_beginning_of_a_line_is_a_whole_one(line: bytes, data: st.DataObject) -> None:
    size_bytes = data.draw(st.integers(0, len(line) - 2))
    judged = judge_line(line[:size_bytes])
    assert isinstance(judged, str)
    assert bool(judged) == bool(size_bytes)


def judged_one_by_one(data: bytes, completed: dict[str, str]) -> Scanned:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    findings, byte, bad = 0, 0, []
    for number, raw in enumerate(lines):
        judged = judge_line(raw)
        if isinstance(judged, Line):
            completed[judged.hash] = judged.at
            findings += 1
        elif judged:
            bad.append(BadLine(number, byte, len(raw), judged))
        byte += len(raw) + 1
    return Scanned(len(lines), findings, bad)


@given(LOG)
def test_a_scan_finds_what_judging_each_line_finds(data: bytes) -> None:
    expected: dict[str, str] = {}
    completed: dict[str, str] = {}
    assert scan_lines(data, completed) == judged_one_by_one(data, expected)
    assert list(completed.items()) == list(expected.items())


@given(LOG)
def test_a_finding_is_an_object_for_every_reader_of_json(data: bytes) -> None:
    for raw in data.split(b"\n"):
        judged = judge_line(raw)
        if isinstance(judged, Line):
            read = json.loads(raw.decode("utf-8-sig"))
            assert isinstance(read, dict)
            if judged.key is not None:
                assert read["_key"] == judged.key
            else:
                assert read["_hash"] == judged.hash


@given(st.lists(LINE, max_size=20))
def test_a_log_of_ours_has_no_bad_line(lines: list[bytes]) -> None:
    completed: dict[str, str] = {}
    scanned = scan_lines(b"".join(lines), completed)
    assert scanned == Scanned(len(lines), len(lines), [])
    assert set(completed) == {item_hash(json.loads(line)["_key"]) for line in lines}
