"""Fetch every page of a list with threads of this process: the library instead of a command.

    python harvest.py JOB URLS [--timeout SECONDS] [--attempts N] [--wait SECONDS] [--workers N]

Kill it and run the same line again. Exit code 1 when pages remain that could not be fetched.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from fetch import fetch

from perdure import CheckpointedJob


def main() -> int:
    """Fetch what has no finding yet."""
    parser = argparse.ArgumentParser(description="Fetch every page of a list.")
    parser.add_argument("job", type=Path)
    parser.add_argument("urls", type=Path, help="a file with an address a line")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--wait", type=float, default=1.0, help="before the first retry, seconds")
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    urls = options.urls.read_text(encoding="utf-8").split()
    with CheckpointedJob(options.job, "pages") as job:
        job.map(
            partial(fetch, timeout_s=options.timeout),
            urls,
            workers=options.workers,
            max_attempts=options.attempts,
            retry_wait_s=options.wait,
        )
        job.finish()
    failed = job.state["errors"]
    print(f"{job.processed} pages fetched, {len(failed)} not")
    for entry in failed:
        print(f"  {entry['key']}: {entry['error']} ({entry['attempts']} attempts)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
