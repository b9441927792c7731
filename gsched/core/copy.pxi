# A copy of a cluster, for a plan that is made while the live one goes on; and what the live one
# takes over of that plan. Every pointer of the structs in types.pxi is named here.


cdef int dup(void** p, int64_t cap, int64_t used, size_t size) noexcept nogil:
    """p points to a copy of what it points to: room for cap, of which `used` come over. 0, or -1
    without memory (it is NULL then)."""
    cdef void* old = p[0]
    p[0] = NULL
    if old == NULL:
        return 0
    # Fresh pages of a large block are zero already, and cost nothing until they are used.
    p[0] = calloc(<size_t>lmax(cap, 1), size)
    if p[0] == NULL:
        return -1
    memcpy(p[0], old, <size_t>used * size)
    return 0


cdef int map_copy(Map* d, Map* s) noexcept nogil:
    d[0] = s[0]
    d.key = NULL
    d.value = NULL
    if s.key == NULL:
        return 0
    d.key = s.key
    d.value = s.value
    if dup(<void**>&d.key, <int64_t>s.mask + 1, <int64_t>s.mask + 1, sizeof(int64_t)):
        d.value = NULL
        return -1
    return dup(<void**>&d.value, <int64_t>s.mask + 1, <int64_t>s.mask + 1, sizeof(int32_t))


cdef int state_copy(Cluster* c, State* d, State* s) noexcept nogil:
    """0, or -1 without memory; state_free() is due in both cases."""
    cdef State o = s[0]
    cdef int b, bad = 0
    memset(d, 0, sizeof(State))
    bad |= dup(<void**>&o.cpus, c.n, c.n, sizeof(int32_t))
    bad |= dup(<void**>&o.mem, c.n, c.n, sizeof(int64_t))
    bad |= dup(<void**>&o.gpus, c.n, c.n, sizeof(uint64_t))
    bad |= dup(<void**>&o.frac, c.n, c.n, sizeof(uint64_t))
    bad |= dup(<void**>&o.took, <int64_t>c.n * MAX_GPUS, <int64_t>c.n * MAX_GPUS, sizeof(uint16_t))
    bad |= dup(<void**>&o.jobs, c.n, c.n, sizeof(int32_t))
    bad |= dup(<void**>&o.owner, c.n, c.n, sizeof(int32_t))
    bad |= dup(<void**>&o.extra, <int64_t>c.n * EXTRAS, <int64_t>c.n * EXTRAS, sizeof(int32_t))
    bad |= dup(<void**>&o.usable, c.n, c.n, 1)
    bad |= dup(<void**>&o.nfree, c.n, c.n, 1)
    bad |= dup(<void**>&o.nisland, c.n, c.n, 1)
    bad |= dup(<void**>&o.room, GRID * (<int64_t>c.topo.n_units + 1),
               GRID * (<int64_t>c.topo.n_units + 1), sizeof(int32_t))
    bad |= dup(<void**>&o.count, GRID * GRID, GRID * GRID, sizeof(int32_t))
    o.bucket = <uint64_t**>calloc(GRID * GRID, sizeof(uint64_t*))
    if o.bucket == NULL:
        bad = -1
    else:
        for b in range(GRID * GRID):
            if s.bucket[b] != NULL and s.count[b]:
                o.bucket[b] = s.bucket[b]
                bad |= dup(<void**>&o.bucket[b], c.words + c.sums, c.words + c.sums,
                           sizeof(uint64_t))
    d[0] = o
    return bad


cdef int links_copy(Links* L) noexcept nogil:
    """L, a shallow copy, becomes a whole one; the answers of best_gpus are found anew."""
    cdef int64_t full = (<int64_t>1) << L.n if L.inside != NULL or L.largest != NULL else 0
    cdef int bad
    L.best = NULL
    bad = dup(<void**>&L.weight, <int64_t>L.n * L.n + 1, <int64_t>L.n * L.n + 1, sizeof(int32_t))
    bad |= dup(<void**>&L.inside, full, full, sizeof(uint32_t))
    bad |= dup(<void**>&L.largest, full, full, 1)
    return bad


cdef int work_copy(Work* w) noexcept nogil:
    cdef int64_t n = w.n_groups, units = 0
    cdef int bad
    if w.fill != NULL:
        units = 2 * (WHOLE // w.unit + 1)
    bad = dup(<void**>&w.size, n + 1, n + 1, sizeof(int32_t))
    bad |= dup(<void**>&w.need, n + 1, n + 1, sizeof(int32_t))
    bad |= dup(<void**>&w.kinds, n * BIT_WORDS + 1, n * BIT_WORDS + 1, sizeof(uint64_t))
    bad |= dup(<void**>&w.sizes, w.n_sizes + 1, w.n_sizes + 1, sizeof(int32_t))
    bad |= dup(<void**>&w.step, w.n_steps + 1, w.n_steps + 1, sizeof(int32_t))
    bad |= dup(<void**>&w.weight, (w.n_steps + 1) * (n + 1), (w.n_steps + 1) * (n + 1),
               sizeof(int64_t))
    bad |= dup(<void**>&w.level, LEVELS, LEVELS, sizeof(int64_t))
    bad |= dup(<void**>&w.masks, w.n_layouts * n, w.n_layouts * n, sizeof(uint64_t))
    bad |= dup(<void**>&w.fill, units, units, sizeof(int64_t))
    return bad


cdef int topo_copy(Cluster* c, Topo* t) noexcept nogil:
    cdef int64_t n = c.n, m = <int64_t>t.n_units + 1, below = 1
    cdef int bad = 0
    if t.high != NULL and t.n_units:
        below = t.high[t.n_units - 1] + 1
    bad |= dup(<void**>&t.leaf, n, n, sizeof(int32_t))
    bad |= dup(<void**>&t.up, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.level, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.low, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.high, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.below, below, below, sizeof(int32_t))
    bad |= dup(<void**>&t.first, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.members, n, n, sizeof(int32_t))
    bad |= dup(<void**>&t.rank_low, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.rank_end, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.loaded, m, m, sizeof(int64_t))
    bad |= dup(<void**>&t.start, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.count, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.held, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.own, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.used, m, m, sizeof(int64_t))
    bad |= dup(<void**>&t.head, n + 1, n + 1, sizeof(int32_t))
    bad |= dup(<void**>&t.next, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.chosen, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.part, m, m, sizeof(int32_t))
    bad |= dup(<void**>&t.pick, n, 0, sizeof(int32_t))
    bad |= dup(<void**>&t.sort, 2 * n + 4 * m, 0, sizeof(Entry))
    return bad


cdef int filters_copy(Cluster* c) noexcept nogil:
    cdef Filter* f
    cdef int k, bad = dup(<void**>&c.filters, c.filters_cap, c.n_filters, sizeof(Filter))
    if bad:
        c.n_filters = 0
        return bad
    for k in range(c.n_filters):
        f = &c.filters[k]
        bad |= dup(<void**>&f.alts, <int64_t>f.n_alts * BIT_WORDS + 1,
                   <int64_t>f.n_alts * BIT_WORDS, sizeof(uint64_t))
        bad |= dup(<void**>&f.exclude, f.n_exclude + 1, f.n_exclude, sizeof(int32_t))
        bad |= dup(<void**>&f.bits, c.words, c.words, sizeof(uint64_t))
    return bad


cdef int rare_copy(Cluster* c, Rare** p) noexcept nogil:
    """p, a shallow copy, becomes a whole one. 0, or -1 without memory (rare_free() is due)."""
    cdef Rare* x
    cdef Variant* v
    cdef int k, groups, alts, bad = 0
    if dup(<void**>p, 1, 1, sizeof(Rare)):
        return -1
    x = p[0]
    if x == NULL:
        return 0
    x.live = NULL
    bad |= dup(<void**>&x.deal, <int64_t>c.n * MAX_KINDS, 0, sizeof(int32_t))
    bad |= dup(<void**>&x.variants, x.n_variants, x.n_variants, sizeof(Variant))
    if x.variants == NULL:
        x.n_variants = 0
    for k in range(x.n_variants):
        v = &x.variants[k]
        groups = v.n_groups + 1
        alts = v.first[v.n_groups] * BIT_WORDS
        bad |= dup(<void**>&v.count, groups, groups, sizeof(int32_t))
        bad |= dup(<void**>&v.first, groups, groups, sizeof(int32_t))
        bad |= dup(<void**>&v.alts, alts + 1, alts, sizeof(uint64_t))
    return bad


cdef int reqs_copy(Cluster* c) noexcept nogil:
    """Scores are not taken along: they are made anew where they are asked for."""
    cdef Req* r
    cdef int k, bad = dup(<void**>&c.reqs, c.reqs_cap, c.n_reqs, sizeof(Req))
    if bad:
        c.n_reqs = 0
        return bad
    c.scored = 0
    for k in range(c.n_reqs):
        r = &c.reqs[k]
        r.score = r.seen = NULL
        memset(&r.firsts, 0, sizeof(Firsts))
        bad |= rare_copy(c, &r.rare)
        bad |= dup(<void**>&r.must, r.n_must + 1, r.n_must, sizeof(int32_t))
    return bad


cdef int book_fresh(Book* b) noexcept nogil:
    """The copy makes its own; only the room for users comes along."""
    cdef int64_t users = b.users_cap
    memset(b, 0, sizeof(Book))
    return grow(<void**>&b.users, &b.users_cap, users, sizeof(int32_t))


cdef int queue_copy(Cluster* c) noexcept nogil:
    cdef int64_t cap = c.q_cap, n = c.q_used
    cdef int bad = 0
    bad |= dup(<void**>&c.q_key, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_priority, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_order, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_limit, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_ready, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_at, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_array, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_since, cap, n, sizeof(int64_t))
    bad |= dup(<void**>&c.q_user, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_old, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_req, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_group, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_chain, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_bin, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_unit, cap, n, sizeof(int32_t))
    bad |= dup(<void**>&c.q_held, cap, n, 1)
    bad |= dup(<void**>&c.q_verdict, cap, n, 1)
    bad |= dup(<void**>&c.q_live, cap, n, 1)
    bad |= dup(<void**>&c.q_moved, cap, n, 1)
    bad |= dup(<void**>&c.q_free, c.q_free_cap, c.q_n_free, sizeof(int32_t))
    bad |= dup(<void**>&c.q_grave, c.q_grave_cap, c.q_n_grave, sizeof(int32_t))
    bad |= dup(<void**>&c.q_fresh, c.q_fresh_cap, c.q_n_fresh, sizeof(int32_t))
    bad |= dup(<void**>&c.sorted, c.sorted_cap, c.n_sorted, sizeof(Entry))
    bad |= dup(<void**>&c.spare, c.spare_cap, 0, sizeof(Entry))
    bad |= dup(<void**>&c.started, c.started_cap, 0, sizeof(int64_t))
    bad |= dup(<void**>&c.changed, c.changed_cap, 0, sizeof(int32_t))
    bad |= dup(<void**>&c.group_left, c.groups_cap, c.n_groups, sizeof(int64_t))
    c.n_started = c.n_changed = 0
    return bad


cdef int lots_copy(Cluster* c) noexcept nogil:
    """c, a shallow copy but for its pieces, gets lots of its own. 0, or -1 without memory."""
    cdef int64_t n
    cdef int k, bad = 0
    if c.pieces == NULL:
        c.pieces_used = 0
    for k in range(c.pieces_used):
        bad |= dup(<void**>&c.pieces[k].slots, SLOT_WORDS, SLOT_WORDS, sizeof(uint64_t))
    bad |= dup(<void**>&c.lot_head, c.n, c.n, sizeof(int32_t))
    bad |= dup(<void**>&c.lots, c.lots_cap, c.n_lots, sizeof(Lot))
    if c.lots == NULL:
        c.n_lots = 0
    for k in range(c.n_lots):
        n = c.lots[k].n
        bad |= dup(<void**>&c.lots[k].held, n, n, sizeof(uint16_t))
        bad |= dup(<void**>&c.lots[k].then, n, n, sizeof(uint16_t))
        bad |= dup(<void**>&c.lots[k].dom, n, n, 1)
    return bad


cdef int nodes_copy(Cluster* c) noexcept nogil:
    cdef int64_t n = c.n
    cdef int bad = 0
    bad |= dup(<void**>&c.cls, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.layout, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.cpus, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.threads, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.sockets, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.per_socket, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.dmap, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.kind, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.maps, c.n_maps, c.n_maps, sizeof(DomMap))
    bad |= dup(<void**>&c.dom_used, n * MAX_DOMS, n * MAX_DOMS, sizeof(int16_t))
    bad |= dup(<void**>&c.mem, n, n, sizeof(int64_t))
    bad |= dup(<void**>&c.weight, n, n, sizeof(int64_t))
    bad |= dup(<void**>&c.all, n, n, sizeof(uint64_t))
    bad |= dup(<void**>&c.ok, n, n, sizeof(uint64_t))
    bad |= dup(<void**>&c.used, n, n, sizeof(uint64_t))
    bad |= dup(<void**>&c.extra, n * EXTRAS, n * EXTRAS, sizeof(int32_t))
    bad |= dup(<void**>&c.keep_cpus, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.keep_mem, n, n, sizeof(int64_t))
    bad |= dup(<void**>&c.pieces_of, n * MAX_GPUS, n * MAX_GPUS, sizeof(uint16_t))
    bad |= dup(<void**>&c.parts, n * BIT_WORDS, n * BIT_WORDS, sizeof(uint64_t))
    bad |= dup(<void**>&c.feats, n * BIT_WORDS, n * BIT_WORDS, sizeof(uint64_t))
    bad |= dup(<void**>&c.rank, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.node_of, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.stamp, n, n, sizeof(int64_t))
    bad |= dup(<void**>&c.layouts, <int64_t>c.n_layouts * MAX_TYPES,
               <int64_t>c.n_layouts * MAX_TYPES, sizeof(uint64_t))
    bad |= dup(<void**>&c.mixed, MAX_LAYOUTS, MAX_LAYOUTS, 1)
    # Scratch, and what an EASY pass has laid aside.
    bad |= dup(<void**>&c.out, n, 0, sizeof(Share))
    bad |= dup(<void**>&c.cand, n, 0, sizeof(int32_t))
    bad |= dup(<void**>&c.cand_t, n, 0, sizeof(int32_t))
    bad |= dup(<void**>&c.cand_g, n, 0, sizeof(int32_t))
    bad |= dup(<void**>&c.cand_s, n, 0, sizeof(int64_t))
    bad |= dup(<void**>&c.mark, n, 0, 1)
    bad |= dup(<void**>&c.con_head, n, n, sizeof(int32_t))
    bad |= dup(<void**>&c.cons, c.cons_cap, c.n_cons, sizeof(Con))
    bad |= dup(<void**>&c.heads, c.heads_cap, c.n_heads, sizeof(Head))
    bad |= dup(<void**>&c.planned, c.planned_cap, c.n_planned, sizeof(Share))
    bad |= dup(<void**>&c.times, c.times_cap, 0, sizeof(int64_t))
    # Allocations.
    bad |= dup(<void**>&c.pieces, c.pieces_cap, c.pieces_used, sizeof(Piece))
    bad |= lots_copy(c)
    bad |= dup(<void**>&c.allocs, c.allocs_cap, c.allocs_used, sizeof(Alloc))
    c.n_out = 0
    return bad


cdef int windows_copy(Cluster* d, Cluster* s) noexcept nogil:
    """d, a shallow copy, gets windows of its own. 0, or -1 without memory."""
    cdef Resv* v
    cdef int k, bad = 0
    d.near = NULL
    d.near_cap = 0
    bad |= dup(<void**>&d.windows, d.windows_cap, d.n_windows, sizeof(Window))
    bad |= dup(<void**>&d.win_head, d.n, d.n, sizeof(int32_t))
    bad |= dup(<void**>&d.resvs, d.resvs_cap, d.n_resvs, sizeof(Resv))
    if d.resvs == NULL:
        d.n_resvs = 0
    for k in range(d.n_resvs):
        v = &d.resvs[k]
        v.bits = NULL
        bad |= dup(<void**>&v.start, <int64_t>v.n_spans + 1, v.n_spans, sizeof(int64_t))
        bad |= dup(<void**>&v.end, <int64_t>v.n_spans + 1, v.n_spans, sizeof(int64_t))
        bad |= dup(<void**>&v.shares, <int64_t>v.n_shares + 1, v.n_shares, sizeof(Share))
    return bad


cdef int chains_copy(Cluster* c) noexcept nogil:
    """c, a shallow copy, gets bins and chains of its own. 0, or -1 without memory."""
    cdef int k, bad = 0
    bad |= dup(<void**>&c.bins, c.bins_cap, c.n_bins, sizeof(Bin))
    bad |= dup(<void**>&c.chains, c.chains_cap, c.n_chains, sizeof(Chain))
    if c.bins == NULL:
        c.n_bins = 0
    if c.chains == NULL:
        c.n_chains = 0
    for k in range(c.n_bins):
        bad |= dup(<void**>&c.bins[k].jobs, c.n, c.n, sizeof(int32_t))
    for k in range(c.n_chains):
        bad |= dup(<void**>&c.chains[k].items, c.chains[k].n, c.chains[k].n, sizeof(Item))
    return bad


cdef int cluster_copy(Cluster* d, Cluster* s) noexcept nogil:
    """d, never used, becomes what s is. 0, or -1 without memory; cluster_free() is due in both
    cases. Cost: a memcpy of all but scores and the segments of the last pass."""
    cdef State now, then
    cdef int k, bad
    d[0] = s[0]
    memset(&d.then, 0, sizeof(State))
    d.then_is = 0
    bad = state_copy(s, &d.now, &s.now)
    bad |= nodes_copy(d)
    bad |= queue_copy(d)
    bad |= filters_copy(d)
    bad |= reqs_copy(d)
    bad |= work_copy(&d.work)
    bad |= topo_copy(d, &d.topo)
    bad |= book_fresh(&d.book)
    bad |= windows_copy(d, s)
    bad |= chains_copy(d)
    bad |= map_copy(&d.by_key, &s.by_key)
    bad |= map_copy(&d.q_by_key, &s.q_by_key)
    bad |= dup(<void**>&d.links, MAX_CLASSES, d.n_links, sizeof(Links))
    if d.links == NULL:
        d.n_links = 0
    for k in range(d.n_links):
        bad |= links_copy(&d.links[k])
    bad |= state_init(&d.then, d.n)
    if s.then.took != NULL and not bad:
        d.then.took = <uint16_t*>calloc(<size_t>d.n * MAX_GPUS, sizeof(uint16_t))
        if d.then.took == NULL:
            bad = -1
    if s.then.extra != NULL and not bad and extra_init(d):
        bad = -1
    if s.then.room != NULL and not bad:
        d.then.room = <int32_t*>calloc(GRID * (<size_t>d.topo.n_units + 1), sizeof(int32_t))
        if d.then.room == NULL:
            bad = -1
    return bad


cdef int32_t same_job(Cluster* c, Cluster* plan, int32_t p, int64_t key) noexcept nogil:
    """The place of a planned job in the live queue, if it waits there as it was; else -1."""
    cdef int32_t slot = p
    if not (slot < c.q_used and c.q_live[slot] and c.q_key[slot] == key):
        slot = map_get(&c.q_by_key, key)
    if (slot < 0 or c.q_limit[slot] != plan.q_limit[p]
            or c.reqs[c.q_req[slot]].serial != plan.reqs[plan.q_req[p]].serial):
        return -1
    return slot


cdef int adopt_one(Cluster* c, int64_t key, int32_t req, int64_t at, int64_t until, Share* shares,
                   int n) noexcept nogil:
    cdef Head* h
    if (grow(<void**>&c.heads, &c.heads_cap, c.n_heads + 1, sizeof(Head))
            or grow(<void**>&c.planned, &c.planned_cap, c.n_planned + n, sizeof(Share))):
        return -1
    h = &c.heads[c.n_heads]
    h.key = key
    h.req = req
    h.at = at
    h.until = until
    h.first = <int32_t>c.n_planned
    h.n = n
    h.fresh = 1
    memcpy(&c.planned[h.first], shares, <size_t>n * sizeof(Share))
    c.n_planned += n
    c.n_heads += 1
    return 0


cdef int adopt_plan(Cluster* c, Cluster* plan) noexcept nogil:
    """The live cluster's reservations and estimates become those of a plan that was made on a copy
    of it. Jobs that the plan started have a reservation from then on. 0, or -1 without memory.
    Cost: jobs, and shares."""
    cdef Head* h
    cdef int32_t slot, p, a, piece
    cdef int64_t key, limit
    cdef int k, n, next_head = 0
    clear_plan(c)
    c.book.on = 0
    queue_merge(c)
    for k in range(c.q_used):
        c.q_at[k] = 0
    for k in range(plan.n_sorted):
        p = plan.sorted[k].slot
        key = plan.sorted[k].key
        h = NULL
        if next_head < plan.n_heads and plan.heads[next_head].key == key:
            h = &plan.heads[next_head]
            next_head += 1
        slot = same_job(c, plan, p, key)
        if slot < 0:
            continue
        if h != NULL:
            c.q_at[slot] = h.at
            if adopt_one(c, key, c.q_req[slot], h.at, h.until, plan.planned + h.first, h.n):
                return -1
            continue
        if plan.q_live[p]:
            c.q_at[slot] = plan.q_at[p]
            continue
        a = map_get(&plan.by_key, key)
        if a < 0:
            continue
        # It would start at once.
        n = 0
        piece = plan.allocs[a].first
        while piece >= 0:
            c.out[n] = plan.pieces[piece].share
            c.out[n].cut = 0
            n += 1
            piece = plan.pieces[piece].next
        limit = c.q_limit[slot]
        c.q_at[slot] = plan.book.now
        if adopt_one(c, key, c.q_req[slot], plan.book.now,
                     until_of(c, c.reqs[c.q_req[slot]].resv, plan.book.now,
                              plan.book.now + (limit if limit else YEAR)), c.out, n):
            return -1
    return 0
