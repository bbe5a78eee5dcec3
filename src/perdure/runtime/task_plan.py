"""What the plan of a task is changed by: its goal, its policies, nodes that become others.

Job: these calls for a program. Invariants: nothing is taken back, everything is added: what is
given up keeps its files and its history, and what takes its place points back to it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.core import commands as c
from perdure.core.events import Event
from perdure.core.late import LateModule
from perdure.core.lookup import node_of
from perdure.runtime.batching import Committed
from perdure.runtime.task_words import TaskWords

_goals = LateModule("perdure.runtime.goals")
_parts = LateModule("perdure.runtime.parts")


class TaskPlan(TaskWords):
    """The planning part of :class:`~perdure.runtime.halt.HaltRuntime`."""

    def goal(
        self,
        text: str,
        reason: str,
        *,
        reverify: Iterable[str] = (),
        supersede: Iterable[str] = (),
        acceptance: Iterable[str] | None = None,
        by: str = "",
        op: str | None = None,
    ) -> Event:
        """Change the goal, which only the sponsor may (GE-1). Returns the GOAL_AMENDED event.

        ``by`` is the sponsor, as ``sponsor:NAME``; else the actor of this object. Open nodes are
        told and what is at work is recalled; ``reverify`` names DONE nodes to verify again now, in
        this call, and ``supersede`` nodes that the new goal leaves out.
        """
        with self.engine.acting_as(by or self.engine.actor):
            committed: Committed = _goals.change_goal(
                self.engine,
                text,
                reason,
                reverify=reverify,
                superseded=supersede,
                acceptance=acceptance,
                op=op,
            )
        return self._event(committed, "GOAL_AMENDED")

    def policy(
        self, name: str, value: float, reason: str, *, window: str = "", op: str | None = None
    ) -> Event:
        """Override a reference policy. Returns the DECISION event.

        ``window`` says over which time the value was measured.
        """
        command = c.ChangePolicy(name, value, reason, window)
        return self._event(self.engine.execute(command, op=op), "DECISION")

    def split(
        self,
        node_id: str,
        parts: Mapping[str, str | Mapping[str, Any]],
        reason: str,
        *,
        chain: bool = False,
        op: str | None = None,
    ) -> Committed:
        """Replan a node into several that take its place (N12, N13, N14), in one commit.

        ``parts`` is their ids with a title each, or with the fields of ``add_node``; what they do
        not say they have from the node. With ``chain`` each waits for the one before it. Refused
        while an attempt is under way.
        """
        with self.engine.writing():
            node = node_of(self.state, node_id)
            command = c.SplitNode(node_id, _parts.parts_of(node, parts, chain=chain), reason)
            return self.engine.execute(command, op=op)

    def quarantine(
        self, node_id: str, reason: str, *, replacement: str = "", op: str | None = None
    ) -> Committed:
        """Give a node up as it was specified (N13, N08). Whoever waits for it waits for the
        replacement from now on, if there is one."""
        command = c.QuarantineNode(node_id, reason, replacement)
        return self.engine.execute(command, op=op)
