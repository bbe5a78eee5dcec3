"""``sop``: see, check and run procedures that somebody wrote down as cards.

Job: parse, call the service, render. Invariants: list, show and check write nothing and take no
lock; run is a task like any other, and the same line goes on after an interruption.
"""

import json
from functools import partial

import click

from perdure.core.codec import to_json
from perdure.errors import UsageError
from perdure.interfaces.cli.output import (
    counted,
    field,
    fields,
    plain,
    quoted,
    respond,
    table,
)
from perdure.interfaces.cli.request import Data, Request, common_options
from perdure.interfaces.cli.run import drive, summary_lines
from perdure.interfaces.cli.verb import verb
from perdure.service import sops
from perdure.service.instances import run_card


@click.group("sop", no_args_is_help=False)
def sop_command() -> None:
    """List, show, check or run a procedure that is written down as a card.

    A card is a YAML file: typed inputs, phases of work, what comes out, how it is checked, and a
    way out for each kind of failure. Cards are looked for in sops/ of the workspace, in sops/ of
    the nearest .perdure, and among those that come with perdure.

    \b
    Example:
      perdure sop run perdure.batch-extraction documents='docs/*.md'
    """


@verb("list")
@click.pass_obj
def sop_list_command(request: Request) -> None:
    """List the cards that can be named from here.

    The first place that has a version of a card wins. A card that does not validate is listed with
    the reason. Writes nothing; takes no lock.

    \b
    Example:
      perdure sop list
    """
    data = sops.list_of(request.directory, request.start_dir, request.environ)
    rows = [
        (card["sop_id"], card["version"], _place(card), plain(card["title"]))
        for card in data["cards"]
    ]
    lines = table(rows) or ["no cards"]
    for problem in data["problems"]:
        lines += [f"{quoted(problem['path'])} cannot be used:"]
        lines += [f"  {plain(line, None)}" for line in problem["error"]["message"].splitlines()]
    respond(request, data, lines)


def _place(card: Data) -> str:
    place = "shipped" if card["place"] == "shipped" else quoted(card["path"])
    return f"{place} (hidden)" if card["hidden"] else place


@verb("show")
@click.argument("card")
@click.option("--version", "version", default="", metavar="V",
              help="1.2.0, or 1.2 or 1 for the newest of those; else the newest.")  # fmt: skip
@click.pass_obj
def sop_show_command(request: Request, card: str, version: str) -> None:
    """Show what a card takes, what it does and what comes out.

    CARD is an id, or the path of a card. Writes nothing; takes no lock.

    \b
    Example:
      perdure sop show perdure.review-and-revise
    """
    data = sops.show_of(card, version, request.directory, request.start_dir, request.environ)
    respond(request, data, _card_lines(data))


@verb("check")
@click.argument("card")
@click.option("--version", "version", default="", metavar="V",
              help="1.2.0, or 1.2 or 1 for the newest of those; else the newest.")  # fmt: skip
@click.pass_obj
def sop_check_command(request: Request, card: str, version: str) -> None:
    """Validate a card whole, with every problem and its place.

    CARD is the path of a card, or an id. Exits 0 when it can be run, 2 with what is wrong. Writes
    nothing; takes no lock.

    \b
    Example:
      perdure sop check sops/survey.yaml
    """
    data = sops.check_of(card, version, request.directory, request.start_dir, request.environ)
    nodes = sum(len(phase["nodes"]) for phase in data["phases"])
    name, phases = f"{data['sop_id']} {data['version']}", len(data["phases"])
    size = f"{counted(nodes, 'node')} in {counted(phases, 'phase')}"
    respond(request, data, [f"{name} is good: {size}"])


@verb("run")
@click.argument("card")
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--inputs", "inputs_file", metavar="FILE",
              help="A JSON object of inputs; NAME=VALUE wins over it.")  # fmt: skip
@click.option("--version", "version", default="", metavar="V",
              help="1.2.0, or 1.2 or 1 for the newest of those; else the newest.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Commands at once; else one for each processor.")  # fmt: skip
@click.option("--wait", is_flag=True,
              help="Stay while a person is asked, and go on with the answer.")  # fmt: skip
@click.pass_obj
def sop_run_command(
    request: Request,
    *,
    card: str,
    inputs: tuple[str, ...],
    inputs_file: str | None,
    version: str,
    jobs: int | None,
    wait: bool,
) -> int:
    """Run a procedure; after any interruption the same line goes on.

    The inputs are checked before anything is created. A value that is no text is JSON; relative
    paths count from the current directory. The instance gets a workspace in the nearest .perdure,
    or where -C says, with its own copy of the card, and ends with a result in result.json. Exits
    as perdure run: 0 finished, 10 a person is needed, 1 failed.

    \b
    Example:
      perdure sop run perdure.batch-extraction documents='docs/*.md' shard=5
    """
    values = _inputs_of(inputs_file) if inputs_file else {}
    run = partial(run_card, card, inputs, version=version, inputs=values)
    return drive(request, run, _run_lines, jobs=jobs, wait=wait)


def _run_lines(request: Request, data: Data) -> list[str]:
    return [*summary_lines(request, data), *_result_lines(data)]


for _command in (sop_list_command, sop_show_command, sop_check_command, sop_run_command):
    sop_command.add_command(_command)
sop_command.params += common_options()


def _inputs_of(path: str) -> Data:
    """The inputs of a JSON file. Raises UsageError ``sop_inputs``."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the inputs in {path} cannot be read: {error}.",
            code="sop_inputs",
            fix="Name a file that holds one JSON object.",
        ) from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{path} does not hold a JSON object.",
            code="sop_inputs",
            fix='Write {"NAME": VALUE, ...}.',
        )
    return found


def _card_lines(data: Data) -> list[str]:
    lines = [f"{data['sop_id']} {data['version']}: {plain(data['title'])}"]
    lines += field("purpose", data["purpose"], None)
    for one in data["inputs"]:
        lines += field("input", _input_text(one), None)
    lines += fields("output", [f"{one['name']}: {one['path']}" for one in data["outputs"]])
    for phase in data["phases"]:
        lines += field("phase", f"{phase['phase']}: {', '.join(phase['nodes']) or 'no nodes'}")
    lines += field("effects", ", ".join(data["side_effects"]))
    lines += field("grants", ", ".join(data["grants"]))
    lines += fields("failure", [f"{event}: {to}" for event, to in data["escalation"].items()])
    return [*lines, *field("card", data["path"], None), *field("sha256", data["sha256"])]


def _input_text(one: Data) -> str:
    schema = one["schema"]
    kind = schema if isinstance(schema, str) else to_json(schema).decode()
    text = f"{one['name']} ({kind})"
    if one["required"]:
        text += ", required"
    elif "default" in one:
        text += f", else {to_json(one['default']).decode()}"
    return f"{text}: {one['about']}" if one.get("about") else text


def _result_lines(data: Data) -> list[str]:
    result = data.get("result") or {}
    lines = field("result", result.get("status"))
    made = [one for one in result.get("artifacts") or [] if "path" in one]
    return [*lines, *fields("output", [f"{one['name']}: {one['path']}" for one in made])]
