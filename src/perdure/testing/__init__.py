"""A simulated machine: the ports of perdure in memory, with every fault on request.

For tests of programs that stand on perdure, and for perdure's own: run the real runtime on
:func:`sim_world`, kill it after any step of its disk, cut the power, and look at what it makes of
the rest. Nothing in perdure imports this package, and nothing in it is a second store: whatever
passes here is what the runtime itself did. ::

    from contextlib import suppress
    from random import Random

    from perdure import HaltRuntime
    from perdure.testing import Killed, SimDisk, next_world, power_loss_states, sim_world

    disk = SimDisk(cut_after=40)
    world = sim_world(disk)
    with suppress(Killed), HaltRuntime("/task", "T", world=world) as runtime:
        runtime.note("hello")
    for left in power_loss_states(disk, "ordered", chance=Random(1)):
        again = next_world(world, left, power_cut=True)
        HaltRuntime("/task", "T", world=again).close()
"""

from perdure.testing.crash import Model, choices_count
from perdure.testing.crash import states as power_loss_states
from perdure.testing.simdisk import SimDisk
from perdure.testing.simworld import SimClock, SimIds, SimProcesses, next_world, sim_world
from perdure.testing.syscalls import Killed, Op, OpKind

__all__ = [
    "Killed",
    "Model",
    "Op",
    "OpKind",
    "SimClock",
    "SimDisk",
    "SimIds",
    "SimProcesses",
    "choices_count",
    "next_world",
    "power_loss_states",
    "sim_world",
]
