"""An artifact whose sync failed once is not believed because a later sync says that all is well."""

import errno
import random

import pytest

from perdure.errors import StorageError
from perdure.runtime.halt import HaltRuntime
from perdure.testing import SimDisk, next_world, power_loss_states, sim_world

WORKSPACE = "/some/where/w"
OUTPUT = f"{WORKSPACE}/artifacts/N1/a.txt"


@pytest.mark.parametrize("another_process", [False, True])
@pytest.mark.parametrize("model", ["independent", "ordered"])
def test_bytes_of_a_done_node_survive_although_their_first_sync_failed(
    model: str, another_process: bool
) -> None:
    disk = SimDisk()
    world = sim_world(disk)
    runtime = HaltRuntime(WORKSPACE, "t", world=world)
    runtime.add_node("N1", "write it", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1")
    disk.write(OUTPUT, b"what was written\n")
    disk.fail(lambda op: op.kind == "sync_file" and op.path.endswith("a.txt"), errno.EIO)
    with pytest.raises(StorageError):
        runtime.submit("N1")
    disk.heal()
    if another_process:
        runtime.close()
        runtime = HaltRuntime.attach(WORKSPACE, actor="coordinator:main", world=world)
    assert runtime.node("N1").state == "RUNNING"
    runtime.submit("N1")
    assert runtime.node("N1").state == "DONE"

    states = list(power_loss_states(disk, model=model, chance=random.Random(1), limit=200))
    assert states
    for after in states:
        again = HaltRuntime.resume(WORKSPACE, world=next_world(world, after, power_cut=True))
        assert again.node("N1").state == "DONE", after.story()
        assert after.read(OUTPUT) == b"what was written\n"
        assert again.recovered.suspects == ()
