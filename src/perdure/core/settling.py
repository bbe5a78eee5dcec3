"""The commands that settle an open question.

Job: say, for each kind of question and for what has become of its node, what a person can type.
Invariants: a command is of this question and of no other; a word in capitals is left to whoever
types it, so that none but an approval does anything as it stands. Who may give it is not said here.
"""

from shlex import quote

from perdure.core.escalation import ways_out
from perdure.core.gates import CONSENT_WORDS, asks_consent, is_automatic, is_of_gate
from perdure.core.model import DEAD_STATES, State
from perdure.core.people import Question
from perdure.errors import UsageError


def commands_for(state: State, question: Question) -> list[str]:
    """Every way to settle it, the usual one first."""
    name = quote(question.question_id)
    node = state.nodes.get(question.node or "")
    if is_of_gate(question):
        return [
            f"perdure approve {name}",
            f"perdure revise {name} --text WHAT",
            f"perdure reject {name} --reason WHY",
        ]
    if asks_consent(question):
        return [f"perdure approve {name}", f"perdure reject {name} --reason WHY"]
    if question.kind == "effect":
        return [
            f"perdure answer {name} PROOF --choice done",
            f"perdure answer {name} WHY --choice not-done",
        ]
    ways = ways_out(question)
    if ways:
        return ways
    choice = " --choice OPTION" if question.options and not is_automatic(question) else ""
    answer = f"perdure answer {name} TEXT{choice}"
    if node is not None and node.state in DEAD_STATES:
        return [f"perdure add ID TITLE --successor-of {quote(node.node_id)}", answer]
    return [answer]


def command_for(state: State, question: Question) -> str:
    """The one to begin with; where an answer is one of two, it suggests neither."""
    if question.kind == "effect":
        return f"perdure show {quote(question.question_id)}"
    return commands_for(state, question)[0]


def check_says_which(question: Question, words: str) -> None:
    """Raise UsageError for words that are neither consent nor refusal, which would be guessed."""
    if words.strip().casefold() not in (*CONSENT_WORDS, *question.options):
        name = question.question_id
        raise UsageError(
            f"{name} asks for consent, and {words!r:.80} neither approves nor rejects.",
            code="unknown_choice",
            rule="GA-1",
            fix=f"Say which: perdure approve {name}, or perdure reject {name} --reason WHY.",
            suggestions=question.options,
        )
