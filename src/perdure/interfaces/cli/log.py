"""``log``: the journal as people read it, once or as it grows.

Job: page and follow events. Invariants: writes nothing; every line is one event.
"""

from collections.abc import Mapping
from typing import Any, Final

import click

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
    "path", "text", "verbatim", "rationale", "decision", "goal", "note", "reason",
)  # fmt: skip
"""The payload keys that say most about an event, best first."""


def event_line(event: Data) -> str:
    """One event on one line: where, when, who, what, about what, and its gist."""
    name = event["entity"]["id"]
    head = f"{event['ref']} {event['ts']} {event['actor']} {event['kind']} {name}"
    return plain(f"{head} {_gist(event['kind'], event['payload'])}".rstrip())


def _gist(kind: str, payload: Mapping[str, Any]) -> str:
    if kind == "STATE_TRANSITION":
        edge = f" ({payload['edge']})" if payload.get("edge") else ""
        why = payload.get("diagnosis") or payload.get("signature") or payload.get("reason") or ""
        tail = f": {why}" if why else ""
        return f"{payload.get('from')} -> {payload.get('to')}{edge}{tail}"
    if kind == "AMENDMENT":
        after = payload.get("after")
        title = after.get("title") if isinstance(after, Mapping) else None
        return f"{payload.get('op') or ''} {title or payload.get('reason') or ''}".strip()
    for key in _TELLING:
        if payload.get(key):
            return str(payload[key])
    return ""
