"""``explain``: what a rule id in an error, an event or an audit line means.

Job: look it up in the tables of the core. Needs no workspace, and reads no file but the page.
"""

import click

from perdure.core.rules import explain_rule, meaning_of, rule_ids
from perdure.interfaces.cli.output import field, respond, table
from perdure.interfaces.cli.request import Request
from perdure.interfaces.cli.verb import verb
from perdure.service.pages import read_page


@verb("explain")
@click.argument("rule", required=False)
@click.option("--page", is_flag=True, help="Print the whole page about the protocol (Markdown).")
@click.pass_obj
def explain_command(request: Request, *, rule: str | None, page: bool) -> None:
    """Say what a rule or an edge means; without RULE, all of them.

    Edges of nodes are N01 to N15, of the task T01 to T12; the others are cited by refusals. With
    each comes how strong it is, an invariant, a rule, a reference policy or a heuristic, and the
    test that holds it. Exits 3 for an unknown one.

    \b
    Example:
      perdure explain AR-3
      perdure explain --page | less
    """
    if page:
        text = read_page("protocol.md")
        respond(request, {"page": text}, text.splitlines())
        return
    if rule is None:
        rows = [(name, meaning_of(name)) for name in rule_ids()]
        respond(request, {"rules": dict(rows)}, table(rows))
        return
    data = explain_rule(rule)
    lines = [f"{data['rule']}: {data['meaning']}"]
    lines += field("strength", data["strength"]) + field("held by", data["test"])
    respond(request, data, lines)
