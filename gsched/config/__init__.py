"""slurm.conf, gres.conf, cgroup.conf and topology.conf, read into one typed Config.

`load_config(path)` reads files, `parse_config(texts)` is pure; both raise ConfigError.
"""

from gsched.config.errors import ConfigError
from gsched.config.locate import find_slurm_conf
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
