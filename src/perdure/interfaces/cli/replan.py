"""Commands that plan anew: a node amended, split into several, given up for another.

Job: parse, call the service, render. Invariants: nothing is decided here; whatever is refused was
refused before anything was written.
"""

import click

from perdure.core.model import EFFECTS, RESUME_POLICIES, VERIFICATION_LEVELS
from perdure.errors import UsageError
from perdure.interfaces.cli.changes import changes_of, list_or_none
from perdure.interfaces.cli.output import acknowledge, some
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb


@verb("amend", writes=True)
@click.argument("node")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the record.")
@click.option("--title", metavar="TEXT", help="Another title.")
@click.option("--goal", metavar="TEXT", help="What to do, for whoever works on it.")
@click.option("--run", metavar="CMD", help="The shell command that `perdure run` executes.")
@click.option("--output", "outputs", multiple=True, metavar="PATH",
              help="The files it owes from now on; or none.")  # fmt: skip
@click.option("--accept", multiple=True, metavar="CHECK", help="Its checks from now on.")
@click.option("--dep", "deps", multiple=True, metavar="NODE",
              help="The nodes it waits for from now on; or none.")  # fmt: skip
@click.option("--priority", type=int, metavar="N", help="Higher starts first.")
@click.option("--verify", type=click.Choice(VERIFICATION_LEVELS),
              help="Level of verification; less than before takes the sponsor.")  # fmt: skip
@click.option("--effect", type=click.Choice(EFFECTS), help="Class of its side effects.")
@click.option("--resume-policy", type=click.Choice(RESUME_POLICIES),
              help="When finished work counts after a crash.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE",
              help="Any other field of its spec; text, or JSON.")  # fmt: skip
@click.option("--directive", "directives", multiple=True, metavar="TEXT",
              help="One more instruction that its contracts carry.")  # fmt: skip
@click.pass_obj
def amend_command(
    request: Request,
    *,
    node: str,
    reason: str,
    title: str | None,
    goal: str | None,
    run: str | None,
    outputs: tuple[str, ...],
    accept: tuple[str, ...],
    deps: tuple[str, ...],
    priority: int | None,
    verify: str | None,
    effect: str | None,
    resume_policy: str | None,
    settings: tuple[str, ...],
    directives: tuple[str, ...],
) -> None:
    """Change what a node is to do.

    Refused while somebody is at work on it, and once it is DONE: a corrective node is added
    instead. Outputs, checks and dependencies replace those there were. A node that failed is READY
    again when its spec changes; strikes of the old one count no more.

    \b
    Example:
      perdure amend report --reason "the editor asked" --goal "One page, no more"
    """
    spec = changes_of(settings)
    if outputs:
        spec["outputs"] = list_or_none("--output", outputs) or "none"
    if accept:
        spec["accept"] = list(accept)
    spec |= {name: value for name, value in (("goal", goal), ("run", run)) if value is not None}
    args: Data = {
        "node": node,
        "reason": reason,
        "title": title,
        "priority": priority,
        "verification_level": verify,
        "effect": effect,
        "resume_policy": resume_policy,
        "deps": list_or_none("--dep", deps) if deps else None,
        "spec": spec,
        "directives": list(directives),
    }
    data = request.call("amend", args)
    changed = ", ".join(data.get("changed") or ())
    lines = [f"{data['node']} amended: {changed}; it is {data['state']}"] if changed else []
    acknowledge(request, data, lines)


@verb("split", writes=True)
@click.argument("node")
@click.option("--into", "into", multiple=True, required=True, metavar="ID:TITLE",
              help="A part that takes its place; once for each.")  # fmt: skip
@click.option("--chain", is_flag=True, help="Each part waits for the one before it.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the record.")
@click.pass_obj
def split_command(
    request: Request, node: str, into: tuple[str, ...], *, chain: bool, reason: str
) -> None:
    """Replan a node into several that take its place.

    The node is given up and stays on record; the parts point back to it, wait for what it waited
    for, and what waited for it waits for all of them. Refused while somebody is at work on it.

    \b
    Example:
      perdure split book --into ch1:"Chapter 1" --into ch2:"Chapter 2" --chain
    """
    parts = [_part(text) for text in into]
    args = {"node": node, "into": parts, "chain": chain, "reason": reason}
    data = request.call("split", args)
    lines = []
    if data.get("parts"):
        lines = [f"{data['node']} is {data['state']}; in its place: {', '.join(data['parts'])}"]
    acknowledge(request, data, lines + _waiting(data))


def _part(text: str) -> Data:
    part_id, colon, title = text.partition(":")
    if not (colon and part_id.strip() and title.strip()):
        raise UsageError(
            f"{text!r} is no part.", code="bad_split", fix='Write ID:TITLE, as in ch1:"Chapter 1".'
        )
    return {"node": part_id.strip(), "title": title.strip()}


@verb("quarantine", writes=True)
@click.argument("node")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the record.")
@click.option("--replacement", metavar="NODE", help="The node that takes its place.")
@click.pass_obj
def quarantine_command(request: Request, node: str, reason: str, replacement: str | None) -> None:
    """Give a node up as it was planned.

    It stays on record and nothing leaves quarantine. What waited for it waits for the replacement;
    without one the task cannot finish until a successor is added. A node that still waits for
    others is cancelled instead. Refused while somebody is at work on it.

    \b
    Example:
      perdure quarantine scrape --reason "the site is gone" --replacement archive
    """
    args = {"node": node, "reason": reason, "replacement": replacement}
    data = request.call("quarantine", args)
    lines = []
    if data.get("state"):
        after = f"; {data['replacement']} takes its place" if data.get("replacement") else ""
        lines = [f"{data['node']} is {data['state']}{after}"]
        if not after and data["state"] == "QUARANTINED":
            successor = f"perdure add ID TITLE --successor-of {data['node']}"
            lines.append(f"  then       {successor}")
    acknowledge(request, data, lines + _waiting(data))


def _waiting(data: Data) -> list[str]:
    names = data.get("repointed")
    return [f"{some(names)} {'wait' if names[1:] else 'waits'} for that now"] if names else []
