"""Finding entries by words.

Job: rank entries by how much of a query they hold. Invariants: the same query over the same entries
gives the same order, so that pages fit together; whole words weigh more than parts, entries with
evidence come before drafts, newer before older. Words of Chinese, Japanese and Korean, which no
blank divides, are found by pairs of characters. No index, no model: stores are small.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from perdure.core.memory import Entry

query_chars_max: Final = 500
terms_max: Final = 32

_WORD: Final = re.compile(r"\w+", re.UNICODE)
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


def normal(text: str) -> str:
    """Text for comparing: compatible forms and case made one, everything but words a blank."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_WORD.findall(folded))


def terms_of(query: str) -> list[str]:
    """What is looked for: words, and pairs of characters where words are not divided."""
    terms: list[str] = []
    for word in normal(query[:query_chars_max]).split():
        if _UNSPACED.search(word) and len(word) > 2:
            terms += [word[at : at + 2] for at in range(len(word) - 1)]
        else:
            terms.append(word)
    return list(dict.fromkeys(terms))[:terms_max]


def rank(query: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries that hold something of the query, best first; all of them without a query."""
    terms, phrase = terms_of(query), normal(query)
    scored = []
    for entry in entries:
        score = _score(terms, phrase, entry) if terms else 1
        if score or (not terms and not query.strip()):
            scored.append((entry.is_draft, -score, -entry.number, entry.id, entry))
    if terms:  # a draft that holds all of it is still worth more than a fact that holds a tenth
        best = max((-one[1] for one in scored), default=0)
        scored = [one for one in scored if -one[1] * 5 >= best]
    return [one[-1] for one in sorted(scored, key=lambda one: one[:4])]


def _score(terms: list[str], phrase: str, entry: Entry) -> int:
    text = normal(entry.statement)
    about = normal(f"{entry.kind} {entry.scope} {entry.id} {' '.join(entry.evidence_refs)}")
    words = frozenset(text.split())
    found = 0
    for term in terms:
        if term in words:
            found += 6
        elif any(word.startswith(term) for word in words):
            found += 4
        elif term in text:
            found += 3
        elif term in about:
            found += 2
    if found and len(terms) > 1 and phrase in text:
        found += 4 * len(terms)
    return found
