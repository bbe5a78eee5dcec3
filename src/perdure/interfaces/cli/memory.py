"""``memory``: what outlives tasks: add, search, show, supersede, due, proposals.

Job: parse, call the service, render. Invariants: only add and supersede write; a task need not be
there; texts of others stay on one line.
"""

import click

from perdure.interfaces.cli.output import acknowledge, field, fields, plain, respond
from perdure.interfaces.cli.request import Data, Request, common_options, text_of
from perdure.interfaces.cli.verb import verb
from perdure.service.memory import Memory
from perdure.service.memory_reading import place_of


def memory_of(request: Request) -> Memory:
    """The stores that a call means."""
    return Memory(
        place_of(request.start_dir, request.environ, request.actor, request.named_directory)
    )


@click.group("memory", no_args_is_help=False)
def memory_command() -> None:
    """Keep what outlives a task, and find it again.

    Entries say what is so: about the environment, methods, pitfalls, preferences, what went wrong.
    Each cites its evidence, is never edited but superseded, and says when it is to be re-checked.
    They lie in .perdure/memory/ of the project and in a store of the user's own; both are searched.

    \b
    Example:
      perdure memory search "rate limit"
    """


@verb("add", writes=True)
@click.argument("statement", required=False, default="")
@click.option("--kind", default="method", show_default=True, metavar="KIND",
              help="env, method, preference, pitfall or postmortem.")  # fmt: skip
@click.option("--scope", default="", metavar="SCOPE",
              help="global, project:NAME or user:NAME; else this project.")  # fmt: skip
@click.option("--evidence", multiple=True, metavar="REF",
              help="What proves it: J-42 of this task, TASK#J-42, a path, an address.")  # fmt: skip
@click.option("--recheck-after", default="", metavar="DATE", help="When to look at it again.")
@click.option("--distinct", default="", metavar="WHY",
              help="It is not what a near duplicate says, and why.")  # fmt: skip
@click.option("--store", default="", metavar="STORE", help="project or user; else by the scope.")
@click.option("--proposal", default="", metavar="ID", help="Take what the archived task proposed.")
@click.pass_obj
def memory_add_command(request: Request, /, *, statement: str, **options: str) -> None:
    """Add a statement that is true beyond this task.

    It says what is so ("X is Y"), not what to do; - reads it from standard input. Without evidence
    it is a draft. What is nearly said already is refused with the entry that says it: supersede
    that one.

    \b
    Example:
      perdure memory add "The API of shop X answers 429 above 5 requests a second" \\
          --kind env --evidence J-42 --recheck-after 2027-03-01
    """
    evidence = options.pop("evidence")
    data = memory_of(request).add(
        text_of(statement), evidence=tuple(evidence), op=request.op or "", **options
    )
    acknowledge(request, data, _added(data))


def _added(data: Data) -> list[str]:
    lines = _entry_lines(data["entry"] | {"mind": data["warnings"]})
    return lines + fields("note", data["notices"])


@verb("supersede", writes=True)
@click.argument("entry", metavar="ID")
@click.argument("statement", required=False, default="")
@click.option("--also", multiple=True, metavar="ID", help="Another one that it takes the place of.")
@click.option("--kind", default="", metavar="KIND", help="Else as it was.")
@click.option("--scope", default="", metavar="SCOPE", help="Else as it was.")
@click.option(
    "--evidence",
    multiple=True,
    metavar="REF",
    help="What proves it.",
)
@click.option("--recheck-after", default="", metavar="DATE", help="When to look at it again.")
@click.option("--stable", is_flag=True, help="It need not be re-checked any more.")
@click.option("--distinct", default="", metavar="WHY",
              help="It is not what a near duplicate says, and why.")  # fmt: skip
@click.pass_obj
def memory_supersede_command(
    request: Request,
    /,
    *,
    entry: str,
    statement: str,
    also: tuple[str, ...],
    evidence: tuple[str, ...],
    stable: bool,
    **options: str,
) -> None:
    """Put a statement in the place of an entry, or say that it still holds.

    The old entry stays and points to the new one. Without STATEMENT it is the same one, re-checked:
    give the evidence, or the next date.

    \b
    Example:
      perdure memory supersede MEM-0007 "The limit is 10 requests a second" --evidence J-51
      perdure memory supersede MEM-0007 --recheck-after 2027-09-01
    """
    data = memory_of(request).supersede(
        (entry, *also),
        text_of(statement),
        evidence=evidence,
        stable=stable,
        op=request.op or "",
        **options,
    )
    acknowledge(request, data, _added(data))


@verb("search")
@click.argument("words", nargs=-1)
@click.option("--kind", default="", metavar="KIND", help="Only of this kind.")
@click.option("--scope", default="", metavar="SCOPE", help="Only of this scope.")
@click.option("--all", "everything", is_flag=True, help="Also what was superseded.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, metavar="N",
              help="How many.")  # fmt: skip
@click.option("--after", default="", metavar="ID", help="Go on behind this entry of the last page.")
@click.pass_obj
def memory_search_command(
    request: Request,
    /,
    *,
    words: tuple[str, ...],
    everything: bool,
    limit: int,
    after: str,
    **options: str,
) -> None:
    """Find entries by words, best first; without WORDS, list them.

    What is due to be re-checked says so. Exits 0 also when nothing is found. Writes nothing.

    \b
    Example:
      perdure memory search rate limit
      perdure memory search --kind pitfall
    """
    data = memory_of(request).search(
        " ".join(words), everything=everything, limit=limit, after=after, **options
    )
    lines = ["nothing holds these words; like them are:"] if data["alike"] else []
    respond(request, data, lines + _page(data, "nothing found"))


@verb("due")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, metavar="N",
              help="How many.")  # fmt: skip
@click.option("--after", default="", metavar="ID", help="Go on behind this entry of the last page.")
@click.pass_obj
def memory_due_command(request: Request, /, *, limit: int, after: str) -> None:
    """List the entries whose time to be re-checked has come.

    \b
    Example:
      perdure memory due
    """
    data = memory_of(request).due(limit=limit, after=after)
    respond(request, data, _page(data, "nothing is due"))


def _page(data: Data, none: str) -> list[str]:
    lines = [line for entry in data["entries"] for line in _entry_lines(entry)]
    if data["next"]:
        lines.append(f"more: --after {data['next']} ({data['total']} in all)")
    return (lines or [none]) + fields("note", data["notices"])


@verb("show")
@click.argument("entry", metavar="ID")
@click.pass_obj
def memory_show_command(request: Request, entry: str) -> None:
    """Show an entry whole, or what counts in its place.

    Its evidence, who said it, and what came before it.
    Of an entry that both stores have, say which: project:MEM-0042 or user:MEM-0042.

    \b
    Example:
      perdure memory show MEM-0042
    """
    data = memory_of(request).show(entry)
    found = data["entry"]
    lines = _entry_lines(found)
    if data["superseded"]:
        lines += field("asked for", f"{data['asked']}, in whose place this one counts")
    lines += fields("evidence", found["evidence"])
    lines += field("since", f"{found['created']} by {found['by'] or 'somebody'}")
    lines += field("freshness", found["freshness"])
    before = [one for one in data["chain"] if one["ref"] != found["ref"]]
    lines += fields("before", [f"{one['id']}: {one['statement']}" for one in before])
    respond(request, data, lines + fields("note", data["notices"]))


@verb("proposals")
@click.pass_obj
def memory_proposals_command(request: Request) -> None:
    """List what the archived task proposed, and how to add it.

    \b
    Example:
      perdure memory proposals
    """
    data = memory_of(request).proposals()
    lines = []
    for one in data["proposals"]:
        taken = " (added)" if one["added"] else ""
        lines.append(f"{one['id']} {one['kind']}, {one['scope']}{taken}")
        lines.append(f"  {plain(one['statement'], None)}")
        lines += [] if one["added"] else field("then", one["then"])
    respond(request, data, lines or [f"task {data['task_id']} has proposed nothing"])


def _entry_lines(entry: Data) -> list[str]:
    flags = f" [{', '.join(entry['flags'])}]" if entry["flags"] else ""
    lines = [f"{entry['ref']} {entry['kind']}, {plain(entry['scope'])}{flags}"]
    lines.append(f"  {plain(entry['statement'], None)}")
    return lines + fields("mind", entry["mind"])


for _command in (
    memory_add_command, memory_search_command, memory_show_command, memory_supersede_command,
    memory_due_command, memory_proposals_command,
):  # fmt: skip
    memory_command.add_command(_command)
memory_command.params += common_options(writes=True)
