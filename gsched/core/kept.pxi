# CPUs that a request may not have although they are free: beyond what a partition may use of a node
# (caps), and what a node keeps for its idle GPUs from requests without GPUs (keep).
#
# A cap is a counted resource of the node of which a share takes as many as it takes CPUs. What is
# kept is so many CPUs and MB for each GPU that is wholly free, so it comes and goes with them. A
# request that would not even fit on the empty cluster beside all of that leaves a half, a quarter or
# an eighth, as much as it can, or nothing. In an advance reservation, which says itself what is for
# whom, nothing is left either.


cdef inline int64_t caps_left(Req* r, int32_t* row) noexcept nogil:
    """CPUs that the caps of r leave, of so many counted resources."""
    cdef uint32_t rest = r.caps
    cdef int64_t n = MAX_COUNT
    while rest:
        n = lmin(n, row[gs_ctz(rest)])
        rest &= rest - 1
    return n


cdef inline void caps_take(Req* r, Share* o) noexcept nogil:
    """A share counts against the caps of r."""
    cdef uint32_t rest = r.caps
    while rest:
        o.extra[gs_ctz(rest)] = o.cpus
        rest &= rest - 1


cdef inline void keep_less(Cluster* c, Req* r, int i, int n_gpus, int64_t* cpus,
                           int64_t* mem) noexcept nogil:
    """What is left to r beside what is kept for so many idle GPUs."""
    if r.keeps and c.keep_cpus != NULL:
        cpus[0] -= <int64_t>(c.keep_cpus[i] >> (r.keeps - 1)) * n_gpus
        mem[0] -= (c.keep_mem[i] >> (r.keeps - 1)) * n_gpus


cdef int64_t odd_cpus(Cluster* c, State* s, Req* r, int i, int64_t* mem) noexcept nogil:
    """CPUs of node i that r may have in s, and memory."""
    cdef int64_t cpus = s.cpus[i]
    if s.told:
        return cpus
    if r.lot:
        cpus += lot_joins(c, s, r, i)
    keep_less(c, r, i, gs_pop(s.gpus[i]), &cpus, mem)
    if r.caps:
        cpus = lmin(cpus, caps_left(r, extra_row(s.extra, i)))
    return cpus
