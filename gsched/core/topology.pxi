# Gangs: nodes that are chosen together, by where they are in the network, or next to each other.
#
# Where requests go by the topology, a gang lies below one unit: of the lowest level at which one has
# room for all of it, there below the one with the least room (room: usable nodes with as many free
# GPUs as each node gives), then the first. Of the leaves below it the smallest that holds what is
# still missing is taken, else the largest, so that there are as few as possible. When that is not
# to be had because nodes with room do not suit otherwise, leaves are counted by the nodes that do.

cdef enum:
    MOST_COUNTED = 4096      # ranks between the nodes of a unit that are counted before it is tried

cdef struct Gang:
    Cluster* c
    State* s
    Req* r
    int64_t end
    int32_t* room            # per unit
    int least                # GPUs that each node gives at least; 0: not to be told from their number
    int n                    # candidates looked up so far
    int lower
    int upper
    int64_t t_in             # tasks and GPUs of the nodes that must be in it
    int64_t g_in
    int n_pick


cdef inline int is_gang(Cluster* c, Req* r) noexcept nogil:
    """Whether the nodes of r are chosen together."""
    if r.loose:
        return 0
    if r.contiguous:
        return 1
    if not c.topo.on or r.spread:
        return 0
    return not c.topo.optional or r.switches > 0 or r.segment > 0


cdef void gang_open(Gang* g, Cluster* c, State* s, Req* r, int64_t end, int lower, int upper,
                    int64_t t_in, int64_t g_in) noexcept nogil:
    cdef Topo* t = &c.topo
    cdef int k
    g.c = c
    g.s = s
    g.r = r
    g.end = end
    g.n = 0
    g.lower = lower
    g.upper = upper
    g.t_in = t_in
    g.g_in = g_in
    g.n_pick = 0
    g.least = imin(smallest_gpus(r), GRID - 1) if r.gpu and not r.milli else 0
    g.room = NULL
    if not t.on:
        return
    g.room = s.room + <size_t>g.least * t.n_units
    t.turn += 1
    for k in range(r.n_must):
        if t.leaf[r.must[k]] >= 0:
            t.held[t.leaf[r.must[k]]] += 1


cdef void gang_close(Gang* g) noexcept nogil:
    """Clean up, and the nodes picked to the front of the candidates, followed by those that must be
    in it."""
    cdef Cluster* c = g.c
    cdef Topo* t = &c.topo
    cdef int k
    if t.on:
        for k in range(g.r.n_must):
            if t.leaf[g.r.must[k]] >= 0:
                t.held[t.leaf[g.r.must[k]]] = 0
    for k in range(g.n_pick):
        t.pick[k] = c.cand[t.pick[k]]
    for k in range(g.n_pick):
        c.cand[k] = t.pick[k]
    for k in range(g.r.n_must):
        c.cand[g.n_pick + k] = g.r.must[k]


cdef inline void liking(Cluster* c, State* s, Req* r, int i, Fit* f, Entry* e) noexcept nogil:
    """Sorts nodes as walk() finds them."""
    cdef int64_t want = smallest_gpus(r)
    cdef int big
    e.order = c.rank[i]
    e.slot = i
    e.key = f.t << 8 | f.g
    if r.policy:
        e.priority = score_of(c, s, r, i, f, r.tmin, want if r.gpu else 0)
    elif r.gpu:
        big = s.nisland[i] >= lmax(want, 1)
        e.priority = -((<int64_t>(0 if big else 1)) << 40 | (<int64_t>s.nfree[i]) << 20
                       | (s.nisland[i] if big else GRID - s.nisland[i]))
    else:
        e.priority = -c.weight[i]
        e.order |= (<int64_t>s.nfree[i]) << 54 | (<int64_t>s.cpus[i]) << 20


cdef int leaf_load(Gang* g, int leaf) noexcept nogil:
    """The candidates below a leaf, in order of liking; their number. Cost: its nodes."""
    cdef Cluster* c = g.c
    cdef State* s = g.s
    cdef Req* r = g.r
    cdef Topo* t = &c.topo
    cdef Filter* fl = &c.filters[r.filter]
    cdef Fit f
    cdef int m, i, n = 0
    if t.loaded[leaf] == t.turn:
        return t.count[leaf]
    t.loaded[leaf] = t.turn
    t.start[leaf] = g.n
    for m in range(t.first[leaf], t.first[leaf + 1]):
        i = t.members[m]
        if s.nfree[i] == 255 or s.nfree[i] < g.least or c.mark[i]:
            continue
        if not fl.bits[c.rank[i] >> 6] >> (c.rank[i] & 63) & 1:
            continue
        if fit(c, s, r, i, g.end, &f):
            liking(c, s, r, i, &f, &t.sort[n])
            n += 1
    sort_entries(t.sort, t.sort + n, n)
    for m in range(n):
        c.cand[g.n + m] = t.sort[m].slot
        c.cand_t[g.n + m] = <int32_t>(t.sort[m].key >> 8)
        c.cand_g[g.n + m] = <int32_t>(t.sort[m].key & 255)
    g.n += n
    t.count[leaf] = n
    return n


cdef void gang_group(Gang* g, int n) noexcept nogil:
    """The first n candidates are all there are: by leaf, and counted as the room of each unit.
    Cost: candidates + units."""
    cdef Cluster* c = g.c
    cdef Topo* t = &c.topo
    cdef int k, u, at = 0
    memset(t.own, 0, <size_t>t.n_units * sizeof(int32_t))
    for k in range(n):
        u = t.leaf[c.cand[k]]
        t.sort[k].slot = c.cand[k]
        t.sort[k].key = (<int64_t>c.cand_t[k]) << 8 | c.cand_g[k]
        if u >= 0:
            t.own[u] += 1
    for u in range(t.n_leaves):
        t.loaded[u] = t.turn
        t.start[u] = at
        t.count[u] = 0
        at += t.own[u]
    g.n = at
    for k in range(n):
        u = t.leaf[t.sort[k].slot]
        if u >= 0:
            at = t.start[u] + t.count[u]
            t.count[u] += 1
            c.cand[at] = t.sort[k].slot
            c.cand_t[at] = <int32_t>(t.sort[k].key >> 8)
            c.cand_g[at] = <int32_t>(t.sort[k].key & 255)
    for u in range(t.n_units):
        if t.up[u] >= 0:
            t.own[t.up[u]] += t.own[u]
    g.room = t.own


cdef inline int unit_above(Topo* t, int node, int level) noexcept nogil:
    """The unit of a level that a node is below; -1: none."""
    cdef int u = t.leaf[node]
    while u >= 0 and t.level[u] < level:
        u = t.up[u]
    return u if u >= 0 and t.level[u] == level else -1


cdef int covers(Gang* g, int unit) noexcept nogil:
    """Whether all nodes that must be in the gang are below a unit."""
    cdef Topo* t = &g.c.topo
    cdef int k
    for k in range(g.r.n_must):
        if unit_above(t, g.r.must[k], t.level[unit]) != unit:
            return 0
    return 1


cdef inline int highest(Topo* t, Req* r, int nodes) noexcept nogil:
    """The level up to which so many nodes may be searched for: blocks keep them together."""
    cdef int level
    if t.blocks and not r.segment:
        for level in range(t.n_levels):
            if t.size[level] and nodes <= t.size[level]:
                return level
    return t.n_levels - 1


cdef inline void leaf_take(Topo* t, int leaf, int nodes) noexcept nogil:
    """So many of a leaf's candidates; 0 counts the leaf all the same."""
    if t.used[leaf] != t.stamp:
        t.used[leaf] = t.stamp
        t.chosen[t.n_chosen] = leaf
        t.part[t.n_chosen] = nodes
        t.n_chosen += 1
        return
    cdef int k = t.n_chosen - 1
    while t.chosen[k] != leaf:
        k -= 1
    t.part[k] += nodes


cdef int take_must(Gang* g, int rest) noexcept nogil:
    """Fill up leaves of nodes that must be in the gang; how many nodes are missing then, -1: it
    cannot be."""
    cdef Topo* t = &g.c.topo
    cdef Req* r = g.r
    cdef int seg = r.segment if r.segment else 1
    cdef int k, leaf, m, got
    for k in range(r.n_must):
        leaf = t.leaf[r.must[k]]
        if t.used[leaf] == t.stamp:
            continue
        m = t.held[leaf]
        got = (m + seg - 1) // seg * seg - m
        if got > leaf_load(g, leaf) or got > rest:
            return -1
        leaf_take(t, leaf, got)
        rest -= got
    for k in range(t.n_chosen):
        leaf = t.chosen[k]
        m = t.held[leaf]
        got = imin(rest, (m + t.count[leaf]) // seg * seg - m - t.part[k])
        t.part[k] += got
        rest -= got
    return rest


cdef int take_nodes(Gang* g, int unit, int need, int exact) noexcept nogil:
    """Leaves below a unit for a gang of so many nodes. 1; 0: they cannot hold it; -1: a leaf holds
    less than its room says. exact: leaves count by their candidates. Cost: leaves + the nodes of
    those taken (exact: of all)."""
    cdef Topo* t = &g.c.topo
    cdef int seg = g.r.segment if g.r.segment else 1
    cdef int rest, j, leaf, v, top = 0, got
    t.stamp += 1
    t.n_chosen = 0
    rest = take_must(g, need - g.r.n_must)
    if rest < 0:
        return 0
    # No leaf has more room than all of the unit.
    memset(t.head, 0xff, (<size_t>imin(t.widest, g.room[unit]) + 1) * sizeof(int32_t))
    for j in range(t.high[unit] - 1, t.low[unit] - 1, -1):
        leaf = t.below[j]
        if t.used[leaf] == t.stamp:
            continue
        v = leaf_load(g, leaf) if exact else g.room[leaf]
        v = v // seg * seg
        if v:
            t.next[leaf] = t.head[v]
            t.head[v] = leaf
            if v > top:
                top = v
    while rest > 0:
        while top and t.head[top] < 0:
            top -= 1
        if top == 0:
            return 0
        v = top
        if top >= rest:
            v = rest
            while t.head[v] < 0:
                v += 1
        leaf = t.head[v]
        t.head[v] = t.next[leaf]
        got = imin(rest, leaf_load(g, leaf) // seg * seg)
        if got < imin(v, rest):
            return -1
        leaf_take(t, leaf, got)
        if g.r.switches and t.n_chosen > g.r.switches:
            return 0
        rest -= got
    return not g.r.switches or t.n_chosen <= g.r.switches


cdef int try_nodes(Gang* g, int unit, int need) noexcept nogil:
    """Whether a gang of so many nodes lies below a unit; they are picked then."""
    cdef Topo* t = &g.c.topo
    cdef int64_t tasks = g.t_in, gpus = g.g_in
    cdef int k, j, ok
    if not covers(g, unit):
        return 0
    if (g.least and g.s == &g.c.now and g.room != t.own
            and t.rank_end[unit] - t.rank_low[unit] <= MOST_COUNTED
            and topo_most(g.c, g.s, &g.c.filters[g.r.filter], unit, g.least)
            < need - g.r.n_must):
        return 0
    ok = take_nodes(g, unit, need, 0)
    if ok < 0:
        ok = take_nodes(g, unit, need, 1)
    if ok <= 0:
        return 0
    g.n_pick = 0
    for k in range(t.n_chosen):
        for j in range(t.start[t.chosen[k]], t.start[t.chosen[k]] + t.part[k]):
            t.pick[g.n_pick] = j
            g.n_pick += 1
            tasks += g.c.cand_t[j]
            gpus += g.c.cand_g[j]
    if tasks < g.r.ntasks or (g.r.gtotal and gpus < g.r.gtotal):
        g.n_pick = 0
        return 0
    return 1


cdef int64_t amount_of(Gang* g, int j) noexcept nogil:
    return g.c.cand_g[j] if g.r.gtotal else g.c.cand_t[j]


cdef int pick_largest(Gang* g, int level) noexcept nogil:
    """The fewest nodes of the leaves chosen that hold all tasks and GPUs. 1, or 0."""
    cdef Cluster* c = g.c
    cdef Topo* t = &c.topo
    cdef Req* r = g.r
    cdef int64_t tasks = g.t_in, gpus = g.g_in
    cdef int k, j, n = 0, taken = 0
    for k in range(t.n_chosen):
        for j in range(t.start[t.chosen[k]], t.start[t.chosen[k]] + t.count[t.chosen[k]]):
            t.sort[n].priority = c.cand_g[j] if r.gtotal else c.cand_t[j]
            t.sort[n].order = -<int64_t>c.cand_t[j] if r.gtotal else 0
            t.sort[n].key = n
            t.sort[n].slot = j
            n += 1
    sort_entries(t.sort, t.sort + n, n)
    while taken + r.n_must < g.lower or tasks < r.ntasks or (r.gtotal and gpus < r.gtotal):
        if taken >= n or taken + r.n_must >= g.upper:
            return 0
        j = t.sort[taken].slot
        t.pick[taken] = j
        tasks += c.cand_t[j]
        gpus += c.cand_g[j]
        taken += 1
    if level > highest(t, r, taken + r.n_must):
        return 0
    g.n_pick = taken
    return 1


cdef int gpus_suffice(Gang* g, int unit) noexcept nogil:
    """0: there are not enough free GPUs below a unit for all that is asked for. Cost: GPUs."""
    cdef Req* r = g.r
    cdef size_t units = g.c.topo.n_units
    cdef int64_t need = r.gtotal - g.g_in, have = 0
    cdef int k
    if g.room == g.c.topo.own or not r.gpu or r.milli:
        return 1
    if not r.gtotal:
        need = (r.ntasks - g.t_in) * r.gpt
    # A node with so many free GPUs is counted in as many rows.
    for k in range(1, GRID):
        if have >= need or g.s.room[k * units + unit] == 0:
            break
        have += g.s.room[k * units + unit]
    return have >= need


cdef int try_amount(Gang* g, int unit) noexcept nogil:
    """Whether all tasks and GPUs, on as many nodes as it takes, lie below a unit: leaves are taken
    by what they hold. Cost: the unit's nodes."""
    cdef Topo* t = &g.c.topo
    cdef Req* r = g.r
    cdef Entry* e
    cdef int64_t tasks = g.t_in, gpus = g.g_in, rest
    cdef int k, j, leaf, n = 0, nodes = r.n_must, a, b
    if not covers(g, unit) or not gpus_suffice(g, unit):
        return 0
    for j in range(t.low[unit], t.high[unit]):
        leaf_load(g, t.below[j])
    t.stamp += 1
    t.n_chosen = 0
    for k in range(r.n_must):
        leaf = t.leaf[r.must[k]]
        if t.used[leaf] != t.stamp:
            leaf_take(t, leaf, 0)
            for j in range(t.start[leaf], t.start[leaf] + t.count[leaf]):
                tasks += g.c.cand_t[j]
                gpus += g.c.cand_g[j]
                nodes += 1
    # Behind the places that pick_largest() sorts in.
    e = t.sort + 2 * <size_t>g.c.n
    for j in range(t.low[unit], t.high[unit]):
        leaf = t.below[j]
        if t.used[leaf] == t.stamp or t.count[leaf] == 0:
            continue
        e[n].priority = 0
        for k in range(t.start[leaf], t.start[leaf] + t.count[leaf]):
            e[n].priority += amount_of(g, k)
        e[n].order = leaf
        e[n].key = 0
        e[n].slot = leaf
        n += 1
    sort_entries(e, e + n, n)
    a = 0
    while nodes < g.lower or tasks < r.ntasks or (r.gtotal and gpus < r.gtotal):
        while a < n and e[a].slot < 0:
            a += 1
        if a >= n:
            break
        b = a
        rest = r.gtotal - gpus if r.gtotal else r.ntasks - tasks
        if rest > 0 and e[a].priority >= rest:
            for k in range(a + 1, n):
                if e[k].priority < rest:
                    break
                if e[k].slot >= 0 and e[k].priority < e[b].priority:
                    b = k
        leaf = e[b].slot
        e[b].slot = -1
        leaf_take(t, leaf, 0)
        for k in range(t.start[leaf], t.start[leaf] + t.count[leaf]):
            tasks += g.c.cand_t[k]
            gpus += g.c.cand_g[k]
            nodes += 1
    if r.switches and t.n_chosen > r.switches:
        return 0
    if pick_largest(g, t.level[unit]):
        return 1
    if r.switches:
        return 0
    # On so few nodes only the largest of all leaves hold it.
    for j in range(t.low[unit], t.high[unit]):
        if t.used[t.below[j]] != t.stamp:
            leaf_take(t, t.below[j], 0)
    return pick_largest(g, t.level[unit])


cdef inline int try_unit(Gang* g, int unit, int need) noexcept nogil:
    return try_nodes(g, unit, need) if need else try_amount(g, unit)


cdef int try_level(Gang* g, int level, int need) noexcept nogil:
    """Units of a level in order of room. need 0: as many nodes as it takes."""
    cdef Topo* t = &g.c.topo
    cdef Entry* e = t.sort + 2 * <size_t>g.c.n + 2 * <size_t>t.n_units
    cdef int least = (need if need else g.lower) - g.r.n_must
    cdef int u, k, n = 0, best = -1
    if least < 1 and g.r.n_must == 0:
        least = 1
    if g.r.n_must:
        u = unit_above(t, g.r.must[0], level)
        return u >= 0 and g.room[u] >= least and try_unit(g, u, need)
    for u in range(t.lev[level], t.lev[level + 1]):
        if g.room[u] >= least and (best < 0 or g.room[u] < g.room[best]):
            best = u
    if best < 0:
        return 0
    if try_unit(g, best, need):
        return 1
    for u in range(t.lev[level], t.lev[level + 1]):
        if g.room[u] >= least and u != best:
            e[n].priority = -g.room[u]
            e[n].order = u
            e[n].key = 0
            e[n].slot = u
            n += 1
    sort_entries(e, e + n, n)
    for k in range(n):
        if try_unit(g, e[k].slot, need):
            return 1
    return 0


cdef int by_topology(Gang* g, int want) noexcept nogil:
    """Pick a gang below one unit: as many nodes as possible up to `want`, at least `lower`; or
    (want 0, or if these do not hold it) as few as hold all tasks and GPUs. 1, or 0. Cost: units +
    the nodes of leaves looked at; a refusal nodes x levels."""
    cdef Topo* t = &g.c.topo
    cdef int need, level, most = 0, k
    for k in range(g.r.n_must):
        if t.leaf[g.r.must[k]] < 0:
            return 0
    if want:
        for k in range(t.n_units):
            if t.up[k] < 0 and g.room[k] > most:
                most = g.room[k]
        for need in range(imin(want, most + g.r.n_must), g.lower - 1, -1):
            if g.r.segment and need % g.r.segment:
                continue
            for level in range(highest(t, g.r, need) + 1):
                if try_level(g, level, need):
                    return 1
    if (g.r.ntasks == 0 and not g.r.gtotal) or g.upper <= 1 or g.r.segment:
        return 0
    for level in range(t.n_levels):
        if try_level(g, level, 0):
            return 1
    return 0


cdef int gang(Cluster* c, State* s, Req* r, int64_t end, int lower, int upper, int want,
              int64_t t_in, int64_t g_in) noexcept nogil:
    """Nodes for r that are chosen together, and what each gives, in c.out. 1, or 0. want 0: not a
    number of nodes but the tasks and GPUs count."""
    cdef Gang g
    cdef int ok
    gang_open(&g, c, s, r, end, lower, upper, t_in, g_in)
    if r.contiguous:
        ok = walk(c, s, r, end, smallest_gpus(r), 0, 0, c.n - r.n_must)
        ok = side_by_side(&g, ok, want)
    else:
        topo_ranks(c)
        ok = by_topology(&g, want)
    gang_close(&g)
    return ok and finish(c, s, r, end, g.n_pick + r.n_must)


cdef int gang_planned(Cluster* c, Req* r, int n, int lower, int upper, int want, int64_t t_in,
                      int64_t g_in) noexcept nogil:
    """The same out of the first n candidates, as `then` has them."""
    cdef Gang g
    cdef int ok
    gang_open(&g, c, &c.then, r, 0, lower, upper, t_in, g_in)
    if r.contiguous:
        ok = side_by_side(&g, n, want)
    else:
        gang_group(&g, n)
        ok = by_topology(&g, want)
    gang_close(&g)
    return ok and finish(c, &c.then, r, 0, g.n_pick + r.n_must)


cdef int apart(Cluster* c, Req* r, State* s, int64_t end) noexcept nogil:
    """T_...: the demand but for which r would fit into s; 0: it fits, or would not fit anyway."""
    cdef int fits, what
    if not is_gang(c, r) or place(c, s, r, end):
        return 0
    r.loose = 1
    fits = place(c, s, r, end)
    r.loose = 0
    if not fits:
        return 0
    what = r.contiguous
    if what:
        r.contiguous = 0
        fits = place(c, s, r, end)
        r.contiguous = 1
        if fits:
            return T_CONTIGUOUS
    return T_BLOCK if c.topo.blocks else T_SWITCH
