"""Secrets on their way into the files of a workspace: masked, or refused (SE-1).

Job: know which secrets this process has to look for, mask them in what is about to be committed or
left in the drop box, and say in the event what was masked. Invariants: what is folded is what was
written, so a replay comes to the same state; a commit without a secret is encoded once and only
looked at; what would be run, or names something, is refused with a secret in it, because masked it
would be something else; no message has the secret itself in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from perdure.core.codec import ChainTip, Commit, encode_commit, to_json
from perdure.core.commands import Decision
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.secrets import DECLARING, Counts, Masker
from perdure.core.secrets import declared_secrets as secrets_of
from perdure.errors import RefusedError

DECLARED: Final = "secrets"
"""Where the source of a task names the variables whose values are secrets."""
_PROSE: Final = frozenset({"goal", "constraints", "human", "gates", "title"})
"""Fields of a spec that are read and never run."""
_WORDS: Final = _PROSE | {"reason", "directives"}
"""The same of the arguments of a call."""
_AUTHORED: Final = frozenset({"add", "amend", "split", "doc"})
"""Calls that carry a spec or a path, which are looked at where they are committed."""


class _World(Protocol):
    @property
    def environment(self) -> Mapping[str, str]:
        """What this process was given."""


class Knowing(Protocol):
    """What tells which secrets it has to look for: a reader or an engine."""

    replica: Replica

    @property
    def world(self) -> _World:
        """Where it runs."""


class Held(Knowing, Protocol):
    """The same of an engine, with what its commits carry."""

    actor: str
    masked_before: Counts

    @property
    def epoch(self) -> int:
        """Of its commits."""


def declared_names(source: Mapping[str, Any]) -> tuple[str, ...]:
    """The variables that a task names as secrets; of a journal by others whatever is a text."""
    names = source.get(DECLARED)
    return tuple(n for n in names if isinstance(n, str)) if isinstance(names, list | tuple) else ()


def declared_secrets(engine: Knowing) -> dict[str, str]:
    """The secrets of the task and of this process, name to value."""
    names = declared_names(engine.replica.state.source)
    return secrets_of(engine.world.environment, names)


def declaring(engine: Knowing) -> dict[str, str]:
    """The variable that tells children which variables are secrets, besides what they inherit."""
    names = declared_names(engine.replica.state.source)
    inherited = engine.world.environment.get(DECLARING, "")
    return {DECLARING: ",".join(filter(None, (inherited, *names)))} if names else {}


def masker_of(engine: Knowing) -> Masker:
    """What masks them, and every known shape."""
    source = engine.replica.state.source
    names = declared_names(source) if DECLARED in source else ()
    return _masker(_Environment(engine.world.environment), names)


def masker_for(environment: Mapping[str, str], names: Iterable[str] = ()) -> Masker:
    """The same outside a workspace, or before there is one."""
    return _masker(_Environment(environment), tuple(names))


class _Environment:
    """A mapping as a key: the same object is the same environment."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def __hash__(self) -> int:
        return id(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Environment) and other.values is self.values


@lru_cache(maxsize=8)
def _masker(environment: _Environment, names: tuple[str, ...]) -> Masker:
    return Masker(secrets_of(environment.values, names))


# Commits


def encode_masked(
    engine: Held,
    tip: ChainTip,
    drafts: Sequence[Draft],
    *,
    ts: str,
    op: str | None = None,
    masker: Masker | None = None,
) -> Commit:
    """``encode_commit`` with every secret masked, and counted in ``payload.masked``.

    Raises RefusedError ``secret_in_spec`` and ``secret_in_path`` (SE-1), besides what encoding
    raises.
    """
    actor, epoch = engine.actor, engine.epoch
    commit = encode_commit(tip, drafts, ts=ts, actor=actor, epoch=epoch, op=op)
    masker = masker or masker_of(engine)
    if not masker.may_match(commit.data):
        return commit
    check_op(masker, op)
    clean = [mask_draft(masker, draft) for draft in drafts]
    if all(new is old for new, old in zip(clean, drafts, strict=True)):
        return commit
    return encode_commit(tip, clean, ts=ts, actor=actor, epoch=epoch, op=op)


def check_op(masker: Masker, op: str | None) -> None:
    """Raise RefusedError for the id of an operation with a secret in it: masked it is another."""
    for name in masker.mask_text(op or "")[1]:
        _refuse("id", name)


def counted(engine: Held, decision: Decision) -> Decision:
    """The decision, whose first event says what was masked before it was taken; said once."""
    if not decision.drafts:
        return decision
    masked, engine.masked_before = engine.masked_before, {}
    first, *others = decision.drafts
    return msgspec.structs.replace(decision, drafts=(_counted(first, masked), *others))


def mask_draft(masker: Masker, draft: Draft) -> Draft:
    """The draft without a secret in its payload and its evidence; itself when there is none."""
    payload, counts = masker.mask_value(draft.payload)
    evidence, cited = masker.mask_value(draft.evidence)
    if not counts and not cited and not masker.mask_text(draft.entity_id)[1]:
        return draft
    for place, name in _unmaskable(masker, draft):
        _refuse(place, name)
    clean = msgspec.structs.replace(draft, payload=payload, evidence=evidence)
    return _counted(_counted(clean, counts), cited)


def _counted(draft: Draft, counts: Counts) -> Draft:
    if not counts:
        return draft
    before = draft.payload.get("masked") or {}
    total = {name: before.get(name, 0) + counts.get(name, 0) for name in {**before, **counts}}
    return msgspec.structs.replace(draft, payload={**draft.payload, "masked": total})


def _unmaskable(masker: Masker, draft: Draft) -> Iterator[tuple[str, str]]:
    """Where the draft holds a secret that cannot be replaced by a word, and its name."""
    yield from masker.found({"id": draft.entity_id})
    if draft.payload.get("op") == "doc":
        yield from masker.found({"path": draft.payload.get("path")})
    if draft.kind == "ARTIFACT_REGISTERED":
        yield from masker.found({"path": draft.payload.get("path")})
    elif draft.kind == "AMENDMENT":
        for node, spec in _specs(draft.payload, draft.entity_id):
            yield from masker.found({"id": node})
            yield from masker.found(_executed(spec), f"{node}: spec")


def _specs(value: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every spec that an amendment gives to a node; what stood there before is not asked about."""
    if isinstance(value, Mapping):
        named = value.get("node_id")
        name = named if isinstance(named, str) else name
        for key, inner in value.items():
            if key == "spec" and isinstance(inner, Mapping):
                yield name, inner
            elif key != "before":
                yield from _specs(inner, name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _specs(inner, name)


def _executed(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in spec.items() if field not in _PROSE}


def _refuse(place: str, name: str) -> None:
    if place == "path":
        raise RefusedError(
            f"the path of the file holds what looks like a secret ({name}).",
            code="secret_in_path",
            rule="SE-1",
            fix="Rename the file, then hand it in again.",
        )
    if place == "id":
        raise RefusedError(
            f"an id holds what looks like a secret ({name}).",
            code="secret_in_id",
            rule="SE-1",
            fix="Give it another name.",
        )
    raise RefusedError(
        f"{place} holds what looks like a secret ({name}), and is used as it stands.",
        code="secret_in_spec",
        rule="SE-1",
        fix="Put the secret into an environment variable or a file, and name that instead.",
    )


# Calls


def mask_call(masker: Masker, name: str, args: Mapping[str, Any]) -> tuple[dict[str, Any], Counts]:
    """The arguments of a call, masked before anything is decided or left in the drop box.

    So the same words come to the same digest whenever they are said. The arguments of a call that
    carries a spec stay: its commit masks or refuses them.
    """
    said = dict(args)
    if name in _AUTHORED or not _may_hold(masker, said):
        return said, {}
    clean, counts = masker.mask_value(said)
    return clean, counts


def mask_message(masker: Masker, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they may lie in the drop box, with what was masked under ``masked``.

    Raises RefusedError ``secret_in_spec`` (SE-1) where a spec holds a secret that would be used.
    """
    said = dict(args)
    if not _may_hold(masker, said):
        return said
    if name in _AUTHORED:
        for place, found in masker.found(_used(said)):
            _refuse(place, found)
    clean, counts = masker.mask_value(said)
    return {**clean, "masked": counts} if counts else clean


def _used(value: Any) -> Any:
    """What is left of arguments without the fields that are only read."""
    if isinstance(value, Mapping):
        return {key: _used(inner) for key, inner in value.items() if key not in _WORDS}
    return [_used(inner) for inner in value] if isinstance(value, list | tuple) else value


def counts_of(value: object) -> Counts:
    """What a message says was masked in it; anybody may have written that."""
    if not isinstance(value, Mapping):
        return {}
    return {k: n for k, n in value.items() if isinstance(k, str) and isinstance(n, int) and n > 0}


def _may_hold(masker: Masker, args: Mapping[str, Any]) -> bool:
    try:
        return masker.may_match(to_json(args))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False  # its commit refuses it
