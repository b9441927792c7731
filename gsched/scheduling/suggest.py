"""What other request would start at once: the same job with one thing less, tried out.

Each variation is a question to the cluster as it is, beside the plan; nothing is changed. Cost: at
most MOST_TRIED placements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from gsched import access, licenses
from gsched.model import Hold, Job, Shape
from gsched.model.why import Suggestion
from gsched.units import format_limit, format_memory

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: questions put to the cluster for one job
MOST_TRIED = 600
#: suggestions given
MOST_GIVEN = 12
#: other partitions that are looked at
MOST_PARTITIONS = 32
#: minutes of a year: the longest time limit that is suggested for a job without one
YEAR_MIN = 365 * 1440
#: MB
GB = 1024


class Variation(msgspec.Struct):
    """A job that differs from the one that waits, and the options that say so."""

    shape: Shape
    limit: int
    partitions: tuple[str, ...]
    options: list[str] = []
    without: list[str] = []
    begin: int = 0
    licenses: str = ""
    #: on as few switches as the job waits for
    switches: bool = True
    #: advance reservations in which it may start, "" outside of all
    ways: tuple[str, ...] = ("",)


class _Search:
    """Asks the cluster about variations of one job."""

    def __init__(self, led: Ledger, job: Job, now: int, at: int, groups: Collection[str]) -> None:
        self.led, self.job, self.now, self.at = led, job, now, at
        self.groups = [*groups, job.group]
        self.tried = 0
        self.base = Variation(
            job.spec.shape,
            job.time_limit,
            job.spec.partitions or (job.partition,),
            begin=job.spec.begin,
            licenses=job.spec.licenses,
            ways=tuple(led.cluster.what_if.ways(job)),
        )
        self._left = led.cluster.licenses_left(job.id, now) if job.spec.licenses else {}

    def starts(self, one: Variation) -> tuple[str, str] | None:
        """(partition, nodes) that it would start on; None: it would not."""
        if one.begin > max(self.now, self.at) or not self._licensed(one.licenses):
            return None
        for name, within in ((name, way) for name in one.partitions for way in one.ways):
            if self.tried >= MOST_TRIED or name not in self.led.config.partitions:
                return None
            spec = msgspec.structs.replace(
                self.job.spec, shape=one.shape, partitions=one.partitions
            )
            job = msgspec.structs.replace(
                self.job, spec=spec, time_limit=one.limit, held=Hold.NONE, deps=[]
            )
            self.tried += 1
            if self.led.cluster.what_if.barred(job, name):
                continue
            if self.led.limits.lacks(job, name, self.now):
                continue
            nodes = self.led.cluster.what_if.nodes_for(
                one.shape,
                name,
                one.limit,
                self.now,
                at=self.at,
                job_id=self.job.id,
                switches=one.switches,
                within=within,
            )
            if nodes is not None:
                return name, nodes
        return None

    def _licensed(self, text: str) -> bool:
        if not text:
            return True
        try:
            choices = licenses.parse(text)
        except licenses.LicenseError:
            return False
        return any(
            all(self._left.get(name, 0) >= count for name, count in one.items()) for one in choices
        )

    def largest(self, low: int, high: int, made: Callable[[int], Variation]) -> Variation | None:
        """The variation of the largest number in [low, high) that starts, as it starts with every
        lower one too. Cost: log(high - low) placements."""
        best = None
        while low < high:
            middle = (low + high - 1) // 2
            one = made(middle)
            if self.starts(one):
                best, low = one, middle + 1
            else:
                high = middle
        return best


def suggest(led: Ledger, job: Job, now: int, at: int, groups: Collection[str]) -> list[Suggestion]:
    """Requests like the job's that would start now (or at a later time `at`), each with one thing
    less; where none does, with two. Those come first that give up least."""
    search = _Search(led, job, now, at, groups)
    if search.starts(search.base):
        return []
    found = list(_one_less(search, search.base))
    if not found:
        for smaller in _smaller(search.base, job):
            found += _one_less(search, smaller)
            if found:
                break
    out: list[Suggestion] = []
    for one in found:
        where = search.starts(one)
        if where is not None and len(out) < MOST_GIVEN:
            partition = (
                where[0] if len(job.spec.partitions) > 1 or where[0] != job.partition else ""
            )
            out.append(Suggestion(one.options, one.without, partition or where[0], where[1]))
    return out


def _one_less(search: _Search, base: Variation) -> Iterator[Variation]:
    for make in (
        *(_time, _begin, _partition, _reservation, _names),
        *(_memory, _cpus, _license, _gpus, _nodes),
    ):
        yield from (one for one in make(search, base) if search.starts(one))


def _smaller(base: Variation, job: Job) -> Iterator[Variation]:
    """Half as much, then the least: what else is in the way is found beside that."""
    shape = base.shape
    for nodes in dict.fromkeys((max(1, shape.min_nodes // 2), 1)):
        if nodes < shape.min_nodes:
            yield _with_nodes(base, nodes)
    for form, count in _gpu_forms(shape):
        for fewer in dict.fromkeys((count // 2, 1)):
            if 0 < fewer < count:
                yield _with_gpus(base, job, form, fewer)
                if shape.min_nodes > 1:
                    yield _with_gpus(_with_nodes(base, 1), job, form, fewer)


def _vary(base: Variation, option: str | list[str], **changes: Any) -> Variation:
    options = [option] if isinstance(option, str) else option
    return msgspec.structs.replace(base, options=[*base.options, *options], **changes)


def _shaped(base: Variation, option: str | list[str], **fields: Any) -> Variation:
    return _vary(base, option, shape=msgspec.structs.replace(base.shape, **fields))


def _leave_out(base: Variation, option: str, **fields: Any) -> Variation:
    shape = msgspec.structs.replace(base.shape, **fields)
    return msgspec.structs.replace(base, shape=shape, without=[*base.without, option])


# ---- when --------------------------------------------------------------------------------------


def _time(search: _Search, base: Variation) -> Iterator[Variation]:
    """A shorter time limit: it ends before something planned begins, or before the partition's."""
    high = -(-base.limit // 60) if base.limit else YEAR_MIN

    def made(minutes: int) -> Variation:
        return _vary(base, f"--time={format_limit(60 * minutes)}", limit=60 * minutes)

    best = search.largest(1, high, made)
    if best is not None:
        yield best


def _begin(search: _Search, base: Variation) -> Iterator[Variation]:
    if base.begin > max(search.now, search.at):
        yield _vary(base, "--begin=now", begin=0)


# ---- where -------------------------------------------------------------------------------------


def _partition(search: _Search, base: Variation) -> Iterator[Variation]:
    config, job = search.led.config, search.job
    others = [name for name in config.partitions if name not in base.partitions]
    for name in others[:MOST_PARTITIONS]:
        part = config.partitions[name]
        if part.state != "UP" or part.root_only or part.hidden or part.req_resv:
            continue
        if not access.group_may(part, search.groups):
            continue
        limit, options = base.limit, [f"--partition={name}"]
        if job.spec.time_limit is None and base.limit == job.time_limit:
            limit = part.max_time if part.default_time is None else part.default_time
        options += _memory_said(search, base.shape, name)
        one = _vary(base, options, partitions=(name,), limit=limit)
        yield one
        if part.max_time and (not limit or limit > part.max_time):
            minutes = part.max_time // 60
            option = f"--time={format_limit(60 * minutes)}"
            yield _vary(base, [*options, option], partitions=(name,), limit=60 * minutes)


def _reservation(search: _Search, base: Variation) -> Iterator[Variation]:
    """In a reservation of its owner, or outside of the one it asks for."""
    job, windows = search.job, search.led.cluster.what_if.windows
    for name in windows.usable(job, max(search.now, search.at), search.groups):
        if name not in base.ways:
            yield _vary(base, f"--reservation={name}", ways=(name,))
    if job.spec.reservation:
        outside = msgspec.structs.replace(
            job, spec=msgspec.structs.replace(job.spec, reservation="")
        )
        without = [*base.without, "--reservation"]
        ways = tuple(search.led.cluster.what_if.ways(outside))
        yield msgspec.structs.replace(base, ways=ways, without=without)


def _memory_said(search: _Search, shape: Shape, name: str) -> list[str]:
    """What must be said of memory so that another partition's default does not change it."""
    config, old = search.led.config, (search.job.spec.partitions or (search.job.partition,))[0]
    same = config.def_mem(old) == config.def_mem(name)
    if same and config.def_mem_gpu(old) == config.def_mem_gpu(name):
        return []
    if shape.mem_per_gpu is not None:
        return [f"--mem-per-gpu={format_memory(shape.mem_per_gpu)}"]
    if shape.mem_per_cpu is not None:
        return [f"--mem-per-cpu={format_memory(shape.mem_per_cpu)}"]
    return [f"--mem={format_memory(shape.mem_per_node or 0)}"]


def _names(search: _Search, base: Variation) -> Iterator[Variation]:
    """Without a demand on which nodes, or on what they are."""
    shape = base.shape
    if shape.features:
        yield _leave_out(base, "--constraint", features="")
    if shape.gpu_type and not shape.share and not shape.gpu_kinds:
        for form, count in _gpu_forms(shape):
            yield _shaped(base, _gpu_option(search.job, form, count, ""), gpu_type="")
            break
    if shape.nodelist:
        yield _leave_out(base, "--nodelist", nodelist=())
    if shape.exclude:
        yield _leave_out(base, "--exclude", exclude=())
    if shape.exclusive:
        yield _leave_out(base, "--exclusive", exclusive=0)
    if base.switches and search.led.cluster.waits_for_switches(search.job.id):
        one = _leave_out(base, "--switches")
        yield msgspec.structs.replace(one, switches=False)
    if shape.one_island:
        yield _leave_out(base, "--gres-flags", one_island=False, gres_binding=0)
    for field, option in (
        ("contiguous", "--contiguous"),
        ("cores_per_socket", "--cores-per-socket"),
        ("sockets_per_node", "--sockets-per-node"),
        ("threads_per_core", "--threads-per-core"),
        ("ntasks_per_socket", "--ntasks-per-socket"),
        ("ntasks_per_core", "--ntasks-per-core"),
        ("ntasks_per_gpu", "--ntasks-per-gpu"),
        ("segment", "--segment"),
    ):
        if getattr(shape, field):
            yield _leave_out(base, option, **{field: type(getattr(shape, field))()})


# ---- how much ----------------------------------------------------------------------------------


def _memory(search: _Search, base: Variation) -> Iterator[Variation]:
    shape = base.shape
    for field, option in (
        ("mem_per_node", "--mem"),
        ("mem_per_cpu", "--mem-per-cpu"),
        ("mem_per_gpu", "--mem-per-gpu"),
    ):
        size = getattr(shape, field)
        if size is None:
            continue
        if size == 0:
            # All memory of a node.
            nodes = search.led.config.nodes.values()
            size = max((node.real_memory for node in nodes), default=0)
        # In steps that people think in.
        step = GB if size > 8 * GB else 256 if size > 1024 else 1

        def made(n: int, field: str = field, option: str = option, step: int = step) -> Variation:
            return _shaped(base, f"{option}={format_memory(n * step)}", **{field: n * step})

        best = search.largest(1, -(-size // step), made)
        if best is not None:
            yield best


def _cpus(search: _Search, base: Variation) -> Iterator[Variation]:
    shape = base.shape

    def fewer(field: str, option: str, **more: Any) -> Variation | None:
        def made(n: int) -> Variation:
            return _shaped(base, f"{option}={n}", **{field: n}, **more)

        return search.largest(1, getattr(shape, field), made)

    found = [
        fewer("cpus_per_task", "--cpus-per-task", cpus_per_task_set=True),
        fewer("cpus_per_gpu", "--cpus-per-gpu"),
        fewer("min_cpus_node", "--mincpus"),
        fewer("ntasks_per_node", "--ntasks-per-node") if not shape.ntasks else None,
    ]
    if shape.ntasks > shape.min_nodes:

        def tasks(n: int) -> Variation:
            return _shaped(base, f"--ntasks={n}", ntasks=n)

        found.append(search.largest(max(1, shape.min_nodes), shape.ntasks, tasks))
    yield from (one for one in found if one is not None)


def _license(search: _Search, base: Variation) -> Iterator[Variation]:
    if not base.licenses:
        return
    try:
        choices = licenses.parse(base.licenses)
    except licenses.LicenseError:
        return
    left = search.led.cluster.licenses_left(search.job.id, search.now)
    fewer = {name: min(count, left.get(name, 0)) for name, count in choices[0].items()}
    if all(fewer.values()):
        text = licenses.shown(fewer)
        yield _vary(base, f"--licenses={text}", licenses=text)
    without = [*base.without, "--licenses"]
    yield msgspec.structs.replace(base, licenses="", without=without)


def _gpu_forms(shape: Shape) -> Iterator[tuple[str, int]]:
    """The forms in which GPUs are asked for, with their counts."""
    if shape.share:
        yield "share", shape.share_count
        return
    if shape.gpu_kinds:
        # Which of the types is to be fewer is not for us to say.
        return
    for form in ("gpus_per_node", "gpus_per_task", "gpus_per_socket", "gpus_total"):
        count = getattr(shape, form)
        if count:
            yield form, count


def _gpu_option(job: Job, form: str, count: int, kind: str) -> str:
    shape = job.spec.shape
    if form == "share":
        return f"--gres={shape.share}:{count}"
    text = f"{kind}:{count}" if kind else str(count)
    if form == "gpus_per_node" and "gres" in job.spec.tres:
        return f"--gres=gpu:{text}"
    return {
        "gpus_per_node": "--gpus-per-node",
        "gpus_per_task": "--gpus-per-task",
        "gpus_per_socket": "--gpus-per-socket",
        "gpus_total": "--gpus",
    }[form] + f"={text}"


def _with_gpus(base: Variation, job: Job, form: str, count: int) -> Variation:
    field = "share_count" if form == "share" else form
    return _shaped(base, _gpu_option(job, form, count, base.shape.gpu_type), **{field: count})


def _gpus(search: _Search, base: Variation) -> Iterator[Variation]:
    forms = list(_gpu_forms(base.shape))
    if len(forms) > 1:
        # Several forms have to agree with each other.
        return
    for form, count in forms:
        low = base.shape.min_nodes if form == "gpus_total" else 1

        def made(n: int, form: str = form) -> Variation:
            return _with_gpus(base, search.job, form, n)

        best = search.largest(low, count, made)
        if best is not None:
            yield best


def _with_nodes(base: Variation, nodes: int) -> Variation:
    """Fewer nodes, with their part of tasks and GPUs."""
    shape = base.shape
    options = [f"--nodes={nodes}"]
    fields: dict[str, Any] = {"min_nodes": nodes, "max_nodes": nodes, "nodes_set": True}
    for field, option in (("ntasks", "--ntasks"), ("gpus_total", "--gpus")):
        count = getattr(shape, field)
        if count:
            fields[field] = max(nodes, count * nodes // shape.min_nodes)
            kind = f"{shape.gpu_type}:" if field == "gpus_total" and shape.gpu_type else ""
            options.append(f"{option}={kind}{fields[field]}")
    return _shaped(base, options, **fields)


def _nodes(search: _Search, base: Variation) -> Iterator[Variation]:
    least = max(1, len(base.shape.nodelist))
    best = search.largest(least, base.shape.min_nodes, lambda n: _with_nodes(base, n))
    if best is not None:
        yield best
