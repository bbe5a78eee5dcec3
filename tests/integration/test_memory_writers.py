"""Several processes that add to one memory store at once."""

import os
import subprocess
import sys
from pathlib import Path

from perdure.core.memory import read_entries
from perdure.core.memory_index import judge_index

WRITER = """
import sys
from perdure.service.memory import Memory
from perdure.service.memory_reading import Place

kept = Memory(Place(sys.argv[1], {"PERDURE_MEMORY": sys.argv[2]}, "executor:" + sys.argv[3]))
for number in range(12):
    kept.add(f"{sys.argv[3] * 9} {number} {sys.argv[3] * 9}", kind="env", distinct="counted")
"""


def test_writers_at_once_lose_nothing_and_no_id_comes_twice(tmp_path: Path) -> None:
    (tmp_path / ".perdure").mkdir()
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(tmp_path / "user")]
    writers = [subprocess.Popen([*command, name], env=dict(os.environ)) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    directory = tmp_path / ".perdure" / "memory"
    reading = read_entries((directory / "entries.jsonl").read_bytes())
    assert (reading.damage, reading.torn) == (None, b"")
    assert [entry.number for entry in reading.entries] == list(range(1, 49))
    assert {entry.by for entry in reading.entries} == {f"executor:{name}" for name in "abcd"}
    assert judge_index((directory / "MEM-INDEX.md").read_bytes(), reading).state == "whole"
