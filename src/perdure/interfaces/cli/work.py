"""Commands for whoever does the work: claim a node, sign life, register files, submit.

Job: parse, call the service, render the verdict. Invariants: exit code 0 for ``submit`` and
``check`` means that verification passed, or that the coordinator has the message.
"""

import os

import click

from perdure.core.model import FAILURE_CLASSES
from perdure.errors import EvidenceError, HaltError, PathError, UsageError
from perdure.interfaces.cli.output import acknowledge, field, plain
from perdure.interfaces.cli.request import Data, Request, common_options, facts_of, text_of
from perdure.interfaces.cli.verb import verb
from perdure.interfaces.cli.verdicts import verdict_exit, verdict_lines


@verb("start", writes=True)
@click.argument("node")
@click.option("--reason", default="", metavar="TEXT", help="Why this one, when another was first.")
@click.pass_obj
def start_command(request: Request, node: str, reason: str) -> None:
    """Claim a node and get its contract.

    One of several callers gets it; the others exit 4 and are told the owner. Keep the claim alive
    with beat; files of an earlier failed attempt are moved out of the way first.

    \b
    Example:
      perdure start N1
    """
    data = request.call("start", {"node": node, "reason": reason})
    acknowledge(request, data, _started_lines(data))


def _started_lines(data: Data) -> list[str]:
    if "outputs" not in data:
        return []
    lines = [f"{data['node']} is {data['state']}"]
    outputs = data["outputs"]
    lines += field("contract", data["contract"], None)
    lines += field("write to", f"{data['scope']}/")
    lines += field("outputs", "none" if outputs == [] else ", ".join(outputs or ()))
    return lines + field("then", f"perdure submit {data['node']}")


@verb("beat", writes=True)
@click.argument("node", required=False)
@click.option("--note", "--summary", "note", default="", metavar="TEXT",
              help="What it is busy with.")  # fmt: skip
@click.option("--ok/--not-ok", default=True, help="Whether the work is well; else ok.")
@click.option("--fact", "facts", multiple=True, metavar="NAME=VALUE",
              help="Something that shows it; as often as needed.")  # fmt: skip
@click.pass_obj
def beat_command(
    request: Request, node: str | None, note: str, ok: bool, facts: tuple[str, ...]
) -> None:
    """Say that the work on a node is alive.

    Renews its contract; without NODE those of all that you have at work. Exits 4 when nobody is at
    work on it. Of an executor (--actor executor:ID) it says more: all is well is a sign of
    progress, and --not-ok three times in a row calls for somebody.

    \b
    Example:
      perdure beat N1 --note "page 40 of 200"
    """
    data = request.call("beat", {"node": node, "note": note, "ok": ok, "facts": facts_of(facts)})
    acknowledge(request, data)


@click.group("artifact", no_args_is_help=False)
def artifact_command() -> None:
    """Register files and commits as evidence.

    \b
    Example:
      perdure artifact add N1 artifacts/N1/report.md
    """


@verb("add", writes=True)
@click.argument("node")
@click.argument("path", required=False)
@click.option("--id", "artifact_id", metavar="ID", help="Its id; one is made up otherwise.")
@click.option("--kind", metavar="WORD", help="What it is, such as dataset or report.")
@click.option("--supersedes", metavar="ID", help="The artifact whose place it takes.")
@click.option("--git", "revision", metavar="REV", help="Register a commit instead of a file.")
@click.option("--repo", metavar="DIR", help="The repository of --git; else the current directory.")
@click.pass_obj
def artifact_add_command(
    request: Request,
    *,
    node: str,
    path: str | None,
    artifact_id: str | None,
    kind: str | None,
    supersedes: str | None,
    revision: str | None,
    repo: str | None,
) -> None:
    """Register a file of a node, or a git commit, as evidence.

    PATH is relative to the workspace. The file is synced, read back and hashed before it is
    registered (AR-1), and its content is frozen from then on (AR-3). The same file again is the
    same artifact; a missing one is refused with 4.

    \b
    Example:
      perdure artifact add N1 artifacts/N1/report.md --kind report
      perdure artifact add N1 --git HEAD --repo ~/src/app
    """
    if (path is None) == (revision is None):
        raise UsageError("register a PATH or a --git commit, one of them.", fix="Name one.")
    args: Data = {
        "node": node,
        "path": path,
        "id": artifact_id,
        "kind": kind,
        "supersedes": supersedes,
    }
    if revision is not None:
        args["git"] = revision
        args["repo"] = os.path.abspath(os.path.join(request.start_dir, repo or "."))
    service = request.service()
    try:
        data = service.call("artifact", args, op=request.op)
    except (EvidenceError, PathError) as error:
        if path is not None:
            _point_to(error, path, service.workspace, request.start_dir, node)
        raise
    lines = []
    if not data.get("queued") and "artifact" in data:
        lines = [f"{data['artifact']} is {plain(data['path'], None)}"]
    acknowledge(request, data, lines)


artifact_command.add_command(artifact_add_command)
artifact_command.params += common_options(writes=True)


def _point_to(error: HaltError, path: str, workspace: str, start_dir: str, node: str) -> None:
    """Where the file that was meant is, when it is where the caller looked from."""
    meant = os.path.realpath(os.path.join(start_dir, path))
    if not os.path.isfile(meant):
        return
    inside = os.path.relpath(meant, os.path.realpath(workspace))
    if inside.split(os.sep)[0] == os.pardir:
        error.fix = f"Copy it to artifacts/{node}/ in {workspace} first, and name it there."
    elif inside != path:
        error.fix = (
            "The path is relative to the workspace, not to the current directory:"
            f" perdure artifact add {node} {inside}"
        )


@verb("submit", writes=True)
@click.argument("node")
@click.option("--evidence", multiple=True, metavar="REF",
              help="What shows it: an artifact id, J-n, or a path.")  # fmt: skip
@click.option("--no-check", is_flag=True, help="Claim only; verify later with `perdure check`.")
@click.pass_obj
def submit_command(request: Request, node: str, evidence: tuple[str, ...], no_check: bool) -> int:
    """Claim that a node is complete, and have it verified.

    Registers its outputs, reads them back and runs its checks; only what passes is DONE. Exits 0
    when it passed, 1 when a check failed (each is listed), 4 when there is nothing to verify.

    \b
    Example:
      perdure submit N1
    """
    data = request.call("submit", {"node": node, "evidence": list(evidence), "no_check": no_check})
    acknowledge(request, data, verdict_lines(data))
    return verdict_exit(data)


@verb("check", writes=True)
@click.argument("node")
@click.pass_obj
def check_command(request: Request, node: str) -> int:
    """Verify a node now, from what is on disk.

    A node that waits for its verdict moves on by it; otherwise nothing is written. Exits 0 when
    everything passed, 1 when a check failed.

    \b
    Example:
      perdure check N1
    """
    data = request.call("check", {"node": node})
    acknowledge(request, data, verdict_lines(data))
    return verdict_exit(data)


@verb("fail", writes=True)
@click.argument("node")
@click.option("--class", "failure_class", type=click.Choice(FAILURE_CLASSES),
              default="transient-agent", show_default=True,
              help="What kind of failure; it decides what happens next.")  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="A short cause, equal for equal ones.")
@click.option("--detail", default="", metavar="TEXT", help="More of it; - reads standard input.")
@click.pass_obj
def fail_command(request: Request, node: str, failure_class: str, reason: str, detail: str) -> None:
    """Say that the attempt at work has failed.

    Its unverified files are set aside. A transient failure may be tried again, a permanent one
    waits for a person.

    \b
    Example:
      perdure fail N1 --class permanent-resource --reason "no licence key"
    """
    args = {"node": node, "failure_class": failure_class, "reason": reason,
            "detail": text_of(detail)}  # fmt: skip
    data = request.call("fail", args)
    acknowledge(request, data, _state_lines(data))


@verb("retry", writes=True)
@click.argument("node")
@click.option("--reason", default="", metavar="TEXT", help="What has changed since.")
@click.option("--method", default="", metavar="NAME",
              help="The new way of doing it; its strikes start at none.")  # fmt: skip
@click.pass_obj
def retry_command(request: Request, node: str, reason: str, method: str) -> None:
    """Let a node go on that failed too often or is blocked.

    Answers the question that holds it. After the retry budget a new --method is due (FSN-3).

    \b
    Example:
      perdure retry N1 --method "smaller batches" --reason "it ran out of memory"
    """
    data = request.call("retry", {"node": node, "reason": reason, "method": method})
    acknowledge(request, data, _state_lines(data))


@verb("receipt", writes=True)
@click.argument("node")
@click.option("--proof", required=True, metavar="TEXT",
              help="What shows that it happened: an id, a link, a checksum.")  # fmt: skip
@click.option("--id", "receipt_id", default="", metavar="ID", help="Its id; else one is made.")
@click.pass_obj
def receipt_command(request: Request, node: str, proof: str, receipt_id: str) -> None:
    """Prove that a node's external effect has happened.

    A node with effect S3 is not DONE without one. A node that waits for the answer whether its
    effect happened is READY again, and its next contract says not to repeat it.

    \b
    Example:
      perdure receipt N1 --proof "order 4711"
    """
    data = request.call("receipt", {"node": node, "proof": proof, "id": receipt_id})
    acknowledge(request, data, _state_lines(data))


def _state_lines(data: Data) -> list[str]:
    return [f"{data['node']} is {data['state']}"] if "state" in data else []
