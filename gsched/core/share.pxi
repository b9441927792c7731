# Shares of GPUs: parts of one GPU, beside whole ones. A GPU has thousandths (kind 0) unless its node
# says how many parts of which kind it has: exact counts, so that three thirds fill it.

cdef enum:
    KIND_AT = 14
    KINDS = 4
    MAX_PARTS = (1 << KIND_AT) - 1
    CLOSED = 0x8000        # `took` of a GPU that nothing more goes to


cdef inline int parts_of(Cluster* c, int i, int g) noexcept nogil:
    """How many parts a GPU has."""
    if c.pieces_of == NULL:
        return WHOLE
    return c.pieces_of[<size_t>i * MAX_GPUS + g] & MAX_PARTS


cdef inline int kind_of(Cluster* c, int i, int g) noexcept nogil:
    return 0 if c.pieces_of == NULL else c.pieces_of[<size_t>i * MAX_GPUS + g] >> KIND_AT


cdef uint64_t divisible(Cluster* c, Req* r, int i, uint64_t mask) noexcept nogil:
    """Those of the mask that have such parts, and as many of them as r wants."""
    cdef uint64_t out = 0
    cdef int g
    if c.pieces_of == NULL:
        return mask if r.kind == 0 else 0
    while mask:
        g = gs_ctz(mask)
        if kind_of(c, i, g) == r.kind and r.milli <= parts_of(c, i, g):
            out |= gs_low(mask)
        mask &= mask - 1
    return out


cdef uint64_t in_parts(Cluster* c, State* s, int i, int kind) noexcept nogil:
    """GPUs of which parts of this kind are taken."""
    cdef uint64_t rest = s.frac[i], out = 0
    while rest:
        if kind_of(c, i, gs_ctz(rest)) == kind:
            out |= gs_low(rest)
        rest &= rest - 1
    return out


cdef inline int32_t thousandths(Cluster* c, int i, int g, int taken) noexcept nogil:
    """What is left of a GPU of which so many parts are taken: exact for thousandths, rounded down
    for others."""
    cdef int n = parts_of(c, i, g)
    return <int32_t>(<int64_t>(n - taken) * WHOLE // n) if 0 <= taken < n else 0


cdef inline int32_t left_after(Cluster* c, State* s, Req* r, int i, int g) noexcept nogil:
    """Thousandths that are left of a GPU beside the share of r."""
    return thousandths(c, i, g, r.milli + (
        s.took[<size_t>i * MAX_GPUS + g] if s.frac[i] >> g & 1 else 0))


cdef inline void share_take(Cluster* c, State* s, int i, uint64_t gpu, int milli) noexcept nogil:
    """Take a share of one GPU; it is no longer a wholly free one."""
    cdef uint16_t* took = &s.took[<size_t>i * MAX_GPUS + gs_ctz(gpu)]
    if took[0] < CLOSED:
        took[0] += <uint16_t>milli
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


cdef inline uint64_t share_room(Cluster* c, State* s, Req* r, int i) noexcept nogil:
    """GPUs in parts of the right kind, healthy, that have so much left."""
    cdef uint64_t rest = s.frac[i] & c.all[i] & c.ok[i], room = 0
    cdef uint16_t* took = s.took + <size_t>i * MAX_GPUS
    cdef int g
    while rest:
        g = gs_ctz(rest)
        if took[g] + r.milli <= parts_of(c, i, g) and kind_of(c, i, g) == r.kind:
            room |= gs_low(rest)
        rest &= rest - 1
    return room


cdef inline uint64_t share_pool(Cluster* c, State* s, Req* r, int i) noexcept nogil:
    """GPUs of which r can get its share: free ones and those in parts."""
    cdef uint64_t mask = divisible(c, r, i, s.gpus[i])
    if s.frac[i]:
        if r.one_shared and in_parts(c, s, i, r.kind):
            mask = 0
        mask |= share_room(c, s, r, i)
    return mask


cdef inline int32_t room_of(Cluster* c, State* s, int i, int g) noexcept nogil:
    """Thousandths that are left of a GPU that is free or in parts."""
    if s.gpus[i] >> g & 1:
        return WHOLE
    return thousandths(c, i, g, s.took[<size_t>i * MAX_GPUS + g])


cdef void close_tightest(Cluster* c, State* s, int i, int n) noexcept nogil:
    """Nothing more goes to n GPUs, those with the least room (but some) first: what is left for
    others then only grows as jobs end."""
    cdef uint16_t* took = s.took + <size_t>i * MAX_GPUS
    cdef uint64_t rest
    cdef int g, best
    cdef int32_t x, least = 0
    while n > 0:
        best = -1
        rest = s.gpus[i] | s.frac[i] & c.all[i] & c.ok[i]
        while rest:
            g = gs_ctz(rest)
            rest &= rest - 1
            x = room_of(c, s, i, g)
            if x > 0 and (best < 0 or x < least):
                best = g
                least = x
        if best < 0:
            return
        s.gpus[i] &= ~((<uint64_t>1) << best)
        s.frac[i] |= (<uint64_t>1) << best
        took[best] = CLOSED
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
        idle[g] = thousandths(c, i, g, s.took[<size_t>i * MAX_GPUS + g])
        total += idle[g]
    return total
