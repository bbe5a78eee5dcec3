"""A self-test of a perdure that is broken on purpose.

``python -m tests.integration.broken_selftest BREAKAGE DIRECTORY ONLY ROUNDS``: breaks this
process and every process that the self-test starts, and prints its report, or the refusal, as JSON.
"""

import json
import sys
from typing import Any

from perdure.core import projection
from perdure.errors import HaltError
from perdure.host import SystemProcesses
from perdure.runtime import inspection, integrity
from perdure.runtime.engine import Engine
from perdure.selftest.session import run_selftest
from perdure.storage import projections
from perdure.storage.filelock import RealFileLock
from perdure.storage.journal import Journal
from perdure.storage.lease import LeaseFile


def replace(owner: Any, name: str, new: Any) -> None:
    setattr(owner, name, new)


def nothing() -> None:
    """Not broken at all."""


def tail_is_not_cut() -> None:
    replace(Journal, "cut", lambda self: None)


def sums_are_not_checked() -> None:
    def believe(data: bytes) -> projection.AsOf | None:
        match = projection._AS_OF.search(data[: -projection._SUM_TAIL_BYTES][-120:])
        return projection.AsOf(int(match[1]), int(match[2]), match[3].decode()) if match else None

    replace(projection, "read_as_of", believe)
    replace(projections, "read_as_of", believe)


def lock_lets_everybody_in() -> None:
    replace(RealFileLock, "try_acquire", lambda self: True)


def lock_fails_behind_the_ground() -> None:
    replace(Engine, "lock", lambda self: None)


def fencing_is_off() -> None:
    replace(LeaseFile, "is_current", lambda self, epoch: True)


def the_dead_are_thought_alive() -> None:
    replace(SystemProcesses, "state", lambda self, who: "alive")


def hashes_are_not_compared() -> None:
    def passes(engine: Engine, **options: bool) -> dict[str, str]:
        return dict.fromkeys(engine.replica.state.artifacts, "PASS")

    replace(integrity, "integrity_walk", passes)
    replace(inspection, "integrity_walk", passes)


def main(breakage: str, directory: str, only: str, rounds: str) -> None:
    globals()[breakage]()
    setup = f"tests.integration.broken_selftest:{breakage}"
    options: Any = {"seed": 7, "minutes": 0.0, "only": only, "rounds": int(rounds)}
    try:
        report = run_selftest(directory, directory, setup=setup, **options)
    except HaltError as error:
        report = {"refused": error.as_dict(), "exit_code": error.exit_code}
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
