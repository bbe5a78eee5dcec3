"""How a run looks while it goes on: lines, bars on a terminal, or JSON.

Job: render the events of a run as they happen. Invariants: each event is flushed at once; output
that nobody reads any more is given up and the run is not. It decides nothing.
"""

import time
from collections.abc import Callable, Mapping
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


_ENDS: Final = frozenset({"asked", "done", "ended", "failed", "interrupted", "refused"})
"""After these nothing runs for the node any more, unless it says that it is RUNNING."""


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
        elif node in self._nodes and kind in _ENDS and event.get("state") != "RUNNING":
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
    if "outcome" in event:
        return []
    kind = event["event"]
    lines = _LINES.get(kind)
    if lines is not None:
        return lines(event)
    return [plain(f"{kind} {event.get('node') or ''} {event.get('state') or ''}".rstrip())]


def _opened(event: Data) -> list[str]:
    lines = [plain(f"task {event['task_id']} at {event['stable_position']}", None)]
    lines += [plain(f"found {text}", 400) for text in event["found"]]
    lines += [plain(f"repaired {text}", 400) for text in event["repaired"]]
    if event["suspects"]:
        lines.append(plain(f"files are not what was registered: {some(event['suspects'])}"))
    return lines


def _graph(event: Data) -> list[str]:
    parts = [f"{len(event[name])} {name}" for name in ("added", "amended") if event.get(name)]
    if event.get("dropped"):
        parts.append(f"{len(event['dropped'])} kept that the file does not have")
    lines = [f"graph {', '.join(parts)}"] if parts else []
    if event.get("ignored"):
        lines.append(f"not taken over, it was set at the start: {', '.join(event['ignored'])}")
    if event.get("kept"):
        kept = some(event["kept"])
        lines.append(plain(f"kept as people changed it, the file says otherwise: {kept}", 400))
    return lines


def _started(event: Data) -> list[str]:
    return [f"started {plain(event['node'])} (attempt {event['attempt']})"]


def _units(event: Data) -> list[str]:
    failed = f", {event['failed']} failed" if event["failed"] else ""
    return [f"units {plain(event['node'])}  {event['done']}/{event['total']}{failed}"]


def _done(event: Data) -> list[str]:
    return [f"done {plain(event['node'])}  {event['done']}/{event['total']}"]


def _failed(event: Data) -> list[str]:
    return [plain(f"failed {event['node']}: {event['why']} ({event['state']})", 400)]


def _orphans(event: Data) -> list[str]:
    lines = []
    names = [f"{name} ({pid}, of {node})" for pid, name, node in event["processes"]]
    lines.append(plain(f"stopped what a former run had left running: {some(names)}"))
    if event["left"]:
        left = [f"{name} ({pid}, of {node})" for pid, name, node in event["left"]]
        lines.append(plain(f"could not stop {some(left)}; its node waits"))
    return lines


def _leftovers(event: Data) -> list[str]:
    names = [f"{name} ({pid})" for pid, name in event["processes"]]
    return [plain(f"stopped what {event['node'] or 'a command'} left running: {some(names)}")]


def _notice(event: Data) -> list[str]:
    return [plain(f"notice {event['node']}: {event['why']}", 400)]


def _probe_failed(event: Data) -> list[str]:
    return [plain(f"waiting to retry {event['node']}: {event['why']}")]


def _stopping(event: Data) -> list[str]:
    how = "at once" if event["at_once"] else "at the next commit boundary"
    return [f"stopping {how} (signal {event['signal']})"]


def answer_lines(question: str, kind: str) -> list[str]:
    """The commands, without their program, by which somebody settles a question of this kind."""
    if kind in ("gate", "judgement"):
        return [f"approve {question}   (or revise, or reject)"]
    if kind == "effect":
        return [f"answer {question} TEXT --choice done   (or --choice not-done)"]
    return [f"answer {question} TEXT"]


def _in_short(question: str, kind: str) -> str:
    """The command to begin with; where the answer is one of two, it must not suggest one."""
    if kind == "effect":
        return f"show {question}"
    return answer_lines(question, kind)[0].partition("   ")[0]


def _asked(event: Data) -> list[str]:
    about = f" about {event['node']}" if event["node"] else ""
    how = _in_short(event["question"], event["kind"])
    text = plain(event["text"], 300)
    return [plain(f"asked {event['question']}{about}: {text} (perdure {how})", 400)]


def _answered(event: Data) -> list[str]:
    ruled = event["ruling"] not in ("", "replaced", "settled")
    by = f" by {event['by']}" if event["by"] and ruled else ""
    why = ", for nobody ruled in time" if event.get("by_default") else ""
    ref = f" ({event['ref']})" if event["ref"] else ""
    said = f"answered {event['question']}: {event['ruling']}{by}{why}{ref}"
    return [plain(said if ruled else f"closed {event['question']}{ref}", 400)]


def _steered(event: Data) -> list[str]:
    applied = "; ".join(f"{node} {how}" for node, how in event["applied"].items())
    lines = [f"steered {event['steering']} ({event['reading']}): {plain(event['text'])}"]
    return [*lines, f"  applied to {plain(applied or 'nothing', 400)} ({event['ref']})"]


def _goal_changed(event: Data) -> list[str]:
    return [plain(f"goal changed: {event['text']}", 400)]


def _waiting(event: Data) -> list[str]:
    how = [_in_short(name, kind) for name, kind in event["kinds"].items()]
    return [plain(f"waiting for a person: {some([f'perdure {line}' for line in how])}", 400)]


def _overdue(event: Data) -> list[str]:
    return [plain(f"overdue {event['question']}: nobody ruled on it in time")]


_LINES: Final[Mapping[str, Callable[[Data], list[str]]]] = {
    "opened": _opened,
    "graph": _graph,
    "started": _started,
    "units": _units,
    "done": _done,
    "failed": _failed,
    "orphans_stopped": _orphans,
    "leftovers": _leftovers,
    "notice": _notice,
    "probe_failed": _probe_failed,
    "stopping": _stopping,
    "asked": _asked,
    "answered": _answered,
    "steered": _steered,
    "goal_changed": _goal_changed,
    "waiting": _waiting,
    "overdue": _overdue,
}
