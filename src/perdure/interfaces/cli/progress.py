"""How a run looks while it goes on: lines, bars on a terminal, or JSON.

Job: render the events of a run as they happen. Invariants: each event is flushed at once; output
that nobody reads any more is given up and the run is not. It decides nothing.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from perdure.core.dispatching import MODE_WORDS
from perdure.interfaces.cli.bars import Bars
from perdure.interfaces.cli.output import counted, plain, some, write_json, write_line
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


def _handed_over(event: Data) -> list[str]:
    then = f"perdure --actor {event['to']} submit {event['node']}"
    return [plain(f"handed {event['node']} to {event['to']}; when it is done: {then}", 400)]


def _units(event: Data) -> list[str]:
    failed = f", {event['failed']} failed" if event["failed"] else ""
    return [f"units {plain(event['node'])}  {event['done']}/{event['total']}{failed}"]


def _done(event: Data) -> list[str]:
    return [f"done {plain(event['node'])}  {event['done']}/{event['total']}"]


def _failed(event: Data) -> list[str]:
    said = f": {event['said']}" if event.get("said") else ""
    wait_s = event.get("retry_after_s")
    wait = f"; not tried again for {wait_s:g} s" if wait_s else ""
    log = f", see {event['log']}" if event.get("log") else ""
    return [
        plain(f"failed {event['node']}: {event['why']}{said}{wait} ({event['state']}){log}", 600)
    ]


def _blocked(event: Data) -> list[str]:
    asked = some(event.get("questions") or ())
    return [plain(f"blocked {event['node']}: waits for the answer to {asked}", 400)]


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
    whose = event.get("slot") or event.get("node") or "a command"
    lines = [plain(f"stopped what {whose} left running: {some(names)}")] if names else []
    if event.get("left"):
        left = [f"{name} ({pid})" for pid, name in event["left"]]
        lines.append(plain(f"could not stop what {whose} left running: {some(left)}"))
    return lines


def _notice(event: Data) -> list[str]:
    return [plain(f"notice {event.get('node') or ''}: {event['why']}".replace(" :", ":"), 400)]


def _refused(event: Data) -> list[str]:
    why = " ".join(str(event["why"]).split())
    return [plain(f"refused {event['node']}: {why}", 400)]


def _probe_failed(event: Data) -> list[str]:
    what = f"retry {event['node']}" if event["node"] else "dispatch again"
    return [plain(f"waiting to {what}: {event['why']}")]


def _mode(event: Data) -> list[str]:
    how = "a small batch behind a probe" if event["probing"] else MODE_WORDS[event["mode"]]
    why = f", for {event['cause']}" if event.get("cause") else ""
    rate = f"first deaths {event['first_death_rate']:.0%}"
    return [plain(f"dispatch {event['before']} -> {event['mode']}: {how}{why} ({rate})")]


def _dispatch_halted(event: Data) -> list[str]:
    why = event["cause"] or "trouble in the surroundings"
    wait_s = event["wait_s"]
    until = "until a person acts" if wait_s is None else f"for {wait_s:g} s, then a probe"
    advice = f". {event['advice']}" if event.get("advice") else ""
    return [plain(f"dispatch is halted, for {why}: waiting {until}{advice}", 400)]


def _suspected(event: Data) -> list[str]:
    said = f"suspected dead: {event['invocation']} of {event['node']}, silent for"
    return [plain(f"{said} {event['silent_s']:.0f} s ({event['policy']}); nothing is ended", 400)]


def _slot_died(event: Data) -> list[str]:
    said = f"{counted(event['landed'], 'unit')} landed, {event['left']} left"
    return [plain(f"worker {event['slot']} {event['end']}: {event['why']} ({said})", 400)]


def _late(event: Data) -> list[str]:
    return [plain(f"late output of {event['slot']}: {counted(event['units'], 'unit')} landed")]


def _shards_adopted(event: Data) -> list[str]:
    whose = f"{counted(event['slots'], 'former worker')} of {event['node']}"
    said = f"of {whose} {counted(event['units'], 'unit')} landed"
    return [plain(said)] if event["slots"] or event["units"] else []


def _audit_started(event: Data) -> list[str]:
    return [plain(f"audit of {event['node']} started")]


def _audited(event: Data) -> list[str]:
    verdict = "passed" if event["passed"] and event["integrity"] == "clean" else "not passed"
    how = f"{event['integrity']}; {', '.join(event['independence']) or 'not independent'}"
    why = f": {event['why']}" if event["why"] else ""
    return [plain(f"audit of {event['node']} {verdict} ({how}){why}", 400)]


def _audit_asked(event: Data) -> list[str]:
    return [plain(f"audit of {event['node']} waits: perdure judge {event['node']} --verdict FILE")]


def _walked(event: Data) -> list[str]:
    walked = f"walked {counted(event['checked'], 'file')}"
    if not event["failed"]:
        return [f"{walked}: all as registered ({event['ref']})"]
    return [plain(f"{walked}: {some(event['failed'])} ({event['ref']})", 400)]


def _phase(event: Data) -> list[str]:
    return [plain(f"phase {event['state']}")]


def _reported(event: Data) -> list[str]:
    return [plain(f"result {event['state']}")]


def _stopping(event: Data) -> list[str]:
    how = "at once" if event["at_once"] else "at the next commit boundary"
    return [f"stopping {how} (signal {event['signal']})"]


def answer_lines(question: str, kind: str, *, consent: bool = False) -> list[str]:
    """The commands, without their program, by which somebody settles a question of this kind.

    ``consent``: it is approved or rejected like a gate, and cannot be revised.
    """
    if consent:
        return [f"approve {question}", f"reject {question} --reason WHY"]
    if kind in ("gate", "judgement"):
        return [f"approve {question}   (or revise, or reject)"]
    if kind == "effect":
        return [f"answer {question} TEXT --choice done   (or --choice not-done)"]
    return [f"answer {question} TEXT"]


def _in_short(question: str, kind: str, *, consent: bool = False) -> str:
    """The command to begin with; where the answer is one of two, it must not suggest one."""
    if kind == "effect":
        return f"show {question}"
    return answer_lines(question, kind, consent=consent)[0].partition("   ")[0]


def _asked(event: Data) -> list[str]:
    about = f" about {event['node']}" if event["node"] else ""
    how = _in_short(event["question"], event["kind"], consent=event.get("consent", False))
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
    consents = event.get("consents", ())
    how = [_in_short(n, kind, consent=n in consents) for n, kind in event["kinds"].items()]
    return [plain(f"waiting for a person: {some([f'perdure {line}' for line in how])}", 400)]


def _overdue(event: Data) -> list[str]:
    return [plain(f"overdue {event['question']}: nobody ruled on it in time")]


_LINES: Final[Mapping[str, Callable[[Data], list[str]]]] = {
    "handed_over": _handed_over,
    "opened": _opened,
    "graph": _graph,
    "started": _started,
    "units": _units,
    "done": _done,
    "failed": _failed,
    "blocked": _blocked,
    "orphans_stopped": _orphans,
    "leftovers": _leftovers,
    "notice": _notice,
    "refused": _refused,
    "probe_failed": _probe_failed,
    "mode": _mode,
    "dispatch_halted": _dispatch_halted,
    "suspected": _suspected,
    "slot_died": _slot_died,
    "late": _late,
    "shards_adopted": _shards_adopted,
    "audit_started": _audit_started,
    "audited": _audited,
    "audit_asked": _audit_asked,
    "walked": _walked,
    "phase": _phase,
    "reported": _reported,
    "stopping": _stopping,
    "asked": _asked,
    "answered": _answered,
    "steered": _steered,
    "goal_changed": _goal_changed,
    "waiting": _waiting,
    "overdue": _overdue,
}
