"""The seed of a session of crash tests, and how much they have tried.

One seed for all processes of a session: that of ``CRASH_SEED``, else 1, so that a red run is red
again, and with ``-m crash_full`` a new one each time. The counts of every test travel in its
report, wherever it ran, and are added up at the end.
"""

import os
import random
import time
from collections import Counter

import pytest

VARIABLE = "CRASH_SEED"
_PROPERTY = "crash tests tried"


def settle_seed(config: pytest.Config) -> None:
    """Decide on the seed, before any worker process begins: they inherit it."""
    full = "crash_full" in str(config.option.markexpr).replace("not crash_full", "")
    os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(1 << 32) if full else 1))


def chance_for(*names: object) -> random.Random:
    """A source of chance of its own for each purpose, the same in every run with this seed."""
    return random.Random(f"{os.environ.get(VARIABLE, '1')} {' '.join(map(str, names))}")


class Tally:
    """What one test has tried."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, what: str, count: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + count


def tally_of(request: pytest.FixtureRequest) -> Tally:
    """A tally that goes into the report of the test which asks for it."""
    tally = Tally()
    request.node.user_properties.append((_PROPERTY, tally.counts))
    return tally


def say(reporter: pytest.TerminalReporter, began: float) -> None:
    """One line about everything that was tried, when anything was."""
    tried: Counter[str] = Counter()
    busy_s = 0.0
    violations = 0
    for report in (*reporter.stats.get("passed", ()), *reporter.stats.get("failed", ())):
        counts = dict(getattr(report, "user_properties", ())).get(_PROPERTY)
        if counts is None or report.when != "call":
            continue
        tried.update(counts)
        busy_s += report.duration
        violations += report.failed
    if not tried:
        return
    seed = os.environ.get(VARIABLE, "1")
    states = tried.pop("states", 0)
    rest = "".join(f", {what} {count:,}" for what, count in sorted(tried.items()))
    reporter.section(f"crash tests, {VARIABLE}={seed}")
    reporter.write_line(f"states tried {states:,}, violations {violations}{rest}")
    reporter.write_line(
        f"{states / max(busy_s, 1e-9):,.0f} states a second and process, "
        f"{time.monotonic() - began:.0f} s in all"
    )
