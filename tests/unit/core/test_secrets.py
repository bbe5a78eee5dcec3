"""Secrets are masked by their shape and by their name, and nothing else is touched."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.secret_shapes import SHAPES
from perdure.core.secrets import Masker, declared_secrets, is_secret_name, mask_value

A40 = "aB3dE5fG7h" * 4
A36 = "aB3dE5fG7h" * 3 + "iJ9kL1"
KEY_BODY = "\n".join(["MIIEpAIBAAKCAQEA" + "b" * 48] * 20)

SECRETS = {
    f"sk-ant-api03-{A40}": "anthropic-key",
    f"sk-proj-{A40}_-x": "openai-key",
    f"sk-{A40}": "openai-key",
    "sk-or-v1-" + "0f" * 32: "openrouter-key",
    f"ghp_{A36}": "github-token",
    f"ghs_{A36}": "github-token",
    f"github_pat_{A40}": "github-token",
    "glpat-" + "x1" * 10: "gitlab-token",
    "AKIAIOSFODNN7EXAMPLE": "aws-access-key",
    "AIza" + "x" * 35: "google-api-key",
    "ya29.a0" + "x" * 40: "google-oauth",
    "xoxb-1234567890-abcdef": "slack-token",
    "sk_live_" + "x1" * 12: "stripe-key",
    f"npm_{A36}": "npm-token",
    "pypi-AgEIcHlwaS5vcmc" + "x" * 60: "pypi-token",
    "hf_" + "abCD" * 8 + "ef": "huggingface-token",
    "SG." + "a" * 22 + "." + "b" * 43: "sendgrid-key",
    "dop_v1_" + "0f" * 32: "digitalocean-token",
    "gsk_" + "aB3d" * 13: "groq-key",
    "123456789:AA" + "x-" * 16 + "y": "telegram-token",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij_-K": "jwt",
}
"""Made up: no key here has ever opened anything."""

HARMLESS = [
    "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "inv-20261130202802-1f2e3d4c",
    "artifacts/N-042/bibliography.v2.jsonl",
    "task-sk-ill and desk-top, gh_pages, the hf_ prefix, eyJ alone, xoxo",
    "https://example.org:8080/a@b?c=d#e",
    "git@github.com:someone/something.git",
    "550e8400-e29b-41d4-a716-446655440000",
    "the secret of success; a bearer of news; basic training",
    "$TOKEN ${API_KEY} op-1764528000000-0a1b2c3d",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
]


@pytest.mark.parametrize(("secret", "name"), SECRETS.items(), ids=str)
def test_each_known_shape_is_masked_and_nothing_beside_it(secret: str, name: str) -> None:
    before, after = "it said: (", ") and ended.\n"
    masked, counts = Masker({}).mask_text(f"{before}{secret}{after}")
    assert masked == f"{before}[masked:{name}]{after}"
    assert counts == {name: 1}


@pytest.mark.parametrize("around", ["_{}_", "-{}-", "key={}_x", "\x1b[31m{}\x1b[0m", "\x1b[m{}"])
@pytest.mark.parametrize("secret", ["ghp_" + "a1B2c3D4e5" * 4, "AKIAQX7ZB3LMNOP4RSTU"])
def test_emphasis_and_colours_around_a_secret_hide_nothing(secret: str, around: str) -> None:
    masked, counts = Masker({}).mask_text(around.format(secret))
    assert secret not in masked
    assert sum(counts.values()) == 1
    assert Masker({}).may_match(around.format(secret).encode())


def test_a_private_key_is_masked_between_its_lines() -> None:
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\n-----END RSA PRIVATE KEY-----\n"
    masked, counts = Masker({}).mask_text(f"before\n{key}after")
    assert masked == (
        "before\n-----BEGIN RSA PRIVATE KEY-----[masked:private-key]-----END RSA PRIVATE KEY-----\n"
        "after"
    )
    assert counts == {"private-key": 1}


def test_a_private_key_that_is_cut_off_is_masked_to_the_end() -> None:
    masked, _ = Masker({}).mask_text(f"x -----BEGIN PRIVATE KEY-----\n{KEY_BODY}")
    assert masked == "x -----BEGIN PRIVATE KEY-----\n[masked:private-key]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.DEF-123", "Authorization: Bearer [masked:authorization]"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}',
         '{"Authorization": "Basic [masked:authorization]"}'),
        ("postgres://ann:s3cr3t!x@db:5432/x", "postgres://ann:[masked:url-password]@db:5432/x"),
        ("AKIAIOSFODNN7EXAMPLE," + A40, "[masked:aws-access-key],[masked:aws-secret-key]"),
        ("AccountKey=" + "x" * 86 + "==;", "AccountKey=[masked:azure-key];"),
        ("AWS_SECRET_ACCESS_KEY=" + A40, "AWS_SECRET_ACCESS_KEY=[masked:aws-secret-key]"),
        ("https://hooks.slack.com/services/T00/B00/" + "x" * 24,
         "https://hooks.slack.com/services/[masked:slack-webhook]"),
    ],
)  # fmt: skip
def test_of_a_longer_form_the_secret_part_alone_is_masked(text: str, expected: str) -> None:
    if "slack" in text:
        expected = "https://hooks.slack.com/services/[masked:slack-webhook]"
    assert Masker({}).mask_text(text)[0] == expected


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_secret_stays(text: str) -> None:
    assert Masker({}).mask_text(text) == (text, {})


@pytest.mark.parametrize("secret", SECRETS)
def test_the_hint_sees_whatever_a_shape_can_match(secret: str) -> None:
    assert Masker({}).may_match(f"a {secret} b".encode())


def test_every_word_of_every_shape_is_looked_for() -> None:
    for shape in SHAPES:
        for word in shape.words:
            assert Masker({}).may_match(f"{{{word}}}".encode()), word


@given(st.text(max_size=200), st.sampled_from(sorted(SECRETS)), st.text(max_size=200))
def test_a_look_never_misses_what_is_masked(before: str, secret: str, after: str) -> None:
    text = before + secret + after
    line = json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    masker = Masker({"A": "value-1"})
    assert masker.may_match(line) or not masker.mask_value({"text": text})[1]


def test_words_that_only_end_like_a_key_cost_one_look() -> None:
    assert not Masker({}).may_match(b'{"text":"task-plan of disk-1, ready. single-file"}')


def test_declared_values_are_masked_by_their_names_longest_first() -> None:
    masker = Masker({"PIN": "hunter22", "LONG": "hunter22-and-more", "SHORT": "abc"})
    masked, counts = masker.mask_text("hunter22 hunter22-and-more abc")
    assert masked == "[masked:PIN] [masked:LONG] abc"
    assert counts == {"PIN": 1, "LONG": 1}
    assert "hunter22" not in repr(masker)


def test_a_value_with_quotes_is_seen_in_json_too() -> None:
    masker = Masker({"ODD": 'a"b\\c"d'})
    line = json.dumps({"text": 'x a"b\\c"d y'}).encode()
    assert masker.may_match(line)
    assert masker.mask_value(json.loads(line))[0] == {"text": "x [masked:ODD] y"}


def test_every_text_of_a_value_is_masked_keys_too() -> None:
    token = f"ghp_{A36}"
    value = {"a": [1, None, {"b": f"x {token}"}], token: (True, token)}
    masked, counts = mask_value(value, {})
    mark = "[masked:github-token]"
    assert masked == {"a": [1, None, {"b": f"x {mark}"}], mark: (True, mark)}
    assert counts == {"github-token": 3}


def test_masking_again_changes_nothing() -> None:
    text = " ".join(SECRETS) + " postgres://a:bcdefg@h Authorization: Bearer abcdefghij hunter22"
    masker = Masker({"PIN": "hunter22"})
    once = masker.mask_text(text)[0]
    assert masker.mask_text(once) == (once, {})


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    token = f"ghp_{A36}".encode()
    masked, _ = Masker({}).mask_bytes(b"\xff\xfe\x00" + token + b"\n\x80")
    assert masked == b"\xff\xfe\x00[masked:github-token]\n\x80"


def test_names_say_which_variables_are_secrets() -> None:
    environment = {
        "MY_TOKEN": "value-0001", "DB_PASSWORD": "value-0002", "PLAIN": "value-3",
        "LISTED": "value-4", "PERDURE_SECRETS": "LISTED, OTHER", "API_KEY": "short",
        "AUTHOR": "somebody-1", "KEYBOARD": "qwertz-layout", "POSTGRES_PASSWORD": "postgres",
        "SSH_AUTH_SOCK": "/tmp/ssh-1/agent.1", "TOKEN_FILE": "/run/token-1", "PIN": "123",
    }  # fmt: skip
    found = declared_secrets(environment, ("PLAIN", "PIN"))
    assert set(found) == {"MY_TOKEN", "DB_PASSWORD", "PLAIN", "LISTED"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GITHUB_TOKEN", True), ("AWS_SECRET_ACCESS_KEY", True), ("openai_api_key", True),
        ("SECRET_KEY_BASE", True), ("TOKENIZERS_PARALLELISM", False), ("MAX_TOKENS", False),
        ("SECRET_NAME", False), ("GIT_ASKPASS", False), ("CREDENTIALS_DIRECTORY", False),
    ],
)  # fmt: skip
def test_a_name_is_read_word_by_word(name: str, expected: bool) -> None:
    assert is_secret_name(name) is expected


@pytest.mark.parametrize(
    "text",
    [
        "postgres://app:$PGPASSWORD@db/x", "postgres://app:${PGPASSWORD}@db/x",
        "https://{user}:{password}@host", "Authorization: Bearer $TOKEN",
        "Authorization: Bearer ${TOKEN}", "http://u:%(password)s@h", "http://u:<password>@h",
        "http://u:***@h", "a file that begins with -----BEGIN PRIVATE KEY----- and more words",
    ],
)  # fmt: skip
def test_a_reference_to_a_secret_is_none(text: str) -> None:
    assert Masker({}).mask_text(text) == (text, {})


def test_a_declared_value_is_masked_as_it_looks_in_json() -> None:
    value = 'line one\nline "two" of it'
    masker = Masker({"ODD": f"{value}\n"})
    printed = json.dumps({"said": value})
    assert masker.mask_text(printed)[0] == '{"said": "[masked:ODD]"}'
    assert masker.mask_bytes(printed.encode())[0] == b'{"said": "[masked:ODD]"}'
    assert masker.mask_text(f"x {value} y")[0] == "x [masked:ODD] y"


def test_a_mark_is_not_masked_by_a_value_that_stands_in_it() -> None:
    masker = Masker({"github": "github-token", "mask": "masked"})
    once = masker.mask_text(f"ghp_{A36} github-token")[0]
    assert once == "[masked:github-token] [masked:github]"
    assert masker.mask_text(once) == (once, {})


def test_where_a_secret_stands_is_said_without_it() -> None:
    token = f"ghp_{A36}"
    value = {"spec": {"run": ["echo", token], token: "x"}}
    found = list(Masker({}).found(value))
    assert found == [("spec.run[1]", "github-token"), ("spec", "github-token")]


@pytest.mark.parametrize(
    "noise",
    ["-----BEGIN PRIVATE KEY-----", "http://a:", "eyJ", "sk-ant- ", "AKIA", "secret ", "::"],
)
def test_no_text_takes_more_than_linear_time(noise: str) -> None:
    text = noise * (400_000 // len(noise))
    assert Masker({"A": "value-1"}).mask_text(text)[0] == text


@given(st.text(alphabet=string.ascii_lowercase + string.digits + " .,_/:-\n", max_size=300))
def test_ordinary_text_comes_back_as_it_is_or_only_shorter_by_masks(text: str) -> None:
    masked, counts = Masker({}).mask_text(text)
    assert (masked == text) is (not counts)


@given(
    st.text(max_size=60),
    st.sampled_from(sorted(SECRETS)),
    st.text(max_size=60),
)
def test_a_secret_anywhere_is_gone_and_its_surroundings_are_not(
    before: str, secret: str, after: str
) -> None:
    masker = Masker({})
    if masker.mask_text(before + " ")[1] or masker.mask_text(" " + after)[1]:
        return  # a secret of its own in the noise
    masked, _ = masker.mask_text(f"{before} {secret} {after}")
    assert masked == f"{before} [masked:{SECRETS[secret]}] {after}"
