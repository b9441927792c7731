"""SlurmctldParameters=enable_configless: nodes fetch the configuration over their link."""

from __future__ import annotations

from typing import Any

from gsched.config import Config, ConfigError
from gsched.config.bundle import bundle, pack
from gsched.wire.codec import encode
from gsched.wire.nodes import ConfigFiles

#: seconds between two parcels for one node: it needs one at its start and at each change
PAUSE_S = 1.0


class Files:
    """The parcel that is handed out, made once for each configuration that comes into force."""

    def __init__(self, config: Config, log: Any) -> None:
        self._answer = b""
        self._last: dict[str, float] = {}
        if "enable_configless" not in {item.lower() for item in config.slurmctld_parameters}:
            refusal = "SlurmctldParameters=enable_configless is not set"
        else:
            try:
                self._answer = encode(ConfigFiles(pack(bundle(config))))
                return
            except ConfigError as problem:
                refusal = str(problem)
                log.error(f"no configuration can be given to nodes: {problem}")
        self._answer = encode(ConfigFiles(refused=refusal))

    def answer(self, node: str, now: float) -> bytes | None:
        """What is sent to a node that asks; None where it asks too often."""
        if now - self._last.get(node, now - PAUSE_S) < PAUSE_S:
            return None
        self._last[node] = now
        return self._answer
