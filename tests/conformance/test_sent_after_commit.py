"""PD-C3 and FSN-2: nobody is sent whose contract is not whole on disk and on record.

Whoever starts a child is looked over the shoulder: at that moment the journal has to have the event
that cites its contract, and the contract has to be what that event says.
"""

import json
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.conformance.shard_project import WORKER, ShardProject

from perdure.control import audits, shard_worker, slots
from perdure.control.executor_port import Order

AUDITOR = WORKER.parent / "auditor.py"


def task() -> str:
    """Two plain nodes that start together, a batch node with shards, an audit; YAML reads JSON."""
    plain = {"run": 'echo made > "$PERDURE_SCOPE/out.txt"'}
    audit = {"audit": {"rubric": ["It is so"], "run": [sys.executable, str(AUDITOR), "pass"]}}
    batch = {"list": ["u1", "u2"], "run": [sys.executable, str(WORKER)], "shard": 1}
    nodes = [
        {"id": "one", **plain, "accept": [audit]},
        {"id": "two", **plain},
        {"id": "B", "map": batch},
    ]
    return json.dumps({"task_id": "t", "nodes": nodes})


class Watch:
    """What the disk had when each child was about to be started."""

    def __init__(self, workspace: str) -> None:
        self.root = Path(workspace)
        self.started: list[str] = []
        self.unrecorded: list[str] = []

    def over(self, module: ModuleType, patch: pytest.MonkeyPatch) -> None:
        start: Callable[..., Any] = module.start_order

        def watched(engine: Any, executor: Any, order: Order, **more: Any) -> Any:
            self.started.append(module.__name__.rpartition(".")[2])
            if not self.is_recorded(order.invocation):
                self.unrecorded.append(f"{module.__name__}: {order.invocation}")
            return start(engine, executor, order, **more)

        patch.setattr(module, "start_order", watched)

    def is_recorded(self, invocation: str) -> bool:
        name = f"contracts/{invocation}.json"
        digest = sha256((self.root / name).read_bytes()).hexdigest()
        lines = (self.root / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        return any(name in line and digest in line for line in lines)


def test_pd_c3_every_child_is_on_record_with_its_contract_before_it_starts(
    workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = ShardProject(workspace)
    watch = Watch(project.workspace)
    for module in (slots, shard_worker, audits):
        watch.over(module, monkeypatch)
    assert project.run(task(), jobs=4)["outcome"] == "finished", project.events
    assert sorted(watch.started) == ["audits", "shard_worker", "shard_worker", "slots", "slots"]
    assert watch.unrecorded == []
