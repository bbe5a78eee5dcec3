"""``map``: a command for each of many items, each item exactly once.

Job: parse, signals, progress and the summary. Invariants: everything behind ``--`` belongs to the
command of the items; a signal asks the loop to finish what is at work; that nobody reads the output
any more does not stop it.
"""

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator

import click

from perdure.core.batch import unit_attempts_max, units_workers_max
from perdure.core.model import ITEMS_FORMATS, ItemsFormat
from perdure.errors import UsageError
from perdure.interfaces.cli.map_progress import show_for
from perdure.interfaces.cli.output import field, fields, is_terminal, plain, respond, some
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.signals import signals_to_the_loop
from perdure.interfaces.cli.verb import verb
from perdure.service.maps import attempts_default, plan_map, run_map

_shown = 5
_read_bytes = 1 << 20


@verb("map")
@click.argument("command", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@click.option("--job", metavar="DIR", required=True,
              help="The job's directory; made when there is none.")  # fmt: skip
@click.option("--items", metavar="FILE",
              help="The items, one a line; - is standard input.")  # fmt: skip
@click.option("--glob", "pattern", metavar="PATTERN",
              help="The files it names are the items; ** is any depth. Quote it.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(ITEMS_FORMATS),
              help="How FILE is written; else by its ending, else lines.")  # fmt: skip
@click.option("--key", metavar="FIELD",
              help="The field of a JSONL or CSV item that names it.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, units_workers_max), metavar="N",
              help="Commands at once; else one for each processor.")  # fmt: skip
@click.option("--max-attempts", type=click.IntRange(1, unit_attempts_max), metavar="N",
              default=attempts_default, show_default=True,
              help="How often an item may fail, counted over all runs.")  # fmt: skip
@click.option("--timeout", metavar="DURATION",
              help="How long one attempt may take, as in 90s or 10m; else no limit.")  # fmt: skip
@click.option("--retry-wait", metavar="DURATION", default="1s", show_default=True,
              help="The wait before failed items are tried again; doubled each time.")  # fmt: skip
@click.option("--name", metavar="NAME", help="The job's name; else that of its directory.")
@click.pass_obj
def map_command(
    request: Request,
    *,
    command: tuple[str, ...],
    job: str,
    items: str | None,
    pattern: str | None,
    form: ItemsFormat | None,
    key: str | None,
    workers: int | None,
    max_attempts: int,
    timeout: str | None,
    retry_wait: str,
    name: str | None,
) -> int:
    """Run a command for each of many items, each exactly once.

    After any interruption the same line goes on: what is done is not done again, what failed is
    tried first. {} in CMD is the item, {field} a field of a JSONL or CSV item; without any of them
    the item comes on standard input. There is no shell. What CMD prints, JSON or text, is the
    finding: one synced line of DIR/findings.jsonl. An exit code other than 0 is a failure.

    All items are read and checked before anything runs. One Ctrl-C finishes what is at work, a
    second one kills it. Exits 0 when all items are done, 1 when some failed, 5 while somebody else
    works on the job, 128 plus its number after a signal. Paths are relative to the current
    directory, whatever -C says. With --json each event is a line of JSON, and the report comes
    last.

    \b
    Example:
      perdure map --job data/jobs/pages --items urls.txt --workers 8 -- curl -sSf {}
      perdure map --job data/jobs/sizes --glob 'texts/**/*.md' -- wc -c {}
    """
    piped = items if items is not None and _is_pipe(items) else None
    plan = plan_map(
        command,
        directory=job,
        start_dir=request.start_dir,
        items=items if piped is None else "-",
        glob=pattern,
        form=form,
        key=key,
        name=name,
        workers=workers,
        max_attempts=max_attempts,
        timeout=timeout,
        retry_wait=retry_wait,
        stdin=_standard_input() if piped is None else _pieces(piped),
    )
    with signals_to_the_loop() as on_loop:
        show = show_for(request.json, terminal=is_terminal(request))
        try:
            data = run_map(plan, emit=show.event, on_loop=on_loop)
        finally:
            show.close()
    if not show.broken:
        with contextlib.suppress(OSError):  # nobody reads it: the exit code says how it went
            respond(request, data, _summary(job, data))
    code: int = data["exit_code"]
    return code


# What stands behind the first word of CMD is its own, also without `--`.
map_command.allow_interspersed_args = False


def _standard_input() -> Iterable[bytes]:
    """What comes on standard input, when somebody asks for it."""
    if sys.stdin is None:
        raise UsageError("standard input is closed.", fix="Name a file with --items.")
    while piece := os.read(sys.stdin.fileno(), _read_bytes):
        yield piece


def _is_pipe(path: str) -> bool:
    """Whether it is what a shell makes of ``<(COMMAND)``, or a named pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _pieces(path: str) -> Iterator[bytes]:
    """What comes through a pipe, read once."""
    with open(path, "rb", buffering=0) as pipe:
        while piece := pipe.read(_read_bytes):
            yield piece


_OUTCOMES = {
    "finished": "all done",
    "incomplete": "some failed",
    "interrupted": "interrupted",
}


def _summary(job: str, data: Data) -> list[str]:
    now = f" ({data['processed']:,} now)" if data["processed"] != data["done"] else ""
    failed = f", {data['failed']:,} failed" if data["failed"] else ""
    counted = f"{data['done']:,} of {data['total']:,} items done{now}{failed}"
    lines = [f"{_OUTCOMES.get(data['outcome'], data['outcome'])}: {counted}"]
    if not data["total"]:
        lines = ["nothing to do: there are no items"]
    lines += fields("duplicates", _duplicates(data))
    if data["changed"]:
        names = some([plain(key, 60) for key in data["changed"]], _shown, data["changed_count"])
        lines += field("changed", f"done with other content, and not run again: {names}", None)
    if data["absent"]:
        names = some([plain(key, 60) for key in data["absent"]], _shown, data["absent_count"])
        lines += field("absent", f"failed, and not among these items: {names}", None)
    if data["interrupted"]:
        lines += field("stopped", f"{data['interrupted']:,} at work, to be run again")
    lines += field("summary", data["summary"], None)
    return lines + fields("then", _commands(job, data))


def _duplicates(data: Data) -> list[str]:
    """The lines that were left out, the first few by name."""
    lines = [
        f"{plain(entry['key'], 60)} in line {entry['line']}, as in line {entry['first']}"
        + ("" if entry["same"] else "; the rest of the line differs and was not used")
        for entry in data["duplicates"][:_shown]
    ]
    left = data["duplicate_count"] - len(lines)
    return [*lines, f"and {left:,} more"] if left > 0 else lines


def _commands(job: str, data: Data) -> list[str]:
    """What a person can do about it now."""
    commands = []
    if data["failed"]:
        commands.append(f"perdure job errors {shlex.quote(job)}   (what failed, and why)")
    if data["exhausted"]:
        commands.append(
            f"perdure job retry {shlex.quote(job)}   (new attempts; then the same line again)"
        )
    if data["outcome"] == "interrupted":
        commands.append("run the same line again; it goes on from here")
    return commands
