"""Runs acceptance checks, itemised (the V1 verifier of protocol section 5).

Job: run every criterion of a node against the bytes on disk now and say what was found. Invariants:
all criteria are run, also after one has failed; the bytes that are judged are the bytes that are
hashed, in one reading; a result holds method, parameters, inputs and finding, and no clock, so a
reader can recompute the verdict from it (A-4). A check that cannot be made is a check that failed.
Never writes a file, never follows a link out of the workspace, never passes what only an auditor
(V2) can decide, and what a person decides (V3) only by an approval of exactly this content. A
pattern that backtracks without end is the task author's fault
and is not limited in time; everything else is bounded.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from perdure.core.check_values import compile_pattern
from perdure.core.criteria import parse_criterion
from perdure.core.model import CheckMethod, Criterion, VerificationLevel
from perdure.core.people import Approval, Gate
from perdure.errors import CheckFailedError, PathError, StorageError, UsageError
from perdure.ports import Disk
from perdure.runtime.file_glob import matching_files
from perdure.runtime.probe import (
    CitedContract,
    FirstFew,
    Probe,
    fault_chars_max,
    first_few_max,
)
from perdure.runtime.script import run_script
from perdure.runtime.units import check_units

# Limits.
detail_chars_max: Final = 2_000
matched_file_bytes_max: Final = 16 << 20
json_file_bytes_max: Final = 64 << 20


class CheckResult(msgspec.Struct, frozen=True):
    """What one criterion came to, complete enough to be recomputed (A-4)."""

    check: CheckMethod
    params: dict[str, Any]
    level: VerificationLevel
    passed: bool
    method: str
    """How it was established, in one sentence."""
    inputs: tuple[dict[str, Any], ...] = ()
    """``{path, sha256, size_bytes}`` of every file that was read to its end, in that order."""
    detail: str = ""
    """What was found, at most ``detail_chars_max`` characters."""


def run_checks(
    disk: Disk,
    root: str,
    node_id: str,
    criteria: Sequence[Criterion],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: str | None = None,
    contract: CitedContract | None = None,
) -> list[CheckResult]:
    """Run all of them, in order, one result each; nothing short-circuits.

    ``timeout_s`` limits each script that names no limit itself, in seconds; scripts run in ``cwd``
    (the workspace by default) with exactly ``environment``. ``contract`` is that of a batch node,
    whose units it names. A criterion that is malformed, leaves
    the workspace or meets an I/O error is a failed result that names the error; it never raises
    for these.
    """
    return [
        _run_check(
            Probe(
                disk,
                root,
                node_id=node_id,
                environment=environment,
                timeout_s=timeout_s,
                cwd=cwd or root,
                contract=contract,
            ),
            criterion,
        )
        for criterion in criteria
    ]


def judgement_item(
    criterion: Criterion | None, gate: Gate, approval: Approval | None, files: Mapping[str, str]
) -> dict[str, Any]:
    """What a person's judgement comes to, itemised like a check: who, by which event, on what.

    ``approval`` is the one of exactly these files, or None while there is none: then the item is
    ``pending``, which is neither a pass nor a failure. ``criterion`` is None where the node's level
    (V3) alone asks for it.
    """
    item: dict[str, Any] = {
        "check": "human",
        "params": criterion.params if criterion is not None else {"rubric": gate.rubric},
        "level": "V3",
        "passed": approval is not None,
        "method": _HOW["human"],
        "inputs": [{"path": path, "sha256": digest} for path, digest in files.items()],
        "gate": gate.gate_id,
        "rubric": gate.rubric,
    }
    if approval is None:
        return {**item, "pending": True, "detail": f"gate {gate.gate_id} waits for a person."}
    said = f"approved by {approval.by} in {approval.ref}."
    return {**item, "by": approval.by, "ref": approval.ref, "detail": said}


def _run_check(probe: Probe, criterion: Criterion) -> CheckResult:
    known, method = criterion, "The criterion was validated before anything was run."
    try:
        # A record may come from another program or a caller of the library.
        known = parse_criterion(criterion)
        method = _HOW[known.check]
        passed, detail = _CHECKS[known.check](probe, known.params)
    except CheckFailedError as error:
        passed, detail = False, error.message
    except (PathError, StorageError, UsageError) as error:
        passed, detail = False, str(error)
    # The journal takes UTF-8 only; names and messages may hold other bytes.
    detail = detail.encode("utf-8", "replace").decode()
    if len(detail) > detail_chars_max:
        detail = detail[: detail_chars_max - 3] + "..."
    return CheckResult(
        check=known.check,
        params=known.params,
        level=known.level,
        passed=passed,
        method=method,
        inputs=tuple(probe.inputs),
        detail=detail,
    )


# The checks. Each says whether it holds and what was found.


def _check_exists(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    return _look_up(probe, params, may_be_empty=True)


def _check_nonempty(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    return _look_up(probe, params, may_be_empty=False)


def _look_up(probe: Probe, params: dict[str, Any], *, may_be_empty: bool) -> tuple[bool, str]:
    """Every path is looked at, also after one has failed."""
    good, bad = FirstFew(), FirstFew()
    for path in params.get("paths") or [params["path"]]:
        try:
            full, found = probe.locate(path)
            if found is None:
                bad.add(f"{path} is not there")
                continue
            if found.kind == "dir":
                size, unit = len(probe.disk.list_dir(full)), "names"
            else:
                size, unit = probe.hash(path)[1], "bytes"
        except CheckFailedError as error:
            bad.add(error.message.rstrip("."))
        except (PathError, StorageError) as error:
            bad.add(str(error))
        else:
            if size or may_be_empty:
                good.add(f"{path} is there, {size} {unit}")
            else:
                bad.add(f"{path} is empty")
    return not bad.count, f"{bad if bad.count else good}."


def _check_sha256(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    path, wanted = params["path"], params["value"]
    value, size_bytes = probe.hash(path)
    if value == wanted:
        return True, f"{path} has that sha256, {size_bytes} bytes."
    return False, f"{path} has sha256 {value}, not {wanted}; {size_bytes} bytes."


def _check_schema(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    path, schema = params["path"], params["schema"]
    if isinstance(schema, str):
        schema = _decoded(probe.read(schema, json_file_bytes_max), schema)
    errors_of = schema_errors(schema)
    findings = FirstFew()
    if not path.endswith((".jsonl", ".ndjson")):
        for error in errors_of(_decoded(probe.read(path, json_file_bytes_max), path)):
            findings.add(error)
        return not findings.count, f"{findings if findings.count else f'{path} is valid'}."
    checked = 0
    for number, line in probe.lines(path):
        if not line.strip():
            continue
        checked += 1
        if findings.count > first_few_max:
            continue  # enough is known; the rest is read for the hash only
        try:
            errors = errors_of(_decoded(line, "it"))
        except CheckFailedError as error:
            errors = [error.message.rstrip(".")]
        for text in errors:
            findings.add(f"line {number}: {text}")
    valid = f"{checked} lines of {path} are valid"
    return not findings.count, f"{findings if findings.count else valid}."


def schema_errors(schema: object) -> Callable[[Any], list[str]]:
    """A function that lists the first errors of a document, with JSON paths.

    References are resolved in the schema itself and in the published drafts, never over a network.
    """
    # Both cost too much to import for every verification; the second is the first one's own.
    import jsonschema
    import referencing

    if not isinstance(schema, dict):
        raise CheckFailedError("the schema is not a JSON object.")
    name = schema.get("$schema", jsonschema.Draft202012Validator.META_SCHEMA["$id"])
    # Without its own default it would take an unknown draft for the newest one.
    no_default: Any = None
    validator_class = jsonschema.validators.validator_for({"$schema": str(name)}, no_default)
    if validator_class is None:
        raise CheckFailedError(f"the schema's $schema {name!r} is not a draft of JSON Schema.")
    try:
        validator_class.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise CheckFailedError(
            f"the schema is invalid at {error.json_path}: {error.message}"
        ) from None
    validator = validator_class(schema, registry=referencing.Registry())

    def errors_of(document: Any) -> list[str]:
        try:
            found = islice(validator.iter_errors(document), first_few_max + 1)
            return [f"{error.json_path}: {error.message[:fault_chars_max]}" for error in found]
        except referencing.exceptions.Unresolvable as error:
            raise CheckFailedError(f"the schema refers to {error.ref!r}, which it lacks.") from None
        except (re.error, RecursionError) as error:
            raise CheckFailedError(f"the schema cannot be applied: {error}.") from None

    return errors_of


def _check_matches(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    path = params["path"]
    pattern = compile_pattern(params["pattern"])
    text = probe.read(path, matched_file_bytes_max).decode("utf-8", "replace")
    found = pattern.search(text)
    if found is None:
        return False, f"nothing in {path} matches."
    line = text.count("\n", 0, found.start()) + 1
    return True, f"{path} matches on line {line}: {found[0][:fault_chars_max]!r}."


def _check_count(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    if "lines" in params:
        number = sum(1 for _ in probe.lines(params["lines"]))
        found = f"{params['lines']} has {number} lines"
    else:
        paths, links = matching_files(probe.disk, probe.root, params["glob"])
        number = len(paths)
        listing = hashlib.sha256(_listed(paths)).hexdigest()
        found = f"{number} files match {params['glob']} (sha256 of their sorted names {listing})"
        if links:
            found += f", {links} links passed over"
        if paths:
            found += f": {', '.join(paths[:first_few_max])}" + (
                ", ..." if number > first_few_max else ""
            )
    wanted = params.get("equals")
    least, most = params.get("min", wanted), params.get("max", wanted)
    passed = (least is None or number >= least) and (most is None or number <= most)
    return passed, f"{found}."


def _listed(paths: Sequence[str]) -> bytes:
    """The names one a line, as the file system spells them."""
    return "".join(f"{path}\n" for path in paths).encode("utf-8", "surrogateescape")


def _check_script(probe: Probe, params: dict[str, Any]) -> tuple[bool, str]:
    limit_s = params.get("timeout_s", probe.timeout_s)
    outcome = run_script(
        params["run"], cwd=probe.cwd, environment=probe.environment, timeout_s=limit_s
    )
    if outcome.exit_code is None:
        return False, f"it could not be started: {outcome.problem}."
    if outcome.timed_out:
        found = f"timed out after {limit_s:g} s; its process group was stopped"
    elif outcome.exit_code < 0:
        found = f"ended by signal {-outcome.exit_code}"
    else:
        found = f"exit code {outcome.exit_code}"
    if outcome.left_behind:
        found += "; processes it left behind were killed"
    found += f"; {outcome.output_bytes} bytes of output"
    if outcome.output_bytes:
        found += f", sha256 {outcome.output_sha256}, the end of it:\n"
        room = detail_chars_max - len(found)
        found += outcome.output_tail.rstrip()[-room:]
    return outcome.exit_code == 0 and not outcome.timed_out, found


def _check_audit(_probe: Probe, _params: dict[str, Any]) -> tuple[bool, str]:
    return False, "not decided: level V2, by an auditor who is not the producer."


def _check_human(_probe: Probe, _params: dict[str, Any]) -> tuple[bool, str]:
    return False, "not decided: level V3, by a person or an outside system."


def _decoded(data: bytes, name: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckFailedError(f"{name} is not JSON: {error}.") from None


_HOW: Final = {
    "exists": "Each path was resolved inside the workspace and found; a file was read and hashed.",
    "nonempty": "Each path was resolved; a file was read and hashed, a directory was listed.",
    "sha256": "The file was read and its sha256 compared with the one given.",
    "json-schema": "The file (each line of .jsonl and .ndjson) was decoded as JSON and validated, "
    "without formats, by the draft that the schema names, else 2020-12.",
    "matches": "The file was decoded as UTF-8, bad bytes replaced, and searched with the pattern "
    "(Python's re, MULTILINE).",
    "count": "Regular files that the glob names, or lines of the file, were counted; links do not "
    "count, a last line without a line feed does.",
    "script": "The command was run with closed input under a time limit; exit code 0 passes.",
    "units": "Every ledger line was decoded; the last status of each unit must be ok, "
    "skip-evidence or skip, and the number of units the total where one is given. Of a batch node "
    "the units that are not skip must be those of its contract, and each must have a finding.",
    "audit": "The mechanical verifier (V1) does not judge this.",
    "human": "The approval of exactly these files by a person was looked up in the journal.",
}
_CHECKS: Final[dict[str, Callable[[Probe, dict[str, Any]], tuple[bool, str]]]] = {
    "exists": _check_exists,
    "nonempty": _check_nonempty,
    "sha256": _check_sha256,
    "json-schema": _check_schema,
    "matches": _check_matches,
    "count": _check_count,
    "script": _check_script,
    "units": check_units,
    "audit": _check_audit,
    "human": _check_human,
}
