"""The journal as a sequence of events, read from the disk on demand.

Job: iterate and index committed events. Invariants: memory holds one commit at a time; it shows
exactly the events up to the number it was made with, however the journal grows meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import Final, overload

from perdure.core.codec import ChainTip, Scan, decode_line
from perdure.core.events import Event
from perdure.ports import Disk

tail_block_bytes: Final = 64 << 10


def tail_events(disk: Disk, path: str, tip: ChainTip, count: int) -> list[Event]:
    """The last ``count`` events before ``tip``, read from the end of the file backwards."""
    blocks, ends, start = list[bytes](), 0, tip.offset
    while start > 0 and ends <= count:
        step = min(tail_block_bytes, start)
        start -= step
        blocks.append(disk.read(path, start, step))
        ends += blocks[-1].count(b"\n")
    lines = [line for line in b"".join(reversed(blocks)).split(b"\n") if line.strip()]
    return [decode_line(line) for line in lines[-count:]] if count > 0 else []


class EventLog(Sequence[Event]):
    """Events 1 to ``length`` of a journal file."""

    def __init__(self, disk: Disk, path: str, length: int) -> None:
        self._disk = disk
        self._path = path
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        for events in Scan().commits(self._disk.read_chunks(self._path)):
            for event in events:
                if event.seq > self._length:
                    return
                yield event

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        if isinstance(index, slice):
            wanted = range(*index.indices(self._length))
            found = {event.seq - 1: event for event in self if event.seq - 1 in wanted}
            return [found[position] for position in wanted]
        position = index + self._length if index < 0 else index
        if 0 <= position < self._length:
            for event in self:
                if event.seq == position + 1:
                    return event
        raise IndexError(index)
