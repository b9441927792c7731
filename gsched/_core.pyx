# cython: language_level=3, boundscheck=False, cdivision=True
# cython: initializedcheck=False, embedsignature=False
"""The matching core: a cluster as flat C arrays, placements, reservations, the queue as columns.

One `Core` is one cluster. It knows numbers only: nodes 0..n-1, GPUs as bits, partitions and
features as bits, jobs by a 64-bit key. `gsched.cluster` binds them to names; `gsched._reference`
gives the same answers slowly.
"""

include "core/base.pxi"
include "core/links.pxi"
include "core/state.pxi"
include "core/place.pxi"
include "core/alloc.pxi"
include "core/backfill.pxi"
include "core/queue.pxi"
include "core/explain.pxi"

from collections import namedtuple
from operator import index as _index

Placement = namedtuple("Placement", ["nodes"])
Placement.__doc__ = "Where a request goes: (node, cpus, tasks, mem_mb, gpu_mask) by node number."
Reason = namedtuple("Reason", ["what", "never", "nodes"])
Reason.__doc__ = "So many nodes lack this; `never`: as they are configured, not only now."
Refusal = namedtuple("Refusal", ["never", "needed", "suited", "reasons"])
Refusal.__doc__ = """Why a request has no place: nodes needed at least, nodes that lack nothing,
and the counted reasons; `never`: the configured cluster cannot hold it."""
Start = namedtuple("Start", ["key", "placement"])
Start.__doc__ = "A job that the pass started; its allocation under the same key is made."
Reservation = namedtuple("Reservation", ["key", "at", "until", "placement"])
Reservation.__doc__ = "A blocked job and what is kept for it, in absolute seconds."
Plan = namedtuple("Plan", ["starts", "reservations", "changed", "tested", "placed", "more"])
Plan.__doc__ = """What a pass decided: starts in order; reservations; (key, verdict) of jobs whose
verdict changed, started ones among them; jobs tested; placements computed; `more`: max_starts
ended it."""
NodeState = namedtuple(
    "NodeState", ["free_cpus", "free_mem_mb", "free_gpus", "used_gpus", "jobs", "usable"]
)
NodeState.__doc__ = "What a node has left; free_gpus are healthy and unallocated."

#: verdicts on queued jobs
UNTESTED = V_UNTESTED
STARTED = V_STARTED
RESOURCES = V_RESOURCES
PRIORITY = V_PRIORITY
BEHIND = V_BEHIND
BEGIN = V_BEGIN
HELD = V_HELD
NODES_DOWN = V_NODES_DOWN
NEVER = V_NEVER
GROUP = V_GROUP

_WHY = (
    ("partition", True), ("features", True), ("excluded", True), ("cpus", True),
    ("memory", True), ("gpu_type", True), ("gpus", True), ("island", True),
    ("state", False), ("busy", False), ("cpus", False), ("memory", False),
    ("gpus", False), ("island", False), ("reserved", False),
)

_TOP_BIT = _index(1) << _index(MAX_BITS)


cdef int64_t _number(object value, int64_t low, int64_t high, str what) except? -1:
    """An int within [low, high], else ValueError with the value."""
    try:
        number = _index(value)
    except TypeError:
        raise ValueError(f"{what} must be an integer, not {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{what} {value} is not in {low}..{high}")
    return number


cdef uint64_t _mask(object value, str what) except? 0:
    try:
        number = _index(value)
    except TypeError:
        raise ValueError(f"{what} must be a bitmap, not {value!r}") from None
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{what} {value} does not fit into 64 bits")
    return <uint64_t>number


cdef int _words(object value, uint64_t* out, str what) except -1:
    """A bitmap of up to MAX_BITS bits into BIT_WORDS words."""
    cdef int w
    try:
        number = _index(value)
    except TypeError:
        raise ValueError(f"{what} must be a bitmap, not {value!r}") from None
    if not 0 <= number < _TOP_BIT:
        raise ValueError(f"{what} {value} does not fit into {MAX_BITS} bits")
    for w in range(BIT_WORDS):
        out[w] = <uint64_t>((number >> (64 * w)) & 0xFFFFFFFFFFFFFFFF)
    return 0


cdef tuple _shares(Share* a, int n):
    cdef int k
    return tuple([
        (a[k].node, a[k].cpus, a[k].tasks, a[k].mem, a[k].mask) for k in range(n)
    ])


cdef class Core:
    """A cluster of n_nodes nodes, all unusable until set_node() describes them.

    Methods raise ValueError with the offending value, RuntimeError while schedule() runs in
    another thread, MemoryError. Nothing is changed by a call that raises, but for MemoryError out
    of schedule().
    """

    cdef Cluster c
    cdef dict _classes
    cdef dict _layouts
    cdef dict _filters
    cdef dict _requests
    cdef list _request_keys
    cdef list _filter_keys
    cdef list _free_requests
    cdef list _free_filters
    cdef bint _busy

    def __cinit__(self, n_nodes):
        cdef int64_t n = _number(n_nodes, 1, MAX_NODES, "number of nodes")
        memset(&self.c, 0, sizeof(Cluster))
        if cluster_init(&self.c, <int>n):
            raise MemoryError
        self._classes = {((), ()): 0}
        self._layouts = {(): 0}
        self._filters = {}
        self._requests = {}
        self._request_keys = []
        self._filter_keys = []
        self._free_requests = []
        self._free_filters = []
        self._busy = False

    def __dealloc__(self):
        cluster_free(&self.c)

    cdef int _enter(self) except -1:
        if self._busy:
            raise RuntimeError("the core is in use by a pass in another thread")
        return 0

    cdef int _ready(self) except -1:
        """Before a decision: ranks and index are as the nodes are."""
        if self._busy:
            raise RuntimeError("the core is in use by a pass in another thread")
        if cluster_order(&self.c) or self.c.now.failed or self.c.then.failed:
            raise MemoryError
        return 0

    cdef int _check(self) except -1:
        if self.c.now.failed or self.c.then.failed:
            raise MemoryError
        return 0

    cdef int _node(self, object node) except -1:
        return <int>_number(node, 0, self.c.n - 1, "node")

    cdef Req* _req(self, object req) except NULL:
        cdef int64_t i = _number(req, 0, MAX_COUNT, "request class")
        if i >= self.c.n_reqs or self.c.reqs[i].refs == 0:
            raise ValueError(f"request class {req} is not known")
        return &self.c.reqs[i]

    cdef int32_t _job(self, object key) except -1:
        cdef int64_t k = _number(key, -FOREVER, FOREVER, "key")
        cdef int32_t slot = map_get(&self.c.q_by_key, k)
        if slot < 0:
            raise ValueError(f"job {key} is not in the queue")
        return slot

    cdef int32_t _alloc(self, object key) except -1:
        cdef int64_t k = _number(key, -FOREVER, FOREVER, "key")
        cdef int32_t a = map_get(&self.c.by_key, k)
        if a < 0:
            raise ValueError(f"allocation {key} is not known")
        return a

    # --- classes and nodes

    def define_class(self, links, numa):
        """The class of nodes with this link matrix (NVLinks between each two GPUs) and these NUMA
        domains; the same number for the same content. Cost: 2^GPUs up to 16 GPUs, at first."""
        cdef int n, i, j
        cdef int32_t flat[MAX_GPUS * MAX_GPUS]
        cdef int32_t domains[MAX_GPUS]
        self._enter()
        rows = tuple([tuple(row) for row in links])
        places = tuple(numa)
        if len(rows) > MAX_GPUS:
            raise ValueError(f"{len(rows)} GPUs in a node: more than {MAX_GPUS}")
        n = <int>len(rows)
        if len(places) != n:
            raise ValueError(f"{len(places)} NUMA domains for {n} GPUs")
        for i in range(n):
            if len(rows[i]) != n:
                raise ValueError(f"row {i} of the link matrix has {len(rows[i])} columns, not {n}")
            domains[i] = <int32_t>_number(places[i], -1, 1 << 30, "NUMA domain")
            for j in range(n):
                flat[i * n + j] = <int32_t>_number(rows[i][j], 0, MAX_LINKS, "link count")
        for i in range(n):
            for j in range(i):
                if flat[i * n + j] != flat[j * n + i]:
                    raise ValueError(
                        f"links {i}-{j} are {flat[i * n + j]} one way, {flat[j * n + i]} the other"
                    )
        key = (
            tuple([flat[i * n + j] for i in range(n) for j in range(n) if i != j]),
            tuple([domains[i] for i in range(n)]),
        )
        known = self._classes.get(key)
        if known is not None:
            return known
        if self.c.n_links >= MAX_CLASSES:
            raise ValueError(f"more than {MAX_CLASSES} different link matrices")
        if links_init(&self.c.links[self.c.n_links], n, flat, domains):
            links_free(&self.c.links[self.c.n_links])
            raise MemoryError
        self.c.n_links += 1
        self._classes[key] = self.c.n_links - 1
        return self.c.n_links - 1

    cdef Links* _links(self, object cls) except NULL:
        return &self.c.links[_number(cls, 0, self.c.n_links - 1, "link class")]

    def islands(self, cls):
        """Bitmaps of the GPUs joined by NVLink, in order of their first GPU."""
        cdef Links* L = self._links(cls)
        cdef int i
        return tuple([L.island[i] for i in range(L.n_islands)])

    def best_gpus(self, cls, free, count, *, one_island=False):
        """The best `count` GPUs of a free bitmap: most links inside, then most links left among the
        rest, then the smallest bitmap. 0 if there are not so many (on one island, if asked).
        Cost: a look-up up to 16 GPUs (2^free at the first time), count^2 x free above."""
        cdef Links* L = self._links(cls)
        cdef uint64_t s = _mask(free, "free GPUs")
        cdef int k = <int>_number(count, 0, MAX_GPUS, "number of GPUs")
        self._enter()
        if s & ~low_bits(L.n):
            raise ValueError(f"free GPUs {free:#x} are not all of a node of {L.n}")
        if gs_pop(s) < k:
            return 0
        return best_on_island(L, s, k) if one_island else best_gpus(L, s, k)

    cdef int _layout(self, object gpu_type_masks, int n_gpus) except -1:
        cdef uint64_t seen = 0, m
        cdef int t
        found = {}
        for kind, mask in gpu_type_masks:
            t = <int>_number(kind, 0, MAX_TYPES - 1, "GPU type")
            m = _mask(mask, "GPU bitmap")
            if m & ~low_bits(n_gpus):
                raise ValueError(f"GPU bitmap {mask:#x} has bits beyond the {n_gpus} of its class")
            if m & seen:
                raise ValueError(f"GPU bitmap {mask:#x} gives GPUs a second type")
            seen |= m
            if m:
                found[t] = found.get(t, 0) | m
        key = tuple(sorted(found.items()))
        known = self._layouts.get(key)
        if known is not None:
            return known
        t = self.c.n_layouts
        if t >= MAX_LAYOUTS:
            raise ValueError(f"more than {MAX_LAYOUTS} different ways of GPU types in a node")
        bigger = <uint64_t*>realloc(
            self.c.layouts, (<size_t>t + 1) * MAX_TYPES * sizeof(uint64_t)
        )
        if bigger == NULL:
            raise MemoryError
        self.c.layouts = bigger
        memset(bigger + <size_t>t * MAX_TYPES, 0, MAX_TYPES * sizeof(uint64_t))
        for kind, mask in key:
            bigger[<size_t>t * MAX_TYPES + <size_t>kind] = <uint64_t>mask
        self.c.mixed[t] = 1 if len(key) > 1 else 0
        self.c.n_layouts += 1
        self._layouts[key] = t
        return t

    def set_node(self, node, *, cls=0, cpus, mem_mb, gpu_type_masks=(), gpu_ok_mask=None,
                 usable=True, partitions=0, features=0, weight=1, threads=1):
        """Describe a node; what runs on it stays allocated, also beyond its new size.

        cls: its link class (0: no GPUs); gpu_type_masks: (type, bitmap) pairs; gpu_ok_mask: the
        healthy GPUs (all by default); partitions, features: bitmaps of up to 256 bits; weight:
        lower is preferred; threads: CPUs per core, allocated together. Cost: constant, but a new
        weight orders all nodes anew at the next decision.
        """
        cdef Cluster* c = &self.c
        cdef int i, layout, k, n_cpus, n_threads, changed
        cdef int64_t mem, w
        cdef uint64_t every = 0, ok, m
        cdef uint64_t parts[BIT_WORDS]
        cdef uint64_t feats[BIT_WORDS]
        self._enter()
        i = self._node(node)
        k = <int>_number(cls, 0, c.n_links - 1, "link class")
        n_cpus = <int>_number(cpus, 0, 1000000, "CPUs")
        n_threads = <int>_number(threads, 1, 1024, "threads per core")
        mem = _number(mem_mb, 0, <int64_t>1 << 50, "memory")
        w = _number(weight, 0, <int64_t>1 << 62, "weight")
        pairs = [(kind, mask) for kind, mask in gpu_type_masks]
        layout = self._layout(pairs, c.links[k].n)
        for _, mask in pairs:
            every |= <uint64_t>mask
        ok = every if gpu_ok_mask is None else _mask(gpu_ok_mask, "healthy GPUs")
        _words(partitions, parts, "partitions")
        _words(features, feats, "features")
        changed = (
            c.cls[i] != k or c.layout[i] != layout or c.cpus[i] != n_cpus or c.mem[i] != mem
            or c.threads[i] != n_threads or c.all[i] != every
        )
        for k in range(BIT_WORDS):
            changed = changed or c.parts[i * BIT_WORDS + k] != parts[k]
            changed = changed or c.feats[i * BIT_WORDS + k] != feats[k]
        index_drop(c, &c.now, i)
        c.now.cpus[i] += n_cpus - c.cpus[i]
        c.now.mem[i] += mem - c.mem[i]
        c.cls[i] = <int32_t>cls
        c.layout[i] = layout
        c.cpus[i] = n_cpus
        c.threads[i] = n_threads
        c.mem[i] = mem
        c.all[i] = every
        c.ok[i] = ok
        memcpy(c.parts + <size_t>i * BIT_WORDS, parts, sizeof(parts))
        memcpy(c.feats + <size_t>i * BIT_WORDS, feats, sizeof(feats))
        if c.weight[i] != w:
            c.weight[i] = w
            c.order_dirty = 1
        c.now.gpus[i] = every & ok & ~c.used[i]
        c.now.usable[i] = 1 if usable else 0
        if changed:
            c.version += 1
        c.avail_version += 1
        index_move(c, &c.now, i)
        self._check()

    def set_usable(self, node, usable):
        """Whether new work may go to a node (not down, drained ...). Cost: constant."""
        cdef int i
        self._enter()
        i = self._node(node)
        self.c.now.usable[i] = 1 if usable else 0
        self.c.avail_version += 1
        index_move(&self.c, &self.c.now, i)
        self._check()

    def set_gpu_ok(self, node, mask):
        """Its healthy GPUs: others get no new work, allocations stay. Cost: constant."""
        cdef int i
        cdef uint64_t ok
        self._enter()
        i = self._node(node)
        ok = _mask(mask, "healthy GPUs")
        self.c.ok[i] = ok
        self.c.now.gpus[i] = self.c.all[i] & ok & ~self.c.used[i]
        self.c.avail_version += 1
        index_move(&self.c, &self.c.now, i)
        self._check()

    def node(self, node):
        """What a node has left, as NodeState."""
        cdef int i
        self._enter()
        i = self._node(node)
        return NodeState(
            self.c.now.cpus[i], self.c.now.mem[i], self.c.now.gpus[i], self.c.used[i],
            self.c.now.jobs[i], bool(self.c.now.usable[i]),
        )

    # --- requests

    cdef int _filter(self, int partition, tuple alternatives, tuple exclude) except -1:
        """The filter with this content, one reference more."""
        cdef Filter* f
        cdef int i, k
        key = (partition, alternatives, exclude)
        known = self._filters.get(key)
        if known is not None:
            i = known
            self.c.filters[i].refs += 1
            return i
        if self._free_filters:
            i = self._free_filters[-1]
        else:
            i = self.c.n_filters
            if grow(<void**>&self.c.filters, &self.c.filters_cap, i + 1, sizeof(Filter)):
                raise MemoryError
        f = &self.c.filters[i]
        memset(f, 0, sizeof(Filter))
        f.partition = partition
        f.n_alts = <int>len(alternatives)
        f.n_exclude = <int>len(exclude)
        f.alts = <uint64_t*>calloc(<size_t>f.n_alts * BIT_WORDS + 1, sizeof(uint64_t))
        f.exclude = <int32_t*>calloc(<size_t>f.n_exclude + 1, sizeof(int32_t))
        f.bits = <uint64_t*>calloc(<size_t>self.c.words, sizeof(uint64_t))
        if f.alts == NULL or f.exclude == NULL or f.bits == NULL:
            free(f.alts)
            free(f.exclude)
            free(f.bits)
            memset(f, 0, sizeof(Filter))
            raise MemoryError
        for k in range(f.n_alts):
            _words(alternatives[k], f.alts + k * BIT_WORDS, "features")
        for k in range(f.n_exclude):
            f.exclude[k] = exclude[k]
        f.refs = 1
        if self._free_filters:
            self._free_filters.pop()
        else:
            self.c.n_filters += 1
            self._filter_keys.append(None)
        self._filters[key] = i
        self._filter_keys[i] = key
        return i

    cdef void _drop_filter(self, int i):
        cdef Filter* f = &self.c.filters[i]
        f.refs -= 1
        if f.refs:
            return
        free(f.alts)
        free(f.exclude)
        free(f.bits)
        memset(f, 0, sizeof(Filter))
        del self._filters[self._filter_keys[i]]
        self._filter_keys[i] = None
        self._free_filters.append(i)

    def request(self, *, partition=-1, features_all=0, features_any=(), min_nodes=1, max_nodes=0,
                ntasks=0, cpus_per_task=1, min_cpus_node=0, ntasks_per_node=0,
                mem_per_node_mb=-1, mem_per_cpu_mb=0, mem_per_gpu_mb=0, gpus_per_node=0,
                gpus_per_task=0, gpus_total=0, cpus_per_gpu=0, gpu_type=-1, exclusive=False,
                overcommit=False, one_island=False, threads_per_core=0, nodelist=(), exclude=()):
        """The number of the request class with this content, one reference more.

        See _core.pyi for each field. Cost: constant, and a bitmap of nodes for each different
        (partition, features, exclude).
        """
        cdef Req r
        cdef int i, k, partition_bit
        cdef uint64_t words[BIT_WORDS]
        self._enter()
        memset(&r, 0, sizeof(Req))
        partition_bit = <int>_number(partition, -1, MAX_BITS - 1, "partition")
        _words(features_all, words, "features")
        options = []
        for mask in features_any:
            _words(mask, words, "features")
            options.append(mask | features_all)
        if not options and features_all:
            options.append(features_all)
        alternatives = tuple(sorted(set(options)))
        inside = tuple(sorted({self._node(n) for n in nodelist}))
        outside = tuple(sorted({self._node(n) for n in exclude}))
        r.min_nodes = <int>_number(min_nodes, 1, MAX_COUNT, "min_nodes")
        r.max_nodes = <int>_number(max_nodes, 0, MAX_COUNT, "max_nodes")
        r.ntasks = <int>_number(ntasks, 0, MAX_COUNT, "ntasks")
        r.cpt = <int>_number(cpus_per_task, 1, MAX_COUNT, "cpus_per_task")
        r.mincpus = <int>_number(min_cpus_node, 0, MAX_COUNT, "min_cpus_node")
        if r.mincpus < 1:
            r.mincpus = 1
        r.tpn = <int>_number(ntasks_per_node, 0, MAX_COUNT, "ntasks_per_node")
        r.mem_node = _number(mem_per_node_mb, -1, <int64_t>1 << 50, "mem_per_node_mb")
        r.mem_cpu = _number(mem_per_cpu_mb, 0, <int64_t>1 << 30, "mem_per_cpu_mb")
        r.mem_gpu = _number(mem_per_gpu_mb, 0, <int64_t>1 << 50, "mem_per_gpu_mb")
        r.gpn = <int>_number(gpus_per_node, 0, MAX_COUNT, "gpus_per_node")
        r.gpt = <int>_number(gpus_per_task, 0, MAX_COUNT, "gpus_per_task")
        r.gtotal = <int>_number(gpus_total, 0, MAX_COUNT, "gpus_total")
        r.cpg = <int>_number(cpus_per_gpu, 0, MAX_COUNT, "cpus_per_gpu")
        r.gtype = <int>_number(gpu_type, -1, MAX_TYPES - 1, "gpu_type")
        r.tpc = <int>_number(threads_per_core, 0, 1024, "threads_per_core")
        r.excl = 1 if exclusive else 0
        r.overcommit = 1 if overcommit else 0
        r.island = 1 if one_island else 0
        r.gpu = 1 if r.gpn or r.gpt or r.gtotal else 0
        r.tmin = 1 if r.ntasks or not r.tpn else r.tpn
        if r.max_nodes and r.max_nodes < r.min_nodes:
            raise ValueError(f"max_nodes {max_nodes} is below min_nodes {min_nodes}")
        if r.max_nodes and len(inside) > r.max_nodes:
            raise ValueError(f"{len(inside)} nodes to include, but max_nodes is {max_nodes}")
        if set(inside) & set(outside):
            raise ValueError(f"node {min(set(inside) & set(outside))} is included and excluded")
        if (r.mem_node >= 0) + (r.mem_cpu > 0) + (r.mem_gpu > 0) > 1:
            raise ValueError("memory is asked per node, CPU or GPU: only one of them")
        if r.gtotal and (r.gpn or r.gpt):
            raise ValueError(
                f"gpus_total {gpus_total} with gpus_per_node or gpus_per_task: "
                "say the number of nodes or tasks instead"
            )
        if r.gtotal and r.gtotal < r.min_nodes:
            raise ValueError(f"gpus_total {gpus_total} is below min_nodes {min_nodes}")
        if (r.mem_gpu or r.cpg) and not r.gpu:
            raise ValueError("memory or CPUs per GPU are asked without GPUs")
        r.n_must = <int>len(inside)
        key = (
            partition_bit, alternatives, outside, inside, r.min_nodes, r.max_nodes, r.ntasks, r.cpt,
            r.mincpus, r.tpn, r.mem_node, r.mem_cpu, r.mem_gpu, r.gpn, r.gpt, r.gtotal, r.cpg,
            r.gtype, r.tpc, r.excl, r.overcommit, r.island,
        )
        known = self._requests.get(key)
        if known is not None:
            i = known
            self.c.reqs[i].refs += 1
            return i
        if self._free_requests:
            i = self._free_requests[-1]
        else:
            i = self.c.n_reqs
            if grow(<void**>&self.c.reqs, &self.c.reqs_cap, i + 1, sizeof(Req)):
                raise MemoryError
        r.must = <int32_t*>calloc(<size_t>r.n_must + 1, sizeof(int32_t))
        if r.must == NULL:
            raise MemoryError
        for k in range(r.n_must):
            r.must[k] = inside[k]
        try:
            r.filter = self._filter(partition_bit, alternatives, outside)
        except BaseException:
            free(r.must)
            raise
        r.refs = 1
        self.c.reqs[i] = r
        if self._free_requests:
            self._free_requests.pop()
        else:
            self.c.n_reqs += 1
            self._request_keys.append(None)
        self._requests[key] = i
        self._request_keys[i] = key
        return i

    def drop_request(self, req):
        """Give back one reference taken by request(); with the last one the class is forgotten.
        ValueError while that would leave a queued job without its class."""
        cdef Req* r
        cdef int i
        self._enter()
        r = self._req(req)
        i = <int>req
        if r.refs == 1 and r.queued:
            raise ValueError(f"request class {req} is used by {r.queued} queued jobs")
        r.refs -= 1
        if r.refs:
            return
        free(r.must)
        self._drop_filter(r.filter)
        memset(r, 0, sizeof(Req))
        del self._requests[self._request_keys[i]]
        self._request_keys[i] = None
        self._free_requests.append(i)

    # --- allocations

    def allocate(self, key, nodes, end=0, *, adopt=False):
        """Record that `key` holds (node, cpus, mem_mb, gpu_mask[, tasks]) until `end` (0: no limit).

        ValueError if it is known already, a node comes twice, a GPU does not exist or is held, or
        CPUs or memory are not free; with adopt=True CPUs and memory may go beyond the node's size
        (work found running on a node that has shrunk). Cost: its nodes.
        """
        cdef Cluster* c = &self.c
        cdef int64_t k, until
        cdef int i, n = 0
        cdef Share* sh
        self._enter()
        k = _number(key, -FOREVER, FOREVER, "key")
        if map_get(&c.by_key, k) >= 0:
            raise ValueError(f"allocation {key} exists")
        until = _number(end, 0, FOREVER, "end") or FOREVER
        rows = [tuple(row) for row in nodes]
        if not rows or len(rows) > c.n:
            raise ValueError(f"an allocation on {len(rows)} nodes")
        try:
            for row in rows:
                if len(row) not in (4, 5):
                    raise ValueError(f"{row!r} is not (node, cpus, mem_mb, gpu_mask[, tasks])")
                i = self._node(row[0])
                sh = &c.out[n]
                sh.node = i
                sh.cpus = <int32_t>_number(row[1], 0, MAX_COUNT, "CPUs")
                sh.mem = _number(row[2], 0, <int64_t>1 << 50, "memory")
                sh.mask = _mask(row[3], "GPU bitmap")
                sh.tasks = <int32_t>_number(row[4], 0, MAX_COUNT, "tasks") if len(row) == 5 else 0
                sh.gpus = gs_pop(sh.mask)
                if c.mark[i]:
                    raise ValueError(f"node {i} comes twice")
                if sh.mask & c.used[i]:
                    raise ValueError(
                        f"GPUs {sh.mask & c.used[i]:#x} of node {i} are held by another job"
                    )
                if not adopt:
                    if sh.mask & ~c.all[i]:
                        raise ValueError(f"node {i} has no GPUs {sh.mask & ~c.all[i]:#x}")
                    if sh.cpus > c.now.cpus[i]:
                        raise ValueError(
                            f"{sh.cpus} CPUs of node {i}: only {c.now.cpus[i]} are free"
                        )
                    if sh.mem > c.now.mem[i]:
                        raise ValueError(f"{sh.mem} MB of node {i}: only {c.now.mem[i]} are free")
                c.mark[i] = 1
                n += 1
        finally:
            for i in range(n):
                c.mark[c.out[i].node] = 0
        if take(c, k, c.out, n, until):
            raise MemoryError
        self._check()

    def release(self, key):
        """Free all that `key` holds. Cost: its nodes."""
        self._enter()
        release_all(&self.c, self._alloc(key))
        self._check()

    def release_node(self, key, node):
        """Free what `key` holds on one node; with the last node the allocation is gone."""
        cdef int32_t a
        self._enter()
        a = self._alloc(key)
        if not release_one(&self.c, a, self._node(node)):
            raise ValueError(f"allocation {key} has nothing on node {node}")
        self._check()

    def set_end(self, key, end):
        """When it is expected to end (seconds, 0: no limit)."""
        cdef int64_t until
        self._enter()
        until = _number(end, 0, FOREVER, "end") or FOREVER
        self.c.allocs[self._alloc(key)].end = until

    def allocation(self, key):
        """(node, cpus, tasks, mem_mb, gpu_mask) of each node it still holds; () if unknown."""
        cdef int32_t a, p
        self._enter()
        a = map_get(&self.c.by_key, _number(key, -FOREVER, FOREVER, "key"))
        if a < 0:
            return ()
        rows = []
        p = self.c.allocs[a].first
        while p >= 0:
            rows.append(_shares(&self.c.pieces[p].share, 1)[0])
            p = self.c.pieces[p].next
        return tuple(rows)

    # --- decisions

    cdef object _refusal(self, Req* r, int64_t end, int never):
        cdef int64_t why[WHYS]
        cdef int suited, k
        suited = explain(&self.c, r, end, why)
        return Refusal(
            bool(never),
            max(r.min_nodes, r.n_must),
            suited,
            tuple([Reason(_WHY[k][0], _WHY[k][1], why[k]) for k in range(WHYS) if why[k]]),
        )

    def can_ever(self, req):
        """None if the cluster as configured, empty and with every node and GPU up, can hold it;
        else the Refusal. Cost: nodes, once per change of the configuration."""
        cdef Req* r
        cdef int ok
        self._ready()
        r = self._req(req)
        ok = ever(&self.c, r)
        self._check()
        return None if ok else self._refusal(r, 0, 1)

    def possible(self, req):
        """Whether it would fit if no job ran: False means that nodes or GPUs out of use are what
        is missing. Cost: nodes, once per change."""
        cdef Req* r
        cdef int ok
        self._ready()
        r = self._req(req)
        ok = possible(&self.c, r)
        self._check()
        return bool(ok)

    def place(self, req, now=0, limit_s=-1):
        """A Placement for now, or the Refusal with its counted reasons; nothing is allocated.

        limit_s -1: only what is free counts; else (0: no limit) the reservations of the last pass
        are respected too. Cost: candidates; a refusal costs nodes, and the first one of a class
        after a change of the configuration sorts them.
        """
        cdef Req* r
        cdef int64_t start, limit, end = 0
        cdef int ok
        self._ready()
        r = self._req(req)
        start = _number(now, 0, <int64_t>1 << 60, "now")
        limit = _number(limit_s, -1, <int64_t>1 << 60, "limit_s")
        if limit == 0:
            end = FOREVER
        elif limit > 0:
            end = start + limit
        ok = place(&self.c, &self.c.now, r, end)
        self._check()
        if ok:
            return Placement(_shares(self.c.out, self.c.n_out))
        ok = ever(&self.c, r)
        self._check()
        return self._refusal(r, end, not ok)

    def time_place(self, req, repeat):
        """Nanoseconds per placement inside the core, over `repeat` of them: for the benchmarks."""
        cdef Req* r
        cdef int64_t n, k
        self._ready()
        r = self._req(req)
        n = _number(repeat, 1, MAX_COUNT, "repeat")
        from time import perf_counter_ns
        began = perf_counter_ns()
        with nogil:
            for k in range(n):
                place(&self.c, &self.c.now, r, 0)
        return (perf_counter_ns() - began) / n

    # --- the queue

    def queue_add(self, key, req, priority, order, limit_s=0, ready_at=0, *, held=0, group=-1):
        """A waiting job. Higher priority first, then lower order, then lower key. limit_s 0: no
        limit; ready_at: not before; held (1..255): not at all; group: see set_group(). Cost:
        constant here, its place in the order is found by the next pass."""
        cdef Cluster* c = &self.c
        cdef Req* r
        cdef int64_t k, p, o, limit, ready
        cdef int h, g
        cdef int32_t slot
        self._enter()
        k = _number(key, -FOREVER, FOREVER, "key")
        r = self._req(req)
        p = _number(priority, -FOREVER, FOREVER, "priority")
        o = _number(order, -FOREVER, FOREVER, "order")
        limit = _number(limit_s, 0, <int64_t>1 << 60, "limit_s")
        ready = _number(ready_at, 0, FOREVER, "ready_at")
        h = <int>_number(held, 0, 255, "held")
        g = <int>_number(group, -1, c.n_groups - 1, "group")
        if map_get(&c.q_by_key, k) >= 0:
            raise ValueError(f"job {key} is in the queue")
        if map_get(&c.by_key, k) >= 0:
            raise ValueError(f"job {key} holds an allocation")
        if queue_room(c):
            raise MemoryError
        slot = queue_place(c)
        c.q_key[slot] = k
        c.q_req[slot] = <int32_t>req
        c.q_priority[slot] = p
        c.q_order[slot] = o
        c.q_limit[slot] = limit
        c.q_ready[slot] = ready
        c.q_held[slot] = <uint8_t>h
        c.q_group[slot] = g
        c.q_verdict[slot] = V_UNTESTED
        c.q_live[slot] = 1
        r.queued += 1
        map_put(&c.q_by_key, k, slot)
        queue_fresh(c, slot)

    def queue_remove(self, key):
        """A job leaves the queue without a start."""
        self._enter()
        queue_drop(&self.c, self._job(key))

    def queue_update(self, key, *, req=None, priority=None, order=None, limit_s=None,
                     ready_at=None, held=None, group=None):
        """Change what is given of a waiting job. Cost: constant."""
        cdef Cluster* c = &self.c
        cdef int32_t slot
        cdef int64_t p, o, limit, ready
        cdef int h, g
        self._enter()
        slot = self._job(key)
        p = c.q_priority[slot] if priority is None else _number(
            priority, -FOREVER, FOREVER, "priority")
        o = c.q_order[slot] if order is None else _number(order, -FOREVER, FOREVER, "order")
        limit = c.q_limit[slot] if limit_s is None else _number(
            limit_s, 0, <int64_t>1 << 60, "limit_s")
        ready = c.q_ready[slot] if ready_at is None else _number(ready_at, 0, FOREVER, "ready_at")
        h = c.q_held[slot] if held is None else <int>_number(held, 0, 255, "held")
        g = c.q_group[slot] if group is None else <int>_number(group, -1, c.n_groups - 1, "group")
        if req is not None:
            self._req(req).queued += 1
            c.reqs[c.q_req[slot]].queued -= 1
            c.q_req[slot] = <int32_t>req
        if p != c.q_priority[slot] or o != c.q_order[slot]:
            c.q_priority[slot] = p
            c.q_order[slot] = o
            queue_fresh(c, slot)
        c.q_limit[slot] = limit
        c.q_ready[slot] = ready
        c.q_held[slot] = <uint8_t>h
        c.q_group[slot] = g

    def queue_priorities(self, keys, priorities):
        """New priorities of many jobs: two arrays of int64 ('q') of the same length. Keys that are
        not in the queue are passed over. The number of jobs changed. Cost: keys."""
        cdef const int64_t[::1] k = keys
        cdef const int64_t[::1] p = priorities
        cdef Py_ssize_t i
        cdef int32_t slot
        cdef int64_t n = 0
        self._enter()
        if k.shape[0] != p.shape[0]:
            raise ValueError(f"{k.shape[0]} keys, {p.shape[0]} priorities")
        with nogil:
            for i in range(k.shape[0]):
                slot = map_get(&self.c.q_by_key, k[i])
                if slot < 0 or self.c.q_priority[slot] == p[i]:
                    continue
                self.c.q_priority[slot] = p[i]
                queue_fresh(&self.c, slot)
                n += 1
        return n

    def set_group(self, group, left):
        """Jobs of this group that may still start (an array's throttle, a limit); each start of a
        pass takes one. Groups are numbered from 0 without gaps. Cost: constant."""
        cdef int64_t g, n
        self._enter()
        g = _number(group, 0, self.c.n_groups, "group")
        n = _number(left, -FOREVER, FOREVER, "left")
        if grow(<void**>&self.c.group_left, &self.c.groups_cap, g + 1, sizeof(int64_t)):
            raise MemoryError
        if g == self.c.n_groups:
            self.c.n_groups += 1
        self.c.group_left[g] = n

    def __len__(self):
        # Jobs in the queue.
        return <Py_ssize_t>self.c.q_by_key.used

    def verdict(self, key):
        """The verdict of the last pass on a waiting job."""
        self._enter()
        return self.c.q_verdict[self._job(key)]

    def verdicts(self):
        """Keys and verdicts of all waiting jobs in order, as bytes: int64 and uint8 arrays (order
        as of the last pass; later changes are not in it). Cost: jobs."""
        cdef Cluster* c = &self.c
        cdef int64_t* keys
        cdef uint8_t* codes
        cdef int64_t n = 0, i
        cdef int32_t slot
        self._enter()
        keys = <int64_t*>malloc(<size_t>c.n_sorted * 9 + 1)
        if keys == NULL:
            raise MemoryError
        codes = <uint8_t*>(keys + c.n_sorted)
        for i in range(c.n_sorted):
            slot = c.sorted[i].slot
            if c.q_live[slot] and c.q_key[slot] == c.sorted[i].key:
                keys[n] = c.sorted[i].key
                codes[n] = c.q_verdict[slot]
                n += 1
        try:
            return (<char*>keys)[:n * 8], (<char*>codes)[:n]
        finally:
            free(keys)

    def schedule(self, now, max_starts=0, max_test=0):
        """One pass over the queue in order: start what fits, reserve for the first blocked job of
        each partition (EASY), judge the rest.

        Started jobs are allocated here under their key until now + limit, and leave the queue.
        max_starts, max_test: 0 means no bound. The GIL is not held; other calls on this core raise
        RuntimeError meanwhile. Cost: jobs (some ns each) + one placement per request class (and
        duration, where a reservation is the cause) + per reservation log(ends) x (nodes + shares).
        """
        cdef Cluster* c = &self.c
        cdef int64_t t, starts, tests
        cdef int got, k, n
        cdef int32_t a, p
        self._ready()
        t = _number(now, 0, <int64_t>1 << 60, "now")
        starts = _number(max_starts, 0, MAX_COUNT, "max_starts")
        tests = _number(max_test, 0, MAX_COUNT, "max_test")
        self._busy = True
        try:
            with nogil:
                got = run_pass(c, t, starts, tests)
        finally:
            self._busy = False
        if got < 0:
            raise MemoryError
        self._check()
        began = []
        for k in range(c.n_started):
            began.append(
                Start(c.started[k], Placement(self.allocation(c.started[k])))
            )
        return Plan(
            began,
            self.reservations(),
            [(c.q_key[c.changed[k]], c.q_verdict[c.changed[k]]) for k in range(c.n_changed)],
            c.tested,
            c.placed,
            got == 1,
        )

    def reservations(self):
        """The reservations of the last pass."""
        cdef Cluster* c = &self.c
        cdef int k
        self._enter()
        return [
            Reservation(
                c.heads[k].key, c.heads[k].at, c.heads[k].until,
                Placement(_shares(c.planned + c.heads[k].first, c.heads[k].n)),
            )
            for k in range(c.n_heads)
        ]

    def check(self):
        """Recount everything from the allocations; AssertionError with the first difference. For
        the tests. Cost: nodes + allocations."""
        cdef Cluster* c = &self.c
        cdef int i, b, r
        cdef int32_t a, p
        self._ready()
        cpus = [c.cpus[i] for i in range(c.n)]
        mem = [c.mem[i] for i in range(c.n)]
        used = [0] * c.n
        jobs = [0] * c.n
        live = 0
        for a in range(c.allocs_used):
            if not c.allocs[a].live:
                continue
            assert map_get(&c.by_key, c.allocs[a].key) == a, f"key {c.allocs[a].key} is lost"
            p = c.allocs[a].first
            while p >= 0:
                assert c.pieces[p].owner == a, f"share {p} is not of allocation {a}"
                i = c.pieces[p].share.node
                cpus[i] -= c.pieces[p].share.cpus
                mem[i] -= c.pieces[p].share.mem
                assert not used[i] & c.pieces[p].share.mask, f"a GPU of node {i} is held twice"
                used[i] |= c.pieces[p].share.mask
                jobs[i] += 1
                live += 1
                p = c.pieces[p].next
        assert live == c.pieces_live, f"{live} shares, {c.pieces_live} counted"
        for i in range(c.n):
            assert cpus[i] == c.now.cpus[i], f"node {i} has {cpus[i]} CPUs, not {c.now.cpus[i]}"
            assert mem[i] == c.now.mem[i], f"node {i} has {mem[i]} MB, not {c.now.mem[i]}"
            assert used[i] == c.used[i], f"node {i} has GPUs {used[i]:#x} used, not {c.used[i]:#x}"
            assert jobs[i] == c.now.jobs[i], f"node {i} has {jobs[i]} jobs, not {c.now.jobs[i]}"
            free_gpus = c.all[i] & c.ok[i] & ~c.used[i]
            assert free_gpus == c.now.gpus[i], f"node {i} has {free_gpus:#x} free"
            assert (c.now.nfree[i] != 255) == bool(c.now.usable[i]), f"node {i} is misfiled"
            if c.now.nfree[i] != 255:
                r = c.rank[i]
                b = c.now.nfree[i] * GRID + c.now.nisland[i]
                assert c.now.nfree[i] == gs_pop(c.now.gpus[i]), f"node {i} is in a wrong bucket"
                assert c.now.bucket[b][r >> 6] >> (r & 63) & 1, f"node {i} is not in its bucket"
