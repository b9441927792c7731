"""The demands that few requests have: GPUs of several types, numbers of nodes with a feature."""

from __future__ import annotations

from gsched._reference.parts import Node, Request
from gsched._reference.policy import Policies

Fits = dict[int, tuple[int, int, int]]
Groups = tuple[tuple[int, tuple[int, ...]], ...]


class Rarities(Policies):
    @staticmethod
    def kinds_there(want: Request, node: Node, gpus: int, tasks: int, n_gpus: int) -> bool:
        """Whether a node has so many GPUs of the types that are asked for."""
        useful = 0
        for kind, per_node, per_task, total in want.gpu_kinds:
            count = (gpus & node.types.get(kind, 0)).bit_count()
            if count < per_node or count < per_task * tasks:
                return False
            useful += min(count, total)
        return not (want.gpu_kinds and want.gpus_total) or useful >= n_gpus

    def kinds_lack(self, want: Request, node: Node, pool: int, tasks: int) -> bool:
        """Whether a type is missing that every node must have."""
        one = 1 in (want.max_nodes, want.cap_nodes)
        return any(
            (pool & node.types.get(kind, 0)).bit_count()
            < (per_node or per_task * tasks or (total if one else 0))
            for kind, per_node, per_task, total in want.gpu_kinds
        )

    def together(
        self,
        want: Request,
        groups: Groups,
        fits: Fits,
        must: list[int],
        others: list[int],
        bounds: tuple[int, int, int],
        *,
        most: bool,
    ) -> list[int] | None:
        """Nodes chosen together: those that must be in it, the first of each group, then others,
        up to the number that is wanted or (most) as many as it takes. None: not enough."""
        lower, upper, wanted = bounds
        chosen = list(must)
        counted: set[int] = set()

        def missing() -> list[int]:
            """Types of which the chosen nodes have too few."""
            if not want.gpus_total:
                return []
            return [
                kind
                for kind, _, _, total in want.gpu_kinds
                if sum((fits[i][2] & self.nodes[i].types.get(kind, 0)).bit_count() for i in chosen)
                < total
            ]

        def enough() -> bool:
            return (
                len(chosen) >= lower
                and sum(fits[i][0] for i in chosen) >= want.ntasks
                and sum(fits[i][1] for i in chosen) >= want.gpus_total
                and not missing()
            )

        for count, alternatives in groups:
            left = count
            for i in must + others:
                has = any(not f & ~self.nodes[i].features for f in alternatives)
                if left and has and i not in counted and (i in must or i not in chosen):
                    counted.add(i)
                    left -= 1
                    if i not in chosen:
                        chosen.append(i)
            if left:
                return None
        for i in others:
            if len(chosen) >= (upper if most else wanted) or (most and enough()):
                break
            if i in chosen:
                continue
            if most and want.gpu_kinds and want.gpus_total:
                types = self.nodes[i].types
                if not any(fits[i][2] & types.get(kind, 0) for kind in missing()):
                    continue
            chosen.append(i)
        return chosen if len(chosen) <= upper and enough() else None

    def deal(
        self, want: Request, fits: Fits, chosen: list[int]
    ) -> dict[int, dict[int, int]] | None:
        """GPUs of each type for each node: one of the type of which most is left, then all that it
        can give, in order."""
        left = {kind: total for kind, _, _, total in sorted(want.gpu_kinds)}
        deals = {i: dict.fromkeys(left, 0) for i in chosen}

        def there(i: int, kind: int) -> int:
            return (fits[i][2] & self.nodes[i].types.get(kind, 0)).bit_count()

        for i in chosen:
            kinds = [kind for kind in left if left[kind] and there(i, kind)]
            if not kinds:
                return None
            best = max(kinds, key=lambda kind: (left[kind], -kind))
            deals[i][best] = 1
            left[best] -= 1
        for i in chosen:
            room = fits[i][1] - 1
            for kind in left:
                more = min(there(i, kind) - deals[i][kind], left[kind], room)
                deals[i][kind] += more
                left[kind] -= more
                room -= more
        return None if any(left.values()) else deals
