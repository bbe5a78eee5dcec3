"""What the command lines of the agents print at their end, read into one form.

Job: from the bytes of a result to whether the agent says that it failed, what it used, and what
somebody should know. Invariants: pure; nothing raises, whatever was printed; what cannot be read is
said to be so and nothing is made up in its place; tokens count everything that a model read and
wrote, cached or not. Never decides whether the work is done.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.dispatching import Usage

denied_shown_max: Final = 5
error_chars_max: Final = 2_000


class Said(NamedTuple):
    """What an agent printed, as far as it can be read."""

    readable: bool
    """Its own result was there; without it neither success nor failure was reported."""
    failed: bool = False
    kind: str = ""
    """The agent's own word for the failure, such as ``error_max_turns``."""
    error: str = ""
    """The text of the failure, or of the newest trouble where it did not come to an end."""
    usage: Usage = Usage()
    notice: str = ""


def read_claude(output: bytes, log: str = "") -> Said:
    """``claude -p --output-format json``, or the last line of ``stream-json``."""
    result = next((value for value in _documents(output) if value.get("type") == "result"), None)
    if result is None:
        return Said(False)
    subtype = _text(result.get("subtype"))
    failed = result.get("is_error") is True or subtype.startswith("error")
    error = ""
    if failed:
        said = [_text(result.get("result")), *map(_text, _list(result.get("errors")))]
        status = result.get("api_error_status")
        said += [f"status {status}"] if status else []
        error = "\n".join(text for text in said if text)[:error_chars_max]
    denied = [
        _text(_mapping(one).get("tool_name")) for one in _list(result.get("permission_denials"))
    ]
    notice = ""
    if denied:
        names = ", ".join(dict.fromkeys(denied[:denied_shown_max]))
        notice = f"it was not allowed to use {names} ({len(denied)} calls)"
    return Said(True, failed, subtype, error, _claude_usage(result), notice)


def _claude_usage(result: Mapping[str, Any]) -> Usage:
    models = {name: _mapping(one) for name, one in _mapping(result.get("modelUsage")).items()}
    kinds = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    tokens = _sum(one.get(kind) for one in models.values() for kind in kinds)
    if not models:
        usage = _mapping(result.get("usage"))
        names = (
            "input_tokens", "output_tokens", "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )  # fmt: skip
        tokens = _sum(usage.get(name) for name in names)
    model = max(models, key=lambda name: _count(models[name].get("outputTokens")) or 0, default="")
    return Usage(tokens=tokens, cost_usd=_amount(result.get("total_cost_usd")), model=model)


_CODEX_TOOLS: Final = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
)


def read_codex(output: bytes, log: str = "") -> Said:
    """``codex exec --json``: one event a line. It tells tokens, and neither cost nor model."""
    tokens: list[int | None] = []
    calls = 0
    ended = failed = False
    error = ""
    for event in _lines(output):
        kind = event.get("type")
        if kind == "turn.completed":
            usage = _mapping(event.get("usage"))
            tokens += [_count(usage.get("input_tokens")), _count(usage.get("output_tokens"))]
            ended, failed = True, False
        elif kind == "turn.failed":
            ended = failed = True
            error = _text(_mapping(event.get("error")).get("message")) or error
        elif kind == "error":
            error = _text(event.get("message")) or error
        elif kind == "item.completed":
            calls += _mapping(event.get("item")).get("type") in _CODEX_TOOLS
    if not ended:
        return Said(False, error=error[:error_chars_max])
    usage_said = Usage(tokens=_sum(tokens), tool_calls=calls)
    kind = "turn.failed" if failed else ""
    return Said(True, failed, kind, error[:error_chars_max] if failed else "", usage_said)


def read_gemini(output: bytes, log: str = "") -> Said:
    """``gemini -o json``: one document; that of a failure is the last thing in the log."""
    document = next(iter(_documents(output)), None)
    if document is None or not ({"response", "stats", "error"} & document.keys()):
        document = _mapping(_decoded(log[log.rfind("\n{\n") + 1 :].strip().encode()))
        if "error" not in document:
            return Said(False)
    stats = _mapping(document.get("stats"))
    models = {name: _mapping(one) for name, one in _mapping(stats.get("models")).items()}
    tokens = {name: _mapping(one.get("tokens")) for name, one in models.items()}
    usage = Usage(
        tool_calls=_count(_mapping(stats.get("tools")).get("totalCalls")),
        tokens=_sum(one.get("total") for one in tokens.values()),
        model=max(tokens, key=lambda name: _count(tokens[name].get("candidates")) or 0, default=""),
    )
    problem = _mapping(document.get("error"))
    code = problem.get("code")
    error = _text(problem.get("message"))
    if problem and code is not None:
        error = f"{error}\nstatus {code}"
    return Said(True, bool(problem), _text(problem.get("type")), error[:error_chars_max], usage)


READERS: Final[Mapping[str, Callable[[bytes, str], Said]]] = {
    "claude": read_claude,
    "codex": read_codex,
    "gemini": read_gemini,
}
"""By agent: from its standard output, and the end of its log."""


def _documents(output: bytes) -> Iterator[Mapping[str, Any]]:
    """The whole output as one object, or a list of them, the last first; else its lines so."""
    whole = _decoded(output)
    if isinstance(whole, list):
        yield from (one for one in reversed(whole) if isinstance(one, dict))
    elif isinstance(whole, dict):
        yield whole
    elif (start := output.find(b"{")) > 0 and isinstance(late := _decoded(output[start:]), dict):
        yield late  # a warning stood before it
    else:
        yield from reversed(list(_lines(output)))


def _lines(output: bytes) -> Iterator[Mapping[str, Any]]:
    for line in output.split(b"\n"):
        if line.startswith(b"{") and isinstance(value := _decoded(line), dict):
            yield value


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(value)


def _sum(values: Any) -> int | None:
    """The sum of those that are counts; None where nobody says anything."""
    found = [count for value in values if (count := _count(value)) is not None]
    return sum(found) if found else None
