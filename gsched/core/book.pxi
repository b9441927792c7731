# The time of nodes: what each has free over time, as segments, the first from now on.

# When a share on a node comes free.
cdef struct End:
    int64_t at
    int32_t piece


cdef void book_free(Book* b) noexcept nogil:
    cdef int k
    free(b.segs); free(b.head); free(b.stamp); free(b.at); free(b.list); free(b.early); free(b.grown)
    free(b.extra); free(b.took); free(b.home); free(b.users); free(b.any); free(b.old); free(b.shares)
    if b.bases != NULL:
        for k in range(BASES):
            firsts_free(&b.bases[k].firsts)
    free(b.bases)
    if b.sky != NULL:
        for k in range(MAX_BITS + 1):
            free(b.sky[k].gpus)
            free(b.sky[k].cpus)
    free(b.sky)
    map_free(&b.tally)


cdef int32_t seg_new(Book* b) noexcept nogil:
    """A new segment's number; -1 without memory."""
    if grow(<void**>&b.segs, &b.segs_cap, b.n_segs + 1, sizeof(Seg)):
        return -1
    if b.more and grow(<void**>&b.extra, &b.extra_cap, (<int64_t>b.n_segs + 1) * EXTRAS,
                       sizeof(int32_t)):
        return -1
    if b.shares_on and grow(<void**>&b.took, &b.took_cap, (<int64_t>b.n_segs + 1) * MAX_GPUS,
                            sizeof(uint16_t)):
        return -1
    b.n_segs += 1
    return b.n_segs - 1


cdef int took_begin(Book* b) noexcept nogil:
    """The first share of a GPU after the pass that opened the book: segments know of none so far.
    0, or -1 without memory."""
    cdef int64_t n = <int64_t>b.n_segs * MAX_GPUS
    if grow(<void**>&b.took, &b.took_cap, n, sizeof(uint16_t)):
        return -1
    memset(b.took, 0, <size_t>n * sizeof(uint16_t))
    b.shares_on = 1
    return 0


cdef inline void seg_like(Book* b, int32_t k, int32_t other) noexcept nogil:
    """Segment k becomes what another one is."""
    b.segs[k] = b.segs[other]
    if b.more:
        memcpy(extra_row(b.extra, k), extra_row(b.extra, other), EXTRAS * sizeof(int32_t))
    if b.shares_on:
        memcpy(took_row(b, k), took_row(b, other), MAX_GPUS * sizeof(uint16_t))


cdef void rows_least(Book* b, int i, int64_t at, int64_t until, int32_t* row) noexcept nogil:
    """The counted resources that line i has throughout [at, until)."""
    cdef int32_t k = b.head[i]
    cdef int32_t* o
    cdef int j
    while b.segs[k].next >= 0 and b.segs[b.segs[k].next].at <= at:
        k = b.segs[k].next
    memcpy(row, extra_row(b.extra, k), EXTRAS * sizeof(int32_t))
    k = b.segs[k].next
    while k >= 0 and b.segs[k].at < until:
        o = extra_row(b.extra, k)
        for j in range(EXTRAS):
            row[j] = imin(row[j], o[j])
        k = b.segs[k].next


cdef int32_t seg_cut(Book* b, int i, int64_t at) noexcept nogil:
    """The segment of node i that begins at `at` (its first one if that is later); -1 without
    memory."""
    cdef int32_t k = b.head[i], fresh
    while b.segs[k].next >= 0 and b.segs[b.segs[k].next].at <= at:
        k = b.segs[k].next
    if b.segs[k].at >= at:
        return k
    fresh = seg_new(b)
    if fresh < 0:
        return -1
    seg_like(b, fresh, k)
    b.segs[fresh].at = at
    b.segs[k].next = fresh
    return fresh


cdef inline int32_t book_cpus(Share* sh) noexcept nogil:
    """CPUs that a share takes from others: more than there are where they are kept out."""
    return sh.cpus + (OWNED if sh.own else 0)


cdef int line_take(Cluster* c, int line, Share* sh, int32_t cpus, int64_t at, int64_t until,
                   int planned) noexcept nogil:
    """Take a share, with so many CPUs, out of one line of time. 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef int32_t k
    if sh.milli and not b.shares_on and took_begin(b):
        return -1
    k = seg_cut(b, line, at)
    if k < 0:
        return -1
    if until < FOREVER and seg_cut(b, line, until) < 0:
        return -1
    b.clock += 1
    b.stamp[line] = b.clock
    if planned:
        b.any[sh.node] = 1
    while k >= 0 and b.segs[k].at < until:
        b.segs[k].cpus -= cpus
        b.segs[k].mem -= sh.mem
        if b.home != NULL:
            seg_lot(c, &b.segs[k], sh, cpus, -1)
        if sh.more and b.more:
            row_add(extra_row(b.extra, k), sh.extra, -1)
        # A job that starts is taken to end somewhat later than it does, and may be there as well as
        # what is planned next; windows keep GPUs from others that their own jobs have.
        if planned:
            b.segs[k].back |= sh.mask & b.segs[k].gpus
        else:
            b.segs[k].back &= ~sh.mask
        if sh.milli:
            seg_share(b, k, sh, 1)
        else:
            b.segs[k].gpus &= ~sh.mask
        if planned:
            if not sh.milli:
                b.segs[k].kept |= sh.mask
            b.segs[k].planned += 1
        b.segs[k].jobs += working(sh)
        k = b.segs[k].next
    return 0


cdef void keep_plan(Cluster* c) noexcept nogil:
    """Before a pass: put the last one's reservations by, where it is to keep them."""
    cdef Book* b = &c.book
    cdef Head* heads = b.old
    cdef Share* shares = b.shares
    cdef int64_t cap = b.old_cap, shares_cap = b.shares_cap
    b.n_old = 0
    b.n_shares = 0
    if not b.on or not b.keep:
        b.keep = 0
        return
    b.old = c.heads
    b.old_cap = c.heads_cap
    b.n_old = c.n_heads
    b.shares = c.planned
    b.shares_cap = c.planned_cap
    b.n_shares = c.n_planned
    c.heads = heads
    c.heads_cap = cap
    c.planned = shares
    c.planned_cap = shares_cap


cdef int book_lift(Cluster* c, int32_t slot, int lift) noexcept nogil:
    """Take a job's old reservation out of the plan, or lay it in again. 0, or -1 without
    memory."""
    cdef Book* b = &c.book
    cdef Head* h = &b.old[c.q_old[slot]]
    cdef int32_t resv = c.reqs[h.req].resv
    cdef int k
    for k in range(h.n):
        if lift:
            if book_grew(b, b.shares[h.first + k].node):
                return -1
            book_give(c, &b.shares[h.first + k], resv, h.at, h.until)
        elif book_take(c, &b.shares[h.first + k], resv, h.at, h.until, 1):
            return -1
    return 0


cdef void line_give(Cluster* c, int line, Share* sh, int32_t cpus, int64_t at,
                    int64_t until) noexcept nogil:
    """Put a share back. It was cut out: its segments begin and end with it."""
    cdef Book* b = &c.book
    cdef int32_t s = b.head[line]
    b.clock += 1
    b.stamp[line] = b.clock
    while s >= 0 and b.segs[s].at < until:
        if b.segs[s].at >= at:
            b.segs[s].cpus += cpus
            b.segs[s].mem += sh.mem
            if b.home != NULL:
                seg_lot(c, &b.segs[s], sh, cpus, 1)
            if sh.more and b.more:
                row_add(extra_row(b.extra, s), sh.extra, 1)
            if sh.milli:
                seg_share(b, s, sh, -1)
                if b.segs[s].gpus & sh.mask:
                    b.segs[s].gpus &= b.segs[s].back | ~sh.mask
                    b.segs[s].back &= ~sh.mask
            else:
                b.segs[s].gpus |= sh.mask & b.segs[s].back
                b.segs[s].back &= ~sh.mask
                b.segs[s].kept &= ~sh.mask
            b.segs[s].planned -= 1
            b.segs[s].jobs -= 1
        s = b.segs[s].next


cdef int book_keep(Cluster* c) noexcept nogil:
    """Lay in the reservations of the last pass that still hold: the job waits as it was, and what
    was kept for it is there. 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef Head* h
    cdef Share* sh
    cdef Seg sum_
    cdef Parts parts
    cdef int32_t slot
    cdef int32_t row[EXTRAS]
    cdef int64_t limit
    cdef int k, j, ok
    for k in range(c.n_sorted):
        c.q_old[c.sorted[k].slot] = -1
    if not b.keep:
        return 0
    for k in range(b.n_old):
        h = &b.old[k]
        h.fresh = 0
        slot = map_get(&c.q_by_key, h.key)
        if slot < 0 or c.q_req[slot] != h.req:
            continue
        limit = c.q_limit[slot]
        if h.until != until_of(c, c.reqs[h.req].resv, h.at, h.at + (limit if limit else YEAR)):
            continue
        if b.keep == QUICK:
            if not quick_holds(c, slot, h):
                continue
        elif h.at < b.now:
            continue
        ok = 1
        for j in range(h.first, h.first + h.n):
            sh = &b.shares[j]
            if line_of(c, &c.reqs[h.req], sh.node) < 0:
                ok = 0
                break
            seg_window_of(c, &c.reqs[h.req], line_of(c, &c.reqs[h.req], sh.node), sh.node,
                          h.at, h.until, &sum_, &parts)
            if (not c.now.usable[sh.node] or sum_.cpus < sh.cpus or sum_.mem < sh.mem
                    or sh.mask & ~sum_.gpus
                    or ((c.reqs[h.req].alone or c.reqs[h.req].own) and sum_.jobs)):
                ok = 0
            if sh.more and b.more:
                rows_least(b, line_of(c, &c.reqs[h.req], sh.node), h.at, h.until, row)
                ok = ok and row_holds(row, sh.extra)
        if ok:
            c.q_old[slot] = k
            if book_lift(c, slot, 0):
                return -1
        elif b.keep == QUICK and quick_again(c, slot, k):
            return -1
    return 0


cdef inline int64_t rounded(Book* b, int64_t at) noexcept nogil:
    """A multiple of the step, the same one whenever it is asked for: what was planned still fits
    in the next pass."""
    return (at + b.step - 1) // b.step * b.step


cdef int book_open(Cluster* c, int64_t now) noexcept nogil:
    """Segments from what runs. Cost: nodes + shares x log(shares). 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef End* ends
    cdef End e
    cdef Share* sh
    cdef Seg* g
    cdef int i
    cdef int32_t p, k, last
    cdef int64_t m = 0, j, first
    if b.lines < c.n + c.n_windows:
        free(b.head)
        free(b.stamp)
        b.lines = c.n + c.n_windows
        b.head = <int32_t*>calloc(<size_t>b.lines, sizeof(int32_t))
        b.stamp = <int64_t*>calloc(<size_t>b.lines, sizeof(int64_t))
        if b.head == NULL or b.stamp == NULL:
            b.lines = 0
            return -1
    if b.sky == NULL:
        b.at = <int64_t*>calloc(c.n, sizeof(int64_t))
        b.list = <int32_t*>calloc(c.n, sizeof(int32_t))
        b.early = <uint64_t*>calloc(c.words, sizeof(uint64_t))
        b.bases = <Base*>calloc(BASES, sizeof(Base))
        b.any = <uint8_t*>calloc(c.n, 1)
        b.sky = <Sky*>calloc(MAX_BITS + 1, sizeof(Sky))
        if (b.at == NULL or b.any == NULL or b.list == NULL or b.early == NULL
                or b.bases == NULL or b.sky == NULL):
            return -1
    b.now = now
    b.n_grown = 0
    b.n_bases = 0
    b.n_segs = 0
    b.n_exact = 0
    memset(b.any, 0, c.n)
    memset(b.parts, 0, sizeof(b.parts))
    if b.tally.key == NULL and map_init(&b.tally, 64):
        return -1
    if b.tally.used:
        memset(b.tally.value, 0xff, (b.tally.mask + 1) * sizeof(int32_t))
        b.tally.used = 0
    if b.users != NULL:
        memset(b.users, 0, <size_t>b.users_cap * sizeof(int32_t))
    for k in range(MAX_BITS + 1):
        b.sky[k].made = 0
    b.slot = lmax(b.step, (b.window + SLOTS - 1) // SLOTS)
    b.n_slots = <int>((b.window + b.slot - 1) // b.slot)
    b.more = c.extra != NULL
    b.shares_on = c.now.took != NULL
    if lots_home(c):
        return -1
    if b.home != NULL:
        lots_then(c)
        c.then_is = 0
    if grow(<void**>&b.segs, &b.segs_cap, <int64_t>c.n + c.pieces_live, sizeof(Seg)):
        return -1
    if b.more:
        if grow(<void**>&b.extra, &b.extra_cap, (<int64_t>c.n + c.pieces_live) * EXTRAS,
                sizeof(int32_t)):
            return -1
        memcpy(b.extra, c.now.extra, <size_t>c.n * EXTRAS * sizeof(int32_t))
    if b.shares_on:
        if grow(<void**>&b.took, &b.took_cap, (<int64_t>c.n + c.pieces_live) * MAX_GPUS,
                sizeof(uint16_t)):
            return -1
        memcpy(b.took, c.now.took, <size_t>c.n * MAX_GPUS * sizeof(uint16_t))
    for i in range(c.n):
        b.head[i] = i
        b.clock += 1
        b.stamp[i] = b.clock
        b.at[i] = i
        g = &b.segs[i]
        g.at = now
        g.mem = c.now.mem[i]
        g.gpus = c.now.gpus[i]
        g.kept = g.back = 0
        g.cpus = c.now.cpus[i]
        g.jobs = c.now.jobs[i]
        g.planned = 0
        g.next = -1
        g.frac = c.now.frac[i]
        if b.home != NULL:
            lot_open(c, i, g)
    b.n_segs = c.n
    if c.pieces_live == 0:
        return windows_open(c)
    ends = <End*>malloc(<size_t>c.pieces_live * sizeof(End))
    if ends == NULL:
        return -1
    # By node, and within a node by end: `at` is first how many a node has, then where they begin.
    memset(b.at, 0, <size_t>c.n * sizeof(int64_t))
    for p in range(c.pieces_used):
        if c.pieces[p].owner >= 0:
            b.at[c.pieces[p].share.node] += 1
            if c.pieces[p].share.own:
                b.segs[c.pieces[p].share.node].cpus -= OWNED
                b.segs[c.pieces[p].share.node].top -= OWNED
                b.segs[c.pieces[p].share.node].room -= OWNED
    for i in range(c.n):
        j = b.at[i]
        b.at[i] = m
        m += j
    for p in range(c.pieces_used):
        if c.pieces[p].owner >= 0:
            i = c.pieces[p].share.node
            ends[b.at[i]].at = rounded(b, piece_end(c, p, now))
            ends[b.at[i]].piece = p
            b.at[i] += 1
    first = 0
    for i in range(c.n):
        # Few shares lie on a node.
        for m in range(first + 1, b.at[i]):
            e = ends[m]
            j = m
            while j > first and ends[j - 1].at > e.at:
                ends[j] = ends[j - 1]
                j -= 1
            ends[j] = e
        last = i
        for m in range(first, b.at[i]):
            sh = &c.pieces[ends[m].piece].share
            if b.segs[last].at != ends[m].at:
                k = seg_new(b)
                seg_like(b, k, last)
                b.segs[k].at = ends[m].at
                b.segs[last].next = k
                last = k
            if c.pieces[ends[m].piece].slots == NULL:
                b.segs[last].cpus += book_cpus(sh)
                if b.home != NULL:
                    seg_lot(c, &b.segs[last], sh, book_cpus(sh), 1)
            else:
                lot_close(c, &c.pieces[ends[m].piece], &b.segs[last])
                if sh.own:
                    b.segs[last].cpus += OWNED
                    b.segs[last].top += OWNED
                    b.segs[last].room += OWNED
            b.segs[last].mem += sh.mem
            if sh.more:
                row_add(extra_row(b.extra, last), sh.extra, 1)
            b.segs[last].jobs -= working(sh)
            if sh.milli:
                seg_share(b, last, sh, -1)
                b.segs[last].gpus &= c.all[i] & c.ok[i]
            else:
                b.segs[last].gpus |= sh.mask & c.all[i] & c.ok[i]
        first = b.at[i]
    free(ends)
    return windows_open(c)


cdef inline int seg_fit(Cluster* c, Req* r, int i, Seg* g, int64_t need_t, int64_t need_g,
                        Fit* f) noexcept nogil:
    cdef uint64_t mask = g.gpus
    if (r.alone or r.own) and g.jobs:
        return 0
    if r.gpu and (r.gtype >= 0 or r.rare != NULL):
        mask &= type_mask(c, r, i)
    if not fit_in(c, r, i, g.cpus, g.mem, mask, gs_pop(mask) if r.gpu else 0, f):
        return 0
    return f.t >= need_t and f.g >= need_g


cdef inline void seg_and(Seg* a, Seg* g) noexcept nogil:
    """a becomes what both have."""
    a.cpus = imin(a.cpus, g.cpus)
    a.mem = lmin(a.mem, g.mem)
    a.gpus &= g.gpus
    a.kept |= g.kept
    if g.jobs > a.jobs:
        a.jobs = g.jobs
    if g.planned > a.planned:
        a.planned = g.planned
    a.frac |= g.frac


cdef void seg_window(Book* b, int i, int64_t at, int64_t until, Seg* o) noexcept nogil:
    """What node i has throughout [at, until)."""
    cdef int32_t k = b.head[i]
    while b.segs[k].next >= 0 and b.segs[b.segs[k].next].at <= at:
        k = b.segs[k].next
    o[0] = b.segs[k]
    k = b.segs[k].next
    while k >= 0 and b.segs[k].at < until:
        seg_and(o, &b.segs[k])
        k = b.segs[k].next


cdef int64_t node_start(Cluster* c, Req* r, int i, int64_t at, int64_t duration, int64_t bound,
                        int64_t need_t, int64_t need_g) noexcept nogil:
    """The earliest time from `at` on at which node i holds a part of r throughout; `bound` if that
    is not before it. Cost: its segments."""
    cdef Book* b = &c.book
    cdef int line = line_of(c, r, i)
    cdef int32_t k, j
    cdef int64_t t
    cdef Seg sum_, g
    cdef Fit f
    cdef Parts parts
    if line < 0:
        return bound
    k = b.head[line]
    while b.segs[k].next >= 0 and b.segs[b.segs[k].next].at <= at:
        k = b.segs[k].next
    while k >= 0:
        t = lmax(at, b.segs[k].at)
        if t >= bound:
            return bound
        sum_ = b.segs[k]
        j = k
        if r.odd:
            odd_seg(c, r, i, k, &sum_, 1)
        if r.milli:
            parts_first(b, k, &parts)
        while True:
            if r.milli:
                sum_.gpus = parts_pool(c, r, i, &parts)
            if not seg_fit(c, r, i, &sum_, need_t, need_g, &f):
                break
            if r.more and b.more and not row_holds(extra_row(b.extra, j), r.extra):
                break
            j = b.segs[j].next
            if j < 0 or b.segs[j].at >= until_of(c, r.resv, t, t + duration):
                return t
            if r.odd:
                g = b.segs[j]
                odd_seg(c, r, i, j, &g, 0)
                seg_and(&sum_, &g)
            else:
                seg_and(&sum_, &b.segs[j])
            if r.milli:
                parts_and(b, j, &parts)
        # A start in segment k always meets what it met here.
        k = b.segs[k].next
    return bound
