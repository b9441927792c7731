"""What licences the cluster has in all: its own, and its part of those that `sacctmgr` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.ledger.ledger import Ledger


def licenses(led: Ledger) -> dict[str, int]:
    """By name, whoever uses them. Cost: so many."""
    return led.book.licenses(led.config.licenses)


def extended(led: Ledger, config: Config) -> Config:
    """A configuration with all of them. Cost: constant where there are none but its own."""
    if not led.book.resources:
        return config
    return msgspec.structs.replace(config, licenses=led.book.licenses(config.licenses))


def changed(led: Ledger) -> None:
    """The cluster has as many as now are there, less what others have taken of its part. Cost: the
    licences."""
    have = licenses(led)
    for name, one in led.book.resources.items():
        if one.deficit and name in have:
            have[name] -= min(one.deficit, have[name])
    led.cluster.offer_licenses(have)
