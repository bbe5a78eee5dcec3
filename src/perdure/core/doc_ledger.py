"""``docs/DOC-LEDGER.md``: the documents of a task that are worth keeping (PL-2).

Job: render what was noted as a table: path, purpose, when it was last noted, to the minute, and how
it stands. Invariants: those of ``inbox_page``: a function of the state, bounded, never read back.
"""

from typing import Final

from perdure.core.closing import Doc
from perdure.core.fold import Replica
from perdure.core.plan_page import page, table_row
from perdure.core.quotation import named, span, timed

docs_shown_max: Final = 300
words_max: Final = 160


def doc_ledger(replica: Replica) -> bytes:
    """The page: Markdown in UTF-8, lines ending in a newline. Never fails on what is in a text."""
    state = replica.state
    docs = list(state.docs.values())
    lines = [
        "# Documents",
        "",
        (
            f"As of J-{state.seq} of task {named(state.task_id)}. Noted with `perdure note --doc"
            " PATH --purpose TEXT`. What is stale has changed since it was noted, or is gone: read"
            " it again before you rely on it, and note it anew."
        ),
        "",
        "| document | purpose | noted | status | event |",
        "| --- | --- | --- | --- | --- |",
        *(_row(doc) for doc in reversed(docs[-docs_shown_max:])),
    ]
    if len(docs) > docs_shown_max:
        lines += ["", f"{len(docs) - docs_shown_max} older ones are in the journal."]
    return page(lines)


def _row(doc: Doc) -> str:
    where = span(doc.path, words_max) + (" (outside)" if doc.external else "")
    status = f"**stale**: {span(doc.why, words_max)} ({doc.stale})" if doc.stale else "current"
    return table_row(where, span(doc.purpose, words_max), minute(doc.at), status, doc.ref)


def minute(at: str) -> str:
    """A time to the minute, with its offset; what is no time is quoted."""
    if timed(at) != at:
        return timed(at)
    offset = at[19:].lstrip(".0123456789")
    return f"{at[:16].replace('T', ' ')} {offset}".strip()
