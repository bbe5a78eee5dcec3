"""How a run tells of dispatched work: modes, halts, suspicions, deaths, late output, audits."""

from typing import Any

import pytest

from perdure.interfaces.cli.progress import event_lines

MODE = {"event": "mode", "before": "A", "cause": "", "first_death_rate": 0.375, "ref": "J-9"}
AUDITED = {"event": "audited", "node": "N1", "independence": ["I1", "I2"]}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {**MODE, "mode": "B", "probing": False},
            "dispatch A -> B: untouched work first (first deaths 38%)",
        ),
        (
            {**MODE, "before": "C", "mode": "C", "probing": True, "cause": "network"},
            "dispatch C -> C: a small batch behind a probe, for network (first deaths 38%)",
        ),
        (
            {"event": "dispatch_halted", "cause": "quota", "wait_s": None, "advice": "Raise it."},
            "dispatch is halted, for quota: waiting until a person acts. Raise it.",
        ),
        (
            {"event": "dispatch_halted", "cause": "", "wait_s": 2.0},
            "dispatch is halted, for trouble in the surroundings: waiting for 2 s, then a probe",
        ),
        (
            {"event": "probe_failed", "node": None, "why": "no space"},
            "waiting to dispatch again: no space",
        ),
        (
            {"event": "probe_failed", "node": "N1", "why": "no space"},
            "waiting to retry N1: no space",
        ),
        (
            {
                "event": "suspected",
                "node": "N1",
                "invocation": "inv-1",
                "silent_s": 93.4,
                "allowed_s": 90.0,
                "policy": "3 times 30 s",
            },
            "suspected dead: inv-1 of N1, silent for 93 s (3 times 30 s); nothing is ended",
        ),
        (
            {
                "event": "slot_died",
                "node": "B",
                "slot": "inv-1",
                "end": "silent",
                "landed": 0,
                "left": 3,
                "why": "no file",
            },
            "worker inv-1 silent: no file (0 units landed, 3 left)",
        ),
        (
            {"event": "late", "node": "B", "slot": "inv-1", "units": 2},
            "late output of inv-1: 2 units landed",
        ),
        (
            {"event": "shards_adopted", "node": "B", "slots": 2, "units": 5},
            "of 2 former workers of B 5 units landed",
        ),
        (
            {**AUDITED, "passed": True, "integrity": "clean", "why": ""},
            "audit of N1 passed (clean; I1, I2)",
        ),
        (
            {**AUDITED, "passed": True, "integrity": "violation", "why": "a file changed"},
            "audit of N1 not passed (violation; I1, I2): a file changed",
        ),
        ({"event": "audit_started", "node": "N1"}, "audit of N1 started"),
        (
            {"event": "audit_asked", "node": "N1"},
            "audit of N1 waits: perdure judge N1 --verdict FILE",
        ),
        ({"event": "phase", "node": None, "state": "verify"}, "phase verify"),
        ({"event": "reported", "node": None, "state": "done"}, "result done"),
        ({"event": "notice", "why": "something"}, "notice: something"),
        (
            {
                "event": "refused",
                "node": "B",
                "why": "disk_full (IO-1): No space.\n  fix: Free some.",
            },
            "refused B: disk_full (IO-1): No space. fix: Free some.",
        ),
        (
            {"event": "leftovers", "node": "B", "slot": "inv-1", "processes": [(7, "sleep")]},
            "stopped what inv-1 left running: sleep (7)",
        ),
        (
            {"event": "leftovers", "node": None, "processes": [], "left": [(7, "sleep")]},
            "could not stop what a command left running: sleep (7)",
        ),
    ],
)
def test_an_event_of_dispatch_is_one_line(event: dict[str, Any], line: str) -> None:
    assert event_lines(event) == [line]
