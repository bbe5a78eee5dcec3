"""Commands by which people, and agents for them, put things on record.

Job: parse, call the service, render. Invariants: the text is kept verbatim.
"""

from typing import Final

import click

from perdure.core.late import LateModule
from perdure.errors import UsageError
from perdure.interfaces.cli.output import acknowledge
from perdure.interfaces.cli.request import Data, Request, text_of
from perdure.interfaces.cli.verb import verb

_memory: Final = LateModule("perdure.interfaces.cli.memory")


@verb("note", writes=True)
@click.argument("text", required=False)
@click.option("--doc", metavar="PATH",
              help="Note a document worth keeping, or an outside file in use.")  # fmt: skip
@click.option("--purpose", metavar="TEXT", help="With --doc: what it is for.")
@click.pass_obj
def note_command(
    request: Request, *, text: str | None, doc: str | None, purpose: str | None
) -> None:
    """Write a note into the journal; - reads it from standard input.

    It is on disk when `committed` is printed, and survives whatever happens next. With --doc a file
    is noted as it is now: docs/DOC-LEDGER.md lists it, and `perdure status` says when it has
    changed since. PATH is relative to the workspace, or to where you are.

    \b
    Example:
      perdure note "the API returns 500 for page 7"
      perdure note --doc tmp/draft.md --purpose "outline of chapter 2"
    """
    if doc is not None:
        args = {"path": doc, "purpose": purpose or text or "", "directory": request.start_dir}
        data = request.call("doc", args)
        where = " (outside the workspace)" if data.get("external") else ""
        acknowledge(request, data, [f"noted {data['path']}{where}"] if "path" in data else [])
        return
    if text is None:
        raise UsageError(
            "a note says something.",
            code="empty_text",
            rule="IN-1",
            fix="Give it a text, - for standard input, or --doc PATH --purpose TEXT.",
        )
    acknowledge(request, request.call("note", {"text": text_of(text)}))


@verb("decide", writes=True)
@click.argument("text")
@click.option("--id", "decision_id", metavar="ID", help="Its id; one is made up otherwise.")
@click.option("--option", "options", multiple=True, metavar="TEXT",
              help="One of the options that were considered.")  # fmt: skip
@click.option("--choice", metavar="TEXT", help="The option that was taken.")
@click.option("--authority", metavar="WHO", help="By whose authority; else the actor's.")
@click.option("--memory", "entries", multiple=True, metavar="ID",
              help="An entry of the memory store that it rests on.")  # fmt: skip
@click.option("--supports", multiple=True, metavar="REF", help="What it speaks for.")
@click.option("--invalidates", multiple=True, metavar="REF", help="What it takes back.")
@click.option("--supersedes", multiple=True, metavar="REF", help="What it takes the place of.")
@click.option("--derived-from", multiple=True, metavar="REF", help="What it follows from.")
@click.pass_obj
def decide_command(
    request: Request,
    *,
    text: str,
    decision_id: str | None,
    options: tuple[str, ...],
    choice: str | None,
    authority: str | None,
    entries: tuple[str, ...],
    supports: tuple[str, ...],
    invalidates: tuple[str, ...],
    supersedes: tuple[str, ...],
    derived_from: tuple[str, ...],
) -> None:
    """Record a decision: what was chosen, from what, and by whose authority.

    TEXT says what and why; - reads it from standard input. REF is an artifact, a node, a decision
    or an event (J-42): `perdure why` follows these edges.

    \b
    Example:
      perdure decide "Use SQLite: one file, no server" --option sqlite --option files \\
          --choice sqlite
    """
    args: Data = {
        "id": decision_id,
        "text": text_of(text),
        "options": list(options),
        "choice": choice,
        "authority": authority,
        "edges": [
            *(["SUPPORTS", ref] for ref in supports),
            *(["INVALIDATES", ref] for ref in invalidates),
            *(["SUPERSEDES", ref] for ref in supersedes),
            *(["DERIVED_FROM", ref] for ref in derived_from),
        ],
    }
    if entries:
        args["memory"] = _memory.memory_of(request).cite(entries)
    data = request.call("decide", args)
    lines = [f"decision {data['decision']}"] if data.get("decision") else []
    for entry in args.get("memory") or ():
        flags = f" ({', '.join(entry['flags'])})" if entry["flags"] else ""
        lines.append(f"  rests on   {entry['store']}:{entry['id']}{flags}")
    acknowledge(request, data, lines)
