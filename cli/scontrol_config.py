"""`scontrol show config`: the configuration in force, as Slurm lists it."""

from __future__ import annotations

from collections.abc import Mapping

from gsched.config import Config
from gsched.config.keys import OWN
from gsched.config.show import config_rows
from gsched.policy.enforce import enforced
from gsched.wire.messages import Status
from gsched_cli.common import SLURM_VERSION
from gsched_cli.text import timestamp


def config_items(
    config: Config, status: Status, env: Mapping[str, str], now: float
) -> list[tuple[str, str]]:
    """(key, value) in Slurm's order: with the value in force where a key has an effect here, as
    written where it has none, and what Slurm shows of a key that is not set. Last come our own."""
    dynamic = {
        "BOOT_TIME": timestamp(status.start, env, now, "Unknown"),
        "HASH_VAL": "Match",
        "NEXT_JOB_ID": str(status.next_job_id),
        "SLURM_CONF": config.path,
        "SLURM_VERSION": SLURM_VERSION,
    }
    enforce = ",".join(sorted(enforced(config.accounting_storage_enforce))) or "none"
    # Our own keys are shown where they are set.
    hidden = {name for key, name in OWN.items() if key not in config.raw}
    return [
        (key, enforce if key == "AccountingStorageEnforce" else value)
        for key, value in config_rows(config, dynamic)
        if key not in hidden
    ]
