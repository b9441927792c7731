# Gangs of nodes that follow each other by number, wherever they are in the network.


cdef int few_leaves(Gang* g, Entry* e, int lo, int hi) noexcept nogil:
    """Whether nodes e[lo..hi) are on no more switches than r allows."""
    cdef Topo* t = &g.c.topo
    cdef int k, n = 0
    if not t.on or not g.r.switches:
        return 1
    t.stamp += 1
    for k in range(lo, hi):
        if t.leaf[e[k].slot] < 0:
            return 0
        if t.used[t.leaf[e[k].slot]] != t.stamp:
            t.used[t.leaf[e[k].slot]] = t.stamp
            n += 1
    return n <= g.r.switches


cdef int side_by_side(Gang* g, int n, int want) noexcept nogil:
    """Pick nodes that follow each other by number out of the first n candidates: of the shortest
    stretch that has as many as possible up to `want`; or (want 0, or if these do not hold it) the
    fewest that hold all tasks and GPUs. 1, or 0. Cost: candidates x log(candidates), with a range
    of node counts for each."""
    cdef Cluster* c = g.c
    cdef Req* r = g.r
    cdef Entry* e = c.topo.sort
    cdef Fit f
    cdef int64_t tasks, gpus
    cdef int k, need, lo, hi, a, best = -1, length = 0, longest = 0, first = 0, last = -1
    for k in range(n):
        e[k].priority = 0
        e[k].order = c.cand[k]
        e[k].key = k
        e[k].slot = c.cand[k]
    for k in range(r.n_must):
        e[n + k].priority = 0
        e[n + k].order = r.must[k]
        e[n + k].key = n + k
        e[n + k].slot = r.must[k]
        fit(c, g.s, r, r.must[k], g.end, &f)
        c.cand[n + k] = r.must[k]
        c.cand_t[n + k] = <int32_t>f.t
        c.cand_g[n + k] = <int32_t>f.g
    n += r.n_must
    sort_entries(e, e + n, n)
    first = n
    for k in range(n):
        if c.mark[e[k].slot]:
            first = imin(first, k)
            last = k
        length = length + 1 if k and e[k].slot == e[k - 1].slot + 1 else 1
        longest = length if length > longest else longest
    for need in range(imin(want, longest), g.lower - 1, -1):
        if r.segment and need % r.segment:
            continue
        length = c.n + 1
        lo = 0
        while lo < n:
            hi = lo + 1
            while hi < n and e[hi].slot == e[hi - 1].slot + 1:
                hi += 1
            if need <= hi - lo < length:
                tasks = gpus = 0
                for k in range(lo, hi):
                    tasks += c.cand_t[e[k].key]
                    gpus += c.cand_g[e[k].key]
                    a = k - need + 1
                    if a > lo:
                        tasks -= c.cand_t[e[a - 1].key]
                        gpus -= c.cand_g[e[a - 1].key]
                    if (a >= lo and a <= first and last <= k and tasks >= r.ntasks
                            and (not r.gtotal or gpus >= r.gtotal) and few_leaves(g, e, a, k + 1)):
                        best = a
                        length = hi - lo
                        break
            lo = hi
        if best >= 0:
            return stretch(g, e, best, best + need)
    if (r.ntasks == 0 and not r.gtotal) or g.upper <= 1 or r.segment:
        return 0
    length = g.upper + 1
    tasks = gpus = 0
    hi = 0
    for lo in range(n):
        if hi <= lo:
            hi = lo
            tasks = gpus = 0
        while (hi - lo < g.lower or hi <= last or tasks < r.ntasks
               or (r.gtotal and gpus < r.gtotal)):
            if hi >= n or (hi > lo and e[hi].slot != e[hi - 1].slot + 1):
                break
            tasks += c.cand_t[e[hi].key]
            gpus += c.cand_g[e[hi].key]
            hi += 1
        else:
            if lo <= first and hi - lo < length and few_leaves(g, e, lo, hi):
                best = lo
                length = hi - lo
        if hi > lo:
            tasks -= c.cand_t[e[lo].key]
            gpus -= c.cand_g[e[lo].key]
    return best >= 0 and stretch(g, e, best, best + length)


cdef int stretch(Gang* g, Entry* e, int lo, int hi) noexcept nogil:
    cdef int k
    g.n_pick = 0
    for k in range(lo, hi):
        # Those that must be in it are added by gang_close().
        if not g.c.mark[e[k].slot]:
            g.c.topo.pick[g.n_pick] = <int32_t>e[k].key
            g.n_pick += 1
    return 1
