"""Commands about the task as a whole: where it stands, what is next, pause and resume.

Job: parse, call the service, render. Invariants: the reading ones write nothing, ever.
"""

from typing import Final

import click

from perdure.core.late import LateModule
from perdure.interfaces.cli.dispatch import measured, mode_words
from perdure.interfaces.cli.output import (
    acknowledge,
    asked,
    counted,
    field,
    fields,
    plain,
    record,
    respond,
    some,
    table,
)
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.service.tasks import init_task

# Most tasks have no instances.
_instances: Final = LateModule("perdure.interfaces.cli.instance_lines")

ways_max = 8
"""Commands that a list of what is stuck suggests: one for each of them."""
asked_max = 8
"""Questions that the status lists besides."""
stale_max = 8
"""Documents that have changed since they were noted, as far as they are listed."""


@verb("init")
@click.argument("task_id")
@click.option("--goal", default="", metavar="TEXT", help="What the task is for, in a sentence.")
@click.option("--tier", type=click.IntRange(0, 2), default=1, show_default=True, metavar="N",
              help="How much is recorded; 1 suits nearly everything.")  # fmt: skip
@click.pass_obj
def init_command(request: Request, task_id: str, goal: str, tier: int) -> None:
    """Create a task and make it the current one.

    It is made in .perdure/tasks/TASK_ID here (or in the nearest .perdure upward), or in the
    directory that -C or PERDURE_WORKSPACE names. Its journal is on disk, whole, before this
    returns. Exits 4 where there is a task already.

    \b
    Example:
      perdure init survey --goal "Survey the standard library"
    """
    data = init_task(
        request.named_directory, request.start_dir, task_id, goal=goal, tier=tier,
        actor=request.actor,
    )  # fmt: skip
    acknowledge(request, data, [f"task {task_id} in {plain(data['workspace'], None)}"])


@verb("status")
@click.option("--limit", type=click.IntRange(0), default=1_000, show_default=True, metavar="N",
              help="List at most N nodes; the counts are always complete.")  # fmt: skip
@click.pass_obj
def status_command(request: Request, limit: int) -> None:
    """Show where the task stands.

    Its state, what is done, at work and stuck, what may start, who coordinates, and which files are
    not what was registered. Writes nothing; needs no lease.

    \b
    Example:
      perdure status
      perdure status --json --limit 20
    """
    data = request.service().status(limit=limit)
    respond(request, data, _status_lines(data))


def _status_lines(data: Data) -> list[str]:
    counts: dict[str, int] = data["counts"]
    done = f"{counts.get('DONE', 0)} of {data['total']} done"
    lines = [f"task {data['task_id']}: {data['fsm_task']} at J-{data['seq_last']}, {done}"]
    lines += field("goal", data["goal"])
    lines += field("nodes", ", ".join(f"{count} {state}" for state, count in counts.items()))
    lines += fields("at work", [_working(item) for item in data["running"]])
    lines += _dispatch_lines(data)
    if "instance" in data or "instances" in data:
        lines += _instances.instance_lines(data)
    lines += field("may start", some(data["frontier"]))
    lines += _stuck_lines(data)
    lines += _asked_lines(data)
    lines += _with_people_lines(data)
    lines += _unread_lines(data["unread"])
    broken = [f"{name} {text}" for name, text in data["integrity"].items()]
    well = f"{data['artifacts']} registered, all as registered" if data["artifacts"] else ""
    lines += fields("files", broken) or field("files", well)
    lines += _walk_lines(data)
    owner = data["coordinator"]
    lines += field("run by", f"{owner['holder']}, pid {owner['pid']}" if owner else "nobody now")
    lines += _interrupted_lines(data)
    lines += _stale_lines(data)
    lines += _closing_lines(data["closing"])
    lines += field("hint", data["next_hint"])
    return lines + field("workspace", data["workspace"], None)


def _stale_lines(data: Data) -> list[str]:
    """Documents that have changed since they were noted."""
    stale = list(data.get("stale_docs", {}).items())
    rows = [f"{path} {why} (perdure note --doc)" for path, why in stale[:stale_max]]
    rows += [f"and {len(stale) - stale_max} more"] if stale[stale_max:] else []
    return fields("stale", rows)


def _walk_lines(data: Data) -> list[str]:
    """What the newest walk over all files found, of a task that is walked."""
    walk = data.get("walk")
    if walk is None:
        return []
    found = f"not as registered: {some(walk['failed'])}" if walk["failed"] else "all as registered"
    return field("walked", f"{walk['checked']} files at {walk['at']} ({walk['ref']}), {found}")


def _closing_lines(closing: Data) -> list[str]:
    """How far the end of an archived task has come, and what comes next."""
    return field("archived", closing["sub_state"]) + field("next", closing["next"])


def _dispatch_lines(data: Data) -> list[str]:
    """The workers that are out, the mode where it is not the normal one, and what was used."""
    out = [f"{item['invocation']} ({_slot(item)})" for item in data["slots"]]
    left = data["slots_total"] - len(out)
    lines = fields("workers", out + ([f"and {left} more"] if left > 0 else []))
    dispatch, used = data["dispatch"], data["usage"] or {}
    if dispatch["dispatch_mode"] != "A":
        way_on = ["to go on: perdure dispatch A --reason WHY"] if dispatch["by_hand"] else []
        standing = f"{mode_words(dispatch)}: {measured(dispatch)}"
        lines += fields("dispatch", [standing, *way_on])
    known = [(used[name], unit) for name, unit in _USED if used.get(name) is not None]
    return lines + field("used", ", ".join(f"{round(value, 4):,} {unit}" for value, unit in known))


_USED = (("wall_s", "s"), ("tool_calls", "tool calls"), ("tokens", "tokens"), ("cost_usd", "USD"))


def _slot(item: Data) -> str:
    late = f", suspected dead ({item['suspected']})" if "suspected" in item else ""
    return f"{counted(item['units'], 'unit')} of {item['node']}{late}"


def _asked_lines(data: Data) -> list[str]:
    """The open questions that are not told of a node that is stuck, each with its command."""
    told = {item.get("question"): item["why"] for item in data["stuck"]}
    rest = [item for item in data["asked"] if told.get(item["id"]) != item["text"]]
    rows = []
    for item in rest[:asked_max]:
        late = " (overdue)" if item["overdue"] else ""
        rows.append(f"{item['id']}{late}: {item['text']}")
        rows += [] if item["id"] in told else [item["then"]]
    left = len(data["questions"]) - len(data["asked"]) + len(rest) - len(rest[:asked_max])
    return fields("questions", rows + ([f"and {left} more: perdure inbox"] if left > 0 else []))


def _unread_lines(unread: Data) -> list[str]:
    """What people have said and nothing has acted on yet."""
    rows = []
    if unread["accepted"]:
        rows.append(f"{unread['accepted']} in the drop box (perdure inbox)")
    rows += [f"{path}, not taken in yet" for path in unread["written"]]
    if unread["pending"]:
        rows.append(f"{some(unread['pending'])}: on record, not acted on yet (perdure resume)")
    return fields("unread", rows)


def _stuck_lines(data: Data) -> list[str]:
    """Who needs somebody, by which question, and the first few commands that go on from there."""
    stuck = []
    overdue = {item["id"] for item in data.get("asked", ()) if item["overdue"]}
    for item in data["stuck"]:
        late = ", overdue" if item.get("question") in overdue else ""
        asked = f" ({item['question']}{late})" if item.get("question") else ""
        stuck.append(f"{item['node']} is {item['state']}: {item['why']}{asked}")
    ways = [item["then"] for item in data["stuck"] if item.get("then")]
    return fields("stuck", stuck) + fields("then", ways[:ways_max])


def _with_people_lines(data: Data) -> list[str]:
    """What people have in hand, each with the command that ends it."""
    rows = [(f"{item['node']}: {item['why']}", item["then"]) for item in data["with_people"]]
    return fields("by people", [text for row in rows for text in row])


def _interrupted_lines(data: Data) -> list[str]:
    """The way on from a run that is gone and has left work open."""
    if not data["interrupted"]:
        return []
    return field("then", "interrupted; run the same line again, or perdure resume")


def _working(item: Data) -> str:
    text = f"{item['node']} ({item['executor']})"
    if "suspected" in item:
        text += f", suspected dead ({item['suspected']})"
    if "units" not in item:
        return text
    units = item["units"]
    failed = f", {units['failed']} failed" if units["failed"] else ""
    return f"{text}, {units['done']} of {units['total']} units done{failed}"


@verb("ready")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N",
              help="How many to list.")  # fmt: skip
@click.option("--after", metavar="NODE", help="Go on behind this node of the last page.")
@click.pass_obj
def ready_command(request: Request, limit: int, after: str | None) -> None:
    """List the nodes that may start now, best first.

    Work starts from this list and from nowhere else (FR-1). The order is total: two callers see
    the same list. Writes nothing.

    \b
    Example:
      perdure ready --limit 5
    """
    data = request.service().ready(limit=limit, after=after)
    respond(request, data, _ready_lines(data))


def _ready_lines(data: Data) -> list[str]:
    rows = []
    for item in data["ready"]:
        again = f" (attempt {item['attempt']})" if item["attempt"] > 1 else ""
        rows.append((item["node"], f"{plain(item['title'])}{again}"))
    if not rows:
        return ["nothing may start; `perdure status` says why"]
    more = [f"more: perdure ready --after {data['next']}"] if data["next"] else []
    return table(rows) + more


@verb("next")
@click.pass_obj
def next_command(request: Request) -> None:
    """Show the one thing to do next, with the commands for it.

    What to do, where to write, how it will be checked, and why the last attempt failed. Short
    enough for an agent to read at every step. Writes nothing.

    \b
    Example:
      perdure next
    """
    data = request.service().next()
    respond(request, data, _next_lines(data))


def _next_lines(data: Data) -> list[str]:
    if data["node"] is None:
        lines = [f"nothing to start: {data['why']}"]
        lines += field("open", ", ".join(data["open"]))
        lines += _stuck_lines(data) + _with_people_lines(data)
        return lines + _stale_lines(data) + _interrupted_lines(data)
    lines = [f"{data['node']}: {plain(data['title'])}"]
    lines += field("goal", data["goal"], None)
    lines += field("write to", data["scope"])
    outputs = data["outputs"]
    lines += field("outputs", "none" if outputs == [] else ", ".join(outputs or ()))
    lines += fields("accept", data["accept"])
    lines += fields("directed", data["directives"])
    lines += fields("inputs", data["inputs"])
    if data["attempt"] > 1:
        lines += field("attempt", data["attempt"])
        lines += field("last time", data["last_failure"], None)
    lines += fields("then", data["commands"])
    others = data["others_ready"]
    lines += _stale_lines(data)
    return lines + field("also ready", f"{others} more (perdure ready)" if others else "")


@verb("show")
@click.argument("ref", metavar="ID")
@click.pass_obj
def show_command(request: Request, ref: str) -> None:
    """Show one node, artifact, question, contract or event.

    ID may be cut to a unique beginning; an event is named J-42. Exits 3 with near misses when
    there is no such thing. Writes nothing.

    \b
    Example:
      perdure show N1
      perdure show J-42
      perdure show inv-20261130202802-1f2e3d4c#N1
    """
    data = request.service().show(ref)
    respond(request, data, record(_legible(data)))


def _legible(data: Data) -> Data:
    """A node with its checks as people write them, once."""
    if data["type"] != "node":
        return data
    spec = {name: value for name, value in data["spec"].items() if name != "acceptance_criteria"}
    return {**data, "spec": spec}


@verb("pause", writes=True)
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever resumes it.")
@click.pass_obj
def pause_command(request: Request, reason: str) -> None:
    """Suspend the task at the next commit boundary.

    Nothing new starts; what is at work is finished first. A running `perdure run` stops by itself
    and exits 10. Exits 4 while somebody has a node at work by hand.

    \b
    Example:
      perdure pause --reason "the machine is needed"
    """
    data = request.call("pause", {"reason": reason})
    lines = ["pausing: what is at work is finished first"] if data.get("pausing") else []
    acknowledge(request, data, lines)


@verb("resume")
@click.pass_obj
def resume_command(request: Request) -> int:
    """Recover after any interruption and say what may run.

    Takes the lease, repairs what a crash left and proves the workspace consistent; running it again
    finds nothing to do. Exits 0 only when something may run, so `perdure resume && start-agent` is
    safe; 1 when files are not what was registered, 10 when a person is needed, 11 when the task is
    finished.

    \b
    Example:
      perdure resume && perdure next
    """
    data = request.service().resume()
    respond(request, data, _resume_lines(data))
    code: int = data["exit_code"]
    return code


_RESUMED = {
    0: "something may run",
    1: "files are not what was registered",
    10: "nothing may run until a person acts",
    11: "it is finished",
}


def _resume_lines(data: Data) -> list[str]:
    code = data["exit_code"]
    lines = [f"task {data['task_id']} at {data['stable_position']}: {_RESUMED[code]}"]
    lines += fields("found", data["found"] or ["nothing to repair"])
    lines += fields("repaired", data["repaired"])
    lines += fields(
        "stopped", [f"{name} ({pid}, of {node})" for pid, name, node in data["stopped"]]
    )
    left = [f"{name} ({pid}, of {node})" for pid, name, node in data["left_running"]]
    lines += fields("not stopped", left)
    lines += field("suspect", some(data["suspects"]))
    lines += field("may start", some(data["frontier"]))
    lines += fields("questions", asked(data["questions"]))
    contact = data["last_contact"]
    if contact is not None:
        lines += field("last heard", f"{contact['by']} at {contact['at']} ({contact['ref']})")
    lines += field("inbox", "" if data["inbox_empty"] else "something waits to be taken in")
    lines += field("hint", data["hint"])
    follow = {0: "perdure next", 1: "perdure verify", 10: "perdure status"}
    return lines + field("then", follow.get(code, ""))
