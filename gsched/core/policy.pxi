# Node policies: how nodes that can hold a request are ranked, and which GPU a share goes to.
#
# P_PACK is answered by the index of free nodes (see place.pxi); the others give every node that
# fits a score, the highest wins, then weight and number. Scores are kept per request class and
# node until the node changes, so that a decision makes anew only what changed since the last one.

cdef enum:
    P_PACK = 0
    P_FIRST = 1
    P_BEST = 2
    P_BIN = 3
    P_LLN = 4
    P_FGD = 5
    P_DENSE = 6
    POLICIES = 7
    KEEP_SCORES = 1 << 28  # bytes of scores that are kept in all

cdef int64_t NO_FIT = -INT64_MAX


cdef void sizes_refresh(Cluster* c) noexcept nogil:
    """The largest node, by which the best fit weighs CPUs against GPUs."""
    cdef int i, g
    if c.sizes_version == c.version:
        return
    c.most_cpus = 1
    c.most_gpus = 1
    for i in range(c.n):
        if c.cpus[i] > c.most_cpus:
            c.most_cpus = c.cpus[i]
        g = gs_pop(c.all[i])
        if g > c.most_gpus:
            c.most_gpus = g
    c.sizes_version = c.version


cdef inline int policy_refresh(Cluster* c, Req* r) noexcept nogil:
    """What the policy of r goes by is as nodes and usual jobs are, also where no node has to be
    liked more than another. 0, or -1 without memory."""
    if r.policy == P_PACK:
        return 0
    sizes_refresh(c)
    return work_masks(c)


cdef inline int64_t coarse(Work* w, int64_t drop) noexcept nogil:
    """Whole hundredths of the logistic function of the drop in GPUs."""
    cdef int lo = 0, hi = LEVELS - 1, mid
    if w.level == NULL:
        return LEVELS // 2
    while lo < hi:
        mid = (lo + hi + 1) >> 1
        if drop >= w.level[mid]:
            lo = mid
        else:
            hi = mid - 1
    return lo


cdef int64_t by_fragments(Cluster* c, State* s, Req* r, int i, uint64_t mask, int64_t cpus,
                          int64_t g, uint64_t* choice) noexcept nogil:
    """How little a placement adds to what usual jobs cannot use of a node, as coarsely as FGD says
    it; for a share also the GPU that adds least."""
    cdef Work* w = &c.work
    cdef Idle o
    cdef uint64_t rest = mask, tried
    cdef int64_t before, left = s.cpus[i] - cpus, best = NO_FIT, v
    cdef int k, j
    choice[0] = 0
    idle_fill(c, s, i, &o)
    before = fragments(c, i, s.cpus[i], &o)
    if r.milli == 0:
        rest = s.gpus[i] if r.excl else whole_gpus(c, r, i, mask, g)
        choice[0] = rest
        while rest:
            k = gs_ctz(rest)
            rest &= rest - 1
            idle_add(w, &o, o.gpu[k], -1)
            o.gpu[k] = 0
        return coarse(w, before - fragments(c, i, left, &o))
    while rest:
        k = gs_ctz(rest)
        rest &= rest - 1
        # GPUs with as much left give the same answer, unless types tell them apart.
        if not c.mixed[c.layout[i]] and c.pieces_of == NULL:
            tried = mask & (((<uint64_t>1) << k) - 1)
            while tried and o.gpu[gs_ctz(tried)] != o.gpu[k]:
                tried &= tried - 1
            if tried:
                continue
        j = o.gpu[k]
        idle_add(w, &o, j, -1)
        o.gpu[k] = left_after(c, s, r, i, k)
        idle_add(w, &o, o.gpu[k], 1)
        v = coarse(w, before - fragments(c, i, left, &o))
        idle_add(w, &o, o.gpu[k], -1)
        o.gpu[k] = j
        idle_add(w, &o, j, 1)
        if v > best:
            best = v
            choice[0] = (<uint64_t>1) << k
    return best


cdef inline int64_t short_of(Work* w, int64_t cpus, int64_t idle) noexcept nogil:
    """Idle GPUs for which usual jobs would find no CPUs any more (thousandths << FINE)."""
    return lmax(0, (idle << FINE) - lmax(cpus, 0) * w.per_cpu) if w.per_cpu else 0


cdef int64_t by_density(Cluster* c, State* s, Req* r, int i, uint64_t mask, int64_t cpus,
                        int64_t g, uint64_t* choice) noexcept nogil:
    """How little a placement takes from what will be filled of a node: of the GPU that a share
    leaves a rest of, and of GPUs that are left without the CPUs that usual jobs need."""
    cdef Work* w = &c.work
    cdef int32_t idle[MAX_GPUS]
    cdef int64_t total = idle_of(c, s, i, idle), v, least = INT64_MAX, gone, left
    cdef int k, best = -1
    choice[0] = 0
    if r.milli:
        while mask:
            k = gs_ctz(mask)
            mask &= mask - 1
            left = left_after(c, s, r, i, k)
            gone = idle[k] - left
            if w.fill == NULL:
                v = left << FINE
            else:
                v = w.fill[idle[k] // w.unit] - w.fill[left // w.unit] - (gone << FINE)
            v = v * REST + short_of(w, s.cpus[i] - cpus, total - gone)
            if v < least:
                least = v
                best = k
        choice[0] = (<uint64_t>1) << best
        return -(least - short_of(w, s.cpus[i], total))
    gone = total if r.excl else g * WHOLE
    return -(short_of(w, s.cpus[i] - cpus, total - gone) - short_of(w, s.cpus[i], total))


cdef uint64_t best_share(Cluster* c, State* s, Req* r, int i, uint64_t mask,
                         int64_t cpus) noexcept nogil:
    """The GPU for a share: as the policy says, else the one with the least room that suffices."""
    cdef uint64_t choice = 0
    cdef int32_t idle[MAX_GPUS]
    cdef int g, best = -1
    if r.policy == P_FGD:
        by_fragments(c, s, r, i, mask, cpus, 1, &choice)
        return choice
    if r.policy == P_DENSE:
        by_density(c, s, r, i, mask, cpus, 1, &choice)
        return choice
    idle_of(c, s, i, idle)
    while mask:
        g = gs_ctz(mask)
        mask &= mask - 1
        if best < 0 or idle[g] < idle[best]:
            best = g
    return (<uint64_t>1) << best if best >= 0 else 0


cdef int64_t score_of(Cluster* c, State* s, Req* r, int i, Fit* f, int64_t t,
                      int64_t g) noexcept nogil:
    """How well node i suits for t tasks and g GPUs of r."""
    cdef int64_t cpus, idle, size
    cdef int k
    cdef int32_t parts[MAX_GPUS]
    cdef uint64_t choice
    if r.policy == P_FIRST:
        return 0
    if r.policy == P_LLN:
        return s.cpus[i]
    cpus = c.cpus[i] if r.excl else cores_need(c, r, i, t, g) * c.threads[i]
    if r.policy == P_FGD:
        return by_fragments(c, s, r, i, f.mask, cpus, g, &choice)
    if r.policy == P_DENSE:
        return by_density(c, s, r, i, f.mask, cpus, g, &choice)
    cpus = s.cpus[i] - cpus
    size = <int64_t>gs_pop(c.all[i]) * WHOLE
    idle = idle_of(c, s, i, parts)
    if r.milli:
        k = gs_ctz(best_share(c, s, r, i, f.mask, cpus))
        idle -= parts[k] - left_after(c, s, r, i, k)
    else:
        idle = 0 if r.excl else idle - g * WHOLE
    if r.policy == P_BEST:
        return -(cpus * c.most_gpus * WHOLE + idle * c.most_cpus)
    # Most of the node in use.
    cpus = (c.cpus[i] - cpus) * 1000000 // c.cpus[i]
    if size:
        cpus += (size - idle) * 1000000 // size
    return cpus


cdef int scores_room(Cluster* c, Req* r) noexcept nogil:
    """Whether the scores of r are kept."""
    cdef int64_t bytes = <int64_t>c.n * 2 * <int64_t>sizeof(int64_t)
    if r.score == NULL:
        if c.scored + bytes > KEEP_SCORES:
            return 0
        r.score = <int64_t*>malloc(<size_t>c.n * sizeof(int64_t))
        r.seen = <int64_t*>malloc(<size_t>c.n * sizeof(int64_t))
        if r.score == NULL or r.seen == NULL:
            free(r.score)
            free(r.seen)
            r.score = r.seen = NULL
            return 0
        c.scored += bytes
        r.score_version = -1
    if r.score_version != c.version:
        memset(r.seen, 0xff, <size_t>c.n * sizeof(int64_t))
        r.score_version = c.version
    return 1


cdef int walk_ranked(Cluster* c, State* s, Req* r, int64_t end, int64_t want_g, int64_t need_t,
                     int64_t need_g, int limit) noexcept nogil:
    """Up to `limit` nodes, the highest score first. Cost: nodes (a look-up for each that did not
    change since the class was asked for last, else a score)."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef Fit f
    cdef uint64_t* own = own_nodes(c, r)
    cdef uint64_t x
    cdef int64_t v, best = NO_FIT, t = lmax(need_t, r.tmin), g = want_g if r.gpu else 0
    cdef int w, i, n = 0, keep
    # A gang may be looked for by its smallest part or as a whole: kept is the answer for one node.
    keep = s == &c.now and limit == 1 and not r.lot and scores_room(c, r)
    for w in range(c.words):
        x = fl.bits[w]
        if own != NULL:
            x &= own[w]
        while x:
            i = c.node_of[(w << 6) + gs_ctz(x)]
            x &= x - 1
            if keep and not c.w_on or keep and c.w_on and r.resv < 0 and no_window(c, i):
                if r.seen[i] != c.stamp[i]:
                    r.seen[i] = c.stamp[i]
                    r.score[i] = NO_FIT
                    if (s.usable[i] and fit(c, s, r, i, 0, &f) and f.t >= need_t
                            and f.g >= need_g):
                        r.score[i] = score_of(c, s, r, i, &f, t, g)
                v = r.score[i]
                if v <= best or c.mark[i]:
                    continue
                if end > 0 and (c.con_head[i] >= 0 or c.book.on):
                    if not fit(c, s, r, i, end, &f) or f.t < need_t or f.g < need_g:
                        continue
                best = v
                c.cand[0] = i
                n = 1
                continue
            if c.mark[i] or not s.usable[i] or not fit(c, s, r, i, end, &f):
                continue
            if f.t < need_t or f.g < need_g:
                continue
            v = score_of(c, s, r, i, &f, t, g)
            if limit == 1:
                if v > best:
                    best = v
                    c.cand[0] = i
                    n = 1
                continue
            c.cand[n] = i
            c.cand_t[n] = <int32_t>f.t
            c.cand_g[n] = <int32_t>f.g
            c.cand_s[n] = v
            n += 1
    if limit > 1:
        sort_cands(c, s, 0, n, 3)
    elif n:
        fit(c, s, r, c.cand[0], end, &f)
        c.cand_t[0] = <int32_t>f.t
        c.cand_g[0] = <int32_t>f.g
    return imin(n, limit)
