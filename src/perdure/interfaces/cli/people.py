"""Commands by which people, and agents for them, put things on record.

Job: parse, call the service, render. Invariants: the text is kept verbatim.
"""

import click

from perdure.interfaces.cli.output import acknowledge
from perdure.interfaces.cli.request import Request, text_of
from perdure.interfaces.cli.verb import verb


@verb("note", writes=True)
@click.argument("text")
@click.pass_obj
def note_command(request: Request, text: str) -> None:
    """Write a note into the journal; - reads it from standard input.

    It is on disk when `committed` is printed, and survives whatever happens next.

    \b
    Example:
      perdure note "the API returns 500 for page 7"
    """
    acknowledge(request, request.call("note", {"text": text_of(text)}))


@verb("decide", writes=True)
@click.argument("text")
@click.option("--id", "decision_id", metavar="ID", help="Its id; one is made up otherwise.")
@click.option("--option", "options", multiple=True, metavar="TEXT",
              help="One of the options that were considered.")  # fmt: skip
@click.option("--choice", metavar="TEXT", help="The option that was taken.")
@click.option("--authority", metavar="WHO", help="By whose authority; else the actor's.")
@click.pass_obj
def decide_command(
    request: Request,
    *,
    text: str,
    decision_id: str | None,
    options: tuple[str, ...],
    choice: str | None,
    authority: str | None,
) -> None:
    """Record a decision: what was chosen, from what, and by whose authority.

    TEXT says what and why; - reads it from standard input.

    \b
    Example:
      perdure decide "Use SQLite: one file, no server" --option sqlite --option files \\
          --choice sqlite
    """
    args = {
        "id": decision_id,
        "text": text_of(text),
        "options": list(options),
        "choice": choice,
        "authority": authority,
    }
    data = request.call("decide", args)
    acknowledge(request, data, [f"decision {data['decision']}"] if data.get("decision") else [])
