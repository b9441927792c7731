# The conservative plan: what each node has free over time, and when every waiting job will start.
#
# A node's time is a list of segments, the first from now on. The first jobs of the queue are laid
# into them exactly: whole nodes' worth of GPUs (the same ones throughout), CPUs and memory
# together. The jobs behind them are laid into a skyline: GPUs and CPUs of a partition in all, by
# slots of time; they get a time before which they will not start.


cdef int64_t next_event(Cluster* c, Req* r, int64_t at) noexcept nogil:
    """The first time after `at` at which a node of the filter changes; FOREVER: none."""
    cdef Book* b = &c.book
    cdef Filter* fl = &c.filters[r.filter]
    cdef int64_t best = FOREVER
    cdef uint64_t x
    cdef int32_t k
    cdef int w, i
    for w in range(c.words):
        x = fl.bits[w]
        while x:
            i = c.node_of[(w << 6) + gs_ctz(x)]
            x &= x - 1
            i = line_of(c, r, i)
            k = b.head[i] if i >= 0 else -1
            while k >= 0 and b.segs[k].at <= at:
                k = b.segs[k].next
            if k >= 0 and b.segs[k].at < best:
                best = b.segs[k].at
    return best


cdef int plan_choose(Cluster* c, Req* r, int64_t at, int64_t duration, int lower, int upper,
                     int want, int keep, int64_t need_t, int64_t need_g) noexcept nogil:
    """Nodes for r throughout [at, at + duration), into c.out: those first in order of weight and
    number, else those that hold most, as in choose(). 1, or 0."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef State* s = &c.then
    cdef uint64_t* early = c.book.early
    cdef Seg sum_
    cdef Parts parts
    cdef Fit f
    cdef uint64_t x
    cdef int64_t t = 0, g = 0, t_in = 0, g_in = 0
    cdef int64_t until = until_of(c, r.resv, at, at + duration)
    cdef int w, i, k, n = 0, most = c.n
    c.then_is = 0
    s.told = 1
    c.near_now = at == c.book.now
    if by_number(r):
        pass
    elif upper == 1 or (r.ntasks == 0 and not r.gtotal and not is_gang(c, r)):
        # The first ones do: nobody has to hold more than another.
        most = want - r.n_must
    for k in range(r.n_must):
        i = r.must[k]
        if not fl.bits[c.rank[i] >> 6] >> (c.rank[i] & 63) & 1 or not c.now.usable[i]:
            return 0
        if line_of(c, r, i) < 0:
            return 0
        seg_window_of(c, r, line_of(c, r, i), i, at, until, &sum_, &parts)
        if not seg_fit(c, r, i, &sum_, 0, 0, &f):
            return 0
        plan_state(c, s, r, i, &sum_, &parts)
        plan_rows(c, s, r, i, at, until)
        if not extra_fits(s, r, i):
            return 0
        if r.rare != NULL and not near_fit(c, s, r, i, &f):
            return 0
        t_in += f.t
        g_in += f.g
    if n < most:
        firsts_by(c, r, keep, at, need_t, need_g, early)
    for w in range(2 * c.words if c.book.busy else c.words):
        x = 0
        if n < most:
            x = early[w] & fl.bits[w] if w < c.words else early[w - c.words] & fl.bits[w - c.words]
        while x and n < most:
            i = c.node_of[((w if w < c.words else w - c.words) << 6) + gs_ctz(x)]
            x &= x - 1
            if not c.now.usable[i] or c.mark[i]:
                continue
            if c.book.busy and (c.now.jobs[i] == 0) == (w < c.words):
                continue
            if line_of(c, r, i) < 0:
                continue
            seg_window_of(c, r, line_of(c, r, i), i, at, until, &sum_, &parts)
            if not seg_fit(c, r, i, &sum_, need_t, need_g, &f):
                continue
            plan_state(c, s, r, i, &sum_, &parts)
            plan_rows(c, s, r, i, at, until)
            if not extra_fits(s, r, i):
                continue
            if r.rare != NULL and not near_fit(c, s, r, i, &f):
                continue
            if f.t < need_t or f.g < need_g:
                continue
            c.cand[n] = i
            c.cand_t[n] = <int32_t>f.t
            c.cand_g[n] = <int32_t>f.g
            n += 1
    if by_number(r):
        return picked(c, s, r, 0, n, lower, upper, want)
    if want == 1 and r.n_must:
        if t_in >= r.ntasks and g_in >= r.gtotal:
            c.cand[0] = r.must[0]
            return finish(c, s, r, 0, 1)
    elif want == 1:
        for k in range(n):
            if c.cand_t[k] >= r.ntasks and c.cand_g[k] >= r.gtotal:
                c.cand[0] = c.cand[k]
                return finish(c, s, r, 0, 1)
    elif is_gang(c, r):
        return gang_planned(c, r, n, lower, upper, want, t_in, g_in)
    else:
        t = t_in
        g = g_in
        for k in range(imin(n, want - r.n_must)):
            t += c.cand_t[k]
            g += c.cand_g[k]
        k = imin(n, want - r.n_must)
        if k + r.n_must >= lower and t >= r.ntasks and (not r.gtotal or g >= r.gtotal):
            for i in range(r.n_must):
                c.cand[k + i] = r.must[i]
            return finish(c, s, r, 0, k + r.n_must)
    if (r.ntasks == 0 and not r.gtotal) or upper <= 1:
        return 0
    if is_gang(c, r):
        return gang_planned(c, r, n, lower, upper, 0, t_in, g_in)
    sort_cands(c, s, 0, n, 2 if r.gtotal else 1)
    t = t_in
    g = g_in
    k = 0
    while k + r.n_must < lower or t < r.ntasks or (r.gtotal and g < r.gtotal):
        if k >= n or k + r.n_must >= upper:
            return 0
        t += c.cand_t[k]
        g += c.cand_g[k]
        k += 1
    for i in range(r.n_must):
        c.cand[k + i] = r.must[i]
    return finish(c, s, r, 0, k + r.n_must)


cdef inline void plan_state(Cluster* c, State* s, Req* r, int i, Seg* g, Parts* p) noexcept nogil:
    s.cpus[i] = g.cpus
    s.mem[i] = g.mem
    if r.milli:
        parts_state(s, i, p)
    else:
        s.gpus[i] = g.gpus
        s.frac[i] = 0
    s.jobs[i] = g.jobs
    s.owner[i] = 0


cdef inline void plan_rows(Cluster* c, State* s, Req* r, int i, int64_t at,
                           int64_t until) noexcept nogil:
    """The counted resources of a node throughout [at, until), where somebody asks for them."""
    if r.more and c.book.more:
        rows_least(&c.book, line_of(c, r, i), at, until, extra_row(s.extra, i))


cdef inline void latest_down(int64_t* a, int n) noexcept nogil:
    """Of a heap of n times whose top is the latest: the top is another one now."""
    cdef int64_t v = a[0]
    cdef int p = 0, child = 1
    while child < n:
        if child + 1 < n and a[child + 1] > a[child]:
            child += 1
        if a[child] <= v:
            break
        a[p] = a[child]
        p = child
        child = 2 * p + 1
    a[p] = v


cdef inline void latest_up(int64_t* a, int p) noexcept nogil:
    cdef int64_t v = a[p]
    while p and a[(p - 1) >> 1] < v:
        a[p] = a[(p - 1) >> 1]
        p = (p - 1) >> 1
    a[p] = v


cdef inline int parts_add(Cluster* c, Req* r, int i, int64_t at, int64_t duration, int k, int n,
                          int64_t bound, int64_t need_t, int64_t need_g) noexcept nogil:
    """Node i to the earliest k, of which n are there; how many are there then."""
    cdef int64_t* a = c.book.at
    cdef int64_t e = node_start(c, r, i, at, duration, bound, need_t, need_g)
    if e >= bound:
        return n
    if n < k:
        a[n] = e
        latest_up(a, n)
        return n + 1
    a[0] = e
    latest_down(a, n)
    return n


cdef int64_t parts_start(Cluster* c, Req* r, int64_t at, int64_t last, int64_t duration, int k,
                         int keep, int64_t need_t, int64_t need_g) noexcept nogil:
    """The first time in [at, last] at which k nodes, each by itself, could begin to hold a part of
    r; -1: none. Cost: nodes that could begin by then at all; all nodes without a heap."""
    cdef Book* b = &c.book
    cdef Firsts* f = &r.firsts
    cdef uint64_t* bits = c.filters[r.filter].bits
    cdef int64_t bound = last + 1
    cdef uint64_t x
    cdef int w, i, p, n = 0, head = 0, tail = 0
    if not keep:
        for w in range(c.words):
            x = bits[w]
            while x:
                i = c.node_of[(w << 6) + gs_ctz(x)]
                x &= x - 1
                if c.now.usable[i] and not c.mark[i]:
                    n = parts_add(c, r, i, at, duration, k, n, bound, need_t, need_g)
                    if n == k:
                        bound = b.at[0]
        return b.at[0] if n == k else -1
    # By levels of the heap, which is nearly in order of time.
    if f.n >= k:
        b.list[0] = 0
        tail = 1
    while head < tail and bound > at:
        p = b.list[head]
        head += 1
        while f.at[f.heap[p]] < bound:
            if not firsts_true(c, r, p, need_t, need_g):
                continue
            i = f.heap[p]
            if not c.mark[i]:
                n = parts_add(c, r, i, lmax(at, f.at[i]), duration, k, n, bound, need_t, need_g)
                if n == k:
                    bound = b.at[0]
            if 2 * p + 1 < f.n:
                b.list[tail] = 2 * p + 1
                tail += 1
            if 2 * p + 2 < f.n:
                b.list[tail] = 2 * p + 2
                tail += 1
            break
    return b.at[0] if n == k else -1


cdef int64_t plan_search(Cluster* c, Req* r, int64_t duration, int first) noexcept nogil:
    """The earliest time at which r fits for its duration beside all that is planned, with the
    answer in c.out; -1 when that is not within the window, which does not bound the first of a
    partition. Cost: nodes for each time tried."""
    cdef Book* b = &c.book
    cdef Filter* fl = &c.filters[r.filter]
    cdef int64_t at = b.now, e, need_t = 0, need_g = 0
    cdef int64_t last = b.now + (lmax(b.window, 2 * YEAR) if first else b.window)
    cdef int lower, upper, want, k, keep, tries = 0, ok
    filter_refresh(c, fl)
    if policy_refresh(c, r):
        c.then.failed = 1
        return -1
    want = bounds(c, r, &lower, &upper)
    if lower > upper or lower > c.n:
        return -1
    if upper == 1 and r.n_must == 0:
        need_t = r.ntasks
        need_g = r.gtotal
    # Room only shrinks during a pass: no job starts before a shorter one of its class did.
    if r.plan_pass != c.pass_id or b.keep or r.keeps:
        r.plan_pass = c.pass_id
        memset(r.plan_at, 0, sizeof(r.plan_at))
        memset(r.plan_len, 0, sizeof(r.plan_len))
    for k in range(64):
        if r.plan_len[k] <= duration and r.plan_at[k] > at:
            at = r.plan_at[k]
    for k in range(r.n_must):
        c.mark[r.must[k]] = 1
    # The heaps are of what jobs outside advance reservations see.
    keep = 0 if r.resv >= 0 else firsts_open(c, r)
    ok = -1
    while at <= last and tries < TRIES:
        k = lower - r.n_must
        if k > 0:
            e = parts_start(c, r, at, last, duration, k, keep, need_t, need_g)
            if e < 0:
                break
            if k > 1 and e > at:
                # Some that came free early may not be free any more: the same again from then on.
                at = e
                continue
            at = e
        ok = plan_variant(c, r, at, duration, lower, upper, want, keep, need_t, need_g)
        c.near_now = 0
        if ok:
            break
        ok = -1
        tries += 1
        e = next_event(c, r, at)
        if e == FOREVER:
            break
        at = e
    for k in range(r.n_must):
        c.mark[r.must[k]] = 0
    if ok != 1:
        return -1
    k = 63 - gs_clz(<uint64_t>duration)
    if at > r.plan_at[k] or r.plan_len[k] > duration:
        r.plan_at[k] = at
        r.plan_len[k] = duration
    return at


cdef int64_t plan_start(Cluster* c, Req* r, int64_t duration, int first) noexcept nogil:
    """plan_search(); what windows leave is in the lines of time already."""
    cdef int on = c.w_on
    cdef int64_t at
    c.w_on = W_OFF
    at = plan_search(c, r, duration, first)
    c.w_on = on
    return at


cdef int sky_open(Cluster* c, int group) noexcept nogil:
    """GPUs and CPUs of a partition (bit + 1; 0: all nodes) by slots. Cost: its segments.
    0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef Sky* s = &b.sky[group]
    cdef Seg* g
    cdef int i, j, gpus, cpus, n
    cdef int32_t k
    if s.gpus == NULL:
        s.gpus = <int32_t*>malloc((SLOTS + 1) * sizeof(int32_t))
        s.cpus = <int32_t*>malloc((SLOTS + 1) * sizeof(int32_t))
        if s.gpus == NULL or s.cpus == NULL:
            return -1
    memset(s.gpus, 0, (SLOTS + 1) * sizeof(int32_t))
    memset(s.cpus, 0, (SLOTS + 1) * sizeof(int32_t))
    for i in range(c.n):
        if not c.now.usable[i]:
            continue
        if group and not has_bit(c.parts + <size_t>i * BIT_WORDS, group - 1):
            continue
        gpus = cpus = 0
        k = b.head[i]
        while k >= 0:
            g = &b.segs[k]
            k = g.next
            if g.at - b.now >= b.slot * b.n_slots:
                break
            j = <int>((g.at - b.now) // b.slot)
            n = gs_pop(g.gpus)
            s.gpus[j] += n - gpus
            gpus = n
            n = g.cpus if g.cpus > 0 else 0
            s.cpus[j] += n - cpus
            cpus = n
    for j in range(1, b.n_slots):
        s.gpus[j] += s.gpus[j - 1]
        s.cpus[j] += s.cpus[j - 1]
    s.made = 1
    return 0


cdef void sky_take(Book* b, Sky* s, int64_t j, int64_t slots, int64_t gpus,
                   int64_t cpus) noexcept nogil:
    cdef int64_t k
    for k in range(j, lmin(j + slots, b.n_slots)):
        s.gpus[k] -= <int32_t>gpus
        s.cpus[k] -= <int32_t>cpus


cdef int64_t sky_lay(Cluster* c, Req* r, int64_t duration) noexcept nogil:
    """The time before which r will not start, and what it takes from then on; -1: not within the
    window, -2 without memory. Cost: slots."""
    cdef Book* b = &c.book
    cdef int group = c.filters[r.filter].partition + 1
    cdef Sky* s = &b.sky[group]
    cdef Need need
    cdef int64_t nodes = r.min_nodes if r.min_nodes > r.n_must else r.n_must
    cdef int64_t gpus, cpus, slots, j = 0, k
    if not s.made and sky_open(c, group):
        return -2
    need_of(r, &need)
    gpus = lmax(nodes * need.g, lmax(r.gtotal, <int64_t>r.ntasks * r.gpt)) if r.gpu else 0
    cpus = nodes * need.cpus
    if not r.overcommit:
        cpus = lmax(cpus, <int64_t>r.ntasks * r.cpt)
    slots = lmin((duration + b.slot - 1) // b.slot, b.n_slots)
    # The skyline only sinks during a pass: no later job of the class comes before this one, unless
    # it is shorter.
    if r.sky_pass == c.pass_id and slots >= r.sky_slots:
        j = r.sky_at
    while j < b.n_slots:
        k = lmin(j + slots, b.n_slots) - 1
        while k >= j and s.gpus[k] >= gpus and s.cpus[k] >= cpus:
            k -= 1
        if k < j:
            break
        j = k + 1
    if r.sky_pass != c.pass_id or slots <= r.sky_slots:
        r.sky_pass = c.pass_id
        r.sky_slots = slots
        r.sky_at = j
    if j >= b.n_slots:
        return -1
    sky_take(b, s, j, slots, gpus, cpus)
    return b.now + j * b.slot


cdef inline int unsure(Req* r) noexcept nogil:
    """Whether a reservation knows only by number what its job will need: it may turn out otherwise."""
    return near_wanted(r) or r.lot


cdef int plan_job(Cluster* c, int32_t slot, int64_t now, int64_t duration) noexcept nogil:
    """Find out when a job that does not start now will, and keep that for it. 2: now after all,
    with the answer in c.out; 1; 0: it got no time; -1 without memory."""
    cdef Book* b = &c.book
    cdef Req* r = &c.reqs[c.q_req[slot]]
    cdef int64_t at
    cdef Head* h
    if b.keep == QUICK:
        return quick_plan(c, slot, now, duration)
    c.q_at[slot] = 0
    if c.q_old[slot] >= 0 and b.keep == HOLD and b.old[c.q_old[slot]].at > now:
        h = &b.old[c.q_old[slot]]
        b.n_exact += 1
        c.q_at[slot] = h.at
        c.n_out = h.n
        memcpy(c.out, &b.shares[h.first], <size_t>h.n * sizeof(Share))
        return plan_keep(c, slot, h.at, duration, 0)
    if not limit_may_wait(c, slot):
        return 0
    if (b.n_exact >= b.exact or not may_reserve(c, slot)):
        if confined(c, r.resv):
            at = window_next(c, r.resv, now)
        elif r.milli:
            at = -1
        else:
            at = sky_lay(c, r, duration)
        if at == -2:
            return -1
        c.q_at[slot] = lmax(at, 0)
        return at >= 0
    b.n_exact += 1
    at = plan_start(c, r, duration, not headed(c, r))
    if c.then.failed:
        return -1
    if c.q_old[slot] >= 0:
        h = &b.old[c.q_old[slot]]
        if (at < 0 or at >= h.at) and not unsure(r):
            # What it was promised is still there.
            at = h.at
            c.n_out = h.n
            memcpy(c.out, &b.shares[h.first], <size_t>h.n * sizeof(Share))
    if at < 0:
        return 0
    c.q_at[slot] = at
    if at == now:
        return 2
    return plan_keep(c, slot, at, duration, 1)


cdef int plan_keep(Cluster* c, int32_t slot, int64_t at, int64_t duration, int lay) noexcept nogil:
    """Record what c.out says as a job's reservation. 1, or -1 without memory."""
    cdef Book* b = &c.book
    cdef Head* h
    cdef int k
    if tally_up(c, slot):
        return -1
    if (grow(<void**>&c.heads, &c.heads_cap, c.n_heads + 1, sizeof(Head))
            or grow(<void**>&c.planned, &c.planned_cap, c.n_planned + c.n_out, sizeof(Share))):
        return -1
    h = &c.heads[c.n_heads]
    h.key = c.q_key[slot]
    h.req = c.q_req[slot]
    h.at = at
    h.until = until_of(c, c.reqs[h.req].resv, at, at + duration)
    h.first = <int32_t>c.n_planned
    h.n = c.n_out
    h.fresh = 1
    memcpy(&c.planned[h.first], c.out, <size_t>c.n_out * sizeof(Share))
    near_forget(&c.planned[h.first], c.n_out)
    c.n_planned += c.n_out
    c.n_heads += 1
    for k in range(c.n_out if lay else 0):
        if book_take(c, &c.out[k], c.reqs[h.req].resv, at, h.until, 1):
            return -1
    return 1
