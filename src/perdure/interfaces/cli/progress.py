"""How a run looks while it goes on: lines, bars on a terminal, or JSON.

Job: render the events of a run as they happen. Invariants: each event is flushed at once; output
that nobody reads any more is given up and the run is not. It decides nothing.
"""

import time
from typing import Any, Final

from perdure.interfaces.cli.bars import Bars
from perdure.interfaces.cli.output import plain, some, write_json, write_line
from perdure.interfaces.cli.request import Data


class Show:
    """Renders the events of a run; this one as JSON, one object a line."""

    broken = False
    """Nobody reads the output any more."""

    def event(self, event: Data) -> None:
        """Show one event, now."""
        if self.broken:
            return
        try:
            self._show(event)
        except OSError:  # a pipe that was closed, a terminal that is gone, a full disk
            self.broken = True

    def _show(self, event: Data) -> None:
        write_json(event)

    def close(self) -> None:
        """Nothing more comes."""


units_line_every_s: Final = 10.0
"""Of a batch node at work, in lines; its bar moves with each event."""


class Lines(Show):
    """One line of text an event, for logs, pipes and agents."""

    def __init__(self) -> None:
        self._units_told: dict[str, float] = {}
        """Node at work to when, after its start, its units were last told, in seconds."""

    def _show(self, event: Data) -> None:
        if event["event"] == "units" and not self._is_due(event):
            return
        for text in event_lines(event):
            write_line(f"{time.strftime('%H:%M:%S')} {text}")

    def _is_due(self, event: Data) -> bool:
        """Whether the units of this node were not told lately, or this is the last of them."""
        node, now = str(event["node"]), float(event["wall_s"])
        last = self._units_told.get(node, 0.0)
        is_last = event["done"] + event["failed"] >= event["total"]
        if not is_last and last <= now < last + units_line_every_s:
            return False
        self._units_told[node] = 0.0 if is_last else now
        return True


class TaskBars(Show):
    """Bars at the bottom of a terminal, one for the task and one for each node at work."""

    def __init__(self) -> None:
        self._bars = Bars()
        self._overall = self._bars.add("task")
        self._nodes: dict[str, Any] = {}
        self._bars.start()

    def _show(self, event: Data) -> None:
        kind, node = event["event"], str(event.get("node") or "")
        if kind == "units":
            self._show_units(node, event)
            return
        for text in event_lines(event):
            self._bars.write(f"{time.strftime('%H:%M:%S')} {text}")
        if kind == "opened":
            self._bars.label(self._overall, plain(event["task_id"]))
        elif kind == "started":
            self._nodes[node] = self._bars.add(f"  {node}")
        elif node in self._nodes and kind not in ("leftovers", "notice"):
            self._bars.remove(self._nodes.pop(node))
        if "total" in event:
            count = f"{event['done']}/{event['total']}"
            self._bars.move(self._overall, event["done"], event["total"], count)

    def _show_units(self, node: str, event: Data) -> None:
        """How far a batch node is, in its own bar."""
        if node not in self._nodes:
            return
        failed = f", {event['failed']} failed" if event["failed"] else ""
        count = f"{event['done']}/{event['total']}{failed}"
        self._bars.move(self._nodes[node], event["done"], event["total"], count)

    def close(self) -> None:
        """Leave the terminal as it was, with the last state of the bars on it."""
        self.broken = not self._bars.stop() or self.broken


def show_for(as_json: bool, *, terminal: bool) -> Show:
    """The way to show a run: JSON when asked for, bars on a terminal, else lines."""
    if as_json:
        return Show()
    return TaskBars() if terminal else Lines()


def event_lines(event: Data) -> list[str]:
    """An event of the run loop as text; none for what the summary says anyway."""
    kind = event["event"]
    node = plain(event.get("node") or "")
    if "outcome" in event:
        return []
    if kind == "opened":
        return _opened(event)
    if kind == "graph":
        parts = [f"{len(event[name])} {name}" for name in ("added", "amended", "dropped")
                 if event.get(name)]  # fmt: skip
        lines = [f"graph {', '.join(parts)}"] if parts else []
        if event.get("ignored"):
            lines.append(f"not taken over, it was set at the start: {', '.join(event['ignored'])}")
        return lines
    if kind == "started":
        return [f"started {node} (attempt {event['attempt']})"]
    if kind == "units":
        failed = f", {event['failed']} failed" if event["failed"] else ""
        return [f"units {node}  {event['done']}/{event['total']}{failed}"]
    if kind == "done":
        return [f"done {node}  {event['done']}/{event['total']}"]
    if kind == "failed":
        return [plain(f"failed {node}: {event['why']} ({event['state']})", 400)]
    if kind == "orphans_stopped":
        return _orphans(event)
    if kind == "leftovers":
        names = [f"{name} ({pid})" for pid, name in event["processes"]]
        return [plain(f"stopped what {node or 'a command'} left running: {some(names)}")]
    if kind == "notice":
        return [plain(f"notice {node}: {event['why']}", 400)]
    if kind == "probe_failed":
        return [plain(f"waiting to retry {node}: {event['why']}")]
    if kind == "stopping":
        how = "at once" if event["at_once"] else "at the next commit boundary"
        return [f"stopping {how} (signal {event['signal']})"]
    return [plain(f"{kind} {node} {event.get('state') or ''}".rstrip())]


def _opened(event: Data) -> list[str]:
    lines = [plain(f"task {event['task_id']} at {event['stable_position']}", None)]
    lines += [plain(f"found {text}", 400) for text in event["found"]]
    lines += [plain(f"repaired {text}", 400) for text in event["repaired"]]
    if event["suspects"]:
        lines.append(plain(f"files are not what was registered: {some(event['suspects'])}"))
    return lines


def _orphans(event: Data) -> list[str]:
    lines = []
    names = [f"{name} ({pid}, of {node})" for pid, name, node in event["processes"]]
    lines.append(plain(f"stopped what a former run had left running: {some(names)}"))
    if event["left"]:
        left = [f"{name} ({pid}, of {node})" for pid, name, node in event["left"]]
        lines.append(plain(f"could not stop {some(left)}; its node waits"))
    return lines
