"""``run``: drive a task file and show how it goes.

Job: signals, progress and the summary. Invariants: a signal asks the run to stop at a commit
boundary; every event is printed as it happens; that nobody reads the output any more does not
stop the work.
"""

from collections.abc import Callable
from functools import partial

import click

from perdure.interfaces.cli.output import asked, field, fields, is_terminal, respond, some
from perdure.interfaces.cli.progress import answer_lines, show_for
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.signals import signals_to_the_loop
from perdure.interfaces.cli.verb import verb
from perdure.service.runs import run_file


@verb("run")
@click.argument("file")
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Commands at once; else one for each processor.")  # fmt: skip
@click.option("--wait", is_flag=True,
              help="Stay while a person is asked, and go on with the answer.")  # fmt: skip
@click.pass_obj
def run_command(request: Request, file: str, jobs: int | None, wait: bool) -> int:
    """Drive a task file; after any interruption the same line goes on.

    The file is validated whole before anything runs. What a crash left is recovered first, also
    processes that it left running; finished work is not done again. One Ctrl-C stops at a commit
    boundary, a second one at once. Exits 0 finished, 10 a person is needed, 1 failed, 128 plus
    its number after a signal. The task is made in the nearest .perdure above FILE, or a new one
    beside it, or where -C or PERDURE_WORKSPACE says. With --json each event is a line of JSON, and
    the report comes last.

    \b
    Example:
      perdure run task.yaml --jobs 4
    """
    return drive(request, partial(run_file, file), summary_lines, jobs=jobs, wait=wait)


def drive(
    request: Request,
    run: Callable[..., Data],
    lines_of: Callable[[Request, Data], list[str]],
    *,
    jobs: int | None,
    wait: bool,
) -> int:
    """Let ``run`` drive a task under signals, show how it goes, and respond; the exit code.

    ``run`` gets where the request means, who asks, ``jobs`` and ``wait``, and what it reports to.
    """
    show = show_for(request.json, terminal=is_terminal(request))
    with signals_to_the_loop() as on_loop:
        try:
            data = run(
                directory=request.directory,
                start_dir=request.start_dir,
                environ=request.environ,
                jobs=jobs,
                actor=request.actor,
                emit=show.event,
                on_loop=on_loop,
                wait=wait,
            )
        finally:
            show.close()
    if not show.broken:
        respond(request, data, lines_of(request, data))
    code: int = data["exit_code"]
    return code


_OUTCOMES = {
    "finished": "finished",
    "needs_person": "a person is needed",
    "failed": "failed",
    "paused": "paused",
    "interrupted": "interrupted",
}


def summary_lines(request: Request, data: Data) -> list[str]:
    """How a run went, and what can be done now."""
    counts = ", ".join(f"{count} {state}" for state, count in data["counts"].items())
    lines = [f"{_OUTCOMES.get(data['outcome'], data['outcome'])}: {counts or 'no nodes'}"]
    lines += fields("questions", asked(data["questions"]))
    lines += field("waiting", some(data["waiting"]))
    if data.get("halted"):
        lines += field("halted", f"{data['halted']}; run again once that is over")
    lines += field("failed", some(data["failed"]))
    lines += field("damaged", some(data["damaged"]))
    lines += field("workspace", data["workspace"], None)
    return lines + fields("then", _commands(request, data))


def _commands(request: Request, data: Data) -> list[str]:
    """What a person can do about it now."""
    perdure = f"perdure -C {request.directory}" if request.directory else "perdure"
    if data["outcome"] in ("paused", "interrupted"):
        return ["run the same line again; it goes on from here"]
    if data["outcome"] == "finished":
        return []
    commands = []
    if data["questions"]:
        first, *more = data["questions"]
        also = f"; {len(more)} more wait" if len(more) else ""
        commands.append(f"{perdure} show {first}   (what it is about{also})")
        consent = first in data.get("consents", ())
        answers = answer_lines(first, data["kinds"][first], consent=consent)
        commands += [f"{perdure} {line}" for line in answers]
    for item in data["with_people"]:
        commands.append(f"{item['then'].replace('perdure', perdure, 1)}   ({item['why']})")
    if data["by_hand"]:
        commands.append(f"{perdure} next   (work for a person or an agent)")
    if data["damaged"]:
        commands.append(f"{perdure} verify   (which files are not what was registered)")
    if data["failed"]:
        commands.append(f"{perdure} show {data['failed'][0]}   (why it failed)")
    return [*commands, f"{perdure} status"]
