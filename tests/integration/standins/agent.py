"""A coding agent that is none: the three command lines, without a model behind them.

Run as ``agent.py claude|codex|gemini|plain ARGS...`` it finds the contract in the message among its
arguments, reads it, and does what the script says for this attempt at this node; without a script
it does the work. The script is a JSON file that STANDIN_SCRIPT names, ``{NODE: [ACTION, ...]}``,
one action an attempt, the last one for all that follow. An action is a word of ACTIONS, or
``[word, argument]``. It shares no code with what starts it.
"""

import json
import os
import re
import signal
import subprocess
import sys

CONTRACT = re.compile(r"\S*contracts/inv-[0-9A-Za-z-]+\.json")


def main() -> int:
    name, words = sys.argv[1], sys.argv[2:]
    found = next((match for word in words if (match := CONTRACT.search(word))), None)
    if found is None:
        print("no contract is named", file=sys.stderr)
        return 42
    with open(found[0]) as file:
        contract = json.load(file)
    action, argument = chosen(contract)
    return ACTIONS[action](name, words, contract, argument)


def chosen(contract):
    path = os.environ.get("STANDIN_SCRIPT", "")
    if not path:
        return "succeed", None
    with open(path) as file:
        script = json.load(file)
    actions = script.get(contract["parent"]["node_id"]) or ["succeed"]
    action = actions[min(contract["attempt"], len(actions)) - 1]
    return (action, None) if isinstance(action, str) else tuple(action)


# The work


def write_outputs(contract, text):
    if contract.get("executor_kind") == "shard":
        write_units(contract["units"]["keys"])
        return
    scope = os.environ["PERDURE_SCOPE"]
    paths = contract["outputs"] or [os.path.join(scope, "out.txt")]
    for path in paths:
        with open(path, "w") as file:
            file.write(text)


def write_units(units):
    scope = os.environ["PERDURE_SCOPE"]
    for unit in units:
        append(f"{scope}/findings.jsonl", {"_key": unit["key"], "length": len(unit["key"])})
        append(f"{scope}/ledger.jsonl", {"unit_id": unit["key"], "status": "ok"})


def append(path, line):
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def text_of(contract):
    return f"{contract['goal']} (attempt {contract['attempt']})\n"


def succeed(name, words, contract, argument):
    write_outputs(contract, text_of(contract))
    return result(name, words)


def half(name, words, contract, argument):
    if contract.get("executor_kind") == "shard":
        write_units(contract["units"]["keys"][:1])
        os.kill(os.getpid(), signal.SIGKILL)
    write_outputs(contract, text_of(contract)[:5])
    os.kill(os.getpid(), signal.SIGKILL)


def lie(name, words, contract, argument):
    return result(name, words)


def garbage(name, words, contract, argument):
    write_outputs(contract, text_of(contract))
    print("\x00 I am done {", end="")
    return 0


def die(name, words, contract, argument):
    os.kill(os.getpid(), signal.SIGKILL)


def hang(name, words, contract, argument):
    """Until it is stopped; ``argument`` is a FIFO that is told its pid first."""
    if argument:
        with open(argument, "w") as file:
            file.write(f"{os.getpid()}\n")
    while True:
        signal.pause()


def outside(name, words, contract, argument):
    """Tries to write where it may not; the work is done all the same."""
    try:
        with open(argument, "w") as file:
            file.write("escaped\n")
    except OSError as error:
        print(f"outside: {error.strerror}", file=sys.stderr)
    write_outputs(contract, text_of(contract))
    return result(name, words)


def leave(name, words, contract, argument):
    """Does the work and leaves a process running in a session of its own."""
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    quiet = subprocess.DEVNULL
    subprocess.Popen(sleeper, start_new_session=True, stdin=quiet, stdout=quiet, stderr=quiet)
    return succeed(name, words, contract, argument)


def error(name, words, contract, argument):
    """The agent's own account of a failure, with this text."""
    if name == "claude":
        print(json.dumps({"type": "result", "subtype": "success", "is_error": True,
                          "result": argument, "total_cost_usd": 0.0}))  # fmt: skip
    elif name == "codex":
        print(json.dumps({"type": "turn.failed", "error": {"message": argument}}))
    else:
        print(json.dumps({"error": {"type": "Error", "message": argument}}), file=sys.stderr)
    return 1


def denied(name, words, contract, argument):
    """Does the work, and says that it was kept from using a tool."""
    write_outputs(contract, text_of(contract))
    print(json.dumps({"type": "result", "subtype": "success", "is_error": False,
                      "permission_denials": [{"tool_name": argument}]}))  # fmt: skip
    return 0


ACTIONS = {
    "succeed": succeed, "half": half, "lie": lie, "garbage": garbage, "die": die, "hang": hang,
    "outside": outside, "leave": leave, "error": error,
    "denied": denied,
}  # fmt: skip


# What each prints at its end


def after(words, *names):
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word in names), "")


def result(name, words):
    model = after(words, "--model", "-m") or "default-model"
    if name == "claude":
        used = {"inputTokens": 100, "outputTokens": 20, "costUSD": 0.25}
        print(json.dumps({"type": "result", "subtype": "success", "is_error": False,
                          "num_turns": 2, "result": "Done.", "total_cost_usd": 0.25,
                          "modelUsage": {model: used}, "permission_denials": []}))  # fmt: skip
    elif name == "codex":
        with open(after(words, "-o"), "w") as file:
            file.write("Done.")
        print(json.dumps({"type": "thread.started", "thread_id": "1"}))
        item = {"id": "1", "type": "command_execution", "status": "completed"}
        print(json.dumps({"type": "item.completed", "item": item}))
        usage = {"input_tokens": 100, "cached_input_tokens": 10, "output_tokens": 20}
        print(json.dumps({"type": "turn.completed", "usage": usage}))
    elif name == "gemini":
        models = {model: {"tokens": {"total": 120, "candidates": 20}}}
        stats = {"models": models, "tools": {"totalCalls": 1}}
        print(json.dumps({"response": "Done.", "stats": stats}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
