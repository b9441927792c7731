# cython: language_level=3, boundscheck=False, cdivision=True
# cython: initializedcheck=False, embedsignature=False
"""The matching core: a cluster as flat C arrays, placements, reservations, the queue as columns.

One `Core` is one cluster. It knows numbers only: nodes 0..n-1, GPUs as bits, partitions and
features as bits, jobs by a 64-bit key. `gsched.cluster` binds them to names; `gsched._reference`
gives the same answers slowly.
"""

include "core/base.pxi"
include "core/links.pxi"
include "core/work.pxi"
include "core/rare_types.pxi"
include "core/topology_types.pxi"
include "core/types.pxi"
include "core/topology_index.pxi"
include "core/state.pxi"
include "core/share.pxi"
include "core/extra.pxi"
include "core/lots.pxi"
include "core/kept.pxi"
include "core/place.pxi"
include "core/rare.pxi"
include "core/near.pxi"
include "core/policy.pxi"
include "core/topology.pxi"
include "core/contiguous.pxi"
include "core/alloc.pxi"
include "core/backfill.pxi"
include "core/book.pxi"
include "core/lines.pxi"
include "core/firsts.pxi"
include "core/plan.pxi"
include "core/windows.pxi"
include "core/limits.pxi"
include "core/queue.pxi"
include "core/priority.pxi"
include "core/quick.pxi"
include "core/copy.pxi"
include "core/explain.pxi"
include "core/survey.pxi"
include "core/preempt.pxi"

from collections import namedtuple
from math import ceil as _ceil, gcd as _gcd, log as _log
from operator import index as _index

Placement = namedtuple("Placement", ["nodes", "gpu_milli"], defaults=[0])
Placement.__doc__ = """Where a request goes: (node, cpus, tasks, mem_mb, gpu_mask) by node number;
gpu_milli > 0: so many thousandths of the one GPU in each mask."""
Reason = namedtuple("Reason", ["what", "never", "nodes"])
Reason.__doc__ = "So many nodes lack this; `never`: as they are configured, not only now."
Refusal = namedtuple("Refusal", ["never", "needed", "suited", "reasons"])
Refusal.__doc__ = """Why a request has no place: nodes needed at least, nodes that lack nothing,
and the counted reasons; `never`: the configured cluster cannot hold it."""
Survey = namedtuple("Survey", ["need", "lacks", "gpus"])
Survey.__doc__ = """What each node lacks: bits of a uint32 per node, by the names in LACKS; GPUs to
choose from, a byte per node; need: (tasks, CPUs, GPUs) of the smallest part."""
Start = namedtuple("Start", ["key", "placement"])
Start.__doc__ = "A job that the pass started; its allocation under the same key is made."
Reservation = namedtuple("Reservation", ["key", "at", "until", "placement"])
Reservation.__doc__ = "A blocked job and what is kept for it, in absolute seconds."
Plan = namedtuple(
    "Plan",
    ["starts", "reservations", "changed", "tested", "placed", "more", "alike"],
    defaults=[{}],
)
Plan.__doc__ = """What a pass decided: starts in order; reservations; (key, verdict) of jobs whose
verdict changed, started ones among them; jobs tested; placements computed; `more`: max_starts
ended it; `alike`: with grouped, verdict -> (keys, orders)."""
NodeState = namedtuple(
    "NodeState", ["free_cpus", "free_mem_mb", "free_gpus", "used_gpus", "jobs", "usable", "free_milli"]
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
RESERVATION = V_RESERVATION
WINDOW = V_WINDOW
LIMIT = V_LIMIT

#: what an item of a chain counts
COUNTED = {
    "fixed": L_FIXED, "cpus": L_CPUS, "mem": L_MEM, "nodes": L_NODES, "gpus": L_GPUS,
    "bill": L_BILL, "hosts": L_HOSTS, "cpus_each": L_CPUS | L_EACH, "mem_each": L_MEM | L_EACH,
    "gpus_each": L_GPUS | L_EACH,
}

#: what a plan does with the reservations of the last one
DRAW_FORWARD = FORWARD
HOLD_STILL = HOLD
STAND = QUICK

#: node policies of a request class
PACK = P_PACK
FIRST_FIT = P_FIRST
BEST_FIT = P_BEST
BIN_PACK = P_BIN
LEAST_LOADED = P_LLN
FGD = P_FGD
DENSE_FIT = P_DENSE

_WHY = (
    ("partition", True), ("features", True), ("excluded", True), ("layout", True), ("cpus", True),
    ("memory", True), ("gpu_type", True), ("gpus", True), ("island", True), ("near", True),
    ("gres", True), ("cap", True), ("state", False), ("busy", False), ("cpus", False), ("memory", False),
    ("gpus", False), ("island", False), ("near", False), ("gres", False), ("cap", False),
    ("kept", False),
    ("reserved", False), ("reservation", False),
)
#: what the nodes that suit one by one do not do together
_TOGETHER = {T_CONTIGUOUS: "contiguous", T_SWITCH: "switch", T_BLOCK: "block"}

#: names of the bits in Survey.lacks: (what, never)
LACKS = _WHY

# What a named tuple's own constructor does, without a call of Python code.
_tuple = tuple.__new__

cdef extern from "Python.h":
    int PyLong_CheckExact(object value)
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

_TOP_BIT = _index(1) << _index(MAX_BITS)


cdef int64_t _number(object value, int64_t low, int64_t high, str what) except? -1:
    """An int within [low, high], else ValueError with the value."""
    cdef int64_t exact
    cdef int overflow = 0
    if PyLong_CheckExact(value):
        exact = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow and low <= exact <= high:
            return exact
    try:
        number = _index(value)
    except TypeError:
        raise ValueError(f"{what} must be an integer, not {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{what} {value} is not in {low}..{high}")
    return number


cdef uint64_t _mask(object value, str what) except? 0:
    cdef int64_t exact
    cdef int overflow = 0
    if PyLong_CheckExact(value):
        exact = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow and exact >= 0:
            return <uint64_t>exact
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


cdef class _Cluster:
    """The arrays, and how arguments find their way into them; Core's methods are in api_*.pxi."""

    cdef Cluster c
    cdef dict _classes
    cdef dict _layouts
    cdef dict _maps
    cdef dict _kinds
    cdef dict _filters
    cdef dict _requests
    cdef list _request_keys
    cdef list _filter_keys
    cdef list _free_requests
    cdef list _free_filters
    cdef bint _busy
    cdef readonly int64_t last_hunt

    def __cinit__(self, n_nodes):
        cdef int64_t n = _number(n_nodes, 1, MAX_NODES, "number of nodes")
        memset(&self.c, 0, sizeof(Cluster))
        if cluster_init(&self.c, <int>n):
            raise MemoryError
        self._classes = {((), ()): 0}
        self._layouts = {(): 0}
        self._maps = {}
        self._kinds = {}
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


include "core/api_nodes.pxi"
include "core/api_rare.pxi"
include "core/api_topology.pxi"
include "core/api_requests.pxi"
include "core/api_windows.pxi"
include "core/api_allocations.pxi"
include "core/api_decisions.pxi"
include "core/api_survey.pxi"
include "core/api_preempt.pxi"
include "core/api_plan.pxi"
include "core/api_limits.pxi"
include "core/api_queue.pxi"
