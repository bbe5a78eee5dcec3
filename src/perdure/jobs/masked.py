"""Secrets in what a job records: masked, or refused (SE-1).

Job: mask payloads and error texts before they become a line. Invariants: what is recorded and what
is shown of it later are the same masked text; the name of an item, and the place where a listing
stands, cannot be masked, because something else would be found by them, so they are refused.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.core.secrets import Masker
from perdure.errors import UsageError
from perdure.jobs.lines import encode_line


def masked_line(
    masker: Masker, key: str, payload: Mapping[str, Any], at: str, item: str | None
) -> tuple[str, bytes]:
    """``lines.encode_line`` of the payload with every secret masked.

    Raises UsageError ``secret_in_key`` (SE-1), and as ``encode_line`` does.
    """
    found = encode_line(key, payload, at, item)
    if not masker.may_match(found[1]):
        return found
    check_key(masker, key)
    clean, counts = masker.mask_value(dict(payload))
    return encode_line(key, clean, at, item) if counts else found


def masked_error(masker: Masker, key: str, text: str) -> str:
    """The text of an error with every secret masked. Raises UsageError ``secret_in_key`` (SE-1)."""
    if isinstance(key, str):  # what is none is refused where it becomes a hash
        check_key(masker, key)
    return masker.mask_text(text)[0]


def check_key(masker: Masker, key: str) -> None:
    """Raise UsageError for a key that holds a secret: it names the item in every file."""
    for name in masker.mask_text(key)[1]:
        raise UsageError(
            f"the key of an item holds what looks like a secret ({name}).",
            code="secret_in_key",
            rule="SE-1",
            fix="Name the item by something else, such as its number or a digest of it.",
        )


def check_keys(masker: Masker, keys: Iterable[str]) -> None:
    """The same of many keys, before anything is done for any of them."""
    for key in keys:
        if masker.may_match(key.encode("utf-8", "surrogatepass")):
            check_key(masker, key)


def check_cursor(masker: Masker, data: bytes) -> None:
    """Raise UsageError for a cursor that holds a secret: masked it would lead elsewhere."""
    for name in masker.mask_bytes(data)[1]:
        raise UsageError(
            f"the cursor holds what looks like a secret ({name}).",
            code="secret_in_cursor",
            rule="SE-1",
            fix="Keep where the listing stands in it, and read the secret from a variable.",
        )
