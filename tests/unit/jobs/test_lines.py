"""Lines of the log: what is written, what is refused, and what counts in lines of others."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest

from perdure.errors import UsageError
from perdure.jobs import lines
from perdure.jobs.lines import (
    RESERVED_KEYS,
    BadLine,
    Line,
    Scanned,
    check_key,
    encode_line,
    encode_value,
    item_digest,
    item_hash,
    judge_line,
    key_bytes_max,
    nesting_max,
    scan_lines,
)

AT = "2027-01-15T08:00:00.000+00:00"
A = "ca978112ca1bbdca"  # of the key "a"
B = "3e23e8160039594a"  # of the key "b"


def nested(depth: int) -> dict[str, Any]:
    """A payload whose line has mappings and lists ``depth`` deep, itself included."""
    value: Any = 1
    for _ in range(depth - 1):
        value = [value]
    return {"value": value}


def refused(payload: Any, code: str, key: Any = "k") -> str:
    with pytest.raises(UsageError) as error:
        encode_line(key, payload, AT)
    assert (error.value.code, error.value.rule) == (code, "JB-4")
    assert isinstance(error.value, ValueError)
    assert error.value.fix
    return error.value.message


# Writing


@pytest.mark.parametrize("key", ["a", "https://example.org/?q=1", "\u00e4\U0001f600\u2028"])
def test_an_item_hash_is_the_first_16_digits_of_the_sha256_of_the_key(key: str) -> None:
    assert item_hash(key) == sha256(key.encode("utf-8")).hexdigest()[:16]
    assert item_hash("a") == A


def test_a_line_is_the_payload_and_the_contracts_fields_behind_it() -> None:
    name, line = encode_line("a", {"title": "T", "n": None}, AT)
    assert name == A
    expected = '{"title":"T","n":null,"_hash":"%s","_key":"a","_at":"%s"}\n'
    assert line.decode() == expected % (A, AT)


def test_an_item_that_is_more_than_its_key_leaves_its_digest() -> None:
    digest = item_digest({"url": "u", "n": 1})
    line = json.loads(encode_line("a", {}, AT, digest)[1])
    assert list(line) == ["_hash", "_key", "_at", "_item"]
    assert line["_item"] == digest == sha256(b'{"n":1,"url":"u"}').hexdigest()[:16]
    assert item_digest({"n": 1, "url": "u"}) == digest != item_digest({"n": 2, "url": "u"})


@pytest.mark.parametrize("name", sorted(RESERVED_KEYS))
def test_a_reserved_name_in_the_payload_is_refused(name: str) -> None:
    assert name in refused({"title": "T", name: 1}, "reserved_key")


@pytest.mark.parametrize("key", [None, 7, b"a", ["a"], "", "a\ud800"], ids=repr)
def test_what_cannot_name_an_item_is_refused(key: Any) -> None:
    refused({}, "bad_key", key)
    with pytest.raises(UsageError):
        item_hash(key)


def test_a_key_has_a_limit_in_bytes() -> None:
    longest = "\u00e4" * (key_bytes_max // 2)
    assert check_key(longest) == longest
    assert str(key_bytes_max) in refused({}, "key_too_long", longest + "a")


@pytest.mark.parametrize("payload", [["a"], "text", None, 5, {1: "a"}, {b"a": 1}], ids=repr)
def test_a_payload_is_a_mapping_with_texts_for_keys(payload: Any) -> None:
    refused(payload, "bad_payload")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("beside", ["", "\udc80"], ids=["plain", "beside half a character"])
def test_numbers_that_json_does_not_have_are_refused(number: float, beside: str) -> None:
    message = refused({"text": beside, "list": [{"x": number}]}, "not_json")
    assert str(number) in message


@pytest.mark.parametrize("thing", [object(), 1j, lambda: 0, {"a": {1, object()}}], ids=type)
def test_what_has_no_json_is_refused(thing: Any) -> None:
    refused({"x": thing}, "not_json")


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    refused({"x": endless}, "not_json")


def test_nesting_has_a_limit_that_every_reader_can_follow() -> None:
    name, line = encode_line("a", nested(nesting_max), AT)
    assert judge_line(line) == Line(name, "a", AT, False)
    assert str(nesting_max) in refused(nested(nesting_max + 1), "not_json")


def test_many_mappings_beside_each_other_are_not_deep() -> None:
    rows = [{"n": n, "none": None} for n in range(nesting_max * 2)]
    assert json.loads(encode_line("a", {"rows": rows}, AT)[1])["rows"] == rows


def test_texts_like_the_names_of_odd_numbers_pass() -> None:
    payload = {"null": "NaN", "Infinity": None}
    assert json.loads(encode_value(payload, "cursor")) == payload


def test_dates_are_written_as_text() -> None:
    moment = datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert json.loads(encode_line("a", {"when": moment}, AT)[1])["when"] == "2027-01-15T08:00:00Z"


def test_a_line_has_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    size_bytes = len(encode_line("a", {"x": "yy"}, AT)[1])
    monkeypatch.setattr(lines, "line_bytes_max", size_bytes)
    encode_line("a", {"x": "yy"}, AT)
    assert str(size_bytes + 1) in refused({"x": "yyy"}, "finding_too_long", "a")


def test_half_a_character_in_a_payload_is_written_as_an_escape() -> None:
    name, line = encode_line("a", {"file": "caf\udce9.txt"}, AT)
    assert rb"caf\udce9.txt" in line
    assert json.loads(line)["file"] == "caf\udce9.txt"
    assert judge_line(line) == Line(name, "a", AT, False)


def test_only_a_newline_ends_a_line() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\r\ng"
    _, line = encode_line(text, {"text": text}, AT)
    assert line.count(b"\n") == 1
    assert json.loads(line)["text"] == text


# Reading


FOREIGN = {
    "ours": (b'{"x":1,"_hash":"%b","_key":"a","_at":"now"}', Line(A, "a", "now", False)),
    "spaces": (b' { "_key" : "a" , "_hash" : "%b" } ', Line(A, "a", "", False)),
    "carriage return": (b'{"_hash":"%b","_key":"a"}\r', Line(A, "a", "", False)),
    "byte order mark": (b'\xef\xbb\xbf{"_hash":"%b","_key":"a"}', Line(A, "a", "", False)),
    "newline": (b'{"_hash":"%b","_key":"a"}\n', Line(A, "a", "", False)),
    "no hash": (b'{"_key":"a"}', Line(A, "a", "", False)),
    "hash of null": (b'{"_key":"a","_hash":null}', Line(A, "a", "", False)),
    "other hash": (b'{"_key":"a","_hash":"0123456789abcdef"}', Line(A, "a", "", True)),
    "hash of another type": (b'{"_key":"a","_hash":7}', Line(A, "a", "", True)),
    "time as number": (b'{"_key":"a","_at":1800000000}', Line(A, "a", "1800000000", False)),
    "time of another type": (b'{"_key":"a","_at":[1]}', Line(A, "a", "", False)),
    "half a character as time": (b'{"_key":"a","_at":"\\ud800"}', Line(A, "a", "", False)),
    "NaN, as Python writes it": (b'{"x":NaN,"_key":"a"}', Line(A, "a", "", False)),
    "half a character": (b'{"x":"\\udc80","_key":"a"}', Line(A, "a", "", False)),
    "empty key": (b'{"_key":""}', Line(sha256(b"").hexdigest()[:16], "", "", False)),
    "hash alone": (b'{"_hash":"%b","_at":"now"}', Line(A, None, "now", False)),
    "hash and a key that is no text": (b'{"_hash":"%b","_key":7}', Line(A, None, "", False)),
    "hash and half a key": (b'{"_hash":"%b","_key":"\\ud800"}', Line(A, None, "", False)),
    "the last of two keys": (b'{"_key":7,"_key":"a"}', Line(A, "a", "", False)),
}


@pytest.mark.parametrize(("raw", "expected"), FOREIGN.values(), ids=FOREIGN)
def test_lines_of_others_count(raw: bytes, expected: Line) -> None:
    raw = raw.replace(b"%b", A.encode())
    assert judge_line(raw) == expected
    completed: dict[str, str] = {}
    assert scan_lines(raw.rstrip(b"\n") + b"\n", completed) == Scanned(1, 1, [])
    assert completed == {expected.hash: expected.at}


BAD = {
    "an array": (b'["_key"]', "not a JSON object"),
    "a number": (b"7", "not a JSON object"),
    "no fields": (b"{}", "neither"),
    "no text as key": (b'{"_key":7}', "neither"),
    "half a key": (b'{"_key":"\\ud800"}', "neither"),
    "a hash in capitals": (b'{"_hash":"CA978112CA1BBDCA"}', "neither"),
    "a short hash": (b'{"_hash":"ca978112"}', "neither"),
    "a hash with a newline": (b'{"_hash":"ca978112ca1bbdca\\n"}', "neither"),
    "torn": (b'{"x":"abc', "not JSON (Unterminated string"),
    "torn between": (b'{"_key":"a","x":1', "not JSON"),
    "two objects": (b'{"_key":"a"}{"_key":"b"}', "not JSON (Extra data"),
    "something behind": (b'{"_key":"a"},', "not JSON"),
    "zeros": (b"\0\0\0\0", "not JSON"),
    "control character": (b'{"x":"\x01","_key":"a"}', "not JSON"),
    "not UTF-8": (b'{"_key":"\xff"}', "not UTF-8"),
    "not UTF-8 where nobody looks": (b'{"x":"\xff","_key":"a"}', "not UTF-8"),
    "UTF-16": ('{"_key":"a"}'.encode("utf-16"), "not UTF-8"),
    "a surrogate in UTF-8": (b'{"x":"\xed\xa0\x80","_key":"a"}', "not UTF-8"),
    "too deep": (b'{"x":%b,"_key":"a"}' % (b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
    "too many digits": (b'{"x":NaN,"n":%b,"_key":"a"}' % (b"9" * 9_000), "not JSON"),
}


@pytest.mark.parametrize(("raw", "reason"), BAD.values(), ids=BAD)
def test_what_is_no_finding_is_told_with_its_reason(raw: bytes, reason: str) -> None:
    judged = judge_line(raw)
    assert isinstance(judged, str)
    assert judged.startswith(reason)
    completed: dict[str, str] = {}
    good = b'{"_key":"a"}\n'
    expected = BadLine(1, len(good), len(raw), judged)
    assert scan_lines(good + raw + b"\n" + good, completed) == Scanned(3, 2, [expected])
    assert completed == {A: ""}


@pytest.mark.parametrize("raw", [b"", b"\n", b"\r\n", b" \t \n", b"\xef\xbb\xbf"])
def test_a_blank_line_is_nothing(raw: bytes) -> None:
    assert judge_line(raw) == ""


def test_a_scan_finds_every_place() -> None:
    data = (
        b'\xef\xbb\xbf{"_key":"a","_at":"1"}\r\n'
        b"\n"
        b"torn\n"
        b'{"_key":"b","_at":"2"}\n'
        b"        \n"
        b"[]\r\n"
        b'{"_key":"c","_at":"3"}\n'
    )
    completed = {"0" * 16: "before"}
    scanned = scan_lines(data, completed)
    assert (scanned.lines, scanned.findings) == (7, 3)
    assert [(bad.line, bad.reason.split(" (")[0]) for bad in scanned.bad] == [
        (2, "not JSON"),
        (5, "not a JSON object"),
    ]
    for bad in scanned.bad:
        assert data[bad.byte : bad.byte + bad.size_bytes] == data.split(b"\n")[bad.line]
    assert list(completed.items()) == [
        ("0" * 16, "before"),
        (A, "1"),
        (B, "2"),
        (item_hash("c"), "3"),
    ]


# In each as many objects as newlines: only judging each line tells that they are not on lines.
MISLEADING = {
    "two on a line, one on two": (b'{"_key":"a"}{"_key":"b"}\n{"_key":\n"c"}\n', [0, 1, 2]),
    "one on two": (b'{"_key":\n"a"}', [0, 1]),
    "one in front": (b'{"_key":"a"}\n{"x":[1,\n2],"_key":"b"}{"_key":"c"}\n', [1, 2]),
    "with a space": (b'{"_key":"a"} {"_key":"b"}\n{"x":{}\n,"_key":"c"}\n', [0, 1, 2]),
    "inner braces": (b'{"_key":"a"}{"_key":"b"}\n{"x":\n{},"_key":"c"}\n', [0, 1, 2]),
}


@pytest.mark.parametrize(("data", "bad"), MISLEADING.values(), ids=MISLEADING)
def test_a_scan_is_not_misled_by_objects_that_ignore_where_lines_end(
    data: bytes, bad: list[int]
) -> None:
    completed: dict[str, str] = {}
    scanned = scan_lines(data, completed)
    assert [found.line for found in scanned.bad] == bad
    assert set(completed) == ({A} if 0 not in bad else set())


def test_a_scan_takes_the_key_where_the_hash_is_forged() -> None:
    completed: dict[str, str] = {}
    data = b'{"_hash":"%b","_key":"a"}\n{"_key":"x"}\n' % B.encode()
    scan_lines(data, completed)
    assert set(completed) == {A, item_hash("x")}


def test_an_item_that_stands_twice_is_one_and_two_lines_count() -> None:
    completed: dict[str, str] = {}
    data = b'{"_key":"a","_at":"1"}\n{"_key":"a","_at":"2"}\n'
    assert scan_lines(data, completed) == Scanned(2, 2, [])
    assert completed == {A: "2"}


def test_equal_times_are_one_object_in_memory() -> None:
    data = b"".join(encode_line(f"k{n}", {}, AT)[1] for n in range(100))
    completed: dict[str, str] = {}
    scan_lines(data, completed)
    assert len(completed) == 100
    assert len({id(at) for at in completed.values()}) == 1


def test_nothing_is_in_nothing() -> None:
    completed: dict[str, str] = {}
    assert scan_lines(b"", completed) == Scanned(0, 0, [])
    assert scan_lines(b"\n", completed) == Scanned(1, 0, [])
    assert completed == {}


def test_a_last_line_without_its_newline_is_judged_as_well() -> None:
    completed: dict[str, str] = {}
    assert scan_lines(b'{"_key":"a"}\n{"_key":"b"}', completed) == Scanned(2, 2, [])
    assert set(completed) == {A, B}
