"""A project with a batch node, for tests that run it: its units, its ledger, what was started."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.test_run import Hook, Project, as_read

from perdure.runtime.world import World, real_world
from perdure.service.runs import read_task_file, run_task

RAN = 'echo "$PERDURE_NODE $PERDURE_KEY" >> "$PERDURE_TASK_DIR/ran"; '


class BatchProject(Project):
    """A task file, its workspace, and the runs over it; ``B`` is the batch node looked at."""

    def run(
        self,
        text: str,
        *,
        on: Hook | None = None,
        jobs: int = 2,
        world: World | None = None,
    ) -> dict[str, Any]:
        path = self.directory / "task.yaml"
        path.write_text(text, encoding="utf-8")
        self.events = []
        interrupts: list[Any] = []

        def emit(event: dict[str, Any]) -> None:
            self.events.append(as_read(event))
            if on is not None and interrupts:
                on(event, interrupts[0])

        report = run_task(
            self.workspace,
            read_task_file(str(path), real_world()),
            jobs=jobs,
            actor="coordinator:test",
            world=world or real_world(),
            emit=emit,
            on_loop=interrupts.append,
        )
        return as_read(report)

    def lines(self, name: str, node: str = "B") -> list[dict[str, Any]]:
        """A file of lines in the node's scope."""
        path = Path(f"{self.workspace}/artifacts/{node}/{name}")
        return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]

    def done(self, node: str = "B") -> list[str]:
        """The keys of the findings, in order."""
        return [line["_key"] for line in self.lines("findings.jsonl", node)]

    def ledger(self, node: str = "B") -> list[tuple[str, str]]:
        return [(line["unit_id"], line["status"]) for line in self.lines("ledger.jsonl", node)]

    def ran(self, node: str = "B") -> Counter[str]:
        """How often the command of each unit was started, in all runs."""
        path = self.directory / "ran"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        pairs = [line.split(" ", 1) for line in text.splitlines()]
        return Counter(key for name, key in pairs if name == node)

    def contract(self, node: str = "B") -> dict[str, Any]:
        """The newest contract of the node."""
        path = f"{self.workspace}/contracts/{self.node(node)['invocation']}.json"
        found: dict[str, Any] = json.loads(Path(path).read_bytes())
        return found

    def aside(self) -> list[str]:
        top = Path(f"{self.workspace}/tmp/recovered")
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
