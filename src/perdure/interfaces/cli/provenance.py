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

lines_max: Final = 120
"""Of text; --json has all of it."""


@verb("why")
@click.argument("ref", metavar="ARTIFACT|NODE|J-n")
@click.option("--depth", type=click.IntRange(1, 50), default=depth_default, show_default=True,
              metavar="N", help="How many steps back.")  # fmt: skip
@click.pass_obj
def why_command(request: Request, *, ref: str, depth: int) -> None:
    """Say why something is so: the chain from a result to who decided it.

    Of an artifact, a node, an event, a decision, a question or an instruction: on what evidence it
    rests, who said so, when and by whose right, down to the task's beginning. What was superseded
    or does not hold any more is marked. Exits 3, with near misses, for what does not exist. Writes
    nothing.

    \b
    Example:
      perdure why A-report
      perdure why J-42 --depth 2
    """
    data: Data = why_of(request.service(), ref, depth=depth)
    lines: list[str] = []
    _render(data["why"], 0, lines)
    if len(lines) > lines_max:
        left = len(lines) - lines_max
        lines = [
            *lines[:lines_max],
            f"and {left} more lines: --depth {max(1, depth - 1)}, or --json",
        ]
    respond(request, data, lines)


def _render(step: Data, level: int, lines: list[str]) -> None:
    words = [step["edge"], step["ref"], plain(step["what"])]
    if step["actor"]:
        words.append(f"by {step['actor']}")
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
        text += f" ({step['more']})"
    lines.append(f"{'  ' * level}{text}")
    for child in step["children"]:
        _render(child, level + 1, lines)
