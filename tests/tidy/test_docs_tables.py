"""The tables in docs/ say what the code says.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->`` and is made from the
code, by the function of that name in ``TABLES``. ``PERDURE_REWRITE=1`` writes the tables into the
documents instead of comparing them. What is no table (the keys of a task file, the variables of a
command) is looked for in the text.
"""

import ast
import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from perdure import errors
from perdure.control import (
    taskfile,
    taskfile_actions,
    taskfile_map,
    taskfile_nodes,
    taskfile_people,
    taskfile_tree,
)
from perdure.control.outcome import Ended, classify
from perdure.core import (
    check_values,
    contract,
    criteria,
    durations,
    grants,
    machine,
    model,
    naming,
    people,
)
from perdure.core.check_methods import METHODS
from perdure.core.diagnosis import ROWS, SCOPE_ROW
from perdure.core.recovery import NODE_RULES
from perdure.core.rights import MOVES, RIGHTS, ROLES, TO_READY
from perdure.core.rulebook import STRENGTHS, held
from perdure.core.rules import meaning_of, rule_ids
from perdure.core.supervision_decide import _ACTS, PRECEDENCE
from perdure.runtime import file_glob, probe, saved_files, verify

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted(DOCS.rglob("*.md"))
TABLE = re.compile(
    r"(?P<head><!-- table: (?P<name>[\w-]+) -->)\n.*?<!-- end of table -->", re.DOTALL
)

# A guard says in the code what does not hold; here it is said what must. A new guard needs a line.
NODE_GUARDS = {
    "_always": "",
    "_deps_done": "every dep is DONE",
    "_settled": "no open question about the node; every gate is approved for what was verified",
    "_may_start": "every dep is DONE, no open question, no draft; every gate is approved",
    "_may_retry": "as for N02, and strikes of the method below the retry budget",
    "_may_wake": "no open question about the node; every dep is DONE",
    "_can_be_redone": "this strike is not the last one of the method",
    "_replanned": "the amendment came after the failure; strikes as for N11; every dep is DONE",
}
TASK_GUARDS = {
    "_free": "",
    "_some_frontier": "something may start, or nothing is open",
    "_may_go_on": "something is at work, being verified or may start, or nothing is open",
    "_no_live_contract": "no contract is in force",
    "_nothing_open": "at least one node; every node closed; none quarantined without a successor",
}

SUPERVISION = {
    "ended": "the task is COMPLETED, FAILED or ABANDONED, and nothing contradicts that",
    "blocked_and_escalated": "blocked, a person has been told, and nothing else can go on",
    "executor_fails": "three errors in a row, with no success since",
    "never_converges": "usable output, errors since, and no success for `renotify_s`",
    "contradicted": "something cannot be true at once",
    "suspicious_claim": "the only contradiction is a pending external job without evidence",
    "may_be_dead": "the process that somebody worked in is gone",
    "retry_first": "a confirmed blocker that may pass, with fewer than `retries_max` retries seen",
    "output_before_blocker": "a confirmed blocker, and usable output: the owner is asked first",
    "blocked": "any other confirmed blocker, or a question that is overdue",
    "nudged_in_vain": "silent, and `nudges_max` nudges brought nothing",
    "silent": "no sign of progress for `nudge_after_s`, or a session let its contract run out",
    "stale": "no sign of progress for `idle_after_s`, or asked within `renotify_s`",
    "heartbeat_late": "no sign of life for `heartbeat_s`",
    "ok": "otherwise",
}


def rows(head: str, lines: Iterator[tuple[str, ...]]) -> str:
    columns = head.split(" | ")
    listed = [columns, ["---"] * len(columns), *([*line] for line in lines)]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in listed)


def code(words: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def node_edges() -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        every: list[machine.Edge] = [*machine.NODE_EDGES, machine.RC1]
        for name, group in groupby(every, lambda edge: edge.id):
            edges = list(group)
            sources = ", ".join(edge.source for edge in edges)
            edge = edges[0]
            guard = NODE_GUARDS[edge.guard.__name__]
            yield name, f"{sources} -> {edge.target}", edge.meaning, guard, code(edge.required)

    return rows("id | from -> to | when | guard | the event carries", lines())


def task_edges() -> str:
    lines = (
        (edge.id, f"{edge.source} -> {edge.target}", edge.meaning, TASK_GUARDS[edge.guard.__name__])
        for edge in machine.TASK_EDGES
    )
    return rows("id | from -> to | when | guard", lines)


def recovery_rules() -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for rule in NODE_RULES:
            effect = {None: "any", True: "without receipt", False: "none, or with receipt"}
            yield (
                ", ".join(rule.states),
                rule.contract or "any",
                ", ".join(rule.files or ("any",)),
                effect[rule.effect_open],
                f"`{rule.repair}`",
                rule.why,
            )

    return rows("state | contract | files | S3 effect | repair | why", lines())


def rule_list() -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for name in rule_ids():
            strength, test = held(name)
            yield name, meaning_of(name).replace("|", "\\|"), strength, f"`{test}`"

    return rows("rule | meaning | strength | held by", lines())


def strengths() -> str:
    return rows("strength | meaning", STRENGTHS.items())


def policies() -> str:
    values = model.Policies()
    lines = ((f"`{n}`", f"{getattr(values, n):g}") for n in model.Policies.__struct_fields__)
    return rows("policy | default", lines)


def check_methods() -> str:
    lines = (
        (f"`{name}`", f"`{name}: {method.usage}`", code(method.names) or "free-form")
        for name, method in METHODS.items()
    )
    return rows("method | as text | parameters of the mapping form", lines)


def exit_codes() -> str:
    classes = [(n, classify(Ended("exited", exit_code=n))[0]) for n in range(1, 256)]
    by_class: dict[str, list[str]] = {}
    for failure_class, group in groupby(classes, lambda entry: entry[1]):
        numbers = [n for n, _ in group]
        span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 2 else ", ".join(map(str, numbers))
        by_class.setdefault(failure_class, []).append(span)
    order = ("transient-environment", "permanent-spec", "permanent-resource", "transient-agent")
    lines = ((", ".join(by_class[name]), f"`{name}`") for name in order)
    return rows("exit code | class", lines)


def supervision() -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for row in PRECEDENCE:
            verb, to = _ACTS[row.state]
            yield str(row.line), f"`{row.state}`", SUPERVISION[row.name], f"`{verb}`", to

    return rows("line | state | when | action | to", lines())


def rights() -> str:
    every = [*RIGHTS.values(), *MOVES.values(), TO_READY]
    said = dict.fromkeys((right.what, right.roles) for right in every)
    lines = ((what, "everybody" if roles == ROLES else ", ".join(roles)) for what, roles in said)
    return rows("to | takes one of", lines)


def causes() -> str:
    last = {row.seen: row for row in (*ROWS, SCOPE_ROW)}
    lines = (
        (f"`{row.cause}`" if row.cause else "", row.seen, f"`{row.failure_class}`", row.advice)
        for row in last.values()
    )
    return rows("cause | seen | class | what helps", lines)


LIMITS = (
    ("task file", taskfile.task_file_bytes_max, "bytes"),
    ("one node as JSON", taskfile_nodes.spec_bytes_max, "bytes"),
    ("one check as JSON", criteria.criterion_bytes_max, "bytes"),
    ("title", model.title_chars_max, "characters"),
    ("gates of a node", people.gates_max, "gates"),
    ("path of a check", naming.path_chars_max, "characters"),
    ("nesting of YAML", taskfile_tree.depth_max, "levels"),
    ("YAML aliases", taskfile_tree.aliases_max, "uses"),
    ("a duration", durations.duration_max_s, "seconds"),
    ("the timeout of a script", check_values.timeout_s_max, "seconds"),
    ("file searched by `matches`", verify.matched_file_bytes_max, "bytes"),
    ("document or schema of `json-schema`", verify.json_file_bytes_max, "bytes"),
    ("one line of a file that is read by lines", probe.line_bytes_max, "bytes"),
    ("names a glob looks at", file_glob.glob_entries_max, "names"),
    ("contract", model.contract_bytes_max, "bytes"),
    ("grants of a node", grants.grants_max, "grants"),
    ("files copied before an S1 node starts", saved_files.saved_files_max, "files"),
    ("their bytes", saved_files.saved_bytes_max, "bytes"),
    ("events in one commit", model.events_per_commit_max, "events"),
    ("one event", model.event_bytes_max, "bytes"),
    ("nodes in a task", model.nodes_max, "nodes"),
    ("problems reported at once", taskfile_tree.problems_shown_max, "problems"),
)


def limits() -> str:
    lines = ((what, f"{int(most):,}", unit) for what, most, unit in LIMITS)
    return rows("what | at most | unit", lines)


def error_kinds(kind: type[errors.HaltError] = errors.HaltError) -> list[type[errors.HaltError]]:
    below = [k for child in kind.__subclasses__() for k in error_kinds(child)]
    return [kind, *below] if kind.__module__ == "perdure.errors" else below


def error_table() -> str:
    lines = (
        (
            f"`{kind.__name__}`",
            str(kind.exit_code),
            f"`{kind.code}`",
            kind.rule,
            (kind.__doc__ or "").splitlines()[0],
        )
        for kind in error_kinds()
        if kind is not errors.HaltError
    )
    return rows("error | exit | default code | default rule | meaning", lines)


def literal_codes() -> dict[str, set[str]]:
    """Code to the error classes that are raised with it, as written in the source."""
    found: dict[str, set[str]] = {}
    kinds = {kind.__name__: kind for kind in error_kinds()}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id not in kinds:
                continue
            for keyword in node.keywords:
                if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                    found.setdefault(str(keyword.value.value), set()).add(node.func.id)
    for name, _ in errors._OS_CAUSES.values():
        found.setdefault(name, set()).add("StorageError")
    for kind in kinds.values():
        if kind is not errors.HaltError:
            found.setdefault(kind.code, set()).add(kind.__name__)
    return found


def error_codes() -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for name, classes in sorted(literal_codes().items()):
            exits = {getattr(errors, kind).exit_code for kind in classes}
            yield f"`{name}`", ", ".join(map(str, sorted(exits))), code(sorted(classes))

    return rows("code | exit | raised as", lines())


def schema_of_a_contract() -> str:
    """No table, but made from the code like one; a line for each field."""
    schema = contract.contract_schema()
    lines = ["```json", f'{{"$ref": {json.dumps(schema["$ref"])}, "$defs": {{']
    for name, kind in schema["$defs"].items():
        fields = kind.pop("properties")
        lines += [f' "{name}": {{', *(f"  {json.dumps(k)}: {json.dumps(kind[k])}," for k in kind)]
        inner = [f'   "{field}": {json.dumps(about)}' for field, about in fields.items()]
        lines += ['  "properties": {', ",\n".join(inner), "  }", " },"]
    return "\n".join([*lines[:-1], " }", "}}", "```", ""])


TABLES: dict[str, Callable[[], str]] = {
    "contract-schema": schema_of_a_contract,
    "node-edges": node_edges,
    "task-edges": task_edges,
    "recovery-rules": recovery_rules,
    "rules": rule_list,
    "strengths": strengths,
    "policies": policies,
    "check-methods": check_methods,
    "exit-codes": exit_codes,
    "limits": limits,
    "errors": error_table,
    "error-codes": error_codes,
    "supervision": supervision,
    "rights": rights,
    "causes": causes,
}


def with_tables(text: str) -> str:
    def made(match: re.Match[str]) -> str:
        return f"{match['head']}\n\n{TABLES[match['name']]()}\n<!-- end of table -->"

    return TABLE.sub(made, text)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_tables_in_the_documents_are_what_the_code_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = with_tables(text)
    if os.environ.get("PERDURE_REWRITE") == "1":
        path.write_text(wanted, encoding="utf-8")
        return
    assert text == wanted, f"PERDURE_REWRITE=1 pytest {Path(__file__).name} rewrites the tables"


def test_every_table_stands_in_a_document() -> None:
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    found = [match["name"] for text in texts for match in TABLE.finditer(text)]
    assert sorted(found) == sorted(TABLES)


def test_one_code_has_one_exit_code() -> None:
    exits = {
        name: {getattr(errors, kind).exit_code for kind in kinds}
        for name, kinds in literal_codes().items()
    }
    assert {name: found for name, found in exits.items() if len(found) > 1} == {}


def test_every_key_of_a_task_file_is_documented() -> None:
    text = (DOCS / "task-file.md").read_text(encoding="utf-8")
    keys = {
        *taskfile._TASK_KEYS,
        *taskfile_people.PEOPLE_KEYS,
        *taskfile_people.GATE_KEYS,
        *taskfile_nodes._NODE_KEYS,
        *taskfile_nodes._BUDGET_KEYS,
        *taskfile_actions.PYTHON_KEYS,
        *taskfile_actions.AGENT_KEYS,
        *taskfile_actions.SOP_KEYS,
        *taskfile_actions.HUMAN_KEYS,
        *taskfile_map.MAP_KEYS,
    }
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_every_field_of_a_contract_is_documented() -> None:
    text = (DOCS / "contract.md").read_text(encoding="utf-8").partition("## The schema")[0]
    fields = contract.Contract.__struct_fields__
    assert {name for name in fields if f"`{name}`" not in text} == set()


def test_every_variable_of_a_command_is_documented() -> None:
    text = (DOCS / "task-file.md").read_text(encoding="utf-8")
    sources = [ROOT / "src/perdure/runtime/contracts.py", ROOT / "src/perdure/host.py"]
    variables = {
        word
        for path in sources
        for word in re.findall(r'"(PERDURE_[A-Z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert "PERDURE_SCOPE" in variables
    assert {word for word in variables if f"`{word}`" not in text} == set()


def test_a_wrong_table_is_noticed_and_rewritten() -> None:
    stale = "Before.\n\n<!-- table: policies -->\n\n| policy |\n<!-- end of table -->\n\nAfter.\n"
    fresh = with_tables(stale)
    assert fresh != stale
    assert with_tables(fresh) == fresh
    assert fresh.startswith("Before.\n\n<!-- table: policies -->\n\n| policy | default |\n")
    assert fresh.endswith("\n\n<!-- end of table -->\n\nAfter.\n")
