"""``judge``: the verdict of an auditor on finished work (V2).

Job: parse, call the service, render. Invariants: who judges is a verifier unless an actor is named;
exit code 1 means that the work did not pass although this verdict did.
"""

import sys

import click

from perdure.core.audits import verdict_bytes_max
from perdure.core.codec import from_json, to_json
from perdure.errors import NotFoundError, StorageError, UsageError
from perdure.interfaces.cli.output import acknowledge, field, fields, respond
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.interfaces.cli.verdicts import verdict_exit, verdict_lines


@verb("judge", writes=True)
@click.argument("node", metavar="NODE")
@click.option("--verdict", "path", metavar="FILE",
              help="The filled-in form, as JSON; - reads standard input.")  # fmt: skip
@click.pass_obj
def judge_command(request: Request, node: str, path: str | None) -> int:
    """Audit finished work that somebody else has done (V2).

    Without --verdict it prints what there is to judge: the rubric, the files with their sha256, and
    the form to fill in, which is data.form with --json. With it the verdict is recorded, bound to
    the files as they are now, and the node is verified: FILE holds the form, alone or as --json
    printed it. Every point needs an item; whoever did the work is refused.

    \b
    Example:
      perdure judge report --json > verdict.json
      perdure judge report --verdict verdict.json --actor verifier:anna
    """
    if path is None:
        data = request.service("verifier").audit_brief(node)
        respond(request, data, _brief_lines(data))
        return 0
    args = {"node": node, "verdict": _form_in(_read(path))}
    data = request.call("judge", args, role="verifier")
    lines = []
    if data.get("audit"):
        met = ", ".join(data.get("independence") or ())
        lines.append(f"{data['node']}: {data['audit']} ({data['integrity']}; {met})")
    lines += verdict_lines(data)
    lines += field("but", data.get("why"), None)
    acknowledge(request, data, lines)
    return verdict_exit(data) if data.get("audit") == "pass" else 0


def _brief_lines(data: Data) -> list[str]:
    lines = [f"{data['node']} is {data['state']}: {data['title']}"]
    lines += field("goal", data["goal"])
    lines += fields("rubric", [f"{n}. {point}" for n, point in enumerate(data["rubric"], 1)])
    lines += fields("files", [f"{path} {value}" for path, value in data["files"].items()])
    lines += field("asks for", ", ".join(data["independence"]))
    lines += field("waits", data["missing"])
    lines += field("form", to_json(data["form"]).decode(), None)
    if data["state"] != "VERIFYING":
        return lines + field("but", f"it is {data['state']}: there is nothing to judge now")
    return lines + field("then", f"perdure judge {data['node']} --verdict FILE")


def _form_in(text: str) -> str:
    """The form in what ``--json`` printed; any other text as it is, for the service to judge."""
    try:
        given = from_json(text.encode("utf-8", "surrogatepass"), dict)
    except (ValueError, RecursionError):
        return text
    data = given.get("data")
    return to_json(data["form"]).decode() if isinstance(data, dict) and "form" in data else text


def _read(path: str) -> str:
    """The text of the verdict. Raises NotFoundError, StorageError or UsageError."""
    try:
        if path == "-":
            text = sys.stdin.read(verdict_bytes_max + 1)
        else:
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read(verdict_bytes_max + 1)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no file {path!r}.",
            code="file_not_found",
            fix="Name the file that holds the verdict, or - for standard input.",
        ) from None
    except OSError as error:
        raise StorageError.from_os(error, path, "Reading the verdict") from error
    if len(text) > verdict_bytes_max:
        raise UsageError(
            f"the verdict is longer than {verdict_bytes_max} characters.",
            code="too_large",
            fix="Say what was found, and cite files for the rest.",
        )
    return text
