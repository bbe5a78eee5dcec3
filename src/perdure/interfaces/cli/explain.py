"""``explain``: what a rule id in an error, an event or an audit line means.

Job: look it up in the tables of the core. Needs no workspace and reads no file.
"""

import click

from perdure.core.rules import explain_rule, meaning_of, rule_ids
from perdure.interfaces.cli.output import respond, table
from perdure.interfaces.cli.request import Request
from perdure.interfaces.cli.verb import verb


@verb("explain")
@click.argument("rule", required=False)
@click.pass_obj
def explain_command(request: Request, rule: str | None) -> None:
    """Say what a rule or an edge means; without RULE, all of them.

    Edges of nodes are N01 to N15, of the task T01 to T12; the others are cited by refusals. Exits 3
    for an unknown one.

    \b
    Example:
      perdure explain AR-3
    """
    if rule is None:
        rows = [(name, meaning_of(name)) for name in rule_ids()]
        respond(request, {"rules": dict(rows)}, table(rows))
        return
    data = explain_rule(rule)
    respond(request, data, [f"{data['rule']}: {data['meaning']}"])
