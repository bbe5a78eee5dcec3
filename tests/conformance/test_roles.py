"""Who may do what (protocol section 12): AU-1, AU-2, H4, INV-6, VR-1."""

import json
from typing import get_args

import pytest
from tests.conformance.host import Host
from tests.unit.core.story import Story

from perdure import HaltError, HaltRuntime, RefusedError, UsageError
from perdure.core import closing_commands as k
from perdure.core import commands as c
from perdure.core import dispatch_commands as d
from perdure.core import observed_commands as o
from perdure.core.authority import check_authority, check_ruling, holders, owns
from perdure.core.model import Budget, Executor, Integrity, Spec, State
from perdure.core.people import Gate, Question
from perdure.core.rights import ROLES
from perdure.runtime.batching import Committed
from perdure.runtime.calls import perform
from perdure.storage import spool

INTEGRITY = Integrity("sha256", "ab" * 32, 3, "2027-01-15T08:00:00.000+00:00")
BEN = Executor("executor:ben")

ALL = frozenset(ROLES)
WORK = frozenset({"coordinator", "executor"})
RULE = frozenset({"sponsor", "gatekeeper"})
TASK = frozenset({"coordinator", "sponsor"})
GRAPH = frozenset({"coordinator"})


# What is written in the protocol, said once more: the table in the code must say the same.
MATRIX: list[tuple[c.Command, frozenset[str]]] = [
    (c.StartTask("T2"), TASK),
    (c.AddNode("N9", "new"), GRAPH),
    (c.AmendNode("N2", {"title": "other"}, "why"), TASK),
    (c.SplitNode("N2", (c.AddNode("N9", "new"),), "why"), GRAPH),
    (c.QuarantineNode("N2", "why"), GRAPH),
    (c.CancelNodes(("N2",), "why"), TASK),
    (c.RetryNode("N1", "why"), GRAPH | RULE),
    (c.FailNode("N1", "transient-agent", "exit 1"), WORK),
    (c.RecordReceipt("N1", "proof"), WORK | RULE),
    (c.RegisterArtifact("A1", "artifacts/N1/a", "doc", INTEGRITY, "N1"), WORK),
    (c.AttachArtifact("N1", "A1"), WORK),
    (c.Beat(("N1",)), WORK),
    (c.WriteNote("text"), ALL),
    (c.RecordDecision("", "text"), TASK),
    (c.AskQuestion("text", node_id="N1"), ALL - {"recorder"}),
    (c.AskGate("N1", "G1"), ALL),
    (c.PropagateSteering("ST-1", "text"), ALL),
    (c.AnswerQuestion("Q-001", "answer", "text"), GRAPH | RULE),
    (c.LogSteering("", "text"), TASK),
    (c.AmendGoal("text", "why"), frozenset({"sponsor"})),
    (c.ChangePolicy("retry_budget", 3, "why"), TASK),
    (o.Observe("STEP_PROGRESS", "node", "N1"), WORK | {"recorder", "sponsor"}),
    (o.ConfirmBlock("N1", "why", ("x",), "wait"), WORK),
    (o.RecordReply("A", "N1"), WORK),
    (c.MoveTask("SUSPENDED"), TASK),
    (c.AppendRaw("STEP_PROGRESS", "node", "N1", {}), WORK | {"recorder", "sponsor"}),
    (d.OpenSlot("N1", "inv-1", "ab" * 32, "executor:inv-1", 1), GRAPH),
    (d.CloseSlot("inv-1", "landed", 1), GRAPH),
    (d.Suspect("inv-1", 9.0, 3.0, "policy"), GRAPH),
    (d.RecordLate("N1", "inv-1", 1), GRAPH),
    (d.ChangeMode("C", "why"), TASK),
    (d.RecordAudit("N1", "verifier:eve", True, "clean", ("I1",), {}, "", ()), GRAPH | {"verifier"}),
    (d.RecordPlan({}), GRAPH),
    (d.MovePhase("plan"), GRAPH),
    (k.RecordTaskAudit({}), TASK | {"verifier", "gatekeeper"}),
    (k.CorrectTaskAudit("J-1", {}, (), "why"), TASK | {"verifier", "gatekeeper"}),
    (k.OpenRepairs({}, ()), GRAPH),
    (k.ArchiveTask({}, (), "note"), TASK),
    (k.AcceptContent(), frozenset({"sponsor"})),
    (k.CloseTask(), TASK),
    (k.NoteDoc("tmp/a", "why"), ALL),
    (k.NoteStale({}), ALL),
    (k.RecordWalk(1, {}, "so many commits"), GRAPH),
    (c.MoveNode("N2", "RUNNING"), WORK),
    (c.MoveNode("N1", "VERIFYING"), WORK),
    (c.MoveNode("N1", "BLOCKED"), WORK),
    (c.MoveNode("N1", "RETRYABLE"), WORK),
    (c.MoveNode("N1", "DONE"), ALL - {"recorder"}),
    (c.MoveNode("N2", "CANCELLED"), TASK),
    (c.MoveNode("N2", "READY"), GRAPH),
    (c.MoveNode("N2", "QUARANTINED"), GRAPH),
]


def at_work() -> Story:
    """N1 is at work under executor:ben; N2 is not; both belong to a task that names nobody."""
    story = Story()
    story.add("N1", outputs=("artifacts/N1/a", "shared/b"))
    story.add("N2")
    story.start("N1", executor=BEN)
    return story


def refusal(story: Story, actor: str, command: c.Command) -> HaltError | None:
    """How authority alone judges it."""
    try:
        check_authority(story.replica.state, command, c.Context(story.now, actor))
    except HaltError as error:
        return error
    return None


def kind_of(command: c.Command) -> str:
    to = f" to {command.to}" if isinstance(command, c.MoveNode) else ""
    return f"{type(command).__name__}{to}"


def test_every_command_is_in_the_matrix() -> None:
    assert {type(command) for command, _ in MATRIX} == set(get_args(c.Command))


@pytest.mark.parametrize(("command", "roles"), MATRIX, ids=[kind_of(m[0]) for m in MATRIX])
def test_au_1_a_role_may_do_what_it_is_given_and_nothing_else(
    command: c.Command, roles: frozenset[str]
) -> None:
    story = at_work()
    for role in ROLES:
        error = refusal(story, f"{role}:ben", command)
        if role in roles:
            assert error is None, (role, str(error))
            continue
        assert isinstance(error, RefusedError)
        assert (error.code, error.rule, error.exit_code) == ("role_may_not", "AU-1", 4)
        named = error.message.rpartition("takes the role ")[2].rstrip(".").split(" or ")
        assert set(named) == roles, "a refusal names who may"
        assert "--actor" in error.fix


@pytest.mark.parametrize(
    ("alias", "role"), [("coord", "coordinator"), ("worker", "executor"), ("auditor", "verifier")]
)
def test_aliases_are_read_as_the_roles_they_stand_for(alias: str, role: str) -> None:
    story = at_work()
    for command, roles in MATRIX:
        error = refusal(story, f"{alias}:ben", command)
        assert (error is None) == (role in roles), kind_of(command)


@pytest.mark.parametrize(
    ("actor", "near"), [("sponser:x", "sponsor"), ("a:b", None), ("executer:x", "executor")]
)
def test_a_role_that_there_is_not_is_refused_with_those_there_are(
    actor: str, near: str | None
) -> None:
    error = refusal(at_work(), actor, c.WriteNote("text"))
    assert isinstance(error, UsageError)
    assert (error.code, error.rule) == ("unknown_role", "AU-1")
    assert all(role in error.fix for role in ROLES)
    assert (near in error.suggestions) if near else error.suggestions == []


def test_nobody_is_told_to_ask_who_may_not() -> None:
    for actor, may in (("executor:ben", True), ("recorder:ben", False)):
        error = refusal(at_work(), actor, c.AmendGoal("x", "y"))
        assert error is not None
        assert ("perdure ask" in error.fix) == may
        assert "--actor sponsor:NAME" in error.fix


# An executor and its node


OF_ITS_NODE = [
    c.FailNode("N1", "transient-agent", "exit 1"),
    c.RecordReceipt("N1", "proof"),
    c.RegisterArtifact("A1", "artifacts/N1/a", "doc", INTEGRITY, "N1"),
    c.AttachArtifact("N1", "A1"),
    c.Beat(("N1",)),
    c.AskQuestion("text", node_id="N1"),
    o.Observe("STEP_PROGRESS", "node", "N1"),
    o.Observe("STEP_COMPLETED", "node", "N1", claim=True),
    o.ConfirmBlock("N1", "why", ("x",), "wait"),
    o.RecordReply("A", "N1"),
    c.AppendRaw("STEP_PROGRESS", "node", "N1", {}),
    c.MoveNode("N1", "VERIFYING"),
    c.MoveNode("N1", "BLOCKED"),
    c.MoveNode("N1", "RETRYABLE"),
]


@pytest.mark.parametrize("command", OF_ITS_NODE, ids=kind_of)
def test_au_2_an_executor_acts_on_the_node_whose_contract_is_its_own(command: c.Command) -> None:
    story = at_work()
    for mine in ("executor:ben", "worker:ben", "executor:inv-N1-1"):
        assert refusal(story, mine, command) is None
    for other in ("executor:eve", "executor:inv-N2-1", "executor:coordinator"):
        error = refusal(story, other, command)
        assert error is not None
        assert (error.code, error.rule) == ("not_yours", "AU-2")
        assert "executor:ben" in error.message
        assert "perdure ask" in error.fix


def test_au_2_an_executor_speaks_for_its_node_and_not_for_the_task() -> None:
    story = at_work()
    whole: list[c.Command] = [
        o.ConfirmBlock("", "why", ("x",), "wait"),
        o.RecordReply("A"),
        o.Observe("TASK_COMPLETED", "task", ""),
        c.RegisterArtifact("A1", "artifacts/N1/a", "doc", INTEGRITY, None),
    ]
    for command in whole:
        error = refusal(story, "executor:ben", command)
        assert error is not None, command
        assert error.rule == "AU-2"
    assert refusal(story, "executor:ben", c.AskQuestion("of nothing")) is None
    job = o.Observe("EXTERNAL_OBSERVED", "external_job", "p:7")
    assert refusal(story, "executor:ben", job) is None


def test_au_2_the_contract_ends_with_the_attempt() -> None:
    story = at_work()
    story.fail("N1")
    beat = c.Beat(("N1",))
    error = refusal(story, "executor:ben", beat)
    assert error is not None
    assert "RETRYABLE" in error.message
    assert refusal(story, "executor:ben", c.MoveNode("N1", "RUNNING")) is None
    story.start("N1", executor=Executor("worker:eve"))
    assert refusal(story, "executor:eve", beat) is None
    assert refusal(story, "executor:inv-N1-1", beat) is not None
    state = story.replica.state
    assert [owns(state, story.node("N1"), actor) for actor in ("executor:eve", "sponsor:eve")] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("path", "granted"),
    [
        ("artifacts/N1/deep/a.txt", True),
        ("shared/b", True),
        ("shared/c", False),
        ("artifacts/N2/a.txt", False),
        ("artifacts/N10/a.txt", False),
        ("tmp/a.txt", False),
    ],
)
def test_au_1_an_executor_registers_what_its_contract_grants(path: str, granted: bool) -> None:
    command = c.RegisterArtifact("A1", path, "doc", INTEGRITY, "N1")
    error = refusal(at_work(), "executor:ben", command)
    assert (error is None) == granted
    if error is not None:
        assert (error.code, error.rule) == ("outside_grants", "AU-1")
    assert refusal(at_work(), "coordinator:main", command) is None


def test_au_1_an_executor_does_not_call_its_failure_an_interruption() -> None:
    command = c.FailNode("N1", "transient-agent", "exit 1", interruption=True)
    error = refusal(at_work(), "executor:ben", command)
    assert error is not None
    assert "strike" not in error.message
    assert error.rule == "AU-1"


@pytest.mark.parametrize("role", ["executor", "verifier", "recorder"])
def test_au_1_notes_that_the_runtime_reads_are_the_coordinators(role: str) -> None:
    assert refusal(at_work(), f"{role}:ben", c.WriteNote("x", "source")) is not None
    assert refusal(at_work(), "coordinator:ben", c.WriteNote("x", "source")) is None


def test_a_recorder_claims_nothing_and_a_sponsor_leaves_the_graph_alone() -> None:
    claim = o.Observe("STEP_COMPLETED", "node", "N1", claim=True)
    assert refusal(at_work(), "recorder:ben", claim) is not None
    deps = c.AmendNode("N2", {"deps": ["N1"]}, "why")
    assert refusal(at_work(), "sponsor:ben", deps) is not None


# People who are named


def named() -> Story:
    story = Story(begun=False)
    people = {"sponsor": "sponsor:ann", "gatekeeper": ["bob", "bea"], "gates": {"G-pub": "cyd"}}
    story.do(c.StartTask("T1", people=people))
    story.add("N1", gates=(Gate("G-own", gatekeeper=("gatekeeper:dan",)), Gate("G-pub")))
    return story


def test_h4_where_people_are_named_nobody_else_acts_for_them() -> None:
    story = named()
    for actor in ("sponsor:ann", "gatekeeper:bob", "gatekeeper:bea"):
        assert refusal(story, actor, c.RetryNode("N1", "why")) is None
    for command in (c.AmendGoal("x", "y"), c.LogSteering("", "x"), c.CancelNodes(("N1",), "y")):
        error = refusal(story, "sponsor:eve", command)
        assert error is not None
        assert (error.code, error.rule) == ("not_the_holder", "H4")
        assert "ann" in error.message
        assert "sponsor:ann" in error.fix
    assert refusal(story, "gatekeeper:ann", c.RetryNode("N1", "why")) is not None
    assert refusal(story, "sponsor:eve", c.WriteNote("anybody may say this")) is None
    assert refusal(story, "coordinator:eve", c.CancelNodes(("N1",), "y")) is None


def test_h4_a_gate_names_its_keeper_before_the_task_does() -> None:
    state = named().replica.state
    own, public = state.nodes["N1"].spec.gates
    assert holders(state, "gatekeeper", own) == ("dan",)
    assert holders(state, "gatekeeper", public) == holders(state, "sponsor", "G-pub") == ("cyd",)
    assert holders(state, "gatekeeper") == holders(state, "gatekeeper", "G-x") == ("bob", "bea")
    assert holders(state, "coordinator") == ()


QUESTIONS = {
    "own": Question("G-own", "?", "N1", "J-1", kind="gate", gate="G-own"),
    "public": Question("G-pub", "?", "N1", "J-1", kind="judgement", gate="G-pub"),
    "plain": Question("Q-001", "?", "N1", "J-1"),
    "to the sponsor": Question("Q-002", "?", None, "J-1", to="sponsor"),
    "to the coordinator": Question("Q-003", "?", None, "J-1", to="coordinator"),
}


@pytest.mark.parametrize(
    ("question", "may"),
    [
        ("own", {"gatekeeper:dan", "sponsor:dan"}),
        ("public", {"gatekeeper:cyd", "sponsor:cyd"}),
        ("plain", {"gatekeeper:bob", "gatekeeper:bea", "sponsor:ann"}),
        ("to the sponsor", {"sponsor:ann"}),
        (
            "to the coordinator",
            {"gatekeeper:bob", "gatekeeper:bea", "sponsor:ann"}
            | {f"coordinator:{name}" for name in ("ann", "bob", "bea", "cyd", "dan", "eve")},
        ),
    ],
)
def test_h4_who_rules_on_which_question(question: str, may: set[str]) -> None:
    state = named().replica.state
    names = ("ann", "bob", "bea", "cyd", "dan", "eve")
    everybody = [f"{role}:{name}" for role in ROLES for name in names]
    assert {actor for actor in everybody if rules_on(state, QUESTIONS[question], actor)} == may


def rules_on(state: State, question: Question, actor: str) -> bool:
    try:
        check_ruling(state, question, c.Context(0.0, actor))
    except RefusedError:
        return False
    return True


def test_inv_6_nobody_rules_at_the_gate_of_their_own_work() -> None:
    story = at_work()
    state = story.replica.state
    gate = Question("G-1", "?", "N1", "J-1", kind="gate", gate="G-1", asked_by="executor:ben")
    for actor in ("gatekeeper:ben", "sponsor:inv-N1-1"):
        with pytest.raises(RefusedError) as caught:
            check_ruling(state, gate, c.Context(0.0, actor))
        assert (caught.value.code, caught.value.rule) == ("own_gate", "INV-6")
    check_ruling(state, gate, c.Context(0.0, "gatekeeper:eve"))


def test_inv_6_who_did_the_work_does_not_rule_on_it_whoever_asked() -> None:
    story = at_work()
    gate = Question("G-1", "?", "N1", "J-1", kind="gate", gate="G-1", asked_by="coordinator:main")
    story.register("N1", "A1")
    story.claim("N1")
    state = story.replica.state
    assert not rules_on(state, gate, "gatekeeper:ben")
    assert rules_on(state, gate, "gatekeeper:eve")
    plain = Question("Q-001", "?", "N1", "J-1", asked_by="coordinator:main")
    assert rules_on(state, plain, "sponsor:ben")


# Over the runtime


def test_vr_1_less_verification_takes_the_sponsor_and_more_takes_nobody(rt: HaltRuntime) -> None:
    rt.add_node("N1", "first", verification_level="V2")
    rt.amend_node("N1", "it matters", verification_level="V3")
    before = rt.seq_last
    with pytest.raises(RefusedError) as caught:
        rt.amend_node("N1", "quicker", verification_level="V1", goal="x")
    assert (caught.value.code, caught.value.rule) == ("role_may_not", "VR-1")
    assert (rt.seq_last, rt.node("N1").verification_level) == (before, "V3")
    with rt.engine.acting_as("sponsor:ann"):
        rt.amend_node("N1", "quicker", verification_level="V1", goal="x")
    decided, amended = rt.events()[-2:]
    assert (decided.kind, decided.payload["choice"], decided.actor) == (
        "DECISION",
        "V1",
        "sponsor:ann",
    )
    assert (amended.kind, rt.node("N1").amended_by[-1]) == ("AMENDMENT", amended.ref)
    assert rt.node("N1").verification_level == "V1"


@pytest.mark.parametrize(
    "fields", [{"gates": ()}, {"gates": (Gate("G-other"),)}, {"acceptance_criteria": ()}]
)
def test_vr_1_nobody_but_the_sponsor_takes_a_gate_away(
    rt: HaltRuntime, fields: dict[str, object]
) -> None:
    rt.add_node("N1", "first", gates=(Gate("G-N1"),), accept="human: fit to print?")
    with pytest.raises(RefusedError, match="only the sponsor asks for less"):
        rt.amend_node("N1", "quicker", **fields)
    rt.amend_node("N1", "clearer", gates=(Gate("G-N1", question="Print it?"), Gate("G-more")))
    with rt.engine.acting_as("sponsor:ann"):
        rt.amend_node("N1", "quicker", **fields)


def test_vr_1_a_milder_effect_does_not_take_the_gate_of_its_class_away(rt: HaltRuntime) -> None:
    rt.add_node("N1", "pay", effect="S3")
    with pytest.raises(RefusedError, match="lose gate G-N1-start"):
        rt.amend_node("N1", "it is harmless", effect="S0")
    rt.amend_node("N1", "said aloud", gates=(Gate("G-pay", "start"),))
    assert rt.node("N1").effect == "S3"


def test_vr_1_a_failed_node_is_ready_again_by_the_amendment_behind_the_decision(
    rt: HaltRuntime,
) -> None:
    rt.add_node("N1", "first", verification_level="V2")
    rt.start("N1")
    rt.fail("N1", "transient-agent", "exit 1")
    with rt.engine.acting_as("sponsor:ann"):
        rt.amend_node("N1", "quicker", verification_level="V1", goal="another")
    amended, ready = rt.events()[-2:]
    assert (ready.payload["edge"], ready.payload["amendment"]) == ("N12", amended.ref)


def test_an_executor_lives_its_whole_attempt_and_nothing_else(host: Host) -> None:
    with host.open() as runtime:
        runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
        runtime.add_node("N2", "second")
    worker = host.attach(200, actor="executor:x")
    worker.start("N1", session=True)
    worker.beat()
    host.write("artifacts/N1/a.txt")
    for refused in (
        lambda: worker.start("N2", session=True) and worker.cancel(["N2"], "no"),
        lambda: worker.add_node("N3", "third"),
        lambda: worker.goal("another", "why"),
        lambda: worker.amend_node("N2", "why", title="x"),
        lambda: worker.steering("", "do otherwise"),
        lambda: worker.policy("retry_budget", 9, "why"),
        lambda: host.attach(300, actor="executor:y").submit("N1"),
    ):
        with pytest.raises(RefusedError) as caught:
            refused()
        assert caught.value.rule in ("AU-1", "AU-2")
    worker.submit("N1")
    assert worker.node("N1").state == "DONE"
    made = {event.actor for event in worker.events() if event.entity.id in ("N1", "A-N1")}
    assert made == {"coordinator:main", "executor:x"}


def test_a_contract_lists_what_it_grants_and_names_its_executor(
    host: Host, rt: HaltRuntime
) -> None:
    budget = Budget(max_cost_usd=2.5)
    spec = Spec(outputs=("artifacts/N1/a", "shared/b"), budget=budget)
    rt.add_node("N1", "first", spec=spec, effect="S2")
    rt.start("N1")
    contract = json.loads(host.read(f"contracts/{rt.node('N1').invocation}.json"))
    assert contract["authority_grants"] == [
        "write:artifacts/N1/*",
        "write:tmp/*",
        "write:shared/b",
        "network:read",
        "spend:max_usd=2.5",
    ]
    assert contract["executor"]["actor"] == "coordinator:main"
    assert contract["parent"]["goal"] == "g"


def test_a_message_in_the_drop_box_is_judged_by_its_sender(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("N1", "first")
    disk, layout = rt.engine.disk, rt.engine.layout
    for number, sender in enumerate(("executor:x", "sponsr:ann", "sponsor:ann")):
        message = spool.Message(f"m{number}", "cancel", {"nodes": ["N1"]}, sender, float(number))
        spool.drop(disk, layout, message)
    rt.engine.tick()
    results = [spool.take_result(disk, layout, f"m{number}") for number in range(3)]
    told = [(result or {}).get("error", {}).get("code") for result in results]
    assert told == ["role_may_not", "unknown_role", None]
    assert (rt.node("N1").state, rt.events()[-1].actor) == ("CANCELLED", "sponsor:ann")


def test_a_process_under_a_contract_speaks_by_the_name_of_the_contract(
    host: Host, rt: HaltRuntime
) -> None:
    for name in ("N1", "N2"):
        rt.add_node(name, "a node")
        rt.start(name)
    with rt.engine.acting_as(f"executor:{rt.node('N2').invocation}"):
        beat = perform(rt.engine, "beat", {})
    assert beat["nodes"] == ["N2"]
    with rt.engine.acting_as("coordinator:main"):
        assert perform(rt.engine, "beat", {})["nodes"] == ["N1", "N2"]


@pytest.mark.parametrize("role", ["executor", "verifier", "recorder", "gatekeeper"])
def test_only_who_directs_a_task_takes_its_lease(host: Host, role: str) -> None:
    host.open().close()
    before = host.read()
    with pytest.raises(RefusedError) as caught:
        host.resume(200, actor=f"{role}:x")
    assert (caught.value.rule, "coordinate" in caught.value.message) == ("AU-1", True)
    assert host.read() == before
    host.resume(200, actor="sponsor:ann").close()


def test_a_run_loop_is_not_paused_by_whoever_works_in_it(rt: HaltRuntime) -> None:
    asked: list[str] = []
    rt.engine.on_pause = lambda reason, op: asked.append(reason) or Committed("J-1", ())
    for actor in ("executor:x", "gatekeeper:gina"):
        with rt.engine.acting_as(actor), pytest.raises(RefusedError):
            perform(rt.engine, "pause", {"reason": actor})
    with rt.engine.acting_as("sponsor:ann"):
        perform(rt.engine, "pause", {"reason": "lunch"})
    assert asked == ["lunch"]
