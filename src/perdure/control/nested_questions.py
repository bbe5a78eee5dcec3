"""Questions on their way up, and answers and instructions on their way down (HALT-06 section 4).

Job: ask in the parent what a child asks, and bring what people said there to the child. Invariants:
a question is on record here before its node waits for it (H2); an answer is delivered as a message
of whoever gave it, under an id made of the event that holds it, so that the child takes it in once
(QA-2); what the child does not ask any more is not answered. Delivering commits nothing here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.control.executor_port import Question
from perdure.core import commands as c
from perdure.core import instance as i
from perdure.core.asking import free_id
from perdure.core.gates import CONSENT_WORDS, asks_consent, is_of_gate
from perdure.core.model import Node, State, text_digest
from perdure.core.payload import text
from perdure.core.people import ANSWERS
from perdure.core.people import Question as Asked
from perdure.core.wake import by_answer
from perdure.errors import NotFoundError
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog
from perdure.storage import spool
from perdure.storage.workspace import Layout

turn_s: Final = 0.000_01
"""Between two messages to an instance, so that it takes them in one after the other."""
generations_max: Final = 1_000
"""Times that one question of a child is asked here anew."""


def ask_up(engine: Engine, node_id: str, questions: Sequence[Question]) -> None:
    """Ask what a child waits for, and let its node wait (N05); one commit.

    What is open already is not asked again. A crash leaves all of it or nothing.
    """
    with engine.batch():
        for question in questions:
            _ask(engine, question, node_id)
        state = engine.replica.state
        if questions and state.nodes[node_id].state == "RUNNING":  # all of it was asked before
            name = open_as(state, questions[0].ref)
            waits = {"reason": f"question {name}: {questions[0].text}", "wake": by_answer(name)}
            engine.execute(c.MoveNode(node_id, "BLOCKED", payload=waits))


def ask_gaps(engine: Engine, node_id: str, questions: Sequence[Question]) -> None:
    """Ask about each gap of a child that is done with gaps; nothing waits for the answers.

    A gap that was asked about before is not asked again.
    """
    with engine.batch():
        for question in questions:
            base = i.forwarded_id(question.ref)
            state = engine.replica.state
            if base not in state.questions and base not in state.closed_questions:
                text_ = (
                    f"{node_id} is done with a gap: {question.text} What is to be done about it?"
                )
                _ask(engine, question._replace(text=text_), None)


def _ask(engine: Engine, question: Question, node_id: str | None) -> None:
    state = engine.replica.state
    if open_as(state, question.ref):
        return
    engine.execute(
        c.AskQuestion(
            question.text,
            free_id(state, i.forwarded_id(question.ref)),
            node_id,
            question.options,
            question.default,
            question.to or ANSWERS,
            question.context,
            links=(question.ref, *question.links),
        )
    )


def open_as(state: State, ref: str) -> str:
    """The open question by which a child's is asked here; empty when it is not."""
    return next((name for name in generations(ref) if name in state.questions), "")


def generations(ref: str) -> Iterator[str]:
    """Every id that a child's question may have had here, the first first."""
    base = i.forwarded_id(ref)
    yield base
    for number in range(2, generations_max):
        yield f"{base}.{number}"


# The way down


def deliver_answers(engine: Engine, node: Node, instance: str, directory: str) -> int:
    """Drop what people said here into the drop box of an instance; how many messages that were.

    Answers to what it asks, and instructions that its node follows. Durable on return, and
    repeatable: the same message has the same id, and the child carries it out once.
    """
    messages = [*_instructions(engine, node), *_answers(engine, instance, directory)]
    layout = Layout(directory)
    for message in messages:
        spool.drop(engine.disk, layout, message)
    return len(messages)


def _instructions(engine: Engine, node: Node) -> Iterator[spool.Message]:
    for words in node.directives:
        yield spool.Message(
            f"down-{text_digest(words)}",
            "steer",
            {
                "id": f"down-{text_digest(words)}",
                "text": words,
                "reading": "amendment",
                "source": f"{engine.replica.state.task_id}, node {node.node_id}",
                "received_via": "parent",
            },
            "coordinator:parent",
            engine.world.clock.now(),
        )


def _answers(engine: Engine, instance: str, directory: str) -> Iterator[spool.Message]:
    child = Engine(directory, engine.world, engine.actor)
    try:
        child.load()
    except NotFoundError:  # it has not begun, so it asks nothing
        return
    state, given = engine.replica.state, list[tuple[int, Asked]]()
    for question in child.replica.state.questions.values():
        name = _settled_as(state, i.qualified(instance, question.question_id))
        if name:
            given.append((int(state.closed_questions[name].removeprefix("J-")), question))
    log = EventLog(engine.disk, engine.layout.journal, state.seq)
    now = engine.world.clock.now()
    for number, (seq, question) in enumerate(sorted(given, key=lambda one: one[0])):
        event = log[seq - 1]
        if event.payload.get("op") == "answer":
            command, args = ruling_for(question, event.payload)
            by = text(event.payload.get("authority"), event.actor)
            # The drop box is taken in by time: what was said first counts first.
            yield spool.Message(f"up-{event.ref}", command, args, by, now + number * turn_s)


def _settled_as(state: State, ref: str) -> str:
    """The newest question by which it was asked and settled here, when it is not open here."""
    newest = ""
    for name in generations(ref):
        if name in state.questions:
            return ""
        if name not in state.closed_questions:
            return newest
        newest = name
    return newest


def ruling_for(question: Asked, said: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The call that carries an answer of the parent's journal to the child's question.

    Gates take consent or refusal, also where it was given as a word; everything else what was said.
    """
    ruling, choice = text(said.get("ruling"), "answer"), text(said.get("choice"))
    words = text(said.get("answer"))
    args: dict[str, Any] = {"question": question.question_id, "text": words}
    if is_of_gate(question) or asks_consent(question):
        word = (choice or words).strip().casefold()
        consents = ruling == "approve" or (ruling == "answer" and word in CONSENT_WORDS)
        if consents:
            return "approve", args
        return "reject", {**args, "text": words or choice or "rejected"}
    if ruling in ("approve", "reject") and question.kind in ("question", "confirmation"):
        return ruling, args
    if ruling != "answer":
        args["text"] = words or ruling
    if choice and (not question.options or choice in question.options or _is_free(question)):
        args["choice"] = choice
    elif not choice and words in question.options:
        args["choice"] = words
    return "answer", args


def _is_free(question: Asked) -> bool:
    return question.kind in ("escalation", "effect")
