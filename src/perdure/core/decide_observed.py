"""Decisions about observations: what was seen, a confirmed block, the owner's answer.

Invariants: an observation is taken as it was said, whatever state the node is in, and is not
judged here (OB-1); a node moves by it only along an edge that is legal at that moment, and in the
same commit; what cannot be understood is refused whole, with the words that would be.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from perdure.core import commands as c
from perdure.core import observed_commands as o
from perdure.core.authority import check_authority
from perdure.core.effects import effect_open, hold_effect
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.late import LateModule
from perdure.core.lookup import near, node_of
from perdure.core.model import AT_WORK_STATES, CLOSED_STATES, Node, State, id_key
from perdure.core.moves import legal_edge, transition
from perdure.core.naming import check_facts, check_text, path_chars_max
from perdure.core.observed import (
    DOWNLOAD_STATUSES,
    EXTERNAL_STATES,
    FAILURE_TYPES,
    REPLY_LETTERS,
    fact_chars_max,
)
from perdure.core.wake import BY_OWNER, waits_for_owner
from perdure.errors import UsageError

_ENDING: Final = LateModule("perdure.core.decide_ending")  # of those that claim completion

size_bytes_max: Final = (1 << 63) - 1


def decide_observe(replica: Replica, command: o.Observe, context: c.Context) -> c.Decision:
    """One observation, and with ``claim`` the N03 that cites it (OB-1).

    Raises UsageError for a kind, state or status that there is not, and for names and facts that
    cannot be read; NotFoundError for an unknown node. A claim is refused where N03 is.
    """
    state = replica.state
    read = _READERS.get(command.kind)
    if read is None:
        raise UsageError(
            f"{command.kind!r} is not something that is observed.",
            code="unknown_kind",
            rule="OB-1",
            fix=f"Use one of {', '.join(_READERS)}.",
            suggestions=near(command.kind, _READERS),
        )
    entity_type, entity_id, more = read(state, command)
    said = {**more, **_said(command.summary, command.facts)}
    drafts = [Draft(command.kind, entity_type, entity_id, said)]
    if command.claim:
        drafts.extend(_claim(state, node_of(state, entity_id), f"J-{state.seq + 1}", context))
    return c.Decision(tuple(drafts))


def _said(summary: str, facts: Mapping[str, str]) -> dict[str, Any]:
    if summary:
        check_text(summary, "summary")
    check_facts(facts)
    return {"summary": summary, "facts": dict(facts)}


def _claim(state: State, node: Node, cited: str, context: c.Context) -> tuple[Draft, ...]:
    """N03 on the strength of an observation of the same commit."""
    check_authority(state, c.MoveNode(node.node_id, "VERIFYING"), context)
    drafts: tuple[Draft, ...] = _ENDING.claim_drafts(state, node, {}, (cited, *node.artifacts))
    return drafts


_Read = tuple[str, str, dict[str, Any]]
"""What an observation is about, and what it says besides summary and facts."""


def _step(state: State, command: o.Observe) -> _Read:
    if command.entity_type == "task":
        return _task(state, command)
    return "node", node_of(state, command.entity_id).node_id, {}


def _completed_step(state: State, command: o.Observe) -> _Read:
    return "node", node_of(state, command.entity_id).node_id, {}


def _task(state: State, command: o.Observe) -> _Read:
    return "task", state.task_id, {}


def _external(state: State, command: o.Observe) -> _Read:
    payload = command.payload
    provider = _name(payload.get("provider"), "provider")
    job_id = _name(payload.get("job_id"), "job id")
    if ":" in provider:
        raise UsageError(
            f"the provider {provider!r} has a colon, which stands between it and the job id.",
            code="bad_name",
            rule="OB-1",
            fix="Give it a short name, such as slurm or batch-api.",
        )
    found = _word(payload.get("state"), EXTERNAL_STATES, "state of an external job")
    said = {"provider": provider, "job_id": job_id, "state": found, **_node(state, payload)}
    return "external_job", f"{provider}:{job_id}", said


def _download(state: State, command: o.Observe) -> _Read:
    payload = command.payload
    name = _name(command.entity_id, "download id")
    status = _word(payload.get("status"), DOWNLOAD_STATUSES, "status of a download")
    path = _name(payload.get("path"), "path of the download", path_chars_max)
    said: dict[str, Any] = {"download_id": name, "status": status, "path": path}
    size = payload.get("size_bytes")
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= size_bytes_max:
            raise UsageError(
                f"{size!r} is not the size of a file.",
                code="bad_size",
                rule="OB-1",
                fix="Give the number of bytes.",
            )
        said["size_bytes"] = size
    if payload.get("checksum"):
        said["checksum"] = _name(payload.get("checksum"), "checksum")
    return "download", name, {**said, **_node(state, payload)}


_READERS: Final[Mapping[str, Callable[[State, o.Observe], _Read]]] = {
    "STEP_PROGRESS": _step,
    "STEP_COMPLETED": _completed_step,
    "TASK_COMPLETED": _task,
    "EXTERNAL_OBSERVED": _external,
    "DOWNLOAD_OBSERVED": _download,
}


def _node(state: State, payload: Mapping[str, Any]) -> dict[str, str]:
    node_id = payload.get("node")
    return {"node": node_of(state, str(node_id)).node_id} if node_id else {}


def _name(value: object, what: str, chars_max: int = fact_chars_max) -> str:
    """A name that others gave to something: one printable line."""
    name = str(value or "").strip()
    if name and len(name) <= chars_max and name.isprintable():
        return name
    raise UsageError(
        f"the {what} is empty." if not name else f"the {what} is not one line of text.",
        code="bad_name",
        rule="OB-1",
        fix=f"Give the {what} as one line of at most {chars_max} characters.",
    )


def _word(value: object, words: Collection[str], what: str) -> str:
    """One of a closed list of words, however it is spelled."""
    word = str(value or "").strip().upper().replace("-", "_")
    if word in words:
        return word
    raise UsageError(
        f"{value!r} is no {what}." if value else f"the {what} is missing.",
        code="unknown_word",
        rule="OB-1",
        fix=f"Use one of {', '.join(words)}.",
        suggestions=near(word, words) if len(word) > 1 else (),
    )


def _entity(state: State, node_id: str) -> tuple[str, str]:
    return ("node", node_id) if node_id else ("task", state.task_id)


# Blocks


def decide_block(replica: Replica, command: o.ConfirmBlock, context: c.Context) -> c.Decision:
    """BLOCKED_CONFIRMED, and N05 for a node that is at work: it waits until the owner resumes.

    Raises UsageError without a reason, a need and a safe next step (OB-3), and for a failure type
    that there is not; NotFoundError for an unknown node.
    """
    parts = {"reason": command.reason, "need": "".join(command.needs)}
    _check_parts({**parts, "safe-next-step": command.safe_next_step}, "a block")
    return c.Decision(tuple(_confirm(replica.state, command, context.now)))


def _check_parts(said: Mapping[str, str], what: str) -> None:
    missing = [name for name, text in said.items() if not text.strip()]
    if missing:
        raise UsageError(
            f"{what} takes more than was said: no {' and no '.join(missing)} is given.",
            code="block_incomplete",
            rule="OB-3",
            fix=f"Say {' '.join(f'--{name} TEXT' for name in missing)} as well.",
        )


def _confirm(state: State, command: o.ConfirmBlock, now: float, before: int = 0) -> list[Draft]:
    """The block, behind ``before`` drafts of the same commit, and what stops the node for it."""
    node = node_of(state, command.node_id) if command.node_id else None
    for what, text in (
        ("reason", command.reason),
        ("safe next step", command.safe_next_step),
        *(("need", need) for need in command.needs),
    ):
        check_text(text, what)
    check_facts(command.facts)
    payload: dict[str, Any] = {
        "reason": command.reason,
        "needs": list(command.needs),
        "safe_next_step": command.safe_next_step,
        "facts": dict(command.facts),
    }
    if command.summary:
        check_text(command.summary, "summary")
        payload["summary"] = command.summary
    if command.failure_type:
        payload["failure_type"] = _word(command.failure_type, FAILURE_TYPES, "failure type")
    if command.resume_token:
        payload["resume_token"] = _name(command.resume_token, "resume token")
    blocked = Draft("BLOCKED_CONFIRMED", *_entity(state, command.node_id), payload)
    if node is None or node.state != "RUNNING":
        return [blocked]
    if effect_open(node):  # whether it happened is for a person to say before it may go on
        return [blocked, *hold_effect(state, node, command.reason, now)]
    cited = f"J-{state.seq + before + 1}"
    move = {"reason": command.reason, "wake": BY_OWNER, "block": cited}
    return [blocked, transition(node, legal_edge(node, "BLOCKED"), move, (cited,))]


# Replies


def decide_reply(replica: Replica, command: o.RecordReply, context: c.Context) -> c.Decision:
    """OWNER_REPLY_RECORDED, and in the same commit what its letter says of the truth (OB-4).

    A: in progress, the block is lifted; B: blocked; C: completed, which lifts a block as well; D:
    nothing, look elsewhere; E: resumed now. Raises UsageError for another letter, for an A or an E
    that could mean several steps, and for a B without a reason and a safe next step; NotFoundError
    for an unknown node.
    """
    state = replica.state
    letter = _word(command.letter, REPLY_LETTERS, "letter of a reply")
    if letter == "B":
        parts = {"reason": command.reason, "safe-next-step": command.safe_next_step}
        _check_parts(parts, "a reply B")
    node_id = _step_meant(state, letter, command.node_id)
    said = _said(command.summary, command.facts)
    reply: dict[str, Any] = {"letter": letter, **said}
    if command.resume_token:
        reply["resume_token"] = _name(command.resume_token, "resume token")
    recorded = Draft("OWNER_REPLY_RECORDED", *_entity(state, node_id), reply)
    return c.Decision((recorded, *_TRUTHS[letter](state, command, node_id, said, context)))


def _step_meant(state: State, letter: str, node_id: str) -> str:
    """The node that a reply is about; empty for the task as a whole.

    Without a name: the task when the task is blocked, else the one node that is at work or blocked.
    """
    if node_id:
        return node_of(state, node_id).node_id
    blocked = list(state.observed.blocks)
    if letter in "CD" or "" in blocked:
        return ""
    if letter == "E" and len(blocked) == 1:
        return blocked[0]
    at_work = [name for name, node in state.nodes.items() if node.state in AT_WORK_STATES]
    meant = blocked if letter == "E" and blocked else [*dict.fromkeys([*blocked, *at_work])]
    if len(meant) > 1 and (letter == "A" or (letter == "E" and blocked)):
        shown = sorted(meant, key=id_key)
        raise UsageError(
            f"a reply {letter} could mean any of {len(meant)} steps.",
            code="step_unnamed",
            rule="OB-4",
            fix="Name the one with --node.",
            suggestions=shown[:5],
        )
    return meant[0] if len(meant) == 1 else ""


_Said = dict[str, Any]


def _in_progress(
    state: State, command: o.RecordReply, node_id: str, said: _Said, context: c.Context
) -> list[Draft]:
    resumed = _resumed(state, command, node_id, said, context)
    return [*resumed, Draft("STEP_PROGRESS", *_entity(state, node_id), said)]


def _blocked(
    state: State, command: o.RecordReply, node_id: str, said: _Said, context: c.Context
) -> list[Draft]:
    block = o.ConfirmBlock(
        node_id,
        command.reason,
        command.needs,
        command.safe_next_step,
        command.failure_type,
        command.facts,
    )
    return _confirm(state, block, context.now, before=1)


def _completed(
    state: State, command: o.RecordReply, node_id: str, said: _Said, context: c.Context
) -> list[Draft]:
    """The completion, behind the end of the block that it answers.

    Of the last step that is open it is the completion of the task as well.
    """
    lifted = node_id in state.observed.blocks
    drafts = _resumed(state, command, node_id, said, context) if lifted else []
    task = Draft("TASK_COMPLETED", "task", state.task_id, said)
    if not node_id:
        return [*drafts, task]
    drafts.append(Draft("STEP_COMPLETED", "node", node_id, said))
    if command.claim:
        cited = f"J-{state.seq + 1 + len(drafts)}"
        drafts.extend(_claim(state, node_of(state, node_id), cited, context))
    others = (node for name, node in state.nodes.items() if name != node_id)
    if all(node.state in CLOSED_STATES for node in others):
        drafts.append(task)
    return drafts


def _nothing(
    state: State, command: o.RecordReply, node_id: str, said: _Said, context: c.Context
) -> list[Draft]:
    return []


def _resumed(
    state: State, command: o.RecordReply, node_id: str, said: _Said, context: c.Context
) -> list[Draft]:
    """OWNER_RESUMED, and N09 where the block is what holds the node and nothing else does."""
    resumed = Draft("OWNER_RESUMED", *_entity(state, node_id), said)
    node = state.nodes.get(node_id)
    if node is None or node.state != "BLOCKED":
        return [resumed]
    cited = f"J-{state.seq + 2}"
    edge, move = legal_edge(node, "READY"), {"wake_evidence": cited}
    if not waits_for_owner(state, node) or edge.guard(state, node, move):
        return [resumed]
    return [resumed, transition(node, edge, move, (cited,))]


_Truth = Callable[[State, o.RecordReply, str, _Said, c.Context], list[Draft]]
_TRUTHS: Final[Mapping[str, _Truth]] = {
    "A": _in_progress,
    "B": _blocked,
    "C": _completed,
    "D": _nothing,
    "E": _resumed,
}
