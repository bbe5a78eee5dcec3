"""How ``perdure map`` looks while it goes on: lines, a bar on a terminal, or JSON.

Job: render the events of the loop as they happen. Invariants: a run of any length stays legible:
how far it is takes at most one line every ``progress_line_every_s``; of what may happen for every
item, such as a failure, the first ``shown_max`` have a line. It decides nothing.
"""

import time
from typing import Final

from perdure.interfaces.cli.bars import Bars
from perdure.interfaces.cli.output import plain, some, write_line
from perdure.interfaces.cli.progress import Show
from perdure.interfaces.cli.request import Data

progress_line_every_s: Final = 10.0
shown_max: Final = 20
_FREQUENT: Final = {
    "failed": "; `perdure job errors` lists what failed",
    "retry_round": "",
    "leftovers": "",
}


class MapLines(Show):
    """A line of text for what matters, for logs, pipes and agents."""

    def __init__(self) -> None:
        self._told_at_s = 0.0
        self._shown: dict[str, int] = {}

    def _show(self, event: Data) -> None:
        if event["event"] == "progress" and not self._is_due(event["wall_s"]):
            return
        for text in self._lines(event):
            self._write(f"{time.strftime('%H:%M:%S')} {text}")

    def _write(self, line: str) -> None:
        write_line(line)

    def _is_due(self, wall_s: float) -> bool:
        if wall_s < self._told_at_s + progress_line_every_s:
            return False
        self._told_at_s = wall_s
        return True

    def _lines(self, event: Data) -> list[str]:
        kind = event["event"]
        lines = map_lines(event)
        if kind not in _FREQUENT or not lines:
            return lines
        self._shown[kind] = shown = self._shown.get(kind, 0) + 1
        if shown == shown_max:
            lines.append(f"more of this is not shown{_FREQUENT[kind]}")
        return lines if shown <= shown_max else []


class MapBar(MapLines):
    """A bar at the bottom of a terminal with rate and time left; other lines go above it."""

    def __init__(self) -> None:
        super().__init__()
        self._bars = Bars()
        self._bar = self._bars.add("items")

    def _show(self, event: Data) -> None:
        kind = event["event"]
        if kind == "opened":
            self._bars.label(self._bar, plain(event["name"], 40))
            self._bars.start()
        if kind in ("opened", "progress") or "outcome" in event:
            self._bars.move(self._bar, event["done"], event["total"], progress_text(event))
        if kind != "progress":
            super()._show(event)

    def _write(self, line: str) -> None:
        self._bars.write(line)

    def close(self) -> None:
        """Leave the terminal as it was, with the last state of the bar on it."""
        self.broken = not self._bars.stop() or self.broken


def show_for(as_json: bool, *, terminal: bool) -> Show:
    """The way to show a run: JSON when asked for, a bar on a terminal, else lines."""
    if as_json:
        return Show()
    return MapBar() if terminal else MapLines()


def map_lines(event: Data) -> list[str]:
    """An event of the loop as text; none for what the summary says anyway."""
    kind = event["event"]
    if "outcome" in event:
        return []
    if kind == "opened":
        return _opened(event)
    if kind == "progress":
        return [progress_text(event)]
    if kind == "failed":
        tries = "" if event["attempts"] == 1 else f" (attempt {event['attempts']})"
        return [plain(f"failed {plain(event['key'], 100)}{tries}: {event['error']}", 400)]
    if kind == "retry_round":
        return [f"trying {items_text(event['items'], 'failed ')} again in {event['wait_s']:g} s"]
    if kind == "orphans_stopped":
        return [plain(f"stopped what a former run had left running: {_named(event['processes'])}")]
    if kind == "leftovers":
        return _leftovers(event)
    if kind == "stopping":
        how = "killing" if event["at_once"] else "finishing"
        again = "" if event["at_once"] else "; once more kills it"
        return [f"{how} what is at work (signal {event['signal']}){again}"]
    return [plain(f"{kind} {event.get('key') or ''}".rstrip())]


def progress_text(event: Data) -> str:
    """How far it is: ``120/300 done, 2 failed, 41.3 a second, 4 s left``."""
    parts = [f"{event['done']:,}/{event['total']:,} done"]
    if event.get("failed"):
        parts.append(f"{event['failed']:,} failed")
    if event.get("rate_per_s"):
        parts.append(rate_text(event["rate_per_s"]))
    if event.get("eta_s"):
        parts.append(f"{duration_text(event['eta_s'])} left")
    return ", ".join(parts)


def items_text(count: int, which: str = "") -> str:
    """A number of items: ``1 item``, ``2 failed items``."""
    return f"{count:,} {which}{'item' if count == 1 else 'items'}"


def rate_text(per_s: float) -> str:
    """A rate in three digits: ``1,234 a second``, ``41.3 a second``, ``12.5 a minute``."""
    rate, unit = (per_s, "second") if per_s >= 1 else (per_s * 60, "minute")
    return f"{rate:,.0f} a {unit}" if rate >= 100 else f"{rate:.3g} a {unit}"


def duration_text(seconds: float) -> str:
    """A time to wait, in its two largest units: ``45 s``, ``12 min 5 s``, ``3 h 20 min``."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def _opened(event: Data) -> list[str]:
    parts = [items_text(event["total"]), f"{event['done']:,} done"]
    if event["queued"]:
        parts.append(f"{event['queued']:,} to be tried again")
    if event["exhausted"]:
        parts.append(f"{event['exhausted']:,} failed too often")
    lines = [plain(f"job {event['name']}: {', '.join(parts)}")]
    return lines + [plain(f"notice: {text}", 400) for text in event["notices"]]


def _leftovers(event: Data) -> list[str]:
    owner = "a command" if event["key"] is None else plain(event["key"], 100)
    lines = [plain(f"stopped what {owner} left running: {_named(event['processes'])}", 400)]
    if event["left"]:
        lines.append(plain(f"could not stop {_named(event['left'])}", 400))
    return lines


def _named(processes: list[list[object]]) -> str:
    return some([f"{name} ({pid})" for pid, name in processes])
