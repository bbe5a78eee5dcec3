"""``docs/progress.md``: how far the task is and what is next, for whoever opens the file.

Job: render where it stands, its NEXT pointer, what waits for whom, what was done last and who has
coordinated it. Invariants: those of ``inbox_page``: a function of the state, bounded, rendered anew
each time and never read back (PL-1).
"""

from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from typing import Any, Final

from perdure.core.fold import Replica
from perdure.core.machine import count_states
from perdure.core.model import Node, State
from perdure.core.next_pointer import next_pointer
from perdure.core.plan_page import page
from perdure.core.quotation import block, named, span, timed
from perdure.core.views import stuck
from perdure.core.with_people import with_people

done_max: Final = 20
at_work_max: Final = 20
people_max: Final = 20
stuck_max: Final = 20
words_max: Final = 160


def progress_page(replica: Replica) -> bytes:
    """The page: Markdown in UTF-8, lines ending in a newline. Never fails on what is in a text."""
    state = replica.state
    step = next_pointer(replica)
    counts = count_states(state)
    done = f"{counts.get('DONE', 0)} of {len(state.nodes)} nodes are done"
    lines = [
        "# Progress",
        "",
        (
            f"As of J-{state.seq} ({timed(state.updated_at)}) of task {named(state.task_id)}. This"
            " page is rendered from the journal and never read: `perdure status` is never behind."
        ),
        "",
        f"{state.fsm_task}: {done}.",
        "",
        *_end(state),
        *_next(state, step),
        *_at_work(state),
        *_people(state),
        *_stuck(replica),
        *_done(state),
        *_sessions(state),
    ]
    return page(lines)


def _end(state: State) -> list[str]:
    closing = state.closing
    if not closing.sub_state:
        return []
    return [f"Archived: {closing.sub_state}. Hand-off in {closing.handoff}.", ""]


def _next(state: State, step: dict[str, Any]) -> Iterator[str]:
    yield "## NEXT"
    yield ""
    if step["node"] is None:
        yield "Nothing may start:"
        yield ""
        why = str(step["why"])
        yield from block(why, chars_max=2_000, rows_max=20, columns=2_000).rows
    else:
        yield f"**{named(step['node'])}**: {span(step['title'], words_max)}"
        yield ""
        commands = "\n".join(step["commands"])
        yield from block(commands, chars_max=2_000, rows_max=20, columns=2_000).rows
    yield ""
    if state.next_hint:
        yield f"Hint: {span(state.next_hint, words_max)}"
        yield ""


def _at_work(state: State) -> Iterator[str]:
    held = list(state.contracts.values())
    if not held:
        return
    yield f"## At work ({len(held)})"
    yield ""
    for contract in held[:at_work_max]:
        who = named(contract.executor.actor or "somebody")
        yield f"- {named(contract.node)} by {who}, under {named(contract.invocation_id)}"
    if len(held) > at_work_max:
        yield f"- and {len(held) - at_work_max} more"
    yield ""


def _people(state: State) -> Iterator[str]:
    """What waits for a person: questions, and work that somebody outside has to do or to judge."""
    waiting = with_people(state)
    total = len(state.questions) + len(waiting)
    if not total:
        return
    yield f"## Waiting for people ({total})"
    yield ""
    for question in islice(state.questions.values(), people_max):
        about = f" about {named(question.node)}" if question.node else ""
        words = span(question.text, words_max)
        yield f"- {named(question.question_id)}, for the {named(question.to)}{about}: {words}"
    for item in waiting[: max(0, people_max - len(state.questions))]:
        yield f"- {named(item['node'])}: {span(item['why'], words_max)}"
    if total > people_max:
        yield f"- and {total - people_max} more"
    yield ""
    if state.questions:
        yield "How to settle a question: `steering/inbox.md`, `perdure inbox`."
        yield ""


def _stuck(replica: Replica) -> Iterator[str]:
    found = stuck(replica)
    if not found:
        return
    yield f"## Stuck ({len(found)})"
    yield ""
    for item in found[:stuck_max]:
        yield f"- {named(item['node'])} is {item['state']}: {span(item['why'], words_max)}"
    if len(found) > stuck_max:
        yield f"- and {len(found) - stuck_max} more: `perdure status`"
    yield ""


def _number(node: Node) -> int:
    return int((node.state_ref or "J-0").removeprefix("J-"))


def _done(state: State) -> Iterator[str]:
    done = [node for node in state.nodes.values() if node.state == "DONE"]
    if not done:
        return
    yield "## Done last"
    yield ""
    for node in nlargest(done_max, done, key=_number):
        yield f"- {named(node.node_id)} in {node.state_ref}: {span(node.title, words_max)}"
    if len(done) > done_max:
        yield f"- and {len(done) - done_max} before: `perdure log`"
    yield ""


def _sessions(state: State) -> Iterator[str]:
    if not state.sessions:
        return
    yield "## Taken over"
    yield ""
    for session in reversed(state.sessions):
        who = named(session.actor or "somebody")
        why = span(session.why, words_max)
        yield f"- {timed(session.at)}, epoch {session.epoch}, by {who} ({session.ref}): {why}"
    yield ""
