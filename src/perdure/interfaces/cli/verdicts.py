"""How a verdict on a node reads, and which exit code it has.

Job: the one rendering of it, for whoever submits, checks or approves. Invariants: exit code 1 means
that a check failed; a node that waits for a person has not failed, and its question is named.
"""

from collections.abc import Sequence

from perdure.interfaces.cli.output import fields, plain
from perdure.interfaces.cli.request import Data


def verdict_exit(data: Data) -> int:
    """1 when a check failed, else 0: also for a message that the coordinator has yet to take in."""
    return 0 if data.get("passed", True) else 1


def verdict_lines(data: Data) -> list[str]:
    """Where the node is, each check that failed, and the questions that it waits for."""
    if "state" not in data or "node" not in data:
        return []
    checks: Sequence[Data] = data.get("checks") or ()
    judged = [item for item in checks if not item.get("pending")]
    failed = [item for item in judged if not item["passed"]]
    line = f"{data['node']} is {data['state']}"
    if judged:
        line += f": {len(judged) - len(failed)} of {len(judged)} checks passed"
    lines = [line]
    for item in failed:
        where = item["params"].get("path") or item["params"].get("run") or ""
        lines.append(f"  failed {item['check']} {plain(where)}".rstrip())
        lines += [f"    {plain(text)}" for text in str(item["detail"]).splitlines()[:10]]
    pending = any(item["check"] == "audit" for item in checks if item.get("pending"))
    if not failed and (pending or data.get("audit") == "pending"):
        lines += fields("waits for", [f"an auditor: perdure judge {data['node']}"])
    return lines + waiting_lines(data)


def waiting_lines(data: Data) -> list[str]:
    """The questions that a node waits for, each with the command that settles it."""
    waiting: Sequence[Data] = data.get("waits_for") or ()
    asked = [f"{item['question']}: {plain(item['text'])}" for item in waiting]
    lines = fields("waits for", asked)
    if waiting:
        lines += fields("then", [f"perdure approve {waiting[0]['question']}"])
    return lines
