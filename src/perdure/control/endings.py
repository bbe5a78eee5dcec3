"""How attempts end in a run: claimed, failed or interrupted, and what the run says about it.

Job: the one place where the end of work, of whatever kind, becomes an event. Invariants: success is
a claim until it is verified; an attempt that was stopped with the run is an interruption and never
a strike; a claim without proof is a failure that says so; an attempt that somebody else has ended
meanwhile, such as by recalling it, is not ended twice. Never looks at output or exit codes.
"""

from collections.abc import Callable
from typing import Any, Final

from perdure.control.pacing import RetryPacing
from perdure.core import commands as c
from perdure.core.machine import count_states
from perdure.errors import BusyError, CorruptError, HaltError, TransitionError
from perdure.runtime import work
from perdure.runtime.halt import HaltRuntime

Emit = Callable[[dict[str, Any]], None]

detail_chars_max: Final = 1_000
"""Of a failed command's output: the end of it that the journal keeps."""


class Endings:
    """Ends the attempts of one run."""

    def __init__(self, runtime: HaltRuntime, pacing: RetryPacing, emit: Emit) -> None:
        self._runtime = runtime
        self._pacing = pacing
        self._emit = emit

    def claim(
        self, node_id: str, *, detail: str = "", wall_s: float, units_done: bool = False
    ) -> None:
        """It says that it is done: register what it owes and let it be verified (N03)."""
        try:
            work.submit(self._runtime.engine, node_id, check=False, units_done=units_done)
        except HaltError as error:
            if self.ends_the_run(error):
                raise
            signature = f"reported success without proof: {error.message}"
            self.fail(node_id, "transient-agent", signature, detail=detail, wall_s=wall_s)

    def fail(
        self, node_id: str, failure_class: str, signature: str, *, detail: str = "", wall_s: float
    ) -> None:
        """It has failed; the class decides what follows."""
        detail = detail.strip()[-detail_chars_max:]
        if not self._end(c.FailNode(node_id, failure_class, signature, detail)):
            return
        if failure_class == "transient-environment":
            self._pacing.hold_back(self._runtime.state.nodes[node_id])
        self.tell(node_id, "failed", why=signature, wall_s=round(wall_s, 3))

    def interrupt(self, node_id: str, signature: str) -> None:
        """It was stopped with the run: tried again by the next one, and no strike."""
        if self._end(c.FailNode(node_id, "transient-agent", signature, interruption=True)):
            self.tell(node_id, "interrupted")

    def _end(self, command: c.FailNode) -> bool:
        """End the attempt, unless a message that came in with this very commit has done so."""
        try:
            work.fail(self._runtime.engine, command)
        except TransitionError:
            if self._runtime.state.nodes[command.node_id].state == "RUNNING":
                raise
            self.tell_settled(command.node_id)
            return False
        return True

    def tell_settled(self, node_id: str) -> None:
        """Say that somebody else has ended the attempt; what it came to does not count."""
        state = self._runtime.state.nodes[node_id].state
        self._emit({"event": "ended", "node": node_id, "state": state})

    def ends_the_run(self, error: HaltError) -> bool:
        """Whether an error is about the workspace and not about one node (INV-8)."""
        return not self._runtime.engine.is_usable or isinstance(error, BusyError | CorruptError)

    def tell(self, node_id: str, event: str, **more: Any) -> None:
        """Say where a node is now, and how far the task is."""
        state = self._runtime.state
        self._emit(
            {
                "event": event,
                "node": node_id,
                "state": state.nodes[node_id].state,
                "done": count_states(state).get("DONE", 0),
                "total": len(state.nodes),
                **more,
            }
        )
