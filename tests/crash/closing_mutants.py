"""Steps of memory, archive, and the end of a task, taken away one at a time.

A part of ``mutants.py``, which says how they are tried.
"""

from mutant import Mutant

MEMORY = "tests/crash/test_memory_steps.py"
LINES = "tests/unit/core/test_memory.py"
ENTRIES = "tests/conformance/test_memory.py"
WRITERS = "tests/integration/test_memory_writers.py"
ARCHIVE = "tests/conformance/test_archive.py"
VIEWS = "tests/conformance/test_views.py"
WHY = "tests/conformance/test_provenance.py"
TIER_2 = "tests/conformance/test_tier_2.py"
WALKED = "tests/unit/core/test_decide_walk.py"

CLOSING_MUTANTS: tuple[Mutant, ...] = (
    # The memory store
    Mutant(
        "memory: line not synced before it is acknowledged",
        "memory/store.py",
        "            file.sync()\n",
        "            pass\n",
        (MEMORY,),
    ),
    Mutant(
        "memory: the last line is not made durable before another follows",
        "memory/store.py",
        "        self._write_last_again(reading)\n\n",
        "\n",
        (MEMORY,),
    ),
    Mutant(
        "memory: what is cited is not made durable",
        "memory/store.py",
        "                self._write_last_again(self._look().reading)\n",
        "                pass\n",
        (MEMORY,),
    ),
    Mutant(
        "memory: a torn tail is cut off and not kept",
        "memory/store.py",
        "            self._disk.replace(kept, reading.torn, durable=True)\n",
        "",
        (MEMORY,),
    ),
    Mutant(
        "memory: an edited index is not kept",
        "memory/store.py",
        "            self._disk.replace(kept, self._disk.read(self._index), durable=True)\n",
        "",
        (MEMORY, ENTRIES),
    ),
    Mutant(
        "memory: the index is not renewed",
        "memory/store.py",
        "        self._disk.replace(self._index, page, durable=True)\n",
        "",
        (MEMORY, ENTRIES),
    ),
    Mutant(
        "memory: no lock",
        "memory/store.py",
        "            wait_for_lock(lock, self._clock, self.directory)\n"
        "            return self._add(",
        "            return self._add(",
        (WRITERS,),
    ),
    Mutant(
        "memory: added behind damage",
        "memory/store.py",
        "        if damage is not None:\n            raise CorruptError(",
        "        if False:\n            raise CorruptError(",
        (ENTRIES,),
    ),
    Mutant(
        "memory: lost lines are not noticed by the index",
        "memory/store.py",
        '        if shelf.judged.state == "ahead":\n            raise',
        "        if False:\n            raise",
        (ENTRIES,),
    ),
    Mutant(
        "memory: an operation is repeated",
        "memory/store.py",
        "        if again:\n            return Added(again[0], shelf, True, ())\n",
        "",
        (ENTRIES, MEMORY),
    ),
    Mutant(
        "memory: the chain is not looked at",
        "core/memory.py",
        "    if chained is False or (chained is None and (entry.by or entry.h)):\n",
        "    if False:\n",
        (LINES, ENTRIES),
    ),
    Mutant(
        "memory: near duplicates get in",
        "service/memory.py",
        "            if not distinct:\n                self._check_new(",
        "            if False:\n                self._check_new(",
        (ENTRIES,),
    ),
    Mutant(
        "memory: a new statement keeps the old evidence",
        "service/memory.py",
        "evidence or (first.evidence_refs if again else ())",
        "evidence or first.evidence_refs",
        (ENTRIES,),
    ),
    Mutant(
        "memory: secrets are not masked",
        "service/memory.py",
        "clean, counts = self._masker().mask_value(fields)",
        "clean, counts = fields, {}",
        (ENTRIES,),
    ),
    Mutant(
        "memory: a decision cites what was superseded",
        "service/memory_reading.py",
        '{"id": head.id, "store": shelf.name,',
        '{"id": entry.id, "store": shelf.name,',
        (ENTRIES,),
    ),
    # The end of a task
    Mutant(
        "archive: what failed is archived",
        "runtime/calls_on_closing.py",
        "        if not audited.record.passed:\n",
        "        if False:\n",
        (ARCHIVE,),
    ),
    Mutant(
        "archive: a damaged journal is archived",
        "runtime/calls_on_closing.py",
        "    if audited.damage:\n",
        "    if False:\n",
        (ARCHIVE,),
    ),
    Mutant(
        "archive: an audit of another moment is taken",
        "core/decide_archive.py",
        "    if record.seq != state.seq:\n",
        "    if False:\n",
        (ARCHIVE,),
    ),
    Mutant(
        "archive: content that nobody accepted is closed",
        "core/decide_archive.py",
        "    if not state.closing.accepted:\n",
        "    if False:\n",
        (ARCHIVE,),
    ),
    Mutant(
        "archive: an archived task is reopened for what it has lost",
        "core/recovery.py",
        'if rule.repair == "report" or (state.fsm_task == "ARCHIVED" and',
        'if rule.repair == "report" or (False and',
        (ARCHIVE,),
    ),
    Mutant(
        "archive: recovery writes behind the last word",
        "core/recovery.py",
        "    if before.closing.closed:\n",
        "    if False:\n",
        (ARCHIVE,),
    ),
    Mutant(
        "archive: a mirror that lags is sealed as it is",
        "runtime/calls_on_closing.py",
        "            with engine.writing():\n                pass\n",
        "            pass\n",
        (ARCHIVE,),
    ),
    # Tier 2
    Mutant(
        "tier 2: an effect that can be repeated needs no receipt",
        "core/tiers.py",
        '(effect == "S2" and tier >= critical_tier_least)',
        "False",
        (TIER_2,),
    ),
    Mutant(
        "tier 2: the receipt of an earlier attempt counts",
        "core/fold_moves.py",
        "        node.receipt = None  # what",
        "        pass  # what",
        (TIER_2,),
    ),
    Mutant(
        "walks: nobody is asked",
        "core/decide_walk.py",
        "    if fresh:\n",
        "    if False:\n",
        (TIER_2, WALKED),
    ),
    Mutant(
        "walks: a file is asked about at each of them",
        "core/decide_walk.py",
        "kept.items() if name not in known}",
        "kept.items()}",
        (TIER_2, WALKED),
    ),
    Mutant(
        "walks: what a former run found is forgotten",
        "control/walks.py",
        "        self._again = bool(known)\n",
        "        self._again = False\n",
        (TIER_2,),
    ),
    Mutant(
        "views: a document is believed current by its time",
        "runtime/docs.py",
        "    digest, size = hash_file(disk, full)\n",
        '    digest, size = "0" * 64, stat.size\n',
        (VIEWS,),
    ),
)
