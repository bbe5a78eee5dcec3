"""What an audit of a task comes to: its record, and how people read it.

Job: turn the findings of items into the record, bounded and complete, and lay it out as text and as
Markdown. Invariants: everything that was looked at enters the digest, also what is not listed; what
does not hold is listed first; a verdict follows from the results and from nothing else.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from perdure.core.codec import ChainTip
from perdure.core.fold import Replica
from perdure.core.task_audit import (
    AuditRecord,
    DiskFacts,
    Findings,
    Item,
    ItemRecord,
    ItemVerdict,
    Result,
    results_kept_max,
)

inputs_kept_max: Final = 40
"""Inputs that an item names; of more there is the number."""

VERDICTS: Final[tuple[ItemVerdict, ...]] = ("PASS", "FAIL", "N/A")


def digest_of(results: Iterable[Result]) -> str:
    """Sixteen hexadecimal digits over what was looked at and how it was, in order."""
    running = sha256()
    for result in results:
        line = f"{result.ref}\0{int(result.ok)}\0{result.note}\n"
        running.update(line.encode("utf-8", "surrogatepass"))
    return running.hexdigest()[:16]


def item_record(item: Item, findings: Findings, tier: int) -> ItemRecord:
    """The record of one item."""
    results, why = findings.results, findings.why
    if tier < item.tier:
        results, why = (), f"asked for from tier {item.tier} on"
    failed = [result for result in results if not result.ok]
    verdict: ItemVerdict = "FAIL" if failed else "PASS" if results else "N/A"
    held = [result for result in results if result.ok]
    listed = (*failed, *held)[:results_kept_max]
    inputs = findings.inputs or tuple(dict.fromkeys(result.ref for result in results))
    if len(inputs) > inputs_kept_max:
        inputs = (*inputs[:inputs_kept_max], f"and {len(inputs) - inputs_kept_max} more")
    return ItemRecord(
        item.id,
        item.title,
        item.rule,
        verdict,
        item.method,
        inputs if results else (),
        listed,
        len(results),
        len(failed),
        digest_of(results) if results else "",
        "" if results else why,
        item.on_disk,
    )


def make_record(
    items: Sequence[Item],
    replica: Replica,
    disk: DiskFacts,
    tip: ChainTip,
    *,
    audited_at: str,
    auditor: str,
) -> AuditRecord:
    """Let every item judge, and put together what they say."""
    state = replica.state
    records = tuple(item_record(item, item.judge(replica, disk), state.tier) for item in items)
    counts = Counter(record.verdict for record in records)
    return AuditRecord(
        state.task_id,
        state.created,
        state.tier,
        tip.seq,
        tip.h,
        audited_at,
        auditor,
        not counts["FAIL"] and not disk.damage,
        {verdict: counts[verdict] for verdict in VERDICTS},
        records,
    )


def failed_items(record: AuditRecord) -> list[ItemRecord]:
    """The items that failed."""
    return [item for item in record.items if item.verdict == "FAIL"]


def record_markdown(record: AuditRecord, groups: dict[str, str]) -> str:
    """The whole record as a Markdown page, to be read and to be recomputed by."""
    counts = ", ".join(f"{number} {verdict}" for verdict, number in record.counts.items())
    lines = [
        f"# Audit of task {_plain(record.task_id)}",
        "",
        f"- Verdict: **{'passed' if record.passed else 'not passed'}** ({counts})",
        f"- Tier: {record.tier}",
        f"- Prefix: J-1 to J-{record.seq}, chain value `{record.h}`",
        f"- Audited: {record.audited_at}, by {_plain(record.auditor)}",
    ]
    group = ""
    for item in record.items:
        name = item.item.partition(".")[0]
        if name != group:
            group = name
            lines += ["", f"## {name} {groups.get(name, '')}".rstrip()]
        lines += ["", f"### {item.item} {item.verdict}: {item.title}", "", f"Rule {item.rule}."]
        lines.append(item.method)
        if item.why:
            lines += ["", f"Not applicable: {_plain(item.why)}."]
            continue
        found = f"Looked at {item.looked_at}, {item.failed} not as they have to be"
        lines += ["", f"{found}; digest `{item.digest}`."]
        lines += ["", f"Inputs: {', '.join(map(_plain, item.inputs))}."] if item.inputs else []
        lines += ["", "| what | holds | note |", "| --- | --- | --- |"]
        lines += [
            f"| {_cell(result.ref)} | {'yes' if result.ok else '**no**'} | {_cell(result.note)} |"
            for result in item.results
        ]
        left = item.looked_at - len(item.results)
        lines += ["", f"and {left} more, in the digest."] if left > 0 else []
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text of others on one line, that starts nothing of Markdown."""
    one_line = " ".join(text.split())
    return "".join(f"\\{char}" if char in "\\`*_<>[]#|" else char for char in one_line)


def _cell(text: str) -> str:
    return _plain(text) or " "
