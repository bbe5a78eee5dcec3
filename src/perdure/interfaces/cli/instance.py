"""``instance``: the process that drives one nested instance; runs start it, people need not.

Job: signals, the log of what happens, and the exit code that the parent reads together with the
result. Invariants: it coordinates its own directory and nothing else, whoever its environment says
it is; the result on disk says how it ended, and the exit code agrees with it.
"""

import os

import click

from perdure.interfaces.cli.output import respond
from perdure.interfaces.cli.progress import show_for
from perdure.interfaces.cli.request import Request
from perdure.interfaces.cli.signals import signals_to_the_loop
from perdure.interfaces.cli.verb import verb
from perdure.service.instances import run_instance


@click.group("instance", hidden=True)
def instance_command() -> None:
    """Drive an instance of a procedure in its own directory."""


@verb("run")
@click.argument("place", metavar="DIRECTORY")
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Commands at once; else one for each processor.")  # fmt: skip
@click.pass_obj
def run_command(request: Request, place: str, jobs: int | None) -> int:
    """Run the instance in DIRECTORY until it reports.

    Exits 0 done, with or without gaps, 10 when it waits for an answer, 1 when it failed, 128 plus
    its number after a signal. Its result.json says more; the same line goes on.

    \b
    Example:
      perdure instance run instances/inv-20261130202802-1f2e3d4c
    """
    root = os.path.abspath(os.path.join(request.start_dir, place))
    show = show_for(request.json, terminal=False)
    with signals_to_the_loop() as on_loop:
        try:
            data = run_instance(
                root,
                jobs=jobs,
                actor=request.actor_given or f"coordinator:{os.path.basename(root)}",
                emit=show.event,
                on_loop=on_loop,
            )
        finally:
            show.close()
    if not show.broken:
        status = data.get("status") or data["outcome"]
        respond(request, data, [f"instance {data['task_id']}: {status}"])
    code: int = data["exit_code"]
    return code


instance_command.add_command(run_command)
