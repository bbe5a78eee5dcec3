"""What kind of failure an end is, and which wall stands behind it."""

import pytest

from perdure.control.outcome import Ended, death_mode, judge_end


@pytest.mark.parametrize(
    ("ended", "failure_class", "signature", "cause"),
    [
        (Ended("exited", 3), "transient-agent", "exit 3", ""),
        (Ended("exited", None), "transient-agent", "exit unknown", ""),
        (Ended("exited", signal=9), "transient-agent", "signal 9", ""),
        (Ended("exited", 137, shell=True), "transient-agent", "exit 137 (signal 9)", ""),
        (Ended("exited", 137), "transient-agent", "exit 137", ""),
        (Ended("exited", 128, shell=True), "transient-agent", "exit 128", ""),
        (Ended("exited", 160, shell=True), "transient-agent", "exit 160", ""),
        (Ended("exited", 127), "permanent-resource", "exit 127", "missing_program"),
        (Ended("exited", 65, log_tail="rate limit"), "permanent-spec", "exit 65", ""),
        (Ended("exited", 75), "transient-environment", "exit 75", ""),
        (Ended("timed_out", limit_s=2.0), "transient-agent", "timed out after 2 s", ""),
        (Ended("stopped", reason="why"), "transient-agent", "stopped: why", ""),
        (
            Ended("not_started", log_tail="x could not be started: no such file"),
            "permanent-resource",
            "x could not be started: no such file",
            "missing_program",
        ),
    ],
)
def test_an_end_has_one_class_and_signature(
    ended: Ended, failure_class: str, signature: str, cause: str
) -> None:
    judged = judge_end(ended)
    assert (judged.failure_class, judged.signature, judged.cause) == (
        failure_class,
        signature,
        cause,
    )


@pytest.mark.parametrize(
    ("text", "failure_class", "cause"),
    [
        ("Error: 429 Too Many Requests", "transient-environment", "rate_limit"),
        ("usage limit reached", "transient-environment", "quota"),
        ("connect ECONNREFUSED 127.0.0.1:1", "transient-environment", "network"),
        ("write: No space left on device", "transient-environment", "disk"),
        ("invalid api key", "permanent-resource", "credentials"),
    ],
)
def test_output_that_names_a_wall_makes_an_unexplained_exit_its_failure(
    text: str, failure_class: str, cause: str
) -> None:
    judged = judge_end(Ended("exited", 1, log_tail=text))
    assert (judged.failure_class, judged.cause) == (failure_class, cause)
    assert judged.signature.startswith("exit 1 (")


def test_a_file_that_is_missing_does_not_mean_a_missing_program() -> None:
    text = "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'"
    judged = judge_end(Ended("exited", 1, log_tail=text))
    assert (judged.failure_class, judged.signature, judged.cause) == (
        "transient-agent",
        "exit 1",
        "",
    )


def test_the_time_that_a_wall_names_is_passed_on() -> None:
    judged = judge_end(Ended("exited", 1, log_tail="rate limit; retry-after: 30"))
    assert judged.retry_after_s == 30.0


@pytest.mark.parametrize(
    ("ended", "mode"),
    [
        (Ended("timed_out"), "timed_out"),
        (Ended("stopped"), "killed"),
        (Ended("exited", signal=9), "killed"),
        (Ended("exited", 129, shell=True), "killed"),
        (Ended("exited", 159, shell=True), "killed"),
        (Ended("exited", 143), "failed"),
        (Ended("exited", 1), "failed"),
        (Ended("not_started"), "failed"),
    ],
)
def test_death_modes(ended: Ended, mode: str) -> None:
    assert death_mode(ended) == mode


def test_a_wall_that_names_its_moment_stands_until_then() -> None:
    ended = Ended(
        "exited", 1, log_tail="Claude AI usage limit reached|1750003600", ended_at=1_750_000_000.0
    )
    judged = judge_end(ended)
    assert (judged.cause, judged.retry_after_s) == ("quota", 3_600.0)
    assert judge_end(Ended("exited", 1, log_tail=ended.log_tail)).retry_after_s is None
