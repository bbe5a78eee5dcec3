"""Single values in the parameters of a check: paths, patterns, numbers and times.

Invariants: what comes out is of one type and canonical; a path is judged as text only (PL-4), never
on a disk; every refusal is a ``UsageError`` that says how to put it right.
"""

import re
from collections.abc import Iterable
from typing import Final, cast

from perdure.core.durations import seconds_of
from perdure.core.naming import canonical_path, path_problem
from perdure.errors import UsageError

# Limits.
count_max: Final = 10**15
timeout_s_max: Final = 7 * 86_400.0

WORD: Final = re.compile(r'"([^"]*)"(?!\S)|(\S+)')


def clean_path(value: object, name: str = "path") -> str:
    """A workspace-relative POSIX path as text, canonical; UsageError by PL-4 (``naming``).

    Says nothing about links: they are resolved when the path is used.
    """
    if not isinstance(value, str):
        raise malformed(
            f"{name} must be text, not {type(value).__name__}.",
            fix=f"Give {name} as a path relative to the workspace, in quotes if need be.",
        )
    problem = path_problem(value)
    if problem:
        shown = value if len(value) <= 80 else value[:80] + "..."
        raise malformed(
            f"the {name} {shown!r} {problem}.",
            rule="PL-4",
            fix="Name it relative to the workspace, with forward slashes.",
        )
    return canonical_path(value)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The one reading of a ``matches`` pattern: ``^`` and ``$`` hold at every line.

    Raises :class:`UsageError` for a pattern that does not compile.
    """
    try:
        return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise malformed(
            f"the pattern {pattern!r} is not a regular expression: {error}.",
            fix="Put a backslash before characters that are meant literally, such as ( [ + or *.",
        ) from None


def malformed(
    message: str, *, fix: str, rule: str = "", suggestions: Iterable[str] = ()
) -> UsageError:
    """The refusal of a criterion, to be raised; its code is always ``criterion_invalid``."""
    return UsageError(
        message, code="criterion_invalid", rule=rule, fix=fix, suggestions=list(suggestions)
    )


def split_words(args: str) -> list[str]:
    """The words of a text; double quotes hold one with blanks together."""
    return [word_of(token) for token in WORD.finditer(args)]


def word_of(token: re.Match[str]) -> str:
    """The word that ``WORD`` has found, without its quotes."""
    within, bare = token.groups()
    return cast(str, bare if within is None else within)


def quoted(path: str) -> str:
    """The word as :func:`split_words` reads it back, unless it holds a double quote itself."""
    return path if re.fullmatch(r"[^\s\"]+", path) else f'"{path}"'


def whole_number(value: object, name: str) -> int:
    """A number of things, from 0 to ``count_max``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= count_max:
        raise malformed(
            f"{name} must be a whole number from 0, not {value!r}.", fix=f"Give {name}: 1."
        )
    return value


def seconds(value: object, most: float = timeout_s_max) -> float:
    """A time limit: seconds, or text such as ``90s``, ``10m`` or ``2h``; up to ``most``."""
    number = -1.0
    if isinstance(value, str):
        number = seconds_of(value) or number
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(min(value, most + 1))
    if not 0 < number <= most:
        raise malformed(
            f"timeout must be a time above 0 and at most {most:g} s, not {value!r}.",
            fix="Give seconds, or text such as 90s, 10m or 2h.",
        )
    return number
