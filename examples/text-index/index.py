"""Index every text of a Python installation: one finding a text, and a file with its words.

    python index.py JOB [--root DIR] [--workers N]

JOB is a directory, made when it is not there. Kill this wherever you like and run the same line
again: what is in the index stays, and the rest is done. Exit code 1 when a text could not be read.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from texts import Text, describe, find_texts, words_of

from perdure import CheckpointedJob


class Indexer:
    """Does one text at a time, in any thread."""

    def __init__(self, job: CheckpointedJob) -> None:
        self.job = job

    def index(self, text: Text) -> dict[str, Any]:
        """The finding of a text. Its side file comes first: a finding says that all is done."""
        data = text.path.read_bytes()
        counts = words_of(data).most_common()
        side_file = self.job.write_artifact(
            text.key, json.dumps(dict(counts), ensure_ascii=False).encode(), ".json"
        )
        return {**describe(data), "words_in": os.path.relpath(side_file, self.job.directory)}


def main() -> int:
    """Index what is not in the index yet."""
    parser = argparse.ArgumentParser(description="Index the texts of a Python installation.")
    parser.add_argument("job", type=Path, help="directory of the index")
    parser.add_argument("--root", type=Path, help="index the texts below it instead")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    with CheckpointedJob(options.job, "texts") as job:
        print(f"{job.processed} texts are in the index", flush=True)
        texts = find_texts(options.root)
        job.map(Indexer(job).index, texts, key=lambda text: text.key, workers=options.workers)
        job.finish()
    failed = job.state["errors"]
    for entry in failed:
        print(f"{entry['key']}: {entry['error']} ({entry['attempts']} attempts)", file=sys.stderr)
    print(f"{job.processed} texts are in the index, {len(failed)} could not be read")
    print(f"what became of it: {job.summary_path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
