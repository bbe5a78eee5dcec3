"""Commands that extend the graph and give nodes up.

Job: parse, call the service, render. Invariants: every dependency, path and check is validated
before anything is written.
"""

import click

from perdure.core.model import EFFECTS, RESUME_POLICIES, VERIFICATION_LEVELS
from perdure.errors import UsageError
from perdure.interfaces.cli.changes import list_or_none
from perdure.interfaces.cli.output import acknowledge, some
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb


@verb("add", writes=True)
@click.argument("node")
@click.argument("title")
@click.option("--dep", "deps", multiple=True, metavar="NODE", help="Starts only when NODE is DONE.")
@click.option("--output", "outputs", multiple=True, metavar="PATH",
              help="A file it must produce, relative to the workspace; or none.")  # fmt: skip
@click.option("--accept", multiple=True, metavar="CHECK",
              help='A check, as in "matches: PATH REGEX" or "script: CMD".')  # fmt: skip
@click.option("--priority", type=int, default=0, metavar="N", help="Higher starts first.")
@click.option("--run", metavar="CMD", help="The shell command that `perdure run` executes.")
@click.option("--goal", metavar="TEXT", help="What to do, for whoever works on it.")
@click.option("--verify", type=click.Choice(VERIFICATION_LEVELS), help="Level of verification.")
@click.option("--retry", type=click.IntRange(0), metavar="N",
              help="Failed attempts before it must escalate.")  # fmt: skip
@click.option("--effect", type=click.Choice(EFFECTS), help="Class of its side effects.")
@click.option("--resume-policy", type=click.Choice(RESUME_POLICIES),
              help="When finished work counts after a crash.")  # fmt: skip
@click.option("--successor-of", metavar="NODE", help="It takes the place of a quarantined node.")
@click.option("--gate", "gate_done", metavar="QUESTION",
              help="What a person approves before it is DONE.")  # fmt: skip
@click.option("--gate-start", metavar="QUESTION", help="What a person approves before it starts.")
@click.option("--human", metavar="RUBRIC", help="What a person judges the result by (V3).")
@click.option("--gatekeeper", "gatekeepers", multiple=True, metavar="NAME",
              help="Who rules on these; else any gatekeeper.")  # fmt: skip
@click.pass_obj
def add_command(
    request: Request,
    *,
    node: str,
    title: str,
    deps: tuple[str, ...],
    outputs: tuple[str, ...],
    accept: tuple[str, ...],
    priority: int,
    run: str | None,
    goal: str | None,
    verify: str | None,
    retry: int | None,
    effect: str | None,
    resume_policy: str | None,
    successor_of: str | None,
    gate_done: str | None,
    gate_start: str | None,
    human: str | None,
    gatekeepers: tuple[str, ...],
) -> None:
    """Add a node: one unit of work that is verified as a whole.

    It is DONE only when its outputs are on disk, its checks passed and a person has approved what
    its gates ask. Unknown dependencies, taken ids and paths outside the workspace are refused, and
    nothing is written.

    \b
    Example:
      perdure add facts "Collect the facts" --output artifacts/facts/facts.json
      perdure add report "Write the report" --dep facts \\
          --accept "matches: artifacts/report/report.md ^# " --gate "May it go out?"
    """
    spec: Data = _guards(gate_start, gate_done, human, gatekeepers)
    if outputs:
        spec["outputs"] = list_or_none("--output", outputs) or "none"
    if accept:
        spec["accept"] = [*accept, *spec.get("accept", ())]
    given = {"run": run, "goal": goal, "retry_budget": retry}
    spec.update({name: value for name, value in given.items() if value is not None})
    args: Data = {
        "node": node,
        "title": title,
        "deps": list(deps),
        "spec": spec,
        "priority": priority,
        "verify": verify,
        "resume": resume_policy,
        "effect": effect,
        "successor_of": successor_of,
    }
    data = request.call("add", args)
    acknowledge(request, data, [f"node {node} added"] if not data.get("repeated") else [])


def _guards(
    start: str | None, done: str | None, human: str | None, gatekeepers: tuple[str, ...]
) -> Data:
    """The fields of a spec that a person's consent is needed for."""
    asked = {"start": start, "done": done}
    gates = [
        {"blocks": blocks, "question": question, "gatekeeper": list(gatekeepers)}
        for blocks, question in asked.items()
        if question is not None
    ]
    found: Data = {"gates": gates} if gates else {}
    if human is not None:
        judge = {"judge": list(gatekeepers)} if gatekeepers else {}
        found["accept"] = [{"human": {"rubric": human, **judge}}]
    if gatekeepers and not found:
        raise UsageError(
            "there is no gate for that gatekeeper.", fix="Add --gate, --gate-start or --human."
        )
    return found


@verb("cancel", writes=True)
@click.argument("nodes", nargs=-1)
@click.option("--reason", default="", metavar="TEXT", help="Why, for the record.")
@click.option("--all", "everything", is_flag=True, help="Every node that is still open.")
@click.pass_obj
def cancel_command(request: Request, nodes: tuple[str, ...], reason: str, everything: bool) -> None:
    """Give nodes up for good.

    Their files and history stay. Nothing leaves CANCELLED, and what depends on them cannot start.

    \b
    Example:
      perdure cancel N7 N8 --reason "out of scope"
    """
    if nodes and everything:
        raise UsageError("name the nodes or use --all, not both.", fix="Leave one of them out.")
    data = request.call("cancel", {"nodes": list(nodes), "all": everything, "reason": reason})
    names = data.get("nodes") or []
    acknowledge(request, data, [f"cancelled {some(names)}"] if names else [])
