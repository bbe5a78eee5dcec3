"""Secrets never come into the files of a job."""

from collections.abc import Callable

import pytest
from tests.unit.jobs.sim_host import SimHost

from perdure.errors import UsageError
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Failure, Finding

TOKEN = "ghp_" + "aB3dE5fG7h" * 3 + "iJ9kL1"
MARK = "[masked:github-token]"


def everything(host: SimHost) -> bytes:
    """All bytes of all files, names included."""
    tree = host.disk.tree()
    files = [data for data in tree.values() if isinstance(data, bytes)]
    assert len(files) > 2
    return b"\n".join([*(path.encode() for path in tree), *files])


def test_findings_errors_and_the_summary_are_masked(host: SimHost) -> None:
    job = host.open()
    assert job.record_finding("a", {"output": f"saw {TOKEN}", TOKEN: [1, TOKEN]})
    job.record_error("b", f"refused: {TOKEN}")
    found: list[Finding | Failure] = [
        Finding("c", {"output": TOKEN}),
        Failure("d", f"no {TOKEN}"),
    ]
    assert job.record_many(found) == 1
    job.checkpoint()
    first = host.log()[0]
    assert (first["output"], first[MARK]) == (f"saw {MARK}", [1, MARK])
    assert [entry.error for entry in job.errors] == [f"refused: {MARK}", f"no {MARK}"]
    assert MARK.encode() in host.read("SUMMARY.md")
    job.close()
    assert TOKEN.encode() not in everything(host)
    again = host.open()
    assert again.is_done("a")
    assert again.is_done("c")
    again.close()
    assert TOKEN.encode() not in everything(host)


def test_a_payload_without_a_secret_is_written_as_it_is(host: SimHost) -> None:
    job = host.open()
    payload = {"url": "https://example.org/x?token=short", "n": [1, None, {"x": "[masked:?]"}]}
    job.record_finding("https://example.org:80/a@b", payload)
    assert {name: host.log()[0][name] for name in payload} == payload


@pytest.mark.parametrize(
    "record",
    [
        lambda job, key: job.record_finding(key),
        lambda job, key: job.record_error(key, "no"),
        lambda job, key: job.record_many([Failure(key, "no")]),
    ],
)
def test_a_key_that_holds_a_secret_is_refused_and_nothing_is_written(
    host: SimHost, record: Callable[[CheckpointedJob, str], object]
) -> None:
    job = host.open()
    with pytest.raises(UsageError) as caught:
        record(job, f"https://ann:s3cr3t@host/{TOKEN}")
    assert (caught.value.code, caught.value.rule) == ("secret_in_key", "SE-1")
    assert TOKEN not in caught.value.message
    assert host.log() == []
    assert job.record_finding("goes on")


def test_a_cursor_that_holds_a_secret_is_refused(host: SimHost) -> None:
    job = host.open()
    job.set_cursor({"page": 3})
    with pytest.raises(UsageError) as caught:
        job.set_cursor({"page": 4, "auth": TOKEN})
    assert caught.value.code == "secret_in_cursor"
    assert job.cursor == {"page": 3}


def test_declared_variables_are_masked_by_their_name(host: SimHost) -> None:
    environment = {"ONE": "prod-value-77", "TWO": "other-99", "PERDURE_SECRETS": "TWO"}
    host.world = host.world._replace(environment=environment)
    job = host.open(secrets=["ONE"])
    job.record_finding("a", {"said": "prod-value-77 and other-99"})
    assert host.log()[0]["said"] == "[masked:ONE] and [masked:TWO]"
