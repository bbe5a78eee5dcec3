"""Commands by which whoever sees something says so: observations, blocks, replies.

Job: parse, call the service, render. Invariants: what is said is kept as it was said; exit code 0
means that it is on record, or that the coordinator has the message.
"""

from collections.abc import Callable
from typing import Any, Final

import click

from perdure.core.observed import (
    DOWNLOAD_STATUSES,
    EXTERNAL_STATES,
    FAILURE_TYPES,
)
from perdure.errors import UsageError
from perdure.interfaces.cli.output import acknowledge, field
from perdure.interfaces.cli.request import Data, Request, common_options, facts_of, text_of
from perdure.interfaces.cli.verb import verb

_summary = click.option("--summary", default="", metavar="TEXT",
                        help="What was seen; - reads standard input.")  # fmt: skip
_fact = click.option("--fact", "facts", multiple=True, metavar="NAME=VALUE",
                     help="Something that shows it; as often as needed.")  # fmt: skip
_of_node = click.option("--node", metavar="NODE", help="The node that it belongs to.")


def _word_of_owner(command: Callable[..., None]) -> Callable[..., None]:
    """The options of what an owner says of work that may not go on."""
    options = (
        click.option("--reason", default="", metavar="TEXT", help="What keeps it from going on."),
        click.option("--need", "needs", multiple=True, metavar="TEXT",
                     help="What it takes; as often as needed."),
        click.option("--safe-next-step", default="", metavar="TEXT",
                     help="What can be done meanwhile without harm."),
        click.option("--failure-type", default="", metavar="TYPE",
                     help=f"One of {', '.join(FAILURE_TYPES)}."),
        click.option("--resume-token", default="", metavar="TOKEN",
                     help="The token of the request that this answers."),
    )  # fmt: skip
    for option in reversed((_summary, *options, _fact)):
        command = option(command)
    return command


def _say(request: Request, call: str, said: Data, **more: Any) -> None:
    """Carry out a call of an owner: ``said`` holds the options above as they were given."""
    facts = facts_of(said.pop("facts"))
    words = {name: text_of(said.pop(name)) for name in ("summary", "reason")}
    needs = list(said.pop("needs"))
    data = request.call(call, {**more, **words, "needs": needs, **said, "facts": facts})
    acknowledge(request, data, _lines(data))


@click.group("observe", no_args_is_help=False)
def observe_command() -> None:
    """Record what was seen of a step, an external job or a download.

    An observation is truth about the world, accepted in any state, and not a move: progress is
    not completion, and DONE takes verification.

    \b
    Example:
      perdure observe progress N1 --summary "page 40 of 200"
    """


@verb("progress", writes=True)
@click.argument("node")
@_summary
@_fact
@click.pass_obj
def observe_progress_command(
    request: Request, node: str, summary: str, facts: tuple[str, ...]
) -> None:
    """Say that a step has moved.

    It is RUNNING then, for supervision, and nothing more.

    \b
    Example:
      perdure observe progress N1 --summary "page 40 of 200" --fact pages=40
    """
    _observe(request, "progress", summary, facts, node=node)


@verb("completed", writes=True)
@click.argument("node")
@_summary
@_fact
@click.pass_obj
def observe_completed_command(
    request: Request, node: str, summary: str, facts: tuple[str, ...]
) -> None:
    """Say that a step was seen completed.

    While it is at work and its outputs are there they are registered, and it is claimed complete
    with it: `perdure check NODE` then verifies it. DONE it is by that verdict only.

    \b
    Example:
      perdure observe completed N1 --summary "all 200 pages" --fact pages=200
    """
    _observe(request, "completed", summary, facts, node=node)


@verb("task-completed", writes=True)
@_summary
@_fact
@click.pass_obj
def observe_task_completed_command(request: Request, summary: str, facts: tuple[str, ...]) -> None:
    """Say that the task as a whole was seen completed.

    Moves nothing. With steps open, a block or a pending external job this is a contradiction, and
    supervision says so.

    \b
    Example:
      perdure observe task-completed --summary "the report is with the customer"
    """
    _observe(request, "task-completed", summary, facts)


@verb("external", writes=True)
@click.option("--provider", required=True, metavar="NAME", help="Whose job it is.")
@click.option("--job-id", required=True, metavar="ID", help="Its id there.")
@click.option("--state", required=True, metavar="STATE",
              help=f"One of {', '.join(EXTERNAL_STATES)}.")  # fmt: skip
@_of_node
@_summary
@_fact
@click.pass_obj
def observe_external_command(
    request: Request,
    *,
    provider: str,
    job_id: str,
    state: str,
    node: str | None,
    summary: str,
    facts: tuple[str, ...],
) -> None:
    """Say how a job at somebody else's stands.

    That it is pending counts only with a fact of the provider's own (OB-2): provider_job_id,
    remote_job_id, submission_receipt, submission_receipt_id, status_handle,
    provider_status_handle, status_url, poll_token, provider_response_ref, provider_receipt_ref,
    artifact_path, artifact_url or output_file. Without one it is on record, and suspicious. Facts
    add up over time; a change of state is progress, the same state again is not.

    \b
    Example:
      perdure observe external --provider slurm --job-id 4711 --state RUNNING \\
          --fact provider_job_id=4711 --node N1
    """
    _observe(
        request, "external", summary, facts,
        provider=provider, job_id=job_id, state=state, node=node,
    )  # fmt: skip


@verb("download", writes=True)
@click.option("--id", "download_id", required=True, metavar="ID", help="What it is called.")
@click.option("--status", required=True, metavar="STATUS",
              help=f"One of {', '.join(DOWNLOAD_STATUSES)}.")  # fmt: skip
@click.option("--path", required=True, metavar="PATH", help="Where the file is.")
@click.option("--size", type=click.IntRange(0), metavar="BYTES", help="How large it is.")
@click.option("--checksum", default="", metavar="TEXT", help="Its checksum, with its kind.")
@_of_node
@_summary
@_fact
@click.pass_obj
def observe_download_command(
    request: Request,
    *,
    download_id: str,
    status: str,
    path: str,
    size: int | None,
    checksum: str,
    node: str | None,
    summary: str,
    facts: tuple[str, ...],
) -> None:
    """Say how a download has ended, or how far it is.

    One that is INCOMPLETE or CORRUPT contradicts every word of completion until it is seen
    COMPLETE.

    \b
    Example:
      perdure observe download --id corpus --status COMPLETE --path artifacts/N1/corpus.tar \\
          --size 73400320 --node N1
    """
    _observe(
        request, "download", summary, facts,
        id=download_id, status=status, path=path, size_bytes=size, checksum=checksum, node=node,
    )  # fmt: skip


for _inner in (
    observe_progress_command,
    observe_completed_command,
    observe_task_completed_command,
    observe_external_command,
    observe_download_command,
):
    observe_command.add_command(_inner)
observe_command.params += common_options(writes=True)


def _observe(
    request: Request, what: str, summary: str, facts: tuple[str, ...], **more: Any
) -> None:
    args = {"what": what, "summary": text_of(summary), "facts": facts_of(facts), **more}
    data = request.call("observe", args)
    acknowledge(request, data, _lines(data))


def _lines(data: Data) -> list[str]:
    lines = []
    if "state" in data:
        lines.append(f"{data['node']} is {data['state']}")
    if data.get("claimed"):
        lines += field("then", f"perdure check {data['node']}")
    elif data.get("why"):
        lines += field("no claim", data["why"])
    if "job" in data:
        lines.append(f"{data['job']} is {data['job_state']}")
    if data.get("evidence") == []:
        lines += field("suspicious", _NO_EVIDENCE)
    if "download" in data:
        lines.append(f"{data['download']} is {data['status']}")
    return lines


_NO_EVIDENCE: Final = "pending by word alone (OB-2); add such as --fact provider_job_id=ID"


@verb("block", writes=True)
@click.argument("node", required=False)
@click.option("--task", "whole", is_flag=True, help="Not one node: the task as a whole.")
@_word_of_owner
@click.pass_obj
def block_command(request: Request, /, *, node: str | None, whole: bool, **said: Any) -> None:
    """Confirm that a node, or the task, cannot go on.

    Takes a reason, what is needed, and a next step that does no harm (OB-3). A node at work is
    BLOCKED until its owner resumes (`perdure reply A` or `E`); what is in another state stays in
    it. Supervision tries a failure again that is of a kind to pass, before it asks a person.

    \b
    Example:
      perdure block N1 --reason "the API answers 401" --need "a valid API key" \\
          --safe-next-step "keep the pages fetched so far" --failure-type AUTH_REQUIRED
    """
    if (node is None) != whole:
        raise UsageError(
            "a block is of one NODE, or with --task of the whole task.", fix="Name one of the two."
        )
    _say(request, "block", said, node=node)


@verb("reply", writes=True)
@click.argument("letter")
@click.option("--node", metavar="NODE", help="The step that is meant, when it could be several.")
@_word_of_owner
@click.pass_obj
def reply_command(request: Request, /, *, letter: str, node: str | None, **said: Any) -> None:
    """Answer the supervisor as the owner of the work, by a letter.

    \b
    A  it is in progress, and was only not recorded: progress, and the block is lifted
    B  it is blocked: takes --reason and --safe-next-step
    C  it is completed: the task; with --node the step, and the task with the last one
    D  no answer can be given: nothing changes, look elsewhere
    E  it was forgotten or not being done: it is resumed now

    Without --node the step is the one that is at work or blocked, if there is one; of A, the
    name is asked for when there are several.

    \b
    Example:
      perdure reply A --node N1 --summary "page 40 of 200" --resume-token TOKEN
      perdure reply B --reason "the API answers 401" --safe-next-step "keep what is there"
    """
    _say(request, "reply", said, letter=letter, node=node)
