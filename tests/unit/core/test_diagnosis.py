"""What an error text says of its cause (PD-H2), row by row, as programs really print it."""

import pytest

from perdure.core.diagnosis import (
    ROWS,
    Diagnosis,
    advice_for,
    diagnose,
    retry_after_s_max,
    text_chars_max,
)

NOW = 1_750_000_000.0

SAID: list[tuple[str, int | None, str]] = [
    # What the command line of Claude Code prints.
    ("You've hit your limit · resets 1:30am (Asia/Dhaka)", 1, "quota"),
    ("Claude AI usage limit reached|1750003600", 1, "quota"),
    ("Claude usage limit reached. Your limit will reset at 3pm (America/Bogota).", 1, "quota"),
    ("5-hour limit reached ∙ resets 3pm", 1, "quota"),
    ("Credit balance is too low", 1, "quota"),
    (
        ('API Error: 429 {"type":"error","error":{"type":"rate_limit_error","message":"This request'
        " would exceed your account's rate limit. Please try again later.\"}}"),
        1,
        "rate_limit",
    ),
    ("API Error: Request rejected (429) · Rate limited. Please try again later.", 1, "rate_limit"),
    ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', 1, "rate_limit"),
    ("Invalid API key · Please run /login", 1, "credentials"),
    ('API Error: 401 {"type":"error","error":{"type":"authentication_error"}}', 1, "credentials"),
    ("OAuth token has expired. Please obtain a new token", 1, "credentials"),
    ("API Error: Connection error.", 1, "network"),
    ("API Error: Request timed out.", 1, "network"),
    # What that of Codex prints.
    ("You've hit your usage limit. Upgrade to Pro or try again in 3 hours 12 minutes.", 1, "quota"),
    ('{"error":{"type":"usage_limit_reached","resets_in_seconds":13872}}', 1, "quota"),
    ("Quota exceeded. Check your plan and billing details.", 1, "quota"),
    ("exceeded retry limit, last status: 429 Too Many Requests, request id: c6", 1, "rate_limit"),
    (
        ("Stream disconnected before completion: Rate limit reached for organization org-1 on"
        " tokens per min (TPM): Limit 250000, Used 250000. Please try again in 21.509s."),
        1,
        "rate_limit",
    ),
    ("exceeded retry limit, last status: 401 Unauthorized, request id: 9a", 1, "credentials"),
    ("unexpected status 401: Missing bearer or basic authentication in header", 1, "credentials"),
    ("stream disconnected before completion: error sending request for url", 1, "network"),
    ("unexpected status 502 Bad Gateway", 1, "network"),
    # What that of the Gemini CLI prints.
    ("[API Error: You have exhausted your daily quota on this model.]", 1, "quota"),
    ("TerminalQuotaError: Your quota will reset after 12h34m56s.", 1, "quota"),
    (
        ('"message": "You exceeded your current quota, please check your plan and billing details",'
        ' "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"'),
        1,
        "quota",
    ),
    (
        ('"message": "You exceeded your current quota", "quotaId":'
        ' "GenerateRequestsPerMinutePerProjectPerModel", "retryDelay": "34s"'),
        1,
        "rate_limit",
    ),
    ("Resource has been exhausted (e.g. check quota).", 1, "rate_limit"),
    ("Please set an Auth method in your settings.json", 41, "credentials"),
    ("", 41, "credentials"),
    ("API key not valid. Please pass a valid API key.", 1, "credentials"),
    ("503 Service Unavailable", 1, "network"),
    # What other programs print.
    ("write failed: No space left on device", 1, "disk"),
    ("OSError: [Errno 122] Disk quota exceeded", 1, "disk"),
    ("OSError: [Errno 30] Read-only file system: 'x'", 1, "disk"),
    ("connect ECONNREFUSED 127.0.0.1:80", 1, "network"),
    ("getaddrinfo ENOTFOUND example.org", 1, "network"),
    ("curl: (6) Could not resolve host: example.org", 6, "network"),
    ("ssl.SSLError: certificate verify failed", 1, "network"),
    ("HTTP/1.1 504 Gateway Timeout", 1, "network"),
    ("sh: 1: frobnicate: not found", 127, "missing_program"),
    ("frob could not be started: [Errno 2] No such file or directory: 'frob'", None,
     "missing_program"),
    ("spawn rg ENOENT", 1, "missing_program"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "cause"), SAID, ids=[said[0][:40] for said in SAID])
def test_pd_h2_a_wall_is_known_by_what_it_says(text: str, code: int | None, cause: str) -> None:
    found = diagnose(text, code)
    assert found.cause == cause
    assert found.failure_class == next(r.failure_class for r in ROWS if r.cause == cause)
    assert advice_for(found.cause)


def test_every_cause_that_the_table_knows_has_a_message_here() -> None:
    assert {row.cause for row in ROWS if row.cause} == {cause for _, _, cause in SAID}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AssertionError: 41 != 42",
        "error: no matching overloaded function found",
        "Traceback: KeyError: 429",
        "tests/test_thepipe.py failed at line 503",
        "wrote 401 rows, 3 failed",
        "foo: command not found",
    ],
)
def test_what_names_no_wall_is_an_agents_failure(text: str) -> None:
    assert diagnose(text, 1) == Diagnosis(signature="exit 1")


def test_trouble_of_the_machine_is_the_environments_without_a_wall() -> None:
    found = diagnose("fork: Cannot allocate memory", 1)
    assert (found.cause, found.failure_class) == ("", "transient-environment")


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("You've hit your usage limit, try again in 3 hours 12 minutes.", 11_520.0),
        ("Rate limit reached for m. Please try again in 21.509s.", 21.509),
        ("Rate limit reached for m. Please try again in 898ms.", 0.898),
        ("TerminalQuotaError: Your quota will reset after 12h34m56s.", 45_296.0),
        ('{"type":"usage_limit_reached","resets_in_seconds":13872}', 13_872.0),
        ('quotaId PerMinute, "retryDelay": "34s"', 34.0),
        ("429 Too Many Requests\nRetry-After: 120", 120.0),
        ("Claude AI usage limit reached|1750003600", 3_600.0),
        ("Claude AI usage limit reached|1740000000", None),
        ("You've hit your limit · resets 1:30am (Asia/Dhaka)", None),
        (f"too many requests, retry-after: {retry_after_s_max + 1:.0f}", None),
        ("connection refused, try again in 5 minutes", None),
    ],
)
def test_the_time_that_a_limit_names_is_how_long_to_wait(text: str, wait_s: float | None) -> None:
    assert diagnose(text, 1, now=NOW).retry_after_s == (
        None if wait_s is None else pytest.approx(wait_s)
    )


def test_equal_failures_have_equal_signatures() -> None:
    one = diagnose("Rate limit reached for org-1. Please try again in 21.5s. id c6", 1)
    other = diagnose("Rate limit reached for org-2. Please try again in 3s. id 9a", 1)
    assert one.signature == other.signature == "exit 1 (rate limit)"
    assert diagnose("rate limit").signature == "rate limit"
    assert diagnose("").signature == ""


def test_only_the_end_of_a_long_text_is_looked_at() -> None:
    assert diagnose("rate limit" + "." * text_chars_max, 1).cause == ""
    assert diagnose("." * text_chars_max + "rate limit", 1).cause == "rate_limit"
