"""Rendering: the envelope for programs, calm text for people and agents, errors, exit codes.

Job: the only place that writes to standard output and standard error. Invariants: ``--json``
prints exactly one object on one stream; text that others wrote cannot move the cursor or forge a
line; nothing is coloured. It decides nothing.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from perdure.core.codec import to_json
from perdure.errors import HaltError
from perdure.interfaces.cli.request import Data, Request

SCHEMA_VERSION: Final = 1
line_chars_max: Final = 200
label_chars: Final = 10
questions_max: Final = 8
"""Open questions that are listed where they are not what was asked for."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(value: object, most: int | None = line_chars_max) -> str:
    """The value as one line of harmless text, at most this long."""
    text = _CONTROL.sub(_shown, " ".join(str(value).split()))
    return text if most is None or len(text) <= most else f"{text[: most - 3]}..."


def quoted(name: str) -> str:
    """A name of others as it can be told from every other one: as it is, or as JSON with escapes.

    Cut like any text of others when it is very long.
    """
    if name and plain(name, None) == name:
        return plain(name)
    return plain(json.dumps(name))


def _shown(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


def is_terminal(request: Request) -> bool:
    """Whether standard output is a terminal on which a line can be drawn anew."""
    return sys.stdout.isatty() and request.environ.get("TERM") != "dumb"


def write_line(text: str = "") -> None:
    """One line on standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_json(value: object) -> None:
    """One JSON object on one line of standard output, at once."""
    write_line(to_json(value).decode())


def respond(request: Request, data: object, lines: Iterable[str]) -> None:
    """Answer a call: the envelope with ``data``, or the lines of text."""
    if request.json:
        write_json({"schema_version": SCHEMA_VERSION, "data": data})
        return
    for line in lines:
        write_line(line)


def acknowledge(request: Request, data: Data, lines: Iterable[str] = ()) -> None:
    """Answer a writing call: what happened, then the acknowledgement. The call has returned."""
    respond(request, data, [*lines, *acknowledgement(data)])


def acknowledgement(data: Data) -> list[str]:
    """``committed J-n``, ``queued ID``, or nothing where nothing was committed; what was masked."""
    masked = [f"masked {name} ({count})" for name, count in (data.get("masked") or {}).items()]
    if data.get("queued"):
        return [*masked, f"queued {data['id']} (the coordinator takes it in within a second)"]
    if not data.get("committed"):
        return ["nothing new to commit"]
    again = " (already, nothing was written now)" if data.get("repeated") else ""
    return [*masked, f"committed {data['committed']}{again}"]


def report_error(error: HaltError, *, as_json: bool) -> int:
    """Say on standard error what was refused and how to put it right; returns the exit code."""
    if as_json:
        envelope = {"schema_version": SCHEMA_VERSION, "error": error.as_dict()}
        text = to_json(envelope).decode()
    else:
        text = "\n".join(error_lines(error))
    with contextlib.suppress(OSError):  # the exit code is left when the terminal is gone
        sys.stdout.flush()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    return error.exit_code


def error_lines(error: HaltError) -> list[str]:
    """Code, rule, message, near misses and fix as text."""
    label = f"{error.code} ({error.rule})" if error.rule else error.code
    message = error.message.splitlines() or [""]
    lines = [f"perdure: {label}: {plain(message[0], None)}"]
    lines += [f"  {plain(line, None)}" for line in message[1:]]
    if error.suggestions:
        lines.append(f"  did you mean {', '.join(map(plain, error.suggestions))}?")
    if error.fix:
        lines.append(f"  fix: {plain(error.fix, None)}")
    return lines


def field(label: str, value: object, most: int | None = line_chars_max) -> list[str]:
    """An aligned ``label value`` line; none where there is no value."""
    text = plain(value, most) if value not in (None, "") else ""
    return [f"  {label:<{label_chars}} {text}"] if text else []


def fields(label: str, values: Sequence[str]) -> list[str]:
    """A line for each value, with the label on the first."""
    labels = [label, *[""] * max(0, len(values) - 1)]
    return [
        line for name, value in zip(labels, values, strict=False) for line in field(name, value)
    ]


def counted(number: int, noun: str) -> str:
    """So many of them, as in ``1 unit`` and ``3 units``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Sequence[str], most: int = 5, total: int | None = None) -> str:
    """The first few names, and how many more there are."""
    left = (len(names) if total is None else total) - min(len(names), most)
    shown = ", ".join(names[:most])
    return f"{shown} and {left} more" if left > 0 else shown


def asked(questions: Mapping[str, str]) -> list[str]:
    """Lines for the first few open questions, and how many more there are."""
    rows = [f"{name}: {text}" for name, text in list(questions.items())[:questions_max]]
    left = len(questions) - len(rows)
    return [*rows, f"and {left} more: perdure inbox"] if left else rows


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns; the last one is free."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def record(data: Mapping[str, Any], indent: int = 0) -> list[str]:
    """A record legibly: one line a field, nested ones indented, empty ones left out."""
    lines = []
    pad = "  " * indent
    for key, value in data.items():
        if value in (None, "", [], {}, ()):
            continue
        if isinstance(value, Mapping):
            lines += [f"{pad}{plain(key)}:", *record(value, indent + 1)]
        elif isinstance(value, list | tuple):
            lines += _items(plain(key), value, indent)
        elif isinstance(value, str) and "\n" in value.strip():
            lines.append(f"{pad}{plain(key)}:")
            lines += [f"{pad}  {plain(line, None)}" for line in value.strip().splitlines()]
        else:
            lines.append(f"{pad}{plain(key)}: {plain(_word(value), None)}")
    return lines


def _items(key: str, values: Sequence[Any], indent: int) -> list[str]:
    pad = "  " * indent
    if not any(isinstance(value, Mapping | list) for value in values):
        joined = ", ".join(plain(_word(value), None) for value in values)
        if len(joined) + len(key) < line_chars_max // 2:
            return [f"{pad}{key}: {joined}"]
        return [f"{pad}{key}:", *(f"{pad}  - {plain(_word(value), None)}" for value in values)]
    lines = [f"{pad}{key}:"]
    for value in values:
        inner = record(value, indent + 2) if isinstance(value, Mapping) else [plain(value)]
        inner = inner or [""]
        lines.append(f"{pad}  - {inner[0].strip()}")
        lines += inner[1:]
    return lines


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
