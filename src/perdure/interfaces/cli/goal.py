"""Commands about what is wanted: the goal of the task, and its reference policies.

Job: parse, call the service, render. Invariants: who says nothing of who they are is asked as the
sponsor for the goal; looking at the policies writes nothing.
"""

import click

from perdure.errors import UsageError
from perdure.interfaces.cli.output import acknowledge, field, plain, respond, some, table
from perdure.interfaces.cli.request import Data, Request, text_of
from perdure.interfaces.cli.verb import verb


@verb("goal", writes=True)
@click.argument("text")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the record.")
@click.option("--reverify", multiple=True, metavar="NODE",
              help="A DONE node to verify again, in this call.")  # fmt: skip
@click.option("--supersede", multiple=True, metavar="NODE",
              help="A node that the new goal leaves out.")  # fmt: skip
@click.option("--accept", multiple=True, metavar="TEXT",
              help="What the whole task is accepted by from now on.")  # fmt: skip
@click.pass_obj
def goal_command(
    request: Request,
    *,
    text: str,
    reason: str,
    reverify: tuple[str, ...],
    supersede: tuple[str, ...],
    accept: tuple[str, ...],
) -> None:
    """Change the goal of the task; the sponsor's to do.

    Open nodes are told, and what is at work is recalled. What is DONE stands, unless --reverify
    finds that it does not hold: then a corrective node is added, which open work waits for.
    Too many changes in a short time open a question to the sponsor. TEXT - reads standard input.

    \b
    Example:
      perdure goal "Survey Python 3.13 only" --reason "3.12 is settled" --reverify collect
    """
    args = {
        "text": text_of(text),
        "reason": reason,
        "reverify": list(reverify),
        "supersede": list(supersede),
        "accept": list(accept),
    }
    data = request.call("goal", args, role="sponsor")
    acknowledge(request, data, _goal_lines(data))


def _goal_lines(data: Data) -> list[str]:
    if "amended" not in data:
        return []
    times = "once" if data["count"] == 1 else f"{data['count']} times so far"
    lines = [f"the goal has changed, {times}"]
    lines += field("told", some(data["amended"]))
    lines += field("recalled", some(data["recalled"]))
    lines += field("stand", some(data["done_stand"]))
    lines += field("hold", some(data["done_reverified"]))
    for name, why in data["failed"].items():
        lines += field("fail", f"{name}: {why}")
    lines += field("added", some(data.get("corrective") or []))
    lines += field("given up", some(data["superseded"]))
    lines += field("stranded", some(data.get("stranded") or []))
    return lines + field("question", data.get("question"))


@verb("policy", writes=True)
@click.argument("setting", required=False, metavar="[NAME=VALUE]")
@click.option("--reason", metavar="TEXT", help="Why, for the record; needed for a change.")
@click.option("--window", metavar="TEXT", help="Over which time the value was measured.")
@click.pass_obj
def policy_command(
    request: Request, setting: str | None, reason: str | None, window: str | None
) -> None:
    """Show the reference policies, or change one.

    Numbers such as the retry budget, and times after which silence counts. A change says why, and
    over which window its value was measured; both stay beside it. Alone it lists them and writes
    nothing.

    \b
    Example:
      perdure policy
      perdure policy nudge_after_s=45m --reason "builds take half an hour" --window "last week"
    """
    if setting is None:
        if reason or window:
            raise UsageError(
                "a reason changes no policy.", fix="Say which: perdure policy NAME=VALUE"
            )
        data = request.service().policies()
        respond(request, data, table([_row(name, row) for name, row in data["policies"].items()]))
        return
    name, sign, value = setting.partition("=")
    if not sign:
        raise UsageError(
            f"{setting!r} sets nothing.", code="bad_setting", fix="Write NAME=VALUE, or nothing."
        )
    args = {"name": name.strip(), "value": value.strip(), "reason": reason, "window": window}
    data = request.call("policy", args)
    lines = [f"{data['policy']} is {data['value']:g} now"] if data.get("policy") else []
    acknowledge(request, data, lines)


def _row(name: str, row: Data) -> tuple[str, str, str]:
    window = f" (measured over {row['window']})" if row["window"] else ""
    return name, f"{row['value']:g}", plain(f"{row['reason']}{window}")
