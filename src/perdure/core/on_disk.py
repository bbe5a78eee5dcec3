"""What is found on disk, in the words of the record.

Job: the states that the files of an artifact can be in, and bytes that were set aside. Invariants:
the same bytes get the same name, so that a crash in between sets them aside once.
"""

from hashlib import sha256
from typing import Final, Literal, NamedTuple, get_args

from perdure.core.events import Draft

Files = Literal["whole", "missing", "changed", "unreadable"]
FILES: Final[tuple[Files, ...]] = get_args(Files)


class Fragment(NamedTuple):
    """Bytes that were set aside, to be registered as a quarantined artifact."""

    path: str
    sha256: str
    size_bytes: int
    what: str


def name_fragment(offset: int, reason: str, tail: bytes) -> Fragment:
    """What a torn tail behind ``offset`` is called once set aside: the same tail, the same name."""
    digest = sha256(tail).hexdigest()
    path = f"tmp/recovered/journal-tail-{offset}-{digest[:16]}.bin"
    return Fragment(path, digest, len(tail), f"torn tail ({reason})")


def name_damaged(which: str, offset: int, why: str, digest: str, size_bytes: int) -> Fragment:
    """What bytes of ``which`` (journal or mirror) are called that its twin does not bear out."""
    path = f"tmp/recovered/{which}-damaged-{offset}-{digest[:16]}.bin"
    return Fragment(path, digest, size_bytes, f"damaged bytes of the {which} ({why})")


_KEPT: Final = {
    "journal-tail": "torn tail, found set aside",
    "journal-damaged": "damaged bytes of the journal, found set aside",
    "mirror-damaged": "damaged bytes of the mirror, found set aside",
}


def kept_fragment(name: str, offset_max: int) -> str:
    """What a file in ``tmp/recovered`` of this name is, if a recovery has set it aside; else
    empty. Its bytes stood at no later position than ``offset_max``."""
    kind, _, rest = name.removesuffix(".bin").rpartition("-")[0].rpartition("-")
    if kind not in _KEPT or not rest.isdecimal() or int(rest) > offset_max:
        return ""
    return _KEPT[kind]


def register_fragment(fragment: Fragment) -> Draft:
    """The event that keeps a set-aside fragment on record, quarantined."""
    payload = {
        "path": fragment.path,
        "kind": "fragment",
        "produced_by_node": None,
        "produced_by_invocation": None,
        "integrity": {
            "algo": "sha256",
            "value": fragment.sha256,
            "size_bytes": fragment.size_bytes,
            "checked_at": "",
        },
        "status": "quarantined",
        "what": fragment.what,
    }
    # Named like its file, which is unique: the same bytes may be torn off at two places.
    name = fragment.path.rpartition("/")[2].removesuffix(".bin")
    artifact_id = f"F-{name.removeprefix('journal-tail-')}"[:64]
    return Draft("ARTIFACT_REGISTERED", "artifact", artifact_id, payload, (fragment.path,))
