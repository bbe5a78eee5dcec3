"""Commands that prove a workspace, or say what is wrong with it.

Job: call, render, exit by what was found. Invariants: they change nothing.
"""

import click

from perdure.interfaces.cli.output import field, fields, plain, respond, some
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb


@verb("verify")
@click.pass_obj
def verify_command(request: Request) -> int:
    """Replay the journal and check everything against it.

    Every line of the journal, every hash of every registered file, every contract; no snapshot is
    believed and nothing is changed. Exits 0 when all of it holds, 1 when files are not what was
    registered, 6 when the journal is damaged or a crash left something for `perdure resume`.

    \b
    Example:
      perdure verify
    """
    data = request.service().verify()
    respond(request, data, _verify_lines(data))
    code: int = data["exit_code"]
    return code


def _verify_lines(data: Data) -> list[str]:
    checked: dict[str, int] = data["checked"]
    names = ("events", "artifacts", "contracts")
    counted = ", ".join(f"{checked[name]} {name}" for name in names if name in checked)
    lines = [f"everything holds: {counted}"]
    if data["problems"]:
        lines = [f"not everything holds: {len(data['problems'])} found; checked {counted}"]
    for item in data["problems"]:
        lines.append(f"  {item['what']} {plain(item['where'])}: {plain(item['message'], None)}")
        lines += [f"    fix: {plain(item['fix'], None)}"] if item["fix"] else []
    lines += _notices(data["notices"])
    if checked.get("unchained"):
        lines += field("note", f"{checked['unchained']} lines of other writers are not chained")
    return lines


def _notices(notices: list[Data]) -> list[str]:
    return fields("note", [f"{item['where']} {item['message']}" for item in notices])


@verb("doctor")
@click.pass_obj
def doctor_command(request: Request) -> int:
    """Say what is wrong with the workspace and how to put it right.

    All that `verify` checks, and the lease, the drop box, work whose owner has gone silent and
    processes that a dead run has left; and what commands are held to. Changes nothing. Exits 0
    when nothing is wrong, else 1, or 6 when the journal is damaged.

    \b
    Example:
      perdure doctor
    """
    data = request.service().doctor()
    lines = [] if data["findings"] else ["nothing is wrong"]
    for item in data["findings"]:
        lines.append(f"{item['what']}: {plain(item['finding'], None)}")
        lines += [f"  fix: {plain(item['fix'], None)}"] if item["fix"] else []
    holder = data["lease"]["holder"]
    owner = f"{holder['holder']}, pid {holder['pid']} on {holder['host']}" if holder else "nobody"
    lines += field("lease", f"{data['lease']['standing']}, {owner}")
    lines += _enforcement(data["enforcement"])
    lines += _notices(data["notices"])
    respond(request, data, [*lines, *field("workspace", data["workspace"], None)])
    return 0 if data["ok"] else int(data["exit_code"]) or 1


def _enforcement(data: Data | None) -> list[str]:
    """What commands are held to, and what of them is not."""
    if data is None:
        return []
    kernel = data["kernel"]
    lines = field("writes", kernel["writes"]) + field("network", kernel["network"])
    held = [c for c in data["contracts"] if c["executor"] == "process"]
    loose = [c["invocation"] for c in held if c["writes"] == "policy only"]
    lines += field("not held", some(loose))
    opened = some(data["open"])
    return lines + field("note", f"the journal is not protected from {opened}" if opened else "")
