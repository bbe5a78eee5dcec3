"""The verdicts of one run: what has been claimed is checked, audited where that is asked, settled.

Job: start the check of each claim, commit what it comes to, send an auditor where the verdict waits
for one. Invariants: a claim is checked once for what it was; a verdict on an attempt that somebody
has settled meanwhile does not count; after a signal nothing is committed, for scripts were stopped.
"""

import contextlib
from collections.abc import Callable, Collection

from perdure.control.audits import AuditSlots
from perdure.control.claims import ClaimChecks
from perdure.control.endings import Emit, Endings
from perdure.control.pacing import RetryPacing
from perdure.core.commands import Verdict
from perdure.core.machine import open_question
from perdure.core.model import Node, State
from perdure.errors import TransitionError
from perdure.runtime import work
from perdure.runtime.engine import Engine


class Verdicts:
    """The claims of one run that are being judged."""

    def __init__(
        self,
        engine: Engine,
        endings: Endings,
        pacing: RetryPacing,
        *,
        jobs: int,
        wake: Callable[[], None],
        emit: Emit,
    ) -> None:
        self._engine = engine
        self._endings = endings
        self._pacing = pacing
        self._claims = ClaimChecks(engine, jobs=jobs, wake=wake, emit=emit)
        self.audits = AuditSlots(engine, emit)

    @property
    def waiting(self) -> bool:
        """Whether anything is being checked or audited."""
        return self._claims.waiting or len(self.audits) > 0

    def start_due(self, unstoppable: Collection[str]) -> None:
        """Check what has been claimed, also claims that a former run left behind.

        Not what waits for an answer or an auditor: then it is verified again by itself.
        """
        state = self._state
        for node in state.nodes.values():
            if (
                node.state == "VERIFYING"
                and node.node_id not in unstoppable
                and not self.audits.waits(node)
                and not open_question(state, node.node_id)
            ):
                self._claims.start(node)

    def collect(self, running: Collection[str], *, counts: bool) -> None:
        """Commit the verdicts that have come in; with ``counts`` false they mean nothing.

        ``running`` names the invocations of commands that are at work, which are left alone.
        """
        found = [
            (judged, verdict)
            for judged, verdict in self._claims.collect(running)
            if counts and not self._is_settled(judged)
        ]
        passed = [(judged, verdict) for judged, verdict in found if verdict.passed]
        with self._engine.batch() if passed else contextlib.nullcontext():  # one commit for all
            taken = [judged for judged, verdict in passed if self._commit(judged, verdict)]
        for judged, verdict in passed:
            if judged in taken:
                self._tell_passed(judged, verdict)
        for judged, verdict in found:
            if not verdict.passed and self._commit(judged, verdict):
                self._endings.tell(judged.node_id, "failed", why=verdict.diagnosis)

    def _commit(self, judged: Node, verdict: Verdict) -> bool:
        """Whether the verdict counts; it does not when a message has settled the node meanwhile."""
        try:
            work.commit_verdict(self._engine, judged, verdict)
        except TransitionError:
            # By a message that came in with this very commit: a move, or a question.
            if self._is_settled(judged) or open_question(self._state, judged.node_id):
                return False
            raise
        return True

    def _tell_passed(self, judged: Node, verdict: Verdict) -> None:
        if self._state.nodes[judged.node_id].state == "DONE":  # else a gate or an audit comes first
            self._pacing.release(judged.node_id)
            self._endings.tell(judged.node_id, "done", checks=len(verdict.checks))
        else:
            self.audits.want(judged, verdict)

    def _is_settled(self, judged: Node) -> bool:
        """Whether somebody moved the node while its claim was checked: then their word stands."""
        return self._state.nodes[judged.node_id].state_ref != judged.state_ref

    @property
    def _state(self) -> State:
        return self._engine.replica.state

    def stop(self, reason: str, running: Collection[str], *, grace_s: float) -> None:
        """Stop scripts and auditors; what they would say means nothing any more."""
        self.audits.stop(reason, grace_s=grace_s)
        self._claims.stop_scripts(running, grace_s=grace_s)

    def close(self) -> None:
        """Wait for the checks under way, start none of those that wait."""
        self._claims.close()
