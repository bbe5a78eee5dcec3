"""Checking claims of completion beside the run loop.

Job: run the verification of each claimed node in a thread of its own, and stop what its scripts
leave running. Invariants: a check reads and never commits; it judges a copy of the node as it was
claimed, so that its verdict can be told from one on a later attempt; no script outlives its check
unseen.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import msgspec

from perdure.core.commands import Verdict
from perdure.core.model import Node
from perdure.errors import EvidenceError, PathError
from perdure.runtime.engine import Engine
from perdure.runtime.evidence import verify_node
from perdure.runtime.orphans import find_orphans, stop_orphans

script_grace_s: Final = 5.0
"""Between SIGTERM and SIGKILL for what a finished check script has left running."""


class ClaimChecks:
    """The verifications under way in one run."""

    def __init__(
        self,
        engine: Engine,
        *,
        jobs: int,
        wake: Callable[[], None],
        emit: Callable[[dict[str, Any]], None],
    ) -> None:
        self._engine = engine
        self._wake = wake
        self._emit = emit
        self._checks: dict[str, tuple[Node, Future[Verdict]]] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, jobs), thread_name_prefix="verify")

    @property
    def waiting(self) -> bool:
        """Whether any verdict is still to come."""
        return bool(self._checks)

    def start(self, node: Node) -> None:
        """Verify the node's claim, unless that is under way already."""
        if node.node_id in self._checks:
            return
        judged = msgspec.structs.replace(node)  # the original may change meanwhile
        future = self._pool.submit(verify_node, self._engine, judged)
        future.add_done_callback(lambda _: self._wake())
        self._checks[node.node_id] = judged, future

    def collect(self, running: Collection[str]) -> Iterator[tuple[Node, Verdict]]:
        """The verdicts that have come in, each with the node as it was claimed.

        ``running`` names the invocations of commands that are at work, which are left alone.
        """
        for node_id, (judged, future) in list(self._checks.items()):
            if future.done():
                del self._checks[node_id]
                self._stop_scripts([judged], running, script_grace_s)
                yield judged, _verdict_of(future)

    def stop_scripts(self, running: Collection[str], *, grace_s: float) -> None:
        """Stop the scripts of all checks under way; their verdicts mean nothing then."""
        self._stop_scripts([judged for judged, _ in self._checks.values()], running, grace_s)

    def _stop_scripts(self, judged: list[Node], running: Collection[str], grace_s: float) -> None:
        wanted = {
            node.invocation: node.node_id
            for node in judged
            if node.invocation
            and any(item.check == "script" for item in node.spec.acceptance_criteria)
        }
        if not wanted:
            return
        engine = self._engine
        found = find_orphans(wanted, engine.layout.runs, disk=engine.disk, running=running)
        mine = [orphan for orphan in found if orphan.invocation in wanted]
        if mine:
            stop_orphans(mine, clock=engine.world.clock, grace_s=grace_s)
            named = [[orphan.pid, orphan.name] for orphan in mine]
            self._emit({"event": "leftovers", "node": mine[0].node, "processes": named})

    def close(self) -> None:
        """Wait for the checks under way, start none of those that wait."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _verdict_of(future: "Future[Verdict]") -> Verdict:
    """The verdict; a claim that could not even be checked has failed."""
    try:
        return future.result()
    except (EvidenceError, PathError) as error:
        item = {
            "check": "exists",
            "params": {},
            "level": "V1",
            "passed": False,
            "method": "The registered outputs of the node were looked up.",
            "inputs": [],
            "detail": error.message,
        }
        return Verdict(False, "verifier:v1", "V1", (item,), {}, error.message)
