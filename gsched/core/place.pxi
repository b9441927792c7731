# Placement: whether a node can hold a part of a request, which nodes are taken, what each gets.

cdef struct Fit:
    int64_t t                # most tasks that the node can hold
    int64_t g                # most GPUs that it can give (requests for GPUs in all)
    uint64_t mask            # GPUs to choose from
    int64_t cpus             # beside what is reserved
    int64_t mem


cdef inline uint64_t pool(Cluster* c, State* s, Req* r, int i) noexcept nogil:
    """GPUs of node i that r may choose from: of its type, free, or with room for its share."""
    cdef uint64_t mask = share_pool(c, s, r, i) if r.milli else s.gpus[i]
    if r.gtype >= 0 or r.rare != NULL:
        mask &= type_mask(c, r, i)
    return mask


cdef inline int usable_threads(Cluster* c, Req* r, int i) noexcept nogil:
    return imin(r.tpc, c.threads[i]) if r.tpc else c.threads[i]


cdef inline int fit_in(Cluster* c, Req* r, int i, int64_t cpus, int64_t mem, uint64_t mask,
                       int gfree, Fit* o) noexcept nogil:
    """Whether node i, with so much free, can hold the smallest part of r; the most it can hold."""
    cdef int64_t cores, avail, t, g = 0
    if cpus <= 0:
        return 0
    if r.excl and cpus < c.cpus[i]:
        return 0
    cores = cpus // c.threads[i]
    if r.mem_cpu > 0:
        if mem <= 0:
            return 0
        cores = lmin(cores, mem // r.mem_cpu // usable_threads(c, r, i))
    elif r.mem_node == 0:
        if mem < c.mem[i]:
            return 0
    elif r.mem_node > 0:
        if mem < r.mem_node:
            return 0
    avail = cores * usable_threads(c, r, i)
    if avail < r.mincpus:
        return 0
    if r.gpu:
        g = gfree
        if r.island:
            g = imin(<int>g, largest_island(&c.links[c.cls[i]], mask))
        if r.mem_gpu > 0:
            g = lmin(g, lmax(mem, 0) // r.mem_gpu)
        if r.cpg > 0:
            g = lmin(g, avail // r.cpg)
        if r.gpn:
            if g < r.gpn:
                return 0
            g = r.gpn
        if g < 1:
            return 0
    if r.overcommit:
        t = MAX_COUNT if avail >= r.cpt else 0
    else:
        t = avail // r.cpt
    if r.tpn and t > r.tpn:
        t = r.tpn
    if r.gpt and t > g // r.gpt:
        t = g // r.gpt
    if r.rare != NULL and not rare_fit(c, r, i, cores, mask, &t, &g):
        return 0
    if t < r.tmin:
        return 0
    o.t = t if r.ntasks else r.tmin
    o.g = g
    o.mask = mask
    o.cpus = cpus
    o.mem = mem
    return 1


cdef inline int owner_fits(State* s, Req* r, int i) noexcept nogil:
    """Whether nobody's jobs on node i keep out those of r, or would have to be kept out."""
    return s.owner[i] == r.own or (r.own and s.jobs[i] == 0)


cdef inline int fit(Cluster* c, State* s, Req* r, int i, int64_t end, Fit* o) noexcept nogil:
    """The same for what node i has free in s; `end` > 0: reservations before it are respected."""
    if not fit_counts(c, s, r, i, end, o):
        return 0
    return r.rare == NULL or near_fit(c, s, r, i, o)


cdef int fit_counts(Cluster* c, State* s, Req* r, int i, int64_t end, Fit* o) noexcept nogil:
    """fit() by numbers, wherever the cores lie."""
    cdef int64_t cpus = s.cpus[i], mem = s.mem[i]
    cdef uint64_t mask = 0
    cdef int gfree = 0, k, hit = 0
    cdef Con* con
    if (r.alone and s.jobs[i]) or not owner_fits(s, r, i) or not extra_fits(s, r, i):
        return 0
    if r.odd:
        cpus = odd_cpus(c, s, r, i, &mem)
    if r.gpu:
        mask = pool(c, s, r, i)
    if c.w_on and not window_fit(c, s, r, i, &cpus, &mask, &mem):
        return 0
    if r.gpu:
        gfree = gs_pop(mask)
    if not fit_in(c, r, i, cpus, mem, mask, gfree, o):
        return 0
    if end <= 0:
        return 1
    if c.book.on:
        return fit_planned(c, r, i, end, cpus, mem, mask, o) if c.book.any[i] else 1
    if c.con_head[i] < 0:
        return 1
    k = c.con_head[i]
    while k >= 0:
        con = &c.cons[k]
        if con.at < end:
            if r.own or (r.more and not row_holds(con.extra, r.extra)):
                # Nobody would be left beside it, or too little of what is counted.
                c.cut = 1
                return 0
            hit = 1
            mem = lmin(mem, con.mem)
            if r.caps:
                cpus = lmin(cpus, caps_left(r, con.extra))
            if not same_domain(con.domain, domain_of(c, r.resv)):
                k = con.next
                continue
            cpus = lmin(cpus, con.same if r.lot and r.lot == con.lot else con.cpus)
            if con.strict == 1 or (con.strict == 2 and (r.milli == 0 or con.room < r.milli)):
                mask &= ~con.mask
            if con.strict == 2 and r.one_shared and con.kind == r.kind:
                mask &= con.mask
            if r.milli == 0:
                gfree = imin(gfree, con.gpus)
            elif con.gpus < 1:
                mask &= ~con.free
        k = con.next
    if not hit:
        return 1
    gfree = imin(gfree, gs_pop(mask))
    k = <int>o.t
    hit = <int>o.g
    if not fit_in(c, r, i, cpus, mem, mask, gfree, o):
        c.cut = 1
        return 0
    if o.t < k or o.g < hit:
        c.cut = 1
    return 1


cdef int fit_planned(Cluster* c, Req* r, int i, int64_t end, int64_t cpus, int64_t mem,
                     uint64_t mask, Fit* o) noexcept nogil:
    """The same of so much (what windows leave) beside what the conservative plan keeps on node i
    until `end`."""
    cdef Seg sum_
    cdef Parts parts
    cdef int64_t t = o.t, g = o.g
    cdef int32_t row[EXTRAS]
    seg_window_of(c, r, line_of(c, r, i), i, c.book.now, end, &sum_, &parts)
    if sum_.planned == 0:
        # Lines know the cores of one lot alone: beside what runs there may be more.
        return 1
    if r.own:
        # Beside what runs it may be: that is its owner's.
        c.cut = 1
        return 0
    if r.more and c.book.more:
        rows_least(&c.book, line_of(c, r, i), c.book.now, end, row)
        if not row_holds(row, r.extra):
            c.cut = 1
            return 0
    if r.milli:
        mask &= sum_.gpus
    else:
        mask &= ~(sum_.kept | sum_.frac)
    if (r.alone and sum_.jobs) or not fit_in(
        c, r, i, lmin(cpus, sum_.cpus), lmin(mem, sum_.mem), mask, gs_pop(mask) if r.gpu else 0, o
    ):
        c.cut = 1
        return 0
    if o.t < t or o.g < g:
        c.cut = 1
    return 1


cdef int64_t cpu_need(Req* r, int64_t t, int64_t g) noexcept nogil:
    cdef int64_t need = r.cpt if r.overcommit else t * r.cpt
    need = lmax(need, g * r.cpg)
    return lmax(need, r.mincpus)


cdef inline uint64_t whole_gpus(Cluster* c, Req* r, int i, uint64_t mask, int64_t g) noexcept nogil:
    """The g GPUs that r gets of those it may choose from."""
    if g <= 0:
        return 0
    if r.rare != NULL and r.rare.n_kinds:
        return kinds_gpus(c, r, i, mask, g, NULL)
    if r.island:
        return best_on_island(&c.links[c.cls[i]], mask, <int>g)
    return best_gpus(&c.links[c.cls[i]], mask, <int>g)


cdef void share_out(Cluster* c, State* s, Req* r, int i, Fit* f, int64_t t, int64_t g,
                    int32_t* deal, Share* o) noexcept nogil:
    """What node i gives for t tasks and g GPUs; deal: of each type so many."""
    cdef int64_t cores = cores_need(c, r, i, t, g)
    o.node = i
    o.tasks = <int32_t>t
    o.cpus = <int32_t>(cores * c.threads[i])
    o.mask = 0
    o.cut = 0
    o.milli = r.milli
    o.own = r.own
    o.more = r.more | <int32_t>r.caps << 1
    o.lot = r.lot
    if r.more:
        memcpy(o.extra, r.extra, sizeof(o.extra))
    if r.milli:
        o.mask = best_share(c, s, r, i, f.mask, o.cpus)
    elif r.excl:
        o.cpus = c.cpus[i]
        cores = o.cpus // c.threads[i]
        o.mask = s.gpus[i]
    elif deal != NULL:
        o.mask = kinds_gpus(c, r, i, f.mask, g, deal)
    else:
        o.mask = whole_gpus(c, r, i, f.mask, g)
    if c.dmap[i] and not r.excl and not r.milli:
        o.mask = near_prefer(c, s, r, i, f.mask, o.mask, cores, deal)
        if r.rare != NULL and r.rare.bind == 2 and (s == &c.now or c.near_now):
            near_anywhere(c, o)
    o.gpus = gs_pop(o.mask)
    if r.mem_cpu > 0:
        o.mem = r.mem_cpu * cores * usable_threads(c, r, i)
    elif r.mem_node == 0:
        o.mem = c.mem[i]
    elif r.mem_node > 0:
        o.mem = r.mem_node
    elif r.mem_gpu > 0:
        o.mem = r.mem_gpu * g
    else:
        o.mem = 0
    if r.excl and o.mem > c.mem[i]:
        o.mem = c.mem[i]


cdef inline int consider(Cluster* c, State* s, Req* r, int i, int64_t end, int64_t need_t,
                         int64_t need_g, int n) noexcept nogil:
    """Append node i to the candidates if it can hold need_t tasks and need_g GPUs; their number."""
    cdef Fit f
    if c.mark[i] or not fit(c, s, r, i, end, &f):
        return n
    if f.t < need_t or f.g < need_g:
        return n
    c.cand[n] = i
    c.cand_t[n] = <int32_t>f.t
    c.cand_g[n] = <int32_t>f.g
    return n + 1


cdef int walk_bucket(Cluster* c, State* s, Req* r, Filter* fl, int b, int64_t end, int64_t need_t,
                     int64_t need_g, int limit, int n) noexcept nogil:
    """Candidates of one bucket in order of rank."""
    cdef uint64_t* bits = s.bucket[b]
    cdef uint64_t* own = own_nodes(c, r)
    cdef uint64_t sm, x
    cdef int sw, w
    for sw in range(c.sums):
        sm = bits[c.words + sw]
        while sm:
            w = (sw << 6) + gs_ctz(sm)
            sm &= sm - 1
            x = bits[w] & fl.bits[w]
            if own != NULL:
                x &= own[w]
            while x:
                n = consider(c, s, r, c.node_of[(w << 6) + gs_ctz(x)], end, need_t, need_g, n)
                if n >= limit:
                    return n
                x &= x - 1
    return n


cdef int walk_gpu(Cluster* c, State* s, Req* r, int64_t end, int64_t want_g, int64_t need_t,
                  int64_t need_g, int limit) noexcept nogil:
    """Up to `limit` nodes for want_g GPUs, best first: those with an island that holds them all
    before others; then the fewest free GPUs; then the smallest island that suffices (the largest
    of those that do not); then weight and number. Cost: buckets in use + candidates looked at."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef int f, l, n = 0, g = <int>lmin(lmax(want_g, 1), GRID)
    for f in range(g, GRID):
        if s.filled[f] == 0:
            continue
        for l in range(g, f + 1):
            if s.filled[f] >> (l - 1) & 1:
                n = walk_bucket(c, s, r, fl, f * GRID + l, end, need_t, need_g, limit, n)
                if n >= limit:
                    return n
    if r.island:
        return n
    for f in range(g, GRID):
        if s.filled[f] == 0:
            continue
        for l in range(imin(g - 1, f), 0, -1):
            if s.filled[f] >> (l - 1) & 1:
                n = walk_bucket(c, s, r, fl, f * GRID + l, end, need_t, need_g, limit, n)
                if n >= limit:
                    return n
    return n


cdef void sort_cands(Cluster* c, State* s, int lo, int hi, int by) noexcept nogil:
    """Stable sort of candidates [lo, hi): 0 fewest free CPUs; 1 most tasks;
    2 most GPUs, then most tasks; 3 the highest score. Cost: n log n."""
    cdef int i, j, n = hi - lo
    cdef Entry* a
    cdef Entry* b
    if n < 2:
        return
    a = <Entry*>malloc(2 * <size_t>n * sizeof(Entry))
    if a == NULL:
        s.failed = 1
        return
    b = a + n
    for i in range(n):
        j = lo + i
        if by == 0:
            a[i].priority = -<int64_t>s.cpus[c.cand[j]]
            a[i].order = 0
        elif by == 1:
            a[i].priority = c.cand_t[j]
            a[i].order = 0
        elif by == 3:
            a[i].priority = c.cand_s[j]
            a[i].order = 0
        else:
            a[i].priority = c.cand_g[j]
            a[i].order = -<int64_t>c.cand_t[j]
        a[i].key = i
        a[i].slot = i
    sort_entries(a, b, n)
    for i in range(n):
        b[i].slot = c.cand[lo + i]
        b[i].order = c.cand_t[lo + i]
        b[i].key = c.cand_g[lo + i]
    for i in range(n):
        j = a[i].slot
        c.cand[lo + i] = b[j].slot
        c.cand_t[lo + i] = <int32_t>b[j].order
        c.cand_g[lo + i] = <int32_t>b[j].key
    free(a)


cdef int weight_end(Cluster* c, int lo, int64_t weight) noexcept nogil:
    cdef int a = lo, b = c.n, m
    if c.weight[c.node_of[b - 1]] == weight:
        return b
    while b - a > 1:
        m = (a + b) // 2
        if c.weight[c.node_of[m]] == weight:
            a = m
        else:
            b = m
    return b


cdef int walk_cpu(Cluster* c, State* s, Req* r, int64_t end, int64_t need_t,
                  int limit) noexcept nogil:
    """Up to `limit` nodes for a request without GPUs, best first: lowest weight, fewest free GPUs,
    fewest free CPUs, lowest number. Cost: candidates of the first (weight, free GPUs) that do."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef int lo = 0, hi, f, l, w, n = 0, start, rank, i, best
    cdef uint64_t* own = own_nodes(c, r)
    cdef uint64_t x, m
    cdef int64_t weight
    while lo < c.n and n < limit:
        weight = c.weight[c.node_of[lo]]
        # Ranks [lo, hi) have this weight: a binary search, as there may be many weights or one.
        hi = weight_end(c, lo, weight)
        for f in range(GRID):
            if s.filled[f] == 0:
                continue
            start = n
            for w in range(lo >> 6, ((hi - 1) >> 6) + 1):
                x = 0
                m = s.filled[f]
                while m:
                    l = gs_ctz(m) + 1 if f else 0
                    m &= m - 1
                    x |= s.bucket[f * GRID + l][w]
                x &= fl.bits[w]
                if own != NULL:
                    x &= own[w]
                if w == lo >> 6:
                    x &= ~low_bits(lo & 63)
                if w == hi >> 6:
                    x &= low_bits(hi & 63)
                while x:
                    n = consider(c, s, r, c.node_of[(w << 6) + gs_ctz(x)], end, need_t, 0, n)
                    x &= x - 1
            if n > start:
                if limit - start == 1:
                    best = start
                    for i in range(start + 1, n):
                        if s.cpus[c.cand[i]] < s.cpus[c.cand[best]]:
                            best = i
                    c.cand[start] = c.cand[best]
                    c.cand_t[start] = c.cand_t[best]
                    c.cand_g[start] = c.cand_g[best]
                    return start + 1
                sort_cands(c, s, start, n, 0)
                if n >= limit:
                    return limit
        lo = hi
    return imin(n, limit)


cdef int walk(Cluster* c, State* s, Req* r, int64_t end, int64_t want_g, int64_t need_t,
              int64_t need_g, int limit) noexcept nogil:
    if limit <= 0:
        return 0
    if r.policy:
        return walk_ranked(c, s, r, end, want_g, need_t, need_g, limit)
    if r.gpu:
        return walk_gpu(c, s, r, end, want_g, need_t, need_g, limit)
    return walk_cpu(c, s, r, end, need_t, limit)


cdef void deal_out(Cluster* c, State* s, Req* r, int64_t end, int n, int64_t tasks) noexcept nogil:
    """Tasks as evenly as the n candidates hold them, into cand_t. Cost: nodes x log(tasks)."""
    cdef int64_t lo = 1, hi = 1, mid, sum_
    cdef Fit f
    cdef int i
    for i in range(n):
        fit(c, s, r, c.cand[i], end, &f)
        c.cand_t[i] = <int32_t>f.t
        hi = lmax(hi, f.t)
    # The lowest bound under which all have a place.
    while lo < hi:
        mid = (lo + hi) // 2
        sum_ = 0
        for i in range(n):
            sum_ += lmin(c.cand_t[i], mid)
        if sum_ >= tasks:
            hi = mid
        else:
            lo = mid + 1
    for i in range(n):
        tasks -= lmin(c.cand_t[i], lo - 1)
    for i in range(n):
        if c.cand_t[i] >= lo and tasks > 0:
            tasks -= 1
            c.cand_t[i] = <int32_t>lo
        else:
            c.cand_t[i] = <int32_t>lmin(c.cand_t[i], lo - 1)


cdef int finish(Cluster* c, State* s, Req* r, int64_t end, int n) noexcept nogil:
    """Tasks and GPUs over the n chosen candidates, in order of node number."""
    cdef int i, j, left
    cdef int64_t tasks = lmax(r.ntasks, n), gpus = r.gtotal, t, g
    cdef Fit f
    cdef Entry* a
    if n > 1:
        a = <Entry*>malloc(2 * <size_t>n * sizeof(Entry))
        if a == NULL:
            s.failed = 1
            return 0
        for i in range(n):
            a[i].priority = 0
            a[i].order = c.cand[i]
            a[i].key = 0
            a[i].slot = c.cand[i]
        sort_entries(a, a + n, n)
        for i in range(n):
            c.cand[i] = a[i].slot
        free(a)
    if r.rare != NULL and not rare_deal(c, s, r, end, n):
        return 0
    if r.spread and r.ntasks:
        deal_out(c, s, r, end, n, tasks)
    for i in range(n):
        j = c.cand[i]
        left = n - 1 - i
        if not fit(c, s, r, j, end, &f):
            return 0
        if r.spread and r.ntasks:
            t = c.cand_t[i]
        elif r.ntasks:
            # Fill node after node, but leave one task for each that follows.
            t = lmin(f.t, tasks - left)
            tasks -= t
        else:
            t = r.tmin
        if r.gtotal:
            g = lmin(f.g, gpus - left)
            gpus -= g
        elif r.gpn:
            g = r.gpn
        else:
            g = t * r.gpt
        if r.rare != NULL:
            rare_shares(r, i, &t, &g)
        share_out(c, s, r, j, &f, t, g, dealt(r, i), &c.out[i])
        if near_wanted(r) and not near_choose(c, s, r, j, &f, t, g, dealt(r, i), &c.out[i]):
            return 0
        if r.caps:
            caps_take(r, &c.out[i])
    c.n_out = n
    return 1


cdef int bounds(Cluster* c, Req* r, int* lower, int* upper) noexcept nogil:
    """How many nodes r is for: at least, at most, and how many it gets if there are as many."""
    cdef int want
    lower[0] = r.min_nodes if r.min_nodes > r.n_must else r.n_must
    upper[0] = r.max_nodes if r.max_nodes else c.n
    if r.cap_nodes and upper[0] > r.cap_nodes:
        upper[0] = r.cap_nodes
    if r.gtotal and upper[0] > r.gtotal:
        upper[0] = r.gtotal
    want = lower[0] if r.max_nodes == 0 or r.gtotal or r.few else upper[0]
    if r.spread and not r.few:
        want = upper[0]
        if not r.max_nodes and not r.gtotal:
            want = imin(want, r.ntasks if r.ntasks > lower[0] else lower[0])
    return want


cdef int place(Cluster* c, State* s, Req* r, int64_t end) noexcept nogil:
    """Nodes for r from what s has free, into c.out. 1, or 0 when it does not fit.

    As few nodes as hold it when max_nodes is 0 or GPUs are asked in all; else as many as max_nodes
    allows. First the nodes that walk() likes best; when these cannot hold all tasks or GPUs, the
    ones that can hold most.
    """
    cdef int k, lower, upper, want, ok, level = 1
    cdef int top = lot_top(c, s, r.lot) if r.lot else 0
    if r.keep and s == &c.now:
        keep_refresh(c, r)
    c.cut = 0
    c.w_cut = 0
    c.n_out = 0
    filter_refresh(c, &c.filters[r.filter])
    if policy_refresh(c, r):
        s.failed = 1
        return 0
    for k in range(r.n_must):
        c.mark[r.must[k]] = 1
    want = bounds(c, r, &lower, &upper)
    ok = 0
    while lower <= upper and lower <= c.n:
        if r.lot:
            # Cores that nobody holds before those of others, and with few before many.
            r.level = level
        if r.rare != NULL and r.rare.n_variants:
            ok = choose_variant(c, s, r, end, lower, upper, want)
        else:
            ok = choose(c, s, r, end, lower, upper, want)
        if ok or level >= r.most or level > top:
            break
        level += 1
    r.level = r.most
    for k in range(r.n_must):
        c.mark[r.must[k]] = 0
    return ok


cdef int choose(Cluster* c, State* s, Req* r, int64_t end, int lower, int upper,
                int want) noexcept nogil:
    cdef Filter* fl = &c.filters[r.filter]
    cdef Fit f
    cdef int64_t t_in = 0, g_in = 0, t, g, want_g
    cdef int k, i, n
    # The nodes that must be in it.
    for k in range(r.n_must):
        i = r.must[k]
        if not fl.bits[c.rank[i] >> 6] >> (c.rank[i] & 63) & 1 or not s.usable[i]:
            return 0
        if not fit(c, s, r, i, end, &f):
            return 0
        t_in += f.t
        g_in += f.g
    if by_number(r):
        return choose_by_number(c, s, r, end, lower, upper, want)
    if want == 1:
        if r.n_must:
            if t_in >= r.ntasks and g_in >= r.gtotal:
                c.cand[0] = r.must[0]
                return finish(c, s, r, end, 1)
        else:
            want_g = r.gpn
            if r.gtotal:
                want_g = r.gtotal
            elif r.gpt and not r.gpn:
                want_g = <int64_t>r.gpt * lmax(r.ntasks, r.tmin)
            if walk(c, s, r, end, want_g, r.ntasks, r.gtotal, 1) == 1:
                return finish(c, s, r, end, 1)
    elif is_gang(c, r):
        return gang(c, s, r, end, lower, upper, want, t_in, g_in)
    else:
        n = walk(c, s, r, end, smallest_gpus(r), 0, 0, want - r.n_must)
        t = t_in
        g = g_in
        for k in range(n):
            t += c.cand_t[k]
            g += c.cand_g[k]
        if n + r.n_must >= lower and t >= r.ntasks and (not r.gtotal or g >= r.gtotal):
            for k in range(r.n_must):
                c.cand[n + k] = r.must[k]
            return finish(c, s, r, end, n + r.n_must)
    if (r.ntasks == 0 and not r.gtotal) or upper <= 1:
        return 0
    if is_gang(c, r):
        return gang(c, s, r, end, lower, upper, 0, t_in, g_in)
    # The largest first: the fewest nodes that hold it.
    n = walk(c, s, r, end, smallest_gpus(r), 0, 0, c.n - r.n_must)
    if n == 0 and lower > r.n_must:
        return 0
    sort_cands(c, s, 0, n, 2 if r.gtotal else 1)
    t = t_in
    g = g_in
    k = 0
    while True:
        if k + r.n_must >= lower and t >= r.ntasks and (not r.gtotal or g >= r.gtotal):
            break
        if k >= n or k + r.n_must >= upper:
            return 0
        t += c.cand_t[k]
        g += c.cand_g[k]
        k += 1
    for i in range(r.n_must):
        c.cand[k + i] = r.must[i]
    return finish(c, s, r, end, k + r.n_must)


cdef inline int smallest_gpus(Req* r) noexcept nogil:
    """GPUs that a node must give at least."""
    if r.gtotal:
        return 1
    return r.gpn if r.gpn else <int>lmin(<int64_t>r.gpt * r.tmin, GRID)
