"""The program that ``test_job_map`` kills: works through the items of a job.

``python -m tests.integration.job_map_child JOB threads|processes WORKERS ITEMS PERMITS``: every
item takes one byte from the pipe PERMITS before it is done, so that whoever fills the pipe says how
far the program gets, and can kill it while items are at work.
"""

import os
import sys
from functools import cache, partial
from typing import Any

from perdure.jobs.job import CheckpointedJob

NAME = "numbers"


def key_of(number: int) -> str:
    return f"item/{number:05d}"


@cache
def pipe_at(path: str) -> int:
    """Opened once a process; for writing as well, so that it never comes to an end."""
    return os.open(path, os.O_RDWR)


def work(permits: str, number: int) -> dict[str, Any]:
    os.read(pipe_at(permits), 1)
    return {"number": number, "pid": os.getpid()}


def main(directory: str, how: str, workers: str, items: str, permits: str) -> None:
    with CheckpointedJob(directory, NAME) as job:
        report = job.map(
            partial(work, permits),
            iter(range(int(items))),
            key=key_of,
            workers=int(workers),
            processes=how == "processes",
        )
        job.finish()
    print(report.processed, report.skipped, report.duplicates, report.failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
