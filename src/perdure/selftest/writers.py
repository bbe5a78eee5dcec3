"""Several writers at once: by turns, one coordinator at a time, and takeovers.

Invariants: no acknowledged event is lost, none is overwritten, the numbers have no gaps; of two
coordinators one is refused, and one that was taken over can commit nothing more.
"""

from collections.abc import Callable, Iterator
from typing import Final

from perdure.core.model import Policies
from perdure.errors import LeaseHeldError
from perdure.ports import ProcessIdentity
from perdure.runtime.halt import HaltRuntime
from perdure.selftest.cases import Case, Stage
from perdure.selftest.checks import (
    check_open,
    check_recovery,
    check_second_recovery,
    promise_of,
    require,
)
from perdure.selftest.workload import TASK
from perdure.storage.lease import LeaseFile
from perdure.storage.workspace import Layout

patience_s: Final = 20.0
lease_ttl_s: Final = 0.3


def races(stage: Stage) -> Iterator[Case]:
    """Processes that commit at once, each in a short commit of its own."""
    chance = stage.chance.named("races")
    while True:
        writers, commits = 2 + chance.below(5), 5 + chance.below(15)

        def attempt(root: str, writers: int = writers, commits: int = commits) -> None:
            _check_race(stage, root, writers, commits)

        yield Case(f"{writers} processes commit {commits} times each", attempt)


def _check_race(stage: Stage, root: str, writers: int, commits: int) -> None:
    world, children = stage.world, stage.children
    HaltRuntime(root, TASK, goal="race", world=world).close()
    pids = {
        children.start("write", root, name=f"w{number}", count=commits): f"w{number}"
        for number in range(writers)
    }
    ended = {name: children.wait(pid) for pid, name in pids.items()}
    with HaltRuntime(root, TASK, world=world) as runtime:
        check_open(world, runtime, [])
        texts = {event.seq: event.payload.get("text") for event in runtime.events()}
    for name, process in ended.items():
        wrote = process.written
        require(len(wrote) == commits, f"{name} was acknowledged {len(wrote)} of {commits} commits")
        for number, seq in enumerate(wrote):
            kept = texts.get(seq) == f"{name} {number}"
            require(kept, f"J-{seq} of {name} is lost: there stands {texts.get(seq)!r}")
    check_second_recovery(world, root)


def takeovers(stage: Stage) -> Iterator[Case]:
    """A second coordinator, beside one that lives, one that is killed and one that is stopped."""
    while True:
        yield Case(
            "a second coordinator while the first is stopped", lambda root: _stopped(stage, root)
        )
        yield Case(
            "a second coordinator while the first lives, and when it is killed",
            lambda root: _killed(stage, root),
        )


def _wait_until(stage: Stage, reached: Callable[[], bool], what: str) -> None:
    clock = stage.world.clock
    give_up_at = clock.monotonic() + patience_s
    while not reached():
        require(clock.monotonic() < give_up_at, f"{what} did not come about in {patience_s:.0f} s")
        clock.sleep(0.005)


def _last_written(stage: Stage, pid: int) -> int:
    return int(stage.children.said(pid)[-1].split()[1])


def _require_refused(stage: Stage, root: str) -> None:
    try:
        HaltRuntime(root, TASK, world=stage.world).close()
    except LeaseHeldError:
        return
    require(False, "a second coordinator was let in beside a living one")


def _killed(stage: Stage, root: str) -> None:
    world, children = stage.world, stage.children
    pid = children.start("hold", root)
    _wait_until(stage, lambda: bool(children.said(pid)), "a coordinator")
    promise = promise_of(world, root, _last_written(stage, pid))
    _require_refused(stage, root)
    with HaltRuntime.attach(root, world=world) as short:
        try:
            short.note("not while another coordinates")
        except LeaseHeldError:
            pass
        else:
            require(False, "a short command committed beside a living coordinator")
    children.kill(pid)
    require(children.wait(pid).killed, "the coordinator survived its SIGKILL")
    check_recovery(world, root, [promise])


def _stopped(stage: Stage, root: str) -> None:
    world, children = stage.world, stage.children
    policies = Policies(lease_ttl_s=lease_ttl_s)
    HaltRuntime(root, TASK, policies=policies, world=world).close()
    pid = children.start("hold", root, name="stop")
    lease_file = LeaseFile(world.disk, Layout(root).lease, world.processes, world.clock)

    def is_stopped() -> bool:
        lease = lease_file.read()
        who = lease.process() if lease is not None else ProcessIdentity("", "", pid, 0.0)
        return who.pid == pid and world.processes.state(who) == "stopped"

    _wait_until(stage, is_stopped, "a stopped coordinator")
    promises = [promise_of(world, root, _last_written(stage, pid))]
    _wait_until(stage, lambda: lease_file.standing()[0] == "stopped", "the end of a lease")
    with HaltRuntime(root, TASK, world=world) as runtime:
        runtime.note("taken over")
        promises.append(promise_of(world, root, runtime.state.seq))
        children.go_on(pid)
        ended = children.wait(pid)
        require(len(ended.written) == 1, "a coordinator committed after it was taken over")
        refused = ended.refusal == "fenced"
        require(refused, f"a coordinator that was taken over heard {ended.lines[-1:]}")
        check_open(world, runtime, promises)
    check_recovery(world, root, promises)
