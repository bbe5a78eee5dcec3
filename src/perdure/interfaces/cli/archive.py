"""``archive``: the end of a task, from its final audit to its last word.

Job: parse, call the service, render.
"""

import click

from perdure.errors import UsageError
from perdure.interfaces.cli.output import acknowledge, field, fields, plain
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.service.archive import archive


@verb("archive", writes=True)
@click.option("--accept", metavar="TEXT",
              help="Accept what the archived task has made; the sponsor's to say.")  # fmt: skip
@click.option("--close", is_flag=True, help="Close it for good: its files become read-only.")
@click.option("--scope", default="", metavar="SCOPE",
              help="Scope of what is proposed for the memory; else the project's.")  # fmt: skip
@click.pass_obj
def archive_command(request: Request, *, accept: str | None, close: bool, scope: str) -> int:
    """End a task: audit it, archive it, accept it, close it.

    Without an option the whole task is audited. When nothing fails it is archived, in one commit
    with the audit, a hand-off note and what it proposes for the memory store. When something fails,
    a node to repair it is added for each item, and the task goes on: exits 1. Each stage may be
    asked for again. Exits 4 while anything is open, 6 when the journal is damaged.

    \b
    Example:
      perdure archive
      perdure archive --accept "as ordered" --actor sponsor:ann
      perdure archive --close
    """
    data: Data
    if accept is not None and close:
        raise UsageError(
            "to accept and to close are two stages, each with an event of its own.",
            code="two_stages",
            rule="FST-3",
            fix="Accept first: perdure archive --accept TEXT; then: perdure archive --close",
        )
    if accept is not None:
        data = request.call("accept", {"text": accept}, role="sponsor")
    elif close:
        data = request.call("close", {})
    else:
        data = archive(request.service(), scope=scope, op=request.op)
    acknowledge(request, data, _lines(data))
    return int(data.get("exit_code", 0))


def _lines(data: Data) -> list[str]:
    where = f"{data['fsm_task']}, {data['sub_state']}" if data["sub_state"] else data["fsm_task"]
    lines = [f"the task is {where}"]
    for defect in data.get("defects", ()):
        node = data["repairs"].get(defect["item"], "")
        lines.append(f"  {defect['item']} failed; {node} is to repair it")
        lines.append(f"    {plain(defect['finding'], None)}")
    if data.get("defects"):
        return lines + field("then", "perdure next, and perdure archive once they are done")
    proposals = data.get("proposals") or []
    shown = [f"{one['id']} {one['kind']}: {one['statement']}" for one in proposals[:5]]
    lines += fields("proposed", shown)
    lines += field("then", "perdure memory proposals" if proposals else "")
    sealed = data.get("sealed")
    lines += field("sealed", f"{sealed} files and directories" if sealed else "")
    return lines + field("next", data["next"])
