"""The last events of a journal, read from its end."""

from perdure.core.events import Event
from perdure.runtime import eventlog
from perdure.runtime.eventlog import tail_events
from perdure.runtime.halt import HaltRuntime
from perdure.storage.disk import RealDisk


class Block(bytes):
    """Bytes that nobody may put together with others by copying both."""

    def __add__(self, other: object) -> bytes:
        raise AssertionError("copied once more for each block")


class CountingDisk(RealDisk):
    """Counts the bytes that are read."""

    __slots__ = ("bytes_read",)

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        self.bytes_read += len(data)
        return Block(data)


def last(runtime: HaltRuntime, count: int) -> list[Event]:
    engine = runtime.engine
    return tail_events(engine.disk, engine.layout.journal, engine.journal.tip, count)


def test_the_last_events_are_those_that_were_committed_last(workspace: str) -> None:
    with HaltRuntime(workspace, "T") as runtime:
        for number in range(5):
            runtime.note(f"note {number} {'x' * eventlog.tail_block_bytes}")
        whole = list(runtime.events())
        for count in (0, 1, 3, len(whole), len(whole) + 10):
            assert last(runtime, count) == (whole[-count:] if count else [])


def test_many_blocks_are_read_once_each_and_put_together_once(workspace: str) -> None:
    """Copying what is there for each block that comes makes a long tail take hours."""
    with HaltRuntime(workspace, "T") as runtime:
        for number in range(40):
            runtime.note(f"note {number} {'x' * eventlog.tail_block_bytes * 2}")
        engine, disk = runtime.engine, CountingDisk()
        found = tail_events(disk, engine.layout.journal, engine.journal.tip, 30)
        assert [event.seq for event in found] == [e.seq for e in runtime.events()][-30:]
        most = 31 * (eventlog.tail_block_bytes * 2 + 1_000) + eventlog.tail_block_bytes
        assert disk.bytes_read <= most
