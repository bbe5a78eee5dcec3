"""``audit``: the whole task, item by item, so that anybody can recompute it.

Job: parse, call the service, render. Invariants: without ``--record`` and ``--amend`` it writes
nothing.
"""

from typing import Final

import click

from perdure.core.late import LateModule
from perdure.core.task_audit_items import GROUPS, group_of
from perdure.errors import UsageError
from perdure.interfaces.cli.output import acknowledge, field, fields, plain, respond
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.service.task_audits import audit_answer

_recompute: Final = LateModule("perdure.interfaces.cli.task_audit_recompute")

told_max: Final = 10
"""Results of one item that are listed as text; the record has more."""


@verb("audit", writes=True)
@click.option("--item", "items", multiple=True, metavar="ID",
              help="Only this item, such as A2.1, or this group, such as A2.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text",
              show_default=True, help="How it is printed; --json: the record.")  # fmt: skip
@click.option("--verbose", is_flag=True, help="Also say how each verdict was reached.")
@click.option("--record", "on_record", is_flag=True, help="Put the record into the journal, whole.")
@click.option("--recompute", metavar="FILE|J-n",
              help="Take an earlier record and say whether it holds, or ever did.")  # fmt: skip
@click.option("--amend", is_flag=True,
              help="With --recompute J-n: correct a record that never held.")  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="With --amend: why it was false.")
@click.pass_obj
def audit_command(
    request: Request,
    *,
    items: tuple[str, ...],
    form: str,
    verbose: bool,
    on_record: bool,
    recompute: str | None,
    amend: bool,
    reason: str,
) -> int:
    """Audit the whole task against its journal and files.

    Each item says PASS, FAIL or N/A, what it looked at and how, so that somebody else can recompute
    it. Computed from the journal and the files alone; nothing is believed that says so itself.
    Exits 0 when nothing failed, 1 when something did, 6 when the journal is damaged: then it says
    what could not be audited.

    \b
    Example:
      perdure audit
      perdure audit --item A2 --verbose
      perdure audit --json > audit.json && perdure audit --recompute audit.json
    """
    _check_options(items, form, on_record=on_record, recompute=recompute, amend=amend)
    if recompute is not None:
        code: int = _recompute.recompute(request, recompute, amend=amend, reason=reason)
        return code
    data: Data = audit_answer(request.service(), items=items)
    if on_record and not data["cannot"]:  # nothing is written behind damage that is known
        told = request.call("record_audit", {"record": data["record"]})
        acknowledge(request, {**data, **told}, _lines(data, verbose=verbose))
    elif form == "markdown" and not request.json:
        click.echo(data["markdown"], nl=False)
    else:
        respond(request, _shown(data), _lines(data, verbose=verbose, on_record=on_record))
    return int(data["exit_code"])


def _check_options(
    items: tuple[str, ...], form: str, *, on_record: bool, recompute: str | None, amend: bool
) -> None:
    """Raise UsageError for options that would be passed over."""
    wrong = ""
    if amend and recompute is None:
        wrong = "--amend corrects a record that --recompute J-n has taken again"
    elif recompute is not None and (items or on_record or form != "text"):
        wrong = "--recompute takes the items of its record and prints text or JSON"
    elif on_record and items:
        wrong = "a record on record is of the whole audit, so not with --item"
    elif on_record and form != "text":
        wrong = "--record prints text or JSON"
    if wrong:
        raise UsageError(
            f"{wrong}.",
            code="option_conflict",
            rule="IN-1",
            fix="`perdure audit --help` shows what goes together.",
        )


def _shown(data: Data) -> Data:
    """The record, with what could not be audited: what ``--recompute`` takes again."""
    return {**data["record"], "cannot": data["cannot"], "exit_code": data["exit_code"]}


def _lines(data: Data, *, verbose: bool, on_record: bool = False) -> list[str]:
    record = data["record"]
    counts = ", ".join(f"{number} {verdict}" for verdict, number in record["counts"].items())
    passed = "passed" if record["passed"] else "not passed"
    task = record["task_id"] or "a task that its journal does not name"
    lines = [f"audit of {task} up to J-{record['seq']}: {passed} ({counts})"]
    group = ""
    for item in record["items"]:
        if group_of(item["item"]) != group:
            group = group_of(item["item"])
            lines.append(f"{group} {GROUPS[group]}")
        lines += _item_lines(item, verbose=verbose)
    if record["tier"] == 0:
        lines.append("at tier 0 nothing of this is asked for")
    lines += fields("not audited", data["cannot"])
    if on_record and data["cannot"]:
        lines += field("not on record", "nothing is written to a damaged journal")
    return lines


def _item_lines(item: Data, *, verbose: bool) -> list[str]:
    lines = [f"  {item['item']:<6}{item['verdict']:<5}{item['title']}"]
    if item.get("why") and verbose:
        lines.append(f"      {plain(item['why'])}")
    if verbose:
        lines.append(f"      {plain(item['method'], None)}")
        lines += field("    rule", item["rule"])
    failed = [result for result in item.get("results", ()) if not result["ok"]]
    for result in failed[:told_max]:
        lines.append(f"      {plain(result['ref'])}: {plain(result.get('note', ''), None)}")
    left = item.get("failed", 0) - len(failed[:told_max])
    if left > 0:
        lines.append(f"      and {left} more (perdure audit --item {item['item']} --json)")
    return lines
