"""A workspace on a file system that is really full.

Invariants: what was acknowledged before is kept, the refusal says ``disk_full``, and once there is
space the work goes on.
"""

import contextlib
from typing import Final

from perdure.errors import HaltError, StorageError
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World
from perdure.selftest.checks import Promise, check_recovery, promise_of, require
from perdure.selftest.workload import TASK

notes_max: Final = 10_000
_BALLAST_BYTES: Final = 64 << 10


def fill(world: World, directory: str) -> int:
    """Commit until the disk is full, free some space, and check. Returns how many commits stood.

    ``directory`` is the root of a file system that nobody else uses. Raises NotHeldError.
    """
    root, ballast = f"{directory}/workspace", f"{directory}/ballast"
    world.disk.replace(ballast, bytes(_BALLAST_BYTES), durable=True)
    runtime = HaltRuntime(root, TASK, goal="fill the disk", world=world)
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
    promises = [promise_of(world, root, runtime.state.seq)]
    refusal = _note_until_full(world, runtime, promises)
    require(refusal is not None, "the disk never became full")
    code = refusal.code if refusal is not None else ""
    require(code == "disk_full", f"a full disk was reported as {refusal}")
    with contextlib.suppress(HaltError):
        runtime.note("once more")
        require(False, "a commit was acknowledged after a failed one")
    runtime.close()
    with contextlib.suppress(StorageError):  # it may need space for its lease
        HaltRuntime(root, TASK, world=world).close()
    world.disk.unlink(ballast, durable=True)
    check_recovery(world, root, promises)
    return len(promises)


def _note_until_full(
    world: World, runtime: HaltRuntime, promises: list[Promise]
) -> StorageError | None:
    for number in range(notes_max):
        try:
            runtime.note(f"note {number} {'x' * (number % 7 * 200)}")
        except StorageError as error:
            return error
        promises.append(promise_of(world, runtime.engine.layout.root, runtime.state.seq))
    return None
