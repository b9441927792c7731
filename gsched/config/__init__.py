"""slurm.conf, gres.conf, cgroup.conf and topology.conf, read into one typed Config.

`load_config(path)` reads files, `parse_config(texts)` is pure; both raise ConfigError.
"""

from typing import TYPE_CHECKING, Any

from gsched.config.errors import ConfigError
from gsched.config.locate import find_slurm_conf

if TYPE_CHECKING:
    from gsched.config.parse import load_config, parse_config
    from gsched.config.types import (
        Cgroup,
        Config,
        GresCount,
        GresLine,
        Host,
        NodeConfig,
        PartitionConfig,
        Switch,
    )

__all__ = [
    "Cgroup",
    "Config",
    "ConfigError",
    "GresCount",
    "GresLine",
    "Host",
    "NodeConfig",
    "PartitionConfig",
    "Switch",
    "find_slurm_conf",
    "load_config",
    "parse_config",
]


def __getattr__(name: str) -> Any:
    """The parser and the types, when first asked for: a command that only looks for the cluster
    (`gsched.config.locate`) must not pay for them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gsched.config import parse, types

    value = getattr(parse if name in ("load_config", "parse_config") else types, name)
    globals()[name] = value
    return value
