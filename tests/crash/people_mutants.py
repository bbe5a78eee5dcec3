"""Steps by which people are heard, asked and told, taken away one at a time.

Instructions, gates, questions, roles, the goal, observations and the supervisor. A part of
``mutants.py``, which says how they are tried.
"""

from mutant import Mutant

STEPS = "tests/crash/test_steering_steps.py"
STEERING = "tests/conformance/test_steering.py"
MASKING = "tests/unit/runtime/test_masking.py"
STEERED = "tests/unit/core/test_steering.py"
WORDS = "tests/unit/runtime/test_write_here.py"
BOX = "tests/unit/runtime/test_drop_box.py"
APPROVAL = "tests/conformance/test_approval.py"
GATES = "tests/conformance/test_gates.py"
CONTENT = "tests/property/test_gate_content.py"
RULINGS = "tests/unit/runtime/test_rulings.py"
RULED = "tests/unit/core/test_rulings.py"
QUESTIONS = "tests/unit/core/test_questions.py"
ROLES = "tests/conformance/test_roles.py"
GOAL = "tests/conformance/test_goal_evolution.py"
REPLAN = "tests/conformance/test_replan.py"
OBSERVED = "tests/conformance/test_observations.py"
TABLE = "tests/conformance/test_supervision_table.py"
SUPERVISOR = "tests/unit/control/test_supervisor.py"
OUTBOX = "tests/unit/control/test_outbox.py"
UPDATES = "tests/unit/core/test_supervision_updates.py"
SCHEDULE = "tests/integration/test_monitor_schedule.py"

PEOPLE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "secrets: a commit is written as it was decided",
        "runtime/masking.py",
        "    return encode_commit(tip, clean, ts=ts",
        "    return encode_commit(tip, drafts, ts=ts",
        (MASKING,),
        "masked",
    ),
    Mutant(
        "secrets: the kept copy of an instruction is not masked",
        "runtime/write_here.py",
        "    if masked:\n        data",
        "    if not masked:\n        data",
        (MASKING,),
        "taking_a_secret_in",
    ),
    # Instructions
    Mutant(
        "steering: the words and what follows from them in one commit",
        "runtime/steering.py",
        "    with engine.writing():\n        propagate_pending(engine)\n        logged =",
        "    with engine.writing(), engine.batch():\n        propagate_pending(engine)\n"
        "        logged =",
        (STEERING, STEPS),
    ),
    Mutant(
        "steering: acted on before the words are on record",
        "runtime/steering.py",
        "        logged = engine.execute(command, op=op)\n",
        "        if command.reading == 'halt':\n"
        "            for contract in list(engine.replica.state.contracts.values()):\n"
        "                engine.execute(c.FailNode(contract.node, 'transient-agent', 'stop',"
        " interruption=True))\n"
        "        logged = engine.execute(command, op=op)\n",
        (STEERING,),
    ),
    Mutant(
        "steering: what is pending not propagated by the next writer",
        "runtime/calls.py",
        "    if pending_steering(engine.replica.state):\n",
        "    if False:\n",
        (STEERING, STEPS),
    ),
    Mutant(
        "steering: instructions on record forgotten by a recovery",
        "runtime/recover.py",
        "_instructions.words_of(engine, pending) if pending else {}",
        "{}",
        (STEERING,),
        "interrupted or halt",
    ),
    Mutant(
        "steering: in doubt the weaker reading",
        "core/decide_steering.py",
        'STRONGER: Final = "amendment"',
        'STRONGER: Final = "clarification"',
        (STEERING,),
    ),
    Mutant(
        "steering: what was said again is acted on again",
        "core/decide_steering.py",
        '            return name\n    return ""\n\n\n# S2',
        '            return ""\n    return ""\n\n\n# S2',
        (STEERING,),
    ),
    Mutant(
        "steering: a recall is a strike",
        "core/recall.py",
        '"transient-agent", cause, interruption=True)',
        '"transient-agent", cause, interruption=False)',
        (STEERING,),
    ),
    Mutant(
        "steering: files of recalled work not moved away",
        "core/propagation.py",
        "            self.moves += ended.moves\n",
        "",
        (STEERING, STEERED),
    ),
    Mutant(
        "steering: DONE work is left as it is",
        "core/steered_amendment.py",
        "        _correct(plan, node, touched, done)\n",
        "        plan.tell(node.node_id, 'DONE')\n",
        (STEERING,),
    ),
    Mutant(
        "steering: nodes that are added later do not hear of it",
        "core/fold_people.py",
        "    state.directives = (*state.directives, directive)\n",
        "",
        (STEERING, STEERED),
    ),
    Mutant(
        "steering: contracts do not carry it",
        "runtime/contracts.py",
        "            *node.directives,\n",
        "",
        (STEERING,),
    ),
    Mutant(
        "steering: a halt leaves what is at work",
        "core/steered_halt.py",
        "    for contract in list(plan.state.contracts.values()):\n"
        "        plan.recall(plan.state.nodes[contract.node])\n    if not _suspend",
        "    if not _suspend",
        (STEERING, STEERED),
    ),
    # What is left for the task
    Mutant(
        "words in a file renamed before they are synced",
        "runtime/write_here.py",
        "            disk.sync_file(layout.write_here)\n",
        "            pass\n",
        (WORDS,),
        "synced",
    ),
    Mutant(
        "words in a file logged under a new id each time",
        "runtime/write_here.py",
        "c.LogSteering(_steering_id(name), words",
        'c.LogSteering("", words',
        (WORDS,),
        "words or forgotten",
    ),
    Mutant(
        "words in a file logged before the file is taken by its rename",
        "runtime/write_here.py",
        "    if has_words(engine):\n        take(engine)\n",
        "    if has_words(engine):\n"
        "        words = decoded(engine.disk.read(engine.layout.write_here))\n"
        "        steer(engine, c.LogSteering('', words, SOURCE))\n"
        "        take(engine)\n"
        "        for name in unlogged(engine):\n"
        "            engine.disk.unlink(f'{engine.layout.taken}/{name}', durable=True)\n",
        (STEPS,),
    ),
    Mutant(
        "what is no message moved before it is reported",
        "runtime/set_aside_files.py",
        '    op = f"aside-{damaged.digest}"\n',
        '    op = f"aside-{damaged.digest}"\n'
        "    spool.move_aside(engine.disk, engine.layout, damaged)\n",
        (STEPS,),
        "no_message",
    ),
    Mutant(
        "what is no message deleted instead of set aside",
        "storage/spool.py",
        "    disk.rename(source, target)\n    moved =",
        "    disk.unlink(source, durable=True)\n    moved =",
        (STEPS, BOX),
        "message",
    ),
    Mutant(
        "words of a refused instruction not kept",
        "runtime/calls.py",
        "        kept = _set_aside_files.keep_words(engine, message, refusal)\n",
        '        kept = ""\n',
        (BOX,),
    ),
    # Gates and questions
    Mutant(
        "gate: approval not compared with what is on disk",
        "core/gates.py",
        "        holds = content_digest(state, node, gate, files) == approval.content\n",
        "        holds = True\n",
        (APPROVAL, CONTENT),
    ),
    Mutant(
        "gate: content believed from the record at a start",
        "runtime/gates.py",
        "    return {path: read[path] if path in read else _digest(engine, path) for path in "
        "paths}",
        "    known = gates.registered_files(engine.replica.state, node, gate)\n"
        "    return {path: known.get(path) or _digest(engine, path) for path in paths}",
        (APPROVAL, "tests/conformance/test_changed_file.py", RULINGS),
    ),
    Mutant(
        "gate: consent to what nobody was shown",
        "runtime/rulings.py",
        "        if gates.content_digest(state, node, gate, files) != question.content:\n",
        "        if False:\n",
        (RULINGS, APPROVAL),
    ),
    Mutant(
        "gate: consent decided without the content",
        "core/decide_ruling.py",
        "    if content_digest(state, node, gate, files or {}) != question.content:\n",
        "    if False:\n",
        (RULED,),
    ),
    Mutant(
        "gate: an approval that does not hold any more is not voided",
        "core/decide_gate.py",
        "    if approval is not None:\n        void = {",
        "    if False:\n        void = {",
        (QUESTIONS, GATES, APPROVAL),
    ),
    Mutant(
        "gate: asked about again and again",
        "core/decide_gate.py",
        "    if question is not None and question.content == content:\n",
        "    if False:\n",
        (RULED, APPROVAL),
        "once",
    ),
    Mutant(
        "gate: started without being asked",
        "core/machine.py",
        "    return _not_held(state, node, {}) or start_gate_refusal(state, node)\n",
        "    return _not_held(state, node, {})\n",
        (GATES, CONTENT),
    ),
    Mutant(
        "gate: silence consents",
        "runtime/gates.py",
        'c.AnswerQuestion(name, "reject", text, by_default=True)',
        'c.AnswerQuestion(name, "approve", text, by_default=True)',
        (APPROVAL,),
    ),
    Mutant(
        "gate: rejected in silence before its time",
        "core/decide_ruling.py",
        "    if not (rejects and is_overdue(question, ruling.context.now)):\n",
        "    if not rejects:\n",
        (RULED, GATES),
    ),
    Mutant(
        "gate: the ruling without the verdict that rests on it",
        "runtime/rulings.py",
        "        with engine.batch(op=op):\n            ruled = engine.execute(command)\n",
        "        if True:\n            ruled = engine.execute(command, op=op)\n",
        (RULINGS, APPROVAL),
    ),
    Mutant(
        "question: the node waits before the question is there",
        "core/decide_question.py",
        '    return c.Decision((asked, transition(node, legal_edge(node, "BLOCKED"), waits)))',
        '    return c.Decision((transition(node, legal_edge(node, "BLOCKED"), waits), asked))',
        (QUESTIONS, GATES),
    ),
    Mutant(
        "question: a node goes on while another one is open",
        "core/decide_ruling.py",
        "    if others or blocked or not waits_for_answer(state, node, question):\n",
        "    if blocked or not waits_for_answer(state, node, question):\n",
        (RULED, QUESTIONS),
    ),
    # Roles
    Mutant(
        "role: nobody is asked for it",
        "core/decide.py",
        "    check_authority(state, command, context)\n",
        "",
        (ROLES,),
    ),
    Mutant(
        "role: whoever has the drop box acts as the coordinator",
        "runtime/calls.py",
        '        with engine.acting_as(message.actor):\n            return {"data"',
        '        with engine.acting_as("coordinator:main"):\n            return {"data"',
        (ROLES, BOX),
    ),
    Mutant(
        "role: anybody rules",
        "core/decide_ruling.py",
        "        check_ruling(replica.state, question, context)\n",
        "        pass\n",
        (ROLES, RULED),
    ),
    Mutant(
        "role: anybody coordinates",
        "runtime/opening.py",
        "    check_coordinates(engine.actor)\n",
        "",
        (ROLES,),
    ),
    Mutant(
        "role: who does the work opens its gate",
        "core/authority.py",
        "    if gate is not None and _is_of_the_work(state, actor, question):\n",
        "    if False:\n",
        (ROLES, RULED),
    ),
    Mutant(
        "role: an executor acts on work that is not its own",
        "core/authority.py",
        '    if node is None or owns(state, node, f"{actor.role}:{actor.name}"):\n',
        "    if True:\n",
        (ROLES,),
    ),
    # The goal and the plan
    Mutant(
        "goal: changed without being counted",
        "core/fold_people.py",
        "    state.goal_amendments += 1\n",
        "",
        (GOAL,),
    ),
    Mutant(
        "goal: changed as often as anybody likes",
        "core/decide_goal.py",
        "    if count <= policies.goal_amendments_max:\n",
        "    if True:\n",
        (GOAL,),
    ),
    Mutant(
        "goal: work goes on under the old one",
        "core/decide_goal.py",
        "    if node.state in AT_WORK_STATES:\n        recalled",
        "    if False:\n        recalled",
        (GOAL,),
    ),
    Mutant(
        "plan: who waits for a node that was split waits for ever",
        "core/decide_replan.py",
        "        (*reopening(state), *out.drafts, *parts, *repoint(replica, node.node_id, names)),"
        " out.moves\n",
        "        (*reopening(state), *out.drafts, *parts), out.moves\n",
        (REPLAN,),
    ),
    # Observations
    Mutant(
        "observation: a claim without what it cites",
        "core/decide_observed.py",
        "    drafts = [Draft(command.kind, entity_type, entity_id, said)]\n    if command.claim:\n",
        "    drafts = [Draft(command.kind, entity_type, entity_id, said)]\n    if command.claim:\n"
        "        drafts.clear()\n",
        (OBSERVED,),
    ),
    Mutant(
        "observation: a blocker without a reason",
        "core/decide_observed.py",
        '    if missing:\n        raise UsageError(\n            f"{what} takes more',
        '    if False:\n        raise UsageError(\n            f"{what} takes more',
        (OBSERVED,),
    ),
    Mutant(
        "observation: progress after the end is forgotten",
        "core/fold_observed.py",
        "        step.progress_after_completion = event.ref\n",
        "        pass\n",
        ("tests/unit/core/test_observed.py",),
    ),
    # The supervisor
    Mutant(
        "supervision: retries counted by the supervisor instead of the journal",
        "core/supervision.py",
        "        retry_count=_retries(state, blocks),\n",
        "        retry_count=0,\n",
        (TABLE, "tests/unit/core/test_supervision.py"),
    ),
    Mutant(
        "supervision: a blocker's retries not read from the journal",
        "core/fold_observed.py",
        "        observed.retries[key] = observed.retries.get(key, 0) + 1\n",
        "        pass\n",
        (TABLE, OBSERVED),
    ),
    Mutant(
        "supervision: marked before it is sent",
        "control/delivery.py",
        "                problem = _send(channel, message, sender)\n",
        "                item.delivered = {**item.delivered, channel.label: now}\n"
        "                sender.save()\n"
        "                problem = _send(channel, message, sender)\n",
        (SUPERVISOR,),
        "killed",
    ),
    Mutant(
        "supervision: sent and not marked",
        "control/delivery.py",
        "                item.delivered = {**item.delivered, channel.label: now}\n"
        "                tally.sent.append(said)\n",
        "                tally.sent.append(said)\n",
        (SUPERVISOR,),
        "killed",
    ),
    Mutant(
        "supervision: sent before it is queued",
        "control/supervisor.py",
        "        take_note(file, look.state, look.derived, look.action, now)\n"
        "        self._store.save(file)\n",
        "        take_note(file, look.state, look.derived, look.action, now)\n",
        (SUPERVISOR,),
        "killed",
    ),
    Mutant(
        "supervision: the queue is not durable",
        "storage/supervision_file.py",
        "        try:\n            self._disk.replace(self.path, data, durable=True)\n",
        "        try:\n            self._disk.replace(self.path, data, durable=False)\n",
        (SUPERVISOR,),
    ),
    Mutant(
        "supervision: what it has said is forgotten",
        "control/outbox.py",
        "    file.memory = remember(file.memory, derived, action, now)\n",
        "",
        (SUPERVISOR, OUTBOX),
    ),
    Mutant(
        "supervision: an answer is not seen",
        "control/outbox.py",
        "        if request.acknowledged is None and request.token in answered:\n",
        "        if False:\n",
        (SUPERVISOR, OUTBOX),
    ),
    Mutant(
        "supervision: two monitors at once",
        "control/supervisor.py",
        "        while not lock.try_acquire():\n",
        "        while False:\n",
        (SUPERVISOR,),
    ),
    Mutant(
        "supervision: a damaged file is written over",
        "control/supervisor.py",
        "        kept = self._store.set_aside()\n",
        '        kept = "nothing"\n',
        (SUPERVISOR,),
    ),
    Mutant(
        "supervision: what failed is forgotten",
        "control/delivery.py",
        '        if has_arrived("requester", queued):\n',
        '        if queued.attempts or has_arrived("requester", queued):\n',
        (SUPERVISOR, OUTBOX),
    ),
    Mutant(
        "supervision: the same news under another id each time",
        "core/supervision_updates.py",
        '    named = ":".join(part for part in (task, kind, entity, ref) if part)\n',
        '    named = f"{task}:{kind}:{id(details)}"\n',
        (UPDATES, SUPERVISOR),
    ),
    Mutant(
        "supervision: a line in the crontab that nobody knows of",
        "control/supervisor.py",
        "            file.schedule = Schedule(mark, interval_s, self._world.clock.now())\n"
        "            self._store.save(file)\n",
        "            file.schedule = Schedule(mark, interval_s, self._world.clock.now())\n",
        (SCHEDULE, SUPERVISOR),
    ),
    Mutant(
        "supervision: the schedule of a task that is over stays",
        "control/supervisor.py",
        '        if look.action.state == "STOP_AND_DELETE":\n',
        "        if False:\n",
        (SCHEDULE, SUPERVISOR),
    ),
)
