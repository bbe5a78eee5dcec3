"""How a statement reads: as a fact, as an order, or as progress (ME-2, MB-1).

Job: point out wording that ages badly. Invariants: a heuristic, so nothing is refused for what
only looks like an order; what names a node of the task at hand with a state is certain enough to
refuse. It knows English well, and the commonest forms of a few other languages.
"""

# ruff: noqa: RUF001  (quotation marks and stops of other scripts are what is looked for)

import re
from collections.abc import Collection
from typing import Final

from perdure.core.model import NODE_STATES, TASK_STATES

_START: Final = r"(?:^|[.!?;:]\s+|[。！？；：]\s*|\bso\s+|\bthen\s+|,\s*(?=always|never|please))"
_VERBS: Final = (
    "add|adjust|allow|apply|ask|avoid|call|cap|change|check|clean|clear|close|commit|configure|"
    "confirm|consider|copy|create|delete|disable|do|download|drop|enable|ensure|export|fetch|fix|"
    "follow|give|handle|ignore|import|increase|install|keep|kill|launch|leave|limit|load|log|lower|"
    "make|mark|mind|move|note|open|pass|pin|prefer|probe|provide|put|raise|read|reduce|re-?check|"
    "remember|remove|rename|replace|restart|resume|retry|return|rerun|run|save|send|set|skip|split|"
    "start|stop|store|switch|take|test|treat|try|turn|update|upgrade|use|validate|verify|wait|"
    "watch|write"
)
# After one of these the word before was a noun: "Use of X is slow", "Run time is an hour".
_NOUN_AFTER: Final = (
    r"(?!\s+(?:of|is|are|was|were|has|have|had|does|time|times|takes?|needs?|fails?|returns?|"
    r"and\s+\w+\s+(?:is|are)|lines?|digits?|points?|files?\s+(?:is|are|of|live|lie)|"
    r"requests?\s+(?:is|are|fail)|calls?\s+(?:is|are|fail)|operations?|can|cannot|may|must|will|"
    r"works?|costs?|data\s+\w+s\b|cases?|protection|volume\s+\w+s\b|budgets?\s+\w+|\d[\w.]*|at\s+\w+\s+(?:is|are))\b)"
)
_ORDERS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_START}(?P<order>(?:always|never)\s+(?!was\b|were\b|is\b|are\b|has\b|had\b)[a-z]+)",
        (
            rf"{_START}(?P<order>do\s+not|don['’]t|please\b|make\s+sure|be\s+(?:sure|careful)|"
            rf"remember\s+to|beware)"
        ),
        rf"{_START}(?P<order>(?:{_VERBS})){_NOUN_AFTER}\s+\S",
        r"\b(?P<order>you\s+(?:must|should|need\s+to|have\s+to|shall|ought\s+to|had\s+better))\b",
        # German
        (
            rf"{_START}(?P<order>immer|niemals|bitte|stelle?\s+sicher|achte\s+(?:darauf|auf)|"
            rf"vergiss\s+nicht|(?:ver|be)?nutze|verwende|benütze|vermeide|prüfe|starte|setze|"
            rf"führe|nimm)\s+\S"
        ),
        # French
        (
            rf"{_START}(?P<order>toujours|ne\s+jamais|veuillez|assurez-vous|assure-toi|évitez|évite|"
            rf"utilisez|utilise|vérifiez|n['’](?:utilisez|oubliez|oublie)|ne\s+\w+ez\s+pas)\b"
        ),
        # Spanish, Portuguese, Italian
        (
            rf"{_START}(?P<order>siempre|nunca|asegúrate|asegúrese|evite|evita|utilice|use\s+siempre|"
            rf"recuerda|no\s+olvides|sempre|certifique-se|assicurati|non\s+usare)\b"
        ),
        # Russian
        (
            rf"{_START}(?P<order>всегда|никогда\s+не|пожалуйста|не\s+забудь\w*|используй\w*|"
            rf"проверь\w*|избегай\w*)\b"
        ),
        # Chinese, Japanese, Korean
        r"(?P<order>请务必|务必|切勿|不要|请勿|一定要|必须先|應該|应该|永远不要|总是要|請)",
        rf"{_START}(?P<order>请|始终|总是)",
        r"(?P<order>してください|て下さい|しないでください|しないこと|すること[。]?$|必ず|なければならない)",
        r"(?P<order>하세요|하십시오|하지\s*마|해야\s*합니다|반드시|해라)",
    )
)

_STATES: Final = "|".join(sorted({*NODE_STATES, *TASK_STATES}, key=lambda name: (-len(name), name)))
_PROGRESS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        (
            r"\b(?P<part>(?:we|i)(?:\s+have|['’]ve)?\s+(?:just\s+|now\s+|already\s+)?"
            r"(?:finished|completed|done|reached|started|begun)\b.*?"
            r"\b(?:step|node|phase|task|part|item|unit|batch|milestone|wave|shard)s?\b)"
        ),
        (
            r"\b(?P<part>(?:step|phase|milestone|wave|part)\s+#?\d+\s+(?:of\s+\d+\s+)?"
            r"(?:is|are|was|has\s+been)\s+(?:now\s+)?(?:done|finished|complete[d]?|in\s+progress|"
            r"running|pending|started))\b"
        ),
        (
            r"\b(?P<part>\d+\s*(?:of|/)\s*\d+\s+(?:\w+\s+)?(?:are\s+|is\s+|were\s+)?"
            r"(?:done|finished|complete[d]?|processed|remaining|left))\b"
        ),
        r"(?P<part>第?\s*\d+\s*(?:步|阶段)(?:已经?)?(?:完成|结束))",
        r"(?P<part>ステップ\s*\d+\s*(?:が|は)?(?:完了|終わ))",
        (
            r"\b(?P<part>wir\s+(?:haben|sind)\b.{0,60}\b(?:schritt|phase|knoten)\b.{0,40}"
            r"\b(?:fertig|erledigt|abgeschlossen))\b"
        ),
    )
)
_NODE_STATE: Final = re.compile(
    rf"\b(?P<part>[A-Za-z][\w.-]*\d[\w.-]*(?:\s*(?:->|=|:)|\s+(?:is|was|became|has\s+become))?\s*"
    rf"(?:{_STATES}))\b"
)


def imperative(statement: str) -> str:
    """The words that give an order, as they stand there; empty where none are seen (ME-2)."""
    for pattern in _ORDERS:
        match = pattern.search(statement)
        if match is not None:
            return match["order"].strip()
    return ""


def progress(statement: str) -> str:
    """The words that tell how far some work is; empty where none are seen (MB-1)."""
    for pattern in (*_PROGRESS, _NODE_STATE):
        match = pattern.search(statement)
        if match is not None:
            return match["part"].strip()
    return ""


def state_of_own(statement: str, names: Collection[str]) -> str:
    """The words that say in which state a node or a task of these names is; empty where none.

    Only the states' own names count, in capitals, shortly behind the name: that is no accident.
    """
    for match in _STATE_WORD.finditer(statement):
        before = statement[: match.start()].split()[-4:]
        for place, word in enumerate(before):
            if word.strip(".,;:()[]`'\"") in names:
                return " ".join([*before[place:], match[0]])
    return ""


_STATE_WORD: Final = re.compile(rf"(?<![\w-])(?:{_STATES})(?![\w-])")
