"""The task of an instance is its card with the values of its inputs, and nothing else."""

import json
from random import Random
from typing import Any

import pytest

from perdure.control.plan_digest import entry_digests
from perdure.control.sop_card import Card
from perdure.control.sop_graph import (
    INPUTS_PATH,
    InstancePlan,
    instance_plan,
    output_paths,
    variable_bytes_max,
    write_inputs,
)
from perdure.control.sop_inputs import bind_inputs
from perdure.control.sop_reader import load_card
from perdure.control.taskfile import NodePlan
from perdure.control.taskfile_nodes import at_tier
from perdure.errors import UsageError
from perdure.testing.crash import states
from perdure.testing.simdisk import SimDisk

CARD = """\
sop_id: acme.survey
version: 1.0.0
title: Survey
purpose: Look at all.
inputs:
  - {name: topic, required: true}
  - {name: files, schema: texts, default: [a b, c]}
  - {name: worker, schema: command, default: [cat, x]}
  - {name: shard, schema: integer, default: 4}
  - {name: model}
  - {name: note}
outputs: [{name: page, path: "artifacts/page/{{topic}}.md"}]
acceptance:
  - exists: "artifacts/page/{{topic}}.md"
grants: [network:read]
escalation:
  {transient-environment: ask_user, transient-agent: ask_user, permanent-spec: ask_user,
   permanent-resource: ask_user}
phases:
  intake:
  plan:
    - {id: list, run: [ls, "{{files}}", "--topic={{topic}}", "{{model}}"]}
  gather:
    - {id: extract, map: {glob: "{{topic}}/*.md", run: "{{worker}}", shard: "{{shard}}"}}
    - {id: aside, deps: [], run: "true", env: {PAGE: "{{topic}} {{note}}"}}
  write:
    - id: page
      title: About {{topic}}
      goal: "{{note}}"
      run: [page]
      outputs: ["artifacts/page/{{topic}}.md"]
      retry: "{{shard}}"
  verify:
    - {id: read, run: [read]}
  report:
    - {id: tell, run: [tell]}
gates:
  - {node: page, blocks: done, question: "Is it about {{topic}}?"}
"""


def card(text: str = CARD) -> Card:
    return load_card("card.yaml", text.encode())


def plan_of(text: str = CARD, **given: Any) -> InstancePlan:
    read = card(text)
    bound = bind_inputs(read, {"topic": "bees", **given}, directory="/here")
    return instance_plan(read, bound, task_id="inv-1", workspace="/w")


def nodes_of(plan: InstancePlan) -> dict[str, NodePlan]:
    return {node.node_id: node for node in plan.task.nodes}


def test_each_phase_waits_for_the_one_before_it_unless_deps_are_given() -> None:
    deps = {name: node.deps for name, node in nodes_of(plan_of()).items()}
    assert deps == {
        "list": (),
        "extract": ("list",),
        "aside": (),
        "page": ("extract", "aside"),
        "read": ("page",),
        "acceptance": ("read",),
        "tell": ("read", "acceptance"),
    }


def test_every_node_belongs_to_a_phase() -> None:
    plan = plan_of()
    assert {*plan.phase_of} == {*nodes_of(plan)}
    assert plan.phase_of["aside"] == "gather"
    assert plan.phase_of["acceptance"] == "verify"


def test_values_stand_where_the_card_says() -> None:
    nodes = nodes_of(plan_of())
    assert nodes["list"].spec.run == ("ls", "a b", "c", "--topic=bees")
    extract = nodes["extract"].spec.map
    assert extract is not None
    assert (extract.glob, extract.run, extract.shard) == ("bees/*.md", ("cat", "x"), 4)
    assert nodes["aside"].spec.env["PAGE"] == "bees "
    assert (nodes["page"].title, nodes["page"].spec.goal) == ("About bees", "")
    assert nodes["page"].spec.outputs == ("artifacts/page/bees.md",)
    assert nodes["page"].spec.retry_budget == 4
    assert nodes["page"].spec.gates[0].question == "Is it about bees?"
    assert output_paths(card(), {"topic": "bees"}) == {"page": "artifacts/page/bees.md"}


def test_a_value_that_looks_like_yaml_or_shell_stays_one_word() -> None:
    topic = "a; rm -rf $HOME #: [x] {{files}}"
    run = nodes_of(plan_of(topic=topic.replace("/", "")))["list"].spec.run
    assert run == ("ls", "a b", "c", f"--topic={topic}")


def test_every_batch_tries_one_unit_first() -> None:
    extract = nodes_of(plan_of())["extract"].spec.map
    assert extract is not None
    assert extract.smoke


def test_the_acceptance_of_the_card_is_checked_at_a_node_of_its_own() -> None:
    node = nodes_of(plan_of())["acceptance"]
    assert node.spec.outputs == ()
    assert [one.check for one in node.spec.acceptance_criteria] == ["exists"]
    without = CARD.replace('acceptance:\n  - exists: "artifacts/page/{{topic}}.md"\n', "")
    assert "acceptance" not in nodes_of(plan_of(without))


def test_the_level_of_the_card_is_that_of_whoever_makes_an_output() -> None:
    levels = {n: p.verification_level for n, p in nodes_of(plan_of(CARD + "verify: V3\n")).items()}
    assert levels == {name: "V3" if name == "page" else "V1" for name in levels}


def test_commands_find_the_inputs_in_their_environment() -> None:
    env = nodes_of(plan_of(note="x" * (variable_bytes_max + 1)))["tell"].spec.env
    assert env["PERDURE_INPUTS"] == INPUTS_PATH
    assert env["PERDURE_INPUT_TOPIC"] == "bees"
    assert json.loads(env["PERDURE_INPUT_FILES"]) == ["a b", "c"]
    assert env["PERDURE_INPUT_SHARD"] == "4"
    assert env["PERDURE_INPUT_MODEL"] == env["PERDURE_INPUT_NOTE"] == ""


def test_the_task_lives_beside_the_copy_of_the_card() -> None:
    task = plan_of().task
    assert task.directory == "/w/sops/acme.survey-1.0.0"
    assert (task.task_id, task.goal) == ("inv-1", "Survey. Look at all.")
    assert all(node.spec.grants == ("network:read",) for node in task.nodes)


def test_the_same_card_and_values_give_the_same_task() -> None:
    first, again = plan_of(), plan_of()
    assert first == again
    assert [*map(entry_digests, first.task.nodes)] == [*map(entry_digests, again.task.nodes)]


def test_a_value_that_makes_an_impossible_node_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(topic="../../etc")
    assert caught.value.code == "sop_inputs"
    assert "card.yaml:" in caught.value.message
    assert "leaves the workspace" in caught.value.message or ".." in caught.value.message


def test_a_value_that_makes_a_node_wait_for_a_later_phase_is_refused() -> None:
    text = CARD.replace("deps: []", 'deps: "{{after}}"')
    text = text.replace("- id: page\n", "- id: page\n      deps: []\n")
    text = text.replace("inputs:\n", "inputs:\n  - {name: after, schema: texts, default: [list]}\n")
    assert nodes_of(plan_of(text))["aside"].deps == ("list",)
    with pytest.raises(UsageError) as caught:
        plan_of(text, after=["page"])
    assert caught.value.code == "sop_inputs"
    assert "aside depends on page, which is of a later phase" in caught.value.message


def test_the_inputs_are_durable_where_the_nodes_find_them() -> None:
    disk = SimDisk()
    disk.make_dirs("/w")
    write_inputs({"topic": "é", "n": None}, disk=disk, workspace="/w")
    write_inputs({"topic": "é", "n": None}, disk=disk, workspace="/w")
    for left in states(disk, chance=Random(1)):
        assert json.loads(left.read(f"/w/{INPUTS_PATH}")) == {"topic": "é", "n": None}


def test_the_level_of_a_node_is_the_cards_to_say_whatever_the_tier_of_the_task() -> None:
    for plan in plan_of().task.nodes:
        assert at_tier(plan, 2).verification_level == plan.verification_level == "V1"
