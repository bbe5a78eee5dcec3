"""A project with a sharded batch node, whose workers do as they are told."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.conformance.batches import BatchProject

WORKER = Path(__file__).parents[1] / "integration" / "standins" / "shard_worker.py"


def task(*keys: str, more: str = "", shard: int = 3) -> str:
    """A task file with the batch node ``B`` over these units."""
    listed = ", ".join(json.dumps(key) for key in keys)
    lines = "".join(f"      {line}\n" for line in more.splitlines() if line)
    return (
        "task_id: t\nnodes:\n  - id: B\n    map:\n"
        f"      list: [{listed}]\n"
        f"      run: [{json.dumps(sys.executable)}, {json.dumps(str(WORKER))}]\n"
        f"      shard: {shard}\n{lines}"
    )


class ShardProject(BatchProject):
    """``B`` is the batch node looked at."""

    def behave(self, **behaviours: list[str]) -> None:
        """What workers do with a unit, by how often it was tried."""
        text = json.dumps(behaviours)
        (self.directory / "behaviour.json").write_text(text, encoding="utf-8")

    def begun(self) -> list[str]:
        """The units as workers began them, in all runs."""
        path = Path(f"{self.workspace}/tmp/ran")
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def ops(self, op: str) -> list[dict[str, Any]]:
        """The payloads of the events with this ``op``, with the entity's id as ``id``."""
        return [
            {**event.payload, "id": event.entity.id}
            for event in self.journal()
            if event.payload.get("op") == op
        ]

    def ends(self) -> list[str]:
        return [str(payload["end"]) for payload in self.ops("slot_closed")]

    def slot_contracts(self) -> list[dict[str, Any]]:
        """The contracts of the slots, in the order in which they were opened."""
        found = []
        for payload in self.ops("slot"):
            path = Path(f"{self.workspace}/contracts/{payload['id']}.json")
            found.append(json.loads(path.read_bytes()))
        return found

    def units_sent(self) -> list[list[str]]:
        return [
            [unit["key"] for unit in contract["units"]["keys"]]
            for contract in self.slot_contracts()
        ]

    def notices(self) -> list[str]:
        return [str(event["why"]) for event in self.events if event["event"] == "notice"]

    def shard_dir(self, invocation: str) -> Path:
        return Path(f"{self.workspace}/artifacts/B/shards/{invocation}")
