"""``audit --recompute``: an earlier record, held against the same prefix; and its correction.

Job: read the file, call the service, render. Invariants: it writes only with ``--amend``, and then
only what a recomputation found to have been false from the start.
"""

import re
from pathlib import Path
from typing import Final

from perdure.errors import NotFoundError, StorageError, UsageError
from perdure.interfaces.cli.output import acknowledge, field, plain, respond
from perdure.interfaces.cli.request import Data, Request
from perdure.service.task_audit_recompute import recompute_answer, record_bytes_max

_REF: Final = re.compile(r"J-[1-9][0-9]{0,14}\Z")


def recompute(request: Request, ref: str, *, amend: bool, reason: str) -> int:
    """Say whether the record holds; with ``amend`` put right where it never did."""
    on_record = _REF.match(ref) is not None
    if amend and not on_record:
        raise UsageError(
            f"only a record on record can be corrected, and {ref} is a file.",
            code="not_on_record",
            rule="A-4",
            fix="Name its event: perdure audit --recompute J-n --amend --reason WHY",
        )
    if amend and not reason.strip():
        raise UsageError(
            "a correction says why the record was false.",
            code="empty_text",
            rule="A-4",
            fix=f"perdure audit --recompute {ref} --amend --reason WHY",
        )
    data = recompute_answer(request.service(), ref, None if on_record else _content(ref))
    if not amend:
        respond(request, data, _lines(data))
        return int(data["exit_code"])
    args = {
        "target": ref,
        "record": data["recomputed"],
        "wrong": data["never_held"],
        "reason": reason,
    }
    told = request.call("correct_audit", args)
    acknowledge(request, {**data, **told}, _lines(data))
    return 0


def _content(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(record_bytes_max + 1)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no file {name!r}.",
            code="file_not_found",
            fix="Name the file that `perdure audit --json` was written to, or J-n.",
        ) from None
    except OSError as error:
        raise StorageError.from_os(error, name, "Reading the record") from error


def _lines(data: Data) -> list[str]:
    counts = ", ".join(f"{number} {word}" for word, number in data["counts"].items() if number)
    upto = f" up to J-{data['seq']}" if data["seq"] is not None else ""
    holds = "all of it holds" if data["holds"] else "it does not hold"
    lines = [f"record {plain(data['record'])}{upto}: {holds} ({counts})"]
    missing = data["not_in_it"]
    lines += field("not in it", f"{len(missing)} items: {', '.join(missing)}" if missing else "")
    for one in data["items"]:
        if one["standing"] == "holds":
            continue
        now = f", is {one['now']}" if one["now"] else ""
        lines.append(f"  {one['item']:<6} {one['standing']}: said {plain(one['said'])}{now}")
        lines.append(f"      {plain(one.get('why', ''), None)}")
    return lines
