"""What is believed of others and what they are held to, taken away one at a time.

Instances of procedures, audits, confinement. A part of ``mutants.py``, which says how they are
tried.
"""

from mutant import Mutant

INSTANCE_STEPS = "tests/crash/test_instance_steps.py"
AUDIT_STEPS = "tests/crash/test_audit_steps.py"
JOIN = "tests/conformance/test_join.py"
INSTANCE = "tests/unit/core/test_instance.py"
NESTING = "tests/conformance/test_nesting.py"
VERDICTS = "tests/conformance/test_vr.py"
INSTANCE_END = "tests/unit/control/test_instance_end.py"
JUDGED = "tests/unit/core/test_audits.py"
NESTED = "tests/integration/test_nesting.py"
AUDITS = "tests/integration/test_audits.py"
CONFINED = "tests/integration/test_confinement.py"
EXECUTORS = "tests/integration/test_executors.py"

CHILD_MUTANTS: tuple[Mutant, ...] = (
    # Instances
    Mutant(
        "child: called before it has its copy of the card",
        "control/instance.py",
        "    install_card(found, disk=disk, workspace=directory)\n"
        '    disk.replace(f"{directory}/{invocation_name}", data, durable=True)\n',
        '    disk.replace(f"{directory}/{invocation_name}", data, durable=True)\n'
        "    install_card(found, disk=disk, workspace=directory)\n",
        (INSTANCE_STEPS,),
    ),
    Mutant(
        "child: its invocation is not durable",
        "control/instance.py",
        'invocation_name}", data, durable=True)',
        'invocation_name}", data, durable=False)',
        (INSTANCE_STEPS,),
    ),
    Mutant(
        "child: its card is not durable",
        "control/sop_library.py",
        "durable=True)",
        "durable=False)",
        (INSTANCE_STEPS,),
    ),
    Mutant(
        "child: runs another card than it was called with",
        "control/instance.py",
        "        if sop.sha256 and found.sha256 != sop.sha256:\n",
        "        if False:\n",
        (NESTING,),
        "sc_3",
    ),
    Mutant(
        "child: its result is not durable",
        "runtime/instance_files.py",
        '    engine.disk.replace(path, to_json(result) + b"\\n", durable=True)\n',
        '    engine.disk.replace(path, to_json(result) + b"\\n", durable=False)\n',
        (INSTANCE_STEPS,),
    ),
    Mutant(
        "child: reports before its journal has the end",
        "control/instance.py",
        "            self._phases.report()\n",
        "            pass\n",
        (INSTANCE_STEPS, NESTING),
    ),
    Mutant(
        "child: its old result stays while it goes on",
        "control/instance.py",
        "        remove_result(engine)\n",
        "",
        (NESTING, INSTANCE_END, INSTANCE_STEPS, "tests/unit/control"),
        "instance or nc_1 or result",
    ),
    Mutant(
        "child: called anew when it was only interrupted",
        "control/nested.py",
        "    if status is None or status.word == i.BLOCKED:\n",
        "    if False:\n",
        (NESTING,),
        "nc_1",
    ),
    Mutant(
        "child: its node forgets which instance goes on",
        "core/fold_moves.py",
        '        node.child_ref = text(payload.get("child_ref")) or node.invocation\n',
        "        node.child_ref = node.invocation\n",
        (INSTANCE, NESTING),
        "keeps_its_instance or nc_1",
    ),
    Mutant(
        "child: a start does not say which instance goes on",
        "control/executors.py",
        "    facts: dict[str, Any] = _nested.start_facts(engine, node)\n    return facts\n",
        "    return {}\n",
        (NESTED,),
        "goes_on_as_the_same",
    ),
    Mutant(
        "child: believed without its journal",
        "control/nested.py",
        "        check_result(result, directory, self._engine.world)\n",
        "",
        (NESTING,),
        "io_2",
    ),
    Mutant(
        "child: believed whatever the way it ended",
        "control/nested.py",
        '        if result is None or ended.how != "exited" or ended.exit_code !='
        " i.EXIT_CODES[word]:\n",
        "        if result is None:\n",
        (NESTING,),
        "io_2",
    ),
    Mutant(
        "child: work that it did not verify counts",
        "runtime/instance_files.py",
        '        if maker is None or maker.state != "DONE":\n',
        "        if False:\n",
        (NESTING,),
        "io_2",
    ),
    Mutant(
        "child: its files are not compared with its registry",
        "runtime/instance_files.py",
        "        if value != listed.checksum_sha256:\n",
        "        if False:\n",
        (NESTING,),
        "io_2",
    ),
    Mutant(
        "child: a result ahead of its journal counts",
        "runtime/instance_files.py",
        " or result.seq_last > state.seq:\n",
        ":\n",
        (NESTING,),
        "io_2",
    ),
    Mutant(
        "child: done before it has reported",
        "runtime/instance_files.py",
        "state.phase != i.REPORT:\n",
        "False:\n",
        (NESTING,),
        "io_2",
    ),
    Mutant(
        "child: what is copied up is not what it had registered",
        "control/nested_copies.py",
        "        if value != listed.checksum_sha256:\n",
        "        if False:\n",
        (NESTING,),
        "nc_2 or io_2",
    ),
    Mutant(
        "child: asks for what it does not ask in its journal",
        "runtime/instance_files.py",
        "        if not theirs:\n",
        "        if False:\n",
        (NESTING,),
        "qa_1 or io_2",
    ),
    Mutant(
        "child: its questions are asked in pieces",
        "control/nested_questions.py",
        "    with engine.batch():\n        for question in questions:\n"
        "            _ask(engine, question, node_id)\n",
        "    if True:\n        for question in questions:\n"
        "            _ask(engine, question, node_id)\n",
        (NESTING,),
        "qa_1",
    ),
    Mutant(
        "child: an answer goes down under a new id each time",
        "control/nested_questions.py",
        '            yield spool.Message(f"up-{event.ref}", command, args, by,',
        "            token = engine.world.ids.token()\n"
        '            yield spool.Message(f"up-{token}", command, args, by,',
        (NESTING,),
        "qa_2",
    ),
    Mutant(
        "child: an instruction goes down again and again",
        "control/nested_questions.py",
        '            f"down-{text_digest(words)}",\n            "steer",\n            {\n'
        '                "id": f"down-{text_digest(words)}",\n',
        '            f"down-{engine.world.ids.token()}",\n            "steer",\n            {\n'
        '                "id": f"down-{engine.world.ids.token()}",\n',
        (NESTING,),
        "qa_2",
    ),
    Mutant(
        "child: side effects above those of its node",
        "control/nested_checks.py",
        "    if above:\n",
        "    if False:\n",
        (NESTING,),
        "sc_1",
    ),
    Mutant(
        "child: a procedure within itself",
        "control/nested_checks.py",
        "    if card.sop_id in level.above:\n",
        "    if False:\n",
        (NESTING,),
        "ap_n4",
    ),
    Mutant(
        "child: as deep as anybody likes",
        "control/nested_checks.py",
        "    if level.depth <= depth_max:\n",
        "    if True:\n",
        (NESTING,),
        "dp_1",
    ),
    Mutant(
        "child: a phase is passed over",
        "core/decide_instance.py",
        "    if target > at + 1:\n",
        "    if False:\n",
        (NESTING,),
        "fsn_1",
    ),
    Mutant(
        "child: reports while a node may still be done",
        "core/decide_instance.py",
        "        if left:\n",
        "        if False:\n",
        (NESTING,),
        "fsn_1",
    ),
    Mutant(
        "child: a failure without a way out is not told",
        "control/instance.py",
        "            self._suspend(verdict.failure)\n",
        "            pass\n",
        (NESTING, INSTANCE_END, NESTED),
        "fe_1 or way_out",
    ),
    Mutant(
        "child: starts before it has what people have answered",
        "control/nested.py",
        "        deliver_answers(engine, node, instance, directory)\n",
        "",
        (NESTING,),
        "qa_2",
    ),
    Mutant(
        "child: works in no phase",
        "control/instance.py",
        "        self._phases.advance()\n        report",
        "        report",
        (NESTING, INSTANCE_STEPS, INSTANCE_END),
    ),
    Mutant(
        "child: its plan is not on record with its phase",
        "control/phases.py",
        "        with engine.batch():\n            engine.execute(MovePhase(phase, facts))\n",
        "        if True:\n            engine.execute(MovePhase(phase, facts))\n",
        (INSTANCE_STEPS, INSTANCE_END),
    ),
    Mutant(
        "child: writes in the workspace of its parent",
        "control/nested.py",
        "            write=(directory, *_state_of_agents(order, needs.agents)),\n",
        "            write=(order.workspace,),\n",
        (NESTED,),
        "cannot_write_outside",
    ),
    Mutant(
        "child: one that was turned down is believed again",
        "control/nested.py",
        "    if status.word == i.FAILED or turned_down:\n",
        "    if status.word == i.FAILED:\n",
        (NESTING,),
        "fe_2",
    ),
    Mutant(
        "child: goes on under another call",
        "control/nested.py",
        "    if not nested_checks.is_call_of(node, held):\n",
        "    if False:\n",
        (NESTING,),
        "fe_2",
    ),
    Mutant(
        "child: gives back what others have used",
        "runtime/instance_files.py",
        "    _check_usage(result)\n",
        "",
        (NESTING,),
        "io_2",
    ),
    # Audits
    Mutant(
        "audit: an auditor is sent before that is on record",
        "runtime/audits.py",
        "        engine.execute(c.WriteNote(text, extra=facts))\n",
        "",
        (AUDIT_STEPS, VERDICTS),
        "anywhere or vr_2",
    ),
    Mutant(
        "audit: what was judged is not hashed again",
        "runtime/audits.py",
        '            findings = Findings(problem=f"{signature}: {findings.problem}")\n'
        "        files = audited_files(engine, node)\n",
        '            findings = Findings(problem=f"{signature}: {findings.problem}")\n'
        "        files = sent.files\n",
        (VERDICTS,),
        "vr_2",
    ),
    Mutant(
        "audit: a change of what is judged is overlooked",
        "runtime/audits.py",
        "    if changed:\n",
        "    if False:\n",
        (VERDICTS,),
        "vr_2",
    ),
    Mutant(
        "audit: clean though nobody can tell",
        "runtime/audits.py",
        "    if unknown and not held:\n",
        "    if False:\n",
        (VERDICTS,),
        "vr_2",
    ),
    Mutant(
        "audit: a verdict behind a link",
        "runtime/audits.py",
        '        if found is None or found.kind != "file" or engine.disk.real_path(path) !='
        " path:\n",
        "        if found is None:\n",
        (VERDICTS,),
        "vr_2",
    ),
    Mutant(
        "audit: what it cites need not be there",
        "runtime/audits.py",
        '        resolve_refs(engine, node, [ref for item in items for ref in item["evidence"]])\n',
        "        pass\n",
        (VERDICTS,),
        "vr_0",
    ),
    Mutant(
        "audit: holds for other content than is registered",
        "core/decide_audit.py",
        "    if other:\n",
        "    if False:\n",
        (VERDICTS, JUDGED),
    ),
    Mutant(
        "audit: holds for another rubric",
        "core/decide_audit.py",
        "    if command.rubric != plan.rubric:\n",
        "    if False:\n",
        (VERDICTS, JUDGED),
    ),
    Mutant(
        "audit: who did the work judges it",
        "core/decide_audit.py",
        "    if verifier.name in producer_names(node) or _is_contract_of(node,"
        " command.contract):\n",
        "    if False:\n",
        (VERDICTS, JUDGED),
        "inv_6 or contract",
    ),
    Mutant(
        "audit: asked again for ever",
        "core/decide_audit.py",
        '    if why and payload["round"] >= audits_max and not open_ones:\n',
        "    if False:\n",
        (VERDICTS,),
        "qa_1",
    ),
    Mutant(
        "audit: a verdict that falls short is a pass",
        "core/audits.py",
        '        return {**item, "pending": True, "detail": f"{missing}."}\n',
        '        return {**item, "passed": True, "detail": f"{missing}."}\n',
        (VERDICTS, JUDGED),
    ),
    Mutant(
        "audit: an auditor that was stopped with its run has failed",
        "control/audits.py",
        '            if settled or (ended.how == "stopped" and signal):\n',
        "            if settled:\n",
        (AUDITS,),
        "run_that_is_stopped",
    ),
    Mutant(
        "audit: an auditor writes wherever the work may",
        "control/audits.py",
        "    own = tuple(path for path in usual.write if path not in shared)\n",
        "    own = (*usual.write, layout.node_scope(order.node.node_id))\n",
        (AUDITS,),
        "writes_outside",
    ),
    Mutant(
        "audit: of work that is not finished",
        "core/decide_audit.py",
        '    if node.state != "VERIFYING":\n',
        "    if False:\n",
        (VERDICTS,),
        "n06",
    ),
    Mutant(
        "audit: anybody gives a verdict in the name of an auditor",
        "core/decide_audit.py",
        '    if verifier.role != "verifier" or not verifier.name or not (sent or asker =='
        " verifier):\n",
        "    if False:\n",
        (VERDICTS, JUDGED),
        "au_1 or name_of",
    ),
    # Confinement
    Mutant(
        "confinement: dropped when a child is started",
        "control/executors.py",
        "        confinement=confinement,\n    )\n",
        "        confinement=None,\n    )\n",
        (EXECUTORS,),
        "cannot_write_outside",
    ),
    Mutant(
        "confinement: a child that cannot be confined starts all the same",
        "control/confinement.py",
        "            _restrict_this_thread(confinement, capability())\n",
        "            try:\n"
        "                _restrict_this_thread(confinement, capability())\n"
        "            except StorageError:\n"
        "                pass\n",
        (CONFINED,),
        "refuses_after_all",
    ),
    Mutant(
        "confinement: the coordinator confines itself",
        "control/confinement.py",
        "    _thread.start_new_thread(restricted, ())\n    ended.acquire()\n",
        "    restricted()\n",
        (CONFINED,),
        "own_rights",
    ),
    Mutant(
        "confinement: files elsewhere can be emptied",
        "control/confinement.py",
        "        handled |= _TRUNCATE\n",
        "        pass\n",
        (CONFINED,),
    ),
    Mutant(
        "confinement: the network is always on",
        "control/executors.py",
        "launch.network or allows_network(granted))\n",
        "True)\n",
        (EXECUTORS,),
        "network",
    ),
    Mutant(
        "confinement: a worker of a batch node writes where its node may",
        "control/executors.py",
        "            paths = [path for path in paths if path != own]\n",
        "            pass\n",
        (JOIN,),
        "cannot_write",
    ),
    Mutant(
        "confinement: a grant opens nothing",
        "control/executors.py",
        "        write = [order.scope, *paths, *write]\n",
        "        write = [order.scope, *write]\n",
        (EXECUTORS,),
        "grant",
    ),
    Mutant(
        "confinement: units of a batch node are not held",
        "control/item_command.py",
        "            confinement=self._confinement,\n",
        "            confinement=None,\n",
        (EXECUTORS,),
        "batch_node",
    ),
    Mutant(
        "confinement: doctor does not say what leaves the journal open",
        "control/enforced.py",
        "        if opens_workspace(opened_paths(grants_of(node), root, place, home), root):\n",
        "        if False:\n",
        (EXECUTORS,),
        "doctor",
    ),
)
