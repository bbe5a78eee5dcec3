"""The nodes of a task file.

Job: read one node after another into a :class:`NodePlan` and remember what only the whole file
can settle (which ids exist, who depends on whom, who claims which path).
Invariants: a plan's paths are normal and its own, its checks are complete, its numbers in range.
Never: raises for what the file says (problems go to the reader), or looks at a disk.
"""

from typing import Final, NamedTuple, cast

import msgspec

from perdure.control.taskfile_actions import (
    read_agent,
    read_grants,
    read_human,
    read_python,
    read_sop,
)
from perdure.control.taskfile_fields import FieldReader, shown
from perdure.control.taskfile_map import read_map, read_run
from perdure.control.taskfile_people import PeopleReader
from perdure.control.taskfile_tree import Fields, Items, Place, Scalar, Tree, plain_value
from perdure.core.actions import ACTION_KINDS
from perdure.core.batch import outputs_with_findings
from perdure.core.criteria import parse_criterion
from perdure.core.grants import grants_max
from perdure.core.model import (
    CHECK_METHODS,
    EFFECTS,
    MECHANICAL_LEVELS,
    RESERVED_NODE_IDS,
    RESUME_POLICIES,
    VERIFICATION_LEVELS,
    Budget,
    Criterion,
    Effect,
    ResumePolicy,
    Spec,
    VerificationLevel,
    contract_bytes_max,
    title_chars_max,
)
from perdure.core.tiers import default_level
from perdure.errors import PathError, UsageError
from perdure.storage.workspace import normal_path, reserved_reason

spec_bytes_max: Final = contract_bytes_max // 2
"""The other half of a contract is for what the runtime adds to it."""
count_max: Final = 1_000_000_000

_NODE_KEYS: Final = (
    "id", "title", "goal", "deps", "priority", "run", "map", "python", "agent", "sop", "human",
    "grants", "env", "inputs", "outputs", "accept", "constraints", "budget", "retry", "verify",
    "resume", "effect", "cost", "gate", "gates", "successor_of",
)  # fmt: skip
_BUDGET_KEYS: Final = ("wall", "tool_calls", "cost_usd", "tokens")

_NODE_HINTS: Final = {
    "node_id": "id", "name": "id or title", "description": "goal", "depends_on": "deps",
    "depends": "deps", "needs": "deps", "after": "deps", "command": "run", "cmd": "run",
    "script": "run, or accept for a check", "shell": "run", "environment": "env",
    "acceptance": "accept", "checks": "accept", "timeout": "budget: {wall: ...}",
    "wall": "budget: {wall: ...}", "retries": "retry", "retry_budget": "retry",
    "verification_level": "verify", "resume_policy": "resume", "approval": "gate",
    "approve": "gate", "review": "gate", "call": "python", "function": "python",
    "prompt": "agent, with goal: what to do", "model": "agent: {agent: NAME, model: ...}",
    "card": "sop", "procedure": "sop", "person": "human", "authority": "grants",
    "permissions": "grants", "allow": "grants",
}  # fmt: skip


class NodePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as the file has it, ready to be added to a task."""

    node_id: str
    title: str
    spec: Spec
    deps: tuple[str, ...] = ()
    priority: int = 0
    verification_level: VerificationLevel = "V1"
    resume_policy: ResumePolicy = "reverify_if_amended"
    effect: Effect = "S0"
    successor_of: str | None = None
    """The quarantined or cancelled node that this one stands in for (N14)."""
    level_by_tier: bool = False
    """No level is named: it is the one that the tier asks for, and a task that exists already may
    be of another tier than its file says (:func:`at_tier`)."""


def at_tier(plan: NodePlan, tier: int) -> NodePlan:
    """The plan as it is in a task of this tier."""
    if not plan.level_by_tier:
        return plan
    return msgspec.structs.replace(plan, verification_level=default_level(tier))


class Dep(NamedTuple):
    """One dep entry and where it stands."""

    node: str
    dep: str
    place: Place


class NodeReader:
    """One pass over the nodes."""

    def __init__(
        self, reader: FieldReader, tier: int, people: PeopleReader, grants: tuple[str, ...] = ()
    ) -> None:
        self.reader = reader
        self.tier = tier
        self.people = people
        self.grants = grants
        """Of the whole task: each node has them."""
        self.seen: dict[str, Place] = {}
        """Every legal id and where it stands."""
        self.deps: list[Dep] = []
        self.claims: dict[str, str] = {}
        """Output path to the node that claims it."""

    def read(self, tree: Tree, key: str | None, place: Place) -> NodePlan | None:
        """The plan of one node; ``key`` is its id where nodes are a mapping."""
        reader = self.reader
        fields = reader.section(tree, f"node {key}" if key else "a node", _NODE_KEYS, _NODE_HINTS)
        node_id = self._node_id(tree, fields, key, place)

        def value(name: str) -> Tree | None:
            return fields[name][1] if name in fields else None

        def word(name: str, words: tuple[str, ...], default: str) -> str:
            tree = value(name)
            return (reader.word(tree, name, words) if tree else None) or default

        spec = self._spec(node_id, fields)
        title = value("title")
        level = word("verify", VERIFICATION_LEVELS, default_level(self.tier))
        if level == "V0" and self.tier > 0 and spec.outputs != ():
            what = "verify V0 is for tier 0 and for scratch nodes (outputs: none)"
            reader.bad(fields["verify"][1].place, what, "write V1")
        priority = value("priority")
        before = value("successor_of")
        plan = NodePlan(
            node_id=node_id,
            title=reader.text(title, "title", chars_max=title_chars_max) if title else node_id,
            spec=spec,
            deps=self._deps(node_id, value("deps")),
            priority=(
                reader.whole(priority, "priority", -count_max, count_max) if priority else None
            )
            or 0,
            verification_level=cast(VerificationLevel, level),
            resume_policy=cast(
                ResumePolicy, word("resume", RESUME_POLICIES, "reverify_if_amended")
            ),
            effect=cast(Effect, word("effect", EFFECTS, "S0")),
            successor_of=(reader.text(before, "successor_of") if before else "") or None,
            level_by_tier="verify" not in fields,
        )
        return plan if node_id else None

    def _node_id(
        self, tree: Tree, fields: dict[str, tuple[Place, Tree]], key: str | None, place: Place
    ) -> str:
        reader = self.reader
        if key is not None:
            node_id = key if reader.check_id(place, key, "id", RESERVED_NODE_IDS) else ""
            if "id" in fields and reader.text(fields["id"][1], "id") != key:
                what = f"the id is not that of its key {shown(key)}"
                reader.bad(fields["id"][1].place, what, "remove it")
        elif "id" in fields:
            place = fields["id"][1].place
            node_id = reader.identifier(fields["id"][1], "id", RESERVED_NODE_IDS)
        else:
            if isinstance(tree, Fields):
                reader.bad(place, "a node without id", "add id: NAME")
            return ""
        if node_id in self.seen:
            what = f"the id {shown(node_id)} is taken (line {self.seen[node_id].line})"
            reader.bad(place, what, "choose another id")
            return ""
        if node_id:
            self.seen[node_id] = place
        return node_id

    def _deps(self, node_id: str, tree: Tree | None) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for place, dep in self.reader.texts(tree, "deps") if tree else []:
            if dep == node_id:
                self.reader.bad(place, f"{dep} depends on itself", "remove it")
            elif dep in found:
                self.reader.bad(place, f"the dep {shown(dep)} stands here twice", "remove one")
            else:
                found[dep] = None
                self.deps.append(Dep(node_id, dep, place))
        return tuple(found)

    def _spec(self, node_id: str, fields: dict[str, tuple[Place, Tree]]) -> Spec:
        reader = self.reader

        def texts(name: str) -> tuple[str, ...]:
            listed = reader.texts(fields[name][1], name) if name in fields else []
            return tuple(text for _, text in listed)

        cost = reader.amount(fields["cost"][1], "cost") if "cost" in fields else None
        batch = read_map(reader, fields["map"][1], fields["map"][0]) if "map" in fields else None
        self._check_one_action(fields)
        outputs = self._outputs(node_id, fields["outputs"][1]) if "outputs" in fields else None
        if batch is not None:
            self._check_batch(fields, outputs)
            outputs = outputs_with_findings(node_id or "NODE", outputs)
        spec = Spec(
            goal=reader.text(fields["goal"][1], "goal") if "goal" in fields else "",
            inputs=texts("inputs"),
            outputs=outputs,
            acceptance_criteria=self._criteria(fields),
            constraints=texts("constraints"),
            budget=self._budget(fields["budget"][1]) if "budget" in fields else Budget(),
            run=read_run(reader, fields["run"][1]) if "run" in fields else None,
            map=batch,
            python=read_python(reader, fields["python"][1]) if "python" in fields else None,
            agent=read_agent(reader, fields["agent"][1]) if "agent" in fields else None,
            sop=read_sop(reader, fields["sop"][1]) if "sop" in fields else None,
            human=read_human(reader, fields["human"][1]) if "human" in fields else None,
            grants=self._grants(fields),
            env=reader.texts_of_env(fields["env"][1], "env") if "env" in fields else {},
            retry_budget=(
                reader.whole(fields["retry"][1], "retry", 0, 1_000) if "retry" in fields else None
            ),
            cost=1.0 if cost is None else cost,
            gates=self.people.gates_of(node_id, fields),
        )
        if spec.outputs == () and "accept" not in fields:
            what = "outputs: none needs a check, or nothing would prove the work"
            reader.bad(fields["outputs"][1].place, what, "add accept: with at least one check")
        size = len(msgspec.json.encode(spec))
        if size > spec_bytes_max and fields:
            place = min(place for place, _ in fields.values())
            what = f"the node takes {size} bytes; {spec_bytes_max} is the most"
            reader.bad(place, what, "split it, or move long texts into files")
        return spec

    def _grants(self, fields: dict[str, tuple[Place, Tree]]) -> tuple[str, ...]:
        """Those of the task, then the node's own."""
        if "grants" not in fields:
            return self.grants
        own = read_grants(self.reader, fields["grants"][1])
        grants = tuple(dict.fromkeys((*self.grants, *own)))
        if len(own) <= grants_max < len(grants):
            what = f"the node has {len(grants)} grants, the task's included; {grants_max}"
            fix = "grant a directory with write:DIR/*"
            self.reader.bad(fields["grants"][0], f"{what} is the most", fix)
        return grants

    def _check_one_action(self, fields: dict[str, tuple[Place, Tree]]) -> None:
        kinds = [kind for kind in ACTION_KINDS if kind in fields]
        if len(kinds) < 2:
            return
        what = f"a node has either {kinds[0]} or {kinds[1]}"
        fix = "make two nodes of it"
        if "map" in kinds[:2] and {*kinds[:2]} <= {"run", "map", "agent"}:
            fix = "keep the other one inside map, or make two nodes of it"
        self.reader.bad(max(fields[kind][0] for kind in kinds[:2]), what, fix)

    def _check_batch(
        self, fields: dict[str, tuple[Place, Tree]], outputs: tuple[str, ...] | None
    ) -> None:
        """What a batch node cannot have besides its ``map``."""
        bad = self.reader.bad
        if outputs == ():
            what = "a batch node owes its findings"
            bad(fields["outputs"][1].place, what, "remove outputs: none")
        effect = fields["effect"][1] if "effect" in fields else None
        if isinstance(effect, Scalar) and effect.text == "S3":
            what = "effect S3 needs a node for each effect: a unit that is interrupted runs again"
            bad(effect.place, what, "make nodes of the items, each with its receipt")

    def _outputs(self, node_id: str, tree: Tree) -> tuple[str, ...] | None:
        reader = self.reader
        if isinstance(tree, Scalar) and tree.text == "none":
            return ()
        listed = reader.texts(tree, "outputs")
        if isinstance(tree, Items) and not tree.items:
            reader.bad(tree.place, "outputs is an empty list", "write outputs: none, or name files")
        paths = []
        for place, text in listed:
            try:
                path = normal_path(text)
            except PathError as error:
                reader.bad(place, error.message.rstrip("."), error.fix.rstrip("."))
                continue
            reason = reserved_reason(path, node_id)
            if reason:
                what = f"{shown(path)} cannot be an output: {reason.rstrip('.')}"
                reader.bad(place, what, f"use artifacts/{node_id or 'NODE'}/...")
            elif path in self.claims:
                what = f"{shown(path)} is already an output of {self.claims[path]}"
                reader.bad(place, what, "choose another path")
            else:
                self.claims[path] = node_id or "another node"
                paths.append(path)
        return tuple(paths) if paths else None

    def _criteria(self, fields: dict[str, tuple[Place, Tree]]) -> tuple[Criterion, ...]:
        if "accept" not in fields:
            return ()
        tree = fields["accept"][1]
        if not isinstance(tree, Items) or not tree.items:
            self.reader.bad(tree.place, "accept must be a list of checks", "write '- exists: PATH'")
            return ()
        level = "V1"
        if "verify" in fields and isinstance(verify := fields["verify"][1], Scalar):
            # Above that it is a person who judges the node, on top of what the runtime checks.
            level = verify.text if verify.text in MECHANICAL_LEVELS else level
        found = []
        for item in tree.items:
            try:
                entry = _criterion_entry(item)
                found.append(parse_criterion(entry, level=cast(VerificationLevel, level)))
            except UsageError as error:
                fix = error.fix.rstrip(".")
                if error.suggestions:
                    fix = f"did you mean {' or '.join(error.suggestions)}? {fix}"
                self.reader.bad(item.place, error.message.rstrip("."), fix)
        return tuple(found)

    def _budget(self, tree: Tree) -> Budget:
        reader = self.reader
        hints = {"timeout": "wall", "time": "wall", "usd": "cost_usd", "cost": "cost_usd"}
        fields = reader.section(tree, "budget", _BUDGET_KEYS, hints)

        def count(name: str) -> int | None:
            if name not in fields:
                return None
            return reader.whole(fields[name][1], f"budget.{name}", 1, count_max)

        return Budget(
            max_wall_s=(
                reader.duration_s(fields["wall"][1], "budget.wall") if "wall" in fields else None
            ),
            max_tool_calls=count("tool_calls"),
            max_cost_usd=(
                reader.amount(fields["cost_usd"][1], "budget.cost_usd")
                if "cost_usd" in fields
                else None
            ),
            max_tokens=count("tokens"),
        )


def _criterion_entry(tree: Tree) -> object:
    """The entry as :func:`parse_criterion` reads it: the arguments of a method stay as written."""
    if isinstance(tree, Scalar):
        return tree.text
    if not isinstance(tree, Fields):
        return plain_value(tree)
    return {
        key: value.text
        if key in CHECK_METHODS and isinstance(value, Scalar) and plain_value(value) is not None
        else plain_value(value)
        for key, (_, value) in tree.fields.items()
    }
