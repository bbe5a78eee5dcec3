"""``job``: look into a checkpointed job, prove it, let its failed items go on.

Job: parse, call the service, render. Invariants: status, verify and errors write nothing and take
no lock; only retry does. What stands in a job is text of others: none of it is printed raw.
"""

import os
import shlex

import click

from perdure.core.codec import to_json
from perdure.interfaces.cli.map_progress import items_text
from perdure.interfaces.cli.output import field, fields, plain, quoted, respond
from perdure.interfaces.cli.request import Data, Request, common_options
from perdure.interfaces.cli.verb import verb
from perdure.service import jobs

_page = 20


@click.group("job", no_args_is_help=False)
def job_command() -> None:
    """Look into a job of many items, prove it, retry what failed.

    DIR is the directory that `perdure map`, CheckpointedJob or a program in another language works
    in, relative to the current directory, whatever -C says.

    \b
    Example:
      perdure job status data/jobs/docs
    """


@verb("status")
@click.argument("job", metavar="DIR")
@click.pass_obj
def job_status_command(request: Request, job: str) -> None:
    """Show where a job stands.

    What is done and what failed, when it was started and finished, its cursor, and who works on it
    now. Reads only what was written since the last checkpoint, so it is quick whatever the size of
    the job. Writes nothing; takes no lock.

    \b
    Example:
      perdure job status data/jobs/docs
    """
    data = jobs.job_status_of(job, request.start_dir)
    respond(request, data, _status_lines(job, data))


def _status_lines(job: str, data: Data) -> list[str]:
    stats = data["stats"]
    failed = f"{stats['failed']:,} failed" if stats["failed"] else "none failed"
    name = plain(data["job"] or os.path.basename(data["directory"]))
    lines = [f"job {name}: {data['status']}, {stats['processed']:,} done, {failed}"]
    lines += field("started", data["started_at"])
    lines += field("updated", data["updated_at"])
    lines += field("finished", data["finished_at"])
    lines += field("resumed", {0: "", 1: "once"}.get(stats["resumes"], f"{stats['resumes']} times"))
    if data["cursor"] is not None:
        lines += field("cursor", to_json(data["cursor"]).decode())
    holder = data["holder"]
    lines += field("run by", f"pid {holder['pid']} on {holder['host']}" if holder else "nobody now")
    lines += fields("note", [notice["message"] for notice in data["notices"]])
    lines += field("summary", data["summary"], None)
    if stats["failed"]:
        lines += field("then", f"perdure job errors {shlex.quote(job)}   (what failed, and why)")
    return lines


@verb("verify")
@click.argument("job", metavar="DIR")
@click.pass_obj
def job_verify_command(request: Request, job: str) -> int:
    """Check every line of a job's log, and what state.json says about it.

    Each item has one finding (none duplicated), everything that counts as done has its finding
    (none lost), every line is whole, every hash is that of its key. The directory may have been
    written by any implementation of the contract. Changes nothing; takes no lock. Exits 0 when all
    of it holds, 1 when not: each defect with its line and what puts it right.

    \b
    Example:
      perdure job verify data/jobs/docs
    """
    data = jobs.verify_job_of(job, request.start_dir)
    respond(request, data, _verify_lines(data))
    code: int = data["exit_code"]
    return code


def _verify_lines(data: Data) -> list[str]:
    counts: dict[str, int] = data["counts"]
    proof = f"{counts['lost']:,} lost, {counts['duplicated']:,} duplicated"
    counted = f"{items_text(counts['items'])}, {proof}"
    lines = [f"{'everything holds' if data['ok'] else 'not everything holds'}: {counted}"]
    more = [f"{words} {counts[name]:,}" for name, words in _MORE_COUNTS.items() if counts[name]]
    lines += field("also", ", ".join(more))
    for defect in data["defects"]:
        place = f"findings.jsonl:{defect['line']}: " if defect["line"] else ""
        lines.append(f"  {place}{plain(defect['message'], None)}")
        lines += [f"    fix: {plain(defect['fix'], None)}"] if defect["fix"] else []
    for notice in data["notices"]:
        lines += field("note", f"{notice['message']} {notice['fix']}", None)
    return lines


_MORE_COUNTS = {
    "bad_lines": "bad lines",
    "forged": "forged hashes",
    "unprovable": "lines without a key",
    "torn_bytes": "bytes of a torn end",
    "errors": "failed items",
}


@verb("errors")
@click.argument("job", metavar="DIR")
@click.option("--limit", type=click.IntRange(1), default=_page, show_default=True, metavar="N",
              help="How many to list.")  # fmt: skip
@click.option("--after", metavar="ITEM", help="Go on after this item, the last one of a page.")
@click.pass_obj
def job_errors_command(request: Request, job: str, limit: int, after: str | None) -> None:
    """List the items of a job that failed, with the reason and the attempts.

    The one that failed longest ago comes first. Writes nothing; takes no lock.

    \b
    Example:
      perdure job errors data/jobs/docs --limit 5
    """
    data = jobs.job_errors_of(job, request.start_dir, limit=limit, after=after)
    respond(request, data, _errors_lines(job, data, limit))


def _errors_lines(job: str, data: Data, limit: int) -> list[str]:
    if not data["total"]:
        return ["nothing has failed"]
    lines = []
    for entry in data["errors"]:
        tries = {0: "to be tried again", 1: "1 attempt"}.get(
            entry["attempts"], f"{entry['attempts']:,} attempts"
        )
        # A key that no shell would pass on can be named by its hash.
        name = quoted(entry["key"])
        name += f"  {entry['hash']}" if name != entry["key"] else ""
        lines.append(f"{name}  ({tries}, {plain(entry['last_at'] or 'no time')})")
        lines += [f"  {plain(entry['error'])}"] if entry["error"] else []
    if data["next"] is not None:
        size = "" if limit == _page else f" --limit {limit}"
        lines.append(f"more: perdure job errors {shlex.quote(job)}{size} --after {data['next']}")
    return lines


@verb("retry")
@click.argument("job", metavar="DIR")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every failed item, as without a KEY.")
@click.option(
    "--lost",
    is_flag=True,
    help="Items that count as done and have no finding; sets aside bad lines.",
)
@click.pass_obj
def job_retry_command(
    request: Request, job: str, keys: tuple[str, ...], *, every: bool, lost: bool
) -> None:
    """Give failed items of a job new attempts: those named, or all.

    This runs nothing: the next run of the job tries them first. --lost is for items that `perdure
    job verify` reports as lost: they no longer count as done, and run again, and lines that cannot
    be read are set aside in .torn/; failed items are then left alone unless --all or their keys are
    given. KEY may be the hash that `perdure job errors`
    shows; one that begins with a dash stands behind --. Exits 5 while somebody works on the job.

    \b
    Example:
      perdure job retry data/jobs/docs https://example.org/7
      perdure job retry data/jobs/docs --all --lost
    """
    data = jobs.retry_items(job, request.start_dir, keys, every=every, lost=lost)
    respond(request, data, _retry_lines(data))


def _retry_lines(data: Data) -> list[str]:
    lines = [f"{items_text(data['reset'])} may be tried again"] if data["reset"] is not None else []
    if data["forgotten"] is not None:
        lines.append(f"{items_text(data['forgotten'])} without a finding will run again")
    if data["set_aside"]:
        count = "1 line" if data["set_aside"] == 1 else f"{data['set_aside']:,} lines"
        lines.append(f"{count} that could not be read: set aside in .torn/")
    again = "start the job again as before; it takes the failed ones first"
    return lines + (field("then", again) if data["reset"] or data["forgotten"] else [])


job_command.add_command(job_status_command)
job_command.add_command(job_verify_command)
job_command.add_command(job_errors_command)
job_command.add_command(job_retry_command)
job_command.params += common_options()
