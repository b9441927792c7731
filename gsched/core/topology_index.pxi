# How many nodes below each unit of the topology have so many GPUs free, kept as nodes change.


cdef void topo_free(Topo* t) noexcept nogil:
    free(t.leaf); free(t.up); free(t.level); free(t.low); free(t.high); free(t.below)
    free(t.first); free(t.members); free(t.loaded); free(t.start); free(t.count); free(t.used)
    free(t.own); free(t.head); free(t.next); free(t.chosen); free(t.part); free(t.pick)
    free(t.sort); free(t.held); free(t.rank_low); free(t.rank_end)
    memset(t, 0, sizeof(Topo))


cdef inline void topo_count(Cluster* c, State* s, int i, int gpus, int by) noexcept nogil:
    """Node i with so many free GPUs comes (by 1) or goes (by -1). Cost: GPUs x levels."""
    cdef Topo* t = &c.topo
    cdef int u = t.leaf[i], k
    while u >= 0:
        for k in range(gpus + 1):
            s.room[<size_t>k * t.n_units + u] += by
        u = t.up[u]


cdef void topo_build(Cluster* c, State* s) noexcept nogil:
    """All counts anew. Cost: nodes + units x GPUs."""
    cdef Topo* t = &c.topo
    cdef size_t row, units = t.n_units
    cdef int i, u, k, most = 0
    memset(s.room, 0, GRID * units * sizeof(int32_t))
    for i in range(c.n):
        if s.nfree[i] != 255 and t.leaf[i] >= 0:
            s.room[s.nfree[i] * units + t.leaf[i]] += 1
            if s.nfree[i] > most:
                most = s.nfree[i]
    for k in range(most, -1, -1):
        row = k * units
        if k < most:
            for u in range(t.n_leaves):
                s.room[row + u] += s.room[row + units + u]
        for u in range(t.n_units):
            if t.up[u] >= 0:
                s.room[row + t.up[u]] += s.room[row + u]


cdef void topo_ranks(Cluster* c) noexcept nogil:
    """Between which ranks the nodes of each unit lie. Cost: nodes + units, once per order."""
    cdef Topo* t = &c.topo
    cdef int i, u, v
    if t.ranked == c.orders:
        return
    t.ranked = c.orders
    for u in range(t.n_units):
        t.rank_low[u] = c.n
        t.rank_end[u] = 0
    for i in range(c.n):
        u = t.leaf[i]
        if u >= 0:
            t.rank_low[u] = imin(t.rank_low[u], c.rank[i])
            t.rank_end[u] = imax(t.rank_end[u], c.rank[i] + 1)
    for u in range(t.n_units):
        v = t.up[u]
        if v >= 0:
            t.rank_low[v] = imin(t.rank_low[v], t.rank_low[u])
            t.rank_end[v] = imax(t.rank_end[v], t.rank_end[u])


cdef int topo_most(Cluster* c, State* s, Filter* fl, int unit, int gpus) noexcept nogil:
    """At most so many nodes below a unit pass the filter and have so many GPUs free (gpus >= 1).
    Cost: a 64th of the ranks between its first and last node, for each bucket."""
    cdef Topo* t = &c.topo
    cdef int low = t.rank_low[unit], last = t.rank_end[unit] - 1, f, l, w, n = 0
    cdef uint64_t* bucket
    cdef uint64_t islands, word
    if last < low:
        return 0
    for f in range(gpus, GRID):
        islands = s.filled[f]
        while islands:
            l = gs_ctz(islands) + 1
            islands &= islands - 1
            bucket = s.bucket[f * GRID + l]
            for w in range(low >> 6, (last >> 6) + 1):
                word = bucket[w] & fl.bits[w]
                if w == low >> 6:
                    word &= ~(<uint64_t>0) << (low & 63)
                if w == last >> 6:
                    word &= ~(<uint64_t>0) >> (63 - (last & 63))
                n += gs_pop(word)
    return n
