"""Damage on the disk: a journal cut, zeroed or flipped, projections and artifacts that are wrong.

Job: damage copies of one workspace and check what is made of it. Invariants: damage that a crash
explains (in the last commit, of which no projection speaks) is set aside byte for byte; any other
is refused with line and byte, and the journal is left as it is.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from perdure.errors import CorruptError
from perdure.runtime.engine import Engine
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.inspection import Problem, verify_workspace
from perdure.selftest.cases import Case, Stage
from perdure.selftest.checks import (
    PROJECTIONS,
    Promise,
    check_open,
    check_recovery,
    journal_of,
    projections_of,
    promise_on,
    require,
    whole_commits,
)
from perdure.selftest.scratch import Tree, lay_out, read_tree, remove_tree
from perdure.selftest.workload import TASK, live

page_bytes: Final = 4096
JOURNAL: Final = "journal.jsonl"


class Base(NamedTuple):
    """A workspace that is whole, before and after its last commit."""

    uncovered: Tree
    """With the last commit, but with the projections from before it, as after a crash."""
    covered: Tree
    """With projections that speak of the last commit."""
    start: int
    """Byte at which the last commit starts."""
    promise: Promise
    """Everything up to there."""

    @property
    def journal(self) -> bytes:
        """The whole journal."""
        return self.covered[JOURNAL]

    def line_at(self, byte: int) -> int:
        """The line that a byte of the journal is in, from 1; its newline counts as its own."""
        return self.journal.count(b"\n", 0, byte) + 1


def make_base(stage: Stage, root: str, events: int) -> Base:
    """A workspace whose last commit has this many events."""
    world = stage.world
    live(world, root, lambda seq: None)
    HaltRuntime(root, TASK, world=world).close()
    before = read_tree(world.disk, root)
    with HaltRuntime(root, TASK, world=world) as runtime:
        with runtime.batch():
            for number in range(events):
                runtime.note(f"last words {number}")
        journal = journal_of(world, root)
    covered = read_tree(world.disk, root)
    remove_tree(world.disk, root)
    kept = before[JOURNAL]
    require(covered[JOURNAL] == journal, "closing wrote to the journal")
    require(len(journal) > len(kept), "the last commit is not in the journal")
    promise = promise_on(kept, kept.count(b"\n"))
    return Base({**before, JOURNAL: journal}, covered, len(kept), promise)


def _check_set_aside(stage: Stage, root: str, tree: Tree, damaged: bytes, base: Base) -> None:
    """Opening keeps every whole commit, sets the rest aside and goes on."""
    world = stage.world
    lay_out(world.disk, root, {**tree, JOURNAL: damaged})
    kept = whole_commits(damaged)
    tail = damaged[len(kept) :]
    with HaltRuntime(root, TASK, world=world) as runtime:
        require(journal_of(world, root).startswith(kept), "a whole commit was cut")
        check_open(world, runtime, [base.promise])
        if tail:
            copies = [
                world.disk.read(f"{root}/{artifact.path}")
                for artifact in runtime.registry.values()
                if artifact.path.startswith("tmp/recovered/journal-tail-")
            ]
            require(tail in copies, "the torn tail was not set aside")
    check_recovery(world, root, [base.promise])


def _check_refused(stage: Stage, root: str, tree: Tree, where: str) -> None:
    """Verifying names the place; opening without a snapshot refuses it and changes nothing."""
    world = stage.world
    lay_out(world.disk, root, {name: tree[name] for name in tree if name != PROJECTIONS[0]})
    _require_named(stage, root, "journal", where, 6)
    try:
        HaltRuntime(root, TASK, world=world).close()
    except CorruptError as error:
        require(where in error.message, f"{where} is not named: {error.message}")
    else:
        require(False, f"damage at {where} was not noticed by opening")
    require(journal_of(world, root) == tree[JOURNAL], "a damaged journal was changed")


def _require_named(stage: Stage, root: str, what: str, where: str, code: int) -> None:
    result = verify_workspace(Engine(root, stage.world, "coordinator:selftest"))
    found = [problem for problem in result.problems if problem.what == what]
    named = any(_names(problem, where) for problem in found)
    told = "; ".join(f"{p.where}: {p.message}" for p in result.problems) or "nothing"
    require(named and result.exit_code == code, f"verifying does not name {where}; it says {told}")


def _names(problem: Problem, where: str) -> bool:
    return where in f"{problem.where}: {problem.message}"


def cuts(stage: Stage, bases: list[Base]) -> Iterator[Case]:
    """The journal cut at every byte of its last commit."""
    chance = stage.chance.named("cuts")
    points = [(base, at) for base in bases for at in range(base.start, len(base.journal))]
    for base, at in chance.shuffled(points):

        def torn(root: str, base: Base = base, at: int = at) -> None:
            _check_set_aside(stage, root, base.uncovered, base.journal[:at], base)

        def refused(root: str, base: Base = base, at: int = at) -> None:
            _check_cut_refused(stage, root, base, at)

        yield Case(f"journal of {len(base.journal)} bytes cut at byte {at}", torn)
        if not chance.below(4):
            yield Case(f"journal cut at byte {at}, behind which it was known", refused)


def _check_cut_refused(stage: Stage, root: str, base: Base, at: int) -> None:
    tree = {**base.covered, JOURNAL: base.journal[:at]}
    lay_out(stage.world.disk, root, tree)
    try:
        HaltRuntime(root, TASK, world=stage.world).close()
    except CorruptError:
        same = journal_of(stage.world, root) == tree[JOURNAL]
        require(same, "a journal that is too short was changed")
    else:
        require(False, "the loss of a committed event was not noticed")


def zeros(stage: Stage, bases: list[Base]) -> Iterator[Case]:
    """The end of the last commit, or its last page, full of zeros; the file may be longer too."""
    chance = stage.chance.named("zeros")
    points = []
    for base in bases:
        end = len(base.journal)
        points += [(base, at, 0) for at in range(base.start, end)]
        points += [(base, max(base.start, (end - 1) // page_bytes * page_bytes), page_bytes)]
    for base, at, more in chance.shuffled(points):

        def attempt(root: str, base: Base = base, at: int = at, more: int = more) -> None:
            data = base.journal[:at] + bytes(len(base.journal) - at + more)
            _check_set_aside(stage, root, base.uncovered, data, base)

        yield Case(f"journal of {len(base.journal)} bytes zero-filled from byte {at}", attempt)


def flips_in_last_commit(stage: Stage, bases: list[Base]) -> Iterator[Case]:
    """A bit of the last commit flipped: set aside, or refused where it was known to be whole."""
    chance = stage.chance.named("last flips")
    points = [
        (base, at, chance.below(8)) for base in bases for at in range(base.start, len(base.journal))
    ]
    for number, (base, at, bit) in enumerate(chance.shuffled(points)):
        data = _flipped(base.journal, at, bit)

        def torn(root: str, base: Base = base, at: int = at, data: bytes = data) -> None:
            try:
                _check_set_aside(stage, root, base.uncovered, data, base)
            except CorruptError as error:
                # Now it looks like a line of another commit; then refusing is right.
                where = f"line {base.line_at(at)}, byte "
                require(where in error.message, f"{where}is not named: {error.message}")

        def refused(root: str, base: Base = base, at: int = at, data: bytes = data) -> None:
            where = f"line {base.line_at(at)}, byte "
            _check_refused(stage, root, {**base.covered, JOURNAL: data}, where)

        known = number % 2
        told = ", which was known to be whole" if known else ""
        yield Case(f"bit {bit} of byte {at} flipped{told}", refused if known else torn)


def flips_in_history(stage: Stage, bases: list[Base]) -> Iterator[Case]:
    """A bit of an earlier commit flipped: refused, whatever the projections know."""
    chance = stage.chance.named("history flips")
    base = bases[0]
    for at in chance.shuffled(range(base.start)):
        bit = chance.below(8)
        data = _flipped(base.journal, at, bit)
        tree = base.covered if chance.below(2) else base.uncovered
        if not chance.below(3):  # nothing is known but the journal itself
            tree = {name: tree[name] for name in tree if name not in PROJECTIONS}

        def attempt(root: str, at: int = at, data: bytes = data, tree: Tree = tree) -> None:
            where = f"line {base.line_at(at)}, byte "
            _check_refused(stage, root, {**tree, JOURNAL: data}, where)

        yield Case(f"bit {bit} of byte {at} flipped, in history", attempt)


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


Spoil = Callable[[bytes, bytes, int], bytes | None]
"""From the right bytes, older ones and a number: what is there instead; None for no file."""


def _torn(data: bytes, old: bytes, number: int) -> bytes | None:
    return data[: number % len(data)]


def _edited(data: bytes, old: bytes, number: int) -> bytes | None:
    """Something else that is well-formed: another state, another digit."""
    if b'"DONE"' in data:
        return data.replace(b'"DONE"', b'"READY"', 1)
    digits = [at for at, byte in enumerate(data) if byte in b"12345678"]
    at = digits[number % len(digits)]
    return data[:at] + bytes([data[at] + 1]) + data[at + 1 :]


_SPOILS: Final[dict[str, Spoil]] = {
    "torn": _torn,
    "edited": _edited,
    "deleted": lambda data, old, number: None,
    "old": lambda data, old, number: old,
    "empty": lambda data, old, number: b"",
    "zero-filled": lambda data, old, number: bytes(len(data)),
}


def wrong_projections(stage: Stage, bases: list[Base]) -> Iterator[Case]:
    """Projections that are torn, edited, deleted or old are made anew, to the same bytes."""
    chance = stage.chance.named("projections")
    choices: list[tuple[str, ...]] = [(name,) for name in PROJECTIONS]
    while True:
        for names in chance.shuffled([*choices, PROJECTIONS]):
            for how in chance.shuffled(list(_SPOILS)):
                base, number = chance.one_of(bases), chance.below(1 << 20)
                tree = dict(base.covered)
                for name in names:
                    spoiled = _SPOILS[how](tree.pop(name), base.uncovered[name], number)
                    if spoiled is not None:
                        tree[name] = spoiled

                def attempt(root: str, base: Base = base, tree: Tree = tree) -> None:
                    _check_projections(stage, root, base, tree)

                what = names[0] if len(names) == 1 else "every projection"
                yield Case(f"{what} {how}", attempt)


def _check_projections(stage: Stage, root: str, base: Base, tree: Tree) -> None:
    world = stage.world
    lay_out(world.disk, root, tree)
    with HaltRuntime.attach(root, world=world) as reader:
        check_open(world, reader, [base.promise])
    with HaltRuntime(root, TASK, world=world) as runtime:
        check_open(world, runtime, [base.promise])
    require(journal_of(world, root) == base.journal, "wrong projections changed the journal")
    same = projections_of(world, root) == {name: base.covered[name] for name in PROJECTIONS}
    require(same, "the projections were not made anew to the same bytes")


def wrong_artifacts(stage: Stage, bases: list[Base]) -> Iterator[Case]:
    """A bit of a registered file flipped, or the file gone."""
    chance = stage.chance.named("artifacts")
    base = bases[0]
    paths = ["artifacts/N1/a.txt", "shared/b.txt", "artifacts/N2/deep/c.txt"]
    while True:
        for path in chance.shuffled(paths):
            at, bit = chance.below(len(base.covered[path])), chance.below(8)
            data = _flipped(base.covered[path], at, bit)

            def flipped(root: str, path: str = path, data: bytes = data) -> None:
                _check_changed(stage, root, base, path, data)

            def lost(root: str, path: str = path) -> None:
                tree = {name: base.covered[name] for name in base.covered if name != path}
                lay_out(stage.world.disk, root, tree)
                _require_named(stage, root, "artifact", path, 1)
                check_recovery(stage.world, root, [base.promise], lost=(path,))

            yield Case(f"bit {bit} of byte {at} of {path} flipped", flipped)
            yield Case(f"{path} deleted", lost)


def _check_changed(stage: Stage, root: str, base: Base, path: str, data: bytes) -> None:
    disk = stage.world.disk
    lay_out(disk, root, base.covered)
    HaltRuntime(root, TASK, world=stage.world).close()
    full = f"{root}/{path}"
    seen = os.stat(full)
    disk.rewrite(full, 0, data)
    os.utime(full, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # as a medium does, not as a program
    _require_named(stage, root, "artifact", path, 1)
    os.utime(full, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1_000_000_000))
    with HaltRuntime(root, TASK, world=stage.world) as runtime:
        node = "N2" if "N2" in path else "N1"
        named = runtime.recovered.suspects == (node,)
        require(named, f"{path} is changed, and recovery suspects {runtime.recovered.suspects}")
    disk.rewrite(full, 0, base.covered[path])
    with HaltRuntime(root, TASK, world=stage.world) as runtime:
        wrong = [found for found in runtime.integrity_walk().values() if found != "PASS"]
        require(not wrong, f"{path} is right again, and not believed: {wrong}")
