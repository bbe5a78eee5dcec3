"""The decision about a walk over all registered files (tier 2).

Invariants: what a walk found and the question about it are one commit; of one file that is not what
was registered people are asked once, and again only after a walk has seen it whole in between.
"""

from typing import Any, Final

from perdure.core import closing_commands as k
from perdure.core.asking import ask_draft, free_id
from perdure.core.commands import Context, Decision
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.lookup import artifact_of
from perdure.core.model import State

failed_kept_max: Final = 200
"""Files that one event names; how many there were it says besides."""
named_max: Final = 5
_QUESTION_ID: Final = "Q-walk"


def decide_walk(replica: Replica, command: k.RecordWalk, context: Context) -> Decision:
    """A NOTE that all registered files were looked at, and a question to the sponsor about those
    that are not as registered and were not known to be (WK-1)."""
    state = replica.state
    failed = _still_counting(state, command.failed)
    kept = dict(list(failed.items())[:failed_kept_max])
    found = f"{len(failed)} of them are not as registered" if failed else "all hold"
    payload: dict[str, Any] = {
        "op": "walk",
        "text": f"{command.checked} files were walked ({command.because}): {found}",
        "checked": command.checked,
        "failed": kept,
        "failed_total": len(failed),
        "because": command.because,
    }
    drafts = [Draft("NOTE", "task", state.task_id, payload)]
    known = state.walk.failed if state.walk is not None else ()
    fresh = {name: why for name, why in kept.items() if name not in known}
    if fresh:
        drafts.append(_question(state, fresh, context.now))
    return Decision(tuple(drafts))


def _still_counting(state: State, failed: dict[str, str]) -> dict[str, str]:
    """Without those that were set aside meanwhile: they prove nothing any more."""
    return {
        name: why
        for name, why in sorted(failed.items())
        if artifact_of(state, name).status != "quarantined"
    }


def _question(state: State, fresh: dict[str, str], now: float) -> Draft:
    named = [f"{name} ({state.artifacts[name].path})" for name in list(fresh)[:named_max]]
    more = f" and {len(fresh) - named_max} more" if len(fresh) > named_max else ""
    nodes = {state.artifacts[name].produced_by_node for name in fresh} - {None}
    text = (
        f"Registered files are not what was registered: {', '.join(named)}{more}."
        " What is to become of them?"
    )
    package = {
        "context": "; ".join(f"{name} {why}" for name, why in list(fresh.items())[:named_max]),
        "consequences": "Whatever rests on them starts no more until they are as they were: put the"
        " files back, or give their nodes up for others (perdure quarantine).",
        "links": sorted(str(node) for node in nodes)[:named_max],
    }
    question_id = free_id(state, _QUESTION_ID)
    return ask_draft(state, None, question_id, text, to="sponsor", package=package, now=now)
