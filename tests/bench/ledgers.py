"""Figures of a batch node that is taken up again after a death: its ledger and its log, read back.

The limit is one typed decoder over the lines of both files, each dropped at once.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from measure import Figure, alternate, timed

from perdure import HaltRuntime
from perdure.control.batch_job import BatchJob, SettledUnit
from perdure.core.batch import ledger_path, log_path
from perdure.jobs.records import Finding
from perdure.runtime.units import UnitLine

units_per_group = 5_000


def recovery_figures(directory: Path, units: int, *, rounds: int) -> Iterator[Figure]:
    """Taking up a batch node again of which all units but their last marks are done."""
    place = directory / "ledgers"
    keys = [f"unit-{n}" for n in range(units)]
    with HaltRuntime(place, "bench") as runtime:
        runtime.add_node("B", "batch", map={"run": "true", "list": ["a"]})
        _adopt(runtime, keys, fill=True)
        files = [place / log_path("B"), place / ledger_path("B")]
        result = alternate(
            rounds,
            {
                "take up": partial(timed, _adopt, runtime, keys),
                "decode": partial(timed, _decode, files),
            },
        )
    sizes = {
        "units": units,
        "ms": result.median_us("take up") / 1e3,
        "limit ms": result.median_us("decode") / 1e3,
        "bytes": sum(file.stat().st_size for file in files),
    }
    yield result.figure(
        f"batch node taken up again, {units:,} units", "take up", "decode", "", sizes
    )


def _adopt(runtime: HaltRuntime, keys: list[str], *, fill: bool = False) -> None:
    job = BatchJob(runtime.engine, runtime.state.nodes["B"])
    try:
        job.adopt(keys)
        for start in range(0, len(keys) if fill else 0, units_per_group):
            group = keys[start : start + units_per_group]
            job.job.record_many([Finding(key, {"n": 1}) for key in group])
            job.settle(SettledUnit(key, True) for key in group)
    finally:
        job.close()


class _FindingLine(msgspec.Struct):
    key: str = msgspec.field(name="_key")


def _decode(files: list[Path]) -> None:
    for file, kind in zip(files, (_FindingLine, UnitLine), strict=True):
        decoder = msgspec.json.Decoder(kind)
        with file.open("rb") as lines:
            for line in lines:
                decoder.decode(line)
