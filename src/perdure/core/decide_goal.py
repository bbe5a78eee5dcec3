"""Decisions about what is wanted: the goal (GE-1 to GE-3) and the reference policies.

Invariants: only the sponsor changes the goal (``authority``), and the event that does it lists all
that it touches; work that was verified stays DONE as long as it holds (GE-2); what is open learns
of the new goal before any of it starts again (FR-2); history stays as it was.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from perdure.core import commands as c
from perdure.core.asking import ask_draft, free_id
from perdure.core.decide_node import add_draft, decide_cancel, free_fix_id, reopening
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.lookup import near, node_of
from perdure.core.model import (
    AT_WORK_STATES,
    CLOSED_STATES,
    DEAD_STATES,
    Node,
    Policies,
    Spec,
    title_chars_max,
)
from perdure.core.naming import check_text
from perdure.core.policies import MAY_BE_ZERO
from perdure.core.recall import recall
from perdure.errors import RefusedError, TransitionError, UsageError

DIRECTIVE: Final = "The goal of the task is now: "
"""How the directive begins that a change of the goal leaves at open nodes; there is one at most."""

goal_chars_max: Final = 8_000
"""Every open node is told the whole of it."""
policy_value_max: Final = 1e9


class _Change:
    """One change of the goal on its way to a commit."""

    def __init__(self, replica: Replica, command: c.AmendGoal, context: c.Context) -> None:
        self.replica = replica
        self.state = replica.state
        self.command = command
        self.context = context
        self.drafts: list[Draft] = list(reopening(replica.state)) if command.failed else []
        self.moves: list[c.FileMove] = []
        self.ref = f"J-{replica.state.seq + len(self.drafts) + 1}"
        """The GOAL_AMENDED itself, which everything else cites."""
        self.fixes: dict[str, str] = {}
        """DONE node that does not hold any more to the new node that corrects it."""


def decide_goal(replica: Replica, command: c.AmendGoal, context: c.Context) -> c.Decision:
    """GOAL_AMENDED with its blast radius, and in the same commit what follows from it.

    Every open node is told, after the attempt at it was recalled; those that the new goal leaves
    out are cancelled by decision; what was verified again and did not hold gets a corrective node
    that open work waits for. Too many changes within a window are put to the sponsor (GE-3).
    """
    check_text(command.text, "goal")
    if len(command.text) > goal_chars_max:
        raise UsageError(
            f"a goal has at most {goal_chars_max} characters, this has {len(command.text)}.",
            code="too_large",
            rule="GE-1",
            fix="Say it in a few sentences, and name a file for the rest.",
        )
    check_text(command.reason, "reason")
    change = _Change(replica, command, context)
    _check_named(change)
    open_nodes = [
        node
        for node in replica.state.nodes.values()
        if node.state not in CLOSED_STATES and node.node_id not in command.superseded
    ]
    change.drafts.append(_amended(change, open_nodes))
    if command.superseded:
        given_up = decide_cancel(
            replica, c.CancelNodes(command.superseded, _cause(change)), context
        )
        change.drafts += given_up.drafts
        change.moves += given_up.moves
    for node_id, why in command.failed.items():
        _correct(change, replica.state.nodes[node_id], why)
    for node in open_nodes:
        _tell(change, node)
    change.drafts += _too_many(change)
    return c.Decision(tuple(change.drafts), tuple(change.moves))


def _cause(change: _Change) -> str:
    return f"the goal has changed ({change.ref}): {change.command.reason}"


def _check_named(change: _Change) -> None:
    """Raise for nodes that are named and do not fit, and for a change that changes nothing."""
    state, command = change.state, change.command
    for node_id in (*command.reverify, *command.failed):
        node = node_of(state, node_id)
        if node.state != "DONE":
            raise TransitionError(
                f"{node_id} is {node.state}: only what is DONE is verified again.",
                code="guard_failed",
                rule="GE-2",
                fix="Leave it out; open work is told of the new goal anyway.",
            )
    for node_id in command.superseded:
        node = node_of(state, node_id)
        if node.state in DEAD_STATES or node_id in command.reverify:
            what = f"{node.state} already" if node.state in DEAD_STATES else "to be verified again"
            raise TransitionError(
                f"{node_id} cannot be superseded: it is {what}.",
                code="guard_failed",
                rule="GE-1",
                fix="Leave it out.",
            )
    same = command.text == state.goal_statement
    if same and command.acceptance in (None, state.acceptance) and not command.superseded:
        raise RefusedError(
            "that is the goal already.",
            code="nothing_changed",
            rule="GE-1",
            fix="`perdure status` shows it; steer for what does not change the goal.",
        )


def _amended(change: _Change, open_nodes: Iterable[Node]) -> Draft:
    """The event, with the walk over everything that it touches (GE-1)."""
    state, command = change.state, change.command
    touched = {*command.reverify, *command.superseded}
    payload: dict[str, Any] = {
        "old": state.goal_statement,
        "new": command.text,
        "reason": command.reason,
        "authority": change.context.actor,
        "at": change.context.now,
        "count": state.goal_amendments + 1,
        "blast_radius": {
            "amended": [node.node_id for node in open_nodes],
            "done_stand": [
                node.node_id
                for node in state.nodes.values()
                if node.state == "DONE" and node.node_id not in touched
            ],
            "done_reverified": [name for name in command.reverify if name not in command.failed],
            "failed": dict(command.failed),
            "superseded": list(command.superseded),
        },
    }
    if command.acceptance is not None:
        payload["acceptance"] = list(command.acceptance)
        payload["old_acceptance"] = list(state.acceptance)
    return Draft("GOAL_AMENDED", "task", state.task_id, payload)


def _correct(change: _Change, done: Node, why: str) -> None:
    """A new node behind one that is DONE and does not hold under the new goal (GE-2)."""
    fix_id = free_fix_id(change.state, done.node_id, beside=change.fixes.values())
    command = c.AddNode(
        fix_id,
        f"Correct {done.node_id} for the new goal"[:title_chars_max],
        (done.node_id,),
        Spec(
            goal=f"Of {done.node_id} this does not hold under the new goal: {why}",
            constraints=done.spec.constraints,
        ),
        done.priority,
        done.verification_level,
        effect=done.effect,
    )
    draft = add_draft(
        change.state,
        command,
        beside=tuple(change.fixes.values()),
        directives=_directives(change, done),
        cause={"goal": change.ref},
    )
    change.drafts.append(draft)
    change.fixes[done.node_id] = fix_id


def _directives(change: _Change, node: Node) -> tuple[str, ...]:
    """What the node is told, with the new goal in place of an older one."""
    kept = tuple(text for text in node.directives if not text.startswith(DIRECTIVE))
    return (*kept, f"{DIRECTIVE}{change.command.text} ({change.ref})")


def _tell(change: _Change, node: Node) -> None:
    """One AMENDMENT of an open node, behind the recall of what is at work on it."""
    if node.state in AT_WORK_STATES:
        recalled = recall(change.replica, node, _cause(change), change.context)
        change.drafts += (_caused(change, draft) for draft in recalled.drafts)
        change.moves += recalled.moves
    before: dict[str, Any] = {"directives": list(node.directives)}
    after: dict[str, Any] = {"directives": list(_directives(change, node))}
    fixes = [change.fixes[dep] for dep in node.deps if dep in change.fixes]
    if fixes:
        before["deps"], after["deps"] = list(node.deps), [*node.deps, *fixes]
    payload = {
        "op": "amend_node",
        "target": node.node_id,
        "before": before,
        "after": after,
        "reason": _cause(change),
        "goal": change.ref,
    }
    change.drafts.append(Draft("AMENDMENT", "node", node.node_id, payload, (change.ref,)))


def _caused(change: _Change, draft: Draft) -> Draft:
    return msgspec.structs.replace(draft, payload={**draft.payload, "goal": change.ref})


def _too_many(change: _Change) -> list[Draft]:
    """The question to the sponsor when the goal keeps changing (GE-3); it holds no work."""
    state, now = change.state, change.context.now
    policies = state.policies
    recent = [at for at in state.goal_amended_at if now - at <= policies.goal_window_s]
    count = len(recent) + 1
    if count <= policies.goal_amendments_max:
        return []
    hours = policies.goal_window_s / 3_600
    draft = ask_draft(
        state,
        None,
        free_id(state, "E-goal"),
        f"The goal has changed {count} times within {hours:g} hours. Is the plan built on the"
        " right question, and is this what is wanted for good?",
        kind="escalation",
        options=("this goal stands", "plan anew", "stop"),
        default="leave the task as it is",
        to="sponsor",
        package={
            "context": f"It is now: {change.command.text}",
            "consequences": "Each change recalls what is at work and may undo what was planned.",
            "links": [change.ref],
            "limit": policies.goal_amendments_max,
        },
        now=now,
    )
    return [draft]


# Policies


def decide_policy(replica: Replica, command: c.ChangePolicy, context: c.Context) -> c.Decision:
    """A DECISION that overrides a reference policy, with value, reason and measurement window."""
    state = replica.state
    check_text(command.reason, "reason")
    names = Policies.__struct_fields__
    if command.name not in names:
        raise UsageError(
            f"there is no policy {command.name!r}.",
            code="unknown_policy",
            fix="`perdure policy` lists them.",
            suggestions=near(command.name, names),
        )
    before = getattr(state.policies, command.name)
    value = _value(command, whole=isinstance(before, int))
    payload = {
        "op": "policy",
        "id": f"DR-{state.decisions + 1}",
        "name": command.name,
        "value": value,
        "before": before,
        "rationale": command.reason,
        "window": command.window,
        "authority": context.actor,
    }
    return c.Decision((Draft("DECISION", "task", state.task_id, payload),))


def _value(command: c.ChangePolicy, *, whole: bool) -> float:
    """The value as the policy has it. UsageError for one that it cannot have."""
    value, may_be_zero = command.value, command.name in MAY_BE_ZERO
    small = value < 0 if may_be_zero else value <= 0
    if small or not value < policy_value_max or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        bound = "of 0 or more" if may_be_zero else "above 0"
        raise UsageError(
            f"{command.name} cannot be {value:g}.",
            code="bad_policy",
            fix=f"Give a {kind} {bound}, below {policy_value_max:g}.",
        )
    return int(value) if whole else value
