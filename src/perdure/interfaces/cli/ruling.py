"""Commands by which the task and a person settle what only a person can settle.

Job: parse, call the service, render. Invariants: the text is kept verbatim; who rules is a
gatekeeper unless an actor is named; exit code 0 of an approval means that nothing speaks against
what was approved.
"""

from collections.abc import Sequence
from typing import Final

import click

from perdure.core.durations import duration_max_s, seconds_of
from perdure.errors import UsageError
from perdure.interfaces.cli.changes import changes_of
from perdure.interfaces.cli.output import acknowledge, field, fields
from perdure.interfaces.cli.request import Data, Request, text_of
from perdure.interfaces.cli.verb import verb
from perdure.interfaces.cli.verdicts import verdict_exit, verdict_lines

_RULED: Final = {
    "answer": "answered",
    "approve": "approved",
    "revise": "to be revised",
    "reject": "rejected",
}


@verb("ask", writes=True)
@click.argument("text")
@click.option("--node", metavar="NODE", help="What waits for the answer; else nothing does.")
@click.option("--option", "options", multiple=True, metavar="TEXT", help="A possible answer.")
@click.option("--default", default="", metavar="TEXT", help="What happens without an answer.")
@click.option("--context", default="", metavar="TEXT", help="What one must know to answer.")
@click.option("--consequences", default="", metavar="TEXT", help="What hangs on the answer.")
@click.option("--link", "links", multiple=True, metavar="REF", help="A file, a page or an event.")
@click.option("--to", metavar="ROLE", help="The role that answers; else gatekeeper.")
@click.option("--keep-working", is_flag=True,
              help="Go on with the node; only its completion waits.")  # fmt: skip
@click.option("--timeout", metavar="DURATION",
              help="When it counts as overdue, as in 4h; it is never an answer.")  # fmt: skip
@click.option("--id", "question_id", metavar="ID", help="Its id; one is made up otherwise.")
@click.pass_obj
def ask_command(
    request: Request,
    *,
    text: str,
    node: str | None,
    options: tuple[str, ...],
    default: str,
    context: str,
    consequences: str,
    links: tuple[str, ...],
    to: str | None,
    keep_working: bool,
    timeout: str | None,
    question_id: str | None,
) -> None:
    """Put a question to a person, on record before anything waits.

    With --node that node waits: one at work is BLOCKED until the answer. Everything that does not
    depend on it goes on. TEXT - reads it from standard input.

    \b
    Example:
      perdure ask "Which licence may we use?" --node report --option MIT --option Apache-2.0
    """
    args: Data = {
        "text": text_of(text),
        "node": node,
        "options": list(options),
        "default": default,
        "context": context,
        "consequences": consequences,
        "links": list(links),
        "to": to,
        "keep_working": keep_working,
        "timeout_s": _seconds(timeout),
        "id": question_id,
    }
    data = request.call("ask", args)
    acknowledge(request, data, _asked_lines(data, options))


def _seconds(given: str | None) -> float | None:
    if given is None:
        return None
    seconds = seconds_of(given)
    if seconds is None or not 0 < seconds <= duration_max_s:
        raise UsageError(
            f"{given!r} is no length of time.",
            code="bad_duration",
            fix="Write seconds, or 90s, 30m, 4h or 2d.",
        )
    return seconds


def _asked_lines(data: Data, options: Sequence[str]) -> list[str]:
    if not data.get("question"):
        return []
    lines = [f"asked {data['question']}"]
    if data.get("node"):
        lines += field("waits", f"{data['node']} ({data['state']})")
    choice = " --choice OPTION" if options else ""
    return lines + field("then", f"perdure answer {data['question']} TEXT{choice}")


@verb("answer", writes=True)
@click.argument("question", metavar="ID")
@click.argument("text")
@click.option("--choice", default="", metavar="TEXT", help="The option that was taken.")
@click.option("--method", default="", metavar="NAME",
              help="The new way of doing it, where one was asked for.")  # fmt: skip
@click.pass_obj
def answer_command(request: Request, question: str, text: str, choice: str, method: str) -> int:
    """Answer a question; what waited for it alone goes on.

    ID is that of the question, or a unique beginning. A closed question is refused, and the event
    that settled it is named. TEXT - reads it from standard input. Finished work that waited for
    the answer is verified; exits 1 when a check failed.

    \b
    Example:
      perdure answer Q-001 "MIT, as everywhere" --choice MIT
    """
    args = {"question": question, "text": text_of(text), "choice": choice, "method": method}
    return _rule(request, "answer", args)


@verb("approve", writes=True)
@click.argument("question", metavar="ID")
@click.option("--text", default="", metavar="TEXT",
              help="A remark for the record; - reads standard input.")  # fmt: skip
@click.pass_obj
def approve_command(request: Request, question: str, text: str) -> int:
    """Consent to what a gate shows, as it is on disk now.

    ID is that of the open question. The approval holds for these bytes alone (GA-3): where they
    have changed since the question, it is refused with 4 and asked anew. Work that waited for it is
    verified and DONE in the same call; exits 1 when a check failed after all.

    \b
    Example:
      perdure approve G-report
    """
    return _rule(request, "approve", {"question": question, "text": text_of(text)})


@verb("revise", writes=True)
@click.argument("question", metavar="ID")
@click.option("--text", required=True, metavar="TEXT",
              help="What is wanted instead; - reads standard input.")  # fmt: skip
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE",
              help="A field of the spec that changes with it.")  # fmt: skip
@click.pass_obj
def revise_command(request: Request, question: str, text: str, changes: tuple[str, ...]) -> None:
    """Send work back with what is to be different.

    The node is done again under the changed spec, and meets the same gate; after so many rounds it
    escalates instead.

    \b
    Example:
      perdure revise G-report --text "Shorter" --set goal="One page, no more"
    """
    args = {"question": question, "text": text_of(text), "changes": changes_of(changes)}
    _rule(request, "revise", args)


@verb("reject", writes=True)
@click.argument("question", metavar="ID")
@click.option("--reason", default="rejected without a reason", show_default=True, metavar="TEXT",
              help="Why, for whoever did it; - reads standard input.")  # fmt: skip
@click.pass_obj
def reject_command(request: Request, question: str, reason: str) -> None:
    """Refuse what a gate shows; the same content is not asked about again.

    Finished work is done again, and what has not started stays where it is.

    \b
    Example:
      perdure reject G-report --reason "The numbers are last year's"
    """
    _rule(request, "reject", {"question": question, "text": text_of(reason)})


def _rule(request: Request, ruling: str, args: Data) -> int:
    # Who says nothing of who they are is taken for the one who was asked.
    role = request.service().asked_role(args["question"])
    data = request.call(ruling, args, role=role)
    lines = []
    if data.get("ruling") in _RULED:
        lines.append(f"{data['question']} is {_RULED[data['ruling']]}")
    lines += verdict_lines(data)
    asked = [f"{item['question']}: {item['text']}" for item in data.get("asked") or ()]
    lines += fields("asked", asked)
    lines += field("but", data.get("why"), None)
    acknowledge(request, data, lines)
    return verdict_exit(data)
