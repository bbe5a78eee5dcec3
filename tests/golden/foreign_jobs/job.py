"""A checkpointed job written from docs/job-contract.md alone, with the standard library alone.

It knows the three files and the lock, none of perdure's own fields and dot files, and reads the
whole log at every start. ``job.mjs`` is the same for Node. Used as a program:

    python job.py open DIR NAME                 open it; print what is done, the cursor, the errors
    python job.py run DIR NAME FROM TO [--fail N,N...] [--tear-at N]

``run`` does the items FROM to TO - 1 that are not done. Those of ``--fail`` fail; at the one of
``--tear-at`` half of its line is written and the process is gone.
"""

import argparse
import fcntl
import json
import os
import re
import sys
from datetime import UTC, datetime
from hashlib import sha256

HASH = re.compile(r"[0-9a-f]{16}\Z")
RESERVED = {"_hash", "_key", "_at", "_item"}


def item_hash(key):
    return sha256(key.encode("utf-8")).hexdigest()[:16]


def now():
    return datetime.now(UTC).isoformat()


def sync_dir(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def replace(path, data):
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.tmp-{os.getpid()}")
    with open(temp, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temp, path)
    sync_dir(folder)


def no_number(text):
    raise ValueError(f"{text} is no JSON")


def from_json(data):
    return json.loads(data.decode("utf-8-sig"), parse_constant=no_number)


def judge(line):
    """(hash, key, at) of the finding on a line; () for a blank line, None for a bad one."""
    if not line.strip(b" \t\r"):
        return ()
    try:
        found = from_json(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    key, digest, at = (found.get(name) for name in ("_key", "_hash", "_at"))
    at = at if isinstance(at, str) else ""
    try:
        return item_hash(key), key, at
    except (AttributeError, UnicodeEncodeError):  # no text, or half a character
        is_hash = isinstance(digest, str) and HASH.match(digest)
        return (digest, digest, at) if is_hash else None


def shown(value):
    """As JSON in a code span: no text of an item can start a line, a heading or a link."""
    return f"`{json.dumps(value)[:200].replace('`', chr(39))}`"


class CheckpointedJob:
    def __init__(self, directory, name):
        self.directory, self.name = os.path.abspath(directory), name
        self.log_path = os.path.join(self.directory, "findings.jsonl")
        self.state_path = os.path.join(self.directory, "state.json")
        missing = self.directory
        while not os.path.isdir(missing):
            missing = os.path.dirname(missing)
        os.makedirs(self.directory, exist_ok=True)
        made = self.directory
        while made != missing:
            made = os.path.dirname(made)
            sync_dir(made)
        self.lock = os.open(os.path.join(self.directory, ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("somebody else has this job open")
        self._read_state()
        self.log = os.open(self.log_path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._read_log()
        self.errors = {h: e for h, e in self.errors.items() if h not in self.completed}
        self.checkpoint()

    def _read_state(self):
        self.completed, self.errors, self.cursor = {}, {}, None
        self.resumes, self.started_at, self.finished_at = 0, now(), None
        try:
            with open(self.state_path, "rb") as file:
                state = from_json(file.read())
            version, owner = state["version"], state["job"]
            completed = {h: at for h, at in state["completed"].items() if HASH.match(h)}
            errors = {e["hash"]: e for e in state["errors"] if type(e["attempts"]) is int}
            if (len(completed), len(errors)) != (len(state["completed"]), len(state["errors"])):
                raise TypeError
            resumes, started_at = state["stats"]["resumes"] + 1, state["started_at"]
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError):
            aside = f"{self.state_path}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
            os.rename(self.state_path, aside)
            return
        if owner != self.name or version != 1:
            sys.exit(f"this is the job {owner!r}, version {version}")
        self.completed, self.errors, self.cursor = completed, errors, state.get("cursor")
        self.resumes, self.started_at = resumes, started_at
        self.finished_at = state.get("finished_at")

    def _read_log(self):
        """Cut what cannot be read at the end, make the rest durable, and only then believe it."""
        with open(self.log_path, "rb") as file:
            data = file.read()
        lines = data.split(b"\n")
        judged = [judge(line) for line in lines]
        last = max((number for number, seen in enumerate(judged) if seen), default=-1)
        end = 0
        for number in range(last + 1):
            if judged[number] is None:
                print(f"line {number + 1}, byte {end}: not a finding", file=sys.stderr)
            end += len(lines[number]) + 1
        self.last_keys = [seen[1] for seen in judged if seen][-20:]
        if end < len(data):
            os.ftruncate(self.log, end)
        elif end > len(data):
            os.write(self.log, b"\n")
        os.fsync(self.log)
        sync_dir(self.directory)
        self.completed = {seen[0]: seen[2] for seen in judged if seen} | self.completed

    def is_done(self, key):
        return item_hash(key) in self.completed

    def record_finding(self, key, payload):
        if RESERVED & payload.keys():
            raise ValueError(f"reserved: {RESERVED & payload.keys()}")
        if self.is_done(key):
            return
        at = now()
        line = {**payload, "_hash": item_hash(key), "_key": key, "_at": at}
        self.append(json.dumps(line, allow_nan=False).encode() + b"\n")
        self.completed[item_hash(key)] = at
        self.errors.pop(item_hash(key), None)
        self.finished_at = None
        self.last_keys = [*self.last_keys, key][-20:]
        self.checkpoint()

    def append(self, data):
        while data:
            data = data[os.write(self.log, data) :]
        os.fsync(self.log)

    def record_error(self, key, error):
        known = self.errors.pop(item_hash(key), {"attempts": 0})
        self.errors[item_hash(key)] = {
            "key": key,
            "hash": item_hash(key),
            "error": error,
            "attempts": known["attempts"] + 1,
            "last_at": now(),
        }
        self.finished_at = None
        self.checkpoint()

    def set_cursor(self, value):
        self.cursor = value

    def finish(self):
        self.finished_at = now()
        self.checkpoint()

    def checkpoint(self):
        state = {
            "job": self.name,
            "version": 1,
            "started_at": self.started_at,
            "updated_at": now(),
            "cursor": self.cursor,
            "completed": self.completed,
            "errors": list(self.errors.values()),
            "stats": {
                "processed": len(self.completed),
                "failed": len(self.errors),
                "resumes": self.resumes,
            },
            "finished_at": self.finished_at,
        }
        replace(self.state_path, json.dumps(state, indent=1).encode())
        errors = state["errors"][-10:]
        summary = [
            f"# Job {shown(self.name)}: {'finished' if self.finished_at else 'open'}",
            "",
            f"Started {self.started_at}, as of {state['updated_at']}.",
            f"{len(self.completed)} done, {len(self.errors)} failed, resumed {self.resumes} times.",
            f"Cursor: {shown(self.cursor)}",
            "",
            *(f"- failed {e['attempts']} times: {shown(e['key'])}" for e in errors),
            *(f"- done: {shown(key)}" for key in self.last_keys),
            "",
            "To go on, start the job again and read nothing but this file.",
            "",
        ]
        replace(os.path.join(self.directory, "SUMMARY.md"), "\n".join(summary).encode())


def key_of(number):
    return f"https://例え.example/página/{number}?q=é"


def run(job, args):
    failing = {int(n) for n in args.fail.split(",")} if args.fail else set()
    for number in range(args.first, args.end):
        key = key_of(number)
        if job.is_done(key):
            continue
        if number == args.tear_at:
            line = json.dumps({"n": number, "_hash": item_hash(key), "_key": key, "_at": now()})
            job.append(line.encode()[: len(line) // 2])
            os._exit(9)
        if number in failing:
            job.record_error(key, f"item {number} failed\n# as it was told to")
        else:
            job.record_finding(key, {"n": number, "by": "python", "text": "zwölf \u2028 €"})
        job.set_cursor({"last": number})
    job.finish()


def main():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("open", "run"):
        command = verbs.add_parser(verb)
        command.add_argument("directory")
        command.add_argument("name")
    command.add_argument("first", type=int)
    command.add_argument("end", type=int)
    command.add_argument("--fail", default="")
    command.add_argument("--tear-at", type=int, default=-1)
    args = parser.parse_args()
    job = CheckpointedJob(args.directory, args.name)
    if args.verb == "run":
        run(job, args)
    errors = [
        {"key": e["key"], "hash": h, "attempts": e["attempts"]} for h, e in job.errors.items()
    ]
    answer = {"completed": sorted(job.completed), "cursor": job.cursor, "errors": errors}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
