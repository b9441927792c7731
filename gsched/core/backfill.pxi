# Reservations: when and where a blocked job will start, and what that leaves to others.
#
# A reservation is counts of CPUs, GPUs and memory on nodes from `at` to `until`; the very GPUs are
# kept only where their type (on nodes with several) or an island is demanded. A job may start now
# if it ends by then, or if on each node it leaves what is reserved.


cdef inline int64_t end_of(Alloc* a, int64_t now) noexcept nogil:
    """When an allocation is expected to be given back: an overdue one in the next second."""
    if a.end == FOREVER:
        return now + YEAR
    return lmax(a.end, now + 1)


cdef inline int64_t piece_end(Cluster* c, int32_t p, int64_t now) noexcept nogil:
    """When what a share holds is expected to be free: others may hold it after its allocation."""
    cdef int64_t end = end_of(&c.allocs[c.pieces[p].owner], now)
    cdef int64_t late = c.pieces[p].late
    return lmax(end, now + YEAR if late == FOREVER else late) if late else end


cdef void sort_times(int64_t* a, int64_t n) noexcept nogil:
    """Heap sort. Cost: n log n."""
    cdef int64_t start = n // 2, end = n, root, child, v
    while end > 1:
        if start > 0:
            start -= 1
            v = a[start]
        else:
            end -= 1
            v = a[end]
            a[end] = a[0]
        root = start
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and a[child + 1] > a[child]:
                child += 1
            if a[child] <= v:
                break
            a[root] = a[child]
            root = child
            child = 2 * root + 1
        a[root] = v


# Reservations of the pass, as bits.
cdef struct Over:
    uint64_t bits[OVER_WORDS]


cdef void overlapping(Cluster* c, int64_t at, int64_t until, Over* over) noexcept nogil:
    """Reservations that share time with [at, until). (A plan that has been taken over may have more
    of them than an EASY pass makes: until the next pass the first ones count.)"""
    cdef int h
    memset(over, 0, sizeof(Over))
    for h in range(imin(c.n_heads, PLANNED)):
        if c.heads[h].at >= 0 and c.heads[h].at < until and at < c.heads[h].until:
            over.bits[h >> 6] |= (<uint64_t>1) << (h & 63)


cdef void state_all(Cluster* c, State* s) noexcept nogil:
    """s, a scratch state, is about all nodes as they are now."""
    memcpy(s.cpus, c.now.cpus, <size_t>c.n * sizeof(int32_t))
    memcpy(s.mem, c.now.mem, <size_t>c.n * sizeof(int64_t))
    memcpy(s.gpus, c.now.gpus, <size_t>c.n * sizeof(uint64_t))
    memcpy(s.frac, c.now.frac, <size_t>c.n * sizeof(uint64_t))
    if s.took != NULL:
        memcpy(s.took, c.now.took, <size_t>c.n * MAX_GPUS * sizeof(uint16_t))
    memcpy(s.jobs, c.now.jobs, <size_t>c.n * sizeof(int32_t))
    memcpy(s.owner, c.now.owner, <size_t>c.n * sizeof(int32_t))
    memcpy(s.usable, c.now.usable, <size_t>c.n)
    if s.extra != NULL:
        memcpy(s.extra, c.now.extra, <size_t>c.n * EXTRAS * sizeof(int32_t))


cdef inline void state_node(State* s, State* now, int i) noexcept nogil:
    """The same of one node."""
    s.cpus[i] = now.cpus[i]
    s.mem[i] = now.mem[i]
    s.gpus[i] = now.gpus[i]
    s.frac[i] = now.frac[i]
    if s.took != NULL:
        memcpy(&s.took[<size_t>i * MAX_GPUS], &now.took[<size_t>i * MAX_GPUS],
               MAX_GPUS * sizeof(uint16_t))
    s.jobs[i] = now.jobs[i]
    s.owner[i] = now.owner[i]
    s.usable[i] = now.usable[i]
    if s.extra != NULL:
        memcpy(&s.extra[<size_t>i * EXTRAS], &now.extra[<size_t>i * EXTRAS],
               EXTRAS * sizeof(int32_t))


cdef void future(Cluster* c, int64_t now, int64_t at, int64_t until, Over* over) noexcept nogil:
    """`then` becomes what is free at time `at` without the reservations in `over`.
    Cost: nodes + allocated shares; with a scope of its nodes alone."""
    cdef State* s = &c.then
    cdef Share* sh
    cdef uint64_t m
    cdef int32_t p, k
    cdef int i, h, g, q, n = c.pieces_used
    c.then_is = 0
    s.told = 0
    lots_then(c)
    c.w_at = at
    c.w_until = until
    if c.scope >= 0:
        n = c.n_near
        for q in range(c.resvs[c.scope].n_shares):
            state_node(s, &c.now, c.resvs[c.scope].shares[q].node)
    else:
        state_all(c, s)
    for q in range(n):
        p = c.near[q] if c.scope >= 0 else q
        if c.pieces[p].owner < 0 or piece_end(c, p, now) > at:
            continue
        sh = &c.pieces[p].share
        i = sh.node
        s.cpus[i] += sh.cpus if c.pieces[p].slots == NULL else lot_end(c, &c.pieces[p])
        s.mem[i] += sh.mem
        extra_count(s, sh, 1)
        if sh.milli == 0 or share_give(s, i, sh.mask, sh.milli):
            s.gpus[i] |= sh.mask & c.all[i] & c.ok[i]
        if working(sh):
            s.jobs[i] -= 1
            if s.jobs[i] == 0:
                s.owner[i] = 0
    if c.n_windows:
        windows_then(c, now, at, over)
    for h in range(imin(c.n_heads, PLANNED)):
        if not over.bits[h >> 6] >> (h & 63) & 1:
            continue
        for k in range(c.heads[h].first, c.heads[h].first + c.heads[h].n):
            sh = &c.planned[k]
            i = sh.node
            if c.scope >= 0 and window_of(c, c.scope, i) < 0:
                continue
            s.cpus[i] -= sh.cpus if sh.lot == 0 else lot_lay(c, s, sh)
            s.mem[i] -= sh.mem
            extra_count(s, sh, -1)
            if s.jobs[i] == 0:
                s.owner[i] = sh.own
            elif s.owner[i] != sh.own:
                s.owner[i] = NOBODY
            s.jobs[i] += 1
            if sh.milli:
                share_take(c, s, i, sh.mask, sh.milli)
                continue
            # Its GPUs, or as many others where those are still in use.
            m = s.gpus[i] & sh.mask
            g = sh.gpus - gs_pop(m)
            s.gpus[i] &= ~m
            if s.frac[i]:
                close_tightest(c, s, i, g)
            else:
                s.gpus[i] &= ~lowest(s.gpus[i], g)
    index_build(c, s)


cdef inline void future_of(Cluster* c, Req* r, int64_t now, int64_t at, int64_t duration,
                           Over* over) noexcept nogil:
    future(c, now, at, until_of(c, r.resv, at, at + duration), over)


cdef int scope_open(Cluster* c, int32_t resv) noexcept nogil:
    """From now on `then` is about the nodes of a reservation alone. 0, or -1 without memory. Cost:
    allocated shares."""
    cdef uint64_t* bits = resv_bits(c, resv)
    cdef int32_t p
    cdef int rank
    if bits == NULL or grow(<void**>&c.near, &c.near_cap, c.pieces_used, sizeof(int32_t)):
        return -1
    c.n_near = 0
    for p in range(c.pieces_used):
        if c.pieces[p].owner < 0:
            continue
        rank = c.rank[c.pieces[p].share.node]
        if bits[rank >> 6] >> (rank & 63) & 1:
            c.near[c.n_near] = p
            c.n_near += 1
    c.scope = resv
    return 0


cdef int64_t find_start(Cluster* c, Req* r, int64_t now, int64_t duration) noexcept nogil:
    """The earliest time at which r fits for its duration, with the answer in c.out and `then` as of
    that time (of the nodes of its reservation, where it keeps to one); -1 for never. Cost:
    allocated shares, and log(ends) x (nodes + shares that it could have) for each stretch of time
    between reservations."""
    cdef int64_t at
    if c.w_on == W_OFF or not confined(c, r.resv):
        return search_start(c, r, now, duration)
    if scope_open(c, r.resv):
        c.then.failed = 1
        return -1
    at = search_start(c, r, now, duration)
    c.scope = -1
    return at


cdef int64_t search_start(Cluster* c, Req* r, int64_t now, int64_t duration) noexcept nogil:
    cdef int64_t n = 0, m = 0, i, lo, hi, mid, first, last, found, until
    cdef uint64_t sign
    cdef Over over, other
    cdef int h
    cdef int32_t a, p
    if grow(<void**>&c.times, &c.times_cap,
            <int64_t>c.allocs_used + 2 * <int64_t>c.pieces_used + c.n_heads + windows_times(c, NULL),
            sizeof(int64_t)):
        c.then.failed = 1
        return -1
    if c.scope >= 0:
        for a in range(c.n_near):
            c.times[n] = end_of(&c.allocs[c.pieces[c.near[a]].owner], now)
            n += 1
    else:
        for a in range(c.allocs_used):
            if c.allocs[a].live:
                c.times[n] = end_of(&c.allocs[a], now)
                n += 1
    for p in range(c.pieces_used):
        if c.pieces[p].owner >= 0 and c.pieces[p].late:
            c.times[n] = piece_end(c, p, now)
            n += 1
    for h in range(c.n_heads):
        if c.heads[h].at >= 0:
            c.times[n] = c.heads[h].until
            n += 1
    n += windows_times(c, c.times + n)
    sort_times(c.times, n)
    for i in range(n):
        if c.times[i] > now and (m == 0 or c.times[i] != c.times[m - 1]):
            c.times[m] = c.times[i]
            m += 1
    # Within a stretch where the same reservations overlap, what is free only grows.
    first = 0
    while first < m:
        until = until_of(c, r.resv, c.times[first], c.times[first] + duration)
        overlapping(c, c.times[first], until, &over)
        sign = windows_sign(c, r, c.times[first], until)
        last = first
        while last + 1 < m:
            until = until_of(c, r.resv, c.times[last + 1], c.times[last + 1] + duration)
            overlapping(c, c.times[last + 1], until, &other)
            if (memcmp(&over, &other, sizeof(Over))
                    or windows_sign(c, r, c.times[last + 1], until) != sign):
                break
            last += 1
        lo = first
        hi = last
        found = -1
        future_of(c, r, now, c.times[hi], duration, &over)
        if place(c, &c.then, r, 0):
            found = hi
            while lo < hi:
                mid = (lo + hi) // 2
                future_of(c, r, now, c.times[mid], duration, &over)
                if place(c, &c.then, r, 0):
                    hi = mid
                    found = mid
                else:
                    lo = mid + 1
            # The last probe may have been another time: the answer of the right one.
            future_of(c, r, now, c.times[hi], duration, &over)
            place(c, &c.then, r, 0)
            return c.times[hi]
        first = last + 1
    return -1


cdef void clear_plan(Cluster* c) noexcept nogil:
    cdef int32_t k
    for k in range(c.n_cons):
        c.con_head[c.cons[k].node] = -1
    c.n_cons = 0
    c.n_heads = 0
    c.n_planned = 0
    memset(c.headed, 0, sizeof(c.headed))


cdef int reserve(Cluster* c, int64_t key, int32_t req, int64_t now,
                 int64_t duration) noexcept nogil:
    """Give a blocked job its reservation. 1; 0 when no time is found; -1 without memory."""
    cdef Req* r = &c.reqs[req]
    cdef Head* h
    cdef Con* con
    cdef Share* sh
    cdef int64_t at, cpus, mem
    cdef uint64_t free_
    cdef int k, j, strict, parts, me
    if c.n_heads >= PLANNED:
        return 0
    if grow(<void**>&c.heads, &c.heads_cap, c.n_heads + 1, sizeof(Head)):
        return -1
    at = find_start(c, r, now, duration)
    if c.then.failed:
        return -1
    if at < 0:
        return 0
    if (grow(<void**>&c.planned, &c.planned_cap, c.n_planned + c.n_out, sizeof(Share))
            or grow(<void**>&c.cons, &c.cons_cap, c.n_cons + c.n_out, sizeof(Con))):
        return -1
    me = c.n_heads
    h = &c.heads[me]
    h.key = key
    h.req = req
    h.at = at
    h.until = until_of(c, r.resv, at, at + duration)
    h.first = <int32_t>c.n_planned
    h.n = c.n_out
    h.fresh = 1
    memcpy(&c.planned[h.first], c.out, <size_t>c.n_out * sizeof(Share))
    c.n_planned += c.n_out
    c.n_heads += 1
    for k in range(h.n):
        sh = &c.planned[h.first + k]
        # Reservations that begin during this one keep what they reserved beside it.
        j = c.con_head[sh.node]
        while j >= 0:
            if h.at <= c.cons[j].at < h.until:
                c.cons[j].mem -= sh.mem
                if sh.more:
                    row_add(c.cons[j].extra, sh.extra, -1)
                if same_domain(c.cons[j].domain, domain_of(c, r.resv)):
                    c.cons[j].cpus -= sh.cpus
                    c.cons[j].same -= sh.cpus
                    con_less(&c.cons[j], sh)
            j = c.cons[j].next
        strict = 2 if r.milli else (
            r.island or ((r.gtype >= 0 or (r.rare != NULL and r.rare.n_kinds))
                         and c.mixed[c.layout[sh.node]])
        )
        parts = has_parts(c, sh.node)
        cpus = c.then.cpus[sh.node]
        free_ = c.then.gpus[sh.node]
        mem = c.then.mem[sh.node]
        if c.w_on:
            window_fit(c, &c.then, r, sh.node, &cpus, &free_, &mem)
        con = &c.cons[c.n_cons]
        con.node = sh.node
        con.at = at
        con.head = me
        con.domain = domain_of(c, r.resv)
        con.cpus = 0 if sh.own else <int32_t>(cpus - lot_fresh(c, &c.then, sh))
        con.lot = r.lot
        con.same = con.cpus
        if r.lot:
            con.same = <int32_t>(cpus + lot_joins(c, &c.then, r, sh.node) - sh.cpus)
        con.mem = mem - sh.mem
        if c.then.extra != NULL:
            memcpy(con.extra, extra_row(c.then.extra, sh.node), sizeof(con.extra))
            if sh.more:
                row_add(con.extra, sh.extra, -1)
        con.free = free_
        # Where windows keep GPUs, those of a planned job are kept by themselves: a number would
        # count the ones that only some jobs may use.
        con.gpus = MAX_COUNT if parts else gs_pop(con.free)
        con.strict = 0
        con_less(con, sh)
        con.strict = strict if strict else (1 if parts else 0)
        con.mask = sh.mask if con.strict else 0
        if strict == 2:
            con.kind = r.kind
            con.room = parts_of(c, sh.node, gs_ctz(sh.mask)) - r.milli
            if c.then.frac[sh.node] & sh.mask:
                con.room -= c.then.took[<size_t>sh.node * MAX_GPUS + gs_ctz(sh.mask)]
        con.next = c.con_head[sh.node]
        c.con_head[sh.node] = c.n_cons
        c.n_cons += 1
    return 1
