# Shares of GPUs: thousandths of one GPU, beside whole ones.


cdef inline void share_take(Cluster* c, State* s, int i, uint64_t gpu, int milli) noexcept nogil:
    """Take a share of one GPU; it is no longer a wholly free one."""
    s.took[<size_t>i * MAX_GPUS + gs_ctz(gpu)] += <uint16_t>milli
    s.frac[i] |= gpu
    s.gpus[i] &= ~gpu


cdef inline int share_give(State* s, int i, uint64_t gpu, int milli) noexcept nogil:
    """Give a share back. 1 when it was the last one of its GPU."""
    cdef uint16_t* took = &s.took[<size_t>i * MAX_GPUS + gs_ctz(gpu)]
    took[0] -= <uint16_t>milli
    if took[0]:
        return 0
    s.frac[i] &= ~gpu
    return 1


cdef inline uint64_t share_room(Cluster* c, State* s, int i, int milli) noexcept nogil:
    """GPUs in parts, healthy, that have so much left."""
    cdef uint64_t rest = s.frac[i] & c.all[i] & c.ok[i], room = 0
    cdef uint16_t* took = s.took + <size_t>i * MAX_GPUS
    while rest:
        if took[gs_ctz(rest)] + milli <= WHOLE:
            room |= gs_low(rest)
        rest &= rest - 1
    return room


cdef void close_tightest(Cluster* c, State* s, int i, int n) noexcept nogil:
    """Nothing more goes to n GPUs, those with the least room (but some) first: what is left for
    others then only grows as jobs end."""
    cdef uint16_t* took = s.took + <size_t>i * MAX_GPUS
    cdef uint64_t rest
    cdef int g, best
    while n > 0:
        best = -1
        rest = s.gpus[i] | s.frac[i] & c.all[i] & c.ok[i]
        while rest:
            g = gs_ctz(rest)
            rest &= rest - 1
            if took[g] < WHOLE and (best < 0 or took[g] > took[best]):
                best = g
        if best < 0:
            return
        s.gpus[i] &= ~((<uint64_t>1) << best)
        s.frac[i] |= (<uint64_t>1) << best
        took[best] = WHOLE
        n -= 1


cdef int idle_of(Cluster* c, State* s, int i, int32_t* idle) noexcept nogil:
    """What each GPU of a node has left, in thousandths; the sum. idle has MAX_GPUS places; those
    beyond the node's GPUs are not touched."""
    cdef uint64_t rest = s.frac[i] & c.all[i] & c.ok[i]
    cdef int g, total = 0
    for g in range(c.links[c.cls[i]].n):
        idle[g] = WHOLE if s.gpus[i] >> g & 1 else 0
        total += idle[g]
    while rest:
        g = gs_ctz(rest)
        rest &= rest - 1
        idle[g] = WHOLE - s.took[<size_t>i * MAX_GPUS + g]
        if idle[g] < 0:
            idle[g] = 0
        total += idle[g]
    return total
