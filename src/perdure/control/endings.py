"""How attempts end in a run: claimed, failed, blocked or interrupted, and what the run says of it.

Job: the one place where the end of work, of whatever kind, becomes an event. Invariants: success is
a claim until it is verified; an attempt that was stopped with the run is an interruption and never
a strike; a claim without proof is a silent death that says so (PD-J1); what has spent more than its
budget has failed, whatever it claims; an attempt that somebody else has ended meanwhile, such as by
recalling it, is not ended twice. Never looks at output or exit codes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.executor_port import Question
from perdure.control.pacing import RetryPacing
from perdure.core import commands as c
from perdure.core.budget import budget_of, over_budget
from perdure.core.dispatching import Cause, Death, DeathMode, Usage
from perdure.core.failure_text import last_said
from perdure.core.late import LateModule
from perdure.core.machine import count_states
from perdure.errors import BusyError, CorruptError, HaltError, TransitionError
from perdure.runtime import work
from perdure.runtime.evidence import sync_ahead
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.scope import has_content, products_below

# Only the runs of procedures ask for others.
_questions: Final = LateModule("perdure.control.nested_questions")

Emit = Callable[[dict[str, Any]], None]

detail_chars_max: Final = 1_000
"""Of a failed command's output: the end of it that the journal keeps."""


class Claim(NamedTuple):
    """An attempt that says it is done."""

    node_id: str
    detail: str
    """What it printed last."""
    wall_s: float
    usage: Usage | None = None


class Endings:
    """Ends the attempts of one run."""

    def __init__(self, runtime: HaltRuntime, pacing: RetryPacing, emit: Emit) -> None:
        self._runtime = runtime
        self._pacing = pacing
        self._emit = emit
        self._counted = (-1, 0)
        """The last event when it was counted what is done, and how much that was."""

    def claim_all(self, claims: Sequence[Claim]) -> set[str]:
        """Those of the claims that landed; where all of them look whole, in one commit."""
        engine = self._runtime.engine
        if len(claims) > 1 and all(self._looks_whole(claim) for claim in claims):
            nodes = [engine.replica.state.nodes[claim.node_id] for claim in claims]
            owed = [path for node in nodes for path in work.unregistered_outputs(engine, node)]
            try:
                synced = sync_ahead(engine, owed)
                with engine.batch():
                    for claim in claims:
                        payload = _usage_payload(claim.usage)
                        work.submit(
                            engine, claim.node_id, check=False, payload=payload, synced=synced
                        )
                return {claim.node_id for claim in claims}
            except HaltError as error:  # nothing of it was committed
                if self.ends_the_run(error):
                    raise
        return {
            claim.node_id
            for claim in claims
            if self.claim(
                claim.node_id, detail=claim.detail, wall_s=claim.wall_s, usage=claim.usage
            )
        }

    def _looks_whole(self, claim: Claim) -> bool:
        """Whether what it owes is there at a glance: registering it tells for certain."""
        engine = self._runtime.engine
        node = engine.replica.state.nodes[claim.node_id]
        if over_budget(budget_of(node), claim.usage):
            return False
        outputs = node.spec.outputs
        if outputs is None:
            return bool(products_below(engine, f"artifacts/{claim.node_id}"))
        root, stat = engine.layout.root, engine.disk.stat
        return all(stat(f"{root}/{path}") is not None for path in outputs)

    def claim(
        self,
        node_id: str,
        *,
        detail: str = "",
        wall_s: float,
        units_done: bool = False,
        usage: Usage | None = None,
    ) -> bool:
        """It says that it is done: register what it owes and let it be verified (N03).

        Returns whether it landed, as far as that can be said before it is verified.
        """
        engine = self._runtime.engine
        death: Death | None
        spent = over_budget(budget_of(engine.replica.state.nodes[node_id]), usage)
        if spent:
            death = self.death_of(node_id, "failed", spent)
            self.fail(
                node_id, "transient-agent", spent, detail=detail, wall_s=wall_s,
                death=death, usage=usage,
            )  # fmt: skip
            return False
        payload = _usage_payload(usage)
        try:
            work.submit(engine, node_id, check=False, units_done=units_done, payload=payload)
        except HaltError as error:
            if self.ends_the_run(error):
                raise
            signature = f"reported success without proof: {error.message}"
            death = None if units_done else self.death_of(node_id, "silent", signature)
            self.fail(
                node_id, "transient-agent", signature, detail=detail, wall_s=wall_s,
                death=death, usage=usage,
            )  # fmt: skip
            return False
        return True

    def fail(
        self,
        node_id: str,
        failure_class: str,
        signature: str,
        *,
        detail: str = "",
        wall_s: float,
        death: Death | None = None,
        usage: Usage | None = None,
        nothing_ran: bool = False,
        retry_after_s: float | None = None,
        log: str = "",
    ) -> None:
        """It has failed; the class decides what follows.

        ``nothing_ran``: for certain. ``retry_after_s``: how long the wall stands that it ran into,
        as far as that says so. ``log`` is its output, relative to the workspace.
        """
        detail = detail.strip()[-detail_chars_max:]
        command = c.FailNode(
            node_id, failure_class, signature, detail, death=death, usage=usage,
            nothing_ran=nothing_ran,
        )  # fmt: skip
        if not self._end(command):
            return
        told: dict[str, Any] = {"why": signature, "wall_s": round(wall_s, 3)}
        if failure_class == "transient-environment":
            node = self._runtime.state.nodes[node_id]
            self._pacing.hold_back(node, at_least_s=retry_after_s or 0.0)
            if retry_after_s and node.state == "RETRYABLE":
                told["retry_after_s"] = round(retry_after_s, 3)
        if (said := last_said(detail)) and said not in signature:
            told["said"] = said
        if log:
            told["log"] = log
        if death is not None:
            told["death"] = msgspec.to_builtins(death)
        self.tell(node_id, "failed", **told)

    def death_of(
        self, node_id: str, mode: DeathMode, observation: str, *, cause: Cause = ""
    ) -> Death:
        """The death of a plain node's worker, as the disk has it: first when nothing is there."""
        engine = self._runtime.engine
        root = engine.layout.root
        products = products_below(engine, f"artifacts/{node_id}")
        nothing = not any(has_content(engine.disk, f"{root}/{path}") for path in products)
        seen = f"{observation}; {'nothing' if nothing else 'something'} on disk"
        return Death(mode, nothing, cause, seen[:200])

    def interrupt(self, node_id: str, signature: str) -> None:
        """It was stopped with the run: tried again by the next one, and no strike."""
        if self._end(c.FailNode(node_id, "transient-agent", signature, interruption=True)):
            self.tell(node_id, "interrupted")

    def block(self, node_id: str, questions: tuple[Question, ...]) -> None:
        """It waits for answers: asked here in its place, and BLOCKED by the same commit (N05)."""
        try:
            _questions.ask_up(self._runtime.engine, node_id, questions)
        except TransitionError:
            if self._runtime.state.nodes[node_id].state == "RUNNING":
                raise
            self.tell_settled(node_id)
            return
        self.tell(node_id, "blocked", questions=[question.ref for question in questions])

    def ask_gaps(self, node_id: str, gaps: tuple[Question, ...]) -> None:
        """It is done but for these; what is to become of them is a person's to say."""
        _questions.ask_gaps(self._runtime.engine, node_id, gaps)

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
        if self._counted[0] != state.seq:  # what one commit settles is told one by one
            self._counted = state.seq, count_states(state).get("DONE", 0)
        self._emit(
            {
                "event": event,
                "node": node_id,
                "state": state.nodes[node_id].state,
                "done": self._counted[1],
                "total": len(state.nodes),
                **more,
            }
        )


def _usage_payload(usage: Usage | None) -> dict[str, Any]:
    return {"usage": msgspec.to_builtins(usage)} if usage is not None else {}
