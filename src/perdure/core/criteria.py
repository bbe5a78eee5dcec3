"""Acceptance criteria as people write them, and as the records hold them.

Job: turn one ``accept`` entry (a line of text, a one-key mapping, a structured mapping or a record)
into a :class:`~perdure.core.model.Criterion` whose parameters are complete and canonical, and back
into text. Invariants: what :func:`parse_criterion` returns can be run without looking at its types
again; parsing it once more gives an equal record; ``parse_criterion(render_criterion(c)) == c`` for
every such record. Never touches a disk, and never decides whether a criterion holds. What each
method's parameters are is in ``check_methods``.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from perdure.core.check_methods import METHODS, methods_line, usage_line
from perdure.core.check_values import malformed
from perdure.core.lookup import near
from perdure.core.model import (
    CHECK_METHODS,
    VERIFICATION_LEVELS,
    CheckMethod,
    Criterion,
    VerificationLevel,
)

# Limits.
criterion_bytes_max: Final = 64 << 10

_LEVEL_MIN: Final = {"audit": "V2", "human": "V3"}
"""Judgement is never mechanical, whatever level the node asks for."""


def parse_criterion(entry: object, *, level: VerificationLevel = "V1") -> Criterion:
    """Read one acceptance criterion.

    ``entry`` is ``"METHOD: ARGS"``, ``{METHOD: ARGS}`` (optionally with ``level``), ``{check:
    METHOD, params: {...} or the parameters themselves, level: V0..V3}``, the JSON text of a
    mapping, or a :class:`Criterion`. ``level`` applies where the entry names none; ``audit`` is at
    least V2 and ``human`` at least V3. Raises :class:`UsageError` with what is wrong and how to
    put it right. Times are in seconds.
    """
    if isinstance(entry, Criterion):
        return _build(entry.check, entry.params, entry.level, level)
    if isinstance(entry, str):
        text = entry.strip()
        if text.startswith("{"):
            return _parse_mapping(_decoded(text), level)
        method, args = _split_text(text)
        return _build(method, args, None, level)
    if isinstance(entry, Mapping):
        return _parse_mapping(entry, level)
    raise malformed(
        f"an acceptance criterion is text or a mapping, not {type(entry).__name__}.",
        fix='Write "METHOD: ARGS", for example "exists: artifacts/N1/report.md".',
    )


def render_criterion(criterion: Criterion) -> str:
    """One line that :func:`parse_criterion`, with its own default level, reads back as equal.

    The plain text form where it can hold everything, else the JSON of the mapping form. Raises
    :class:`UsageError` when the record itself is not a legal criterion.
    """
    known = parse_criterion(criterion)
    natural = _LEVEL_MIN.get(known.check, "V1")
    if known.level == natural:
        args = METHODS[known.check].to_text(known.params)
        if args is not None and "\n" not in args:
            text = f"{known.check}: {args}".rstrip()
            if parse_criterion(text) == known:
                return text
        return _canonical({known.check: known.params})
    return _canonical({"check": known.check, "level": known.level, "params": known.params})


# Reading the outer form.


def _parse_mapping(entry: Mapping[Any, Any], level: VerificationLevel) -> Criterion:
    """The one-key form or the structured form; ``level`` may stand in both."""
    rest = dict(entry)
    if not all(isinstance(key, str) for key in rest):
        raise malformed("the keys of a criterion must be text.", fix='Write {"METHOD": ARGS}.')
    own_level = rest.pop("level", None)
    if "check" in rest:
        check = rest.pop("check")
        if not isinstance(check, str):
            raise malformed("check must be the name of a method.", fix=methods_line())
        params = rest.pop("params", None)
        if ":" in check:
            method, args = _split_text(check)
            if params or rest:
                raise malformed(
                    f"the criterion {check!r} has its parameters twice.",
                    fix="Give them in the text or as a mapping, not both.",
                )
            return _build(method, args, own_level, level)
        if params is None:
            params = rest
        elif rest:
            raise malformed(
                f"a criterion with params does not know {', '.join(sorted(rest))}.",
                fix="Put every parameter inside params.",
                suggestions=near(min(rest), ("check", "level", "params")),
            )
        return _build(check, params, own_level, level)
    if len(rest) != 1:
        keys = ", ".join(sorted(rest)) or "none"
        raise malformed(
            f"a criterion mapping has one key, the method; this one has {keys}.",
            fix='Write {METHOD: ARGS}, for example {exists: "artifacts/N1/report.md"}.',
        )
    [(method, args)] = rest.items()
    return _build(method, args, own_level, level)


def _split_text(text: str) -> tuple[str, str]:
    """Method and arguments of the text form."""
    method, colon, args = text.partition(":")
    method = method.strip()
    if colon or method in METHODS:
        return method, args.strip()
    first, _, others = text.partition(" ")
    if first in METHODS:
        raise malformed(
            f"the criterion {text!r} lacks the colon after its method.",
            fix=f'Write "{first}: {others.strip()}".',
        )
    raise malformed(
        f"the criterion {text!r} names no check method.",
        fix=f'Write "METHOD: ARGS". {methods_line()}',
        suggestions=near(first, CHECK_METHODS),
    )


def _build(
    method: str, args: object, own_level: object, default_level: VerificationLevel
) -> Criterion:
    """Complete the parameters of a known method and settle the level."""
    spec = METHODS.get(method)
    if spec is None:
        raise malformed(
            f"there is no check method {method!r}.",
            fix=methods_line(),
            suggestions=near(method, CHECK_METHODS),
        )
    if isinstance(args, Mapping):
        params = {_text_key(key): value for key, value in args.items()}
        unknown = [key for key in params if spec.names and key not in spec.names]
        if unknown:
            raise malformed(
                f"{method} has no parameter {unknown[0]!r}.",
                fix=f"It knows {', '.join(spec.names)}. {usage_line(method)}",
                suggestions=near(unknown[0], spec.names),
            )
    elif isinstance(args, str):
        params = spec.from_text(args.strip())
    elif isinstance(args, (list, tuple)) and method in ("exists", "nonempty"):
        params = {"paths": list(args)}
    elif isinstance(args, (list, tuple)) and method == "script":
        params = {"run": list(args)}
    elif args is None:
        params = spec.from_text("")
    else:
        raise malformed(
            f"the arguments of {method} are text or a mapping, not {type(args).__name__}.",
            fix=usage_line(method),
        )
    return Criterion(
        check=cast(CheckMethod, method),
        params=_plain(method, spec.complete(params)),
        level=_level(method, own_level, default_level),
    )


def _level(method: str, own: object, default: VerificationLevel) -> VerificationLevel:
    """The level asked for, else the default raised to what the method needs."""
    least = _LEVEL_MIN.get(method, "V0")
    level = max(default, least) if own is None else own
    if not isinstance(level, str) or level not in VERIFICATION_LEVELS:
        raise malformed(
            f"there is no verification level {level!r}.",
            fix=f"Use one of {', '.join(VERIFICATION_LEVELS)}.",
        )
    if level < least:
        raise malformed(
            f"a check by {method} cannot be of level {level}.",
            rule="VR-0",
            fix=f"Leave the level out, or give {least} or higher.",
        )
    return cast(VerificationLevel, level)


def _plain(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters as they come back from the journal: JSON values only, and bounded."""
    try:
        data = msgspec.json.encode(params)
    except (TypeError, ValueError, RecursionError) as error:
        raise malformed(
            f"the parameters of {method} cannot be written as JSON: {error}.",
            fix="Use text, numbers, lists and mappings with text keys only.",
        ) from None
    if len(data) > criterion_bytes_max:
        raise malformed(
            f"the parameters of {method} take {len(data)} bytes, over {criterion_bytes_max}.",
            fix="Move the long part into a file of the workspace and name the file.",
        )
    return cast(dict[str, Any], msgspec.json.decode(data))


def _text_key(key: object) -> str:
    if not isinstance(key, str):
        raise malformed(f"the parameter name {key!r} is not text.", fix="Put it in quotes.")
    return key


def _decoded(text: str) -> Mapping[Any, Any]:
    try:
        value = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise malformed(
            f"a criterion that starts with a brace must be JSON: {error}.",
            fix='Write {"METHOD": {...}} in JSON, or "METHOD: ARGS".',
        ) from None
    return cast(Mapping[Any, Any], value)


def _canonical(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
