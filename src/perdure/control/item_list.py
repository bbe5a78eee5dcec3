"""Items: what a job is to work through, held in little memory, and how they are taken in.

Job: the :class:`Item`, the list of them, and the :class:`Intake` that every source fills.
Invariants: each key stands in a list once, in the order of the input; what was left out because its
key had already come is told, with both lines; a list is made only when every line of the input
could be used. Never: reads a file, or runs anything.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, overload

import msgspec

from perdure.errors import UsageError
from perdure.jobs.lines import check_key, item_digest

items_max: Final = 10_000_000
"""Items of one job."""
input_bytes_max: Final = 4 << 30
"""All keys and contents of the items together, which are held in memory."""
bad_items_shown_max: Final = 20
"""Bad lines in one message; reading stops when there are so many."""
duplicates_kept_max: Final = 20
"""Lines whose key had already come that are told one by one; the rest are counted."""


class Item(NamedTuple):
    """One thing to work on."""

    key: str
    value: Any
    """The JSON value, or the CSV row by column; None where the item is no more than its key."""
    digest: str | None
    """``jobs.lines.item_digest`` of the value; None where the item is no more than its key."""
    line: int
    """Where it stands in its source, from 1; for files that a glob named, its place in the list."""


class Duplicate(NamedTuple):
    """A line that was left out because its key had come before."""

    key: str
    first: int
    """The line that counts."""
    line: int
    same: bool
    """Whether both lines say the same."""


class ItemList(Sequence[Item]):
    """The items of one input. Each is made when it is asked for; what is kept is its key and bytes.

    Costs about 80 bytes an item besides the text of its key and its content.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        """Where they come from, as it was typed."""
        self.keys: list[str] = []
        self.duplicates: list[Duplicate] = []
        """The first of them, ``duplicates_kept_max`` at most."""
        self.duplicate_count = 0
        self.differing_count = 0
        """Those of the duplicates that say something else than the line that counts."""
        self._lines = array("Q")
        self._contents: list[bytes] = []
        self._digests = array("Q")
        self.columns: tuple[str, ...] = ()
        """Of a table, whose items are lists of as many texts."""

    def append(self, key: str, line: int, content: bytes, digest: int) -> None:
        """For the intake: one more, whose key is new; without content it is no more than that."""
        self.keys.append(key)
        self._lines.append(line)
        if content:
            self._contents.append(content)
            self._digests.append(digest)

    def leave_out(self, first: int, line: int, digest: int) -> None:
        """For the intake: a line with the key of the item at ``first``, which counts."""
        same = not self._digests or self._digests[first] == digest
        self.duplicate_count += 1
        self.differing_count += not same
        if len(self.duplicates) < duplicates_kept_max:
            self.duplicates.append(Duplicate(self.keys[first], self._lines[first], line, same))

    @property
    def has_digests(self) -> bool:
        """Whether the items are more than their keys, so that one may have changed."""
        return bool(self._digests)

    def digest_number(self, index: int) -> int:
        """The digest of an item as a number of 64 bits; only where ``has_digests``."""
        return self._digests[index]

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self.keys)))]
        key, line = self.keys[index], self._lines[index]
        if not self._contents:
            return Item(key, None, None, line)
        value = decode_json(self._contents[index])
        if self.columns:
            value = dict(zip(self.columns, value, strict=True))
        return Item(key, value, f"{self._digests[index]:016x}", line)


class Intake:
    """Takes items in, line by line, and gives the list when all of them can be used."""

    def __init__(self, source: str) -> None:
        self._list = ItemList(source)
        self._seen: dict[str, int] = {}
        self._bytes = 0
        self._bad: list[str] = []

    def add(self, key: str, line: int, value: object = None, content: bytes = b"") -> None:
        """Take one item in; one that is more than its key comes with its value and its JSON.

        For a table ``value`` is by column, ``content`` the list. A key that no command could be
        given is a bad line.
        """
        problem = "its key holds a NUL character" if "\0" in key else _key_problem(key)
        if problem:
            self.bad(line, problem, "correct it; a key is a short stable text")
            return
        try:
            digest = int(item_digest(value), 16) if content else 0
        except UsageError as error:  # nested too deeply, or too large
            self.bad(line, error.message.rstrip("."), "make it simpler, or name a file with it")
            return
        first = self._seen.setdefault(key, len(self._list))
        if first < len(self._list):
            self._list.leave_out(first, line, digest)
            return
        self._bytes += len(key) + len(content)
        if first >= items_max or self._bytes > input_bytes_max:
            self._refuse_size()
        self._list.append(key, line, content, digest)

    def name_columns(self, columns: tuple[str, ...]) -> None:
        """What comes is a table: the content of each item is a list, its value is by column."""
        self._list.columns = columns

    def bad(self, line: int, what: str, fix: str) -> None:
        """Note a line that cannot be used; after so many of them no more are looked for."""
        source = self._list.source
        place = f"{source}:{line}" if line else source
        self._bad.append(f"{place}: {what} ({fix})")
        if len(self._bad) >= bad_items_shown_max:
            self._refuse_lines("reading stopped there")

    def finish(self) -> ItemList:
        """The list. UsageError ``bad_item`` when any line could not be used."""
        if self._bad:
            self._refuse_lines("")
        return self._list

    def _refuse_lines(self, more: str) -> NoReturn:
        listed = [*self._bad, more] if more else self._bad
        count = "1 item" if len(self._bad) == 1 else f"{len(self._bad)} items"
        raise UsageError(
            f"{count} of {self._list.source} cannot be used:\n  " + "\n  ".join(listed) + "\n",
            code="bad_item",
            rule="JB-7",
            fix="Correct or remove what is named, then run it again; nothing was run or written.",
        )

    def _refuse_size(self) -> NoReturn:
        raise UsageError(
            f"{self._list.source} has more than {items_max:,} items, or more than"
            f" {input_bytes_max:,} bytes of them.",
            code="too_many_items",
            rule="JB-4",
            fix="Split it, and give each part a job of its own.",
        )


def items_of(source: str, keys: Iterable[str]) -> ItemList:
    """Items that are no more than their keys, taken from a list. UsageError as for any source."""
    intake = Intake(source)
    for number, key in enumerate(keys, 1):
        intake.add(key, number)
    return intake.finish()


def decode_json(data: bytes) -> Any:
    """The JSON value, lone surrogates included. ValueError when it is none; NaN is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"\\u" not in data:  # not the one thing the fast decoder cannot read
            raise ValueError(str(error)) from None
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _key_problem(key: str) -> str:
    try:
        check_key(key)
    except UsageError as error:
        return error.message.rstrip(".")
    return ""
