"""The page that an instance leaves for people when it did not simply finish.

Job: say in words where the instance stands, why, and what can be done. Invariants: it says what the
result says and nothing that its journal does not; bounded, whatever the size of the instance.
Never writes anything.
"""

from typing import Final

from perdure.control.result import InstanceVerdict
from perdure.core import instance as i
from perdure.core.machine import count_states
from perdure.core.model import State
from perdure.core.views import cut

note_path: Final = "docs/handoff.md"
"""Relative to the instance."""
lines_max: Final = 20


def handoff_page(state: State, verdict: InstanceVerdict) -> str:
    """The page, as Markdown."""
    sop = state.sop
    counts = ", ".join(f"{count} {name}" for name, count in count_states(state).items())
    lines = [
        f"# {state.task_id}: {verdict.status}",
        "",
        (
            f"Procedure {sop.get('id')} {sop.get('version')}, phase {state.phase or 'none'};"
            f" {counts or 'no nodes'}; journal at J-{state.seq}."
        ),
    ]
    if verdict.failure is not None:
        failure = verdict.failure
        lines += [
            "",
            f"It cannot finish: {failure.signature} ({failure.failure_class}).",
            f"The way out that its card names for this: {failure.route}.",
        ]
    if verdict.questions:
        gaps = verdict.status == i.WITH_GAPS
        lines += ["", "What is missing:" if gaps else "What it waits for:", ""]
        lines += [f"- {one.ref}: {cut(one.text)}" for one in verdict.questions[:lines_max]]
    left = [node for node in state.nodes.values() if node.state != "DONE"][:lines_max]
    if left:
        lines += ["", "What is not done:", ""]
        lines += [
            f"- {node.node_id} is {node.state}"
            + (f": {cut(node.diagnosis)}" if node.diagnosis else "")
            for node in left
        ]
    return "\n".join(lines) + "\n"
