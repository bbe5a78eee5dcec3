"""Nodes ``plot-lines`` and ``plot-imports``: a bar chart as hand-written SVG.

    python plot.py lines|imports

The chart brings its own panel, and a reader in dark mode gets a dark one: it is legible on any
page. Its title and description are there for those who do not see it.
"""

import sys
from xml.sax.saxutils import escape

from survey import TABLE_JSON, read_json, write_whole

BARS = 15
WIDTH = 720
ROW = 26
TOP = 58
LABEL = 150
VALUE = 84

STYLE = """
  .panel { fill: #f7f7f5; stroke: #d5d5d0 } .bar { fill: #3f6f9f }
  text { font: 13px system-ui, sans-serif; fill: #24292f } .head { font-size: 16px }
  .value { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #1c2128; stroke: #3d444d } .bar { fill: #6ea8dc }
    text { fill: #e6edf3 } .value { fill: #a5afba }
  }
"""


def bar_chart(title: str, description: str, bars: list[tuple[str, int]]) -> str:
    """Horizontal bars, the longest over the whole width, each with its name and value."""
    height = TOP + ROW * len(bars) + 14
    longest = max((value for _, value in bars), default=0) or 1
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    named = 'role="img" aria-labelledby="title desc"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named}>',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="head" x="20" y="34">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(bars):
        y = TOP + ROW * place
        length = (WIDTH - LABEL - VALUE) * value / longest
        parts += [
            f'<text x="{LABEL - 10}" y="{y + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="bar" x="{LABEL}" y="{y + 2}" width="{length:.1f}" height="18" rx="2"/>',
            f'<text class="value" x="{LABEL + length + 8:.1f}" y="{y + 15}">{value:,}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def describe(unit: str, bars: list[tuple[str, int]]) -> str:
    """The chart in words."""
    return f"Bar chart, {unit}: " + ", ".join(f"{name} {value:,}" for name, value in bars) + "."


def main() -> None:
    """Draw the chart named on the command line."""
    table = read_json(TABLE_JSON)
    if sys.argv[1] == "lines":
        title, unit = "Largest packages of the standard library", "lines of source"
        bars = [(entry["package"], entry["lines"]) for entry in table["packages"][:BARS]]
    else:
        title, unit = "Most imported modules of the standard library", "importing modules"
        bars = [(entry["name"], entry["modules"]) for entry in table["imported"][:BARS]]
    chart = bar_chart(f"{title} ({unit})", describe(unit, bars), bars)
    write_whole(f"{sys.argv[1]}.svg", chart)
    print(f"{len(bars)} bars")


if __name__ == "__main__":
    main()
