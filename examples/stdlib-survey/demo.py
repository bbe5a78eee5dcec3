"""Run the survey, kill it with SIGKILL, run the same line again, and count what was lost.

    python demo.py [--kills N] [--seed N] [--workspace DIR]

Run it with a Python that has perdure installed. What it prints is computed from the journal, the
only record that is believed; it exits 0 only when every claim held. When to kill is drawn from the
seed and tied to progress (so many nodes done, one at work, then a moment more), so that kills land
in the middle of the work on a slow machine and on a fast one. Only the coordinator is killed, with
no warning; what its children are doing then is for perdure to clear up.
"""

import argparse
import itertools
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from history import History

TASK_FILE = Path(__file__).resolve().with_name("task.yaml")
NODES = re.findall(r"^  - id: (\S+)", TASK_FILE.read_text(encoding="utf-8"), re.MULTILINE)
POLL_S = 0.01
FURTHER_S_MAX = 0.6
RUN_S_MAX = 300.0


class Moment(NamedTuple):
    """When to kill: so many nodes done and one at work, then so long, or until one more is done."""

    nodes_done: int
    further_s: float


class Kill(NamedTuple):
    """A kill that landed, and what the journal said once the coordinator was dead."""

    after_s: float
    history: History


class Claim(NamedTuple):
    """Something that must be true of a task that was killed and finished, and whether it is."""

    held: bool
    text: str


def draw_moments(seed: int, kills: int) -> list[Moment]:
    """One moment in each stretch of the task, the last early enough to leave something to do."""
    chance = random.Random(seed)
    usable = len(NODES) - 2
    bounds = [place * usable // kills for place in range(kills + 1)]
    return [
        Moment(chance.randrange(first, end), chance.uniform(0, FURTHER_S_MAX))
        for first, end in itertools.pairwise(bounds)
    ]


class Survey:
    """The workspace of the survey, and the one line that runs it."""

    def __init__(self, workspace: Path, log: Path) -> None:
        self.journal = workspace / "journal.jsonl"
        self.log = log
        self.perdure = [sys.executable, "-m", "perdure", "-C", str(workspace)]

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start perdure; what it says goes to the log."""
        with self.log.open("ab") as log:
            line = [*self.perdure, *command]
            return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_run(self) -> subprocess.Popen[bytes]:
        """Start the survey, or go on with it: the same line every time."""
        return self.start("run", str(TASK_FILE), "--jobs", "2")

    def wait_for(self, moment: Moment, child: subprocess.Popen[bytes]) -> bool:
        """Wait for the moment; False when the run ended before it came, or time was up."""
        history = History.of(self.journal)
        moves_before = len(history.moves)
        begun = time.monotonic()
        due_s: float | None = None
        due_done = 0
        while child.poll() is None and (passed_s := time.monotonic() - begun) < RUN_S_MAX:
            if self.journal.exists() and self.journal.stat().st_size != len(history.data):
                history = History.of(self.journal)
            done = len(history.nodes("DONE"))
            # Only what this run has started counts: before that it recovers, it does not work.
            started = set(history.starts(moves_before))
            if started.intersection(history.nodes("RUNNING", "VERIFYING")):
                if due_s is None and done >= moment.nodes_done:
                    due_s, due_done = passed_s + moment.further_s, done + 1
                if due_s is not None and (passed_s >= due_s or done >= due_done):
                    return True
            time.sleep(POLL_S)
        return False

    def run_and_kill(self, moment: Moment) -> Kill | None:
        """Run and kill at the moment. None when the run was over first."""
        begun = time.monotonic()
        child = self.start_run()
        try:
            came = self.wait_for(moment, child)
        finally:
            child.kill()
            code = child.wait()
        if not came or code != -signal.SIGKILL:
            return None
        return Kill(time.monotonic() - begun, History.of(self.journal))

    def finish(self, *command: str) -> int:
        """Run perdure to its end, unless that takes too long, and say its exit code."""
        child = self.start_run() if command == ("run",) else self.start(*command)
        try:
            return child.wait(RUN_S_MAX)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            child.kill()
            child.wait()


class Codes(NamedTuple):
    """What the commands after the last kill ended with."""

    run: int
    verify: int
    audit: int


def claims(kills: list[Kill], end: History, codes: Codes) -> list[Claim]:
    """What was promised, and whether the journal bears it out."""
    done, again = end.done(), end.started_when_done()
    lines = " + ".join(str(kill.history.lines) for kill in kills)
    kept = all(end.data.startswith(kill.history.data) for kill in kills)
    cut = [kill.history.nodes("RUNNING", "VERIFYING") for kill in kills]
    landed = sum(bool(nodes) for nodes in cut)
    unfinished = sorted({node for nodes in cut for node in nodes} - set(done))
    return [
        Claim(landed >= 2, f"SIGKILL landed {landed} times while nodes were at work"),
        Claim(codes.run == 0, f"the run after the last kill finished the task (exit {codes.run})"),
        Claim(sorted(done) == sorted(NODES), f"each of {len(NODES)} nodes DONE exactly once (N06)"),
        Claim(not again, f"nodes started again after they were DONE: {', '.join(again) or 'none'}"),
        Claim(not unfinished, f"nodes cut short and never done: {', '.join(unfinished) or 'none'}"),
        Claim(kept, f"the journal begins with what it said at each kill ({lines} lines)"),
        Claim(codes.verify == 0, f"perdure verify: journal and files agree (exit {codes.verify})"),
        Claim(codes.audit == 0, f"perdure audit: no item failed (exit {codes.audit})"),
    ]


def kill_lines(kills: list[Kill], end: History) -> list[str]:
    """For each kill: what was done and so kept, what was at work and what became of it."""
    lines = []
    finished = set(end.done())
    for place, (_, history) in enumerate(kills, 1):
        later = set(end.starts(len(history.moves)))
        done, cut = history.nodes("DONE"), history.nodes("RUNNING", "VERIFYING")
        found = {
            "done, kept": [node for node in done if node not in later],
            "done, RUN AGAIN": [node for node in done if node in later],
            "cut short, redone": [node for node in cut if node in later],
            "ran, verified later": [node for node in cut if node in finished - later],
            "cut short, LEFT": [node for node in cut if node not in finished | later],
        }
        lines += [
            f"kill {place}  {what:<20} {' '.join(nodes)}" for what, nodes in found.items() if nodes
        ]
    return lines


def run_demo(survey: Survey, seed: int, kills_wanted: int) -> bool:
    """The whole demonstration; whether everything held."""
    begun = time.monotonic()
    print(f"{len(NODES)} nodes, 2 at a time; {kills_wanted} kills drawn from --seed {seed}")
    kills: list[Kill] = []
    for place, moment in enumerate(draw_moments(seed, kills_wanted), 1):
        kill = survey.run_and_kill(moment)
        if kill is None:
            print(f"run {place}: ended before it could be killed", flush=True)
            break
        kills.append(kill)
        seen = f"{kill.history.lines} lines in the journal"
        print(f"run {place}: SIGKILL after {kill.after_s:.1f} s, {seen}", flush=True)
    run_code = survey.finish("run")
    verify_code = survey.finish("verify")
    audit_code = survey.finish("audit")
    end = History.of(survey.journal)
    starts = end.starts()
    print(f"run {len(kills) + 1}: ended with exit code {run_code}, {end.lines} lines\n")
    print("\n".join(kill_lines(kills, end)))
    often = [f"{node} {starts.count(node)}" for node in NODES if starts.count(node) != 1]
    print(f"{len(starts)} starts for {len(NODES)} nodes, not once: {', '.join(often) or 'none'}")
    print(f"{time.monotonic() - begun:.1f} s in all\n")
    verdicts = claims(kills, end, Codes(run_code, verify_code, audit_code))
    for claim in verdicts:
        print(f"{'held  ' if claim.held else 'BROKEN'}  {claim.text}")
    return all(claim.held for claim in verdicts)


def main() -> int:
    """Parse, run, clear up: 0 everything held, 1 something did not, 2 not a fresh workspace."""
    parser = argparse.ArgumentParser(description="Kill and resume the survey; count what is lost.")
    parser.add_argument("--kills", type=int, default=2, choices=range(2, 6))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--workspace", type=Path, help="keep the result here (made; not there yet)")
    options = parser.parse_args()
    if options.workspace and options.workspace.exists():
        print(f"{options.workspace} exists; the demo counts from nothing.", file=sys.stderr)
        return 2
    scratch = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    workspace = options.workspace or scratch / "workspace"
    log = scratch / "perdure.log"
    held = run_demo(Survey(workspace.resolve(), log), options.seed, options.kills)
    if not held:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        print("\n".join(["", f"kept for inspection: {workspace} and {log}, which ends:", *last]))
        return 1
    if options.workspace:
        print(f"\nreport  {workspace / 'artifacts/report/report.md'}")
    shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
