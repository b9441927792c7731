# What the lines of time (see book.pxi) say of shares of GPUs, of lots, caps and keeps.


cdef struct Parts:            # GPUs of a line throughout some time
    uint64_t free             # whole
    uint64_t frac             # in parts at some time, whole or in parts at all others
    uint16_t took[MAX_GPUS]   # the most parts that are taken of each


cdef inline uint16_t* took_row(Book* b, int32_t k) noexcept nogil:
    return b.took + <size_t>k * MAX_GPUS


cdef inline void parts_first(Book* b, int32_t k, Parts* p) noexcept nogil:
    p.free = b.segs[k].gpus
    p.frac = b.segs[k].frac if b.shares_on else 0
    if p.frac:
        memcpy(p.took, took_row(b, k), sizeof(p.took))


cdef inline void parts_and(Book* b, int32_t k, Parts* p) noexcept nogil:
    """p becomes what it and segment k have."""
    cdef uint64_t frac = b.segs[k].frac if b.shares_on else 0, rest
    cdef uint64_t there = (p.free | p.frac) & (b.segs[k].gpus | frac)
    cdef uint16_t* took
    cdef int g
    rest = frac & there
    while rest:
        g = gs_ctz(rest)
        rest &= rest - 1
        took = took_row(b, k)
        if not p.frac >> g & 1 or took[g] > p.took[g]:
            p.took[g] = took[g]
    p.free &= b.segs[k].gpus & there
    p.frac = there & ~p.free


cdef uint64_t parts_pool(Cluster* c, Req* r, int i, Parts* p) noexcept nogil:
    """GPUs of which r can get its share: share_pool() for p."""
    cdef uint64_t mask = divisible(c, r, i, p.free), rest = p.frac, room = 0
    cdef int g
    while rest:
        g = gs_ctz(rest)
        rest &= rest - 1
        if kind_of(c, i, g) != r.kind:
            continue
        if r.one_shared:
            mask = 0
        if (c.all[i] & c.ok[i]) >> g & 1 and p.took[g] + r.milli <= parts_of(c, i, g):
            room |= (<uint64_t>1) << g
    return mask | room


cdef inline void parts_state(State* s, int i, Parts* p) noexcept nogil:
    s.gpus[i] = p.free
    s.frac[i] = p.frac
    memset(s.took + <size_t>i * MAX_GPUS, 0, MAX_GPUS * sizeof(uint16_t))
    if p.frac:
        parts_copy(s.took + <size_t>i * MAX_GPUS, p)


cdef inline void parts_copy(uint16_t* took, Parts* p) noexcept nogil:
    cdef uint64_t rest = p.frac
    while rest:
        took[gs_ctz(rest)] = p.took[gs_ctz(rest)]
        rest &= rest - 1


cdef inline void seg_share(Book* b, int32_t k, Share* sh, int sign) noexcept nogil:
    """A share of a GPU is taken in segment k (sign 1), or given back (-1)."""
    cdef int g = gs_ctz(sh.mask)
    cdef uint16_t* took = took_row(b, k) + g
    took[0] += <uint16_t>(sign * sh.milli)
    if sign > 0 or took[0]:
        b.segs[k].frac |= sh.mask
        b.segs[k].gpus &= ~sh.mask
    else:
        b.segs[k].frac &= ~sh.mask
        b.segs[k].gpus |= sh.mask


cdef void odd_seg(Cluster* c, Req* r, int i, int32_t k, Seg* g, int first) noexcept nogil:
    """The same for g, which is segment k of a line of node i: the very CPUs and memory for r."""
    cdef int64_t cpus = seg_cpus(c, r.lot, i, g), mem = g.mem
    if first:
        # What is kept is kept from who comes: whoever is there stays when more GPUs come free.
        keep_less(c, r, i, gs_pop(g.gpus), &cpus, &mem)
    if r.caps and c.book.more:
        cpus = lmin(cpus, caps_left(r, extra_row(c.book.extra, k)))
    g.cpus = <int32_t>lmax(cpus, -MAX_COUNT)
    g.mem = mem


cdef void seg_window_of(Cluster* c, Req* r, int line, int i, int64_t at, int64_t until,
                        Seg* o, Parts* p) noexcept nogil:
    """What line `line` of node i has for r throughout [at, until); the parts of its GPUs into p, where
    r wants a share. Cost: its segments."""
    cdef Book* b = &c.book
    cdef int32_t k
    cdef Seg g
    if not r.odd and not r.milli:
        seg_window(b, line, at, until, o)
        return
    k = b.head[line]
    while b.segs[k].next >= 0 and b.segs[b.segs[k].next].at <= at:
        k = b.segs[k].next
    o[0] = b.segs[k]
    if r.odd:
        odd_seg(c, r, i, k, o, 1)
    if r.lot and at <= b.now:
        # Lines know a lot by number, and not which of its cores are full: now that is known.
        o.cpus = imin(o.cpus, <int32_t>lot_room(c, r.lot, i))
    if r.milli:
        parts_first(b, k, p)
    k = b.segs[k].next
    while k >= 0 and b.segs[k].at < until:
        g = b.segs[k]
        if r.odd:
            odd_seg(c, r, i, k, &g, 0)
        seg_and(o, &g)
        if r.milli:
            parts_and(b, k, p)
        k = b.segs[k].next
    if r.milli:
        o.gpus = parts_pool(c, r, i, p)
