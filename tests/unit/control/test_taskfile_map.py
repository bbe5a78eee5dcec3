"""The ``map`` of a node is read whole or refused with its place, and makes a batch node of it."""

import msgspec
import pytest

from perdure.control.taskfile import TaskFile, load_task_file
from perdure.control.taskfile_map import MAP_KEYS
from perdure.core.batch import (
    criteria_of,
    format_of,
    inventory_digest,
    is_automatic,
    map_problem,
    recipe_of,
)
from perdure.core.model import Criterion, MapSpec, Node, Spec, State
from perdure.core.projection import graph_view
from perdure.errors import PathError, TaskFileError, UsageError
from perdure.runtime.specs import make_spec


def load(text: str) -> TaskFile:
    return load_task_file("task.yaml", text.encode())


def node(body: str, more: str = "") -> str:
    """A file whose only node is ``a`` with this ``map``, whose lines begin in line 5."""
    lines = "".join(f"      {line}\n" for line in body.splitlines())
    after = "".join(f"    {line}\n" for line in more.splitlines())
    return f"task: t\nnodes:\n  - id: a\n    map:\n{lines}{after}"


def spec_of(body: str, more: str = "") -> Spec:
    [plan] = load(node(body, more)).nodes
    return plan.spec


def map_of(body: str) -> MapSpec:
    found = spec_of(body).map
    assert found is not None
    return found


def problems_of(text: str) -> list[str]:
    with pytest.raises(TaskFileError) as caught:
        load(text)
    lines = caught.value.message.splitlines()[1:]
    return [line.strip().removeprefix("task.yaml:") for line in lines]


RUN = "run: [fetch, '{}']"


def test_everything_a_map_can_say_is_read() -> None:
    body = """\
items: artifacts/list//urls.txt
format: jsonl
key: id
run: [./fetch, "{}", ""]
workers: 4
max_attempts: 5
timeout: 1m30s
"""
    assert map_of(body) == MapSpec(
        run=("./fetch", "{}", ""),
        items="artifacts/list/urls.txt",
        format="jsonl",
        key="id",
        workers=4,
        max_attempts=5,
        timeout_s=90.0,
    )


def test_defaults_are_those_of_the_record() -> None:
    batch = map_of(f"items: urls.txt\n{RUN}")
    assert batch == MapSpec(run=("fetch", "{}"), items="urls.txt")
    assert (batch.workers, batch.max_attempts, batch.timeout_s) == (None, 3, None)


def test_items_may_be_a_glob_or_a_list() -> None:
    assert map_of(f"glob: docs/**/*.md\n{RUN}").glob == "docs/**/*.md"
    assert map_of(f"list: [a, 2, 'no']\n{RUN}").list == ("a", "2", "no")


def test_a_command_may_be_a_shell_line() -> None:
    assert map_of('list: [a]\nrun: echo "$PERDURE_KEY"').run == 'echo "$PERDURE_KEY"'


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("urls.txt", "urls.txt"),
        ("../data/urls.txt", "../data/urls.txt"),
        ("/data/urls.txt", "/data/urls.txt"),
        ("artifacts/./b/urls.txt", "artifacts/b/urls.txt"),
        ("tmp/urls.txt", "tmp/urls.txt"),
        ("./tmp/urls.txt", "./tmp/urls.txt"),
    ],
)
def test_only_paths_of_the_workspace_are_made_canonical(path: str, kept: str) -> None:
    assert map_of(f"items: {path}\n{RUN}").items == kept


def test_a_batch_node_owes_its_findings_and_is_verified_by_its_units() -> None:
    spec = spec_of(f"list: [a]\n{RUN}")
    assert spec.outputs == ("artifacts/a/findings.jsonl",)
    assert criteria_of(Node("a", "a", spec)) == (Criterion("units"),)
    assert is_automatic(spec)


def test_other_outputs_and_checks_come_besides() -> None:
    more = "outputs: [artifacts/a/index, artifacts/a/findings.jsonl]\naccept: ['exists: out/x']"
    spec = spec_of(f"list: [a]\n{RUN}", more)
    assert spec.outputs == ("artifacts/a/findings.jsonl", "artifacts/a/index")
    checks = [c.check for c in criteria_of(Node("a", "a", spec))]
    assert checks == ["units", "exists"]


def test_a_units_check_that_is_written_out_is_not_made_twice() -> None:
    spec = spec_of(f"list: [a]\n{RUN}", "accept: [units, {units: {total: 1}}]")
    found = criteria_of(Node("a", "a", spec))
    assert [c.params for c in found] == [{}, {"total": 1}]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (RUN, "4:5: map has no items; it needs one of items, glob and list (write items: FILE"),
        (f"items: a\nglob: b\n{RUN}", "4:5: map has items and glob; it needs one of"),
        (f"glob: b\nlist: [a]\n{RUN}", "4:5: map has glob and list; it needs one of"),
        ("items: a", "4:5: map has no command (write run: "),
        (
            f"items: a\nkey: id\n{RUN}",
            "4:5: map has a key, and only items of a JSONL or CSV file have",
        ),
        (
            f"glob: a\nformat: csv\n{RUN}",
            "4:5: map has a format, and only a file of items has one",
        ),
        (f"list: []\n{RUN}", "4:5: map has a list that is empty"),
        (f"list: [a, b, a]\n{RUN}", "4:5: map has a list with an entry that stands in it twice"),
        (f"items: a\nformat: xml\n{RUN}", "6:15: map.format cannot be 'xml' (use one of lines,"),
        (f"items: a\nworkers: 0\n{RUN}", "6:16: map.workers must be a whole number from 1 to 1000"),
        (f"items: a\nmax_attempts: no\n{RUN}", "6:21: map.max_attempts must be a whole number"),
        (f"items: a\ntimeout: soon\n{RUN}", "6:16: map.timeout must be a time above 0"),
        (f"items: a\nwhere: b\n{RUN}", "6:7: map has no key 'where'"),
        (f"items: a\ncommand: b\n{RUN}", "6:7: map has no key 'command' (write run)"),
        (f"items: artifacts/../../x\n{RUN}", "5:14: the path 'artifacts/../../x' climbs out"),
        (f"items: 'a\\b'\n{RUN}", "5:14: map.items holds a backslash"),
        (f"items: [a]\n{RUN}", "5:14: map.items must be a text"),
        ("items: a\nrun: []", "6:12: run must start with a program"),
        ("items: a\nrun: {a: b}", "6:12: run must be a command line or a list of words"),
    ],
)
def test_what_cannot_work_is_refused_once_with_its_place(body: str, problem: str) -> None:
    [told] = problems_of(node(body))
    assert told.startswith(problem), told


@pytest.mark.parametrize(
    ("body", "fix"),
    [
        (f"items: a\nkey: id\n{RUN}", "(remove it, or write format: jsonl or csv)"),
        (f"glob: a\nformat: csv\n{RUN}", "(remove it)"),
        (f"list: [a, a]\n{RUN}", "(give each item a key of its own)"),
        ("items: a", '(write run: [PROGRAM, "{}"], or a shell line that reads $PERDURE_KEY)'),
    ],
)
def test_each_refusal_says_what_to_do(body: str, fix: str) -> None:
    [told] = problems_of(node(body))
    assert told.endswith(fix)


def test_map_that_is_no_mapping_is_refused() -> None:
    [told] = problems_of("task: t\nnodes:\n  - {id: a, map: urls.txt}\n")
    assert told.startswith(f"3:18: map must be a mapping of {', '.join(MAP_KEYS)}")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("run: ls", "7:5: a node has either run or map"),
        ("outputs: none", "7:14: a batch node owes its findings (remove outputs: none)"),
        ("effect: S3", "7:13: effect S3 needs a node for each effect"),
    ],
)
def test_what_a_batch_node_cannot_be_besides_is_refused(more: str, problem: str) -> None:
    assert problems_of(node(f"list: [a]\n{RUN}", more))[0].startswith(problem)


# What follows from a spec


@pytest.mark.parametrize(
    ("items", "given", "form"),
    [("a.jsonl", None, "jsonl"), ("a.NDJSON", None, "jsonl"), ("a.csv", None, "csv"),
     ("a.txt", None, "lines"), ("a", None, "lines"), ("a.csv", "lines", "lines")],
)  # fmt: skip
def test_format_is_that_of_the_ending_unless_it_is_named(
    items: str, given: str | None, form: str
) -> None:
    batch = msgspec.convert({"items": items, "format": given}, MapSpec)
    assert format_of(batch) == form


def test_specs_without_map_are_written_as_they_always_were() -> None:
    assert msgspec.json.encode(Spec(run="ls")) == b'{"run":"ls"}'
    assert b"contract_sha256" not in msgspec.json.encode(Node("a", "a", Spec()))


def test_views_of_plain_nodes_are_written_as_they_always_were() -> None:
    batch = Spec(map=MapSpec(list=("x",), run="true"))
    nodes = {"a": Node("a", "a", Spec(run="ls")), "b": Node("b", "b", batch)}
    plain, mapped = graph_view(State(nodes=nodes))["nodes"]
    assert "contract_sha256" not in plain
    assert "worker" not in plain
    assert "map" not in plain["spec"]
    assert mapped["spec"]["map"] == batch.map
    nodes["b"].contract_sha256 = "00"
    assert graph_view(State(nodes=nodes))["nodes"][1]["contract_sha256"] == "00"


def test_recipe_is_of_what_makes_a_finding_and_of_nothing_else() -> None:
    def spec(env: dict[str, str] | None = None, **more: object) -> Spec:
        fields = {"run": ["f", "{}"], "items": "a.csv", "key": "id", **more}
        return Spec(map=msgspec.convert(fields, MapSpec), env=env or {})

    same = recipe_of(spec())
    assert recipe_of(spec(workers=9, max_attempts=7, timeout_s=1.0)) == same
    assert recipe_of(spec(items="b.csv")) == same
    others = [spec(run="f"), spec({"A": "1"}), spec(key="name"), spec(items="a.jsonl")]
    assert len({same, *map(recipe_of, others)}) == 5


def test_inventory_digest_is_of_the_sorted_keys() -> None:
    assert inventory_digest(["b", "a"]) == inventory_digest(["a", "b"])
    assert inventory_digest([]) == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


# Specs that are made by calls


def test_a_spec_made_by_a_call_owes_its_findings_as_well() -> None:
    spec = make_spec("a", None, {"map": {"list": ["x"], "run": "true"}, "outputs": "out/x"})
    assert spec.outputs == ("artifacts/a/findings.jsonl", "out/x")
    assert spec.map == MapSpec(list=("x",), run="true")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"map": {"run": "true"}}, UsageError),
        ({"map": {"list": ["x"]}}, UsageError),
        ({"map": {"list": ["x"], "run": "true"}, "run": "ls"}, UsageError),
        ({"map": {"list": ["x"], "run": "true", "workers": 0}}, UsageError),
        ({"map": {"list": ["x"], "run": "true", "timeout_s": 0}}, UsageError),
        ({"map": {"list": ["x"], "run": "true", "max_attempts": 0}}, UsageError),
        ({"map": {"items": "tmp/../../x", "run": "true"}}, PathError),
    ],
)
def test_a_spec_made_by_a_call_is_held_to_the_same(
    fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make_spec("a", None, fields)


def test_map_problem_is_empty_for_what_can_work() -> None:
    assert map_problem(MapSpec(run="  true", glob="*")) == ""
