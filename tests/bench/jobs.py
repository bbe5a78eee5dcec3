"""Figures of checkpointed jobs: recording one by one and together, resuming, looking, commands.

The limit of recording is the bare append and sync loop with lines of the same size; that of
resuming is one typed decoder over the file that is read, without any check, hash or state. What
is measured as a whole process is compared with a whole process.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from job_directories import NAME, copy_job, forget_checkpoint, key_of, make_job, payload_of
from measure import AppendLoop, Figure, ProcessTimer, alternate, timed

from perdure import CheckpointedJob
from perdure.ports import AppendFile
from perdure.runtime.world import real_world
from perdure.storage.disk import RealDisk
from perdure.testing import SimClock

first_records = 64
"""So many records of a process renew the summary each; what is measured comes after them."""
record_s = 0.000_2
"""How long a record takes where time is made up."""
workers = 4
perdure = str(Path(sys.executable).parent / "perdure")


class Recorder:
    """An open job and its next items."""

    def __init__(self, directory: str, items: int, job: CheckpointedJob | None = None) -> None:
        self.job = job or CheckpointedJob(directory, NAME)
        self.numbers = count_from(items)
        self._log = f"{directory}/findings.jsonl"
        self.record(first_records)
        before = os.path.getsize(self._log)
        self.record(1)
        self.line_bytes = os.path.getsize(self._log) - before

    def record(self, count: int) -> None:
        """Record so many items, one after the other."""
        record = self.job.record_finding
        for number in islice(self.numbers, count):
            record(key_of(number), payload_of(number))

    def map(self, count: int) -> None:
        """The same through ``map``, with a function that has its answer at once."""
        items = islice(self.numbers, count)
        self.job.map(payload_of, items, key=key_of, workers=workers)


# Recording


def record_figures(
    directory: Path, jobs: dict[int, str], *, rounds: int, count: int
) -> Iterator[Figure]:
    """``record_finding`` against the bare loop, by the number of items that are done already."""
    loop = AppendLoop(directory / "limit-findings")
    open_jobs = {items: Recorder(path, items) for items, path in jobs.items()}
    line_bytes = next(iter(open_jobs.values())).line_bytes
    result = alternate(
        rounds,
        {
            "limit": partial(loop.run, count, line_bytes),
            **{str(n): partial(timed, job.record, count) for n, job in open_jobs.items()},
        },
    )
    least = min(jobs)
    for items in jobs:
        sizes = {
            "line bytes": open_jobs[items].line_bytes,
            "record us": result.median_us(str(items), count),
            "limit us": result.median_us("limit", count),
            "per round": count,
        }
        name = f"record_finding, {items:,} items done"
        yield result.figure(name, "limit", str(items), ">= 0.7", sizes)
    for items in jobs:
        if items != least:
            name = f"record_finding: {items:,} items done against {least:,}"
            yield result.figure(name, str(least), str(items), ">= 0.9", {})
    for recorder in open_jobs.values():
        recorder.job.close()
    loop.close()


def kept_up_figures(directory: Path, jobs: dict[int, str], *, seconds: float) -> Iterator[Figure]:
    """Records for some seconds with the checkpoints they cause: the mean, not the median."""
    loop = AppendLoop(directory / "limit-kept-up")
    for items, path in jobs.items():
        disk = CountingDisk()
        job = CheckpointedJob(path, NAME, world=real_world()._replace(disk=disk))
        recorder = Recorder(path, items + 1_000_000, job)
        disk.replaced.clear()
        limit_s = subject_s = 0.0
        ratios = []
        done = 0
        while subject_s < seconds:
            ours = timed(recorder.record, 50)
            limit = loop.run(50, recorder.line_bytes)
            subject_s, limit_s, done = subject_s + ours, limit_s + limit, done + 50
            ratios.append(limit / ours)
        sizes = {
            "items/s": done / subject_s,
            "summaries": disk.replaced["SUMMARY.md"],
            "states": disk.replaced["state.json"],
            "items": done,
        }
        name = f"the same with its checkpoints, {items:,} items done"
        yield Figure(name, limit_s / subject_s, min(ratios), max(ratios), ">= 0.7", sizes)
        job.close()
    loop.close()


class CountingDisk(RealDisk):
    """The real disk, and which files were replaced how often."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: Counter[str] = Counter()

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """As the disk does, counted."""
        self.replaced[os.path.basename(path)] += 1
        super().replace(path, data, durable=durable)


class WeighingDisk(RealDisk):
    """The real disk without its syncs, which do not change how much is written, but for time.

    Counts bytes by file name. Each sync of a log lets the made-up time of a record pass, so that
    checkpoints come as often as on a disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock()
        self.written: Counter[str] = Counter()

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """As the disk does, weighed and not synced."""
        self.written[os.path.basename(path)] += len(data)
        super().replace(path, data, durable=False)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        """As the disk does, weighed."""
        self.written[os.path.basename(path)] += len(data)
        super().rewrite(path, offset, data)

    def sync_file(self, path: str) -> None:
        """Nothing."""

    def sync_dir(self, path: str) -> None:
        """Nothing."""

    def open_append(self, path: str) -> "WeighingFile":  # type: ignore[override]
        """As the disk does, weighed."""
        return WeighingFile(super().open_append(path), self, os.path.basename(path))


class WeighingFile:
    """A log whose bytes are counted and never synced."""

    def __init__(self, real: AppendFile, disk: WeighingDisk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._append = real.append
        self.size = real.size
        self.close = real.close

    def append(self, data: bytes) -> None:
        """As the file does, weighed."""
        self._disk.written[self._name] += len(data)
        self._append(data)

    def sync(self) -> None:
        """The time of a record passes, nothing else."""
        self._disk.clock.advance(record_s)


def bytes_figures(jobs: dict[int, str]) -> Iterator[Figure]:
    """Bytes written for an item, in bytes of its line, from one ``state.json`` to the next."""
    for items, path in jobs.items():
        disk = WeighingDisk()
        world = real_world()._replace(disk=disk, clock=disk.clock)
        job = CheckpointedJob(path, NAME, world=world)
        recorder = Recorder(path, items + 2_000_000, job)
        # A checkpoint follows as much log as the last one was long: two of them are a whole turn.
        _record_until_next_state(recorder, disk)
        disk.written.clear()
        before = job.processed
        _record_until_next_state(recorder, disk)
        done = job.processed - before
        line_bytes = disk.written["findings.jsonl"] / done
        each = {
            f"in {name}": disk.written[name] / done / line_bytes for name in sorted(disk.written)
        }
        ratio = disk.written.total() / done / line_bytes
        sizes = {"line bytes": recorder.line_bytes, "items": done}
        shown = {name: f"{share:.3f}" for name, share in each.items()}
        name = f"bytes written, {items:,} items done"
        yield Figure(name, ratio, ratio, ratio, "<= 3", {**sizes, **shown})
        job.close()


def _record_until_next_state(recorder: Recorder, disk: WeighingDisk) -> None:
    before = disk.written["state.json"]
    while disk.written["state.json"] == before:
        recorder.record(25)


def map_figures(directory: Path, *, rounds: int, count: int) -> Iterator[Figure]:
    """``map`` with results that are ready together against the bare loop, a fifth as long."""
    loop = AppendLoop(directory / "limit-map")
    recorder = Recorder(str(directory / "mapped"), 0)
    result = alternate(
        rounds,
        {
            "limit": lambda: 5 * loop.run(count // 5, recorder.line_bytes),
            "map": partial(timed, recorder.map, count),
        },
    )
    recorder.job.close()
    loop.close()
    sizes = {
        "item us": result.median_us("map", count),
        "limit us": result.median_us("limit", count),
        "items": count,
        "threads": workers,
    }
    yield result.figure("map, instant function", "limit", "map", ">= 5", sizes)


_MAP_CHILD = """
from perdure import CheckpointedJob
def answer(number):
    return {"text": "x" * 4_000, "number": number}
def work():
    with CheckpointedJob(sys.argv[1], "bench") as job:
        job.map(answer, range(int(sys.argv[2])), key=str, workers=4)
"""


def map_memory_figure(directory: Path, *, items: int, rounds: int) -> Figure:
    """Peak memory of a ``map`` over findings of 4 KB each, for each further item."""
    few = items // 6
    numbers = count_from()

    def peak_bytes(items: int) -> float:
        job = directory / f"map-memory-{next(numbers)}"
        return run_child(_MAP_CHILD, str(job), str(items)).peak_bytes

    result = alternate(
        rounds, {"many": partial(peak_bytes, items), "few": partial(peak_bytes, few)}, warm_up=0
    )
    each = [
        (many - least) / (items - few)
        for many, least in zip(result.times["many"], result.times["few"], strict=True)
    ]
    sizes = {
        f"MB with {items:,}": result.median_us("many") / 1e12,
        f"MB with {few:,}": result.median_us("few") / 1e12,
        "finding bytes": 4_000,
    }
    middle = sorted(each)[len(each) // 2]
    return Figure(
        "map: memory for each further item", middle, min(each), max(each), "bounded", sizes
    )


# Processes that tell their own time and peak: what the parent learns when a child ends includes
# the parent's size at the fork.


class Child(NamedTuple):
    """What a child told about itself."""

    seconds: float
    peak_bytes: float


_BEFORE = """
import os, sys, time
sys.path.insert(0, os.environ["BENCH_DIRECTORY"])
def work():
    pass
"""
_AFTER = """
began = time.perf_counter()
try:
    kept = work()
except SystemExit as end:
    if end.code:
        raise
seconds = time.perf_counter() - began
try:
    with open("/proc/self/status") as status:
        peak = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sys.stdout.flush()
print("", seconds, peak, flush=True)
os._exit(0)  # without a checkpoint: the next round finds what this one found
"""


def run_child(script: str, *arguments: str) -> Child:
    """Run the ``work`` of a script in a process of its own; RuntimeError when it fails."""
    return _told([sys.executable, "-c", _BEFORE + script + _AFTER, *arguments])


def run_command(*arguments: str) -> Child:
    """Run ``perdure`` in a process of its own; RuntimeError when it fails."""
    return _told([sys.executable, "-S", "-c", _COMMAND, perdure, *arguments])


def _told(command: list[str]) -> Child:
    environment = {**os.environ, "BENCH_DIRECTORY": os.path.dirname(os.path.abspath(__file__))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds, peak_bytes = done.stdout.splitlines()[-1].split()
    return Child(float(seconds), float(peak_bytes))


# Resuming


_OPEN = """
from perdure import CheckpointedJob
import perdure.jobs.job
def work():
    return CheckpointedJob(sys.argv[1], "bench")
"""
_ONLY_IMPORTED = """
from perdure import CheckpointedJob
import perdure.jobs.job
"""
_DECODE_STATE = """
import msgspec
from job_directories import State
def work():
    with open(sys.argv[1] + "/state.json", "rb") as file:
        return msgspec.json.Decoder(State).decode(file.read())
"""
_DECODE_LOG = """
import job_directories, msgspec
def work():
    decode = msgspec.json.Decoder(getattr(job_directories, sys.argv[2])).decode
    with open(sys.argv[1] + "/findings.jsonl", "rb") as log:
        for line in log:
            decode(line)
"""


class Seen:
    """Runs children and keeps their peaks beside their times."""

    def __init__(self) -> None:
        self.peaks: dict[str, list[float]] = {}

    def round(self, name: str, run: Callable[..., Child], *arguments: str) -> Callable[[], float]:
        """A round of one child."""

        def call() -> float:
            child = run(*arguments)
            self.peaks.setdefault(name, []).append(child.peak_bytes)
            return child.seconds

        return call

    def peak_bytes(self, name: str) -> float:
        """The median peak."""
        peaks = sorted(self.peaks[name])
        return peaks[len(peaks) // 2]


def resume_figures(job: str, items: int, *, rounds: int) -> Iterator[Figure]:
    """Opening a long job, with its checkpoint and without one; time and memory."""
    long = items >= 1_000_000  # of a shorter one most is what a process costs anyway: no target
    seen = Seen()
    with_checkpoint = alternate(
        rounds,
        {
            "open": seen.round("open", run_child, _OPEN, job),
            "decode": seen.round("decode", run_child, _DECODE_STATE, job),
            "nothing": seen.round("nothing", run_child, _ONLY_IMPORTED),
        },
        warm_up=0,
    )
    sizes = {
        "s": with_checkpoint.median_us("open") / 1e6,
        "limit s": with_checkpoint.median_us("decode") / 1e6,
        "state bytes": os.path.getsize(f"{job}/state.json"),
    }
    name = f"open, {items:,} items, fresh checkpoint"
    yield with_checkpoint.figure(name, "open", "decode", "<= 2" if long else "", sizes)
    yield _memory_figure("open with a checkpoint", seen, items)

    seen = Seen()
    open_job = seen.round("open", run_child, _OPEN, job)

    def open_without() -> float:
        forget_checkpoint(job)
        return open_job()

    without = alternate(
        rounds,
        {
            "open": open_without,
            "decode": seen.round("decode", run_child, _DECODE_LOG, job, "Line"),
            "marks": seen.round("marks", run_child, _DECODE_LOG, job, "Mark"),
            "nothing": seen.round("nothing", run_child, _ONLY_IMPORTED),
        },
        warm_up=0,
    )
    sizes = {
        "s": without.median_us("open") / 1e6,
        "limit s": without.median_us("decode") / 1e6,
        "log bytes": os.path.getsize(f"{job}/findings.jsonl"),
    }
    name = f"open, {items:,} items, no checkpoint"
    yield without.figure(name, "open", "decode", "<= 3" if long else "", sizes)
    sizes = {"limit s": without.median_us("marks") / 1e6}
    yield without.figure("the same against hash, key and time alone", "open", "marks", "", sizes)
    yield _memory_figure("open without a checkpoint", seen, items)


def _memory_figure(name: str, seen: Seen, items: int) -> Figure:
    """Peak memory of opening for each item, beyond that of a process that only imports."""
    pairs = zip(seen.peaks["open"], seen.peaks["nothing"], strict=True)
    each = sorted((opened - nothing) / items for opened, nothing in pairs)
    sizes = {
        "peak MB": seen.peak_bytes("open") / 1e6,
        "only imported MB": seen.peak_bytes("nothing") / 1e6,
        "bare decode MB": seen.peak_bytes("decode") / 1e6,
    }
    title = f"{name}: bytes of memory for an item"
    return Figure(
        title,
        each[len(each) // 2],
        each[0],
        each[-1],
        "<= 220" if items >= 1_000_000 else "",
        sizes,
    )


# Commands


# Started by a bare interpreter, which is smaller than what is measured.
_COMMAND = """
import os, sys, time
null = os.open(os.devnull, os.O_RDWR)
actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1)]
began = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
_, status, usage = os.wait4(pid, 0)
seconds = time.perf_counter() - began
print(seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def look_figures(job: str, items: int, *, rounds: int) -> Iterator[Figure]:
    """``perdure job status`` and ``job verify`` against decoding what they read."""
    seen = Seen()
    result = alternate(
        rounds,
        {
            "status": seen.round("status", run_command, "job", "status", job),
            "verify": seen.round("verify", run_command, "job", "verify", job),
            "decode state": seen.round("decode state", run_child, _DECODE_STATE, job),
            "decode log": seen.round("decode log", run_child, _DECODE_LOG, job, "Line"),
        },
        warm_up=0,
    )
    for verb, limit, target in (
        ("status", "decode state", "100 MB"),
        ("verify", "decode log", ""),
    ):
        sizes = {
            "s": result.median_us(verb) / 1e6,
            "limit s": result.median_us(limit) / 1e6,
            "peak MB": seen.peak_bytes(verb) / 1e6,
            "bytes an item": seen.peak_bytes(verb) / items,
        }
        name = f"perdure job {verb}, {items:,} items"
        yield result.figure(name, verb, limit, target, sizes)


_BARE_COMMANDS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from subprocess import DEVNULL, Popen
def run(number):
    return Popen(["true"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL).wait()
with ThreadPoolExecutor(int(sys.argv[2])) as pool:
    assert not any(pool.map(run, range(int(sys.argv[1]))))
"""


def command_figure(directory: Path, *, rounds: int, items: int) -> Figure:
    """``perdure map -- true`` as a whole process against a bare loop of child processes."""
    timer = ProcessTimer()
    item_file = directory / "items.txt"
    item_file.write_text("".join(f"{key_of(number)}\n" for number in range(items)))
    numbers = count_from()
    processors = str(os.cpu_count() or 1)

    def run_map() -> float:
        job = f"{directory}/commands-{next(numbers)}"
        options = ["--job", job, "--items", str(item_file), "--workers", processors]
        return timer.run([perdure, "map", *options, "--", "true"])

    bare = [sys.executable, "-c", _BARE_COMMANDS, str(items), processors]
    result = alternate(rounds, {"map": run_map, "bare": partial(timer.run, bare)})
    sizes = {
        "item us": result.median_us("map", items),
        "limit us": result.median_us("bare", items),
        "items": items,
        "workers": int(processors),
    }
    return result.figure("perdure map -- true, for an item", "map", "bare", "", sizes)


# What the benchmark shows


class Sizes(NamedTuple):
    """How much is measured."""

    items: tuple[int, ...]
    short_rounds: int
    rounds: int
    slow_rounds: int
    seconds: float


Part = Callable[[], Iterator[Figure]]


def sections(directory: Path, sizes: Sizes) -> dict[str, tuple[Part, ...]]:
    """Title to what measures it. A job's directory is made when it is first needed."""
    made: dict[int, str] = {}
    copies = count_from()

    def job(items: int) -> str:
        if items not in made:
            made[items] = make_job(directory / f"job-{items}", items)
        return made[items]

    def fresh() -> dict[int, str]:
        """Copies, so that what one part records is not there for the next one."""
        found = {n: copy_job(job(n), directory / f"copy-{next(copies)}") for n in sizes.items}
        os.sync()  # not in the middle of what is measured
        return found

    most = max(sizes.items)

    def commands() -> Iterator[Figure]:
        yield from look_figures(job(most), most, rounds=sizes.slow_rounds)
        yield command_figure(directory, rounds=sizes.slow_rounds, items=min(sizes.items))

    def maps() -> Iterator[Figure]:
        yield from map_figures(directory, rounds=sizes.rounds // 2, count=2_500)
        yield map_memory_figure(directory, items=60_000, rounds=3)

    return {
        "Jobs: share of the speed of a bare append and sync loop (more is better)": (
            lambda: record_figures(directory, fresh(), rounds=sizes.short_rounds, count=25),
            lambda: kept_up_figures(directory, fresh(), seconds=sizes.seconds),
            maps,
        ),
        "Jobs: bytes written for an item in bytes of its line (less is better)": (
            lambda: bytes_figures(fresh()),
        ),
        "Jobs: looking and commands, times the limit (less is better)": (commands,),
        "Jobs: resuming, times a bare typed decode (less is better)": (
            lambda: resume_figures(job(most), most, rounds=sizes.slow_rounds),
        ),
    }
