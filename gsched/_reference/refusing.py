"""Why the slow twin does not place a request, and whether it ever could."""

from __future__ import annotations

from dataclasses import replace

from gsched._core import Placement, Reason, Refusal
from gsched._reference.parts import (
    Free,
    Request,
)
from gsched._reference.placing import Placing
from gsched._reference.state import YEAR
from gsched._reference.windows import EVERY, Span


class Refusing(Placing):
    """Refusals with their counted reasons."""

    # --- answers

    def possible(self, req: int) -> bool:
        return self.find(self.requests[req], self.empty(all_up=False)) is not None

    def ever(self, req: int) -> bool:
        # What is kept for idle GPUs makes nothing impossible.
        outer, self.keeping = self.keeping, 0
        try:
            return self.find(self.requests[req], self.empty(all_up=True)) is not None
        finally:
            self.keeping = outer

    def can_ever(self, req: int) -> Refusal | None:
        return None if self.ever(req) else self.refusal(req, True)

    def place(self, req: int, now: int = 0, limit_s: int = -1) -> Placement | Refusal:
        """As the core's while there is no plan."""
        want, span = self.requests[req], None
        if limit_s >= 0:
            span = (now, self.ends_by(want.reservation, now, now + (limit_s or YEAR)))
        rows = self.find(want, self.live(), span=span)
        if rows is None:
            return self.refusal(req, not self.ever(req), span)
        return Placement(rows, want.gpu_milli)

    def refusal(self, req: int, never: bool, span: Span | None = None) -> Refusal:
        want = self.requests[req]
        counts: dict[tuple[str, bool], int] = {}
        suited = able = 0
        for i, free in enumerate(self.live()):
            found = self.lacking(want, i, free, span)
            suited += not found
            able += not any(never for _, never in found)
            for what in found:
                counts[what] = counts.get(what, 0) + 1
        order = [("partition", True), ("features", True), ("excluded", True)]
        order += [
            (w, True)
            for w in (
                "layout",
                "cpus",
                "memory",
                "gpu_type",
                "gpus",
                "island",
                "near",
                "gres",
                "cap",
            )
        ]
        order += [("state", False), ("busy", False)]
        order += [
            (w, False)
            for w in (
                "cpus",
                "memory",
                "gpus",
                "island",
                "near",
                "gres",
                "cap",
                "kept",
                "reservation",
            )
        ]
        reasons = [Reason(w, n, counts[w, n]) for w, n in order if (w, n) in counts]
        apart = self.apart(want, never, None if never else span)
        if apart:
            reasons.append(Reason(apart, never, able if never else suited))
        return Refusal(never, max(want.min_nodes, len(set(want.nodelist))), suited, tuple(reasons))

    def apart(self, want: Request, never: bool, span: Span | None) -> str:
        """The demand on where nodes are but for which it would fit."""
        free = self.empty(all_up=True) if never else self.live()
        if not self.is_gang(want) or self.find(want, free, span=span):
            return ""
        if not self.find(want, free, span=span, loose=True):
            return ""
        what = "block" if self.network is not None and self.network.sizes else "switch"
        if want.contiguous and self.find(replace(want, contiguous=False), free, span=span):
            what = "contiguous"
        return what

    def lacking(
        self, want: Request, i: int, free: Free, span: Span | None
    ) -> set[tuple[str, bool]]:
        node = self.nodes[i]
        if want.partition >= 0 and not node.partitions >> want.partition & 1:
            return {("partition", True)}
        if i in want.exclude:
            return {("excluded", True)}
        if not self.has_features(want, node):
            return {("features", True)}
        if not self.has_layout(want, node):
            return {("layout", True)}
        whole = Free(node.cpus, node.mem, node.gpus, 0, True, extra=dict(node.extra))
        if never := self.missing(want, i, whole):
            return {(what, True) for what in never}
        tasks, least = self.least(want)
        if self.near_lacks(want, i, whole, tasks, least):
            return {("near", True)}
        if not free.usable:
            return {("state", False)}
        if (want.alone and free.jobs) or not self.owner_fits(want, free):
            return {("busy", False)}
        plain = free
        if want.lot >= 0 and not free.told and not self.windowed(i):
            more = free.joinable(want.lot, self.sharing[want.lot]) * self.nodes[i].threads
            plain = replace(free, cpus=free.cpus + more)
        if now := self.missing(want, i, plain):
            return {(what, False) for what in now}
        if self.near_lacks(want, i, free, tasks, least):
            return {("near", False)}
        cpus, mem = self.beside(want, i, free)
        free = replace(free, cpus=cpus, mem=mem)
        if self.missing(want, i, free) & {"cpus", "memory"}:
            return {("kept", False)}
        seen = self.view(want, i, free, span)
        if seen is None or self.missing(want, i, replace(free, cpus=seen[0]), within=seen[1]):
            return {("reservation", False)}
        return set()

    @staticmethod
    def least(want: Request) -> tuple[int, int]:
        """Tasks and GPUs that each node must hold."""
        tasks = want.least_tasks
        one = 1 in (want.max_nodes, want.cap_nodes)
        if one:
            tasks = max(tasks, want.ntasks)
        gpus = want.least_gpus(tasks)
        if one and want.gpus_total:
            gpus = want.gpus_total
        elif want.ntasks_per_gpu:
            tasks = want.ntasks_per_gpu
        return tasks, gpus

    def missing(self, want: Request, i: int, free: Free, within: int = EVERY) -> set[str]:
        node = self.nodes[i]
        pool = self.pool(want, i, free) & within
        tasks, gpus = self.least(want)
        out = set()
        cpus = want.cores(node, tasks, gpus) * node.threads
        if free.cpus < (max(cpus, node.cpus) if want.exclusive else cpus):
            out.add("cpus")
        if free.mem < want.memory(node, cpus, gpus):
            out.add("memory")
        if not free.counts(want.extra):
            out.add("gres")
        if any(free.extra.get(kind, 0) < cpus for kind in want.cpu_caps):
            out.add("cap")
        if want.wants_gpus:
            if node.gpus and not want.of_type(node):
                out.add("gpu_type")
            elif pool.bit_count() < gpus or self.kinds_lack(want, node, pool, tasks):
                out.add("gpus")
            elif want.one_island:
                if self.classes[node.cls].largest(pool) < gpus:
                    out.add("island")
        return out
