"""What a node does is read whole or refused with its place: python, agent, sop, human, grants."""

from typing import Any

import pytest

from perdure.control.plan_digest import entry_digests
from perdure.control.taskfile import TaskFile, load_task_file
from perdure.core.actions import AgentCall, HumanSlot, PythonCall, SopCall
from perdure.core.batch import action_of, criteria_of, is_sharded, recipe_of
from perdure.core.grants import grants_max
from perdure.core.model import Criterion, MapSpec, Node, Spec
from perdure.errors import TaskFileError, UsageError
from perdure.runtime.specs import make_spec


def load(text: str) -> TaskFile:
    return load_task_file("task.yaml", text.encode())


def node(body: str, head: str = "") -> str:
    """A file whose only node is ``a`` with these lines, which begin in line 4."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"task: t\n{head}nodes:\n  - id: a\n{lines}"


def spec_of(body: str, head: str = "") -> Spec:
    [plan] = load(node(body, head)).nodes
    return plan.spec


def problems_of(text: str) -> list[str]:
    with pytest.raises(TaskFileError) as caught:
        load(text)
    return [
        line.strip().removeprefix("task.yaml:") for line in caught.value.message.splitlines()[1:]
    ]


@pytest.mark.parametrize(
    ("body", "kind", "call"),
    [
        ("python: stats.mean:compute", "python", PythonCall("stats.mean:compute")),
        (
            "python: {call: 'steps/clean it.py:main', args: {n: 3, deep: [1, {x: null}]}}",
            "python",
            PythonCall("steps/clean it.py:main", {"n": 3, "deep": [1, {"x": None}]}),
        ),
        ("agent: claude", "agent", AgentCall("claude")),
        (
            "agent: {agent: codex, model: big-1, args: [--profile, '']}",
            "agent",
            AgentCall("codex", (), "big-1", ("--profile", "")),
        ),
        (
            "agent: {command: [my-agent, '{message}'], model: m}",
            "agent",
            AgentCall("command", ("my-agent", "{message}"), "m"),
        ),
        ("sop: perdure.batch-extraction", "sop", SopCall("perdure.batch-extraction")),
        (
            "sop: {sop: cards/x.yaml, version: 1.0.0, inputs: {documents: docs/*.md, n: 2}}",
            "sop",
            SopCall("cards/x.yaml", "1.0.0", {"documents": "docs/*.md", "n": 2}),
        ),
        ("human: true", "human", HumanSlot()),
        ("human: {}", "human", HumanSlot()),
        ("human: ada", "human", HumanSlot("ada")),
        ("human: {who: ada}", "human", HumanSlot("ada")),
        ("human: 1", "human", HumanSlot("1")),
    ],
)
def test_each_action_is_read_into_its_record(body: str, kind: str, call: object) -> None:
    spec = spec_of(body)
    assert action_of(spec) == kind
    assert getattr(spec, kind) == call


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("python: print", "4:13: python 'print' names no function (write MODULE:FUNCTION, or"),
        ("python: 'a b:c'", "4:13: python 'a b:c' names no function"),
        ("python: {call: x.py}", "4:20: python.call 'x.py' names no function"),
        ("python: {args: {}}", "4:13: there is no call (add call: MODULE:FUNCTION)"),
        ("python: {function: x}", "4:14: python has no key 'function' (write call)"),
        ("python: {call: 'a:b', args: [1]}", "4:33: python.args must be a mapping of names to"),
        ("python: {call: 'a:b', args: {x: 1e999}}", "4:37: python.args holds a number that is too"),
        ("python: [x]", "4:13: python must be a mapping of call, args"),
        ("agent: clod", "4:12: agent cannot be 'clod' (use one of claude, codex, gemini, command)"),
        ("agent: command", "4:12: agent: the agent command has no command (write {agent:"),
        ("agent: {agent: command}", "4:12: agent: the agent command has no command (add command"),
        ("agent: {model: x}", "4:12: agent does not say which agent (add agent: one of claude"),
        ("agent: {agent: claude, command: [x]}", "4:28: agent: claude is started in its own way"),
        ("agent: {command: x}", "4:22: agent.command must be a list of words (write [WORD, ...])"),
        ("agent: {command: ['']}", "4:23: each word of agent.command is empty"),
        ("agent: {command: []}", "4:22: agent.command must start with a program"),
        ("agent: {command: [x], args: [y]}", "4:27: agent: the agent command takes no args"),
        (
            "agent: {command: [x, '{contrct}']}",
            "4:22: agent.command has no {contrct} to fill in (did you mean contract? it knows {",
        ),
        ("agent: {command: ['{taskdir}/x']}", "4:22: agent.command has no {taskdir} to fill in"),
        (
            "map: {list: [x], agent: {command: [x, '{unit}']}}",
            "4:39: map.agent.command has no {unit}",
        ),
        (
            "run: x\naccept: [audit: {rubric: r, agent: {agent: command, command: ['{mesage}']}}]",
            "5:14: the command of the auditor has no {mesage} to fill in (did you mean {message}?",
        ),
        ("agent: {agent: claude, model: --x}", "4:35: agent.model '--x' begins like an option"),
        ("agent: {agent: claude, prompt: x}", "4:28: agent has no key 'prompt' (write goal, at"),
        ("sop: {id: x}", "4:11: sop has no key 'id' (write sop)"),
        ("sop: {version: '1'}", "4:10: there is no sop (add sop: CARD)"),
        ("sop: {sop: x, inputs: y}", "4:27: sop.inputs must be a mapping of names to values"),
        ("human: false", "4:12: human is false (remove it, or name somebody)"),
        ("human: [ada]", "4:12: human must be a text"),
        ("human: ada lovelace", "4:12: human: 'ada lovelace' holds a blank"),
        ("human: {name: ada}", "4:13: human has no key 'name' (write who)"),
        ("run: x\nagent: claude", "5:5: a node has either run or agent (make two nodes of it)"),
        ("human: ada\nsop: x", "5:5: a node has either sop or human (make two nodes of it)"),
        ("grants: write:x", "4:13: grants must be a list"),
        ("grants: [write]", "4:14: 'write' is no grant: it does not begin with write:"),
        ("grants: ['network:all']", "4:14: 'network:all' is no grant: network is followed by"),
        ("grants: ['write:../x']", "4:14: 'write:../x' is no grant: the path climbs out"),
        ("grants: ['spend:max_usd=-1']", "4:14: 'spend:max_usd=-1' is no grant: spend is"),
        ("permissions: [x]", "4:5: a node has no key 'permissions' (write grants)"),
    ],
)
def test_one_mistake_is_one_problem_with_its_place(body: str, problem: str) -> None:
    found = problems_of(node(body))
    assert len(found) == 1, found
    assert found[0].startswith(problem)


def test_grants_of_the_task_come_before_those_of_the_node() -> None:
    spec = spec_of(
        "run: x\ngrants: ['write:out/*', 'network:read']",
        "grants: ['write:$TASK/*', 'write:out/*']\n",
    )
    assert spec.grants == ("write:$TASK/*", "write:out/*", "network:read")
    assert spec_of("run: x", "grants: ['network:read']\n").grants == ("network:read",)


def test_more_grants_than_a_node_may_have_are_refused() -> None:
    half = grants_max // 2 + 1
    task = ", ".join(f"'write:a/{number}'" for number in range(half))
    own = ", ".join(f"'write:b/{number}'" for number in range(half))
    [told] = problems_of(node(f"grants: [{own}]", f"grants: [{task}]\n"))
    assert told.startswith(
        f"5:5: the node has {2 * half} grants, the task's included; {grants_max}"
    )


def test_batch_node_may_hand_shards_to_an_agent() -> None:
    batch = spec_of(
        "map: {list: [x], agent: {agent: codex, model: m}, shard: 5, smoke: true,"
        " schema: {type: object, required: [n]}}"
    ).map
    assert batch is not None
    assert batch.agent == AgentCall("codex", model="m")
    assert (batch.shard, batch.smoke, batch.run) == (5, True, ())
    assert batch.schema == {"type": "object", "required": ["n"]}
    assert is_sharded(batch)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("map: {list: [x], agent: claude, run: y}", "4:5: map has both run and agent (remove one"),
        ("map: {list: [x], agent: clod}", "4:29: map.agent cannot be 'clod'"),
        ("map: {list: [x], run: y, shard: 0}", "4:37: map.shard must be a whole number from 1"),
        ("map: {list: [x], run: y, smoke: maybe}", "4:37: map.smoke must be true or false"),
        ("map: {list: [x], run: y, schema: {}}", "4:5: map has a schema and no shards, whose"),
        ("map: {list: [x], run: y, shard: 2, schema: x}", "4:48: map.schema must be a mapping"),
        (
            "map: {list: [x], run: y}\nagent: claude",
            "5:5: a node has either map or agent (keep the",
        ),
    ],
)
def test_mistake_in_a_sharded_map_is_one_problem_with_its_place(body: str, problem: str) -> None:
    found = problems_of(node(body))
    assert len(found) == 1, found
    assert found[0].startswith(problem)


def test_levels_and_effects_of_the_full_format_are_read() -> None:
    [plan] = load(
        node("agent: claude\nverify: V2\neffect: S1\naccept: ['audit: is it fair']")
    ).nodes
    assert (plan.verification_level, plan.effect) == ("V2", "S1")
    [criterion] = criteria_of(Node("a", "a", plan.spec))
    assert (criterion.check, criterion.level) == ("audit", "V2")
    assert criterion.params["rubric"] in ("is it fair", ["is it fair"])


def test_audit_may_name_who_gives_the_verdict() -> None:
    spec = spec_of("run: x\naccept:\n- audit: {rubric: [fair, short], agent: codex, model: m}")
    [criterion] = spec.acceptance_criteria
    assert criterion.params["rubric"] == ["fair", "short"]
    assert criterion.params["agent"] in ("codex", {"agent": "codex"})
    assert isinstance(criterion, Criterion)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"run": "x", "agent": {"agent": "claude"}}, "it has both run and agent"),
        ({"run": "x", "map": {"run": "y", "list": ["k"]}}, "it has both run and map"),
        ({"run": "x", "grants": ["write:journal.jsonl"]}, "belongs to the runtime"),
    ],
)
def test_library_holds_a_spec_to_the_same_rules(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make_spec("a", None, fields)


def test_entry_with_an_action_is_remembered_by_its_own_field_only() -> None:
    def digests(body: str) -> str:
        [plan] = load(node(body)).nodes
        return entry_digests(plan)

    assert digests("agent: claude") == digests("agent: {agent: claude}")
    assert digests("agent: claude").startswith("agent:")
    assert digests("agent: claude") != digests("agent: {agent: claude, model: m}")
    assert digests("run: x") == digests("run: x\ngrants: []")


def test_recipe_of_a_sharded_map_is_of_its_agent_and_goal() -> None:
    def recipe(goal: str = "", **more: Any) -> str:
        return recipe_of(Spec(goal=goal, map=MapSpec(list=("x",), **more)))

    assert recipe(agent=AgentCall("claude")) != recipe(agent=AgentCall("codex"))
    assert recipe("a", run="x", shard=2) != recipe("b", run="x", shard=2)
    assert recipe("a", run="x", shard=2) == recipe("a", run="x", shard=3)
    assert recipe("a", run="x") == recipe("b", run="x")
