"""The command about how work is dispatched: the mode, and what it was measured on.

Job: parse, call the service, render. Invariants: looking at the mode writes nothing.
"""

import click

from perdure.core.dispatching import MODE_WORDS
from perdure.errors import UsageError
from perdure.interfaces.cli.output import acknowledge, field, respond
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb


class _Mode(click.Choice[str]):
    """One of the modes, in whichever case, named as they are written."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value.upper(), param, ctx)


@verb("dispatch", writes=True)
@click.argument("mode", required=False, metavar="[A|B|C]",
                type=_Mode(list(MODE_WORDS)))  # fmt: skip
@click.option("--reason", metavar="TEXT", help="Why, for the record; needed for a change.")
@click.pass_obj
def dispatch_command(request: Request, mode: str | None, reason: str | None) -> None:
    """Show how work is dispatched, or change it.

    A sends everything that may start, B what was not tried yet first, C nothing. A run
    changes the mode by how many workers die before any output, and leads out of C by a probe. A
    mode that is set here says why; B and C hold then until they are set otherwise. Alone it shows
    the mode with its figures and writes nothing.

    \b
    Example:
      perdure dispatch
      perdure dispatch A --reason "the quota was raised"
    """
    if mode is None:
        if reason is not None:
            raise UsageError(
                "a reason changes no mode.",
                fix="Say which: perdure dispatch A --reason WHY (or B, or C)",
            )
        data = request.service().dispatch()
        respond(request, data, _lines(data["dispatch"]))
        return
    data = request.call("dispatch", {"mode": mode, "reason": reason or ""})
    lines = [f"dispatch: {mode_words(data['dispatch'])}"] if "dispatch" in data else []
    acknowledge(request, data, lines)


def mode_words(dispatch: Data) -> str:
    """The mode in words, such as ``C (halted, by hand)``."""
    mode = dispatch["dispatch_mode"]
    how = ", a small batch is out" if dispatch["probing"] else ""
    how = ", by hand" if dispatch["by_hand"] else how
    return f"{mode} ({MODE_WORDS[mode]}{how})"


def measured(dispatch: Data) -> str:
    """What the mode was measured on."""
    first = sum(dispatch["first_death_rate_window"])
    text = f"{first} of the last {dispatch['window_size']} died before any output"
    failures = dispatch["environment_failures"]
    if failures:
        text += f", {failures} of the environment in a row"
    return f"{text}, since {dispatch['since']}" if dispatch["since"] else text


def _lines(dispatch: Data) -> list[str]:
    deaths = ", ".join(f"{count} {mode}" for mode, count in dispatch["deaths"].items())
    lines = [f"dispatch: {mode_words(dispatch)}"]
    return lines + field("measured", measured(dispatch)) + field("deaths", deaths)
