"""What keys and passwords look like, where their makers gave them a shape (SE-1).

Job: the patterns, and the words without which none of them can match. Invariants: what is masked is
the group ``secret`` of a match, or all of it where there is no such group; each match has at least
one of the words of its shape in it, so that a text without any of the words has no match; no
pattern takes more than linear time; a pattern is compiled when one of its words is met. Shapes that
ordinary text has as well (a hash, an id, a path) are not here, nor is a reference to a variable.
"""

import re
from functools import cache
from typing import Final, NamedTuple


class Shape(NamedTuple):
    """One kind of secret."""

    name: str
    """What stands in its place: ``[masked:NAME]``."""
    words: tuple[str, ...]
    """One of them is in every match, in this case."""
    source: str
    """The pattern."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled once."""
        return _compiled(self.source)


@cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=[0-9\[]m))"
"""No letter or digit before it, but for the end of a colour code of a terminal (``ESC[31m``)."""
_END: Final = r"(?![A-Za-z0-9])"
_BREAK: Final = r"(?:\s|\\[nr])"
"""A line break, also as it looks inside a JSON text."""
_KEY_ID: Final = r"A[KS]IA[A-Z2-7]{16}"
_KEY_IDS: Final = ("AKIA", "ASIA")
_NO_REFERENCE: Final = r"(?!\[masked:|[$*{<]|%[({sA-Z])"
"""A variable, a placeholder of a template or of a manual: what stands for a secret is none."""

SHAPES: Final = (
    Shape(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN (?P<kind>[A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?)-----"
        r"(?P<secret>(?s:(?!-----)(?!\[masked:).){1,16000})-----END (?P=kind)-----",
    ),
    Shape(  # its end is missing: cut off, or in the next piece of a log
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----(?:" + _BREAK + r"){1,4}"
        r"(?P<secret>(?:[A-Za-z0-9+/=]{40,76}(?:" + _BREAK + r"){1,4}){0,400}"
        r"[A-Za-z0-9+/=]{40,76}(?:(?:" + _BREAK + r"){1,4}[A-Za-z0-9+/=]{1,76})?)",
    ),
    Shape("anthropic-key", ("sk-ant-",), _START + r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    Shape("openrouter-key", ("sk-or-",), _START + r"sk-or-v1-[0-9a-f]{64}" + _END),
    Shape(
        "openai-key",
        ("sk-",),
        _START + r"sk-(?!ant-)(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,200}"
        r"|[A-Za-z0-9]{32,64}" + _END + ")",
    ),
    Shape("groq-key", ("gsk_",), _START + r"gsk_[A-Za-z0-9]{52}" + _END),
    Shape(
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        _START + r"gh[pousr]_[A-Za-z0-9]{36,251}" + _END,
    ),
    Shape("github-token", ("github_pat_",), _START + r"github_pat_[A-Za-z0-9_]{22,244}"),
    Shape(
        "gitlab-token",
        ("glpat-", "gldt-", "glrt-"),
        _START + r"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,300}(?:\.[A-Za-z0-9_-]{2,20}){0,3}",
    ),
    Shape(
        "aws-secret-key",
        _KEY_IDS,
        _START + _KEY_ID + r"[\s,:;\"'\\]{1,5}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    Shape(
        "aws-secret-key",
        ("ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey", "ecret access key"),
        r"[sS](?:ecret_access_key|ECRET_ACCESS_KEY|ecretAccessKey|ecret access key)"
        r"[\"'\\=:\s]{1,6}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    Shape("aws-access-key", _KEY_IDS, _START + _KEY_ID + _END),
    Shape(
        "azure-key",
        ("AccountKey=", "SharedAccessKey="),
        r"(?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{43,86}={1,2})",
    ),
    Shape("google-api-key", ("AIza",), _START + r"AIza[A-Za-z0-9_-]{35}" + _END),
    Shape("google-oauth", ("ya29.",), _START + r"ya29\.[A-Za-z0-9_-]{20,500}"),
    Shape("google-oauth", ("GOCSPX-",), _START + r"GOCSPX-[A-Za-z0-9_-]{28}" + _END),
    Shape("slack-token", ("xox",), _START + r"xox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    Shape("slack-token", ("xapp-",), _START + r"xapp-\d-[A-Za-z0-9-]{20,250}"),
    Shape(
        "slack-webhook",
        ("hooks.slack.com",),
        r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,200})",
    ),
    Shape(
        "stripe-key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        _START + r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,250}|whsec_[A-Za-z0-9]{24,64})",
    ),
    Shape("npm-token", ("npm_",), _START + r"npm_[A-Za-z0-9]{36}" + _END),
    Shape("pypi-token", ("pypi-",), _START + r"pypi-AgE[A-Za-z0-9_-]{50,500}"),
    Shape("huggingface-token", ("hf_",), _START + r"hf_[A-Za-z0-9]{34}" + _END),
    Shape("sendgrid-key", ("SG.",), _START + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    Shape(
        "digitalocean-token",
        ("dop_v1_", "doo_v1_", "dor_v1_"),
        _START + r"do[opr]_v1_[0-9a-f]{64}" + _END,
    ),
    Shape("telegram-token", (":AA",), _START + r"\d{8,10}:AA[A-Za-z0-9_-]{33}" + _END),
    Shape(
        "jwt",
        ("eyJ",),
        _START + r"eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}",
    ),
    Shape(
        "authorization",
        ("uthorization", "UTHORIZATION"),
        r"(?i:authorization[\"'\\]{0,2}\s{0,3}[:=]\s{0,3}[\"'\\]{0,2}(?:bearer|basic|token)\s{1,3})"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{8,4000})",
    ),
    Shape(
        "url-password",
        ("://",),
        r"(?<![a-zA-Z0-9+.-])[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/?#@\"'<>\[\]\\]{0,100}:"
        r"(?P<secret>" + _NO_REFERENCE + r"[^\s/?#@\"'<>\\]{3,200})@(?=[A-Za-z0-9\[])",
    ),
)
"""From the most to the least particular; what one has masked the next ones do not see."""
