"""What a tier asks of every task that is of it (``docs/tiers.md``).

Invariants: pure; a tier adds to the one below it and takes nothing away. What is stored besides,
the mirror of the journal, is ``storage.mirror``'s.
"""

from typing import Final

from perdure.core.model import Effect, VerificationLevel

critical_tier_least: Final = 2
"""The tier of work whose loss, or whose being wrong, is not to be borne."""


def default_level(tier: int) -> VerificationLevel:
    """The level that a node is verified at where nobody names one."""
    return "V2" if tier >= critical_tier_least else "V1"


def owes_receipt(tier: int, effect: Effect) -> bool:
    """Whether a node with this effect is DONE only with a receipt for it (C-S2, C-S3)."""
    return effect == "S3" or (effect == "S2" and tier >= critical_tier_least)


def is_mirrored(tier: int) -> bool:
    """Whether the journal has a mirror."""
    return tier >= critical_tier_least


def asks_other_authority(tier: int) -> bool:
    """Whether an audit of a node has to be by another authority than its work (I5)."""
    return tier >= critical_tier_least


def is_walked(tier: int) -> bool:
    """Whether a coordinator walks the registered files while it runs."""
    return tier >= critical_tier_least
