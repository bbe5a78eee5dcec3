"""Items are read whole before anything runs: each is one, or its line is named."""

import csv
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.control import item_list, items
from perdure.control.item_list import Duplicate, ItemList, items_of
from perdure.control.items import glob_items, read_items
from perdure.core.batch import format_by_ending
from perdure.core.model import ItemsFormat
from perdure.errors import HaltError, UsageError
from perdure.jobs.lines import item_digest
from perdure.storage.disk import RealDisk

DISK = RealDisk()


def read(
    data: bytes, form: ItemsFormat = "lines", key: str | None = None, *, piece: int = 1 << 20
) -> ItemList:
    """Items of a standard input that comes in pieces of this size."""
    pieces = [data[i : i + piece] for i in range(0, len(data), piece)]
    return read_items("-", form=form, key=key, directory="/", disk=DISK, stdin=pieces)


def refusal(data: bytes, form: ItemsFormat = "lines", key: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read(data, form, key)
    assert (caught.value.code, caught.value.exit_code) == ("bad_item", 2)
    assert caught.value.fix
    return str(caught.value)


# Lines


def test_a_line_is_its_own_key_and_blank_lines_are_none() -> None:
    taken = read(b"\xef\xbb\xbfone\r\n\n  \t\r\n two \nthree")
    assert [tuple(item) for item in taken] == [
        ("one", None, None, 1),
        (" two ", None, None, 4),
        ("three", None, None, 5),
    ]


@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_it_does_not_matter_where_the_input_is_cut_into_pieces(piece: int) -> None:
    text = "gr\u00fcn\u2028blau\x0b\r\n\U0001f600\n"
    taken = read(b"\xef\xbb\xbf" + text.encode(), piece=piece)
    assert taken.keys == ["gr\u00fcn\u2028blau\x0b", "\U0001f600"]
    rows = read(b'\xef\xbb\xbfa,b\r\n"x\ny",\xc3\xa9\r\n', "csv", piece=piece)
    assert rows[0].value == {"a": "x\ny", "b": "\u00e9"}


def test_no_items_at_all_are_fine() -> None:
    for form in ("lines", "jsonl", "csv"):
        assert list(read(b"", form)) == list(read(b"\n \r\n", form)) == []
    assert list(read(b"id,name\n", "csv")) == []


def test_every_bad_line_is_named_with_what_puts_it_right() -> None:
    message = refusal(b"good\n\xff\xfe\nna\x00me\ngood too\n" + b"k" * (64 << 10) + b"k\n")
    assert "3 items of standard input cannot be used" in message
    assert "standard input:2: the line is not UTF-8 (save the file as UTF-8)" in message
    assert "standard input:3: its key holds a NUL character" in message
    assert "standard input:5: " in message
    assert "65536" in message.replace(",", "")


def test_reading_stops_at_twenty_bad_lines() -> None:
    message = refusal(b"\xff\n" * 1_000)
    assert "standard input:20:" in message
    assert "standard input:21:" not in message
    assert "reading stopped there" in message


def test_endless_line_is_refused_and_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "item_bytes_max", 1_000)
    asked = 0

    def endless() -> Iterator[bytes]:
        nonlocal asked
        yield b"first\n"
        while True:
            asked += 1
            yield b"x" * 100

    with pytest.raises(UsageError, match="standard input:2: the line has more than 1,000 bytes"):
        read_items("-", form="lines", key=None, directory="/", disk=DISK, stdin=endless())
    assert asked == 11


def test_too_many_items_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_list, "items_max", 3)
    assert len(read(b"a\nb\nc\na\n")) == 3
    with pytest.raises(UsageError, match="more than 3 items") as caught:
        read(b"a\nb\nc\nd\n")
    assert caught.value.code == "too_many_items"
    monkeypatch.setattr(item_list, "input_bytes_max", 5)
    with pytest.raises(UsageError, match="more than 5 bytes"):
        read(b"aaa\nbbb\n")


def test_lines_have_no_key_field() -> None:
    with pytest.raises(UsageError, match="have no fields"):
        read(b"a\n", "lines", "id")


# JSONL


def test_key_of_a_json_item_is_a_text_or_an_integer() -> None:
    data = b'{"id": "a", "n": [1, null]}\n{"n": 2, "id": -17}\r\n{"id": 123456789012345678901}\n'
    taken = read(data, "jsonl", "id")
    assert taken.keys == ["a", "-17", "123456789012345678901"]
    assert taken[0].value == {"id": "a", "n": [1, None]}
    assert taken[1].digest == item_digest({"id": -17, "n": 2})
    assert taken[2].line == 3
    assert taken.has_digests


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"id": 1.5}', "its 'id' is neither a text nor an integer"),
        (b'{"id": true}', "its 'id' is neither a text nor an integer"),
        (b'{"id": null}', "its 'id' is neither a text nor an integer"),
        (b'{"name": "x"}', "the object has no field 'id'"),
        (b'["id"]', "the line is not a JSON object"),
        (b'"id"', "the line is not a JSON object"),
        (b'{"id": ""}', "empty"),
        (b'{"id": "a\\u0000"}', "NUL"),
        (b'{"id": "\\ud800"}', "key"),
        (b'{"id": "x"', "the line is not JSON"),
        (b'{"id": "x", "n": NaN}', "the line is not JSON"),
        (b'{"id": "x\\u0041", "n": NaN}', "the line is not JSON"),
        (b'{"id": "\xff"}', "the line is not JSON"),
        (b"[" * 100_000, "the line is not JSON"),
        (b'{"id": "x", "n": ' + b"[" * 300 + b"]" * 300 + b"}", "make it simpler"),
    ],
)
def test_json_line_without_a_usable_key_is_refused(line: bytes, what: str) -> None:
    message = refusal(b'{"id": "fine"}\n\n' + line + b"\n", "jsonl", "id")
    assert "standard input:3: " in message
    assert what in message


def test_json_texts_need_no_key_field() -> None:
    taken = read(b'"plain"\n"gr\\u00fcn\\n"\n', "jsonl")
    assert [(item.key, item.value, item.digest) for item in taken] == [
        ("plain", None, None),
        ("gr\u00fcn\n", None, None),
    ]
    assert "no field is named that is its key" in refusal(b'"plain"\n{"id": 1}\n', "jsonl")


def test_lone_surrogate_outside_the_key_is_kept() -> None:
    assert read(b'{"id": 1, "t": "\\udc80"}\n', "jsonl", "id")[0].value["t"] == "\udc80"


# CSV


def test_rows_are_items_by_column() -> None:
    taken = read(b'id,name\r\n1,"Turin, it"\r\n\r\n2,"two\nlines"\r\n3,""\r\n', "csv")
    assert [tuple(item)[:2] for item in taken] == [
        ("1", {"id": "1", "name": "Turin, it"}),
        ("2", {"id": "2", "name": "two\nlines"}),
        ("3", {"id": "3", "name": ""}),
    ]
    assert [item.line for item in taken] == [2, 4, 6]
    assert taken[0].digest == item_digest({"name": "Turin, it", "id": "1"})
    assert read(b"a,b\nx,1\ny,2\n", "csv", "b").keys == ["1", "2"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"id,name\n1\n", "standard input:2: the row has 1 fields, and the first line has 2"),
        (b"id,name\n1,a,b\n", "standard input:2: the row has 3 fields"),
        (b'id,name\n1,"a"b\n', "standard input:2: the row cannot be read"),
        (b'id,name\n1,a\n2,"never closed\n3,b\n', "standard input:3: the row cannot be read"),
        (b"id,id\n1,2\n", "standard input:1: the columns have no names, or two have the same"),
        (b"id,\n1,2\n", "standard input:1: the columns have no names"),
        (b"id,name\n1,\xff\n", "standard input:2: the line is not UTF-8"),
        (b"id,name\n,x\n", "standard input:2: "),
    ],
)
def test_bad_row_is_named_by_the_line_it_starts_in(data: bytes, what: str) -> None:
    assert what in refusal(data, "csv")


def test_unknown_column_is_refused_with_those_there_are() -> None:
    message = refusal(b"\nid,name\n1,x\n", "csv", "title")
    assert "standard input:2: there is no column 'title'" in message
    assert "id, name" in message


def test_limit_of_the_csv_module_is_left_as_it_was() -> None:
    before = csv.field_size_limit()
    long = b"x" * (before + 1)
    assert len(read(b"id,text\n1," + long + b"\n", "csv")[0].value["text"]) == before + 1
    refusal(b'id\n"', "csv")
    assert csv.field_size_limit() == before


# Duplicates


def test_of_two_lines_with_one_key_the_first_counts() -> None:
    data = b'{"id": 1, "v": 1}\n{"id": 2}\n{"v": 1, "id": 1}\n{"id": "1", "v": 9}\n'
    taken = read(data, "jsonl", "id")
    assert taken.keys == ["1", "2"]
    assert taken[0].value["v"] == 1
    assert taken.duplicates == [Duplicate("1", 1, 3, True), Duplicate("1", 1, 4, False)]
    assert (taken.duplicate_count, taken.differing_count) == (2, 1)
    assert read(b"a\nb\na\n").duplicates == [Duplicate("a", 1, 3, True)]


def test_of_many_duplicates_twenty_are_told_and_all_are_counted() -> None:
    taken = read(b"a\n" * 1_000)
    assert (len(taken), len(taken.duplicates), taken.duplicate_count) == (1, 20, 999)


# Where they come from


def test_file_is_relative_to_the_directory_and_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_bytes(b"a\nb\n")
    (tmp_path / "link").symlink_to("urls.txt")
    for name in ("urls.txt", "link", str(tmp_path / "urls.txt")):
        taken = read_items(name, form="lines", key=None, directory=str(tmp_path), disk=DISK)
        assert taken.keys == ["a", "b"]
        assert taken.source == name


def test_what_is_no_file_of_items_is_refused(tmp_path: Path) -> None:
    def code(name: str) -> tuple[str, int]:
        with pytest.raises(HaltError) as caught:
            read_items(name, form="lines", key=None, directory=str(tmp_path), disk=DISK)
        assert name in caught.value.message
        return type(caught.value).__name__, caught.value.exit_code

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert code("missing.txt") == code("dangling") == ("NotFoundError", 3)
    assert code(".") == code("pipe") == ("UsageError", 2)


def test_bad_line_of_a_file_is_named_as_editors_do(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(UsageError, match=r"\n  urls\.txt:2: the line is not UTF-8"):
        read_items("urls.txt", form="lines", key=None, directory=str(tmp_path), disk=DISK)


def test_format_follows_the_ending() -> None:
    names = ["a.jsonl", "b.NDJSON", "c.csv", "d.txt", "-", "csv"]
    assert [format_by_ending(name) for name in names] == [
        "jsonl", "jsonl", "csv", "lines", "lines", "lines",
    ]  # fmt: skip


def test_keys_of_a_list_are_items() -> None:
    taken = items_of("the list", ["a", "b", "a"])
    assert [item.line for item in taken] == [1, 2]
    assert taken.duplicate_count == 1
    with pytest.raises(UsageError, match="the list:2: "):
        items_of("the list", ["a", ""])


# Globs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.md", "a.md", "c.txt", ".hidden.md", "deep/d.md", "deep/er/e.md", ".git/x.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def keys(tree: Path, pattern: str, skip: str = "") -> list[str]:
    return glob_items(pattern, directory=str(tree), disk=DISK, skip=skip).keys


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.md", ["a.md", "b.md"]),
        ("./[!b]*", ["a.md", "c.txt"]),
        ("**/*.md", ["a.md", "b.md", "deep/d.md", "deep/er/e.md"]),
        ("deep/**", ["deep/d.md", "deep/er/e.md"]),
        ("**/er/*", ["deep/er/e.md"]),
        ("**/**/e.md", ["deep/er/e.md"]),
        (".*", [".hidden.md"]),
        ("?.txt", ["c.txt"]),
        ("a.md", ["a.md"]),
        ("deep", []),
        ("none/*", []),
        ("deep/../*.txt", ["deep/../c.txt"]),
    ],
)
def test_glob_names_files_sorted(tree: Path, pattern: str, found: list[str]) -> None:
    assert keys(tree, pattern) == found


def test_glob_from_the_root_names_absolute_paths(tree: Path) -> None:
    assert keys(Path("/"), f"{tree}/**/d.md") == [f"{tree}/deep/d.md"]


def test_glob_enters_links_only_where_they_are_named(tree: Path) -> None:
    (tree / "deep" / "loop").symlink_to("..")
    (tree / "one.md").symlink_to("deep/d.md")
    (tree / "broken.md").symlink_to("nowhere")
    assert keys(tree, "*.md") == ["a.md", "b.md", "one.md"]
    assert keys(tree, "**/e.md") == ["deep/er/e.md"]
    assert keys(tree, "deep/loop/*.txt") == ["deep/loop/c.txt"]


def test_glob_leaves_the_jobs_own_directory_out(tree: Path) -> None:
    assert keys(tree, "**/*.md", str(tree / "deep")) == ["a.md", "b.md"]
    assert keys(tree, "**/*.md", str(tree / "other")) == keys(tree, "**/*.md")


def test_file_whose_name_is_not_utf8_is_named(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9.md")).write_text("x")
    with pytest.raises(UsageError, match=r"'caf\\udce9.md' is not UTF-8 \(rename the file\)"):
        keys(tree, "*.md")


@pytest.mark.parametrize("pattern", ["", ".", "/", "a\0b"])
def test_pattern_that_names_nothing_is_refused(tree: Path, pattern: str) -> None:
    with pytest.raises(UsageError, match="names no files"):
        keys(tree, pattern)


def test_walk_of_a_glob_is_bounded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.control.item_glob.glob_entries_max", 5)
    with pytest.raises(UsageError, match="looks at more than 5 names"):
        keys(tree, "**/*")


# Memory


def test_an_item_costs_little_more_than_its_key() -> None:
    count = 50_000
    data = b"".join(b"https://example.org/page/%09d\n" % n for n in range(count))
    tracemalloc.start()
    try:
        taken = read(data)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(taken) == count
    assert kept / count < 150  # the key itself takes 83
