"""Takes one step of durability away at a time, and shows which test notices.

``python tests/crash/mutants.py [NAME ...]`` (``make crash-mutants``). Each mutant is a copy of
``src`` in a temporary directory with one edit, which must find its place exactly once; then the
tests that stand guard over that step run against the copy. First they all run against a copy
without an edit, so that what notices a mutant is not broken anyway. The mutants of jobs and batch
nodes are in ``job_mutants.py``, those of everything between people and a task in
``people_mutants.py``, those of the journal's mirror in ``mirror_mutants.py``, those of work that is
given to others in ``dispatch_mutants.py`` and ``child_mutants.py``. Exits 1 when a mutant survives,
2 when an edit has lost its place. Nothing in this repository is changed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from child_mutants import CHILD_MUTANTS
from closing_mutants import CLOSING_MUTANTS
from dispatch_mutants import DISPATCH_MUTANTS
from job_mutants import JOB_MUTANTS
from mirror_mutants import MIRROR_MUTANTS
from mutant import Mutant
from people_mutants import PEOPLE_MUTANTS

ROOT = Path(__file__).resolve().parents[2]
at_once = 2
tests_s_max = 300

POWER = "tests/crash/test_power_loss.py"
DISK = "tests/unit/storage/test_disk.py"
SAME_DISK = "tests/conformance/test_disk_port.py"
LEASE = "tests/unit/storage/test_lease.py"
OPENING = "tests/unit/runtime/test_opening.py"
SNAPSHOT = "tests/unit/runtime/test_snapshot.py"
ENGINE = "tests/unit/runtime/test_engine.py"
CASES = "tests/integration/test_field_cases.py"


_PROJECT_FIRST = """from perdure.core.codec import from_json, to_json
            from perdure.core.fold import Replica
            ahead = Replica(from_json(to_json(self.replica.state), type(self.replica.state)))
            ahead.apply_all(commit.events)
            self.projector.write(ahead, commit.tip)
            self.journal.append(commit)"""

MUTANTS: tuple[Mutant, ...] = (
    # The disk
    Mutant(
        "replace does not sync the file",
        "storage/disk.py",
        "if durable:\n                        _sync_file(descriptor)",
        "pass",
        (DISK, SAME_DISK),
    ),
    Mutant(
        "replace does not sync the directory",
        "storage/disk.py",
        "                _remove_quietly(temp)\n                raise\n            if durable:\n",
        "                _remove_quietly(temp)\n                raise\n            if False:\n",
        (DISK, SAME_DISK),
    ),
    Mutant(
        "a new directory's name is not synced",
        "storage/disk.py",
        "_sync_names(os.path.dirname(name))",
        "pass",
        (DISK, SAME_DISK),
    ),
    Mutant(
        "sync of an append does nothing",
        "storage/disk.py",
        "_sync_data(self._descriptor)",
        "pass",
        (DISK, SAME_DISK),
    ),
    Mutant(
        "a descriptor is used again after a failed sync",
        "storage/disk.py",
        "StorageError:\n        self.close()\n        self._failure = StorageError.from_os",
        "StorageError:\n        self._failure = StorageError.from_os",
        (DISK, SAME_DISK),
    ),
    Mutant(
        "a cut is not synced",
        "storage/disk.py",
        "os.ftruncate(descriptor, size_bytes)\n            _sync_file(descriptor)",
        "os.ftruncate(descriptor, size_bytes)",
        (DISK, SAME_DISK),
    ),
    # The journal
    Mutant(
        "append without sync",
        "storage/journal.py",
        "        self._file.sync()\n",
        "",
        (POWER,),
        "power_lost and submit",
    ),
    Mutant(
        "acknowledged before the sync",
        "storage/journal.py",
        "        if self.mirror is None:\n            self._file.sync()\n",
        "        if self.mirror is None:\n            pass\n",
        (POWER,),
        "power_lost and submit",
    ),
    Mutant(
        "torn tail not cut",
        "runtime/engine.py",
        "        self.journal.cut()\n",
        "",
        (POWER,),
        "recovery and torn_into_zeros",
    ),
    Mutant(
        "torn tail set aside without sync",
        "runtime/engine.py",
        '{fragment.path}", tail, durable=True)',
        '{fragment.path}", tail, durable=False)',
        (POWER,),
        "recovery and torn_into",
    ),
    Mutant(
        "torn tail not put on record",
        "runtime/engine.py",
        "        self.fragments.append(fragment)\n",
        "",
        (CASES, POWER),
        "f01 or f02 or (recovery and torn_into)",
    ),
    Mutant(
        "what a killed process wrote is believed without a sync",
        "runtime/recover.py",
        "    engine.journal.settle()\n",
        "",
        (POWER,),
        "killed_after_any_step and (short_commands or calls_on_work)",
    ),
    Mutant(
        "last commit not written again after somebody's failed sync",
        "storage/journal.py",
        "self._disk.rewrite(self.path, start, data)",
        "pass",
        (POWER, ENGINE),
        "step_that_fails or written_again",
    ),
    Mutant(
        "chain not checked on replay",
        "core/codec.py",
        "if chained is False or (chained is None and event.epoch):",
        "if False:",
        (CASES,),
        "f19_flipped",
    ),
    Mutant(
        "gap in the sequence not noticed",
        "core/codec.py",
        "if event.seq != seq:\n",
        "if False:\n",
        ("tests/golden/test_golden.py",),
    ),
    Mutant(
        "damage in committed history cut like a torn tail",
        "storage/journal.py",
        "if committed_offset > self.tip.offset or not judge_tail(rest, self.tip):",
        "if False:",
        (CASES,),
        "f19",
    ),
    # Projections
    Mutant(
        "snapshot believed without its proof in the journal",
        "storage/journal.py",
        'if tip.seq and not (line.endswith(b"\\n") and proves(tip, line)):',
        "if False:",
        (SNAPSHOT,),
    ),
    Mutant(
        "snapshot believed whatever its sum",
        "core/projection.py",
        " or data[-19:] != _digest(body) + b'\"}\\n':",
        ":",
        (SNAPSHOT,),
    ),
    Mutant(
        "shorter journal than a projection knows of accepted",
        "storage/journal.py",
        "if size < tip.offset:",
        "if False:",
        (CASES, OPENING, ENGINE),
        "shorter or covers or truncated or cut",
    ),
    Mutant(
        "projection written before the commit",
        "runtime/engine.py",
        "            self.journal.append(commit)",
        "            " + _PROJECT_FIRST,
        (POWER,),
        "power_lost and (submit or words)",
    ),
    Mutant(
        "projection speaks of lines whose sync is unknown",
        "runtime/engine.py",
        "self._broken is None and self.journal.is_durable",
        "self._broken is None",
        (ENGINE,),
        "projections_do_not_speak",
    ),
    # Commits
    Mutant(
        "batch committed piece by piece",
        "runtime/engine.py",
        "                    events = self._append(batch.drafts, op, batch.ts)\n",
        "                    events = ()\n                    for draft in batch.drafts:\n"
        "                        events += self._append([draft], op, batch.ts)\n",
        (POWER, ENGINE),
        "batch",
    ),
    Mutant(
        "op ids forgotten",
        "core/fold.py",
        "_remember_op(state, event.op, event)",
        "pass",
        (ENGINE, POWER),
        "op_id or lives or keep_dying",
    ),
    Mutant(
        "messages removed from the drop box before they are carried out",
        "runtime/calls.py",
        "        _check_spoolable(message.command)\n",
        "        _check_spoolable(message.command)\n"
        "        spool.discard(engine.disk, engine.layout, message.id)\n",
        (POWER,),
        "drop_box",
    ),
    Mutant(
        "messages dropped without sync",
        "storage/spool.py",
        "disk.replace(path, data, durable=True)",
        "disk.replace(path, data, durable=False)",
        (POWER,),
        "drop_box",
    ),
    # The lease
    Mutant(
        "every epoch is current",
        "storage/lease.py",
        "return self._epoch == epoch",
        "return True",
        (LEASE, ENGINE),
    ),
    Mutant(
        "fenced writer not refused",
        "runtime/engine.py",
        "raise self.lease_file.fenced(self.lease.epoch)",
        "pass",
        (ENGINE, CASES),
        "fenced or f10",
    ),
    Mutant(
        "lease taken from a living holder",
        "storage/lease.py",
        'if standing == "held":\n                raise',
        'if standing == "":\n                raise',
        (LEASE,),
    ),
    Mutant(
        "takeover keeps the epoch",
        "storage/lease.py",
        "epoch=max(old.epoch if old else 0, epoch_floor) + 1,",
        "epoch=max(old.epoch if old else 1, epoch_floor),",
        (LEASE,),
    ),
    Mutant(
        "short command does not ask for the lease",
        "runtime/engine.py",
        "self.lease_file.check_free()",
        "pass",
        (CASES, OPENING),
        "f08 or refused",
    ),
    # Evidence
    Mutant(
        "verdict passes whatever the checks say",
        "runtime/evidence.py",
        'failed = [item for item in items if not item["passed"] and not item.get("pending")]',
        "failed = []",
        ("tests/conformance", "tests/unit/runtime"),
        "DONE or done or verif or check",
    ),
    Mutant(
        "DONE without files",
        "runtime/evidence.py",
        "if missing or (not names and node.spec.outputs != ()):",
        "if False:",
        ("tests/conformance",),
        "done or evidence or disk",
    ),
    Mutant(
        "artifact not synced before it is registered",
        "runtime/evidence.py",
        "    _sync_bytes(engine, {real: clean}, synced)\n",
        "",
        (POWER,),
        "power_lost and submit",
    ),
    Mutant(
        "artifact's name not synced before it is registered",
        "runtime/evidence.py",
        "    _sync_names(engine, [real], synced)\n",
        "",
        (POWER,),
        "power_lost and (submit or life)",
    ),
    Mutant(
        "files of claims not synced ahead of their commit",
        "runtime/evidence.py",
        "    _sync_bytes(engine, files, synced)\n",
        "    synced.update(files)\n",
        ("tests/crash/test_claims_together.py",),
    ),
    Mutant(
        "names of files of claims not synced ahead of their commit",
        "runtime/evidence.py",
        "    sync_all(engine.disk, (), above)\n",
        "",
        ("tests/crash/test_claims_together.py",),
    ),
    Mutant(
        "contract not synced before it is cited",
        "runtime/contract_file.py",
        "    engine.make_durable(path)\n",
        "",
        (POWER,),
        "power_lost and submit",
    ),
    Mutant(
        "contracts of a batch not synced before its commit",
        "runtime/engine.py",
        "                    batching.make_durable(self.disk, batch.unsynced)\n",
        "",
        ("tests/crash/test_contracts_together.py",),
    ),
    Mutant(
        "copies not synced before a local destructive effect",
        "runtime/copies.py",
        "        file.sync()\n",
        "",
        ("tests/crash/test_saved_files.py",),
    ),
    # Recovery
    Mutant(
        "recovery does not commit its repairs",
        "runtime/recover.py",
        "committed = engine.commit(drafts)[0].ref",
        "committed = drafts[0].kind",
        (POWER,),
        "recovery and (orphan or gone)",
    ),
    Mutant(
        "file moves of a dead process not finished",
        "runtime/recover.py",
        "    engine.move_files(plan.moves)\n",
        "",
        (POWER, ENGINE),
        "(killed_after_any_step and (fail_and_retry or quarantine)) or move",
    ),
    Mutant(
        "temporary files left behind",
        "runtime/recover.py",
        "    _remove_temp_files(engine)\n",
        "",
        (POWER,),
        "killed_after_any_step and (submit or add_nodes)",
    ),
    Mutant(
        "vanished files of DONE nodes not noticed",
        "runtime/recover.py",
        "worst = found.files",
        "pass",
        (CASES, "tests/unit/runtime", "tests/conformance"),
        "f15 or f17 or RC1 or vanish or gone or missing",
    ),
)

ALL: tuple[Mutant, ...] = (
    *MUTANTS, *JOB_MUTANTS, *PEOPLE_MUTANTS, *DISPATCH_MUTANTS, *CHILD_MUTANTS,
    *MIRROR_MUTANTS, *CLOSING_MUTANTS,
)  # fmt: skip


class Result(NamedTuple):
    """What became of one mutant."""

    name: str
    caught_by: str
    """Name of the test, or empty."""
    seconds: float
    problem: str = ""


def mutated(directory: Path, mutant: Mutant | None) -> Path:
    """A copy of the sources with the edit; ValueError when the edit has no single place."""
    sources = directory / "src"
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        file = sources / "perdure" / mutant.file
        text = file.read_text(encoding="utf-8")
        count = text.count(mutant.old)
        if count != 1:
            raise ValueError(f"its place is there {count} times in {mutant.file}: {mutant.old!r}")
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return sources


def run_tests(sources: Path, tests: Sequence[str], only: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "--tb=no", "-rfE"]
    command += ["-p", "no:cacheprovider", *(["-k", only] if only else []), *tests]
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=tests_s_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"the tests took more than {tests_s_max} s"
    return ended.returncode, ended.stdout + ended.stderr


def try_out(mutant: Mutant) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        try:
            sources = mutated(Path(directory), mutant)
        except ValueError as error:
            return Result(mutant.name, "", 0.0, str(error))
        code, output = run_tests(sources, mutant.tests, mutant.only)
    seconds = time.monotonic() - began
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?([\w.]+\.py(?:::[^\s]+)?)", output, re.MULTILINE)
    if code == 1 and failed:
        return Result(mutant.name, failed[0], seconds)
    if code == 0:
        return Result(mutant.name, "", seconds)
    return Result(mutant.name, "", seconds, f"pytest exits {code}: {output[-400:]}")


def check_unmutated(mutants: Sequence[Mutant]) -> Result:
    """All the same tests on a copy without an edit; they must pass."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        sources = mutated(Path(directory), None)
        said = subprocess.run(
            [sys.executable, "-c", "import perdure; print(perdure.__file__)"],
            env={**os.environ, "PYTHONPATH": str(sources)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        if not said.startswith(str(sources)):
            return Result("none", "", 0.0, f"the copy is not what is imported, but {said}")
        for tests, only in sorted({(m.tests, m.only) for m in mutants}):
            code, output = run_tests(sources, tests, only)
            if code != 0:
                return Result("none", "", 0.0, f"{tests} -k {only!r}: {output[-600:]}")
    return Result("none", "", time.monotonic() - began)


def main(names: Sequence[str]) -> int:
    chosen = [mutant for mutant in ALL if not names or any(word in mutant.name for word in names)]
    with ThreadPoolExecutor(at_once) as pool:
        control = pool.submit(check_unmutated, chosen)
        results = []
        for result in pool.map(try_out, chosen):
            results.append(result)
            what = result.problem or result.caught_by or "SURVIVES"
            print(f"{result.name:<62} {result.seconds:5.1f} s  {what}", flush=True)
        unmutated = control.result()
    print(f"{'(no mutation)':<62} {unmutated.seconds:5.1f} s  {unmutated.problem or 'all pass'}")
    survived = [result.name for result in results if not result.caught_by]
    print(f"{len(results)} mutants, {len(results) - len(survived)} caught, {len(survived)} not")
    broken = unmutated.problem or any(result.problem for result in results)
    return 2 if broken else 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
