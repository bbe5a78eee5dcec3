"""One self-test from its beginning to its report.

Job: the scratch directory, the ground, the cases in their order until the time is up. Invariants:
whatever happens, no process and no file is left behind; a case that does not hold is reported with
its name, and the others are still tried.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from perdure.errors import HaltError, StorageError, UsageError
from perdure.ports import Disk
from perdure.runtime.world import World, real_world
from perdure.selftest import damage, deaths, writers
from perdure.selftest.cases import Case, Chance, Kind, Stage, in_order
from perdure.selftest.checks import NotHeldError, require
from perdure.selftest.child import life_s
from perdure.selftest.children import Children, command, environment
from perdure.selftest.ground import Ground, examine
from perdure.selftest.scratch import parent_of_scratch, prefix, remove_tree

minutes_default: Final = 0.2
failures_max: Final = 20
"""Failures that are reported; more say nothing more."""
small_disk_bytes: Final = 512 << 10
_OUR_DISK: Final = ("disk_full", "read_only", "no_processes")
"""Codes of failures that are the machine's and not a case's."""


def run_selftest(
    directory: str | None,
    start_dir: str,
    *,
    seed: int | None = None,
    minutes: float = minutes_default,
    on_ground: Callable[[Ground], None] = lambda ground: None,
    setup: str = "",
    only: str = "",
    rounds: int = 0,
) -> dict[str, Any]:
    """Try the crash matrix on the disk of ``directory`` and report what held.

    Without a directory it is that of the nearest project above ``start_dir``, else ``start_dir``.
    For tests of the self-test: ``setup`` (``module:function``) is called first in every process
    that is started, to break something there; ``only`` leaves the kinds that are named so;
    ``rounds`` are done however long they take. Raises StorageError where the ground will not do.
    """
    if not hasattr(os, "fork"):
        raise UsageError(
            "the self-test kills and stops processes, which this system has no signals for.",
            code="unsupported",
            fix="Run it on Linux or macOS, on the same kind of disk.",
        )
    world = real_world()
    if seed is None:
        seed = int(world.ids.token(), 16)
    began = world.clock.monotonic()
    parent = parent_of_scratch(world.disk, directory, start_dir)
    with _scratch(world, parent) as scratch, _children(world.disk, scratch, setup) as children:
        ground = examine(world, scratch, children)
        on_ground(ground)
        stage = Stage(world, children, scratch, Chance(seed))
        report = Report(seed)
        report.run(stage, began + minutes * 60.0, only, rounds)
    seconds = world.clock.monotonic() - began
    return report.data(ground, seconds)


@contextlib.contextmanager
def _scratch(world: World, parent: str) -> Iterator[str]:
    root = f"{parent.rstrip('/')}/{prefix}{world.ids.token()}"
    try:
        world.disk.make_dirs(root)
        yield root
    finally:
        with _uninterrupted():
            remove_tree(world.disk, root)


@contextlib.contextmanager
def _children(disk: Disk, scratch: str, setup: str) -> Iterator[Children]:
    children = Children(disk, scratch, setup)
    try:
        yield children
    finally:
        with _uninterrupted():
            children.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not stop the cleaning up."""
    before = {}
    with contextlib.suppress(ValueError):  # only the main thread hears of signals anyway
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def kinds_of(stage: Stage) -> list[Kind]:
    """Everything there is to try, on what a first undisturbed run has shown."""
    life = deaths.whole_life(stage, f"{stage.scratch}/whole")
    remove_tree(stage.world.disk, f"{stage.scratch}/whole")
    bases = [damage.make_base(stage, f"{stage.scratch}/base", events) for events in (4, 1)]
    kinds = [
        Kind("process killed at a system call", deaths.kills(stage, life), 6),
        Kind("process killed again while it recovers", deaths.kills_in_recovery(stage, life), 2),
        Kind("disk full from one call on (injected)", deaths.full_disks(stage, life), 2),
        Kind("journal cut in its last commit", damage.cuts(stage, bases), 3),
        Kind("journal zero-filled at its end", damage.zeros(stage, bases), 2),
        Kind("bit flipped in the last commit", damage.flips_in_last_commit(stage, bases), 4),
        Kind("bit flipped in history", damage.flips_in_history(stage, bases), 3),
        Kind("projection torn, edited, lost or old", damage.wrong_projections(stage, bases), 3),
        Kind("artifact flipped or lost", damage.wrong_artifacts(stage, bases), 2),
        Kind("several processes commit at once", writers.races(stage), 1, 4),
        Kind("two coordinators, one killed or stopped", writers.takeovers(stage), 2, 8),
    ]
    small = list(small_disks(stage))
    if small:
        kinds.insert(3, Kind("disk really full (a small tmpfs)", iter(small)))
    return kinds


def small_disks(stage: Stage) -> Iterator[Case]:
    """A real full disk, where this user can mount one that nobody else sees."""
    unshare = shutil.which("unshare")
    if unshare is None or not shutil.which("mount"):
        return
    mine = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    chance = stage.chance.named("small disks")

    def fill(root: str, size_bytes: int) -> str:
        stage.world.disk.make_dirs(root)
        done = subprocess.run(
            [unshare, *mine, "--", *command("full", root, str(size_bytes))],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
            process_group=0,
            timeout=life_s,
        )
        return (done.stdout.strip() or f"unavailable {done.stderr.strip()}").splitlines()[-1]

    if fill(f"{stage.scratch}/small", small_disk_bytes).startswith("unavailable"):
        return
    for _ in range(200):
        size_bytes = small_disk_bytes - (chance.below(32) << 12)

        def attempt(root: str, size_bytes: int = size_bytes) -> None:
            said = fill(root, size_bytes)
            require(said.startswith("held "), said)

        yield Case(f"a disk of {size_bytes >> 10} KiB", attempt)


class Report:
    """What was tried and what held."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tried: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.failures: list[dict[str, str]] = []

    def run(self, stage: Stage, stop_at: float, only: str, rounds: int) -> None:
        """Try cases until it is time to stop, but each kind at least once."""
        kinds: list[Kind] = []
        undisturbed = Case("the workload, to its end", lambda _: kinds.extend(kinds_of(stage)))
        self.attempt(stage, "nothing disturbs it", undisturbed)
        kinds = [kind for kind in kinds if only in kind.name]
        for kind in kinds:
            self.tried[kind.name] = self.held[kind.name] = 0
        for number, kind, case in in_order(kinds):
            if number >= rounds and stage.world.clock.monotonic() >= stop_at:
                if number:
                    break
                if self.tried[kind.name]:
                    continue
            self.attempt(stage, kind.name, case)

    def attempt(self, stage: Stage, kind: str, case: Case) -> None:
        """Try one case in a directory of its own."""
        root = f"{stage.scratch}/case-{sum(self.tried.values()) + 1}"
        self.tried[kind] = self.tried.get(kind, 0) + 1
        self.held.setdefault(kind, 0)
        why = ""
        try:
            case.attempt(root)
        except StorageError as error:
            if error.code in _OUR_DISK:
                raise
            why = str(error)
        except (NotHeldError, HaltError, AssertionError) as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the case did not hold
            why = f"{type(error).__name__}: {error}"
        remove_tree(stage.world.disk, root)
        self.held[kind] += not why
        if why and len(self.failures) < failures_max:
            self.failures.append({"kind": kind, "case": case.name, "why": why})

    def data(self, ground: Ground, seconds: float) -> dict[str, Any]:
        """The report as plain data."""
        tried, held = sum(self.tried.values()), sum(self.held.values())
        return {
            "ok": tried == held,
            "seed": self.seed,
            "ground": msgspec.to_builtins(ground),
            "kinds": [
                {"kind": name, "tried": count, "held": self.held[name]}
                for name, count in self.tried.items()
            ],
            "tried": tried,
            "held": held,
            "failures": self.failures,
            "seconds": round(seconds, 1),
            "exit_code": 0 if tried == held else 1,
        }
