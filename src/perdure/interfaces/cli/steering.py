"""The command that redirects a task while work is under way.

Job: parse, call the service, render how far the instruction has come. Invariants: the text is kept
verbatim.
"""

from typing import Final

import click

from perdure.interfaces.cli.changes import changes_of
from perdure.interfaces.cli.output import acknowledge, field, fields
from perdure.interfaces.cli.request import Data, Request, text_of
from perdure.interfaces.cli.verb import verb

applied_shown_max: Final = 20


@verb("steer", writes=True)
@click.argument("text")
@click.option("--as", "reading", metavar="READING",
              help="clarification, question, amendment or halt; else an amendment.")  # fmt: skip
@click.option("--node", "nodes", multiple=True, metavar="NODE",
              help="What it is about; else everything that is open.")  # fmt: skip
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE",
              help="A field of these nodes that changes, such as priority=5.")  # fmt: skip
@click.option("--revoke", multiple=True, metavar="AUTHORITY",
              help="A standing authority that is taken back: a node, or *.")  # fmt: skip
@click.option("--restated", is_flag=True, help="It was said before, to a session that was lost.")
@click.option("--id", "steering_id", metavar="ID", help="Its id; one is made up otherwise.")
@click.option("--source", metavar="WHO", help="Who said it; else the actor.")
@click.pass_obj
def steer_command(
    request: Request,
    *,
    text: str,
    reading: str | None,
    nodes: tuple[str, ...],
    changes: tuple[str, ...],
    revoke: tuple[str, ...],
    restated: bool,
    steering_id: str | None,
    source: str | None,
) -> None:
    """Redirect the task while work is under way.

    It is logged word for word before anything acts on it. Then what is at work is recalled and
    amended, what is done gets a corrective node, and nothing starts in between. TEXT - reads it
    from standard input.

    \b
    Example:
      perdure steer "Leave the deprecated modules out of the report"
      perdure steer "Metric units only" --node report --as amendment
      perdure steer "Stop, the data is wrong" --as halt
    """
    args: Data = {
        "text": text_of(text),
        "reading": reading,
        "nodes": list(nodes),
        "changes": changes_of(changes),
        "revoke": list(revoke),
        "restated": restated,
        "id": steering_id,
        "source": source,
    }
    data = request.call("steer", args, role="sponsor")
    acknowledge(request, data, _stage_lines(data))


def _stage_lines(data: Data) -> list[str]:
    """How far an instruction has come; nothing while it only waits in the drop box."""
    if not data.get("steering"):
        return []
    lines = [f"steering {data['steering']}"]
    if data.get("acknowledged"):
        lines += field("read as", data["reading"])
        lines += field("said as", data.get("same_as"))
        applied = list(data["applied"].items())
        done = [f"{name} {what}" for name, what in applied[:applied_shown_max]]
        more = len(applied) - applied_shown_max
        lines += fields("applied", [*done, *([f"and {more} more"] if more > 0 else [])])
        lines += field("ack", data["acknowledged"])
    return lines
