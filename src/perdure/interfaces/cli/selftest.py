"""``selftest``: the crash matrix on the user's own disk.

Job: call, show the ground at once and the table at the end, exit by what held. Invariants: an end
by a signal cleans up as Ctrl-C does.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from perdure.interfaces.cli.output import field, fields, plain, respond, write_line
from perdure.interfaces.cli.request import Data, Request
from perdure.interfaces.cli.verb import verb
from perdure.selftest.ground import Ground
from perdure.selftest.session import minutes_default, run_selftest

_KIND_CHARS = 42


@verb("selftest")
@click.option("--dir", "beside", metavar="DIR",
              help="A directory on the disk to be tested; else beside the workspace.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), metavar="N",
              help="Try the same cases in the same order again.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0.0), default=minutes_default, metavar="M",
              show_default=True, help="How long to go on; each kind is tried once.")  # fmt: skip
@click.pass_obj
def selftest_command(request: Request, beside: str | None, seed: int | None, minutes: float) -> int:
    """Prove on this disk that nothing acknowledged is lost.

    Kills real processes at every system call that changes the disk, damages what they leave, fills
    the disk and lets several write at once, in a scratch directory that is removed again; then
    checks that every acknowledged event is there. A power cut is not among it: what the system has
    in memory survives a kill. Exits 0 when everything held, 1 when something did not, 7 when
    the disk cannot keep the promise, or cannot be written.

    \b
    Example:
      perdure selftest --minutes 5
    """
    if beside is None and request.named_directory is not None:
        named = os.path.join(request.start_dir, request.named_directory)
        beside = os.path.dirname(os.path.normpath(named))
    with _signals_as_interrupts():
        data = run_selftest(
            beside,
            request.start_dir,
            seed=seed,
            minutes=minutes,
            on_ground=lambda ground: None if request.json else _show_ground(ground),
        )
    respond(request, data, _table(data))
    code: int = data["exit_code"]
    return code


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_ground(ground: Ground) -> None:
    write_line(f"testing {plain(ground.directory, None)}")
    place = f" on {ground.device}, mounted at {ground.mount_point}" if ground.device else ""
    lines = field("disk", f"{ground.file_system}{place}", None)
    lines += field("locks", ground.locks)
    lines += field("sync", f"{ground.sync}; one of a journal takes {ground.sync_us:.0f} us")
    lines += fields("warning", ground.warnings)
    for line in [*lines, ""]:
        write_line(line)


def _table(data: Data) -> list[str]:
    lines = [f"{'':<{_KIND_CHARS}} {'tried':>6} {'held':>6}"]
    lines += [
        f"{row['kind']:<{_KIND_CHARS}} {row['tried']:>6} {row['held']:>6}" for row in data["kinds"]
    ]
    lines.append("")
    for failure in data["failures"]:
        lines.append(f"not held: {failure['kind']}: {failure['case']}")
        lines += field("why", failure["why"], None)
    seed = data["seed"]
    counted = (
        f"{data['held']} of {data['tried']} cases held in {data['seconds']:.0f} s, seed {seed}"
    )
    if data["ok"]:
        return [*lines, f"everything held: {counted}"]
    lines.append(f"NOT everything held: {counted}")
    again = max(1, round(data["seconds"] / 60 + 0.5))
    lines += field("again", f"perdure selftest --seed {seed} --minutes {again}")
    return lines
