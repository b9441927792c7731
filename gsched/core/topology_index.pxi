# How many nodes below each unit of the topology have so many GPUs free, kept as nodes change.


cdef void topo_free(Topo* t) noexcept nogil:
    free(t.leaf); free(t.up); free(t.level); free(t.low); free(t.high); free(t.below)
    free(t.first); free(t.members); free(t.loaded); free(t.start); free(t.count); free(t.used)
    free(t.own); free(t.head); free(t.next); free(t.chosen); free(t.part); free(t.pick)
    free(t.sort); free(t.held)
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
