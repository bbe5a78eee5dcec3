"""Processes killed at a system call, and processes whose disk is full from one on.

Invariants: the calls are those that the production code makes on this disk; every one of them is
tried when there is time, also inside the recovery from another death.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from perdure.selftest.cases import Case, Stage
from perdure.selftest.checks import (
    Promise,
    Story,
    check_promises,
    check_recovery,
    journal_of,
    require,
    story_of,
)
from perdure.selftest.children import Ended
from perdure.selftest.faults import Fault

recovery_calls: Final = 24
"""About how many calls a recovery makes; one that makes fewer just ends."""


class Life(NamedTuple):
    """The workload, when nothing disturbs it."""

    calls: int
    story: Story
    known: list[int]
    """Commits there were at each acknowledgement."""


def whole_life(stage: Stage, root: str) -> Life:
    """Run the workload to its end. Raises NotHeldError when even that does not go well."""
    ended = stage.children.run("live", root)
    require(not ended.refusal, f"the workload was refused: {ended.lines[-1:]}")
    require(ended.told("calls"), f"the workload ended with {ended.code}: {ended.lines[-1:]}")
    data = journal_of(stage.world, root)
    check_promises(data, ended.promises)
    check_recovery(stage.world, root, ended.promises)
    known = [len(story_of(data[: promise.length])) for promise in ended.promises]
    return Life(int(ended.told("calls")[0]), story_of(data), known)


def check_attempted(life: Life, story: Story, promises: list[Promise]) -> None:
    """What is there is what the process did, and nothing beyond the call it was in."""
    require(story == life.story[: len(story)], "there is an event that nobody attempted")
    after = len(promises)
    most = life.known[after] if after < len(life.known) else len(life.story)
    require(len(story) <= most, "there is an event of a call that had not begun")


def _died(stage: Stage, root: str, life: Life, at: int, fault: Fault) -> Ended:
    ended = stage.children.run("live", root, at=at, fault=fault)
    if fault != "full":
        require(ended.killed, f"it should have been killed, and ended with {ended.code}")
    elif ended.refusal:
        refused = ended.told("refused")[0]
        require(ended.refusal == "disk_full", f"a full disk was reported as {refused}")
    data = journal_of(stage.world, root)
    check_promises(data, ended.promises)
    check_attempted(life, story_of(data), ended.promises)
    return ended


def _name(at: int, fault: Fault, of: int) -> str:
    how = {"kill": "before", "half": "in the middle of", "full": "full from"}[fault]
    return f"{how} call {at} of {of}"


def kills(stage: Stage, life: Life) -> Iterator[Case]:
    """A death at every call."""
    points: list[tuple[int, Fault]] = [(at, "kill") for at in range(1, life.calls + 1)]
    points += [(at, "half") for at in range(1, life.calls + 1)]
    for at, fault in stage.chance.named("kills").shuffled(points):

        def attempt(root: str, at: int = at, fault: Fault = fault) -> None:
            ended = _died(stage, root, life, at, fault)
            check_recovery(stage.world, root, ended.promises)

        yield Case(_name(at, fault, life.calls), attempt)


def kills_in_recovery(stage: Stage, life: Life) -> Iterator[Case]:
    """A death, and another one in the recovery from it."""
    chance = stage.chance.named("recoveries")
    faults: tuple[Fault, ...] = ("kill", "half")
    points = [
        (first, second) for first in range(1, life.calls + 1) for second in range(recovery_calls)
    ]
    for first, second in chance.shuffled(points):
        fault, again = chance.one_of(faults), chance.one_of(faults)

        def attempt(
            root: str, first: int = first, second: int = second, fault: Fault = fault,
            again: Fault = again,
        ) -> None:  # fmt: skip
            ended = _died(stage, root, life, first, fault)
            left = story_of(journal_of(stage.world, root))
            stage.children.run("recover", root, at=second + 1, fault=again)
            data = journal_of(stage.world, root)
            story = story_of(data)
            require(story[: len(left)] == left, "the killed recovery changed what was committed")
            created = 0 if left else 1
            require(len(story) <= len(left) + created + 1, "the killed recovery committed twice")
            check_recovery(stage.world, root, ended.promises)

        yield Case(
            f"{_name(first, fault, life.calls)}, then its recovery"
            f" {_name(second + 1, again, recovery_calls)}",
            attempt,
        )


def full_disks(stage: Stage, life: Life) -> Iterator[Case]:
    """Every call that takes space fails from one on, then there is space again."""
    for at in stage.chance.named("full").shuffled(range(1, life.calls + 1)):

        def attempt(root: str, at: int = at) -> None:
            ended = _died(stage, root, life, at, "full")
            check_recovery(stage.world, root, ended.promises)

        yield Case(_name(at, "full", life.calls), attempt)
