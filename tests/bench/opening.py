"""Figures of opening: time, bytes read and memory by the length of the journal; and full replay.

The limit of opening a long journal is opening a short one of the same task. The limit of replaying
it is one typed decoder over its lines and one hash over its bytes, without any check or state.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from measure import Figure, alternate, timed
from workspaces import NOTE

from perdure import HaltRuntime
from perdure.core.codec import Scan
from perdure.core.events import Event
from perdure.core.fold import Replica
from perdure.runtime.world import World, real_world
from perdure.service.tasks import Service
from perdure.storage.disk import RealDisk


def coordinate(workspace: str, world: World | None = None) -> None:
    """Open as the coordinator, write one event, close."""
    with HaltRuntime(workspace, world=world) as runtime:
        runtime.note(NOTE)


def attach(workspace: str, world: World | None = None) -> None:
    """Open without coordinating, write one event, close."""
    runtime = HaltRuntime.attach(workspace, world=world)
    runtime.note(NOTE)
    runtime.close()


Way = Callable[..., None]


def opening_figures(short: str, long: str, events: int, *, rounds: int) -> Iterator[Figure]:
    """Opening for one more event, in this process."""
    ways: dict[str, Way] = {
        "open, note, close": coordinate,
        "attach, note, close": attach,
    }
    for name, way in ways.items():
        result = alternate(
            rounds,
            {
                "short": partial(timed, way, short),
                "long": partial(timed, way, long),
            },
            warm_up=3,
        )
        sizes = {
            "ms": result.median_us("long") / 1e3,
            "ms with 100": result.median_us("short") / 1e3,
            "bytes read": bytes_read(way, long),
            "with 100": bytes_read(way, short),
        }
        title = f"{name}: {events:,} events against 100"
        yield result.figure(title, "long", "short", "<= 1.3", sizes)


class CountingDisk(RealDisk):
    """The real disk, and how many bytes were read from it."""

    __slots__ = ("bytes_read",)

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """As the disk does, counted."""
        data = super().read(path, offset, length)
        self.bytes_read += len(data)
        return data

    def read_chunks(
        self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
    ) -> Iterator[bytes]:
        """As the disk does, counted."""
        for chunk in super().read_chunks(path, chunk_bytes, offset):
            self.bytes_read += len(chunk)
            yield chunk


def bytes_read(way: Way, workspace: str) -> int:
    """How many bytes a way of opening reads."""
    disk = CountingDisk()
    way(workspace, real_world()._replace(disk=disk))
    return disk.bytes_read


_CHILD = """
import sys
from perdure import HaltRuntime
with HaltRuntime(sys.argv[1]) as runtime:
    runtime.note("one more")
    len(runtime.frontier())
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(peak)
"""


def memory_figure(short: str, long: str, events: int, *, rounds: int) -> Figure:
    """Peak resident memory of a process that opens, writes one event and closes.

    The child reports its own peak: what the parent learns when it ends includes the parent's size
    at the fork.
    """

    def peak_kb(workspace: str) -> float:
        command = [sys.executable, "-c", _CHILD, workspace]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)

    result = alternate(
        rounds, {"long": partial(peak_kb, long), "short": partial(peak_kb, short)}, warm_up=0
    )
    sizes = {
        "KB": round(result.median_us("long") / 1e6),
        "KB with 100": round(result.median_us("short") / 1e6),
    }
    title = f"peak memory: {events:,} events against 100"
    return result.figure(title, "long", "short", "<= 1.3", sizes)


def replay_figures(workspace: str, *, rounds: int) -> Iterator[Figure]:
    """Full verified replay, chain and state, against a bare typed decode and hash.

    The chain takes one digest a line, so that is the limit; against one digest for the whole file,
    which no chain could do with, the ratio is given as well.
    """
    journal = f"{workspace}/journal.jsonl"
    size_bytes = Path(journal).stat().st_size
    events = [0]

    def replay() -> None:
        replica = Replica()
        scan = Scan()
        for commit in scan.commits(RealDisk().read_chunks(journal)):
            replica.apply_all(commit)
        if scan.damage is not None:
            raise RuntimeError(f"the benchmark's own journal is damaged: {scan.damage}")
        events[0] = replica.state.seq

    def verify() -> None:
        answer = Service(workspace, actor="bench:verify").verify()
        if not answer["ok"]:
            raise RuntimeError(f"the benchmark's own workspace is damaged: {answer['problems']}")

    result = alternate(
        rounds,
        {
            "limit": partial(timed, _decode_and_hash_lines, journal),
            "one hash": partial(timed, _decode_and_hash_file, journal),
            "replay": partial(timed, replay),
            "verify": partial(timed, verify),
        },
        warm_up=0,
    )
    sizes: dict[str, Any] = {
        "events": events[0],
        "journal bytes": size_bytes,
        "s": result.median_us("replay") / 1e6,
        "limit s": result.median_us("limit") / 1e6,
        "events/s": events[0] / (result.median_us("replay") / 1e6),
    }
    yield result.figure("replay: chain, decode, fold", "replay", "limit", "<= 3", sizes)
    sizes = {"one hash s": result.median_us("one hash") / 1e6}
    yield result.figure("the same against one hash", "replay", "one hash", "", sizes)
    sizes = {"s": result.median_us("verify") / 1e6}
    yield result.figure("verify: replay and everything else", "verify", "limit", "<= 3", sizes)


def _decode_and_hash_lines(path: str) -> None:
    decode = msgspec.json.Decoder(Event).decode
    with open(path, "rb") as journal:
        for line in journal:
            sha256(line).digest()
            decode(line)


def _decode_and_hash_file(path: str) -> None:
    decode = msgspec.json.Decoder(Event).decode
    digest = sha256()
    with open(path, "rb") as journal:
        for line in journal:
            digest.update(line)
            decode(line)
