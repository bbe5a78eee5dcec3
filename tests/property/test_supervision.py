"""What holds of supervision whatever a task, the disk and the memory look like.

States are generated wilder than any journal makes them: what holds here rests on no good behaviour
of whoever wrote them.
"""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.supervised import MINUTE, T0, ask, copy, output, step, task, under_contract

from perdure.core.codec import timestamp
from perdure.core.events import Entity, Event
from perdure.core.fold import Replica
from perdure.core.machine import open_deps
from perdure.core.model import CLOSED_STATES, NODE_STATES, Node, State
from perdure.core.observed import (
    DOWNLOAD_STATUSES,
    EXTERNAL_STATES,
    FAILURE_TYPES,
    Block,
    Download,
    ExternalJob,
    Reply,
    StepObserved,
)
from perdure.core.supervision import derive
from perdure.core.supervision_decide import PRECEDENCE, SEVERITY, decide_action, remember
from perdure.core.supervision_records import Action, Derived, Digest, Facts, Memory, SuspectedDeath
from perdure.core.supervision_updates import digest_of, updates_due

NAMES = [f"N{n}" for n in range(5)]
NAME = st.sampled_from(NAMES)
LATEST = 240
"""Minutes after the start by which everything has happened that a generated task knows of."""
PAST = st.integers(0, LATEST).map(lambda minutes: T0 + minutes * MINUTE)
LATER = st.integers(LATEST, 2 * LATEST).map(lambda minutes: T0 + minutes * MINUTE)
ANY_TIME = st.integers(0, 2 * LATEST).map(lambda minutes: T0 + minutes * MINUTE)
REF = st.integers(1, 100)

SEEN = st.builds(
    StepObserved,
    state=st.sampled_from(["RUNNING", "BLOCKED", "COMPLETED"]),
    progress_at=st.none() | PAST,
    completed_ref=REF.map(lambda n: f"J-{n}"),
    progress_after_completion=st.sampled_from(["", "", "", "J-90"]),
)
JOB = st.builds(
    ExternalJob,
    provider=st.just("acme"),
    job_id=st.just("1"),
    state=st.sampled_from(EXTERNAL_STATES),
    node=st.sampled_from(["", *NAMES]),
    facts=st.sampled_from([{}, {"status_url": "u"}, {"status_url": "u"}]),
    changed_at=PAST,
)
DOWNLOAD = st.builds(
    Download,
    download_id=st.just("d1"),
    status=st.sampled_from([*DOWNLOAD_STATUSES, "COMPLETE", "COMPLETE", "COMPLETE"]),
    node=st.sampled_from(["", *NAMES]),
)
REPLY = st.builds(
    Reply, letter=st.sampled_from("ABCDE"), ref=st.just("J-1"), at=PAST,
    node=st.sampled_from(["", *NAMES]),
)  # fmt: skip


ORDERLY_SEEN = st.builds(
    StepObserved, state=st.sampled_from(["RUNNING", "BLOCKED"]), progress_at=st.none() | PAST
)
RESTING = ["PENDING", "READY", "BLOCKED", "RETRYABLE"]


@st.composite
def states(draw: st.DrawFn, orderly: bool) -> State:
    """A task; an orderly one says nothing that by itself contradicts something."""
    nodes: dict[str, Node] = {}
    for name in NAMES[: draw(st.integers(0, 5))]:
        deps = draw(st.lists(st.sampled_from([*nodes]), max_size=2, unique=True)) if nodes else []
        waits = any(nodes[dep].state not in CLOSED_STATES for dep in deps)
        may_be = RESTING if orderly and waits else NODE_STATES
        nodes[name] = step(name, draw(st.sampled_from(may_be)), *deps, ref=draw(REF))
    present = [*nodes]
    blocks = {}
    for name in draw(st.lists(st.sampled_from(["", *NAMES]), max_size=2, unique=True)):
        failure = draw(st.sampled_from(["", "TIMEOUT", *FAILURE_TYPES]))
        blocks[name] = Block(f"J-{draw(REF)}", draw(PAST), "why", name, failure_type=failure)
    at_work = [n for n in present if nodes[n].state not in ("PENDING", "READY")]
    seen_at = at_work if orderly else present
    state = task(
        *nodes.values(),
        steps={n: draw(ORDERLY_SEEN if orderly else SEEN) for n in seen_at if draw(st.booleans())},
        blocks=blocks if draw(st.booleans()) else {},
        task_completed="" if orderly else draw(st.sampled_from(["", "J-70"])),
        retries={f"{name}:TIMEOUT": draw(st.integers(0, 3)) for name in blocks},
        external={"acme:1": draw(JOB)} if draw(st.integers(0, 3)) == 0 else {},
        downloads={} if orderly or draw(st.booleans()) else {"d1": draw(DOWNLOAD)},
        reply=draw(st.none() | REPLY),
        errors=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
        progress_at=draw(PAST),
        heartbeat_at=draw(st.none() | PAST),
        success_at=draw(st.none() | PAST),
    )
    for name in present:
        if nodes[name].state == "RUNNING" and draw(st.booleans()):
            under_contract(state, name, draw(PAST))
    for name in (
        draw(st.lists(st.sampled_from(present), max_size=2, unique=True)) if present else []
    ):
        to = draw(st.sampled_from(["gatekeeper", "gatekeeper", "coordinator"]))
        ask(state, name, f"Q-{name}", to=to, expires_at=draw(st.none() | ANY_TIME))
    if draw(st.booleans()):
        output(state, "A1", draw(st.none() | NAME))
    state.fsm_task = draw(st.sampled_from(["EXECUTING"] * 5 + ["SUSPENDED", "FINAL_AUDIT"]))
    return state


@st.composite
def facts_of(draw: st.DrawFn, orderly: bool) -> Facts:
    kinds = st.sampled_from(["process_gone", "contract_expired", "contract_expired"])
    death = st.builds(SuspectedDeath, st.just("it is gone"), st.just("a policy"), kinds)
    found = ["whole"] if orderly else ["whole", "missing", "changed"]
    return Facts(
        draw(st.dictionaries(st.just("A1"), st.sampled_from(found))),
        draw(st.dictionaries(NAME, PAST, max_size=1)),
        draw(st.dictionaries(NAME, death, max_size=1)),
    )


@st.composite
def memories(draw: st.DrawFn, state: State, facts: Facts) -> Memory:
    """A memory that carrying out actions at random moments has left, and then some."""
    memory = Memory()
    for at in sorted(draw(st.lists(PAST, max_size=4))):
        derived = derive(state, facts, at)
        action = decide_action(derived, state.policies, memory, at)
        memory = remember(memory, derived, action, at)
    if draw(st.booleans()):
        nudged, asked = draw(st.none() | PAST), draw(st.none() | PAST)
        memory = msgspec.structs.replace(
            memory, nudges=draw(st.integers(0, 3)), nudged_at=nudged, reconciled_at=asked
        )
    if draw(st.booleans()):
        keys = [f"block:{block.node}:{block.ref}" for block in state.observed.blocks.values()]
        memory = msgspec.structs.replace(memory, escalated=dict.fromkeys(keys, T0))
    return memory


@st.composite
def situations(draw: st.DrawFn) -> tuple[State, Facts, Memory]:
    orderly = draw(st.integers(0, 3)) > 0
    state, facts = draw(states(orderly)), draw(facts_of(orderly))
    return state, facts, draw(memories(state, facts))


def judge(state: State, facts: Facts, memory: Memory, now: float) -> tuple[Derived, Action]:
    derived = derive(state, facts, now)
    return derived, decide_action(derived, state.policies, memory, now)


@given(situations(), ANY_TIME)
def test_it_is_deterministic_total_and_changes_nothing_it_is_given(
    situation: tuple[State, Facts, Memory], now: float
) -> None:
    state, facts, memory = situation
    before = msgspec.json.encode([state, facts, memory])
    derived, action = judge(state, facts, memory, now)
    again = msgspec.convert(msgspec.to_builtins(memory), Memory)
    assert judge(copy(state), facts, again, now) == (derived, action)
    assert msgspec.json.encode([state, facts, memory]) == before
    assert sum(row.name == action.row for row in PRECEDENCE) == 1
    assert action.reason
    assert action.next_action
    msgspec.json.encode([derived, action])


@given(situations(), ANY_TIME)
def test_no_contradiction_comes_to_ok_or_to_any_line_but_the_second(
    situation: tuple[State, Facts, Memory], now: float
) -> None:
    derived, action = judge(*situation, now)
    assert (derived.truth_state == "INCONSISTENT") == bool(derived.inconsistencies)
    if derived.inconsistencies:
        assert action.line == 2
        assert SEVERITY[action.state] >= SEVERITY["OWNER_RECONCILE"]
        assert derived.user_facing.outcome != "SUCCESS"


def with_progress(state: State, node_id: str, now: float) -> State:
    """The state after progress on a step was observed just now, by the fold itself."""
    replica = Replica(copy(state))
    event = Event(
        state.seq + 1, timestamp(now), "executor:x", "STEP_PROGRESS", entity=Entity("node", node_id)
    )
    replica.apply(event)
    return replica.state


@given(situations(), LATER, st.data())
def test_progress_on_an_open_step_with_its_deps_done_never_makes_the_action_more_severe(
    situation: tuple[State, Facts, Memory], now: float, data: st.DataObject
) -> None:
    state, facts, memory = situation
    derived, action = judge(state, facts, memory, now)
    may_move = [
        name
        for name, node in state.nodes.items()
        if node.state not in CLOSED_STATES
        and derived.step_states[name] != "COMPLETED"
        and not open_deps(state, node)
    ]
    if not may_move:
        return
    moved = with_progress(state, data.draw(st.sampled_from(may_move)), now)
    after = judge(moved, facts, memory, now)[1]
    assert SEVERITY[after.state] <= SEVERITY[action.state], (action, after)


@given(situations(), LATER, LATER)
def test_time_alone_never_makes_the_action_less_severe(
    situation: tuple[State, Facts, Memory], one: float, other: float
) -> None:
    """So it is while nothing is carried out: what is remembered lies before both moments."""
    first, second = sorted((one, other))
    earlier, later = judge(*situation, first)[1], judge(*situation, second)[1]
    assert SEVERITY[later.state] >= SEVERITY[earlier.state], (earlier, later)


@given(situations(), LATER)
def test_carried_out_at_once_again_and_again_it_soon_has_nothing_to_say(
    situation: tuple[State, Facts, Memory], now: float
) -> None:
    state, facts, memory = situation
    derived = derive(state, facts, now)
    said: list[tuple[Any, ...]] = []
    for _ in range(8):
        action = decide_action(derived, state.policies, memory, now)
        if not action.due or action.state == "STOP_AND_DELETE":
            break
        said.append((action.state, action.about))
        memory = remember(memory, derived, action, now)
    else:
        raise AssertionError(said)
    assert len(said) == len(set(said)), "nothing is said twice"


@given(situations(), LATER)
def test_what_was_told_is_told_once_under_the_same_id(
    situation: tuple[State, Facts, Memory], now: float
) -> None:
    derived, action = judge(*situation, now)
    found = updates_due(Digest(), derived, action)
    ids = [update.update_id for update in found]
    assert len(ids) == len(set(ids))
    assert updates_due(Digest(), derived, action) == found
    assert updates_due(digest_of(Digest(), derived), derived) == ()
    kinds = {update.kind for update in found}
    assert ("COMPLETED_HANDOFF" in kinds) == (derived.user_facing.outcome == "SUCCESS")
