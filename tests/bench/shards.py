"""Figures of sharded batch nodes: units through workers, against the same commands in a bare pool.

The limit runs the very contracts that the subject has made, with the same workers at once, in a
thread pool that starts processes and does nothing else: no slot, no join, no journal.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from measure import Figure

workers: Final = 8
units_per_shard: Final = 100
rounds: Final = 3

_WORKER: Final = """
import hashlib, json, os
with open(os.environ["PERDURE_CONTRACT"]) as file:
    units = json.load(file)["units"]["keys"]
scope = os.environ["PERDURE_SCOPE"]
with open(scope + "/findings.jsonl", "a") as findings, open(scope + "/ledger.jsonl", "a") as ledger:
    for unit in units:
        digest = unit["key"].encode()
        for _ in range(400):
            digest = hashlib.sha256(digest).digest()
        findings.write(json.dumps({"_key": unit["key"], "digest": digest.hex()}) + "\\n")
        findings.flush()
        ledger.write(json.dumps({"unit_id": unit["key"], "status": "ok"}) + "\\n")
        ledger.flush()
"""


def shard_figures(directory: Path, units: int) -> Iterator[Figure]:
    """Throughput and memory of ``units`` units over ``workers`` workers."""
    ratios: list[float] = []
    sizes: dict[str, object] = {}
    peak_kb = 0
    for number in range(rounds):
        place = directory / f"shards-{number}"
        ours_s, peak_kb = _run(place, units)
        bare_s = _pool(place, units)
        ratios.append(bare_s / ours_s)
        shutil.rmtree(place)
        sizes = {"units": units, "s": ours_s, "pool s": bare_s, "coordinator MB": peak_kb / 1024}
    ratios.sort()
    middle = ratios[len(ratios) // 2]
    name = f"{units:,} units, {workers} workers, {units_per_shard} each"
    yield Figure(name, middle, ratios[0], ratios[-1], ">= 0.8", sizes)
    _, least_kb = _run(directory / "shards-few", units // 10)
    more = (peak_kb - least_kb) * 1024 / (units - units // 10)
    grown = {"MB": peak_kb / 1024, "with a tenth MB": least_kb / 1024, "bytes a unit more": more}
    ratio = peak_kb / least_kb
    yield Figure("memory, against a tenth of the units", ratio, ratio, ratio, "the same", grown)


def _run(place: Path, units: int) -> tuple[float, int]:
    """Seconds of a whole run, and the peak of its memory in kB (its children are smaller)."""
    place.mkdir()
    (place / "worker.py").write_text(_WORKER)
    (place / "items.txt").write_text("".join(f"unit-{n}\n" for n in range(units)))
    (place / "task.yaml").write_text(
        "task_id: bench\nnodes:\n  - id: B\n    map:\n      items: items.txt\n"
        f"      run: [{sys.executable}, -I, -S, {place}/worker.py]\n"
        f"      shard: {units_per_shard}\n"
    )
    command = [sys.executable, "-m", "perdure", "-C", str(place / "w"), "run"]
    began = time.perf_counter()
    child = subprocess.Popen(
        [*command, str(place / "task.yaml"), "--jobs", str(workers)], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise RuntimeError(f"the run ended with {child.returncode}")
    return time.perf_counter() - began, used.ru_maxrss


def _pool(place: Path, units: int) -> float:
    """Seconds of the same commands with the same contracts in a bare pool."""
    contracts = sorted((place / "w" / "contracts").glob("inv-*.json"))
    contracts = [p for p in contracts if json.loads(p.read_bytes())["executor_kind"] == "shard"]
    scopes = [place / "pool" / path.stem for path in contracts]
    for scope in scopes:
        scope.mkdir(parents=True)

    def work(contract: Path, scope: Path) -> None:
        given = {"PERDURE_CONTRACT": str(contract), "PERDURE_SCOPE": str(scope)}
        subprocess.run(
            [sys.executable, "-I", "-S", str(place / "worker.py")],
            env=os.environ | given,
            check=True,
        )

    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, contracts, scopes))
    seconds = time.perf_counter() - began
    lines = sum(len((s / "ledger.jsonl").read_bytes().splitlines()) for s in scopes)
    if lines != units:
        raise RuntimeError(f"the pool did {lines} of {units} units")
    return seconds
