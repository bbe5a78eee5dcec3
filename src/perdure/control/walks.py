"""Walks of a run over all registered files, for tasks of tier 2 (WK-1).

Job: every so many commits or seconds read every file that counts, beside the loop, and put on
record what was found. Invariants: off the commit path, a thread reads and only the loop's own
thread commits; a verdict on a file that was registered anew or set aside meanwhile is given again
before it counts; short commands never walk. A crash in the middle leaves nothing, and the next run
walks again; so does a run that is stopped.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from perdure.control.endings import Emit
from perdure.core.closing_commands import RecordWalk
from perdure.core.codec import moment
from perdure.core.model import Artifact
from perdure.core.tiers import is_walked
from perdure.errors import RefusedError
from perdure.runtime.engine import Engine
from perdure.runtime.integrity import failures, judge_artifact

close_wait_s: Final = 2.0
"""A thread in the middle of a large file only reads: it is not waited for any longer."""


class _Walk:
    """One walk under way: what it looks at, and what it has found so far."""

    def __init__(self, engine: Engine, because: str, wake: Callable[[], None]) -> None:
        self.because = because
        artifacts = engine.replica.state.artifacts
        self.seen = {n: entry for n, entry in artifacts.items() if _counts(entry)}
        self.found: dict[str, str] = {}
        self.error: BaseException | None = None
        self._engine = engine
        self._wake = wake
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="walk", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            for name, artifact in self.seen.items():
                if self._stopped.is_set():
                    return
                self.found[name] = judge_artifact(self._engine, artifact).text
        except BaseException as error:  # noqa: BLE001  (told by the thread that waits for it)
            self.error = error
        finally:
            if not self._stopped.is_set():
                self._wake()

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(close_wait_s)


def _counts(artifact: Artifact) -> bool:
    return artifact.status != "quarantined"


def _nodes_of(engine: Engine, names: Iterable[str]) -> frozenset[str]:
    artifacts = engine.replica.state.artifacts
    nodes = (artifacts[name].produced_by_node for name in names if name in artifacts)
    return frozenset(node for node in nodes if node)


class Walks:
    """The walks of one run: at most one at a time."""

    def __init__(self, engine: Engine, *, wake: Callable[[], None], emit: Emit) -> None:
        self._engine = engine
        self._wake = wake
        self._emit = emit
        self._walk: _Walk | None = None
        state = engine.replica.state
        known = state.walk.failed if state.walk is not None else ()
        self.suspects = _nodes_of(engine, known)
        """Nodes whose files the newest walk did not find as they were registered."""
        self._again = bool(known)
        """What an earlier run found is looked at again at once: it may have been put right."""

    @property
    def under_way(self) -> bool:
        """Whether one is."""
        return self._walk is not None

    def look(self) -> None:
        """Put on record what has come in, and begin the next walk where one is due."""
        walk = self._walk
        if walk is not None and walk.is_over():
            self._walk = None
            if walk.error is not None:
                raise walk.error
            self._record(walk)
        if self._walk is None:
            because = self._due()
            if because:
                self._again = False
                self._walk = _Walk(self._engine, because, self._wake)

    def _due(self) -> str:
        """Why a walk is due; empty when none is, and where there is nothing to walk."""
        state = self._engine.replica.state
        if not is_walked(state.tier) or not state.artifacts:
            return ""
        if self._again:
            return "the last one found files that had changed"
        last, policies = state.walk, state.policies
        events = state.seq - (last.seq if last is not None else 0)
        if events >= policies.walk_every_commits:  # a commit has one event at the least
            return f"{events} events since the last one" if last else f"{events} events"
        at = moment(last.at if last is not None else state.created)
        since_s = self._engine.world.clock.now() - at if at is not None else -1.0
        if 0 <= since_s < policies.walk_every_s:
            return ""
        # A clock that was put back must not put the walk off.
        return f"{since_s:.0f} s since the last one" if since_s >= 0 else "the clock was put back"

    def _record(self, walk: _Walk) -> None:
        state = self._engine.replica.state
        found: dict[str, str] = {}
        for name, text in failures(walk.found).items():
            now = state.artifacts.get(name)
            if now is None or not _counts(now):
                continue
            changed = now != walk.seen[name]
            found[name] = judge_artifact(self._engine, now).text if changed else text
        failed = failures(found)
        command = RecordWalk(len(walk.found), failed, walk.because)
        try:
            committed = self._engine.execute(command)
        except RefusedError:
            if not self._engine.is_usable:
                raise
            return  # a message has archived or closed the task meanwhile
        self.suspects = _nodes_of(self._engine, failed)
        self._emit(
            {
                "event": "walked",
                "ref": committed.ref,
                "checked": len(walk.found),
                "failed": [f"{name} {why}" for name, why in failed.items()],
                "because": walk.because,
            }
        )

    def close(self) -> None:
        """Stop the walk under way; what it has found so far is forgotten."""
        if self._walk is not None:
            self._walk.stop()
            self._walk = None
