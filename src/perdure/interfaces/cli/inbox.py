"""The inbox: what waits for people, and how far what they said has come.

Job: parse, call the service, render. Invariants: looking writes nothing, ever; an entry has a
ceiling in text, and says where the rest of it is; ``--json`` cuts nothing.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

import click

from perdure.core.package_words import package_words, silence_words
from perdure.interfaces.cli.output import counted, field, label_chars, plain, respond
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb

columns: Final = 100
asked_rows_max: Final = 8
"""Rows of a question's own text."""
part_rows_max: Final = 5
"""Rows of any other text of an entry."""
nodes_max: Final = 5
"""Nodes at which an instruction is applied that are listed."""
items_max: Final = 10
"""Rows of a list in an entry."""
item_chars_max: Final = 150

_LABELS: Final = {
    "context": "context",
    "consequences": "means",
    "rubric": "rubric",
    "scope": "scope",
    "disk": "wrong",
    "last_ruling": "last time",
    "rounds": "rounds",
    "signatures": "tried",
    "disk_facts": "on disk",
    "changes": "changed",
    "links": "links",
    "options": "options",
}


@verb("inbox")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, metavar="N",
              help="How many questions and how many instructions to list.")  # fmt: skip
@click.option("--after", metavar="REF", help="Go on with the questions behind this event.")
@click.option("--before", metavar="REF", help="Go on with the instructions before this event.")
@click.pass_obj
def inbox_command(request: Request, limit: int, after: str | None, before: str | None) -> None:
    """List what waits for people, and how far their instructions came.

    A question comes with what ruling on it takes and with the commands that settle it, an
    instruction with its stages: accepted, delivered, acknowledged, applied, reached. Long texts
    are cut; `perdure show ID` and --json have them whole. Writes nothing.

    \b
    Example:
      perdure inbox
      perdure approve G-publish
    """
    data = request.service().inbox(limit=limit, after=after, before=before, whole=request.json)
    respond(request, data, _inbox_lines(data, after=after, before=before))


def _inbox_lines(data: Data, *, after: str | None, before: str | None) -> list[str]:
    lines = []
    if before is None:
        lines += _questions(data)
    if after is None and before is None:
        lines += _with_people(data["with_people"])
        lines += _not_on_record(data)
    if after is None:
        lines += _instructions(data)
    for entry in data["proposals"]:
        lines += ["", f"proposal: {plain(entry['proposal'])}"]
        lines += _rows("because", entry["signs"])
        lines += _rows("then", entry["commands"])
    return lines


# Questions


def _questions(data: Data) -> list[str]:
    total, shown = data["questions_total"], len(data["questions"])
    if not total:
        return ["no question is open"]
    late = f", {len(data['overdue'])} overdue" if data["overdue"] else ""
    some = f" ({shown} of them here)" if shown < total else ""
    lines = [f"{counted(total, 'open question')}{late}{some}"]
    for entry in data["questions"]:
        lines += _question(entry)
    if data["next"]:
        lines += ["", f"more questions: perdure inbox --after {data['next']}"]
    return lines


def _question(entry: Data) -> list[str]:
    name = plain(entry["id"])
    about = f" about {plain(entry['node'])}" if entry["node"] else ""
    late = ", overdue" if entry["overdue"] else ""
    lines = ["", f"{name}: {entry['kind']}{about}, for the {plain(entry['for'])}{late}"]
    lines += _text("asks", entry["question"], name, asked_rows_max)
    parts = dict(package_words(entry["package"]))
    for part, rows in parts.items():
        if len(rows) == 1:
            lines += _text(_LABELS[part], rows[0], name)
        else:
            lines += _list(_LABELS[part], rows, name)
    lines += _list("files", list(entry["files"]), name)
    if "options" not in parts:
        options = [text for text in entry["options"] if text not in _RULINGS]
        lines += _list("options", options, name)
    if entry["expires_at"]:
        lines += field("due", entry["expires_at"])
    lines += _text("unanswered", silence_words(entry["default"]), name)
    lines += field("asked", f"{entry['asked']} by {entry['asked_by']}")
    return lines + _rows("then", entry["commands"])


_RULINGS: Final = ("approve", "revise", "reject")


def _with_people(waiting: Sequence[Data]) -> list[str]:
    """Work and verdicts that people have in hand, each with the command that ends it."""
    if not waiting:
        return []
    lines = ["", f"{counted(len(waiting), 'node')} with people"]
    for item in waiting[:nodes_max]:
        lines += field(plain(item["node"], label_chars), item["why"]) + field("", item["then"])
    return lines + _more(len(waiting) - nodes_max)


# Instructions


def _not_on_record(data: Data) -> list[str]:
    """What has been sent, written and asked for, and is not in the journal."""
    lines = []
    for entry in data["requests"]:
        lines += ["", "the supervisor asks the owner"]
        lines += _text("because", entry["reason"], "")
        lines += _text("wants", entry["next_action"], "")
        lines += field("then", f"perdure reply LETTER --resume-token {entry['token']}", None)
    accepted = data["accepted"]
    if accepted:
        lines += ["", f"{counted(len(accepted), 'message')} accepted, not taken in yet"]
        for entry in accepted[:nodes_max]:
            said = f": {entry['text']}" if entry["text"] else ""
            lines += field(plain(entry["command"], label_chars), f"{entry['id']}{said}")
        lines += _more(len(accepted) - nodes_max)
    for path in data["written"]:
        lines += ["", f"written into {plain(path)}, not taken in yet"]
    for entry in data["damaged"]:
        lines += ["", f"no message, to be set aside: {plain(entry['file'])}"]
        lines += field("because", entry["reason"])
    return lines


def _more(left: int) -> list[str]:
    return field("", f"and {left} more") if left > 0 else []


def _instructions(data: Data) -> list[str]:
    total, shown = data["steering_total"], len(data["steering"])
    if not total:
        return []
    waiting = f", {len(data['pending'])} not acted on yet" if data["pending"] else ""
    some = f" ({shown} of them here)" if shown < total else ""
    lines = ["", f"{counted(total, 'instruction')}{waiting}{some}"]
    for entry in data["steering"]:
        lines += _stages(entry)
    if data["earlier"]:
        lines += ["", f"earlier ones: perdure inbox --before {data['earlier']}"]
    return lines


def _stages(entry: Data) -> list[str]:
    name = plain(entry["id"])
    again = " (said again)" if entry["provenance"] != "original" else ""
    lines = ["", f"{name}: {entry['stage']}{again}"]
    lines += _text("says", entry["text"], name)
    lines += field("logged", f"{entry['delivered']}, from {entry['source']}")
    if entry["acknowledged"]:
        lines += field("read as", f"{entry['reading']}, acknowledged in {entry['acknowledged']}")
    lines += field("same as", entry["same_as"])
    applied, reached = entry["applied"], entry["reached"]
    rows = [
        f"{node}: {how}{_reached(reached.get(node), entry['acknowledged'])}"
        for node, how in list(applied.items())[:nodes_max]
    ]
    lines += _rows("applied", rows)
    return lines + _more(len(applied) - nodes_max)


def _reached(ref: str | None, acknowledged: str | None) -> str:
    if ref is None:
        return "; no work has started under it yet"
    return "" if ref == acknowledged else f"; at work under it since {ref}"


# Rows


def _text(label: str, text: str, name: str, most: int = part_rows_max) -> list[str]:
    """A text of others in at most so many rows, its own lines kept; where the rest of it is."""
    width = columns - label_chars - 3
    rows: list[str] = []
    for line in text[: (most + 1) * width].split("\n"):
        rows += wrap(plain(line, None), width, break_on_hyphens=False)
    if len(rows) > most or len(text) > (most + 1) * width:
        rows = [*rows[:most], f"... (perdure show {name})" if name else "..."]
    return _rows(label, rows)


def _list(label: str, rows: Sequence[str], name: str) -> list[str]:
    """The first rows of a list, and where the rest of them is."""
    left = len(rows) - items_max
    more = [f"and {left} more (perdure show {name})"] if left > 0 else []
    return _rows(label, [*(plain(row, item_chars_max) for row in rows[:items_max]), *more])


def _rows(label: str, rows: Sequence[str]) -> list[str]:
    """A line for each row, with the label on the first."""
    labels = [label, *[""] * len(rows)]
    return [line for name, row in zip(labels, rows, strict=False) for line in field(name, row)]
