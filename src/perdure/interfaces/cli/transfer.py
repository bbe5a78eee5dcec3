"""Commands that carry a task to another place.

Job: call, render. Invariants: neither appends an event; ``import`` makes a workspace or none.
"""

import os

import click

from perdure.interfaces.cli.output import field, plain, respond, some
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.service.tasks import locate
from perdure.service.transfer import check_file, export_task, import_task

lines_max = 8


@verb("export")
@click.argument("file", metavar="FILE")
@click.option("--logs", is_flag=True, help="Take the output of commands along, secrets masked.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.pass_obj
def export_command(request: Request, file: str, logs: bool, force: bool) -> int:
    """Write the whole task to one file.

    FILE ends in .tar.gz or .tar. It holds the journal, the contracts, every registered file and
    what people wrote, with a manifest of hashes; `perdure import` makes a workspace of it again,
    on any machine. A coordinator may go on meanwhile: the journal is taken up to a commit. Changes
    nothing. Exits 1 when registered files are missing or changed, which the manifest says; 6, and
    writes nothing, when the journal is damaged.

    \b
    Example:
      perdure export ../task.tar.gz
    """
    workspace = locate(request.directory, request.start_dir, request.environ)
    target = os.path.abspath(os.path.join(request.start_dir, file))
    data = export_task(workspace, target, actor=request.actor, logs=logs, force=force)
    size = f"{data['files']} files, {data['size_bytes']} bytes"
    lines = [f"exported {plain(data['task_id'])} up to J-{data['seq']}: {size}"]
    respond(request, data, [*lines, *_manifest(data), *field("file", data["file"], None)])
    code: int = data["exit_code"]
    return code


@verb("import")
@click.argument("file", metavar="FILE")
@click.option("--check", is_flag=True, help="Prove FILE and write nothing.")
@click.option("--no-current", is_flag=True, help="Leave the project's current task as it is.")
@click.pass_obj
def import_command(request: Request, file: str, check: bool, no_current: bool) -> None:
    """Make a workspace of an exported task.

    It goes to -C DIR, else to the nearest .perdure upward from here, where it becomes the current
    task. Everything in FILE is proved before anything is written, and the workspace appears whole
    or not at all; the journal is byte for byte what was exported. Where the same history is there
    already, nothing happens; where another one is, it is refused and told at which event the two
    part. A damaged FILE exits 6.

    \b
    Example:
      perdure import task.tar.gz
      perdure import task.tar.gz --check
    """
    source = os.path.abspath(os.path.join(request.start_dir, file))
    if check:
        data = check_file(source)
        respond(request, data, ["the file is whole", *_manifest(data)])
        return
    data = import_task(
        source,
        request.named_directory,
        request.start_dir,
        actor=request.actor,
        current=not no_current,
    )
    what = "is there already, with the same history" if data["identical"] else "imported"
    lines = [f"{plain(data['task_id'])} {what}: J-{data['seq']}, {data['fsm_task']}"]
    lines += [*_manifest(data), *field("workspace", data["workspace"], None)]
    if data["at_work"] and not data["identical"]:
        lines += field("at work", some(data["at_work"]))
        lines += field("then", "perdure resume takes over what was at work elsewhere")
    respond(request, data, lines)


def _manifest(data: Data) -> list[str]:
    lines = field("state", data["state_hash"])
    for name, label in (("missing", "missing"), ("damaged", "damaged"), ("left_out", "left out")):
        for told in data[name][:lines_max]:
            lines += field(label, f"{plain(told['path'])}: {told['why']}")
        more = data[f"{name}_count"] - min(len(data[name]), lines_max)
        lines += field(label, f"and {more} more; --json lists them" if more else "")
    masked = ", ".join(f"{name} ({count})" for name, count in data["masked"].items())
    return lines + field("masked", masked)
