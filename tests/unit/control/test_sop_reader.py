"""A card is taken whole or refused whole, with every problem, its place and its code."""

import pytest

from perdure.control.sop_card import ROUTES, UNMAPPED_ROUTE, Card
from perdure.control.sop_phases import waits_max
from perdure.control.sop_reader import load_card
from perdure.core.model import FAILURE_CLASSES
from perdure.core.rules import rule_ids
from perdure.errors import CardError

HEAD = """\
sop_id: acme.survey
version: 1.2.0
title: Survey
"""
_ROUTES = ", ".join(f"{name}: retry_after_probe" for name in FAILURE_CLASSES)
ROUTED = f"escalation: {{{_ROUTES}}}\n"
PHASES = """\
phases:
  intake:
  plan:
  work:
    - {id: a, run: "true", outputs: [artifacts/a/a.txt]}
  verify:
  report:
"""
GOOD = HEAD + ROUTED + PHASES


def load(text: str) -> Card:
    return load_card("cards/card.yaml", text.encode())


def refused(text: str) -> CardError:
    with pytest.raises(CardError) as caught:
        load(text)
    error = caught.value
    assert error.exit_code == 2
    assert error.rule in rule_ids()
    return error


def problems_of(text: str) -> list[str]:
    lines = refused(text).message.splitlines()[1:]
    assert all(line.startswith(("  cards/card.yaml:", "  and ")) for line in lines)
    return [line.strip().removeprefix("cards/card.yaml:") for line in lines]


def codes_of(text: str) -> set[str]:
    return {"sop_" + line.partition(" [sop_")[2].partition("]")[0] for line in problems_of(text)}


def work(nodes: str, head: str = "") -> str:
    """A card with inputs ``text`` (required) and others, and these nodes in its only work phase."""
    inputs = (
        "inputs:\n  - {name: text, required: true}\n  - {name: names, schema: texts}\n"
        "  - {name: tool, schema: command, default: [cat]}\n"
        "  - {name: count, schema: integer, default: 3}\n"
    )
    listed = "".join(f"    - {line}\n" for line in nodes.splitlines())
    start = HEAD + ROUTED + inputs + head
    return f"{start}phases:\n  intake:\n  plan:\n  work:\n{listed}  verify:\n  report:\n"


def test_a_card_that_says_everything_is_read() -> None:
    card = load(
        work(
            '{id: a, run: [echo, "{{text}}"], outputs: ["artifacts/a/{{text}}.md"], effect: S2}',
            "purpose: See.\nidempotent: false\nverify: V1\nside_effects: [S0, S2]\n"
            'outputs: [{name: page, artifact_class: doc, path: "artifacts/a/{{text}}.md"}]\n'
            "acceptance: [nonempty: artifacts/a/page.md]\nbudget_hints: {max_units: 5}\n"
            "grants: [network:read]\nfiles: [tool.py, lib/more.py]\n"
            "gates: [{node: a, question: Publish it?}]\n",
        )
    )
    assert (card.sop_id, card.version, card.title, card.purpose) == (
        "acme.survey", "1.2.0", "Survey", "See.",
    )  # fmt: skip
    assert card.phase_names == ("intake", "plan", "work", "verify", "report")
    assert [one.name for one in card.inputs] == ["text", "names", "tool", "count"]
    assert card.outputs[0].path == "artifacts/a/{{text}}.md"
    assert (card.side_effects, card.idempotent, card.verify) == (("S0", "S2"), False, "V1")
    assert (card.grants, card.files) == (("network:read",), ("tool.py", "lib/more.py"))
    assert card.budget_hints == {"max_units": 5}
    assert card.directory_name == "acme.survey-1.2.0"


def test_equal_bytes_give_equal_cards() -> None:
    assert load(GOOD) == load(GOOD)
    assert load(GOOD).sha256 != load(GOOD + "# more\n").sha256


def test_the_longer_names_of_keys_are_read_as_well() -> None:
    card = load(
        GOOD.replace("escalation:", "escalation_map:")
        + "side_effect_profile: [S0, S1]\nverification_level_default: V1\n"
        + "acceptance_criteria: [exists: artifacts/a/a.txt]\n"
    )
    assert card.side_effects == ("S0", "S1")
    assert len(card.acceptance) == 1


def test_routes_may_be_a_list_with_arrows() -> None:
    listed = "".join(f"  - on: {name} -> ask_user\n" for name in FAILURE_CLASSES)
    card = load(HEAD + "escalation:\n" + listed + PHASES)
    assert {*card.escalation.values()} == {"block_ask_user"}


def test_every_failure_class_has_a_route() -> None:
    text = GOOD.replace("permanent-spec: retry_after_probe, ", "")
    error = refused(text)
    assert (error.code, error.rule) == ("sop_unmapped_failure", "FE-1")
    assert problems_of(text)[0].startswith("4:1: escalation has no route for permanent-spec")
    assert refused(HEAD + PHASES).code == "sop_unmapped_failure"
    assert refused(HEAD + "escalation: none\n" + PHASES).code == "sop_unmapped_failure"


def test_a_failure_that_a_card_does_not_name_has_the_generic_route() -> None:
    card = load(GOOD.replace("escalation: {", "escalation: {paywall: ask_user, "))
    assert card.route_for("paywall") == "block_ask_user"
    assert card.route_for("transient-agent") == "retry_after_probe"
    assert card.route_for("never heard of") == UNMAPPED_ROUTE
    assert UNMAPPED_ROUTE in ROUTES


def test_a_route_is_one_of_a_closed_set() -> None:
    error = refused(
        GOOD.replace("permanent-spec: retry_after_probe", "permanent-spec: retry_after_prob")
    )
    assert (error.code, error.rule) == ("sop_unknown_route", "FE-1")
    assert "did you mean retry_after_probe?" in error.message


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "latest", "[1, 0]"])
def test_a_version_is_semantic(version: str) -> None:
    error = refused(GOOD.replace("1.2.0", version))
    assert (error.code, error.rule) == ("sop_bad_version", "SC-3")


def test_a_version_may_be_one_before_a_release() -> None:
    assert load(GOOD.replace("1.2.0", "1.2.0-rc.1")).version == "1.2.0-rc.1"


@pytest.mark.parametrize(
    ("phases", "complaint"),
    [
        ("{intake: , plan: , verify: , report: }", "there is no phase of work"),
        ("{intake: , work: [{id: a}], verify: , report: }", "the phase plan missing"),
        ("{work: [{id: a}]}", "the phases intake, plan, verify, report missing"),
        ("{plan: , intake: , work: [{id: a}], verify: , report: }", "wrong order"),
        ("{intake: , plan: , work: [{id: a}], report: , verify: }", "wrong order"),
        ("{intake: , plan: , work: , verify: , report: }", "the phase work has no nodes"),
        ("[intake, plan, work: [{id: a}], plan, verify, report]", "plan stands here twice"),
        ("7", "phases must be a mapping"),
    ],
)
def test_phases_stand_in_their_order(phases: str, complaint: str) -> None:
    error = refused(HEAD + ROUTED + f"phases: {phases}\n")
    assert error.code == "sop_phases"
    assert complaint in error.message


def test_phases_may_be_a_list() -> None:
    card = load(HEAD + ROUTED + "phases: [intake, plan, work: [{id: a}], verify, report]\n")
    assert card.phase_names == ("intake", "plan", "work", "verify", "report")


def test_a_node_never_waits_for_a_later_phase() -> None:
    text = work("{id: a, deps: [b]}").replace("  verify:\n", "  verify: [{id: b}]\n")
    error = refused(text)
    assert error.code == "sop_phases"
    assert "a depends on b, which is of a later phase" in error.message


def test_a_node_never_waits_for_a_later_phase_by_the_value_of_an_input() -> None:
    late = "  - {name: late, schema: texts, default: [b]}\n"
    text = work('{id: a, deps: "{{late}}"}', late)
    error = refused(text.replace("  verify:\n", "  verify: [{id: b, deps: []}]\n"))
    assert error.code == "sop_phases"
    assert "a depends on b, which is of a later phase" in error.message


def test_what_follows_from_the_order_of_the_phases_is_bounded() -> None:
    many = "".join(f", {{id: b{number}}}" for number in range(400))
    nodes = "\n".join(f"{{id: a{number}}}" for number in range(400))
    text = work(nodes).replace("  verify:\n", f"  verify: [{{id: b}}{many}]\n")
    error = refused(text)
    assert error.code == "sop_phases"
    assert "the 401 nodes of verify would wait for each of 400" in error.message
    assert f"{waits_max} is the most" in error.message


def test_two_nodes_of_different_phases_have_different_ids() -> None:
    text = work("{id: a}").replace("  verify:\n", "  verify: [{id: a}]\n")
    assert "the id 'a' is taken (line 14)" in refused(text).message


# Everything at once


def test_effects_and_outputs_are_told_with_what_is_wrong_elsewhere() -> None:
    owed = "outputs: [{name: page, path: artifacts/a/page.md}]\nside_effects: [S1]\n"
    text = work("{id: a, run: [cat], effect: S2}", owed).replace("1.2.0", "1.2")
    text = text.replace("transient-agent: retry_after_probe, ", "")
    assert codes_of(text) == {
        "sop_bad_version",
        "sop_unmapped_failure",
        "sop_effect",
        "sop_output_unmade",
    }


def test_effects_and_outputs_are_told_with_a_value_that_is_wrong() -> None:
    owed = "outputs: [{name: page, path: artifacts/a/page.md}]\n"
    nodes = '{id: a, run: "cat {{text}}", effect: S2, title: "{{txt}}"}'
    found = {"sop_value_in_shell", "sop_unknown_input", "sop_effect", "sop_output_unmade"}
    assert codes_of(work(nodes, owed)) == found


def test_effects_are_told_with_a_node_that_is_wrong() -> None:
    owed = "outputs: [{name: page, path: artifacts/a/page.md}]\n"
    nodes = "{id: a, run: [cat], effect: S2, retry: many, outputs: [artifacts/a/page.md]}"
    lines = problems_of(work(nodes, owed))
    assert len(lines) == 2
    assert "[sop_effect]" in lines[0]
    assert "retry" in lines[1]


def test_nothing_is_told_that_only_follows_from_another_fault() -> None:
    owed = "outputs: [{name: page, path: artifacts/b/page.md}]\n"
    nodes = "{id: a, run: [cat]}\n{id: a, run: [cat], outputs: [artifacts/b/page.md]}"
    (line,) = problems_of(work(nodes, owed))
    assert "is taken" in line


# Values


def test_a_value_needs_an_input() -> None:
    error = refused(work('{id: a, run: [echo, "{{txt}}"]}'))
    assert (error.code, error.rule) == ("sop_unknown_input", "IN-1")
    assert problems_of(work('{id: a, run: [echo, "{{txt}}"]}')) == [
        "14:27: there is no input 'txt' [sop_unknown_input] (did you mean text?)"
    ]


@pytest.mark.parametrize(
    "node",
    [
        '{id: a, run: "echo {{text}}"}',
        '{id: a, run: "{{text}}"}',
        '{id: a, run: [sh, -c, "echo {{text}}"]}',
        '{id: a, run: [/bin/bash, -euc, "echo {{text}}"]}',
        '{id: a, run: [bash, --norc, -c, "echo {{text}}"]}',
        '{id: a, run: [bash, -o, noclobber, -c, "echo {{text}}"]}',
        '{id: a, run: [/usr/bin/env, LANG=C, sh, -c, "echo {{text}}"]}',
        '{id: a, run: [timeout, "9", busybox, sh, -c, "echo {{text}}"]}',
        '{id: a, map: {list: [x], run: [xargs, sh, -c, "cat {{text}}"]}}',
        '{id: a, map: {list: [x], run: "cat {{text}}"}}',
        '{id: a, run: [x], accept: [script: "test -s {{text}}"]}',
        '{id: a, run: [x], accept: ["script: test -s {{text}}"]}',
        '{id: a, run: [x], accept: [{script: {run: "test -s {{text}}"}}]}',
        '{id: a, run: [x], accept: [{check: script, run: "test {{count}}"}]}',
        '{id: a, run: "{{tool}} more"}',
    ],
)
def test_a_value_never_becomes_part_of_a_shell_line(node: str) -> None:
    error = refused(work(node))
    assert error.code == "sop_value_in_shell"
    assert "$PERDURE_INPUT_" in error.message


@pytest.mark.parametrize(
    "node",
    [
        '{id: a, run: [echo, "{{text}}", "{{names}}"]}',
        '{id: a, run: [sh, -c, "echo \\"$1\\"", x, "{{text}}"]}',
        '{id: a, run: "{{tool}}"}',
        '{id: a, title: "About {{text}}", run: [x], retry: "{{count}}"}',
        '{id: a, map: {glob: "{{text}}/*.md", run: "{{tool}}", workers: "{{count}}"}}',
        '{id: a, run: [x], accept: [{exists: "artifacts/a/{{text}}"}], outputs: none}',
        '{id: a, env: {WHAT: "{{text}}"}, run: "echo $WHAT"}',
    ],
)
def test_a_value_may_stand_in_texts_paths_and_words(node: str) -> None:
    assert load(work(node)).sop_id == "acme.survey"


@pytest.mark.parametrize("node", ['{id: a, title: "x {{names}}"}', '{id: a, env: {"{{text}}": x}}'])
def test_a_value_that_is_not_one_word_stands_alone(node: str) -> None:
    assert refused(work(node)).code == "sop_value_misplaced"


# What only the graph shows


def test_an_effect_is_within_the_profile() -> None:
    error = refused(work("{id: a, run: [x], effect: S2}"))
    assert (error.code, error.rule) == ("sop_effect", "SC-1")
    assert load(work("{id: a, run: [x], effect: S2}", "side_effects: [S0, S2]\n"))


@pytest.mark.parametrize("card", ["acme.survey", "./card.yaml"])
def test_a_card_does_not_run_inside_itself(card: str) -> None:
    error = refused(work(f"{{id: a, sop: {card}}}"))
    assert (error.code, error.rule) == ("sop_recursion", "AP-N4")


@pytest.mark.parametrize("action", ["sop: ./other.yaml", "python: lib/tool.py:main"])
def test_what_a_node_names_beside_the_card_is_a_file_of_the_card(action: str) -> None:
    error = refused(work(f"{{id: a, {action}}}"))
    assert (error.code, error.rule) == ("sop_file_missing", "SC-3")
    assert load(work(f"{{id: a, {action}}}", "files: [other.yaml, lib/tool.py]\n"))


def test_an_output_is_owed_by_a_node() -> None:
    error = refused(work("{id: a, run: [x]}", "outputs: [{name: o, path: artifacts/a/o.md}]\n"))
    assert (error.code, error.rule) == ("sop_output_unmade", "PD-J1")
    head = "outputs: [{name: o, path: artifacts/a/findings.jsonl}]\n"
    assert load(work("{id: a, map: {list: [x], run: [cat]}}", head))


def test_what_a_task_file_refuses_a_card_refuses_with_the_same_words() -> None:
    found = problems_of(work("{id: a, rum: x}\n{id: b, deps: [c], outputs: [/etc/x]}"))
    assert found[0] == "14:15: a node has no key 'rum' (did you mean run?)"
    assert any("there is no node 'c'" in line for line in found)


def test_all_problems_are_told_at_once_each_with_its_code() -> None:
    text = work('{id: a, run: "echo {{text}} {{other}}"}').replace("1.2.0", "one")
    text = text.replace("permanent-spec: retry_after_probe", "permanent-spec: shrug")
    error = refused(text)
    assert (error.code, error.rule) == ("sop_invalid", "IN-1")
    for code in ("bad_version", "unknown_route", "value_in_shell", "unknown_input"):
        assert f"[sop_{code}]" in error.message


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("inputs: [{name: Text}]", "'Text' is no name of an input"),
        ("inputs: [{name: a}, {name: a}]", "the input a stands here twice"),
        ("inputs: [{name: a, schema: string}]", "there is no type 'string' (write text)"),
        ("inputs: [{name: a, schema: {type: nothing}}]", "schema is no JSON Schema"),
        ("inputs: [{name: a, schema: {$ref: 'http://x/y'}}]", "it refers to another schema"),
        ("inputs: [{name: a, schema: integer, default: x}]", "it must be a whole number"),
        ("inputs: [{name: a, default: x, required: true}]", "is required and has a default"),
        ("inputs: {a: text}", "inputs must be a list"),
        ("outputs: [{name: a}]", "an output needs name and path"),
        ("side_effects: [S9]", "there is no effect 'S9'"),
        ("files: [../x.py]", "the path '../x.py'"),
        ("files: [card.yaml]", "card.yaml is the name of the copy"),
        ("gates: [{question: Ok?}]", "a gate of a card names its node"),
        ("gates: [{node: b, question: Ok?}]", "there is no node 'b'"),
        ("colour: red", "the card has no key 'colour'"),
        ("nodes: []", "the card has no key 'nodes' (write phases)"),
        ("idempotent: 7", "idempotent must be true or false"),
        ("sop_id: x", "stands here twice"),
    ],
)
def test_what_has_no_code_of_its_own_is_a_problem_of_form(line: str, complaint: str) -> None:
    error = refused(f"{GOOD}{line}\n")
    assert error.code == "sop_invalid"
    assert complaint in error.message


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[", b"- a", b"x" * (1 << 20) + b"x"])
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(CardError):
        load_card("card.yaml", data)


def test_the_node_of_the_acceptance_has_its_id_to_itself() -> None:
    text = work("{id: acceptance, run: [x]}", "acceptance: [exists: artifacts/acceptance/x]\n")
    assert "the id acceptance is that of the node that acceptance makes" in refused(text).message
