"""Steps by which work is given to others and taken back, taken away one at a time.

Contracts, slots and shards, modes of dispatch, copies before a local effect. A part of
``mutants.py``, which says how they are tried; ``child_mutants.py`` goes on from here.
"""

from mutant import Mutant

SENT = "tests/conformance/test_sent_after_commit.py"
SHARD_RECORD = "tests/crash/test_shard_record.py"
SHARD_STEPS = "tests/crash/test_shard_steps.py"
SAVED = "tests/crash/test_saved_files.py"
JOIN = "tests/conformance/test_join.py"
CONTRACTS = "tests/conformance/test_contracts.py"
PARALLEL = "tests/conformance/test_parallel_dispatch.py"
MODES = "tests/conformance/test_dispatch_modes.py"
EFFECTS = "tests/conformance/test_effects.py"
SHARD_JOIN = "tests/unit/control/test_shard_join.py"
SHARD_QUEUE = "tests/unit/control/test_shard_queue.py"
HEALTH = "tests/unit/core/test_health.py"
AUDITS = "tests/integration/test_audits.py"
EXECUTORS = "tests/integration/test_executors.py"
NESTED = "tests/integration/test_nesting.py"
LEFTOVERS = "tests/integration/test_leftovers.py"
SHARDS = "tests/integration/test_shards.py"

DISPATCH_MUTANTS: tuple[Mutant, ...] = (
    # Contracts
    Mutant(
        "contract: not read back before anybody is sent",
        "runtime/contract_file.py",
        "    if engine.disk.read(path) != data:\n",
        "    if False:\n",
        (CONTRACTS,),
        "pd_c3",
    ),
    Mutant(
        "contract: a name that was used is used again",
        "runtime/contract_file.py",
        "        if engine.disk.stat(engine.layout.contract(name)) is None:\n",
        "        if True:\n",
        (CONTRACTS,),
        "pd_c3",
    ),
    Mutant(
        "contract: units that are not the plan",
        "runtime/contract_file.py",
        "    if (len(keys), inventory_digest(keys)) != (plan.total, plan.sha256):\n",
        "    if False:\n",
        (CONTRACTS,),
        "pd_c3",
    ),
    Mutant(
        "contract: a unit twice",
        "runtime/contract_file.py",
        "    if twice:\n",
        "    if False:\n",
        (CONTRACTS,),
        "pd_c3",
    ),
    Mutant(
        "contract: its holder is not told that it is void",
        "runtime/recalls.py",
        '            disk.replace(path, to_json(said) + b"\\n", durable=False)\n',
        "            pass\n",
        (CONTRACTS,),
        "recall",
    ),
    Mutant(
        "contract: a recall that cannot be written down stops everything",
        "runtime/recalls.py",
        "        with contextlib.suppress(StorageError):\n",
        "        if True:\n",
        (CONTRACTS,),
        "recall",
    ),
    Mutant(
        "contract: a child starts before the contracts of its turn are committed",
        "control/starts.py",
        "        slots.issue(node)\n        issued.append(node)\n",
        "        slots.issue(node)\n        slots.launch(node.node_id)\n",
        (SENT,),
    ),
    Mutant(
        "contract: a former attempt that still runs does not keep its node from starting",
        "runtime/work.py",
        "            _left_running.refuse_left_running(engine, node)\n",
        "",
        (LEFTOVERS,),
        "still_runs",
    ),
    Mutant(
        "contract: what a run left without a record is not looked for",
        "runtime/left_running.py",
        "running=sessions, workspace=layout.root\n",
        "running=sessions\n",
        (AUDITS,),
        "auditor_that_the_next_run_ends",
    ),
    Mutant(
        "contract: a run that died leaves no mark",
        "runtime/left_running.py",
        '    engine.disk.replace(engine.layout.run_mark, b"", durable=False)\n',
        "    pass\n",
        (LEFTOVERS,),
    ),
    Mutant(
        "contract: what was left running is stopped and nobody is told",
        "runtime/left_running.py",
        '        engine.execute(c.WriteNote(f"stopped what a former run had left running:'
        ' {named}"))\n',
        "        pass\n",
        (LEFTOVERS,),
    ),
    Mutant(
        "contract: work that has spent more than its budget lands",
        "control/endings.py",
        "        if spent:\n            death = self.death_of",
        "        if False:\n            death = self.death_of",
        (MODES,),
        "budget",
    ),
    Mutant(
        "contract: claims of one turn land whatever they have spent",
        "control/endings.py",
        "        if over_budget(budget_of(node), claim.usage):\n            return False\n",
        "",
        (MODES,),
        "budget",
    ),
    Mutant(
        "contract: what has left nothing has not died before any output",
        "control/endings.py",
        "        return Death(mode, nothing, cause, seen[:200])\n",
        "        return Death(mode, False, cause, seen[:200])\n",
        (EXECUTORS,),
        "death",
    ),
    Mutant(
        "contract: instances are stopped before who drives them",
        "runtime/left_running.py",
        "    for level in sorted(levels):\n",
        "    for level in sorted(levels, reverse=True):\n",
        (NESTED,),
        "killed_at_each_level",
    ),
    # Slots
    Mutant(
        "slot: committed after its worker was sent",
        "control/shards.py",
        "            worker = send_worker(self._dispatch, shard, number=self._sent + 1,"
        " done=done)\n",
        "            with self._engine.batch():\n"
        "                worker = send_worker(\n"
        "                    self._dispatch, shard, number=self._sent + 1, done=done\n"
        "                )\n",
        (SENT,),
    ),
    Mutant(
        "slot: two of one name",
        "core/decide_slot.py",
        "    if held is not None:\n        raise RefusedError(\n"
        '            f"{invocation} is taken',
        '    if False:\n        raise RefusedError(\n            f"{invocation} is taken',
        (PARALLEL,),
        "fsn_2",
    ),
    Mutant(
        "slot: of a node that is not at work",
        "core/decide_slot.py",
        '    if node.spec.map is None or node.state != "RUNNING":\n',
        "    if False:\n",
        (PARALLEL,),
        "fsn_2",
    ),
    Mutant(
        "slot: opened while dispatch is halted",
        "core/decide_slot.py",
        '    if state.health.mode == "C" and not state.health.probing:\n',
        "    if False:\n",
        (PARALLEL, JOIN),
        "pd_h3 or wall",
    ),
    Mutant(
        "slot: lands with nothing on disk",
        "core/decide_slot.py",
        '    if command.end == "landed" and command.left == slot.units:\n',
        "    if False:\n",
        (PARALLEL,),
        "pd_j1",
    ),
    Mutant(
        "slot: its worker is taken at its word",
        "control/shard_end.py",
        '        return SlotVerdict("landed" if moved else "silent", observation)\n',
        '        return SlotVerdict("landed", observation)\n',
        (JOIN,),
        "silent",
    ),
    Mutant(
        "slot: closed before its findings are durable",
        "control/shards.py",
        "        again, duplicates = self._record.land(landed, failures)\n"
        "        for place in again:\n"
        "            self._queue.fail(place)\n"
        "        with self._engine.batch():\n"
        "            for one in settled:\n"
        "                self._close_slot(one)\n",
        "        with self._engine.batch():\n"
        "            for one in settled:\n"
        "                self._close_slot(one)\n"
        "        again, duplicates = self._record.land(landed, failures)\n"
        "        for place in again:\n"
        "            self._queue.fail(place)\n",
        (SHARD_STEPS,),
        "death_at_a_step",
    ),
    Mutant(
        "slot: stays open when a former run has left it",
        "control/shard_adoption.py",
        "    if former.invocation in engine.replica.state.slots:\n",
        "    if False:\n",
        (SHARD_STEPS, JOIN),
        "death_at_a_step or interruption",
    ),
    Mutant(
        "slot: goes on under a node that is closed",
        "core/fold_dispatch.py",
        "        del state.slots[name]\n",
        "        pass\n",
        (PARALLEL,),
        "abandoned",
    ),
    Mutant(
        "slot: stays open when its worker cannot be started",
        "control/shard_worker.py",
        "        if engine.is_usable and invocation in engine.replica.state.slots:\n",
        "        if False:\n",
        (JOIN,),
        "cannot_be_started",
    ),
    Mutant(
        "slot: first death though something was on disk",
        "control/shards.py",
        "                first=one.verdict.died and not one.adjudged.has_output,\n",
        "                first=one.verdict.died,\n",
        (JOIN,),
        "half_a_finding",
    ),
    # What counts of shards
    Mutant(
        "shard: half a finding counts",
        "control/shard_join.py",
        "    if rest.strip():\n"
        '        notices.add(f"the last line of its {name} was not finished")\n',
        "    if rest.strip():\n        yield number + 1, rest.strip()\n",
        (SHARD_JOIN, JOIN),
        "last_line or half",
    ),
    Mutant(
        "shard: a finding without its ledger line counts",
        "control/shard_join.py",
        '    ledger = _ledger(disk, f"{directory}/{LEDGER_NAME}", wanted, notices)\n',
        '    ledger = {key: _LedgerLine(key, "ok") for key in findings}\n'
        '    ledger |= _ledger(disk, f"{directory}/{LEDGER_NAME}", wanted, notices)\n',
        (SHARD_JOIN, JOIN),
        "ledger_line or complete",
    ),
    Mutant(
        "shard: a file of another directory counts",
        "control/shard_join.py",
        '    if seen.kind != "file" or not disk.real_path(path).startswith('
        'f"{disk.real_path(directory)}/"):\n',
        '    if seen.kind != "file":\n',
        (SHARD_JOIN,),
        "outside",
    ),
    Mutant(
        "shard: what the schema refuses counts",
        "control/shard_join.py",
        "            if not problem and errors_of is not None and"
        " (errors := errors_of(payload)):\n",
        "            if False:\n",
        (SHARD_JOIN, JOIN),
        "schema",
    ),
    Mutant(
        "shard: a unit that is done is done again by who comes later",
        "control/shard_record.py",
        "            if place in findings or self._job.is_done(unit.key):\n",
        "            if False:\n",
        (SHARD_RECORD,),
    ),
    Mutant(
        "shard: a unit's own file not synced before its finding",
        "control/batch_job.py",
        "        disk.sync_file(path)\n        disk.make_dirs(target",
        "        disk.make_dirs(target",
        (SHARD_RECORD,),
    ),
    Mutant(
        "shard: a full disk is laid to the charge of its workers",
        "control/shards.py",
        "            self._batch_job.require_room()  # a full disk says nothing about workers and"
        " units\n",
        "            pass\n",
        (JOIN,),
        "full",
    ),
    Mutant(
        "shard: of two workers of a former run the later one counts",
        "control/shard_adoption.py",
        "    ordered = sorted(names, key=id_key)\n",
        "    ordered = sorted(names, key=id_key, reverse=True)\n",
        (JOIN,),
        "lower_id",
    ),
    Mutant(
        "shard: a budget that its workers have spent is not heeded",
        "control/shards.py",
        "        if spent:\n            self._give_up(",
        "        if False:\n            self._give_up(",
        (JOIN,),
        "budget",
    ),
    # What is left of shards
    Mutant(
        "shard: comes back whole however often it lands nothing",
        "control/shard_queue.py",
        "        if died and not landed and len(left) > 1:\n",
        "        if False:\n",
        (SHARD_QUEUE, JOIN),
        "halves",
    ),
    Mutant(
        "shard: a unit that kills every worker is never to blame",
        "control/shard_end.py",
        "        return alone and self.verdict.died and not self.verdict.cause\n",
        "        return False\n",
        (JOIN,),
        "kills_each_worker",
    ),
    Mutant(
        "shard: a unit is to blame for the wall that its worker met",
        "control/shard_end.py",
        "        return alone and self.verdict.died and not self.verdict.cause\n",
        "        return alone and self.verdict.died\n",
        (JOIN,),
        "wall or death",
    ),
    Mutant(
        "shard: the death of a worker is a failure of its units",
        "control/shard_end.py",
        "        alone = len(self.worker.keys) == 1 and len(self.adjudged.left) == 1\n",
        "        alone = True\n",
        (JOIN,),
        "death_of_a_worker or before_a_death",
    ),
    Mutant(
        "shard: what has died twice goes before what nobody has tried",
        "control/shard_queue.py",
        "        if deaths > 1:\n            self._rest.extend(",
        "        if False:\n            self._rest.extend(",
        (SHARD_QUEUE,),
        "died_twice",
    ),
    Mutant(
        "shard: nobody goes first",
        "control/shards.py",
        "units_max=1 if self._smoke else self._size)\n",
        "units_max=self._size)\n",
        (JOIN,),
        "goes_first",
    ),
    Mutant(
        "shard: an attempt that was interrupted counts as a death",
        "control/shard_end.py",
        '    if ended.how == "stopped":\n        return SlotVerdict("recalled", observation)\n',
        "",
        (SHARDS, JOIN),
        "recalled or interruption",
    ),
    # Shards of former attempts, and what comes late
    Mutant(
        "shard: put away before what is in it is durable",
        "control/shard_adoption.py",
        "        landed = record_findings(self.batch_job, findings.values())\n",
        "        seal(self.engine, self.node)\n"
        "        landed = record_findings(self.batch_job, findings.values())\n",
        (SHARD_STEPS,),
        "former_attempt",
    ),
    Mutant(
        "shard: slots of a former run closed before its findings are durable",
        "control/shard_adoption.py",
        "        landed = record_findings(self.batch_job, findings.values())\n"
        "        new = Counter(fresh[key] for key in landed)\n"
        "        with self.engine.batch():\n"
        "            for number, former in enumerate(group):\n"
        "                _tell(self.engine, self.node, former, new[number])\n",
        "        new = Counter(fresh.values())\n"
        "        with self.engine.batch():\n"
        "            for number, former in enumerate(group):\n"
        "                _tell(self.engine, self.node, former, new[number])\n"
        "        landed = record_findings(self.batch_job, findings.values())\n",
        (SHARD_STEPS,),
        "former_attempt",
    ),
    Mutant(
        "shard: what came in while nobody coordinated is not looked at",
        "control/shard_adoption.py",
        "    names |= {name for name in engine.disk.list_dir(directory) if is_worker(name)}\n",
        "",
        (JOIN, SHARD_STEPS),
        "late or former_attempt or interruption",
    ),
    Mutant(
        "shard: units of a contract that is not the one on record",
        "control/shard_adoption.py",
        "    if slot is not None and sha256(data).hexdigest() != slot.contract_sha256:\n",
        "    if False:\n",
        (SHARD_STEPS,),
        "on_record",
    ),
    Mutant(
        "shard: output of an attempt that is over counts",
        "control/shard_seal.py",
        "        if name not in sealed or name in engine.replica.state.slots:\n",
        "        if True:\n",
        (JOIN,),
        "late",
    ),
    Mutant(
        "shard: what was set aside is not on record",
        "control/shard_seal.py",
        "        engine.execute(d.RecordLate(node.node_id, name, set_aside=target, why=_WHY))\n",
        "",
        (JOIN,),
        "late",
    ),
    Mutant(
        "shard: what still comes into a sealed directory is not told",
        "control/shard_seal.py",
        "        for name in (name for name, size in now.items() if size != seen[name]):\n",
        "        for name in ():\n",
        (JOIN,),
        "rt_3",
    ),
    Mutant(
        "shard: late output of a dead worker counts and is not on record",
        "control/shards.py",
        "                self._engine.execute(d.RecordLate(node_id, invocation, landed=landed,"
        " why=why))\n",
        "                pass\n",
        (JOIN,),
        "late",
    ),
    Mutant(
        "shard: late output counts for a node that is over",
        "core/decide_slot.py",
        '    if command.landed and node.state != "RUNNING":\n',
        "    if False:\n",
        (PARALLEL,),
        "rt_3",
    ),
    # Modes
    Mutant(
        "mode: does not change with the end of a slot",
        "core/decide_slot.py",
        "    return c.Decision((closed, *mode_drafts(state, end_of_slot(payload))))\n",
        "    return c.Decision((closed,))\n",
        (PARALLEL,),
        "pd_h1",
    ),
    Mutant(
        "mode: does not change with the end of an attempt",
        "core/health.py",
        "    return (move, *mode_drafts(state, end))\n",
        "    return (move,)\n",
        (PARALLEL,),
        "pd_h1",
    ),
    Mutant(
        "mode: an interruption counts as a death",
        "core/health.py",
        ' or payload.get("interruption"):\n',
        ":\n",
        (HEALTH, PARALLEL),
    ),
    Mutant(
        "mode: work that was in flight lifts a halt",
        "core/health.py",
        "        if not before.probing or before.by_hand:\n",
        "        if before.by_hand:\n",
        (HEALTH, PARALLEL),
    ),
    Mutant(
        "mode: a run lifts what a person has halted",
        "core/decide_slot.py",
        "    if command.probing and health.by_hand:\n",
        "    if False:\n",
        (PARALLEL,),
        "pd_h3",
    ),
    Mutant(
        "mode: a halt holds nothing up",
        "control/dispatch_control.py",
        "        if not state.health.probing:\n            return 0\n",
        "        if not state.health.probing:\n            return free\n",
        (MODES,),
        "halt",
    ),
    Mutant(
        "mode: everything goes behind a probe at once",
        "control/dispatch_control.py",
        "        return max(0, min(free, state.policies.probe_slots - len(self._small_batch)))\n",
        "        return free\n",
        (MODES,),
        "pd_h3",
    ),
    Mutant(
        "mode: a probe that fails sends all the same",
        "control/dispatch_control.py",
        '            self._emit({"event": "probe_failed", "node": None, "why": trouble})\n'
        "            return\n",
        '            self._emit({"event": "probe_failed", "node": None, "why": trouble})\n',
        (MODES,),
        "pd_h3",
    ),
    Mutant(
        "mode: the dead go before the untouched",
        "control/dispatch_control.py",
        "        if any(self._untouched.values()):\n            return False\n",
        "",
        (MODES,),
        "pd_h1",
    ),
    Mutant(
        "mode: silence is suspected again and again",
        "core/decide_slot.py",
        "    if held.suspected:\n",
        "    if False:\n",
        (PARALLEL, MODES),
        "rt_3",
    ),
    # Local effects
    Mutant(
        "copies: not made before a local destructive effect",
        "runtime/work.py",
        'saved = _saved_files.save_files(engine, node) if node.effect == "S1" else {}\n',
        "saved = dict[str, Any]()\n",
        (EFFECTS, SAVED),
    ),
    Mutant(
        "copies: their names not synced",
        "runtime/saved_files.py",
        '        engine.disk.sync_dir(f"{engine.layout.root}/{directory}")\n',
        "        pass\n",
        (SAVED,),
    ),
    Mutant(
        "copies: the list of them not synced",
        "runtime/saved_files.py",
        "data, durable=True)\n",
        "data, durable=False)\n",
        (SAVED,),
    ),
    Mutant(
        "copies: more than may be copied is left out",
        "runtime/saved_files.py",
        "    _check_limits(node, found)\n",
        "    found = found[:saved_files_max]\n",
        (EFFECTS,),
    ),
)
