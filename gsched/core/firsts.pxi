# When each node could begin to hold a part of a request class: a heap of nodes by that time.
#
# The time is a lower bound: of a part of the class that lasts a second, so no start is before it
# however long the job. Room only shrinks during a pass, so a time that is kept stays a lower bound
# until it is made anew; where room grows (a reservation is taken out of the plan) book_grew() tells
# all heaps. Who wants the nodes that could begin by some time walks the heap from its top and
# leaves out what lies below a later one.


cdef void firsts_free(Firsts* f) noexcept nogil:
    free(f.at); free(f.seen); free(f.heap); free(f.place)
    memset(f, 0, sizeof(Firsts))


cdef inline int64_t firsts_bytes(Cluster* c) noexcept nogil:
    return <int64_t>c.n * 2 * <int64_t>(sizeof(int64_t) + sizeof(int32_t))


cdef int book_grew(Book* b, int32_t node) noexcept nogil:
    """A node has more room than before in this pass. 0, or -1 without memory."""
    if grow(<void**>&b.grown, &b.grown_cap, b.n_grown + 1, sizeof(int32_t)):
        return -1
    b.grown[b.n_grown] = node
    b.n_grown += 1
    return 0


cdef inline void firsts_down(Firsts* f, int p) noexcept nogil:
    cdef int32_t i = f.heap[p]
    cdef int64_t v = f.at[i]
    cdef int child = 2 * p + 1
    while child < f.n:
        if child + 1 < f.n and f.at[f.heap[child + 1]] < f.at[f.heap[child]]:
            child += 1
        if f.at[f.heap[child]] >= v:
            break
        f.heap[p] = f.heap[child]
        f.place[f.heap[p]] = p
        p = child
        child = 2 * p + 1
    f.heap[p] = i
    f.place[i] = p


cdef inline void firsts_up(Firsts* f, int p) noexcept nogil:
    cdef int32_t i = f.heap[p]
    cdef int64_t v = f.at[i]
    while p and f.at[f.heap[(p - 1) >> 1]] > v:
        f.heap[p] = f.heap[(p - 1) >> 1]
        f.place[f.heap[p]] = p
        p = (p - 1) >> 1
    f.heap[p] = i
    f.place[i] = p


cdef int firsts_room(Firsts* f, int n, int seen) noexcept nogil:
    """0, or -1 without memory."""
    if f.at != NULL:
        return 0
    f.at = <int64_t*>malloc(<size_t>n * sizeof(int64_t))
    f.heap = <int32_t*>malloc(<size_t>n * sizeof(int32_t))
    f.place = <int32_t*>malloc(<size_t>n * sizeof(int32_t))
    if seen:
        f.seen = <int64_t*>malloc(<size_t>n * sizeof(int64_t))
    if f.at == NULL or f.heap == NULL or f.place == NULL or (seen and f.seen == NULL):
        firsts_free(f)
        return -1
    return 0


cdef inline int64_t counts_start(Book* b, int i, int64_t gpus, int64_t cpus) noexcept nogil:
    """When node i first has so many GPUs and CPUs."""
    cdef int32_t k = b.head[i]
    while k >= 0:
        if b.segs[k].cpus >= cpus and (gpus == 0 or gs_pop(b.segs[k].gpus) >= gpus):
            return b.segs[k].at
        k = b.segs[k].next
    return FOREVER


cdef void firsts_make(Cluster* c, Firsts* f, int filter, int64_t gpus, int64_t cpus) noexcept nogil:
    """A heap of all usable nodes of a filter by when they have so many GPUs and CPUs."""
    cdef Book* b = &c.book
    cdef uint64_t* bits = c.filters[filter].bits
    cdef uint64_t x
    cdef int w, i, p
    f.known = b.n_grown
    f.n = 0
    memset(f.place, 0xff, <size_t>c.n * sizeof(int32_t))
    for w in range(c.words):
        x = bits[w]
        while x:
            i = c.node_of[(w << 6) + gs_ctz(x)]
            x &= x - 1
            if not c.now.usable[i]:
                continue
            f.at[i] = counts_start(b, i, gpus, cpus)
            f.heap[f.n] = i
            f.place[i] = f.n
            f.n += 1
    for p in range(f.n // 2 - 1, -1, -1):
        firsts_down(f, p)


cdef inline void firsts_need(Req* r, Need* need) noexcept nogil:
    """Counts that a node has free before it could hold a part: shares and lots may join others."""
    need_of(r, need)
    if r.milli:
        need.g = 0
    if r.lot:
        # Planned jobs of a lot take CPUs of others more than once: there may be less than none.
        need.cpus = -MAX_COUNT


cdef Firsts* base_of(Cluster* c, Req* r) noexcept nogil:
    """The heap that classes like r begin with; NULL: no place for another one."""
    cdef Book* b = &c.book
    cdef Firsts* f
    cdef Base* o
    cdef Need need
    cdef int k
    firsts_need(r, &need)
    for k in range(b.n_bases):
        o = &b.bases[k]
        if o.filter == r.filter and o.gpus == need.g and o.cpus == need.cpus:
            return &o.firsts
    if b.n_bases == BASES or firsts_room(&b.bases[b.n_bases].firsts, c.n, 0):
        return NULL
    o = &b.bases[b.n_bases]
    b.n_bases += 1
    o.filter = r.filter
    o.gpus = need.g
    o.cpus = need.cpus
    f = &o.firsts
    firsts_make(c, f, r.filter, need.g, need.cpus)
    return f


cdef int firsts_open(Cluster* c, Req* r) noexcept nogil:
    """Make the heap of r as of now. 1; 0 where memory for another one is not granted.
    Cost: nodes once a pass, else nodes that grew."""
    cdef Book* b = &c.book
    cdef Firsts* f = &r.firsts
    cdef Firsts* o
    cdef Need need
    cdef int i
    if f.pass_id != c.pass_id:
        if f.at == NULL:
            if c.scored + firsts_bytes(c) > KEEP_SCORES or firsts_room(f, c.n, 1):
                return 0
            c.scored += firsts_bytes(c)
        o = base_of(c, r)
        if o == NULL:
            firsts_need(r, &need)
            firsts_make(c, f, r.filter, need.g, need.cpus)
        else:
            f.known = o.known
            f.n = o.n
            memcpy(f.at, o.at, <size_t>c.n * sizeof(int64_t))
            memcpy(f.heap, o.heap, <size_t>c.n * sizeof(int32_t))
            memcpy(f.place, o.place, <size_t>c.n * sizeof(int32_t))
        f.pass_id = c.pass_id
        memset(f.seen, 0xff, <size_t>c.n * sizeof(int64_t))
    while f.known < b.n_grown:
        i = b.grown[f.known]
        f.known += 1
        if f.place[i] >= 0:
            f.at[i] = b.now
            f.seen[i] = -1
            firsts_up(f, f.place[i])
    return 1


cdef inline int firsts_true(Cluster* c, Req* r, int p, int64_t need_t, int64_t need_g) noexcept nogil:
    """1 if the time at place p is as the node is; else it is made so and moves down, and another
    node may be there."""
    cdef Book* b = &c.book
    cdef Firsts* f = &r.firsts
    cdef int32_t i = f.heap[p]
    cdef int64_t v
    cdef int keeps
    if f.seen[i] == b.stamp[i]:
        return 1
    f.seen[i] = b.stamp[i]
    # Nodes keep less once jobs with GPUs are planned on them: that is no lower bound.
    keeps = r.keeps
    r.keeps = 0
    v = node_start(c, r, i, f.at[i], 1, FOREVER, need_t, need_g)
    r.keeps = keeps
    if v == f.at[i]:
        return 1
    f.at[i] = v
    firsts_down(f, p)
    return 0


cdef void firsts_by(Cluster* c, Req* r, int keep, int64_t at, int64_t need_t, int64_t need_g,
                    uint64_t* out) noexcept nogil:
    """Nodes that could begin by `at`, as a bitmap over ranks. Cost: nodes / 64 + found ones."""
    cdef Firsts* f = &r.firsts
    cdef uint64_t* bits = c.filters[r.filter].bits
    cdef int32_t stack[128]
    cdef int p, rank, depth = 0
    if not keep:
        memcpy(out, bits, <size_t>c.words * sizeof(uint64_t))
        return
    memset(out, 0, <size_t>c.words * sizeof(uint64_t))
    if f.n:
        stack[0] = 0
        depth = 1
    while depth:
        depth -= 1
        p = stack[depth]
        while f.at[f.heap[p]] <= at:
            if not firsts_true(c, r, p, need_t, need_g):
                continue
            rank = c.rank[f.heap[p]]
            out[rank >> 6] |= (<uint64_t>1) << (rank & 63)
            if 2 * p + 2 < f.n:
                stack[depth] = 2 * p + 2
                depth += 1
            p = 2 * p + 1
            if p >= f.n:
                break
