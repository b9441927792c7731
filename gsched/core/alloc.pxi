# Allocations: who holds what until when.


cdef inline int64_t end_in(Book* b, int64_t end) noexcept nogil:
    """When the plan takes a job to end that starts now."""
    return rounded(b, b.now + YEAR if end == FOREVER else lmax(end, b.now + 1))


cdef inline void con_less(Con* con, Share* sh) noexcept nogil:
    """GPUs of a share that lasts beyond the time of con. A part of a GPU uses up all of it there,
    unless it is in parts anyway."""
    if con.strict == 2 and con.mask & sh.mask:
        con.room -= sh.milli if sh.milli else con.room
    if sh.milli == 0:
        con.gpus -= sh.gpus
    elif con.free & sh.mask:
        con.free &= ~sh.mask
        con.gpus -= 1


cdef inline void touch_plan(Cluster* c, Share* sh, int64_t end, int32_t domain) noexcept nogil:
    """A job that lasts beyond a reservation uses up what that leaves on the node."""
    cdef int k = c.con_head[sh.node]
    while k >= 0:
        if c.cons[k].at < end:
            c.cons[k].mem -= sh.mem
            if sh.more:
                row_add(c.cons[k].extra, sh.extra, -1)
            if same_domain(c.cons[k].domain, domain):
                c.cons[k].cpus -= sh.cpus
                con_less(&c.cons[k], sh)
        k = c.cons[k].next


cdef int take(Cluster* c, int64_t key, Share* shares, int n, int64_t end,
              int32_t resv) noexcept nogil:
    """Record an allocation that fits. 0, or -1 without memory (nothing is changed)."""
    cdef int32_t a, p, prev = -1
    cdef int k, i
    cdef Alloc* al
    cdef Piece* pc
    if map_reserve(&c.by_key):
        return -1
    if c.alloc_free < 0:
        if grow(<void**>&c.allocs, &c.allocs_cap, c.allocs_used + 1, sizeof(Alloc)):
            return -1
    if grow(<void**>&c.pieces, &c.pieces_cap, c.pieces_used + n, sizeof(Piece)):
        return -1
    if c.alloc_free >= 0:
        a = c.alloc_free
        c.alloc_free = c.allocs[a].first
    else:
        a = c.allocs_used
        c.allocs_used += 1
    al = &c.allocs[a]
    al.key = key
    al.end = end
    al.live = 1
    al.first = -1
    al.resv = resv
    for k in range(n):
        if c.piece_free >= 0:
            p = c.piece_free
            c.piece_free = c.pieces[p].next
        else:
            p = c.pieces_used
            c.pieces_used += 1
        pc = &c.pieces[p]
        pc.share = shares[k]
        pc.owner = a
        pc.next = -1
        if prev < 0:
            al.first = p
        else:
            c.pieces[prev].next = p
        prev = p
        near_cut(c, &pc.share)
        i = shares[k].node
        c.used[i] |= shares[k].mask
        if shares[k].milli:
            share_take(c, &c.now, i, shares[k].mask, shares[k].milli)
        c.now.cpus[i] -= shares[k].cpus
        c.now.mem[i] -= shares[k].mem
        extra_count(&c.now, &shares[k], -1)
        c.now.gpus[i] &= ~shares[k].mask
        c.now.jobs[i] += 1
        if shares[k].own:
            c.now.owner[i] = shares[k].own
        near_count(c, &pc.share, 1)
        if resv >= 0:
            window_use(c, resv, i, shares[k].cpus)
        touch_plan(c, &shares[k], end, domain_of(c, resv))
        if c.book.on and book_take(c, &shares[k], resv, c.book.now, end_in(&c.book, end), 0):
            c.now.failed = 1
        index_move(c, &c.now, i)
    c.pieces_live += n
    map_put(&c.by_key, key, a)
    return 0


cdef void give_back(Cluster* c, int32_t p) noexcept nogil:
    """Free one share; the caller unlinks it."""
    cdef Piece* pc = &c.pieces[p]
    cdef int i = pc.share.node
    cdef int32_t resv = c.allocs[pc.owner].resv
    if resv >= 0:
        window_use(c, resv, i, -pc.share.cpus)
    if pc.share.milli == 0 or share_give(&c.now, i, pc.share.mask, pc.share.milli):
        c.used[i] &= ~pc.share.mask
    c.now.cpus[i] += pc.share.cpus
    c.now.mem[i] += pc.share.mem
    extra_count(&c.now, &pc.share, 1)
    c.now.gpus[i] = c.all[i] & c.ok[i] & ~c.used[i]
    c.now.jobs[i] -= 1
    if c.now.jobs[i] == 0:
        c.now.owner[i] = 0
    near_count(c, &pc.share, -1)
    pc.owner = -1
    pc.next = c.piece_free
    c.piece_free = p
    c.pieces_live -= 1
    index_move(c, &c.now, i)


cdef void drop_alloc(Cluster* c, int32_t a) noexcept nogil:
    map_del(&c.by_key, c.allocs[a].key)
    c.allocs[a].live = 0
    c.allocs[a].first = c.alloc_free
    c.alloc_free = a


cdef void release_all(Cluster* c, int32_t a) noexcept nogil:
    """Free an allocation. Cost: its nodes."""
    cdef int32_t p = c.allocs[a].first, following
    while p >= 0:
        following = c.pieces[p].next
        give_back(c, p)
        p = following
    drop_alloc(c, a)


cdef int release_one(Cluster* c, int32_t a, int node) noexcept nogil:
    """Free an allocation's share of one node; with the last one the allocation goes. 1, or 0 when
    it has none there."""
    cdef int32_t p = c.allocs[a].first, prev = -1
    while p >= 0 and c.pieces[p].share.node != node:
        prev = p
        p = c.pieces[p].next
    if p < 0:
        return 0
    if prev < 0:
        c.allocs[a].first = c.pieces[p].next
    else:
        c.pieces[prev].next = c.pieces[p].next
    give_back(c, p)
    if c.allocs[a].first < 0:
        drop_alloc(c, a)
    return 1
