"""When a node that failed in a troubled environment is tried again.

Job: hold such nodes back, longer each time, and probe before the next try (RT-1). Invariants: a
retry never goes blindly into a dead window; holding back writes nothing and is forgotten with the
run, so it delays work and cannot lose it.
"""

from typing import Final

from perdure.core.model import Node
from perdure.errors import StorageError
from perdure.runtime.engine import Engine

backoff_first_s: Final = 1.0
backoff_most_s: Final = 60.0
probe_bytes: Final = 64 << 10


class RetryPacing:
    """The nodes of one run that are held back, and until when."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clock = engine.world.clock
        self._not_before: dict[str, float] = {}
        self._troubled: dict[str, int] = {}
        """Node to how many probes in a row have failed for it."""

    def hold_back(self, node: Node, *, at_least_s: float = 0.0) -> None:
        """Wait before the next try: twice as long with each strike of its method, and with each
        probe that has failed since; but as long as its wall says that it stands, at least."""
        times = max(0, node.method_strikes - 1) + self._troubled.get(node.node_id, 0)
        pause_s = min(backoff_first_s * 2.0 ** min(times, 30), backoff_most_s)
        self._not_before[node.node_id] = self._clock.monotonic() + max(pause_s, at_least_s)

    def release(self, node_id: str) -> None:
        """The node is done: nothing holds it any more."""
        self._not_before.pop(node_id, None)

    def holds(self, node_id: str) -> bool:
        """Whether a retry of this node is paced."""
        return node_id in self._not_before

    def is_due(self, node_id: str) -> bool:
        """Whether the node may be tried now, as far as pacing goes."""
        return self._not_before.get(node_id, 0.0) <= self._clock.monotonic()

    def due_in_s(self) -> float:
        """Seconds until the next held node is due; infinite when none is."""
        now = self._clock.monotonic()
        waits = [moment - now for moment in self._not_before.values() if moment > now]
        return min(waits, default=float("inf"))

    def probe(self, node: Node) -> str:
        """One cheap look at the environment before a paced retry; empty when it is well.

        What fails is held back again. The probe is what every command needs: that a file can be
        written durably.
        """
        if not self.holds(node.node_id):
            return ""
        trouble = probe_disk(self._engine, node.node_id)
        if trouble:
            self._troubled[node.node_id] = self._troubled.get(node.node_id, 0) + 1
            self.hold_back(node)
        else:
            self._troubled.pop(node.node_id, None)
        return trouble


def probe_disk(engine: Engine, name: str) -> str:
    """Whether a file can be written durably, which everything needs; why not, else empty."""
    disk, layout = engine.disk, engine.layout
    path = f"{layout.tmp}/probe-{name}"
    try:
        disk.make_dirs(layout.tmp)
        disk.replace(path, b"\0" * probe_bytes, durable=True)
        disk.unlink(path, durable=False)
    except StorageError as error:
        return error.message
    return ""
