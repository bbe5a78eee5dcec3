"""Figures of a task, as text, JSON or a picture.

Job: call, render. Invariants: it changes nothing in the workspace.
"""

import os
from typing import Final

import click

from perdure.interfaces.cli.output import field, fields, plain, respond, table
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.service.stats import task_stats, write_plot
from perdure.service.tasks import locate

_LABELS: Final = {
    "work": "at work", "verifying": "verifying", "people": "waiting for people",
    "interrupted": "interrupted", "queued": "ready, not started", "blocked": "blocked",
}  # fmt: skip


@verb("stats")
@click.option("--by", type=click.Choice(["node", "class", "day"]), help="A row for each of these.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, help="Rows at a time.")
@click.option("--after", metavar="ROW", help="Go on after this node, class or day.")
@click.option("--svg", metavar="FILE", help="Draw it to FILE as well; takes the extra `plot`.")
@click.pass_obj
def stats_command(
    request: Request, by: str | None, limit: int, after: str | None, svg: str | None
) -> None:
    """Say where the time went, what failed, and what it cost.

    Counted from the journal, from its first event to its last: time at work, in verification and
    waiting for people, attempts, interruptions, failures and deaths by class, questions and how
    long they waited, tokens and cost, the slowest nodes and the critical path. Changes nothing.

    \b
    Example:
      perdure stats
      perdure stats --by node --limit 50
      perdure stats --svg stats.svg
    """
    workspace = locate(request.directory, request.start_dir, request.environ)
    data = task_stats(workspace, actor=request.actor, by=by, limit=limit, after=after)
    lines = _rows(data) if by else _summary(data)
    steps = data["clock"]["steps_back"]
    note = f"the clock stepped back {steps} times, by {data['clock']['most_s']} s at most"
    lines += field("note", f"{note}; no time is counted for that" if steps else "")
    if svg is not None:
        target = os.path.abspath(os.path.join(request.start_dir, svg))
        data |= write_plot(workspace, target, actor=request.actor)
        lines += field("svg", data["svg"], None)
    respond(request, data, lines)


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, smaller, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller} {part}"
    return f"{whole // 60} min {whole % 60} s"


def _summary(data: Data) -> list[str]:
    counts = ", ".join(f"{count} {state}" for state, count in sorted(data["nodes"].items()))
    lines = [f"{plain(data['task_id'])}: {data['events']} events in {duration(data['wall_s'])}"]
    lines += field("nodes", counts)
    lines += fields(
        "time", [f"{_LABELS[name]} {duration(s)}" for name, s in data["time_s"].items() if s]
    )
    tries = f"{data['attempts']} attempts, {data['retries']} retries"
    lines += field("attempts", f"{tries}, {data['interruptions']} interrupted")
    lines += fields("failed", [_failure(row) for row in data["failures"]])
    asked = data["questions"]
    if asked["asked"]:
        text = f"{asked['asked']} asked, {asked['answered']} answered, {asked['open']} open"
        if asked["median_s"] is not None:
            text += f"; answered after {duration(asked['median_s'])} (median)"
            text += f", {duration(asked['longest_s'])} at most"
        lines += field("questions", text)
    lines += field("used", _usage(data["usage"]))
    rate = data["per_hour"]
    if rate["events"] is not None:
        lines += field("per hour", f"{rate['nodes_done']} nodes done, {rate['events']} events")
    path = data["critical_path"]
    if path["length"] > 1:
        names = [plain(name) for name in path["nodes"][-8:]]
        more = f"{path['length'] - len(names)} more, then " if path["length"] > len(names) else ""
        took = duration(path["busy_s"])
        lines += field("path", f"{more}{' > '.join(names)} ({took} at work)", None)
    lines += ["slowest", *_indented(_nodes(data["slowest"][:5]))] if data["slowest"] else []
    return lines


def _failure(row: Data) -> str:
    causes = ", ".join(f"{plain(name)} {count}" for name, count in row["causes"].items())
    deaths = f", {row['deaths']} deaths ({causes})" if row["deaths"] else ""
    lost = f", {duration(row['lost_s'])} of work" if row["lost_s"] else ""
    return f"{plain(row['class'])}: {row['failures']} failures{deaths}{lost}"


def _usage(used: Data) -> str:
    parts = [
        f"{used[name]:,} {words}"
        for name, words in (("tokens", "tokens"), ("tool_calls", "tool calls"))
        if used[name] is not None
    ]
    if used["cost_usd"] is not None:
        parts.append(f"{used['cost_usd']:.2f} USD")
    return ", ".join(parts)


def _rows(data: Data) -> list[str]:
    made = {"node": _nodes, "class": _classes, "day": _days}[data["by"]](data["rows"])
    if data["next"]:
        made.append(f"more: perdure stats --by {data['by']} --after {plain(data['next'])}")
    return made or [f"there is no {data['by']} to tell of"]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _nodes(rows: list[Data]) -> list[str]:
    cells = [["node", "state", "at work", "verifying", "people", "tries", "used"]]
    for row in rows:
        spent = [duration(row["time_s"].get(name)) for name in ("work", "verifying", "people")]
        tries = str(row["attempts"]) + (f" ({row['retries']} failed)" if row["retries"] else "")
        cells.append([plain(row["node"]), row["state"], *spent, tries, _usage(row["usage"])])
    return [line.rstrip() for line in table(cells)] if rows else []


def _classes(rows: list[Data]) -> list[str]:
    cells = [["class", "failures", "deaths", "nodes", "work lost", "causes"]]
    for row in rows:
        causes = ", ".join(f"{plain(name)} {count}" for name, count in row["causes"].items())
        numbers = [str(row[name]) for name in ("failures", "deaths", "nodes")]
        cells.append([plain(row["class"]), *numbers, duration(row["lost_s"]), causes])
    return [line.rstrip() for line in table(cells)] if rows else []


def _days(rows: list[Data]) -> list[str]:
    names = ("events", "started", "done", "failed", "interrupted", "asked", "answered")
    cells = [["day", *names, "used"]]
    for row in rows:
        used = {name: row[name] or None for name in ("tokens", "tool_calls", "cost_usd")}
        cells.append([plain(row["day"]), *(str(row[name]) for name in names), _usage(used)])
    return [line.rstrip() for line in table(cells)]
