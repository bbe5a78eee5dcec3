"""Where the items of a job come from: a file, standard input, a table, or the files of a glob.

Job: read a whole input before anything runs. Invariants: a blank line is no item, every other line
is one, or is refused with its number; what is refused is refused once, with up to 20 lines; the
same input gives the same items in the same order. Never: runs or writes anything, or guesses which
field names an item.
"""

import csv
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

from perdure.control.item_glob import matching_paths
from perdure.control.item_list import Intake, ItemList, decode_json
from perdure.core.codec import to_json
from perdure.core.model import ItemsFormat
from perdure.errors import NotFoundError, UsageError
from perdure.ports import Disk

item_bytes_max: Final = 16 << 20
"""One line of the input, or one field of a table."""
STDIN: Final = "-"

_BOM: Final = b"\xef\xbb\xbf"


def read_items(
    source: str,
    *,
    form: ItemsFormat,
    key: str | None,
    directory: str,
    disk: Disk,
    stdin: Iterable[bytes] = (),
) -> ItemList:
    """The items of a file, or of standard input when ``source`` is ``-``.

    ``source`` is relative to ``directory``. A line of text is its own key. Of JSONL, ``key`` is the
    field that names an item (text, or an integer, whose decimal digits count); without it each line
    has to be a JSON text. Of CSV, it is a column of the first line; without it the first column. A
    byte order mark and line ends of either kind are fine. NotFoundError when there is no such file;
    UsageError ``bad_item`` with ``FILE:LINE`` for every line that cannot be used. Reads only, so a
    crash leaves nothing; no items at all are fine.
    """
    name = "standard input" if source == STDIN else source
    if form == "lines" and key is not None:
        raise UsageError(
            "a key field is named, and the items are lines of text, which have no fields.",
            fix="Leave the key field out, or say that the format is jsonl or csv.",
        )
    pieces = stdin if source == STDIN else _pieces(source, directory, disk)
    if form == "csv":
        return _read_table(name, key, pieces)
    intake = Intake(name)
    for number, raw in _lines(pieces, intake):
        text = raw.rstrip(b"\n").removesuffix(b"\r")
        if not text or text.isspace():
            continue
        if form == "lines":
            _take_text(intake, number, text)
        else:
            _take_json(intake, number, text, key)
    return intake.finish()


def glob_items(pattern: str, *, directory: str, disk: Disk, skip: str = "") -> ItemList:
    """The files a pattern names, each an item whose key is its path with forward slashes.

    Relative to ``directory``, as the pattern is; sorted. ``skip`` is the absolute path of a
    directory that is left out, such as the job's own. See :func:`item_glob.matching_paths`.
    UsageError ``bad_item`` for a name that is not UTF-8, because it cannot be a key.
    """
    intake = Intake(pattern)
    for number, path in enumerate(matching_paths(disk, directory, pattern, skip=skip), 1):
        if any("\udc80" <= char <= "\udcff" for char in path):
            intake.bad(0, f"the name {path!r} is not UTF-8", "rename the file")
        else:
            intake.add(path, number)
    return intake.finish()


def _pieces(source: str, directory: str, disk: Disk) -> Iterator[bytes]:
    path = disk.real_path(os.path.join(directory, source))
    seen = disk.stat(path)
    if seen is None:
        raise NotFoundError(
            f"there is no file of items {source}.",
            code="no_items",
            fix="Name a file with an item a line, or - for standard input.",
        )
    if seen.kind != "file":
        what = "a directory" if seen.kind == "dir" else "no regular file"
        raise UsageError(
            f"{source} is {what}, so its items cannot be read.",
            rule="JB-7",
            fix="Name a file, pipe the items in and name -, or give a glob of files.",
        )
    return disk.read_chunks(path)


def _lines(pieces: Iterable[bytes], intake: Intake) -> Iterator[tuple[int, bytes]]:
    """Every line with its number, with its line feed if it has one; without a byte order mark."""
    number, rest = 0, b""
    for piece in pieces:
        lines = (rest + piece if rest else piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            number += 1
            yield number, (line.removeprefix(_BOM) if number == 1 else line) + b"\n"
        if len(rest) > item_bytes_max:
            what = f"the line has more than {item_bytes_max:,} bytes"
            intake.bad(number + 1, what, "put large content into a file and name the file")
            return
    if rest:
        yield number + 1, rest if number else rest.removeprefix(_BOM)


def _take_text(intake: Intake, number: int, text: bytes) -> None:
    try:
        intake.add(text.decode(), number)
    except UnicodeDecodeError:
        intake.bad(number, "the line is not UTF-8", "save the file as UTF-8")


def _take_json(intake: Intake, number: int, text: bytes, key: str | None) -> None:
    try:
        value = decode_json(text)
    except ValueError as error:
        intake.bad(number, f"the line is not JSON: {error}", "write one JSON value a line")
        return
    if key is None:
        if isinstance(value, str):
            intake.add(value, number)
        else:
            what = "the line is not a JSON text, and no field is named that is its key"
            intake.bad(number, what, "name the field that tells the items apart")
        return
    if not isinstance(value, dict):
        intake.bad(number, "the line is not a JSON object", f"write an object with {key!r} in it")
    elif key not in value:
        intake.bad(number, f"the object has no field {key!r}", "add it, or name another field")
    elif (named := _key_text(value[key])) is None:
        what = f"its {key!r} is neither a text nor an integer"
        intake.bad(number, what, "correct it, or name another field")
    else:
        intake.add(named, number, value, text)


def _key_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _read_table(name: str, key: str | None, pieces: Iterable[bytes]) -> ItemList:
    before = csv.field_size_limit(item_bytes_max)
    try:
        intake = Intake(name)
        _take_rows(intake, key, _rows(intake, pieces))
        return intake.finish()
    finally:
        csv.field_size_limit(before)


def _take_rows(intake: Intake, key: str | None, rows: Iterator[tuple[int, list[str]]]) -> None:
    number, header = next(rows, (0, []))
    if not header:
        return
    if len(set(header)) < len(header) or "" in header:
        what = "the columns have no names, or two have the same"
        intake.bad(number, what, "give each column a name of its own in the first line")
        return
    if key is not None and key not in header:
        what = f"there is no column {key!r} in the first line"
        intake.bad(number, what, f"name one of {', '.join(header)}"[:200])
        return
    intake.name_columns(tuple(header))
    at = header.index(key) if key is not None else 0
    for number, row in rows:
        if len(row) != len(header):
            what = f"the row has {len(row)} fields, and the first line has {len(header)}"
            intake.bad(number, what, "quote fields that hold a comma or a line feed")
        else:
            value = dict(zip(header, row, strict=True))
            intake.add(row[at], number, value, to_json(row))


def _rows(intake: Intake, pieces: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, with the number of the line it starts in."""

    def texts() -> Iterator[str]:
        for number, raw in _lines(pieces, intake):
            try:
                yield raw.decode()
            except UnicodeDecodeError:
                intake.bad(number, "the line is not UTF-8", "save the file as UTF-8")
                yield raw.decode(errors="replace")

    reader = csv.reader(texts(), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            intake.bad(start, f"the row cannot be read: {error}", "write it as CSV with commas")
            continue
        if row is None:
            return
        if row and (len(row) > 1 or row[0].strip()):
            yield start, row
