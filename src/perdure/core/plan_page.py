"""``docs/task-plan.md``: what is to be done, for whoever opens the file.

Job: render goal, acceptance, decisions about policy and the graph as a page. Invariants: those of
``inbox_page``: a function of the state, bounded, rendered anew each time, never read back (PL-1).
"""

from collections.abc import Iterator
from typing import Final

from perdure.core.batch import action_of
from perdure.core.fold import Replica
from perdure.core.machine import count_states
from perdure.core.model import Node, State
from perdure.core.quotation import block, named, span

nodes_max: Final = 200
acceptance_max: Final = 50
directives_max: Final = 20
words_max: Final = 120
deps_max: Final = 8
goal_chars_max: Final = 4_000
goal_rows_max: Final = 60


def plan_page(replica: Replica) -> bytes:
    """The page: Markdown in UTF-8, lines ending in a newline. Never fails on what is in a text."""
    state = replica.state
    lines = [
        "# Plan",
        "",
        (
            f"As of J-{state.seq} of task {named(state.task_id)}. This page is rendered from the"
            " journal and never read: change the plan with `perdure add`, `amend`, `split` or"
            " `goal`."
        ),
        "",
        f"State {state.fsm_task}, tier {state.tier}.",
        "",
        "## Goal",
        "",
        *_text(state.goal_statement, "No goal is on record."),
        "## Acceptance",
        "",
        *_list(list(state.acceptance), acceptance_max, "Nothing is written down."),
        *_policies(state),
        *_directives(state),
        *_decisions(state),
        *_graph(state),
    ]
    return page(lines)


def page(lines: list[str]) -> bytes:
    """Lines as the bytes of a page."""
    return ("\n".join(lines).rstrip("\n") + "\n").encode("utf-8", "backslashreplace")


def _text(text: str, none: str) -> list[str]:
    if not text.strip():
        return [none, ""]
    return [*block(text, chars_max=goal_chars_max, rows_max=goal_rows_max).rows, ""]


def _list(texts: list[str], most: int, none: str) -> list[str]:
    rows = [f"- {span(text, words_max)}" for text in texts[:most]]
    if len(texts) > most:
        rows.append(f"- and {len(texts) - most} more")
    return [*(rows or [none]), ""]


def _policies(state: State) -> list[str]:
    if not state.policy_reasons:
        return []
    rows = []
    for name, change in state.policy_reasons.items():
        why = span(str(change.get("reason") or ""), words_max)
        rows.append(f"- {named(name)} is {span(change.get('value'), words_max)}, because {why}")
    return ["## Policies that were changed", "", *rows, ""]


def _directives(state: State) -> list[str]:
    if not state.directives:
        return []
    texts = [held.text for held in state.directives]
    return ["## Instructions for all that is added", "", *_list(texts, directives_max, "")]


def _decisions(state: State) -> list[str]:
    rows = []
    if state.decisions:
        rows.append(f"- decisions, questions and rulings on record: {state.decisions}")
    if state.goal_amendments:
        rows.append(f"- changes of the goal: {state.goal_amendments} (`perdure why goal`)")
    return ["## Decisions", "", *rows, ""] if rows else []


def _graph(state: State) -> Iterator[str]:
    counts = ", ".join(f"{count} {name}" for name, count in count_states(state).items())
    yield f"## Nodes ({counts or 'none yet'})"
    yield ""
    nodes = list(state.nodes.values())
    if nodes:
        yield "| node | state | what | waits for | done by | verified |"
        yield "| --- | --- | --- | --- | --- | --- |"
    for node in nodes[:nodes_max]:
        yield _row(node)
    yield ""
    if len(nodes) > nodes_max:
        yield f"{len(nodes) - nodes_max} more: `perdure status --limit {len(nodes)}`."
        yield ""


def _row(node: Node) -> str:
    deps = ", ".join(map(named, node.deps[:deps_max])) or "-"
    if len(node.deps) > deps_max:
        deps += f" and {len(node.deps) - deps_max} more"
    how = action_of(node.spec) or "by hand"
    title = span(node.title, words_max)
    level = node.verification_level
    return table_row(named(node.node_id), node.state, title, deps, how, level)


def table_row(*cells: str) -> str:
    """A row of a table; no text in a cell begins another one, or another row."""
    whole = (" ".join(cell.splitlines()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(whole)} |"
