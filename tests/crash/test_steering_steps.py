"""What people say, with the process killed or the power lost after each step of taking it in.

Whatever words the disk has after the death, in ``steering/write-here.md``, among the files that
were taken, in the drop box or in the journal, are on record exactly once when the next process has
opened the workspace, and have been acted on exactly once.
"""

from collections.abc import Iterator

import pytest
from tests.crash import workloads
from tests.crash.sim_machine import SimMachine
from tests.crash.tally import Tally, chance_for
from tests.crash.test_power_loss import QUICK, killed_runs, last_step, states_of, told

from perdure.runtime.halt import HaltRuntime

WORDS = ("metric units\n", "in French\n", "shorter\n")


def words_on_disk(machine: SimMachine) -> list[str]:
    """The words that some file has, each in the order in which it was said."""
    files = [data for data in machine.disk.tree().values() if isinstance(data, bytes)]
    whole = {data.decode("utf-8", "replace") for data in files}
    journal = machine.journal().decode()
    return [text for text in WORDS if text in whole or f'"{text.strip()}\\n"' in journal]


def words_on_record(runtime: HaltRuntime) -> list[str]:
    return [e.payload["verbatim"] for e in runtime.events() if e.kind == "STEERING_LOGGED"]


def acted_on(runtime: HaltRuntime) -> list[str]:
    return [
        event.entity.id
        for event in runtime.events()
        if event.kind == "NOTE" and event.payload["op"] == "acknowledged"
    ]


def check(machine: SimMachine, tally: Tally) -> None:
    tally.add("states")
    there = words_on_disk(machine)
    runtime = machine.open("T")
    whole = [text for text in words_on_record(runtime) if text in WORDS]
    assert whole == there
    assert sorted(acted_on(runtime)) == sorted(runtime.state.steering)
    if "N1" in runtime.state.nodes:  # whose attempt carried the words, or will
        followed = [f"{said}\n" for said in runtime.node("N1").directives]
        assert [text for text in followed if text in whole] == whole
    runtime.close()
    machine.boot_process()
    again = machine.open("T")
    assert [text for text in words_on_record(again) if text in WORDS] == there
    again.close()


def deaths() -> Iterator[SimMachine]:
    yield from killed_runs(workloads.written_words)


def test_words_that_a_kill_leaves_anywhere_are_on_record_once(tally: Tally) -> None:
    for killed in deaths():
        with told("killed after", last_step(killed)):
            check(killed.end(), tally)


def test_words_that_a_power_cut_leaves_anywhere_are_on_record_once(tally: Tally) -> None:
    chance = chance_for("words")
    for killed in deaths():
        for _, left in states_of(killed.disk, QUICK, chance):
            with told("cut after", last_step(killed), left.story()):
                check(killed.next(left, power_cut=True), tally)


@pytest.mark.parametrize("workload", [workloads.no_messages, workloads.steering])
def test_what_is_no_message_is_kept_and_reported_once_whenever_the_process_dies(
    workload: workloads.Workload, tally: Tally
) -> None:
    for killed in killed_runs(workload):
        with told("killed after", last_step(killed)):
            machine = killed.end()
            tally.add("states")
            before = files_named(machine, ("torn", "README"))
            runtime = machine.open("T")
            notes = [e.payload for e in runtime.events() if "set_aside" in e.payload]
            assert len({note["file"] for note in notes}) == len(notes)
            assert files_named(machine, ("torn", "README")) == before, "moved, and whole"
            aside = machine.disk.list_dir(machine.layout.recovered)
            moved = {f"tmp/recovered/{name}" for name in aside if name.startswith("drop-box-")}
            assert moved == {note["set_aside"] for note in notes}, "each is reported"
            runtime.close()


def files_named(machine: SimMachine, words: tuple[str, ...]) -> list[bytes]:
    """The content of every file whose name has one of these words and that is no answer."""
    found = [
        data
        for path, data in machine.disk.tree().items()
        if isinstance(data, bytes)
        and any(word in path for word in words)
        and not path.endswith(".result.json")
    ]
    return sorted(found)
