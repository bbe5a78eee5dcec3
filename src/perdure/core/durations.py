"""Lengths of time as people write them: ``90``, ``90s``, ``10m``, ``1h30m``.

Job: the one reading of such a text, for task files, checks and the command line. Invariants: never
raises; what is no such text is None, and never a guess. Each place has its own name for the value
and its own message.
"""

import re
from typing import Final

duration_max_s: Final = 366 * 86_400.0
"""Of a time in a task file or on the command line."""

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_DURATION: Final = re.compile(rf"{_NUMBER}\Z|(?:{_NUMBER}[smhd])+\Z")
_PART: Final = re.compile(r"([0-9.]+)([smhd]?)")
_UNIT_S: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds_of(text: str) -> float | None:
    """The seconds that a text means, blanks in it or not; None when it is no length of time."""
    text = "".join(text.split())
    if not _DURATION.match(text):
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))
