"""The figures of a task as one SVG picture.

Job: two charts, one below the other: the time of the longest nodes by what it went into, and what
failed by class. Invariants: the same figures give the same bytes; nothing is fetched when it is
looked at: no script, no font, no picture of others.
"""

import re
import sys
from typing import Any, Final

from perdure.core.stats import Stats
from perdure.core.stats_records import PHASES
from perdure.errors import UsageError

nodes_max: Final = 30
width: Final = 960
_COLOURS: Final = ("#3b6fb6", "#7fb0e0", "#e0a030", "#c0504d", "#b8bec6", "#6b7280")
_LABELS: Final = {
    "work": "at work", "verifying": "verifying", "people": "waiting for people",
    "interrupted": "interrupted", "queued": "ready, not started", "blocked": "blocked",
}  # fmt: skip
_PROLOGUE: Final = re.compile(r"<\?xml[^>]*\?>\s*|<script.*?</script>|<!--.*?-->", re.DOTALL)


def draw(stats: Stats) -> bytes:
    """The picture. Raises UsageError (``no_plot``) where pygal is not installed."""
    pygal = _pygal()
    rows = stats.by_node()
    shown = [row for row in rows if row["attempts"]][:nodes_max]
    charts = [_times(pygal, stats, shown, len(rows))]
    failures = stats.by_class()
    if failures:
        charts.append(_failures(pygal, failures))
    height = sum(chart.config.height for chart in charts)
    parts, top = [], 0
    for number, chart in enumerate(charts):
        chart.uuid = f"perdure-{number}"
        picture = _PROLOGUE.sub("", chart.render(is_unicode=True))
        size = f'y="{top}" width="{width}" height="{chart.config.height}" '
        parts.append(picture.replace("<svg ", f"<svg {size}", 1))
        top += chart.config.height
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    text = f'{head} viewBox="0 0 {width} {height}">\n' + "\n".join(parts) + "\n</svg>\n"
    return text.encode()


def _pygal() -> Any:
    """The library, without its finder of map plugins: an old kind that warns at each import."""
    try:
        import pygal
        import pygal.style
    except ImportError:
        raise UsageError(
            "drawing takes pygal, which is not installed.",
            code="no_plot",
            fix="Install it: pip install 'perdure[plot]'.",
        ) from None
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__module__ != "pygal"]
    return pygal


def _chart(pygal: Any, kind: Any, title: str, bars: int, colours: tuple[str, ...]) -> Any:
    style = pygal.style.Style(
        background="#ffffff", plot_background="#ffffff", colors=colours, font_family="sans-serif",
        title_font_size=18, label_font_size=12, legend_font_size=12, major_label_font_size=12,
        opacity="1", opacity_hover="1", transition="0s",
    )  # fmt: skip
    return kind(
        title=title,
        width=width,
        height=150 + 24 * max(2, bars),
        js=[],
        style=style,
        legend_at_bottom=True,
        legend_at_bottom_columns=3,
        truncate_label=36,
        truncate_legend=-1,
        show_y_guides=True,
        human_readable=False,
        disable_xml_declaration=True,
        print_values=False,
    )


def _times(pygal: Any, stats: Stats, rows: list[dict[str, Any]], total: int) -> Any:
    unit, seconds = _unit(max((sum(row["time_s"].values()) for row in rows), default=0.0))
    cut = f", the longest {len(rows)} of {total} nodes" if len(rows) < total else ""
    title = f"{stats.task_id[:60]}: time per node in {unit}{cut}"
    chart = _chart(pygal, pygal.HorizontalStackedBar, title, len(rows), _COLOURS)
    rows.reverse()  # the first bar is the lowest
    chart.x_labels = [row["node"] for row in rows]
    for phase in PHASES:
        values = [round(row["time_s"].get(phase, 0.0) / seconds, 3) for row in rows]
        if any(values):
            colour = _COLOURS[PHASES.index(phase)]
            bars = [{"value": value, "color": colour} for value in values]
            chart.add({"title": _LABELS[phase]}, bars)
    used = [phase for phase in PHASES if any(row["time_s"].get(phase) for row in rows)]
    chart.config.style.colors = tuple(_COLOURS[PHASES.index(phase)] for phase in used)
    return chart


def _failures(pygal: Any, rows: list[dict[str, Any]]) -> Any:
    colours = ("#c0504d", "#7a3230")
    chart = _chart(
        pygal, pygal.HorizontalBar, "failures and deaths by class", 2 * len(rows), colours
    )
    rows.reverse()
    chart.x_labels = [row["class"] for row in rows]
    chart.add("failures", [row["failures"] for row in rows])
    chart.add("deaths of workers", [row["deaths"] for row in rows])
    return chart


def _unit(most_s: float) -> tuple[str, float]:
    if most_s >= 7_200:
        return "hours", 3_600.0
    return ("minutes", 60.0) if most_s >= 300 else ("seconds", 1.0)
