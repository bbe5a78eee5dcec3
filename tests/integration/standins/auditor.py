"""An auditor for tests: reads its contract, does what its first argument says, writes a verdict.

Plain Python: it knows the contract document and nothing of the project. The second argument, where
it is a directory, holds the contracts by which it counts how often it was sent before.
"""

import json
import os
import signal
import sys


def main() -> int:
    deed, notes = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    notes = notes if os.path.isdir(notes) else ""
    with open(os.environ["PERDURE_CONTRACT"], encoding="utf-8") as stream:
        order = json.load(stream)
    workspace = os.environ["PERDURE_WORKSPACE"]
    if notes:
        deed = note(notes, order, deed)
    target = os.path.join(workspace, order["audit"]["verdict"])
    judged = [path for path, digest in order["audit"]["files"].items() if digest]
    if deed == "tamper":
        try:
            with open(os.path.join(workspace, judged[0]), "a", encoding="utf-8") as stream:
                stream.write("tampered\n")
        except OSError as error:
            sys.stdout.write(f"kept out: {error.strerror}\n")
    elif deed == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "limited":
        sys.stderr.write("error: 429 too many requests\n")
        return 1
    elif deed == "nothing":
        return 0
    elif deed == "garbage":
        with open(target, "w", encoding="utf-8") as stream:
            stream.write('{"verdict": "pass", "items": [')
        return 0
    elif deed == "hang":
        signal.pause()
    good = deed != "fail"
    items = [
        {"point": n, "passed": good, "detail": "as it should be" if good else "it is not so",
         "evidence": judged[:1]}
        for n, _ in enumerate(order["audit"]["rubric"], 1)
    ]  # fmt: skip
    with open(target, "w", encoding="utf-8") as stream:
        json.dump({"verdict": "pass" if good else "fail", "items": items}, stream)
    return 0 if good else 1


def note(notes: str, order: dict, deed: str) -> str:
    """Which deed of ``a,b,c`` it is this time, by how many auditors were sent before.

    It cannot write there, so it counts what the runtime itself keeps: the contracts of audits.
    """
    before = 0
    for name in sorted(os.listdir(notes)):
        if name.endswith(".json") and name != f"{order['invocation_id']}.json":
            with open(os.path.join(notes, name), encoding="utf-8") as stream:
                other = json.load(stream)
            before += bool(other.get("audit")) and other["parent"] == order["parent"]
    deeds = deed.split(",")
    return deeds[min(before, len(deeds) - 1)]


if __name__ == "__main__":
    sys.exit(main())
