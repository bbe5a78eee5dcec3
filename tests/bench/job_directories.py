"""Job directories of a given size, written straight from the file contract and not by recording.

One finding a line, as any implementation writes it: the caller's payload, then ``_hash``, ``_key``
and ``_at``. Nothing is synced. The checkpoint is not written here: opening the job once makes one.
"""

import json
import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from perdure import CheckpointedJob
from perdure.core.codec import timestamp

NAME = "bench"
BEGAN = 1_767_225_600.0


class Stats(msgspec.Struct):
    """The counts of a ``state.json``."""

    processed: int
    failed: int
    resumes: int


class State(msgspec.Struct):
    """What a bare decoder has to know of a ``state.json``."""

    job: str
    version: int
    started_at: str
    updated_at: str
    cursor: Any
    completed: dict[str, str]
    errors: list[Any]
    stats: Stats
    finished_at: str | None = None


class Mark(msgspec.Struct, rename={"hash": "_hash", "key": "_key", "at": "_at"}):
    """What a bare decoder has to know of a line of ``findings.jsonl`` to resume."""

    hash: str
    key: str
    at: str


class Line(Mark):
    """A line of ``findings.jsonl`` with everything that is on it."""

    title: str
    status: int
    bytes: int
    words: int


def key_of(number: int) -> str:
    """The key of an item: the same length for all that are measured."""
    return f"https://archive.example/documents/{number:08d}"


def payload_of(number: int) -> dict[str, Any]:
    """What was found out about an item."""
    return {
        "title": f"Report {number:08d} on what the survey found",
        "status": 200,
        "bytes": 10_000_000 + number,
        "words": 1_000_000 + number,
    }


def lines(first: int, count: int) -> Iterator[bytes]:
    """The findings of ``count`` items, as lines of the log."""
    encode = msgspec.json.encode
    for number in range(first, first + count):
        key = key_of(number)
        digest = sha256(key.encode()).hexdigest()[:16]
        at = timestamp(BEGAN + number / 1_000)
        yield encode({**payload_of(number), "_hash": digest, "_key": key, "_at": at}) + b"\n"


def make_job(directory: Path, items: int) -> str:
    """A job with so many items done and a fresh checkpoint. Returns its path."""
    directory.mkdir(parents=True)
    with open(directory / "findings.jsonl", "wb", buffering=1 << 20) as log:
        log.writelines(lines(0, items))
    CheckpointedJob(directory, NAME).close()
    found = len(json.loads((directory / "state.json").read_bytes())["completed"])
    if found != items:
        raise RuntimeError(f"the benchmark's own job has {found} items, not {items}")
    return str(directory)


def copy_job(job: str, directory: Path) -> str:
    """The same job once more. Returns its path."""
    shutil.copytree(job, directory, ignore=shutil.ignore_patterns(".lock", ".holder.json"))
    return str(directory)


def forget_checkpoint(directory: str) -> None:
    """Leave the log alone, as after a crash of somebody who never wrote a checkpoint."""
    for name in os.listdir(directory):
        if name not in ("findings.jsonl", ".lock"):
            os.unlink(f"{directory}/{name}")
