"""A task file is taken whole or refused whole, with every problem and its place."""

import hashlib
import os

import pytest

from perdure.control.taskfile import TaskFile, load_task_file
from perdure.control.taskfile_tree import depth_max, problems_shown_max
from perdure.core.durations import duration_max_s
from perdure.core.model import Budget, Criterion, Policies
from perdure.errors import TaskFileError

FULL = """\
# A comment.
task_id: survey-2
goal: >-
  Count
  everything.
acceptance: [Every row is counted, "yes: really"]
tier: 0
policies: {retry_budget: 2, contract_ttl_s: 10m, heartbeat_s: 60, check_timeout_s: 90s}
people:
  sponsor: ada
  gatekeeper: [bob, eve]
standing_authorities: [list, "*"]
nodes:
  - id: list
    title: List it
    goal: Find all.
    priority: -3
    run: ls > "$PERDURE_SCOPE/all"
    env: {LANG: C, DEBUG: 1, EMPTY: "", ANSWER: no}
    inputs: [data/in.csv]
    outputs: [artifacts/list/all, ./out//list.txt]
    accept:
      - exists: artifacts/list/all
      - "count: lines artifacts/list/all >= 1"
      - json-schema: {path: out/list.txt, schema: {type: object, minProperties: 1}}
      - script: {run: [test, -s, out/list.txt], timeout: 30}
    constraints: [read only]
    budget: {wall: 1h30m, tool_calls: 10, cost_usd: 0.5, tokens: 1000}
    retry: 1
    verify: V0
    resume: never_skip
    effect: S2
    cost: 4
  - id: count
    deps: [list]
    run: [wc, -l, artifacts/list/all, ""]
    outputs: none
    accept: ["exists: artifacts/list/all"]
  - {id: 7, title: By hand, successor_of: 6}
"""


ID_HINT = "use 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit"


def load(text: str | bytes) -> TaskFile:
    return load_task_file("task.yaml", text if isinstance(text, bytes) else text.encode())


def problems_of(text: str | bytes) -> list[str]:
    """The problems as ``line:column: what (fix)``, in the order in which they are listed."""
    with pytest.raises(TaskFileError) as caught:
        load(text)
    lines = caught.value.message.splitlines()[1:]
    assert all(line.startswith(("  task.yaml:", "  and ")) for line in lines)
    return [line.strip().removeprefix("task.yaml:") for line in lines]


def node(body: str) -> str:
    """A file whose only node is ``a`` with these lines, which begin in line 4."""
    return "task: t\nnodes:\n  - id: a\n" + "".join(f"    {line}\n" for line in body.splitlines())


def test_everything_a_file_can_say_is_read() -> None:
    task = load(FULL)
    assert (task.task_id, task.tier, task.goal) == ("survey-2", 0, "Count everything.")
    assert task.acceptance == ("Every row is counted", "yes: really")
    assert task.policies == Policies(
        retry_budget=2, contract_ttl_s=600.0, heartbeat_s=60.0, check_timeout_s=90.0
    )
    assert task.people == {"sponsor": "ada", "gatekeeper": ["bob", "eve"]}
    assert task.standing_authorities == ("list", "*")
    listing, count, by_hand = task.nodes
    assert (listing.node_id, listing.title, listing.priority) == ("list", "List it", -3)
    assert (listing.verification_level, listing.resume_policy) == ("V0", "never_skip")
    assert (listing.effect, listing.deps, count.deps) == ("S2", (), ("list",))
    spec = listing.spec
    assert (spec.goal, spec.run) == ("Find all.", 'ls > "$PERDURE_SCOPE/all"')
    assert spec.env == {"LANG": "C", "DEBUG": "1", "EMPTY": "", "ANSWER": "no"}
    assert (spec.inputs, spec.constraints) == (("data/in.csv",), ("read only",))
    assert spec.outputs == ("artifacts/list/all", "out/list.txt")
    assert spec.budget == Budget(5_400.0, 10, 0.5, 1_000)
    assert (spec.retry_budget, spec.cost) == (1, 4.0)
    assert [c.check for c in spec.acceptance_criteria] == [
        "exists", "count", "json-schema", "script",
    ]  # fmt: skip
    schema = spec.acceptance_criteria[2].params["schema"]
    assert schema == {"type": "object", "minProperties": 1}
    assert spec.acceptance_criteria[3].params == {
        "run": ["test", "-s", "out/list.txt"], "timeout_s": 30.0,
    }  # fmt: skip
    assert count.spec.run == ("wc", "-l", "artifacts/list/all", "")
    assert count.spec.outputs == ()
    assert (by_hand.node_id, by_hand.spec.run, by_hand.spec.outputs) == ("7", None, None)
    assert (by_hand.successor_of, count.successor_of) == ("6", None)


def test_defaults_are_those_of_the_records() -> None:
    task = load("task_id: t\nnodes: [{id: a}]")
    [plan] = task.nodes
    assert (task.tier, task.goal, task.policies, task.people) == (1, "", Policies(), {})
    assert (plan.title, plan.priority, plan.verification_level) == ("a", 0, "V1")
    assert (plan.resume_policy, plan.effect) == ("reverify_if_amended", "S0")
    assert plan.spec.acceptance_criteria == ()


def test_result_depends_on_bytes_and_path_only() -> None:
    data = FULL.encode()
    task = load_task_file("some/where/task.yaml", data)
    assert task == load_task_file("some/where/task.yaml", data)
    assert task.sha256 == hashlib.sha256(data).hexdigest()
    assert task.path == "some/where/task.yaml"
    assert task.directory == os.path.abspath("some/where")


def test_nodes_may_be_a_mapping_of_ids() -> None:
    task = load("task: t\nnodes:\n  a: {run: ls, deps: [b]}\n  b: {id: b}\n")
    assert [(n.node_id, n.deps) for n in task.nodes] == [("a", ("b",)), ("b", ())]
    assert problems_of("task: t\nnodes:\n  a: {id: b}\n") == [
        "3:11: the id is not that of its key 'a' (remove it)"
    ]
    assert problems_of("task: t\nnodes:\n  a b: {}\n")[0].startswith("3:3: id 'a b' is not an id")


def test_byte_order_mark_and_crlf_are_read() -> None:
    text = FULL.replace("\n", "\r\n")
    assert load(b"\xef\xbb\xbf" + text.encode()).nodes == load(FULL).nodes


def test_merged_defaults_yield_to_what_is_written() -> None:
    text = """\
task: t
nodes:
  - &first {id: a, run: ls, priority: 5, budget: {wall: 9}}
  - {<<: *first, id: b, priority: 6}
  - {<<: [{cost: 2}, *first], id: c}
"""
    _, second, third = load(text).nodes
    assert (second.spec.run, second.priority, second.spec.budget.max_wall_s) == ("ls", 6, 9.0)
    assert (third.spec.cost, third.priority) == (2.0, 5)


def test_words_of_older_yaml_are_texts() -> None:
    task = load(
        "task: no\ngoal: 2024-01-01\nnodes: [{id: on, title: 1:30, deps: [off]}, {id: off}]"
    )
    assert (task.task_id, task.goal) == ("no", "2024-01-01")
    assert [(n.node_id, n.title) for n in task.nodes] == [("on", "1:30"), ("off", "off")]


def test_arguments_of_a_check_stay_as_they_are_written() -> None:
    [plan] = load(node("accept:\n- exists: 2024\n- exists: 1e3\n- script: true")).nodes
    assert plan.spec.acceptance_criteria == (
        Criterion("exists", {"path": "2024"}),
        Criterion("exists", {"path": "1e3"}),
        Criterion("script", {"run": "true"}),
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1.5", 1.5), ("90s", 90.0), ("10m", 600.0), ('"2h"', 7_200.0), ("1d", 86_400.0),
     ("1h30m", 5_400.0), ("0.5h", 1_800.0), ("1m 30s", 90.0)],
)  # fmt: skip
def test_durations_are_seconds_or_carry_a_unit(text: str, seconds: float) -> None:
    assert load(node(f"budget: {{wall: {text}}}")).nodes[0].spec.budget.max_wall_s == seconds


@pytest.mark.parametrize(
    "text", ["0", "-1", "10x", "1:30", "'90'", "[1]", "", "1e99", "400d", "true"]
)
def test_other_durations_are_refused(text: str) -> None:
    [problem] = problems_of(node(f"budget: {{wall: {text}}}"))
    assert problem.startswith("4:")
    assert "budget.wall must be a time above 0 and up to 366 days" in problem
    assert duration_max_s == 366 * 86_400


def test_all_problems_are_reported_together_in_file_order() -> None:
    text = """\
task_id: a/
tier: 3
polices: {}
nodes:
  - id: a
    deps: [zeta]
    ouputs: [x]
  - id: zetta
    deps: [zetta]
    priority: high
"""
    assert problems_of(text) == [
        "1:10: task_id 'a/' is not an id (" + ID_HINT + ")",
        "2:7: tier must be a whole number from 0 to 2 (write tier: 1)",
        "3:1: the task file has no key 'polices' (did you mean policies?)",
        "6:12: there is no node 'zeta' (did you mean zetta?)",
        "7:5: a node has no key 'ouputs' (did you mean outputs or inputs?)",
        "9:12: zetta depends on itself (remove it)",
        "10:15: priority must be a whole number from -1000000000 to 1000000000 (write priority: 1)",
    ]


def test_list_of_problems_ends_after_twenty() -> None:
    problems = problems_of(
        "task: t\nnodes:\n" + "".join(f"  - {{id: n{i}, x: 1}}\n" for i in range(25))
    )
    assert len(problems) == problems_shown_max + 1
    assert problems[-1] == "and 5 more"


def test_error_is_a_usage_error_with_a_fix() -> None:
    with pytest.raises(TaskFileError) as caught:
        load("task: t")
    assert (caught.value.exit_code, caught.value.code) == (2, "task_file_invalid")
    assert "1 problem" in caught.value.message
    assert "nothing was run or written" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("depends_on", "deps"),
        ("command", "run"),
        ("timeout", "budget: {wall: ...}"),
        ("name", "id"),
    ],
)
def test_words_of_other_tools_are_translated(key: str, right: str) -> None:
    [problem] = problems_of(node(f"{key}: x"))
    assert problem.startswith(f"4:5: a node has no key '{key}' (write {right}")


@pytest.mark.parametrize(
    ("deps", "problem"),
    [
        ({"a": "b", "b": "a"}, "3:20: the deps form a cycle: a -> b -> a"),
        ({"a": "b", "b": "c", "c": "b"}, "4:20: the deps form a cycle: b -> c -> b"),
        ({"a": "", "b": "d", "c": "b", "d": "c"}, "4:20: the deps form a cycle: b -> d -> c -> b"),
    ],
)
def test_cycle_is_named(deps: dict[str, str], problem: str) -> None:
    lines = [f"  - {{id: {n}, deps: [{d}]}}\n" for n, d in deps.items()]
    [found] = problems_of("task: t\nnodes:\n" + "".join(lines))
    assert found == f"{problem} (remove one of these deps)"


def test_long_chains_and_diamonds_are_no_cycle() -> None:
    count = 3_000
    lines = [f"  - {{id: n{i}, deps: [n{i + 1}, last]}}\n" for i in range(count)]
    text = "task: t\nnodes:\n" + "".join(lines) + f"  - id: n{count}\n  - id: last\n"
    assert len(load(text).nodes) == count + 2
    closed = text.replace("  - id: last\n", "  - {id: last, deps: [n0]}\n")
    assert "n0 -> n1 -> n2" in problems_of(closed)[0]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("deps: b", "4:11: deps must be a list (write [b])"),
        ("deps: [[b]]", "4:12: each of deps must be a text"),
        ("deps:", "4:10: deps must be a list"),
        ("title:", "4:11: title is empty"),
        ("title: [x]", "4:12: title must be a text"),
        (f"title: {'x' * 501}", "4:12: title has 501 characters; 500 is the most"),
        ('run: "a\\0b"', "4:10: run holds a NUL character"),
        ("run: []", "4:10: run must start with a program"),
        ("run: ['', x]", "4:10: run must start with a program"),
        ("run: {a: b}", "4:10: run must be a command line or a list of words"),
        ("env: [A]", "4:10: env must be a mapping of names to texts"),
        ("env: {1A: x}", "4:11: '1A' is not the name of a variable"),
        ("env: {PERDURE_NODE: x}", "4:11: PERDURE_NODE is reserved"),
        ("env: {A: }", "4:"),
        ("priority: 1.5", "4:15: priority must be a whole number"),
        ("priority: '1'", "4:15: priority must be a whole number"),
        ("priority: true", "4:15: priority must be a whole number"),
        ("retry: -1", "4:12: retry must be a whole number from 0 to 1000"),
        ("cost: -1", "4:11: cost must be a number from 0"),
        ("cost: .inf", "4:11: cost must be a number from 0"),
        ("budget: 10m", "4:13: budget must be a mapping of wall, tool_calls, cost_usd, tokens"),
        ("budget: {walls: 1}", "4:14: budget has no key 'walls' (did you mean wall?)"),
        ("budget: {tokens: 0}", "4:22: budget.tokens must be a whole number from 1"),
        ("verify: v1", "4:13: verify cannot be 'v1' (use one of V0, V1, V2, V3)"),
        ("verify: V0", "4:13: verify V0 is for tier 0 and for scratch nodes (outputs: none)"),
        ("resume: [x]", "4:13: resume must be one word"),
        ("effect: S9", "4:13: effect cannot be 'S9' (use one of S0, S1, S2, S3)"),
        ("outputs: []", "4:14: outputs is an empty list"),
        ("outputs: x.txt", "4:14: outputs must be a list (write [x.txt])"),
        ("outputs: none", "4:14: outputs: none needs a check"),
        ("outputs: [../x]", "4:15: the path '../x' climbs out with '..'"),
        ("outputs: [a, /etc/x]", "4:18: the path '/etc/x' is absolute"),
        ("outputs: [tmp/x]", "4:15: 'tmp/x' cannot be an output"),
        ("outputs: [journal.jsonl]", "4:15: 'journal.jsonl' cannot be an output"),
        ("outputs: [artifacts/b/x]", "4:15: 'artifacts/b/x' cannot be an output"),
        ("outputs: [x, ./x]", "4:18: 'x' is already an output of a"),
        ("accept: []", "4:13: accept must be a list of checks"),
        ("accept: 'exists: x'", "4:13: accept must be a list of checks"),
        ("accept:\n- exist: x", "5:7: there is no check method 'exist' (did you mean exists?"),
        ("accept:\n- exists: ../x", "5:7: the path '../x' climbs out"),
        ("accept:\n- exists:", "5:7: "),
        ("successor_of: [x]", "4:19: successor_of must be "),
        ("accept:\n- [x]", "5:7: an acceptance criterion is text or a mapping"),
        ("id: b", "4:5: the key 'id' stands here twice (first in line 3)"),
        ("title: !!python/name:os.system x", "4:12: the tag tag:yaml.org,2002:python/name:os.syst"),
        ("budget: !x {wall: 1}", "4:13: the tag !x is not allowed"),
        ("<<: 5", "4:5: '<<' must name a mapping"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_problem_with_its_place(body: str, problem: str) -> None:
    found = problems_of(node(body))
    assert len(found) == 1, found
    assert found[0].startswith(problem)


def test_two_nodes_may_not_claim_one_path() -> None:
    text = "task: t\nnodes:\n  - {id: a, outputs: [out/x]}\n  - {id: b, outputs: [./out/x]}\n"
    [problem] = problems_of(text)
    assert problem == "4:23: 'out/x' is already an output of a (choose another path)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes: [{id: a}]", "1:1: task_id is missing"),
        ("task: t", "1:1: nodes is missing"),
        ("task: t\ntask_id: t\nnodes: [{id: a}]", "1:1: task_id and task are the same key"),
        ("task: t\nnodes: []", "2:1: nodes is empty"),
        ("task: t\nnodes: {}", "2:1: nodes is empty"),
        ("task: t\nnodes: a", "2:8: nodes must be a list"),
        ("task: t\nnodes: [a]", "2:9: a node must be a mapping"),
        ("task: t\nnodes: [{title: a}]", "2:9: a node without id"),
        ("task: t\nnodes: [{id: old}]", "2:14: id 'old' is reserved"),
        ("task: t\nnodes: [{id: a/b}]", "2:14: id 'a/b' is not an id"),
        ("task: t\nnodes:\n- {id: a}\n- {id: a}", "4:8: the id 'a' is taken (line 3)"),
        ("task: t\ntasks: []\nnodes: [{id: a}]", "2:1: the task file has no key 'tasks' (write"),
        ("task: t\nacceptance: x\nnodes: [{id: a}]", "2:13: acceptance must be a list"),
        ("task: t\npolicies: {retry: 1}\nnodes: [{id: a}]", "2:12: policies has no key 'retry'"),
        ("task: t\npolicies: {heartbeat_s: 0}\nnodes: [{id: a}]", "2:25: policies.heartbeat_s"),
        # What `perdure policy` refuses is refused here as well: with these nothing would ever run.
        *(
            (
                f"task: t\npolicies: {{{name}: 0}}\nnodes: [{{id: a}}]",
                f"2:{len(name) + 14}: policies.{name} must be a whole number from 1 to 1000",
            )
            for name in ("halt_after", "probe_slots", "first_death_window", "nesting_depth_max")
        ),
        (
            "task: t\npolicies: {mixed_threshold: -1}\nnodes: [{id: a}]",
            "2:29: policies.mixed_threshold must be a number from 0",
        ),
        (
            "task: t\npolicies: {suspected_dead_factor: 0}\nnodes: [{id: a}]",
            "2:35: policies.suspected_dead_factor must be a number above 0",
        ),
        ("task: t\npeople: {boss: x}\nnodes: [{id: a}]", "2:10: people has no key 'boss'"),
    ],
)
def test_mistake_of_the_task_is_named(text: str, problem: str) -> None:
    found = problems_of(text)
    assert len(found) == 1, found
    assert found[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1:1: the file is empty"),
        ("# nothing\n", "1:1: the file is empty"),
        ("- a", "1:1: the task file must be a mapping"),
        ("just text", "1:1: the task file must be a mapping"),
        ("a: [1", "2:1: not YAML: "),
        ("a:\n\t- b", "2:1: not YAML: found character"),
        ("a: b: c", "1:5: not YAML: mapping values are not allowed in this context (put quotes"),
        ("a: é\nb:  \x01", "2:5: not YAML: control characters are not allowed"),
        (b"a: \xc3\xa9\xff", "1:5: the file is not UTF-8"),
        ("é: ü\nb: *nope", "2:4: alias *nope stands before its anchor"),
        ("a: &x [*x]", "1:8: alias *x stands before its anchor &x is complete"),
        ("? [a]\n: b", "1:3: a key must be a plain text"),
        ("task: t\n---\ntask: u", "2:1: a second document starts here"),
    ],
)
def test_file_that_cannot_be_read_says_where(text: str | bytes, problem: str) -> None:
    found = problems_of(text)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_tabs_get_a_hint() -> None:
    assert problems_of("a:\n\t- b")[0].endswith("(indent with spaces, not with tabs)")


def test_file_of_more_than_4_mib_is_refused_unread() -> None:
    [problem] = problems_of(b"#" * (4 << 20) + b"\n")
    assert problem.startswith("1:1: the file has 4194305 bytes; 4194304 is the most")


def test_aliases_cannot_multiply() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    [problem] = problems_of("\n".join(lines))
    assert "the aliases stand for more than 100000 values" in problem
    many = "a: &a x\nb: [" + ",".join(["*a"] * 1_001) + "]"
    assert problems_of(many)[0].startswith("2:")
    assert "more than 1000 aliases" in problems_of(many)[0]


def test_depth_is_limited_also_through_aliases() -> None:
    deep = "a: " + "[" * depth_max + "]" * depth_max
    assert f"nested deeper than {depth_max} levels" in problems_of(deep)[0]
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))
    assert f"nested deeper than {depth_max} levels" in problems_of(chain)[0]
    assert len(problems_of("[" * 100_000)) == 1


def test_node_that_no_contract_could_hold_is_refused() -> None:
    [problem] = problems_of(node(f"goal: {'x' * 200_000}"))
    assert "131072 is the most" in problem


def test_scratch_node_may_check_itself() -> None:
    text = node("outputs: none\nverify: V0\naccept: ['script: true']")
    assert load(text).nodes[0].verification_level == "V0"
    assert load("tier: 0\n" + node("verify: V0")).nodes[0].verification_level == "V0"


def test_secrets_are_names_of_variables_and_what_is_none_is_not_quoted() -> None:
    data = b"task_id: t\nsecrets: [API_KEY, API_KEY, other]\nnodes: [{id: a}]\n"
    assert load_task_file("t.yaml", data).secrets == ("API_KEY", "other")
    with pytest.raises(TaskFileError) as caught:
        load_task_file("t.yaml", data.replace(b"other", b"hunter-22"))
    assert "t.yaml:2:29" in caught.value.message
    assert "hunter" not in caught.value.message
