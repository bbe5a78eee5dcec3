"""Steps that keep a journal and its mirror alike, taken away one at a time.

A part of ``mutants.py``, which says how they are tried.
"""

from mutant import Mutant

STEPS = "tests/crash/test_mirror_steps.py"
MIRROR = "tests/unit/storage/test_mirror.py"
COMMANDS = "tests/unit/runtime/test_mirroring.py"

MIRROR_MUTANTS: tuple[Mutant, ...] = (
    # Commits
    Mutant(
        "mirror: not synced before the acknowledgement",
        "storage/mirror.py",
        "            first.sync()\n            file.sync()\n",
        "            first.sync()\n",
        (STEPS,),
        "either",
    ),
    Mutant(
        "mirror: journal not synced before the acknowledgement",
        "storage/mirror.py",
        "            first.sync()\n            file.sync()\n",
        "            file.sync()\n",
        (STEPS,),
        "either",
    ),
    Mutant(
        "mirror: nobody waits for the sync under way",
        "storage/mirror.py",
        "    other.result()\n",
        "",
        (MIRROR,),
    ),
    Mutant(
        "mirror: opened after the journal was written",
        "storage/journal.py",
        "        if self.mirror is not None:\n            self.mirror.prepare()\n"
        "        self._file.append(commit.data)\n",
        "        self._file.append(commit.data)\n",
        (MIRROR,),
    ),
    Mutant(
        "mirror: bytes of somebody else not noticed",
        "storage/mirror.py",
        "        if file.size() != commit.tip.offset:\n",
        "        if False:\n",
        (MIRROR,),
    ),
    Mutant(
        "mirror: not written at the creation",
        "runtime/opening.py",
        "        disk.replace(layout.mirror, commit.data, durable=True)\n",
        "        pass\n",
        (STEPS, COMMANDS),
        "gone or create_at or looking",
    ),
    Mutant(
        "mirror: last commit not written again",
        "storage/journal.py",
        "            if self.mirror is not None:\n"
        "                self.mirror.write_again(start, data)\n",
        "",
        (STEPS,),
        "covered",
    ),
    Mutant(
        "mirror: not settled by a recovery",
        "storage/journal.py",
        "        if self.mirror is not None:\n            self.mirror.settle()\n",
        "",
        (STEPS,),
        "covered",
    ),
    # What a crash leaves
    Mutant(
        "mirror: a short command does not look at it",
        "runtime/engine.py",
        "        if self.journal.mirror is not None:\n            torn =",
        "        if False:\n            torn =",
        (STEPS, COMMANDS),
        "short",
    ),
    Mutant(
        "mirror: size alone is compared",
        "storage/mirror.py",
        '            if not (line.endswith(b"\\n") and proves(tip, line)):\n'
        "                return False\n",
        "",
        (MIRROR, COMMANDS),
    ),
    Mutant(
        "mirror: a commit that only it has is cut off",
        "runtime/mirroring.py",
        "        journal.complete(extra)\n",
        "        engine.disk.truncate(mirror.path, tip.offset)\n",
        (STEPS, COMMANDS),
        "short or killed",
    ),
    Mutant(
        "mirror: another whole commit in its place is overwritten",
        "runtime/mirroring.py",
        "    if _is_commit(own) or not _torn_of(own, truth):\n",
        "    if False:\n",
        (STEPS, COMMANDS),
        "short",
    ),
    Mutant(
        "mirror: one that is gone is written by a short command",
        "runtime/mirroring.py",
        "        if start:\n",
        "        if False:\n",
        (COMMANDS,),
    ),
    # Damage
    Mutant(
        "mirror: damaged bytes are not set aside",
        "storage/mirror_repair.py",
        '    _write_whole(disk, f"{layout.root}/{fragment.path}", '
        "_bytes_of(disk, here, start, end))\n",
        "",
        (STEPS, MIRROR),
        "flipped or aside",
    ),
    Mutant(
        "mirror: copied over the journal in place",
        "storage/mirror_repair.py",
        '    disk.replace(temp, b"", durable=False)\n'
        "    _append(disk, temp, pieces)\n    disk.rename(temp, path)\n",
        '    whole = b"".join(pieces)\n'
        '    disk.replace(path, b"", durable=False)\n'
        "    _append(disk, path, [whole])\n",
        (STEPS,),
        "restoration",
    ),
    Mutant(
        "mirror: a copy is not synced before its rename",
        "storage/mirror_repair.py",
        "            file.append(piece)\n        file.sync()\n",
        "            file.append(piece)\n",
        (STEPS,),
        "restoration",
    ),
    Mutant(
        "mirror: a fork is decided by length",
        "storage/mirror_repair.py",
        "    if len(ends) < 2 or",
        "    if True or len(ends) < 2 or",
        (STEPS, MIRROR),
        "fork",
    ),
    Mutant(
        "mirror: lines that a projection speaks of are given up",
        "storage/mirror_repair.py",
        "    lost = committed_offset(disk, layout) > tip.offset\n",
        "    lost = False\n",
        (STEPS, MIRROR),
        "projection or neither or projected",
    ),
    Mutant(
        "mirror: intact lines behind the damage are given up",
        "storage/mirror_repair.py",
        "        lost = lost or not judge_tail(newer, tip) or any(",
        "        lost = lost or any(",
        (STEPS, MIRROR),
        "neither or refused",
    ),
    Mutant(
        "mirror: a whole commit at a wrong place is given up",
        "storage/mirror_repair.py",
        "        lost = lost or not judge_tail(newer, tip) or any(",
        "        lost = lost or not judge_tail(newer, tip) or False and any(",
        (MIRROR,),
    ),
    Mutant(
        "mirror: a flipped bit in a number is taken for a later line",
        "storage/mirror_repair.py",
        "        if not (mark.startswith(_MARK)",
        "        if True or not (mark.startswith(_MARK)",
        (MIRROR,),
    ),
    Mutant(
        "mirror: the longer file is taken and not what both have together",
        "storage/mirror_repair.py",
        "        tip = ends[best]\n",
        "        tip = ends[best]\n        break\n",
        (STEPS, MIRROR),
        "both_damaged or together",
    ),
    Mutant(
        "mirror: restored while a coordinator lives",
        "runtime/mirroring.py",
        '    if engine.lease_file.standing()[0] == "held":\n',
        "    if False:\n",
        (COMMANDS,),
    ),
    Mutant(
        "mirror: restored for another task",
        "runtime/mirroring.py",
        "    if task_id is not None and history.task_id != task_id:\n",
        "    if False:\n",
        (COMMANDS,),
    ),
    Mutant(
        "mirror: damage behind a snapshot not looked for by a resume",
        "runtime/opening.py",
        "in_full=start is None)\n            takeover",
        "in_full=False)\n            takeover",
        (STEPS, COMMANDS),
        "flipped or cure",
    ),
    Mutant(
        "mirror: the cure is told of the mirror alone, not of both together",
        "storage/mirror.py",
        "        together = int(_repair.read_history(disk, layout).tip.seq)\n",
        "        together = whole_up_to(disk, layout).seq\n",
        (COMMANDS,),
        "looking",
    ),
)
