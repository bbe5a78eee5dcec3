"""The journal as a sequence of events, read from the disk on demand.

Job: iterate and index committed events. Invariants: memory holds one commit at a time; it shows
exactly the events up to the number it was made with, however the journal grows meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from perdure.core.codec import Scan
from perdure.core.events import Event
from perdure.ports import Disk


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
