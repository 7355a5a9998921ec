"""How busy each tier is, and which one limits. Plain numbers in, plain words out."""

from __future__ import annotations

from collections.abc import Mapping

TIERS = ("store link", "preparation", "training link", "training step")
"""In the order of the data's way."""


def utilisation(
    *,
    seconds: float,
    store_bytes: float,
    store_link: float,
    prep_seconds: float,
    prep_threads: float,
    batch_bytes: float,
    training_link: float,
    step_share: float,
) -> dict[str, float]:
    """The busy share of each tier in `seconds`: bytes against what a link carries in a second, time against threads."""
    shares = (
        store_bytes / seconds / store_link,
        prep_seconds / seconds / prep_threads,
        batch_bytes / seconds / training_link,
        step_share,
    )
    return dict(zip(TIERS, shares, strict=True))


def limiting(busy: Mapping[str, float]) -> str:
    """The tier that is busiest: the others wait for it, in front of a full queue or behind an empty one."""
    return max(TIERS, key=lambda tier: busy[tier])


def lines(busy: Mapping[str, float], rate: float) -> list[str]:
    """The report for people."""
    limit = limiting(busy)
    rows = [f"{tier:<14} {busy[tier]:>5.0%}{'  <- limits' if tier == limit else ''}" for tier in TIERS]
    return [f"{rate:,.0f} samples/s", *rows]
