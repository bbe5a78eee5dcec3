"""How the parameters of each check method are written and completed.

Job: per method of protocol section 5, read its text arguments, complete and validate its
parameters, and write them as text again. Invariants: what ``complete`` returns has the canonical
names and types and is completed to itself. Never decides whether a check holds.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from perdure.core.check_values import (
    WORD,
    clean_path,
    compile_pattern,
    malformed,
    quoted,
    seconds,
    split_words,
    whole_number,
    word_of,
)
from perdure.core.judged_methods import (
    AUDIT_NAMES,
    AUDIT_USAGE,
    HUMAN_NAMES,
    HUMAN_USAGE,
    complete_audit,
    complete_human,
    rubric_from_text,
    rubric_to_text,
)
from perdure.core.model import CHECK_METHODS

_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_CONDITION: Final = re.compile(r"(>=|<=|==|=|>|<)\s*(\d{1,15})")
_COUNT: Final = re.compile(r"(.+?)\s+((?:(?:>=|<=|==|=|>|<)\s*\d{1,15}\s*)+)\Z", re.DOTALL)


class Method(NamedTuple):
    """How one check method is written: from text, as a mapping, and as text again."""

    usage: str
    """What stands after the name of the method and its colon."""
    names: tuple[str, ...]
    """Parameters it knows; empty: free-form."""
    from_text: Callable[[str], dict[str, Any]]
    complete: Callable[[dict[str, Any]], dict[str, Any]]
    to_text: Callable[[dict[str, Any]], str | None]


def usage_line(method: str) -> str:
    """How the method is written, as the fix of a refusal."""
    return f'Write "{method}: {METHODS[method].usage}".'


def methods_line() -> str:
    """All methods there are, as the fix of a refusal."""
    return f"The methods are {', '.join(CHECK_METHODS)}."


def _require(method: str, params: dict[str, Any], *names: str) -> None:
    missing = [name for name in names if params.get(name) is None]
    if missing:
        raise malformed(f"{method} needs {' and '.join(missing)}.", fix=usage_line(method))


def _two_words(method: str, args: str) -> tuple[str, str]:
    words = split_words(args)
    if len(words) != 2:
        raise malformed(
            f"{method} needs two arguments and got {len(words)}.",
            fix=f"{usage_line(method)} Put a path with blanks in double quotes.",
        )
    return words[0], words[1]


def _paths_from_text(args: str) -> dict[str, Any]:
    paths = split_words(args)
    return {"path": paths[0]} if len(paths) == 1 else {"paths": paths}


def _complete_paths(params: dict[str, Any]) -> dict[str, Any]:
    """One path stays ``path``; several are ``paths``, and each of them must hold."""
    if "path" in params and "paths" in params:
        raise malformed("path and paths exclude each other.", fix="Give all of them in paths.")
    given = params.get("paths", params.get("path"))
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed or listed == [None]:
        raise malformed("no path is given.", fix="Write the paths after the method, or as a list.")
    paths = [clean_path(path) for path in listed]
    return {"path": paths[0]} if len(paths) == 1 else {"paths": paths}


def _paths_to_text(params: dict[str, Any]) -> str:
    return " ".join(quoted(path) for path in params.get("paths", [params.get("path")]))


def _sha256_from_text(args: str) -> dict[str, Any]:
    path, value = _two_words("sha256", args)
    return {"path": path, "value": value}


def _complete_sha256(params: dict[str, Any]) -> dict[str, Any]:
    _require("sha256", params, "path", "value")
    value = params["value"]
    digest = value.lower().removeprefix("sha256:") if isinstance(value, str) else ""
    if not _DIGEST.match(digest):
        raise malformed(
            f"{value!r} is not a sha256 value.",
            fix="Give 64 hexadecimal digits, in quotes when all of them are decimal.",
        )
    return {"path": clean_path(params["path"]), "value": digest}


def _sha256_to_text(params: dict[str, Any]) -> str:
    return f"{quoted(params['path'])} {params['value']}"


def _schema_from_text(args: str) -> dict[str, Any]:
    path, schema = _two_words("json-schema", args)
    return {"path": path, "schema": schema}


def _complete_schema(params: dict[str, Any]) -> dict[str, Any]:
    _require("json-schema", params, "path", "schema")
    schema = params["schema"]
    if not isinstance(schema, Mapping):
        schema = clean_path(schema, "schema")
    return {"path": clean_path(params["path"]), "schema": schema}


def _schema_to_text(params: dict[str, Any]) -> str | None:
    if not isinstance(params["schema"], str):
        return None
    return f"{quoted(params['path'])} {quoted(params['schema'])}"


def _matches_from_text(args: str) -> dict[str, Any]:
    token = WORD.match(args)
    pattern = args[token.end() :].strip() if token else ""
    if token is None or not pattern:
        raise malformed("matches needs a path and a pattern.", fix=usage_line("matches"))
    return {"path": word_of(token), "pattern": pattern}


def _complete_matches(params: dict[str, Any]) -> dict[str, Any]:
    _require("matches", params, "path", "pattern")
    pattern = params["pattern"]
    if not isinstance(pattern, str) or not pattern:
        raise malformed("pattern must be a text that is not empty.", fix=usage_line("matches"))
    compile_pattern(pattern)
    return {"path": clean_path(params["path"]), "pattern": pattern}


def _matches_to_text(params: dict[str, Any]) -> str:
    return f"{quoted(params['path'])} {params['pattern']}"


def _count_from_text(args: str) -> dict[str, Any]:
    found = _COUNT.match(args)
    if found is None:
        raise malformed(
            f"the count {args!r} does not end in a comparison such as '>= 1'.",
            fix=usage_line("count"),
        )
    what, conditions = found.groups()
    words = split_words(what)
    params: dict[str, Any] = {}
    if len(words) == 2 and what.split()[0] == "lines":
        params["lines"] = words[1]
    elif len(words) == 1:
        params["glob"] = words[0]
    else:
        raise malformed(
            f"the count names {len(words)} things: {what!r}.",
            fix=f"Put a name with blanks in double quotes. {usage_line('count')}",
        )
    for sign, number in _CONDITION.findall(conditions):
        name, bound = _bound(sign, int(number))
        if name in params:
            raise malformed(f"the count has two values for {name}.", fix=usage_line("count"))
        params[name] = bound
    return params


def _bound(sign: str, number: int) -> tuple[str, int]:
    if sign in ("==", "="):
        return "equals", number
    if sign in (">=", ">"):
        return "min", number + (sign == ">")
    return "max", number - (sign == "<")


def _complete_count(params: dict[str, Any]) -> dict[str, Any]:
    if ("glob" in params) == ("lines" in params):
        raise malformed("count needs either glob or lines, and not both.", fix=usage_line("count"))
    done: dict[str, Any] = {}
    if "lines" in params:
        done["lines"] = clean_path(params["lines"], "lines")
    else:
        done["glob"] = clean_path(params["glob"], "glob")
        if any("**" in part and part != "**" for part in done["glob"].split("/")):
            raise malformed(
                f"in the glob {done['glob']!r} a ** does not stand alone between slashes.",
                fix="Write dir/**/*.csv for any depth, or * for one part of a name.",
            )
    bounds = {
        key: whole_number(params[key], key) for key in ("min", "max", "equals") if key in params
    }
    if not bounds or ("equals" in bounds and len(bounds) > 1):
        raise malformed(
            "count needs equals, or min, or max, or both of these.", fix=usage_line("count")
        )
    if bounds.get("min", 0) > bounds.get("max", bounds.get("min", 0)):
        raise malformed(
            f"no number is at least {bounds['min']} and at most {bounds['max']}.",
            fix="Exchange min and max.",
        )
    return done | bounds


def _count_to_text(params: dict[str, Any]) -> str:
    what = quoted(params["glob"]) if "glob" in params else f"lines {quoted(params['lines'])}"
    signs = (("equals", "=="), ("min", ">="), ("max", "<="))
    return " ".join([what, *(f"{sign} {params[key]}" for key, sign in signs if key in params)])


def _script_from_text(args: str) -> dict[str, Any]:
    return {"run": args}


def _complete_script(params: dict[str, Any]) -> dict[str, Any]:
    """``timeout`` in seconds, or text such as 90s or 10m, becomes ``timeout_s``."""
    run = params.get("run")
    words: list[Any] = list(run) if isinstance(run, (list, tuple)) else [run]
    if not words or not all(isinstance(word, str) for word in words) or not words[0].strip():
        raise malformed(
            "run must be a command line, or a list of texts that starts with a program.",
            fix=usage_line("script"),
        )
    if any("\0" in word for word in words):
        raise malformed("run holds a NUL character.", fix="Leave it out.")
    done: dict[str, Any] = {"run": words if isinstance(run, (list, tuple)) else run}
    if "timeout" in params and "timeout_s" in params:
        raise malformed("timeout and timeout_s exclude each other.", fix="Keep timeout_s.")
    limit = params.get("timeout_s", params.get("timeout"))
    if limit is not None:
        done["timeout_s"] = seconds(limit)
    return done


def _script_to_text(params: dict[str, Any]) -> str | None:
    run = params["run"]
    return run if isinstance(run, str) and "timeout_s" not in params else None


def _units_from_text(args: str) -> dict[str, Any]:
    paths = split_words(args)
    if len(paths) > 1:
        raise malformed("units reads one ledger.", fix=usage_line("units"))
    return {"ledger": paths[0]} if paths else {}


def _complete_units(params: dict[str, Any]) -> dict[str, Any]:
    """Without ``ledger`` it is the node's own, ``artifacts/<node>/ledger.jsonl``."""
    done: dict[str, Any] = {}
    if params.get("ledger") is not None:
        done["ledger"] = clean_path(params["ledger"], "ledger")
    if params.get("total") is not None:
        done["total"] = whole_number(params["total"], "total")
    return done


def _units_to_text(params: dict[str, Any]) -> str | None:
    if "total" in params:
        return None
    return quoted(params["ledger"]) if "ledger" in params else ""


_LISTED: Final = Method(
    "PATH...", ("path", "paths"), _paths_from_text, _complete_paths, _paths_to_text
)

METHODS: Final[dict[str, Method]] = {
    "exists": _LISTED,
    "nonempty": _LISTED,
    "sha256": Method(
        "PATH HEX", ("path", "value"), _sha256_from_text, _complete_sha256, _sha256_to_text
    ),
    "json-schema": Method(
        "PATH SCHEMA_PATH, or {path: PATH, schema: {...}}",
        ("path", "schema"),
        _schema_from_text,
        _complete_schema,
        _schema_to_text,
    ),
    "matches": Method(
        "PATH REGEX", ("path", "pattern"), _matches_from_text, _complete_matches, _matches_to_text
    ),
    "count": Method(
        "GLOB >= N, or count: lines PATH == N",
        ("glob", "lines", "min", "max", "equals"),
        _count_from_text,
        _complete_count,
        _count_to_text,
    ),
    "script": Method(
        "COMMAND LINE, or {run: COMMAND, timeout: SECONDS}",
        ("run", "timeout", "timeout_s"),
        _script_from_text,
        _complete_script,
        _script_to_text,
    ),
    "units": Method(
        "LEDGER_PATH, or {ledger: PATH, total: N}",
        ("ledger", "total"),
        _units_from_text,
        _complete_units,
        _units_to_text,
    ),
    "audit": Method(AUDIT_USAGE, AUDIT_NAMES, rubric_from_text, complete_audit, rubric_to_text),
    "human": Method(HUMAN_USAGE, HUMAN_NAMES, rubric_from_text, complete_human, rubric_to_text),
}
