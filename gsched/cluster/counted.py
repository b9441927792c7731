"""Generic resources that are only counted, a node's `Gres=dongle:4` and a job's `--gres=dongle:2`,
in the core's words."""

from __future__ import annotations

from gsched.config import Config, NodeConfig
from gsched.gres import MOST_COUNTED, counted_kinds
from gsched.model import Shape

#: (kind, count)
Counts = tuple[tuple[int, int], ...]

#: kind that no node has
_NOWHERE = MOST_COUNTED
#: how many a node has of what jobs do not use up
_ENDLESS = 1_000_000_000


class Counted:
    """What is counted in a cluster. A resource with types is counted in all and by type, and a
    request for one of a type takes both."""

    def __init__(self, config: Config) -> None:
        self._kinds = counted_kinds(config)

    def of_node(self, conf: NodeConfig) -> Counts:
        """What a node has. Cost: its resources."""
        if not self._kinds:
            return ()
        found: dict[int, int] = {}
        for item in conf.gres:
            count = _ENDLESS if item.no_consume and item.count else item.count
            for kind in {(item.name, ""), (item.name, item.type)}:
                if kind in self._kinds:
                    number = self._kinds[kind]
                    found[number] = min(found.get(number, 0) + count, _ENDLESS)
        return tuple(sorted(found.items()))

    def of_shape(self, shape: Shape) -> Counts:
        """What a job takes of each node."""
        found: dict[int, int] = {}
        for name, kind, count in shape.counted:
            for one in {(name, ""), (name, kind)}:
                number = self._kinds.get(one, _NOWHERE)
                found[number] = found.get(number, 0) + count
        return tuple(sorted(found.items()))
