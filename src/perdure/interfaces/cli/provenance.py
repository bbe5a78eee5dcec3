"""``why``: from a result back to who decided it, on what evidence, under which authority.

Job: parse, call the service, render a tree. Invariants: it writes nothing; texts of others stay on
one line.
"""

from typing import Final

import click

from perdure.core.provenance_walk import depth_default
from perdure.interfaces.cli.output import plain, respond
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.service.provenance import why_of

lines_max: Final = {"summary": 120, "full": 2_000}
"""Of text, by view; --json has all of it."""


@verb("why")
@click.argument("ref", metavar="ARTIFACT|NODE|J-n")
@click.option("--depth", type=click.IntRange(1, 50), default=depth_default, show_default=True,
              metavar="N", help="How many steps back.")  # fmt: skip
@click.option("--view", type=click.Choice(("summary", "full")), default="summary",
              show_default=True,
              help="full: every event of a thing, in its own words.")  # fmt: skip
@click.pass_obj
def why_command(request: Request, *, ref: str, depth: int, view: str) -> None:
    """Say why something is so: the chain from a result to who decided it.

    Of an artifact, a node, an event, a decision, a question, a gate or an instruction, and of goal:
    on what evidence it rests, who said so, when and by whose right, down to the task's beginning.
    What was superseded, does not hold any more or is not on disk as registered is marked. Exits 3,
    with near misses, for what does not exist. Writes nothing.

    \b
    Example:
      perdure why A-report
      perdure why J-42 --depth 2 --view full
    """
    data: Data = why_of(request.service(), ref, depth=depth, view=view)
    lines: list[str] = []
    _render(data["why"], 0, lines)
    most = lines_max[view]
    if len(lines) > most:
        less = f"--depth {depth - 1}, or --json" if depth > 1 else "--json"
        lines = [*lines[:most], f"and {len(lines) - most} more lines: {less}"]
    respond(request, data, lines)


def _render(step: Data, level: int, lines: list[str]) -> None:
    words = [step["edge"], plain(step["ref"], None), plain(step["what"])]
    if step["actor"]:
        words.append(f"by {plain(step['actor'])}")
    if step["by"]:
        words.append(f"({plain(step['by'])})")
    if step["at"]:
        words.append(step["at"][:19].replace("T", " "))
    text = " ".join(word for word in words if word)
    if step["said"]:
        text += f": {plain(step['said'], None)}"
    for mark in step["marks"]:
        text += f" [{plain(mark)}]"
    if step["more"]:
        text += f" ({plain(step['more'])})"
    if step["drawn"]:
        text += f" <{step['drawn']}>"
    lines.append(f"{'  ' * level}{text}")
    for child in step["children"]:
        _render(child, level + 1, lines)
