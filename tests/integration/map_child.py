"""The process that ``test_map_loop`` kills: one run of a map, as the command line makes it.

``python -m tests.integration.map_child DIRECTORY ITEMS [--workers N] [--attempts N] [--timeout S]
[--wait S] [--die-at N] [--full-after N] -- CMD...``: prints every event as a line of JSON and exits
as ``perdure map`` does. With ``--die-at`` it ends itself with SIGKILL at the Nth call that changes
the disk, and at the latest when the job is open and in order. With ``--full-after`` the disk has
room for so many appends to logs.
"""

import argparse
import errno
import os
import signal
import sys
from types import FrameType
from typing import Any

from perdure.control.former_run import stop_former_run
from perdure.control.item_command import ItemCommand
from perdure.control.item_run import ItemRun
from perdure.control.items import read_items
from perdure.control.map_loop import MapLoop
from perdure.core.batch import format_by_ending
from perdure.core.codec import to_json
from perdure.errors import HaltError
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.side_files import artifact_name
from perdure.runtime.world import real_world
from perdure.storage.disk import RealAppendFile, RealDisk


def say(event: dict[str, Any]) -> None:
    os.write(1, to_json(event) + b"\n")


class DyingDisk(RealDisk):
    """The real disk, until the process ends in front of one of its calls."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        self._step()
        super().make_dirs(path, durable=durable)

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        self._step()
        super().replace(path, data, durable=durable)

    def unlink(self, path: str, *, durable: bool) -> None:
        self._step()
        super().unlink(path, durable=durable)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        self._step()
        super().rewrite(path, offset, data)

    def truncate(self, path: str, size_bytes: int) -> None:
        self._step()
        super().truncate(path, size_bytes)

    def sync_file(self, path: str) -> None:
        self._step()
        super().sync_file(path)

    def sync_dir(self, path: str) -> None:
        self._step()
        super().sync_dir(path)

    def _step(self) -> None:
        self.left -= 1
        if self.left <= 0:
            die()


class FullDisk(RealDisk):
    """The real disk, with room for so many appends to logs."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self.left = appends

    def open_append(self, path: str) -> RealAppendFile:
        return LimitedFile(self, path)


class LimitedFile(RealAppendFile):
    """A log on that disk."""

    def __init__(self, disk: FullDisk, path: str) -> None:
        super().__init__(path, os.open(path, os.O_WRONLY | os.O_APPEND))
        self._disk = disk

    def append(self, data: bytes) -> None:
        self._disk.left -= 1
        if self._disk.left < 0:
            raise self._die(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Appending")
        super().append(data)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("directory")
    options.add_argument("items")
    options.add_argument("--key")
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--attempts", type=int, default=3)
    options.add_argument("--timeout", type=float)
    options.add_argument("--wait", type=float, default=0.0)
    options.add_argument("--die-at", type=int)
    options.add_argument("--full-after", type=int)
    options.add_argument("command", nargs="+")
    given = options.parse_args()
    world = real_world()
    if given.die_at is not None:
        world = world._replace(disk=DyingDisk(given.die_at))
    if given.full_after is not None:
        world = world._replace(disk=FullDisk(given.full_after))
    loops: list[MapLoop] = []

    def handle(number: int, frame: FrameType | None) -> None:
        for loop in loops:
            loop.interrupt(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    try:
        items = read_items(
            given.items,
            form=format_by_ending(given.items),
            key=given.key,
            directory=os.getcwd(),
            disk=world.disk,
        )
        directory = os.path.abspath(given.directory)
        command = ItemCommand(
            tuple(given.command),
            directory=directory,
            cwd=os.getcwd(),
            environment=world.environment,
            artifact_path=lambda key: os.path.join(directory, artifact_name(key)),
            world=world,
        )
        command.require_program()
        job = CheckpointedJob(directory, "map", world=world)
        run = ItemRun(
            job,
            items,
            command,
            max_attempts=given.attempts,
            timeout_s=given.timeout,
            retry_wait_s=given.wait,
            world=world,
        )
        loops.append(MapLoop(run, workers=given.workers, world=world, emit=say))
        if given.die_at is not None:
            stop_former_run(job.directory, disk=world.disk, clock=world.clock)
            die()
        report = loops[0].run()
    except HaltError as error:
        say({"event": "error", **error.as_dict()})
        return error.exit_code
    ends = {"finished": 0, "incomplete": 1}
    return ends.get(report["outcome"], 128 + report["signal"])


if __name__ == "__main__":
    sys.exit(main())
