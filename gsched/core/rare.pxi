# What the demands of rare_types.pxi do to a placement.


cdef void rare_free(Rare* x) noexcept nogil:
    cdef int k
    if x == NULL:
        return
    for k in range(x.n_variants):
        free(x.variants[k].count)
        free(x.variants[k].first)
        free(x.variants[k].alts)
    free(x.variants)
    free(x.deal)
    free(x)


cdef inline uint64_t kind_mask(Cluster* c, Rare* x, int i, int k) noexcept nogil:
    return c.layouts[<size_t>c.layout[i] * MAX_TYPES + x.kind[k]]


cdef inline uint64_t type_mask(Cluster* c, Req* r, int i) noexcept nogil:
    """GPUs of node i that are of a type that r takes."""
    cdef uint64_t mask = 0
    cdef int k
    if r.gtype >= 0:
        return c.layouts[<size_t>c.layout[i] * MAX_TYPES + r.gtype]
    if r.rare == NULL or r.rare.n_kinds == 0:
        return ~(<uint64_t>0)
    for k in range(r.rare.n_kinds):
        mask |= kind_mask(c, r.rare, i, k)
    return mask


cdef inline int64_t cores_need(Cluster* c, Req* r, int i, int64_t t, int64_t g) noexcept nogil:
    """Cores of node i for t tasks and g GPUs."""
    cdef int u = usable_threads(c, r, i)
    cdef int64_t n = (cpu_need(r, t, g) + u - 1) // u
    if r.rare != NULL and r.rare.per_core and not r.overcommit:
        if r.rare.per_core == 1:
            return lmax(n, t * ((r.cpt + u - 1) // u))
        return lmax(n, (t + r.rare.per_core - 1) // r.rare.per_core)
    return n


cdef int rare_fit(Cluster* c, Req* r, int i, int64_t cores, uint64_t mask, int64_t* t,
                  int64_t* g) noexcept nogil:
    """Lessen the tasks and GPUs that node i can hold; 0 where nothing is left."""
    cdef Rare* x = r.rare
    cdef int64_t u = usable_threads(c, r, i), all_ = 0, n
    cdef int k
    if x.per_core and not r.overcommit:
        if x.per_core == 1:
            t[0] = lmin(t[0], cores // ((r.cpt + u - 1) // u))
        else:
            t[0] = lmin(t[0], cores * x.per_core)
    if x.n_kinds:
        for k in range(x.n_kinds):
            n = gs_pop(mask & kind_mask(c, x, i, k))
            if n < x.gpn[k]:
                return 0
            if x.gpt[k]:
                t[0] = lmin(t[0], n // x.gpt[k])
            all_ += lmin(n, x.gtotal[k])
        if r.gtotal:
            g[0] = lmin(g[0], all_)
    if x.per_gpu:
        g[0] = lmin(g[0], t[0] // x.per_gpu)
        t[0] = g[0] * x.per_gpu
    return not r.gtotal or g[0] >= 1


cdef uint64_t kinds_gpus(Cluster* c, Req* r, int i, uint64_t mask, int64_t g,
                         int32_t* deal) noexcept nogil:
    """g GPUs of node i, of each type as many as r wants; deal: as many as these."""
    cdef Rare* x = r.rare
    cdef Links* L = &c.links[c.cls[i]]
    cdef uint64_t out = 0, one
    cdef int64_t n, left = g
    cdef int k
    for k in range(x.n_kinds):
        one = mask & kind_mask(c, x, i, k)
        if deal != NULL:
            n = deal[k]
        elif x.gpn[k]:
            n = x.gpn[k]
        elif x.gpt[k]:
            n = x.gpt[k] * (g // r.gpt)
        else:
            n = lmin(lmin(gs_pop(one), x.gtotal[k]), left)
        if n > 0:
            out |= best_gpus(L, one, <int>n)
            left -= n
    return out


# ---- which nodes, where numbers of a kind count ---------------------------------------------------


cdef inline int by_number(Req* r) noexcept nogil:
    """Whether the nodes of an answer are chosen together: so many with a feature, so many GPUs of
    each type."""
    if r.rare == NULL:
        return 0
    if r.rare.n_kinds and r.gtotal:
        return 1
    return r.rare.live != NULL and r.rare.live.n_groups > 0


cdef int in_group(Cluster* c, Variant* v, int k, int i) noexcept nogil:
    """Whether node i has the features of group k."""
    cdef uint64_t* have = c.feats + <size_t>i * BIT_WORDS
    cdef uint64_t* want
    cdef int a, w, ok
    for a in range(v.first[k], v.first[k + 1]):
        want = v.alts + <size_t>a * BIT_WORDS
        ok = 1
        for w in range(BIT_WORDS):
            if have[w] & want[w] != want[w]:
                ok = 0
        if ok:
            return 1
    return 0


cdef struct Sum:
    int n
    int64_t t
    int64_t g
    int64_t kind[MAX_KINDS]


cdef int sum_add(Cluster* c, State* s, Req* r, int i, int64_t end, int useful,
                 Sum* o) noexcept nogil:
    """Count node i in; `useful`: not where it has no GPU of a type that is still missing."""
    cdef Rare* x = r.rare
    cdef Fit f
    cdef int64_t n
    cdef int k, gain = 0
    if not fit(c, s, r, i, end, &f):
        return 0
    if x.n_kinds and r.gtotal:
        for k in range(x.n_kinds):
            if o.kind[k] < x.gtotal[k] and f.mask & kind_mask(c, x, i, k):
                gain = 1
        if useful and not gain:
            return 0
        for k in range(x.n_kinds):
            n = gs_pop(f.mask & kind_mask(c, x, i, k))
            o.kind[k] += n
    o.n += 1
    o.t += f.t
    o.g += f.g
    return 1


cdef int sum_enough(Req* r, int lower, Sum* o) noexcept nogil:
    cdef int k
    if o.n < lower or o.t < r.ntasks or (r.gtotal and o.g < r.gtotal):
        return 0
    if r.gtotal:
        for k in range(r.rare.n_kinds):
            if o.kind[k] < r.rare.gtotal[k]:
                return 0
    return 1


cdef int pick(Cluster* c, State* s, Req* r, int64_t end, int n, int lower, int upper, int want,
              int all_) noexcept nogil:
    """Of n candidates in order those that are taken, to the front of c.cand: the nodes that must be
    in it, the first of each group, then others: up to `want` (a single one holds all of r), or
    (all_) as many as it takes. Their number; 0 when that is not enough."""
    cdef int64_t need_t = r.ntasks if want == 1 and not all_ else 0
    cdef int64_t need_g = r.gtotal if want == 1 and not all_ else 0
    cdef Variant* v = r.rare.live
    cdef Sum o
    cdef int j, k, left, out = 0, m = r.n_must
    memset(&o, 0, sizeof(Sum))
    # 0 not taken, 1 taken, 2 taken and counted in a group
    for j in range(n):
        c.cand_s[j] = 0 if c.cand_t[j] >= need_t and c.cand_g[j] >= need_g else -1
    for j in range(m):
        c.cand[n + j] = r.must[j]
        c.cand_s[n + j] = 1
        if not sum_add(c, s, r, r.must[j], end, 0, &o):
            return 0
    for k in range(v.n_groups if v != NULL else 0):
        left = v.count[k]
        for j in range(n, n + m):
            if left and c.cand_s[j] == 1 and in_group(c, v, k, c.cand[j]):
                c.cand_s[j] = 2
                left -= 1
        for j in range(n):
            if left and c.cand_s[j] == 0 and in_group(c, v, k, c.cand[j]):
                if sum_add(c, s, r, c.cand[j], end, 0, &o):
                    c.cand_s[j] = 2
                    left -= 1
        if left:
            return 0
    for j in range(n):
        if o.n >= upper if all_ else o.n >= want:
            break
        if all_ and sum_enough(r, lower, &o):
            break
        if c.cand_s[j] == 0 and sum_add(c, s, r, c.cand[j], end, all_, &o):
            c.cand_s[j] = 1
    if o.n > upper or not sum_enough(r, lower, &o):
        return 0
    for j in range(n + m):
        if c.cand_s[j] > 0:
            c.cand[out] = c.cand[j]
            out += 1
    return out


cdef int choose_by_number(Cluster* c, State* s, Req* r, int64_t end, int lower, int upper,
                          int want) noexcept nogil:
    """choose() for requests whose nodes are chosen together."""
    cdef int most = c.n - r.n_must, n, k
    if want == 1:
        n = walk(c, s, r, end, r.gtotal if r.gtotal else smallest_gpus(r), r.ntasks, r.gtotal,
                 most)
        k = pick(c, s, r, end, n, lower, upper, 1, 0)
        if k:
            return finish(c, s, r, end, k)
    n = walk(c, s, r, end, smallest_gpus(r), 0, 0, most)
    return picked(c, s, r, end, n, lower, upper, want)


cdef int picked(Cluster* c, State* s, Req* r, int64_t end, int n, int lower, int upper,
                int want) noexcept nogil:
    """The answer out of n candidates in order: the first ones, else those that hold most."""
    cdef int k
    k = pick(c, s, r, end, n, lower, upper, want, 0)
    if k:
        return finish(c, s, r, end, k)
    if (r.ntasks == 0 and not r.gtotal) or upper <= 1:
        return 0
    sort_cands(c, s, 0, n, 2 if r.gtotal else 1)
    k = pick(c, s, r, end, n, lower, upper, want, 1)
    return finish(c, s, r, end, k) if k else 0


cdef int choose_variant(Cluster* c, State* s, Req* r, int64_t end, int lower, int upper,
                        int want) noexcept nogil:
    """choose() with the first set of features that gives an answer."""
    cdef Rare* x = r.rare
    cdef int base = r.filter, k, ok = 0
    for k in range(x.n_variants):
        x.live = &x.variants[k]
        r.filter = x.live.filter
        filter_refresh(c, &c.filters[r.filter])
        ok = choose(c, s, r, end, lower, upper, want)
        if ok:
            break
    r.filter = base
    x.live = NULL
    return ok


cdef int plan_variant(Cluster* c, Req* r, int64_t at, int64_t duration, int lower, int upper,
                      int want, int keep, int64_t need_t, int64_t need_g) noexcept nogil:
    """plan_choose() likewise."""
    cdef Rare* x = r.rare
    cdef int base = r.filter, k, ok = 0
    if x == NULL or x.n_variants == 0:
        return plan_choose(c, r, at, duration, lower, upper, want, keep, need_t, need_g)
    for k in range(x.n_variants):
        x.live = &x.variants[k]
        r.filter = x.live.filter
        filter_refresh(c, &c.filters[r.filter])
        ok = plan_choose(c, r, at, duration, lower, upper, want, keep, need_t, need_g)
        if ok:
            break
    r.filter = base
    x.live = NULL
    return ok


# ---- who gets how many ---------------------------------------------------------------------------


cdef int rare_deal(Cluster* c, State* s, Req* r, int64_t end, int n) noexcept nogil:
    """GPUs of each type over the n nodes in c.cand: one to each, of the type of which most is
    left, then all that a node can give, in order. 0 when some are left, or a node has none."""
    cdef Rare* x = r.rare
    cdef int64_t left[MAX_KINDS]
    cdef int64_t room, n_free
    cdef Fit f
    cdef int j, k, best
    cdef int32_t* row
    if x.n_kinds == 0 or r.gtotal == 0:
        return 1
    for k in range(x.n_kinds):
        left[k] = x.gtotal[k]
    for j in range(n):
        row = x.deal + <size_t>j * MAX_KINDS
        memset(row, 0, MAX_KINDS * sizeof(int32_t))
        if not fit(c, s, r, c.cand[j], end, &f):
            return 0
        best = -1
        for k in range(x.n_kinds):
            if left[k] and f.mask & kind_mask(c, x, c.cand[j], k):
                if best < 0 or left[k] > left[best]:
                    best = k
        if best < 0:
            return 0
        row[best] = 1
        left[best] -= 1
    for j in range(n):
        row = x.deal + <size_t>j * MAX_KINDS
        fit(c, s, r, c.cand[j], end, &f)
        room = f.g - 1
        for k in range(x.n_kinds):
            n_free = gs_pop(f.mask & kind_mask(c, x, c.cand[j], k)) - row[k]
            n_free = lmin(lmin(n_free, left[k]), room)
            row[k] += <int32_t>n_free
            left[k] -= n_free
            room -= n_free
    for k in range(x.n_kinds):
        if left[k]:
            return 0
    return 1


cdef inline void rare_shares(Req* r, int place_, int64_t* t, int64_t* g) noexcept nogil:
    """Tasks and GPUs of the node at this place of the answer."""
    cdef Rare* x = r.rare
    cdef int k
    if x.n_kinds and r.gtotal:
        g[0] = 0
        for k in range(x.n_kinds):
            g[0] += x.deal[<size_t>place_ * MAX_KINDS + k]
    if x.per_gpu:
        t[0] = g[0] * x.per_gpu


cdef inline int32_t* dealt(Req* r, int place_) noexcept nogil:
    if r.rare == NULL or r.rare.n_kinds == 0 or r.gtotal == 0:
        return NULL
    return r.rare.deal + <size_t>place_ * MAX_KINDS
