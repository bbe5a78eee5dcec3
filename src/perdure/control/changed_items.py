"""Which items are not what they were when their finding was made.

Job: compare the items of an input with the digests that stand beside the findings (``_item``).
Invariants: one pass over the log, with two numbers in memory for each item that is done; a finding
without a digest proves no change; nothing is run again for it, that is for a person to decide.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from perdure.control.item_list import ItemList
from perdure.jobs.lines import item_hash
from perdure.jobs.log import LOG_NAME
from perdure.ports import Disk

changed_kept_max: Final = 20


class ChangedItems(NamedTuple):
    """Items whose key is done and whose content is another."""

    total: int
    keys: list[str]
    """The first of them, ``changed_kept_max`` at most, in the order of the input."""


class _Digest(msgspec.Struct, gc=False):
    key: str = msgspec.field(name="_key")
    item: str = msgspec.field(name="_item")


def find_changed(
    items: ItemList, is_done: Callable[[str], bool], directory: str, *, disk: Disk
) -> ChangedItems:
    """Read the log of the job in ``directory`` once, if any item is more than its key.

    Lines that are no findings are left to ``perdure job verify``. Raises StorageError.
    """
    if not items.has_digests:
        return ChangedItems(0, [])
    done = [index for index, key in enumerate(items.keys) if is_done(key)]
    if not done:
        return ChangedItems(0, [])
    now = {_number(items.keys[index]): items.digest_number(index) for index in done}
    changed: set[int] = set()
    for hash_, digest in _digests(f"{directory}/{LOG_NAME}", disk):
        if hash_ in now and now[hash_] != digest:
            changed.add(hash_)
    keys = [items.keys[index] for index in done if _number(items.keys[index]) in changed]
    return ChangedItems(len(keys), keys[:changed_kept_max])


def _number(key: str) -> int:
    return int(item_hash(key), 16)


def _digests(path: str, disk: Disk) -> Iterator[tuple[int, int]]:
    decode = msgspec.json.Decoder(_Digest).decode
    rest = b""
    for piece in disk.read_chunks(path):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if b'"_item"' not in line:
                continue
            try:
                seen = decode(line)
                yield _number(seen.key), int(seen.item, 16)
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue
