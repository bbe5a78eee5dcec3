"""``monitor``: supervise workspaces.

Job: parse, call the service, render; print the messages for whoever is at the terminal. Invariants:
exit code 0 means that something could be evaluated; without ``--apply`` nothing is written.
"""

from typing import Final

import click

from perdure.errors import UsageError
from perdure.interfaces.cli.output import field, fields, plain, respond, some, write_line
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.signals import signals_to_the_loop
from perdure.interfaces.cli.verb import verb
from perdure.service.monitors import (
    Monitoring,
    interval_of,
    schedule_interval_default_s,
    watch_interval_default_s,
)


@verb("monitor")
@click.argument("workspaces", nargs=-1, metavar="[WORKSPACE]...")
@click.option("--at", metavar="TIME", help="As of then: 2026-12-01T10:00Z, or +1h from now.")
@click.option("--apply", "applies", is_flag=True,
              help="Keep supervision.json, and deliver messages.")  # fmt: skip
@click.option("--watch", "watches", is_flag=True, help="Go on until everything is over.")
@click.option("--interval", metavar="DURATION",
              help="Between two looks: 60s of --watch, 5m of --schedule.")  # fmt: skip
@click.option("--schedule", "schedules", is_flag=True,
              help="Have cron do it, with --apply, until the task is over.")  # fmt: skip
@click.option("--unschedule", "unschedules", is_flag=True, help="Have cron do it no more.")
@click.option("--notify", metavar="FILE",
              help="Where messages go; else PERDURE_NOTIFY, else a notify.yaml.")  # fmt: skip
@click.option("--scheduled", is_flag=True, hidden=True,
              help="As the schedule calls it: nobody is at the terminal.")  # fmt: skip
@click.pass_obj
def monitor_command(
    request: Request,
    *,
    workspaces: tuple[str, ...],
    at: str | None,
    applies: bool,
    watches: bool,
    interval: str | None,
    schedules: bool,
    unschedules: bool,
    notify: str | None,
    scheduled: bool,
) -> int:
    """Supervise tasks: notice what keeps them, and ask who can help.

    Looks at each WORKSPACE (else the one every command means) for silence, contradictions and
    blockers, and says the one thing to do, from what was observed and nothing else. It never kills
    or changes work, and never writes to the journal. With --apply it remembers what it said, asks
    the owner with a resume token, and tells the requester; two monitors never send the same
    message twice. With --at it says what it will do then. Exits 0 whenever it could evaluate.

    \b
    Example:
      perdure monitor
      perdure monitor --at +1h
      perdure monitor W1 W2 --apply --watch --interval 1m
      perdure monitor --schedule --interval 5m
    """
    modes = [name for name, given in (
        ("--watch", watches), ("--schedule", schedules), ("--unschedule", unschedules)
    ) if given]  # fmt: skip
    _check(modes, at=at, interval=interval)
    said = _Said(request, attended=applies and not scheduled)
    monitoring = Monitoring(
        workspaces,
        directory=request.directory,
        start_dir=request.start_dir,
        environ=request.environ,
        notify=notify,
        emit=said.message if said.at_once else None,
        shows=said.in_report,
    )
    if schedules:
        data = monitoring.schedule(interval_of(interval, schedule_interval_default_s))
        respond(request, data, _scheduled_lines(data))
        return 0
    if unschedules:
        data = monitoring.unschedule()
        respond(request, data, _unscheduled_lines(data))
        return 0
    if watches:
        interval_s = interval_of(interval, watch_interval_default_s)
        with signals_to_the_loop() as on_loop:
            on_loop(monitoring.end)
            for data in monitoring.watch(interval_s=interval_s, apply=applies):
                said.changes(data)
                said.acknowledge(monitoring, data)
        return 0
    moment = None if at is None else monitoring.moment(at)
    data = monitoring.look(at=moment, apply=applies)
    if not scheduled or _has_trouble(data):
        said.everything(data)
        said.acknowledge(monitoring, data)
    return 0


def _check(modes: list[str], *, at: str | None, interval: str | None) -> None:
    if len(modes) > 1:
        raise UsageError(f"{' and '.join(modes)} exclude each other.", fix="Give one of them.")
    if at is not None and modes:
        raise UsageError(
            f"--at is a single moment, and {modes[0]} goes on.", fix="Leave one of them out."
        )
    if interval is not None and modes not in (["--watch"], ["--schedule"]):
        raise UsageError(
            "--interval says how often, which takes --watch or --schedule.", fix="Add one of them."
        )


def _has_trouble(data: Data) -> bool:
    """What somebody who is not there has to be told by mail."""
    return any(report["error"] or report["notify_error"] for report in data["reports"])


class _Said:
    """What is printed of the looks, and of the messages for whoever is at the terminal."""

    def __init__(self, request: Request, *, attended: bool) -> None:
        self._request = request
        self._attended = attended
        self._last: dict[str, object] = {}

    @property
    def at_once(self) -> bool:
        """Whether messages are printed as they come; programs find them in the report."""
        return self._attended and not self._request.json

    @property
    def in_report(self) -> bool:
        """Whether whoever reads the report sees the messages in it."""
        return self._attended and self._request.json

    def message(self, message: Data) -> None:
        """One message, whole: it counts as delivered once this returns."""
        write_line(f"to the {message['to']}: {plain(message['title'])}  [{plain(message['id'])}]")
        for line in str(message["text"]).splitlines():
            write_line(f"  {plain(line, None)}")

    def acknowledge(self, monitoring: Monitoring, data: Data) -> None:
        """The messages in a report have been printed: they count as delivered."""
        if self.in_report:
            monitoring.shown(data)

    def everything(self, data: Data) -> None:
        """The answer to a single look."""
        lines = [line for report in data["reports"] for line in report_lines(report)]
        respond(self._request, data, lines)

    def changes(self, data: Data) -> None:
        """One look of many: programs get each, people what is new."""
        if self._request.json:
            respond(self._request, data, ())
            return
        for report in data["reports"]:
            now = [report[name] for name in _TELLING]
            if now != self._last.get(report["workspace"]) or report["delivered"]:
                self._last[report["workspace"]] = now
                for line in report_lines(report):
                    write_line(line)


_TELLING: Final = (
    "state", "step", "status", "inconsistencies", "suspected", "failed", "notices", "error",
    "notify_error",
)  # fmt: skip


def report_lines(report: Data) -> list[str]:
    """One report as text."""
    if report["error"]:
        error = report["error"]
        lines = [f"{plain(report['workspace'], None)}: {error['code']}: {plain(error['message'])}"]
        return lines + field("fix", error["fix"], None)
    facing = report["user_facing"]
    lines = [
        f"{report['task_id']}: {report['state']} ({report['status']}, {report['truth_state']})"
    ]
    lines += field("outcome", facing["headline"], None)
    lines += field("reason", report["reason"], None)
    lines += field("then", report["next_action"], None)
    lines += field("step", report["step"] or report["current_step"])
    lines += fields("truth", report["inconsistencies"])
    lines += fields("suspected", [
        f"{name}: {said['observation']} ({said['policy']})"
        for name, said in report["suspected"].items()
    ])  # fmt: skip
    waits = [f"{job['key']} is {job['state']}" for job in report["pending_external"]]
    lines += field("waits for", some(waits))
    lines += fields(
        "asked", [f"{ask['kind']} [{ask['token']}]" for ask in report["resume_requests"]]
    )
    lines += fields("sent", [f"{sent['id']} by {sent['channel']}" for sent in report["delivered"]])
    lines += fields("not sent", [
        f"{failed['id']} by {failed['channel']}: {failed['problem']}" for failed in report["failed"]
    ])  # fmt: skip
    lines += field("queued", report["updates_pending"] or None)
    if report["notify_error"]:
        lines += field("notify", report["notify_error"]["message"], None)
    return lines + fields("note", report["notices"])


def _scheduled_lines(data: Data) -> list[str]:
    minutes = data["interval_s"] / 60
    return [
        f"{plain(workspace, None)}: cron looks every {minutes:g} min"
        + ("" if changed else " (already)")
        for workspace, changed in data["scheduled"].items()
    ]


def _unscheduled_lines(data: Data) -> list[str]:
    return [
        f"{plain(workspace, None)}: "
        + ("taken out of the crontab" if found else "was not scheduled")
        for workspace, found in data["unscheduled"].items()
    ]
