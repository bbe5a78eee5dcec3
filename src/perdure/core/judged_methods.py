"""How the check methods of judgement are written and completed: ``audit`` (V2) and ``human`` (V3).

Job: their parameters, read from text and from mappings. Invariants: those of ``check_methods``,
whose table names these functions. Never decides whether a check holds.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.actions import (
    AGENT_NAMES,
    AGENT_PLACEHOLDERS,
    PLACEHOLDERS_TEXT,
    AgentCall,
    unknown_placeholders,
)
from perdure.core.check_values import malformed, seconds, whole_number
from perdure.core.dispatching import INDEPENDENCE
from perdure.core.durations import duration_max_s
from perdure.core.lookup import near
from perdure.core.people import FALLBACKS

points_max: Final = 100
"""Of one rubric."""

AUDIT_NAMES: Final = (
    "rubric", "agent", "run", "model", "independence", "timeout", "timeout_s",
)  # fmt: skip
AUDIT_USAGE: Final = (
    "RUBRIC, or {rubric: [POINT, ...], agent: claude or run: COMMAND, model: NAME,"
    " independence: [I1, I2], timeout: 30m}"
)
HUMAN_NAMES: Final = ("rubric", "judge", "rounds", "default", "timeout", "timeout_s")
HUMAN_USAGE: Final = (
    "RUBRIC, or {rubric: TEXT, judge: NAME, rounds: N, default: reject, timeout: 2d}"
)
_USE_AUDIT: Final = f'Write "audit: {AUDIT_USAGE}".'
_USE_HUMAN: Final = f'Write "human: {HUMAN_USAGE}".'


def rubric_from_text(args: str) -> dict[str, Any]:
    """The text is the rubric; of an audit its one point."""
    return {"rubric": args} if args else {}


def rubric_to_text(params: dict[str, Any]) -> str | None:
    """The rubric, where it is one text and all that there is; else None."""
    rubric = params.get("rubric", "")
    return rubric if set(params) <= {"rubric"} and isinstance(rubric, str) else None


def complete_human(params: dict[str, Any]) -> dict[str, Any]:
    """What judgement has to name (VR-3): ``judge`` becomes a list, ``timeout`` ``timeout_s``."""
    done: dict[str, Any] = {}
    if params.get("rubric") is not None:
        if not isinstance(params["rubric"], str) or not params["rubric"].strip():
            raise malformed("rubric must be a text that says what is judged.", fix=_USE_HUMAN)
        done["rubric"] = params["rubric"].strip()
    judge = params.get("judge")
    if judge is not None:
        names = [judge] if isinstance(judge, str) else judge
        if not isinstance(names, (list, tuple)) or not names or not all(map(_is_name, names)):
            raise malformed(
                "judge must be the name of a person, or a list of names.", fix=_USE_HUMAN
            )
        done["judge"] = list(dict.fromkeys(name.strip() for name in names))
    if params.get("rounds") is not None:
        done["rounds"] = whole_number(params["rounds"], "rounds")
    if params.get("default") is not None:
        if params["default"] not in FALLBACKS:
            raise malformed(
                f"default of human cannot be {params['default']!r}.",
                fix=f"Write one of {', '.join(FALLBACKS)}; silence is never consent.",
                rule="GA-2",
            )
        done["default"] = params["default"]
    if "timeout" in params and "timeout_s" in params:
        raise malformed("timeout and timeout_s exclude each other.", fix="Keep timeout_s.")
    limit = params.get("timeout_s", params.get("timeout"))
    if limit is not None:
        done["timeout_s"] = seconds(limit, duration_max_s)
    if done.get("default") == "reject" and "timeout_s" not in done:
        raise malformed(
            "default of human is reject, and nobody says when.", fix="Add timeout: 2d, for example."
        )
    return done


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def complete_audit(params: dict[str, Any]) -> dict[str, Any]:
    """Several points stay a list, ``agent`` becomes a mapping, ``timeout`` ``timeout_s``."""
    done: dict[str, Any] = {}
    if params.get("rubric") is not None:
        done["rubric"] = _points(params["rubric"])
    if params.get("agent") is not None and params.get("run") is not None:
        raise malformed("agent and run exclude each other.", fix="Name one auditor.")
    if params.get("agent") is not None:
        done["agent"] = _auditor(params["agent"])
    if params.get("run") is not None:
        done["run"] = _command(params["run"])
    if params.get("model") is not None:
        if not _is_name(params["model"]):
            raise malformed("model must be the name of a model.", fix=_USE_AUDIT)
        done["model"] = params["model"].strip()
    if params.get("independence") is not None:
        done["independence"] = _independence(params["independence"])
    if "timeout" in params and "timeout_s" in params:
        raise malformed("timeout and timeout_s exclude each other.", fix="Keep timeout_s.")
    limit = params.get("timeout_s", params.get("timeout"))
    if limit is not None:
        done["timeout_s"] = seconds(limit)
    return done


def _points(given: object) -> str | list[str]:
    points = [given] if isinstance(given, str) else given
    if not isinstance(points, list | tuple) or not points or not all(map(_is_name, points)):
        raise malformed(
            "rubric must be a text, or a list of texts: the points that are judged.",
            fix=_USE_AUDIT,
        )
    done = [" ".join(point.split()) for point in points]
    if len(set(done)) < len(done):
        raise malformed("two points of the rubric are the same.", fix="Write each of them once.")
    if len(done) > points_max:
        raise malformed(
            f"a rubric has at most {points_max} points, this has {len(done)}.",
            fix="Put several into one, or split the node.",
        )
    return done[0] if len(done) == 1 else done


def _auditor(given: object) -> dict[str, Any]:
    call = {"agent": given} if isinstance(given, str) else given
    name = call.get("agent") if isinstance(call, Mapping) else None
    if name not in AGENT_NAMES:
        raise malformed(
            f"{name!r} is no agent that can audit.",
            fix=f"Name one of {', '.join(AGENT_NAMES)}, or give a command with run.",
            suggestions=near(str(name), AGENT_NAMES),
        )
    try:
        agent = msgspec.convert(call, AgentCall)
    except msgspec.ValidationError as error:
        raise malformed(f"the auditor cannot be read: {error}.", fix=_USE_AUDIT) from None
    if (name == "command") != bool(agent.command):
        raise malformed(
            "command is the argument vector of the agent that is called command, and of no other.",
            fix="Write agent: {agent: command, command: [PROGRAM, ARGUMENT]}.",
        )
    for unknown in unknown_placeholders(agent.command):
        raise malformed(
            f"the command of the auditor has no {{{unknown}}} to fill in.",
            fix=f"It knows {PLACEHOLDERS_TEXT}.",
            suggestions=[f"{{{one}}}" for one in near(unknown, AGENT_PLACEHOLDERS)],
        )
    found: dict[str, Any] = msgspec.to_builtins(agent)
    return found


def _command(given: object) -> str | list[str]:
    words = [given] if isinstance(given, str) else given
    texts = words if isinstance(words, list | tuple) else []
    good = all(isinstance(word, str) and "\0" not in word for word in texts)
    if not texts or not good or not texts[0].strip():
        raise malformed(
            "run must be a command line, or a list of texts that starts with a program.",
            fix=_USE_AUDIT,
        )
    return given if isinstance(given, str) else list(texts)


def _independence(given: object) -> list[str]:
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not words:
        words = [None]
    unknown = [word for word in words if word not in INDEPENDENCE]
    if unknown:
        raise malformed(
            f"{unknown[0]!r} is no kind of independence.",
            rule="VR-0",
            fix=f"Name some of {', '.join(INDEPENDENCE)}: context, process, model, evidence,"
            " authority.",
        )
    return [name for name in INDEPENDENCE if name in words]
