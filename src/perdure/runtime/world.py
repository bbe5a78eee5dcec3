"""The ports a runtime works with, bundled.

Job: one value that carries disk, clock, ids and process table, real or simulated. It decides
nothing and holds no state of its own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from perdure.host import RandomIds, SystemClock, SystemProcesses, inherited_environment
from perdure.ports import Clock, Disk, Ids, Processes
from perdure.storage.disk import RealDisk


class World(NamedTuple):
    """Everything outside that a runtime touches."""

    disk: Disk
    clock: Clock
    ids: Ids
    processes: Processes
    environment: Mapping[str, str]
    """What commands and check scripts inherit."""


def real_world() -> World:
    """The machine this runs on."""
    return World(RealDisk(), SystemClock(), RandomIds(), SystemProcesses(), inherited_environment())
