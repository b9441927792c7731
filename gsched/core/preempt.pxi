# Whose work makes way: the cheapest allocations whose release makes a blocked request fit.
#
# They are lent out of `now` and taken back, so that placements are those of the live cluster, with
# islands, cores, windows and switches; the plan is not looked at.

cdef enum:
    EXACT = 8                # with so many of them on a node all their subsets are tried
    TIES = 64                # sets that cost the same are compared by islands so often

# One that may be ended; in the order in which equals are taken.
cdef struct Victim:
    int32_t first            # its allocations: Hunt.allocs[first] .. [first + count]
    int32_t count
    int32_t out              # it is lent
    int32_t chosen           # of the best set so far
    int32_t tried            # of the set that is being made
    int32_t lent             # it stands still and keeps its memory
    int64_t cost

cdef struct Hunt:
    Cluster* c
    Req* r
    Victim* v
    int32_t* allocs
    int n
    int32_t* on              # victims by node: at[node] .. at[node + 1]
    int32_t* at
    int64_t best             # cost of the best set so far; -1: none
    int count                # its victims
    int islands              # that its placement touches
    int ties
    int64_t placed           # placements and fits that were looked at


cdef void lend(Cluster* c, int32_t a, int back, int lent) noexcept nogil:
    """What an allocation holds counts as free, or (back) is in use again; `lent`: but for its
    memory. Cost: its nodes."""
    cdef int32_t p = c.allocs[a].first
    cdef int32_t resv = c.allocs[a].resv
    while p >= 0:
        if back:
            hold(c, &c.pieces[p], resv, lent)
        else:
            let_go(c, &c.pieces[p], resv, lent)
        index_move(c, &c.now, c.pieces[p].share.node)
        p = c.pieces[p].next


cdef inline void out_one(Hunt* h, int k) noexcept nogil:
    cdef int j
    if not h.v[k].out:
        h.v[k].out = 1
        for j in range(h.v[k].count):
            lend(h.c, h.allocs[h.v[k].first + j], 0, h.v[k].lent)


cdef inline void back_one(Hunt* h, int k) noexcept nogil:
    cdef int j
    if h.v[k].out:
        h.v[k].out = 0
        for j in range(h.v[k].count):
            lend(h.c, h.allocs[h.v[k].first + j], 1, h.v[k].lent)


cdef void all_back(Hunt* h) noexcept nogil:
    cdef int k
    for k in range(h.n):
        back_one(h, k)


cdef inline int fits_now(Hunt* h) noexcept nogil:
    h.placed += 1
    return place(h.c, &h.c.now, h.r, 0)


cdef inline int holds_part(Hunt* h, Need* need, int i) noexcept nogil:
    """Whether node i could hold the smallest part of the request."""
    cdef Fit f
    h.placed += 1
    if not fit(h.c, &h.c.now, h.r, i, 0, &f) or f.t < need.t:
        return 0
    return h.r.gtotal == 0 or f.g >= need.g


cdef int islands_of(Cluster* c) noexcept nogil:
    """Islands that the GPUs of the last placement lie on."""
    cdef Links* L
    cdef int k, j, found = 0
    for k in range(c.n_out):
        L = &c.links[c.cls[c.out[k].node]]
        for j in range(L.n_islands):
            found += 1 if c.out[k].mask & L.island[j] else 0
    return found


cdef void compare(Hunt* h) noexcept nogil:
    """What is out makes the request fit: first nothing too much is, then it is the best so far if
    it is cheaper; of equals the one with fewer victims, then the one whose room lies on fewer
    islands, then the first."""
    cdef int64_t cost = 0
    cdef int k, count = 0, islands = 0
    for k in range(h.n - 1, -1, -1):
        if not h.v[k].out:
            continue
        back_one(h, k)
        if not fits_now(h):
            out_one(h, k)
    for k in range(h.n):
        if h.v[k].out:
            cost += h.v[k].cost
            count += 1
    if h.best >= 0 and (cost > h.best or (cost == h.best and count > h.count)):
        return
    if h.best >= 0 and cost == h.best and count == h.count:
        h.ties += 1
        if h.ties > TIES:
            return
    if not fits_now(h):
        return
    islands = islands_of(h.c)
    if h.best >= 0 and cost == h.best and count == h.count and islands >= h.islands:
        return
    h.best = cost
    h.count = count
    h.islands = islands
    for k in range(h.n):
        h.v[k].chosen = h.v[k].out


cdef int in_order_out(Hunt* h, int enough) noexcept nogil:
    """They go one by one in their order until it fits: so many of the first have to. 0: never."""
    cdef int lo = 1, hi = enough, mid, k
    while lo < hi:
        mid = (lo + hi) // 2
        for k in range(h.n):
            if k < mid:
                out_one(h, k)
            else:
                back_one(h, k)
        if fits_now(h):
            hi = mid
        else:
            lo = mid + 1
    for k in range(h.n):
        if k < lo:
            out_one(h, k)
        else:
            back_one(h, k)
    return lo


cdef int64_t node_set(Hunt* h, Need* need, int i, int64_t bound, uint32_t* which) noexcept nogil:
    """The cheapest of the victims that are still there whose going makes node i able to hold a
    part, at less than `bound`: their cost, and in `which` their bits among those on the node; -1:
    there are none. Cost: 2^EXACT fits; with more victims on the node, three for each."""
    cdef int32_t* on = h.on + h.at[i]
    cdef int m = h.at[i + 1] - h.at[i], k, j, n = 0
    cdef int32_t left[32]
    cdef int64_t cost, best = -1
    cdef uint32_t s, bits, best_bits = 0
    which[0] = 0
    if holds_part(h, need, i):
        return 0
    for k in range(imin(m, 32)):
        if not h.v[on[k]].out:
            left[n] = k
            n += 1
    if n == 0:
        return -1
    for j in range(n):
        out_one(h, on[left[j]])
    k = holds_part(h, need, i)
    if not k:
        for j in range(n):
            back_one(h, on[left[j]])
        return -1
    if n <= EXACT:
        for j in range(n):
            back_one(h, on[left[j]])
        for s in range(1, <uint32_t>1 << n):
            cost = 0
            for j in range(n):
                if s >> j & 1:
                    cost += h.v[on[left[j]]].cost
            if (best >= 0 and (cost > best or (cost == best and gs_pop(s) >= gs_pop(best_bits)))):
                continue
            if bound >= 0 and cost > bound:
                continue
            for j in range(n):
                if s >> j & 1:
                    out_one(h, on[left[j]])
            if holds_part(h, need, i):
                best = cost
                best_bits = s
            for j in range(n):
                if s >> j & 1:
                    back_one(h, on[left[j]])
    else:
        # The dearest that need not go stay.
        for j in range(n - 1, -1, -1):
            back_one(h, on[left[j]])
            if not holds_part(h, need, i):
                out_one(h, on[left[j]])
        best = 0
        for j in range(n):
            if h.v[on[left[j]]].out:
                best += h.v[on[left[j]]].cost
                best_bits |= <uint32_t>1 << j
                back_one(h, on[left[j]])
        if bound >= 0 and best > bound:
            best = -1
    if best < 0:
        return -1
    bits = 0
    for j in range(n):
        if best_bits >> j & 1:
            bits |= <uint32_t>1 << left[j]
    which[0] = bits
    return best


cdef void by_node(Hunt* h, Entry* list_, int64_t n_list, Need* need) noexcept nogil:
    """Node after node is made able to hold a part, those first that cost least, until it fits. What
    a gang that goes frees on other nodes is theirs for nothing."""
    cdef Cluster* c = h.c
    cdef int32_t* on
    cdef int64_t e, k, cost
    cdef uint32_t bits
    cdef int j, i, able = 0
    cdef int needed = imax(h.r.min_nodes, h.r.n_must)
    for e in range(n_list):
        i = list_[e].slot
        cost = node_set(h, need, i, -1, &bits)
        if cost < 0:
            continue
        on = h.on + h.at[i]
        for j in range(32):
            if bits >> j & 1:
                out_one(h, on[j])
        able += 1
        if able >= needed and fits_now(h):
            compare(h)
            return


cdef int cheapest(Hunt* h, int strict, Entry* a, Entry* b) noexcept nogil:
    """1 with the best set in v.chosen, or 0: all of them together are not enough."""
    cdef Cluster* c = h.c
    cdef Filter* fl = &c.filters[h.r.filter]
    cdef Need need
    cdef int k, i, w, lone
    cdef int64_t n = 0, cost
    cdef uint32_t bits
    cdef uint64_t x
    h.best = -1
    for k in range(h.n):
        out_one(h, k)
    k = fits_now(h)
    if not k:
        all_back(h)
        return 0
    k = in_order_out(h, h.n)
    compare(h)
    all_back(h)
    if strict or h.best < 0:
        return h.best >= 0
    # One alone.
    for k in range(h.n):
        if h.v[k].cost > h.best or (h.v[k].cost == h.best and h.count == 1 and h.ties > TIES):
            break
        out_one(h, k)
        if fits_now(h):
            compare(h)
        back_one(h, k)
    need_of(h.r, &need)
    lone = h.r.max_nodes == 1 or h.r.min_nodes == 1
    filter_refresh(c, fl)
    for w in range(c.words):
        x = fl.bits[w]
        while x:
            i = c.node_of[(w << 6) + gs_ctz(x)]
            x &= x - 1
            if not c.now.usable[i]:
                continue
            cost = node_set(h, &need, i, h.best if lone else -1, &bits)
            if cost < 0:
                continue
            if lone and bits:
                for k in range(32):
                    if bits >> k & 1:
                        out_one(h, h.on[h.at[i] + k])
                if fits_now(h):
                    compare(h)
                for k in range(h.at[i], h.at[i + 1]):
                    back_one(h, h.on[k])
            a[n].slot = i
            a[n].priority = -cost
            a[n].order = c.rank[i]
            a[n].key = i
            n += 1
    if n:
        sort_entries(a, b, n)
        by_node(h, a, n, &need)
        all_back(h)
    return h.best >= 0
