"""The instances below a task as ``status`` shows them.

Job: render the tree of the service as lines. Invariants: one line for each instance and one for
each question that is shown; what is below stands behind an arrow for each level. Never reads
anything itself.
"""

from collections.abc import Iterator

from perdure.interfaces.cli.output import field, fields
from perdure.interfaces.cli.request import Data


def instance_lines(data: Data) -> list[str]:
    """What this task is an instance of, and the instances below it; none for most tasks."""
    own = data.get("instance")
    lines = []
    if own:
        sop = own["sop"]
        parent = own.get("parent")
        above = f", for {parent['node_id']} of {parent['task_id']}" if parent else ""
        said = f"{sop['id']} {sop['version']}, phase {own['phase'] or 'none'}{above}"
        lines += field("procedure", said)
    return lines + fields("instances", list(_rows(data.get("instances", []), "")))


def _rows(entries: list[Data], arrow: str) -> Iterator[str]:
    for entry in entries:
        if "more" in entry:
            yield f"{arrow}and {entry['more']} more"
            continue
        name = f"{arrow}{entry['instance']} ({entry['node']} is {entry['node_state']})"
        if "problem" in entry:
            yield f"{name}: {entry['problem']}"
            continue
        counts = ", ".join(f"{count} {state}" for state, count in entry["counts"].items())
        at_work = ", at work" if entry["running"] else ""
        ended = f", {entry['result']}" if entry["result"] else ""
        yield f"{name}: {entry['sop']}, {entry['phase'] or 'begun'}{at_work}; {counts}{ended}"
        for ref, text in entry["questions"].items():
            yield f"{arrow}asks {ref}: {text}"
        left = entry["questions_total"] - len(entry["questions"])
        if left > 0:
            yield f"{arrow}and {left} more questions"
        yield from _rows(entry["instances"], f"{arrow}> ")
