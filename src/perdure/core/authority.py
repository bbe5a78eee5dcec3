"""Who may do what: the actor that asks, and on what (protocol section 12).

Job: hold a call to the table in ``rights``, and to the rules about single things. Invariants: what
a role is not given it does not have (AU-1); an executor acts on the node whose contract is its own
and on no other (AU-2); where people are named for a role or for a gate, they and nobody else act
for it (H4). A refusal names the role that it takes. Being told a name is no proof of it: where the
system does not separate who asks, this is a matter of policy.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from perdure.core import commands as c
from perdure.core import observed_commands as o
from perdure.core.gates import gate_named, is_of_gate
from perdure.core.grants import may_write
from perdure.core.lookup import contract_of, near
from perdure.core.machine import STARTABLE_STATES
from perdure.core.model import Node, State
from perdure.core.people import Gate, Question
from perdure.core.rights import ALIASES, DIRECT, DO, RIGHTS, ROLES, RULE, right_to
from perdure.errors import RefusedError, UsageError


class Actor(NamedTuple):
    """Who asks, by the role they ask in."""

    role: str
    name: str


@lru_cache(maxsize=256)  # each commit asks
def read_actor(actor: str) -> Actor:
    """The role and the name of ``role:name``. UsageError for a role that there is not."""
    role, _, name = actor.partition(":")
    role = ALIASES.get(role, role)
    if role not in ROLES:
        raise UsageError(
            f"{actor!r} acts in no role: there is no role {role!r}.",
            code="unknown_role",
            rule="AU-1",
            fix=f"Write role:id with one of {', '.join(ROLES)}.",
            suggestions=near(role, (*ROLES, *ALIASES)),
        )
    return Actor(role, name)


def check_authority(state: State, command: c.Command, context: c.Context) -> None:
    """Raise RefusedError when this actor may not give this command; it names who may.

    Who rules on a question is asked again, by :func:`check_ruling`, once it is known which one.
    Raises UsageError for a role that there is not.
    """
    actor = read_actor(context.actor)
    role = actor.role
    right = right_to(command)
    if role not in right.roles:
        raise _may_not(role, right.what, right.roles)
    if role == "coordinator":
        return
    if role in RULE:
        _check_named(state, actor, command)
    rule = _OBJECT_RULES.get(role)
    if rule is not None:
        rule(state, actor, command)


def check_coordinates(actor: str) -> None:
    """Raise RefusedError unless this role may hold the lease, recover, and drive a task."""
    role = read_actor(actor).role
    if role not in DIRECT:
        raise _may_not(role, "coordinate a task", DIRECT)


def _may_not(role: str, what: str, roles: tuple[str, ...]) -> RefusedError:
    takes = " or ".join(roles)
    may_ask = role in RIGHTS[c.AskQuestion].roles
    way = "Ask for it with `perdure ask`, or let" if may_ask else "Let"
    return RefusedError(
        f"{_with_article(role)} may not {what}: it takes the role {takes}.",
        code="role_may_not",
        rule="AU-1",
        fix=f"{way} somebody call who is that: --actor {roles[0]}:NAME",
    )


def _with_article(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"


# People who are named


def holders(state: State, role: str, gate: Gate | str | None = None) -> tuple[str, ...]:
    """The names of those who act in a role, or who rule at a gate; none named: anybody in it.

    For a gate the gate's own say comes first, then ``people.gates`` of the task, then the role's.
    """
    if isinstance(gate, Gate):
        if gate.gatekeeper:
            return tuple(map(_bare, gate.gatekeeper))
        gate = gate.gate_id
    if gate is not None:
        gates = state.people.get("gates")
        if isinstance(gates, Mapping) and gates.get(gate):
            return _names(gates[gate])
    return _names(state.people.get(role))


def _names(given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        given = (given,)
    return tuple(_bare(str(name)) for name in given) if isinstance(given, list | tuple) else ()


def _bare(name: str) -> str:
    """The name alone: people are also written as ``role:name``."""
    return name.rpartition(":")[2]


_OPEN: Final = (
    c.StartTask, c.WriteNote, c.AskQuestion, c.AnswerQuestion, c.AskGate, c.PropagateSteering,
    c.MoveNode,
)  # fmt: skip
"""What is not done in the name of the role: words, and what follows from the record."""


def _check_named(state: State, actor: Actor, command: c.Command) -> None:
    named = holders(state, actor.role)
    if named and actor.name not in named and not isinstance(command, _OPEN):
        raise _not_the_holder(actor, f"the {actor.role} of this task", named)


def check_ruling(state: State, question: Question, context: c.Context) -> None:
    """Raise RefusedError unless this actor rules on this question (H4).

    The role that it was put to rules, and the sponsor on what was put to the gatekeeper or the
    coordinator; at a gate nobody who is at work behind it, and only those named for it, if any are.
    """
    actor = read_actor(context.actor)
    takes = _ruling_roles(question)
    if actor.role not in takes:
        raise _may_not(actor.role, f"rule on {question.question_id}", takes)
    _check_holder(state, actor, question)


def _ruling_roles(question: Question) -> tuple[str, ...]:
    if question.to == "sponsor":
        return ("sponsor",)
    if question.to == "coordinator" and not is_of_gate(question):
        return ("coordinator", *RULE)
    return RULE


def _check_holder(state: State, actor: Actor, question: Question) -> None:
    gate = _gate_of(state, question)
    named = holders(state, actor.role, gate)
    if named and actor.name not in named and actor.role != "coordinator":
        raise _not_the_holder(actor, f"who rules on {question.question_id}", named)
    if gate is not None and _is_of_the_work(state, actor, question):
        raise RefusedError(
            f"{actor.name} works on {question.node} and does not rule at its own gate.",
            code="own_gate",
            rule="INV-6",
            fix="Let somebody else rule.",
        )


def _gate_of(state: State, question: Question) -> Gate | None:
    if not question.gate:
        return None
    node = state.nodes.get(question.node or "")
    found = gate_named(state, node, question.gate) if node is not None else None
    return found or Gate(question.gate)


def _is_of_the_work(state: State, actor: Actor, question: Question) -> bool:
    """Whether this is the executor of what the gate is about, or the one that asked."""
    node = state.nodes.get(question.node or "")
    names = [question.asked_by]
    if node is not None and node.state == "VERIFYING":
        names.append(node.worker)
    if node is not None and actor.name == node.invocation:
        return True
    parts = (name.partition(":") for name in names)
    return any(ALIASES.get(p[0], p[0]) == "executor" and p[2] == actor.name for p in parts)


def _not_the_holder(actor: Actor, whose: str, named: tuple[str, ...]) -> RefusedError:
    return RefusedError(
        f"{actor.name or 'nobody'} is not {whose}: that is {' or '.join(named)}.",
        code="not_the_holder",
        rule="H4",
        fix=f"Let one of them call: --actor {actor.role}:{named[0]}",
    )


# Work that is somebody's


def owns(state: State, node: Node, actor: str) -> bool:
    """Whether the node's newest contract is this executor's: under its name, or under its id."""
    asker = read_actor(actor)
    if asker.role != "executor":
        return False
    if asker.name == node.invocation:
        return True
    contract = contract_of(state, node)
    if contract is None:
        return False
    role, _, name = contract.executor.actor.partition(":")
    return (ALIASES.get(role, role), name) == asker


def _check_own(state: State, actor: Actor, node_id: str | None) -> None:
    """Raise RefusedError (AU-2) unless the executor has this node at work; unknown ones pass."""
    if not node_id:
        raise RefusedError(
            "an executor speaks for its own node, and names none here.",
            code="not_yours",
            rule="AU-2",
            fix="Name the node that you have at work.",
        )
    node = state.nodes.get(node_id)
    if node is None or owns(state, node, f"{actor.role}:{actor.name}"):
        return
    contract = contract_of(state, node)
    whose = f", under the contract of {contract.executor.actor}" if contract is not None else ""
    raise RefusedError(
        f"executor {actor.name} has no contract for {node_id}, which is {node.state}{whose}.",
        code="not_yours",
        rule="AU-2",
        fix="Start what `perdure ready` lists, and ask for more with `perdure ask`.",
    )


def _executor(state: State, actor: Actor, command: c.Command) -> None:
    """What an executor does it does to the node at work under its own contract."""
    if isinstance(command, c.MoveNode):
        if command.to not in ("RUNNING", "DONE"):  # a claim of the node, and a verdict on the disk
            _check_own(state, actor, command.node_id)
    elif isinstance(command, c.Beat):
        for node_id in command.node_ids:
            _check_own(state, actor, node_id)
    elif isinstance(command, c.AskQuestion):
        if command.node_id:
            _check_own(state, actor, command.node_id)
            _check_not_over(state, actor, command.node_id)
    elif isinstance(command, o.Observe | c.AppendRaw):
        if command.entity_type in ("node", "task"):
            _check_own(state, actor, command.entity_id if command.entity_type == "node" else None)
    elif isinstance(command, _OWN):
        _check_own(state, actor, command.node_id)
        if isinstance(command, c.FailNode) and command.interruption:
            raise _may_not("executor", "call a failure an interruption", ("coordinator",))
        if isinstance(command, c.RegisterArtifact | c.AttachArtifact):
            _check_not_over(state, actor, command.node_id)
        if isinstance(command, c.RegisterArtifact):
            _check_granted(state, command)
    elif isinstance(command, c.WriteNote) and command.op not in ("note", "hint"):
        raise _may_not("executor", f"write a note of the kind {command.op!r}", ("coordinator",))


_OWN: Final = (
    c.FailNode, c.RecordReceipt, c.RegisterArtifact, c.AttachArtifact, o.ConfirmBlock,
    o.RecordReply,
)  # fmt: skip


def _check_not_over(state: State, actor: Actor, node_id: str | None) -> None:
    """Raise RefusedError (AU-2) once the attempt has ended: what comes late is not the next one's.

    So work that was recalled neither counts as that of the contract which follows nor holds it.
    """
    node = state.nodes.get(node_id or "")
    if node is not None and node.state in STARTABLE_STATES:
        raise RefusedError(
            f"the contract of executor {actor.name} for {node_id} has ended: it is {node.state}.",
            code="not_yours",
            rule="AU-2",
            fix="Leave the files as they are and say in a note what matters (`perdure note`).",
        )


def _check_granted(state: State, command: c.RegisterArtifact) -> None:
    node = state.nodes.get(command.node_id or "")
    if node is None or command.repo is not None or may_write(node, command.path):
        return
    raise RefusedError(
        f"{command.path} is outside what the contract for {node.node_id} grants.",
        code="outside_grants",
        rule="AU-1",
        fix=f"Write it below artifacts/{node.node_id}/, or ask with `perdure ask`.",
    )


def _verifier(state: State, actor: Actor, command: c.Command) -> None:
    if isinstance(command, c.WriteNote) and command.op != "note":
        raise _may_not(actor.role, f"write a note of the kind {command.op!r}", ("coordinator",))


def _recorder(state: State, actor: Actor, command: c.Command) -> None:
    if isinstance(command, o.Observe) and command.claim:
        raise _may_not(actor.role, "claim that a node is complete", DO)
    _verifier(state, actor, command)


def _sponsor(state: State, actor: Actor, command: c.Command) -> None:
    if isinstance(command, c.AmendNode) and "deps" in command.after:
        raise _may_not(actor.role, "change the graph", ("coordinator",))


_OBJECT_RULES: Final[Mapping[str, Callable[[State, Actor, c.Command], None]]] = {
    "executor": _executor,
    "verifier": _verifier,
    "recorder": _recorder,
    "sponsor": _sponsor,
}


def is_sponsor(state: State, actor: str) -> bool:
    """Whether this is the sponsor, or one of them."""
    asker = read_actor(actor)
    named = holders(state, "sponsor")
    return asker.role == "sponsor" and (not named or asker.name in named)
