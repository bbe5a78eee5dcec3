"""A worker of a batch node that does as it is told: by unit, and by how often it was tried.

``behaviour.json`` beside the task file maps keys to lists of behaviours, one for each try; what is
not listed succeeds. Knows perdure by its contract and its environment only.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SCOPE = Path(os.environ["PERDURE_SCOPE"])
TMP = Path(os.environ["PERDURE_WORKSPACE"]) / "tmp"


def tries(key: str) -> int:
    """How often the unit was begun before this time."""
    with (TMP / "ran").open("a+", encoding="utf-8") as ran:
        ran.seek(0)
        before = ran.read().splitlines().count(key)
        ran.write(key + "\n")
    return before


def append(name: str, text: str) -> None:
    with (SCOPE / name).open("a", encoding="utf-8") as file:
        file.write(text)


def find(key: str, **more: object) -> None:
    append("findings.jsonl", json.dumps({"_key": key, "size": len(key)} | more) + "\n")


def mark(key: str, status: str = "ok", **more: object) -> None:
    append("ledger.jsonl", json.dumps({"unit_id": key, "status": status, **more}) + "\n")


def die(key: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def succeed(key: str, **more: object) -> None:
    find(key, **more)
    mark(key)


def finding_then_kill(key: str) -> None:
    find(key)
    die(key)


def half(key: str) -> None:
    append("findings.jsonl", json.dumps({"_key": key})[:-2])
    mark(key)
    die(key)


def lose_the_network(key: str) -> None:
    print("Error: getaddrinfo ENOTFOUND api.example.com", flush=True)
    sys.exit(1)


def lose_the_login(key: str) -> None:
    print("Error: Invalid API key", flush=True)
    sys.exit(1)


def fail(key: str) -> None:
    mark(key, "fail", reason="it is no good")


def hang(key: str) -> None:
    (TMP / f"hangs-{key}").write_text(str(os.getpid()), encoding="utf-8")
    signal.pause()


def outside(key: str) -> None:
    node = Path(os.environ["PERDURE_WORKSPACE"]) / "artifacts" / os.environ["PERDURE_NODE"]
    try:
        (node / "findings.jsonl").open("a").close()
        text = "written"
    except OSError as error:
        text = type(error).__name__
    succeed(key, outside=text)


def fork(key: str) -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    succeed(key)


def artifact(key: str) -> None:
    (SCOPE / f"out-{key}.txt").write_text(f"of {key}", encoding="utf-8")
    no_artifact(key)


def no_artifact(key: str) -> None:
    find(key)
    mark(key, artifact=f"out-{key}.txt")


def foreign(key: str) -> None:
    succeed("stranger")
    succeed(key)


BEHAVIOURS: dict[str, Callable[[str], None]] = {
    "ok": succeed,
    "kill": die,
    "finding_then_kill": finding_then_kill,
    "half": half,
    "exit": lambda key: sys.exit(1),
    "lose_the_login": lose_the_login,
    "lose_the_network": lose_the_network,
    "silent": lambda key: sys.exit(0),
    "fail": fail,
    "ledger_only": mark,
    "hang": hang,
    "outside": outside,
    "fork": fork,
    "artifact": artifact,
    "no_artifact": no_artifact,
    "foreign": foreign,
    "bad_finding": lambda key: succeed(key, size="large"),
}


def main() -> None:
    contract = json.loads(Path(os.environ["PERDURE_CONTRACT"]).read_bytes())
    listed = Path(os.environ["PERDURE_TASK_DIR"]) / "behaviour.json"
    behaviours = json.loads(listed.read_text()) if listed.exists() else {}
    for unit in contract["units"]["keys"]:
        key = unit["key"]
        planned = behaviours.get(key, [])
        number = tries(key)
        BEHAVIOURS[planned[number] if number < len(planned) else "ok"](key)


main()
