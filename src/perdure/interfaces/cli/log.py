"""``log``: the journal as people read it, once or as it grows.

Job: page and follow events. Invariants: writes nothing; every line is one event.
"""

from collections.abc import Mapping
from typing import Any, Final

import click

from perdure.core.failure_text import as_seen
from perdure.interfaces.cli.output import plain, respond, write_json, write_line
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb


@verb("log")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Events behind J-N.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N",
              help="How many events.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on with events as they are committed.")
@click.pass_obj
def log_command(request: Request, after: int | None, limit: int, follow: bool) -> None:
    """Show what happened: the last events, or those after J-N.

    With --follow it goes on until interrupted, and --json then prints one event a line. Writes
    nothing; needs no lease.

    \b
    Example:
      perdure log --limit 10
      perdure log --after 42 --follow
    """
    service = request.service()
    if not follow:
        data = service.log(after=after, limit=limit)
        lines = [event_line(event) for event in data["events"]]
        if data["next"]:
            lines.append(f"more: perdure log --after {data['next']}")
        respond(request, data, lines)
        return
    for event in service.follow(after=after):
        if request.json:
            write_json(event)
        else:
            write_line(event_line(event))


_TELLING: Final = (
    "path", "text", "verbatim", "rationale", "decision", "goal", "note", "reason", "summary",
)  # fmt: skip
"""The payload keys that say most about an event, best first."""
_WORDS: Final = {
    "EXTERNAL_OBSERVED": "state",
    "DOWNLOAD_OBSERVED": "status",
    "OWNER_REPLY_RECORDED": "letter",
}
"""Kinds with one word that belongs before everything else."""


def event_line(event: Data) -> str:
    """One event on one line: where, when, who, what, about what, and its gist."""
    name = event["entity"]["id"]
    head = f"{event['ref']} {event['ts']} {event['actor']} {event['kind']} {name}"
    return plain(f"{head} {_gist(event['kind'], event['payload'])}".rstrip())


def _gist(kind: str, payload: Mapping[str, Any]) -> str:
    said = _said(kind, payload)
    steering = payload.get("steering")
    caused = kind in ("STATE_TRANSITION", "AMENDMENT") and isinstance(steering, str)
    return f"{said} [{steering}]" if caused else said


def _said(kind: str, payload: Mapping[str, Any]) -> str:
    if kind == "STATE_TRANSITION":
        edge = f" ({payload['edge']})" if payload.get("edge") else ""
        why = payload.get("diagnosis") or payload.get("signature") or payload.get("reason") or ""
        detail = payload.get("detail")  # the end of what a failed command printed
        seen = as_seen(str(why), detail if isinstance(detail, str) else "")
        tail = f": {seen}" if seen else ""
        return f"{payload.get('from')} -> {payload.get('to')}{edge}{tail}"
    if kind == "AMENDMENT":
        return _amendment(payload)
    if kind == "GOAL_AMENDED":
        return f"{payload.get('new') or ''} ({payload.get('reason') or 'no reason given'})"
    if kind == "DECISION" and payload.get("op") in _SETTLES:
        return _settlement(payload)
    said = next((str(payload[key]) for key in _TELLING if payload.get(key)), "")
    word = payload.get(_WORDS.get(kind, ""))
    if kind == "NOTE" and payload.get("op") == "acknowledged":
        word = f"{payload.get('steering') or ''} acknowledged:".lstrip()
    return f"{word} {said}".rstrip() if word else said


def _amendment(payload: Mapping[str, Any]) -> str:
    after, reason = payload.get("after"), payload.get("reason") or ""
    if not isinstance(after, Mapping):
        after = {}
    if payload.get("op") != "amend_node":
        return f"{payload.get('op') or ''} {after.get('title') or reason}".strip()
    before = payload.get("before")
    changed = sorted(_changed(before if isinstance(before, Mapping) else {}, after))
    return f"amend_node {', '.join(changed)}: {reason}".rstrip(": ")


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The fields that an amendment changes, those of the spec by their own names."""
    names = {name for name in after if name not in ("spec", "plan")}
    old, new = before.get("spec"), after.get("spec")
    if isinstance(new, Mapping):
        held = old if isinstance(old, Mapping) else {}
        names |= {name for name in {*held, *new} if held.get(name) != new.get(name)}
    return names


_SETTLES: Final[Mapping[str, tuple[str, ...]]] = {
    "ask": ("question_id", "question"),
    "answer": ("question_id", "ruling", "choice", "answer"),
    "void": ("gate", "rationale"),
    "classify": ("steering", "reading"),
    "mode": ("mode", "rationale"),
    "slot": ("node", "units", "executor"),
    "policy": ("name", "value", "rationale"),
    "revoke_authority": ("name", "rationale"),
}
"""Of decisions between people and the task: what to show of each, behind its ``op``."""


def _settlement(payload: Mapping[str, Any]) -> str:
    name, *more = (payload.get(key) for key in _SETTLES[payload["op"]])
    said = ", ".join(str(value) for value in more if value not in (None, ""))
    return f"{payload['op']} {name or ''}: {said}".rstrip(": ")
