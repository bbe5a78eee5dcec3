"""Masking secrets before anything is written (SE-1).

Job: replace what was declared to be a secret, and what looks like a known kind of key, and say what
was replaced. Invariants: nothing else of a text changes; what is masked once is left alone by a
second pass; a text without a secret costs a look for a few words and nothing more; the value of a
secret is never part of what is returned, of an error, or of a ``repr``. Never reads the
environment: who writes says what was declared.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from perdure.core.secret_shapes import SHAPES

Counts = dict[str, int]
"""What was masked: name to how often."""

DECLARING: Final = "PERDURE_SECRETS"
"""The variable that names variables whose values are secrets."""
declared_chars_min: Final = 4
"""A declared value that is shorter would be found in many a word, and is no secret."""
likely_chars_min: Final = 8
"""The same for a variable that nobody has declared."""

_cuts_max: Final = 64
_cut_step_bytes: Final = 1 << 10
"""A secret that is longer than all these steps is cut all the same."""
_WORDS: Final = tuple(dict.fromkeys(word.encode() for shape in SHAPES for word in shape.words))
_COMMON: Final = b'etainro01345678 ,"{}\n'
"""Characters that make up most of a journal and little of the words: looked at without them, a line
is a third as long, and a word in the line is still in what is left of it."""
_LOOKS: Final = tuple((word.translate(None, _COMMON), word) for word in _WORDS)
_SHORTEST: Final = b"sk-"
"""The one word that many others end with; it counts where it begins."""
_SECRET_NAME: Final = (
    "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "API_KEY", "APIKEY", "ACCESS_KEY",
    "PRIVATE_KEY", "SECRET_KEY", "CREDENTIALS", "PGPASSWORD", "AUTH_KEY",
)  # fmt: skip
_SUFFIXES: Final = frozenset(
    {"FILE", "PATH", "DIR", "DIRECTORY", "HOME", "URL", "URI", "ID", "NAME", "TYPE", "SOCK"}
)
"""At the end of a name they say that the value is about a secret, and none itself."""
_KINDS: Final = ("a-z", "A-Z", "0-9", "^a-zA-Z0-9")


def is_secret_name(name: str) -> bool:
    """Whether a variable says by its name that its value is a secret."""
    words = f"_{name.upper()}_"
    if name.upper().rpartition("_")[2] in _SUFFIXES:
        return False
    return any(f"_{word}_" in words for word in _SECRET_NAME)


def declared_secrets(environment: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """The secrets that an environment holds, name to value.

    Those that were declared, by ``names`` (of the task) or by ``PERDURE_SECRETS``, and those whose
    variable says so by its name. Of the latter a value that may be an ordinary word or number is
    left out, because it would be masked wherever that word stands.
    """
    listed = {*names, *re.split(r"[,\s]+", environment.get(DECLARING, ""))} - {""}
    found = {}
    for name, value in environment.items():
        least = declared_chars_min if name in listed else likely_chars_min
        if len(value) < least:
            continue
        if name in listed or (is_secret_name(name) and _is_no_word(value)):
            found[name] = value
    return found


def _begins(data: bytes) -> bool:
    return re.search(rb"(?:(?<![A-Za-z0-9])|(?<=[0-9\[]m))sk-", data) is not None


def _is_no_word(value: str) -> bool:
    """Whether a value has characters of two kinds at least, and so is none of a language."""
    return sum(re.search(f"[{kind}]", value) is not None for kind in _KINDS) > 1


class Masker:
    """Masks known shapes, and the values of declared names. May be used by several threads."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """``names`` maps a name to its value; values below ``declared_chars_min`` are left out."""
        self._values: dict[str, str] = {}
        for name, value in sorted(names.items()):
            for form in _forms(value.strip()):
                if len(form) >= declared_chars_min:
                    self._values.setdefault(form, name)
        self._hints = tuple({hint for value in self._values for hint in _hints(value)})

    def __repr__(self) -> str:
        return f"Masker({', '.join(sorted(set(self._values.values())))})"

    def may_match(self, data: bytes) -> bool:
        """Whether there can be a secret in these bytes, as text or as JSON: quick, and never wrong
        when it says no."""
        rare = data.translate(None, _COMMON)
        for look, word in _LOOKS:
            if look in rare and word in data and (word != _SHORTEST or _begins(data)):
                return True
        return any(hint in data for hint in self._hints) if self._hints else False

    def mask_text(self, text: str) -> tuple[str, Counts]:
        """The text with every secret replaced by ``[masked:NAME]``, and what was replaced."""
        counts: Counts = {}
        if self._values:
            text = self._declared.sub(lambda m: self._replaced(m, counts), text)
        for shape in SHAPES:
            for word in shape.words:
                if word in text:
                    name = shape.name
                    text = shape.pattern.sub(lambda m, n=name: _masked(m, n, counts), text)  # type: ignore[misc]
                    break
        return text, counts

    def mask_value(self, value: Any) -> tuple[Any, Counts]:
        """The same for every text in a JSON-like value, keys included."""
        counts: Counts = {}
        return self._walk(value, counts), counts

    def mask_bytes(self, data: bytes) -> tuple[bytes, Counts]:
        """The same for bytes that are text, whatever their encoding makes of the rest."""
        if not self.may_match(data):
            return data, {}
        masked, counts = self.mask_text(data.decode("utf-8", "surrogateescape"))
        return (masked.encode("utf-8", "surrogateescape"), counts) if counts else (data, counts)

    def safe_cut(self, data: bytes, overlap_bytes: int) -> int:
        """Where data that goes on can be cut so that no secret in it is cut in two.

        At least ``overlap_bytes`` stay behind the cut, for one that may only have begun there.
        """
        last = max(0, len(data) - overlap_bytes)
        whole = self.mask_bytes(data)[0]
        for cut in range(last, max(0, last - _cuts_max * _cut_step_bytes), -_cut_step_bytes):
            if self.mask_bytes(data[:cut])[0] + self.mask_bytes(data[cut:])[0] == whole:
                return cut
        return last

    def found(self, value: Any, place: str = "") -> Iterator[tuple[str, str]]:
        """Where a JSON-like value holds a secret, as ``a.b[0]``, and its name."""
        if isinstance(value, str):
            for name in self.mask_text(value)[1]:
                yield place, name
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                masked = self.mask_text(str(key))[0]
                yield from self.found(str(key), place)
                yield from self.found(inner, f"{place}.{masked}" if place else masked)
        elif isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                yield from self.found(inner, f"{place}[{index}]")

    @cached_property
    def _declared(self) -> re.Pattern[str]:
        """Every value, the longest first; what was masked before is stepped over."""
        longest_first = sorted(self._values, key=lambda value: (-len(value), value))
        return re.compile("|".join([r"\[masked:[^\]]{1,100}\]", *map(re.escape, longest_first)]))

    def _replaced(self, match: re.Match[str], counts: Counts) -> str:
        name = self._values.get(match[0])
        if name is None:
            return match[0]
        counts[name] = counts.get(name, 0) + 1
        return f"[masked:{name}]"

    def _walk(self, value: Any, counts: Counts) -> Any:
        if isinstance(value, str):
            masked, found = self.mask_text(value)
            for name, count in found.items():
                counts[name] = counts.get(name, 0) + count
            return masked if found else value
        if isinstance(value, Mapping):
            return {self._walk(k, counts): self._walk(v, counts) for k, v in value.items()}
        if isinstance(value, list | tuple):
            walked = [self._walk(item, counts) for item in value]
            return tuple(walked) if isinstance(value, tuple) else walked
        return value


def _masked(match: re.Match[str], name: str, counts: Counts) -> str:
    """The match with its secret replaced."""
    counts[name] = counts.get(name, 0) + 1
    mark = f"[masked:{name}]"
    if "secret" not in match.re.groupindex:
        return mark
    start, end = match.span("secret")
    return match[0][: start - match.start()] + mark + match[0][end - match.start() :]


def _forms(value: str) -> set[str]:
    """A value as it is, and as it looks inside a JSON text."""
    return {value, *(json.dumps(value, ensure_ascii=plain)[1:-1] for plain in (False, True))}


def _hints(value: str) -> set[bytes]:
    """The bytes of a value in a text and in a line of JSON."""
    return {form.encode("utf-8", "surrogateescape") for form in _forms(value)}


def mask_value(value: Any, names: Mapping[str, str]) -> tuple[Any, Counts]:
    """Mask a value once; see :class:`Masker` for many."""
    return Masker(names).mask_value(value)
