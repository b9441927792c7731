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
                c.cons[k].same -= sh.cpus
                con_less(&c.cons[k], sh)
        k = c.cons[k].next


cdef inline int working(Share* sh) noexcept nogil:
    """Whether a share is of a job that is at work on the node. One that stands still for another
    holds its memory and counted resources alone, and is beside nobody."""
    return sh.cpus > 0 or sh.mask != 0


cdef inline void cores_count(Cluster* c, Piece* pc, int sign) noexcept nogil:
    """A share's cores are in use, or (sign -1) free again. After c.now.jobs changed."""
    if pc.slots != NULL:
        lot_hold(c, pc, sign)
        return
    c.now.cpus[pc.share.node] -= sign * pc.share.cpus
    near_count(c, &pc.share, sign)


cdef void hold(Cluster* c, Piece* pc, int32_t resv, int lent) noexcept nogil:
    """A share is in use; `lent`: its memory and what else is counted were all the while."""
    cdef Share* sh = &pc.share
    cdef int i = sh.node
    c.used[i] |= sh.mask
    if sh.milli:
        share_take(c, &c.now, i, sh.mask, sh.milli)
    c.now.gpus[i] &= ~sh.mask
    if not lent:
        c.now.mem[i] -= sh.mem
        extra_count(&c.now, sh, -1)
    if working(sh):
        c.now.jobs[i] += 1
        if sh.own:
            c.now.owner[i] = sh.own
    cores_count(c, pc, 1)
    if resv >= 0:
        window_use(c, resv, i, sh.cpus)


cdef void let_go(Cluster* c, Piece* pc, int32_t resv, int lent) noexcept nogil:
    """A share is free; `lent`: but for its memory and what else is counted."""
    cdef Share* sh = &pc.share
    cdef int i = sh.node
    if resv >= 0:
        window_use(c, resv, i, -sh.cpus)
    if sh.milli == 0 or share_give(&c.now, i, sh.mask, sh.milli):
        c.used[i] &= ~sh.mask
    c.now.gpus[i] = c.all[i] & c.ok[i] & ~c.used[i]
    if not lent:
        c.now.mem[i] += sh.mem
        extra_count(&c.now, sh, 1)
    if working(sh):
        c.now.jobs[i] -= 1
        if c.now.jobs[i] == 0:
            c.now.owner[i] = 0
    cores_count(c, pc, -1)


cdef int take(Cluster* c, int64_t key, Share* shares, int n, int64_t end,
              int32_t resv, uint64_t* slots) noexcept nogil:
    """Record an allocation that fits; slots: the cores in their lots, n x SLOT_WORDS, or NULL: they
    are chosen. 0, or -1 without memory (nothing is changed)."""
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
        i = shares[k].node
        pc.slots = NULL
        pc.late = 0
        if pc.share.lot == 0:
            near_cut(c, &pc.share)
        elif lot_begin(c, pc, slots + <size_t>k * SLOT_WORDS if slots != NULL else NULL):
            # Half of it is recorded: nobody may go on.
            c.now.failed = 1
            return -1
        hold(c, pc, resv, 0)
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
    let_go(c, pc, c.allocs[pc.owner].resv, 0)
    free(pc.slots)
    pc.slots = NULL
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


cdef int reshape(Cluster* c, int32_t a, Share* new) noexcept nogil:
    """An allocation holds so many CPUs, these GPUs and so much memory of a node instead of what it
    held there. 1, or 0 when it has none there. Cost: its nodes."""
    cdef int32_t p = c.allocs[a].first
    cdef Share* sh
    cdef Share more
    cdef int k
    while p >= 0 and c.pieces[p].share.node != new.node:
        p = c.pieces[p].next
    if p < 0:
        return 0
    sh = &c.pieces[p].share
    more = sh[0]
    let_go(c, &c.pieces[p], c.allocs[a].resv, 0)
    # What it gets back later it has for itself.
    free(c.pieces[p].slots)
    c.pieces[p].slots = NULL
    sh.lot = more.lot = 0
    more.mask = new.mask & ~sh.mask
    more.gpus = gs_pop(more.mask)
    more.cpus = imax(0, new.cpus - sh.cpus)
    more.mem = lmax(0, new.mem - sh.mem)
    more.more = 0
    sh.cpus = new.cpus
    sh.mask = new.mask
    sh.gpus = gs_pop(new.mask)
    sh.mem = new.mem
    for k in range(EXTRAS):
        if sh.more >> (k + 1) & 1:
            sh.extra[k] = sh.cpus
    sh.cut = new.cut
    memcpy(sh.cores, new.cores, sizeof(sh.cores))
    near_cut(c, sh)
    hold(c, &c.pieces[p], c.allocs[a].resv, 0)
    if working(&more):
        # What it has got back is not there for what was planned.
        touch_plan(c, &more, c.allocs[a].end, domain_of(c, c.allocs[a].resv))
        if c.book.on and book_take(c, &more, c.allocs[a].resv, c.book.now,
                                   end_in(&c.book, c.allocs[a].end), 0):
            c.now.failed = 1
    index_move(c, &c.now, new.node)
    return 1
