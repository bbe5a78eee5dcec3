"""state.json: what is written, in which layouts it is read, and what is refused."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.jobs import state_file
from perdure.jobs.lines import item_hash
from perdure.jobs.records import AsOf, ErrorEntry, StateHead, Stats
from perdure.jobs.state_file import decode_state, encode_state, entries_per_line

AT = "2027-01-15T08:00:00.000+00:00"
BOM = b"\xef\xbb\xbf"
FIELDS = ["job", "version", "started_at", "updated_at", "cursor", "completed", "errors", "stats",
          "finished_at", "as_of"]  # fmt: skip


def head(**changes: Any) -> StateHead:
    fields: dict[str, Any] = {
        "job": "docs",
        "started_at": AT,
        "updated_at": AT,
        "cursor": {"last": "p9"},
        "errors": (error("k1"),),
        "stats": Stats(3, 1, 2),
        "as_of": AsOf(100, 50, "0123456789abcdef", 7),
    }
    return StateHead(**{**fields, **changes})


def error(key: str, text: str = "timed out") -> ErrorEntry:
    return ErrorEntry(key, item_hash(key), text, 2, AT)


def done(count: int) -> dict[str, str]:
    """``count`` completed items; every third shares its time with the one before."""
    return {item_hash(f"i{n}"): f"t{n - (n % 3 == 2)}" for n in range(count)}


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, size: int = 1 << 20) -> tuple[StateHead, dict[str, str]]:
    completed: dict[str, str] = {}
    return decode_state(cut(data, size), completed), completed


def plain(**changes: Any) -> dict[str, Any]:
    """A state as the naive implementation has it."""
    fields = {
        "job": "docs",
        "version": 1,
        "started_at": AT,
        "updated_at": AT,
        "cursor": None,
        "completed": {item_hash("a"): AT, item_hash("b"): AT},
        "errors": [{"key": "k1", "error": "timed out", "attempts": 2}],
        "stats": {"processed": 2, "failed": 1, "resumes": 0},
        "finished_at": None,
    }
    return {**fields, **changes}


# Writing


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1_201])
def test_it_is_one_json_document_with_the_fields_of_the_contract(count: int) -> None:
    completed = done(count)
    data = encode_state(head(), completed)
    document = json.loads(data)
    assert list(document) == FIELDS
    assert list(document["completed"].items()) == list(completed.items())
    assert document["errors"] == [
        {
            "key": "k1",
            "hash": item_hash("k1"),
            "error": "timed out",
            "attempts": 2,
            "last_at": AT,
        }
    ]
    assert document["stats"] == {"processed": 3, "failed": 1, "resumes": 2}
    assert document["as_of"] == {
        "offset": 100,
        "line_bytes": 50,
        "hash": "0123456789abcdef",
        "recent": 7,
        "state": sha256(data[: data.index(b',"state":')]).hexdigest()[:16],
    }
    assert (document["cursor"], document["finished_at"]) == ({"last": "p9"}, None)
    assert data.endswith(b"}\n")


def test_the_entries_have_their_lines_for_themselves() -> None:
    lines = encode_state(head(), done(1_201)).splitlines()
    assert lines[0].endswith(b',"completed":{')
    assert lines[-1].startswith(b'},"errors":[')
    counts = [line.count(b":") for line in lines[1:-1]]
    assert counts == [entries_per_line, entries_per_line, 1_201 - 2 * entries_per_line]


def test_without_as_of_it_is_what_others_write() -> None:
    assert list(json.loads(encode_state(head(as_of=None), {}))) == FIELDS[:-1]


# Reading what we write


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
@pytest.mark.parametrize("count", [0, 1, 3, 499, 500, 501, 1_201])
def test_it_comes_back_in_any_pieces(count: int, size: int) -> None:
    if size == 1 and count > 3:
        size = 13
    completed = done(count)
    found, back = read(encode_state(head(), completed), size)
    assert found == head(completed_count=count)
    assert list(back.items()) == list(completed.items())


def test_what_was_completed_before_stays() -> None:
    completed = {"0" * 16: "before"}
    decode_state([encode_state(head(), done(2))], completed)
    assert completed == {"0" * 16: "before", **done(2)}


@pytest.mark.parametrize("layout", ["ours", "others"])
def test_equal_times_are_one_object_in_memory(layout: str) -> None:
    data = encode_state(head(), dict.fromkeys(done(1_400), AT))
    if layout == "others":
        data = json.dumps(json.loads(data)).encode()
    _, completed = read(data, 4_096)
    assert len(completed) == 1_400
    assert len({id(at) for at in completed.values()}) <= len(data) // 4_096 + 1


def test_our_own_file_is_never_held_as_a_whole() -> None:
    data = encode_state(head(), done(20_000))
    largest = 0

    def watched(block: bytes | memoryview) -> dict[str, str]:
        nonlocal largest
        largest = max(largest, len(block))
        return decode(block)

    decode = state_file._mapping
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_file, "_mapping", watched)
        completed: dict[str, str] = {}
        decode_state(cut(data, 32_768), completed)
    assert completed == done(20_000)
    assert largest < 3 * 32_768 < len(data)


TEXTS = ["", "`#\n", "\u2028", "caf\udce9", '"completed":{\n', '},"errors":[', "\U0001f600", "\\"]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_any_text_comes_back(text: str, size: int) -> None:
    cursor = {text: [text, {"completed": {text: text}}]}
    given_head = head(job=f"j{text}", cursor=cursor, errors=(error("k", text),), finished_at=AT)
    found, completed = read(encode_state(given_head, done(3)), size)
    assert found == head(
        job=f"j{text}",
        cursor=cursor,
        errors=(error("k", text),),
        finished_at=AT,
        completed_count=3,
    )
    assert completed == done(3)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.lists(st.text()), st.integers(0, 1_100), st.integers(1, 5_000))
def test_any_state_comes_back(cursor: Any, errors: list[str], count: int, size: int) -> None:
    given_head = head(cursor=cursor, errors=tuple(error("k", text) for text in errors))
    found, completed = read(encode_state(given_head, done(count)), max(size, count))
    assert found == head(cursor=cursor, errors=given_head.errors, completed_count=count)
    assert list(completed.items()) == list(done(count).items())


# Reading what others write


def mimic(document: dict[str, Any]) -> bytes:
    """Our first line, and then a layout of its own."""
    text = json.dumps(document, separators=(",", ":"))
    start, _, rest = text.partition('"completed":{')
    return "".join((start, '"completed":{\n', rest.replace(":", ":\n"))).encode()


LAYOUTS = {
    "Python": lambda d: json.dumps(d).encode(),
    "Python, indented": lambda d: json.dumps(d, indent=2).encode(),
    "Python, sorted": lambda d: json.dumps(d, sort_keys=True, indent="\t").encode(),
    "JavaScript": lambda d: json.dumps(d, separators=(",", ":"), ensure_ascii=False).encode(),
    "carriage returns": lambda d: json.dumps(d, indent=2).replace("\n", "\r\n").encode(),
    "byte order mark": lambda d: BOM + json.dumps(d).encode(),
    "backwards": lambda d: json.dumps(dict(reversed(d.items()))).encode(),
    "escapes": lambda d: json.dumps(d).replace("t", r"\u0074").encode(),
    "like ours at first": mimic,
}


@pytest.mark.parametrize("size", [1, 30, 1 << 20])
@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_is_read(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "piece_bytes", 100)
    document = plain(completed=done(40), more={"completed": {"x": 1}}, stats={"more": []})
    found, completed = read(LAYOUTS[name](document), size)
    assert completed == done(40)
    expected = ErrorEntry("k1", item_hash("k1"), "timed out", 2, "")
    assert found == StateHead("docs", 1, AT, AT, None, (expected,), Stats(), None, None, 40)


def test_our_own_first_line_does_not_mislead() -> None:
    # The first line ends like ours, inside the cursor: what follows is not what is done.
    inner = f'{{\n"{item_hash("x")}":"no",\n"{item_hash("y")}":"no"\n}}'
    outer = f'{{"{item_hash("a")}":"yes"}}'
    text = f'{{"job":"docs","cursor":{{"a":1,"completed":{inner}}},"completed":{outer}}}'
    data = text.encode()
    assert data.split(b"\n")[0].endswith(b',"completed":{')
    assert read(data, 10)[1] == {item_hash("a"): "yes"}


def test_a_list_of_hashes_is_a_set_of_done_items() -> None:
    names = [item_hash("a"), item_hash("b")]
    found, completed = read(json.dumps(plain(completed=names)).encode())
    assert completed == dict.fromkeys(names, "")
    assert found.completed_count == 2


@pytest.mark.parametrize("at", ["a, b", 'a "time", or "not"', "\\", '\\",', "\u00e4", "{}[]:"])
def test_any_text_may_stand_as_a_time(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    completed = {name: at[n % 4 :] for n, name in enumerate(done(40))}
    data = json.dumps(plain(completed=completed)).encode()
    for size in range(20, 90):
        monkeypatch.setattr(state_file, "piece_bytes", size)
        found, back = read(data)
        assert back == completed
        assert found.completed_count == 40


def test_only_the_job_and_what_is_done_must_be_there() -> None:
    found, completed = read(b'{"job":"docs","completed":{}}')
    assert (found, completed) == (StateHead("docs"), {})
    nothing = dict.fromkeys(FIELDS[2:])
    data = json.dumps({**nothing, "job": "docs", "completed": {}, "version": 1}).encode()
    assert read(data) == (StateHead("docs"), {})


def test_nan_in_a_cursor_is_read_as_python_wrote_it() -> None:
    data = json.dumps(plain(cursor=[float("inf"), "\udc80"])).encode()
    found, completed = read(data)
    assert found.cursor == [float("inf"), "\udc80"]
    assert len(completed) == 2


def test_counts_may_be_written_with_a_fraction() -> None:
    entry = {"key": "k", "attempts": 2.0}
    found, _ = read(json.dumps(plain(version=1.0, stats={"failed": 3.0}, errors=[entry])).encode())
    assert (found.version, found.stats) == (1, Stats(0, 3, 0))
    assert found.errors == (ErrorEntry("k", item_hash("k"), "", 2, ""),)
    assert all(type(count) is int for count in (found.stats.failed, found.errors[0].attempts))


def test_the_hash_of_an_error_is_the_one_of_its_key() -> None:
    entry = {"key": "k", "hash": "0" * 16, "attempts": 1, "error": "e", "last_at": AT}
    found, _ = read(json.dumps(plain(errors=[entry])).encode())
    assert found.errors[0].hash == item_hash("k")


@pytest.mark.parametrize("version", [2, 1.5, 99])
@pytest.mark.parametrize("layout", ["ours", "others"])
def test_a_later_version_is_told_apart_and_nothing_else_is_read(
    version: float, layout: str
) -> None:
    odd = {f"of another shape {n}": AT for n in range(600)}
    if layout == "ours":
        data = encode_state(head(version=version), odd)
    else:
        data = json.dumps(plain(version=version, completed=odd, stats=[], cursor="c")).encode()
    found, completed = read(data, 1_000)
    assert (found.job, completed) == ("docs", {})
    assert found.version > 1
    assert found == StateHead("docs", found.version)


# Its proof


@pytest.mark.parametrize("size", [1, 29, 30, 31, 997, 1 << 20])
def test_any_byte_that_changed_takes_the_proof_away(size: int) -> None:
    data = encode_state(head(), done(3))
    assert not read(data, size)[0].is_changed
    for old, new in (
        (item_hash("i1").encode(), item_hash("other").encode()),
        (b"p9", b"p8"),
        (b'"recent":7', b'"recent":8'),
        (b'"offset":100', b'"offset":101'),
        (b"},", b"},\n"),
        (b'"state":"', b'"state":"0'),
        (b'"}}\n', b'"}}'),
        (b'"}}\n', b'"}}\n\n'),
        (b'"}}\n', b'"},"completed":{}}\n'),
        (b'{"job"', b'{"completed":{},"job"'),
    ):
        changed = new.join(data.rsplit(old, 1))
        assert changed != data
        found, _ = read(changed, size)
        assert (found.as_of, found.is_changed) == (None, True), (old, new)


@pytest.mark.parametrize(
    "as_of", [5, [], "2027", {"offset": 5}, {"offset": "x", "state": "0" * 16}]
)
def test_an_as_of_of_others_is_only_a_field_that_proves_nothing(as_of: object) -> None:
    found, completed = read(json.dumps(plain(as_of=as_of)).encode())
    assert (found.as_of, found.is_changed, len(completed)) == (None, True, 2)


def test_an_as_of_from_before_there_was_a_proof_proves_nothing() -> None:
    document = json.loads(encode_state(head(), done(3)))
    del document["as_of"]["state"]
    data = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    assert read(data)[0].is_changed


def test_damage_is_kept_with_the_proof() -> None:
    as_of = AsOf(100, 50, "0123456789abcdef", 7, ((2, 10), (9, 60)), 12)
    data = encode_state(head(as_of=as_of), done(3))
    assert read(data)[0].as_of == as_of
    assert b'"damaged":[[2,10],[9,60]],"damaged_count":12,"state":' in data
    assert b"damaged" not in encode_state(head(), done(3))


# Refusing


BAD_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "job": ({"job": 7}, "job"),
    "version as text": ({"version": "1"}, "version"),
    "version of nothing": ({"version": None}, "version"),
    "version as truth": ({"version": True}, "version"),
    "version too low": ({"version": 0}, "version"),
    "version without end": ({"version": float("inf")}, "version"),
    "times": ({"started_at": 5}, "started_at"),
    "update": ({"updated_at": []}, "updated_at"),
    "end": ({"finished_at": 5}, "finished_at"),
    "completed of nothing": ({"completed": None}, "completed"),
    "completed as text": ({"completed": "all"}, "completed"),
    "a short hash": ({"completed": {"abc": AT}}, "completed"),
    "two that make one": ({"completed": {"0" * 15: AT, "0" * 17: AT}}, "completed"),
    "a hash in capitals": ({"completed": {"A" * 16: AT}}, "completed"),
    "a hash with spaces": ({"completed": {"00 " * 5 + "0": AT}}, "completed"),
    "a hash that is none": ({"completed": {"g" * 16: AT}}, "completed"),
    "digits of another script": ({"completed": {"\u0661" * 16: AT}}, "completed"),
    "a time that is none": ({"completed": {"0" * 16: 5}}, "completed"),
    "a list with others": ({"completed": ["0" * 16, 5]}, "completed"),
    "a list with a short one": ({"completed": ["0" * 16, "0"]}, "completed"),
    "errors": ({"errors": {}}, "errors"),
    "an error as text": ({"errors": ["k"]}, "errors"),
    "an error without key": ({"errors": [{"error": "e", "attempts": 1}]}, "errors"),
    "an error with an empty key": ({"errors": [{"key": ""}]}, "errors"),
    "an error with half a key": ({"errors": [{"key": "\ud800"}]}, "errors"),
    "an error that is no text": ({"errors": [{"key": "k", "error": 5}]}, "errors.error"),
    "attempts": ({"errors": [{"key": "k", "attempts": "2"}]}, "errors.attempts"),
    "attempts below nought": ({"errors": [{"key": "k", "attempts": -1}]}, "errors.attempts"),
    "half an attempt": ({"errors": [{"key": "k", "attempts": 0.5}]}, "errors.attempts"),
    "attempts without end": ({"errors": [{"key": "k", "attempts": 1e999}]}, "errors.attempts"),
    "last_at": ({"errors": [{"key": "k", "last_at": 5}]}, "errors.last_at"),
    "stats": ({"stats": []}, "stats"),
    "a count": ({"stats": {"resumes": True}}, "stats.resumes"),
    "a deep cursor": ({"cursor": json.loads("[" * 300 + "]" * 300)}, "cursor"),
}


@pytest.mark.parametrize(("changes", "named"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_another_type_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    data = json.dumps(plain(**changes)).encode()
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        decode_state([data], {})


@pytest.mark.parametrize("field", ["job", "completed"])
def test_a_missing_field_is_refused_by_name(field: str) -> None:
    document = plain()
    del document[field]
    data = json.dumps(document).encode()
    with pytest.raises(ValueError, match=field):
        decode_state([data], {})


BYTES = {
    "nothing": b"",
    "a newline": b"\n",
    "zeros": b"\0" * 64,
    "a list": b"[]",
    "a number": b"5",
    "noise": b"\xff\xfe\x00{",
    "two documents": b'{"job":"docs","completed":{}}{}',
    "too deep": b'{"job":"docs","completed":{},"cursor":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "too deep, like ours": b'{"job":"docs","cursor":' + b"[" * 100_000 + b',"completed":{\n}}',
}


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_bytes_that_are_no_state_are_refused(data: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r"not JSON|not a JSON object"):
        decode_state(cut(data, size), {})


def test_what_is_done_may_hold_no_half_characters_and_no_nesting() -> None:
    half = json.dumps(plain(completed={item_hash("a"): "\udc80"})).encode()
    with pytest.raises(ValueError, match="completed"):
        decode_state([half], {})
    deep = b'{"job":"docs","completed":{"\\u0030":' + b"[" * 900 + b"]" * 900 + b"}}"
    with pytest.raises(ValueError, match=r"completed|not JSON"):
        decode_state([deep], {})


def test_every_part_of_a_file_is_refused() -> None:
    data = encode_state(head(), done(5)).replace(b'",', b'",\n')
    assert read(data)[1] == done(5)
    for size in range(len(data.rstrip())):
        with pytest.raises(ValueError, match="JSON"):
            decode_state(cut(data[:size], 50), {})


@pytest.mark.parametrize("size", [1, 60, 1 << 20])
@pytest.mark.parametrize("place", ["the first", "between", "the last"])
def test_damage_between_the_entries_is_refused(place: str, size: int) -> None:
    lines = encode_state(head(), done(1_201)).splitlines(keepends=True)
    at = {"the first": 1, "between": 2, "the last": 3}[place]
    for damage in (b"\0", b"'", b"\xff", b"}"):
        broken = b"".join([*lines[:at], damage + lines[at][1:], *lines[at + 1 :]])
        with pytest.raises(ValueError, match=r"JSON|completed"):
            decode_state(cut(broken, size if size > 1 else 997), {})


def test_a_comma_behind_the_last_entry_is_refused() -> None:
    data = encode_state(head(), done(3)).replace(b"\n},", b",\n},")
    for size in range(1, len(data)):
        with pytest.raises(ValueError, match="not JSON"):
            decode_state(cut(data, size), {})


PIECES = [
    b'"0123456789abcdef":"now"',
    b'"fedcba9876543210":"\\u00e4"',
    b'"0123":"now"',
    b"\n",
    b",\n",
    b",",
    b"}",
    b"\n}",
    b'\n},"cursor":{"completed":{',
    b'"errors":[]',
    b" ",
    b"\xff",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=99))
def test_what_is_read_is_json_and_all_of_its_entries(data: bytes) -> None:
    data = b'{"job":"docs","completed":{\n' + data
    for size in (16, 1 << 20):
        completed: dict[str, str] = {}
        try:
            found = decode_state(cut(data, size), completed)
        except ValueError:
            continue
        document = json.loads(data)
        assert completed == document["completed"]
        assert found.cursor == document.get("cursor")
