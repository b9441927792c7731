# Cores by socket and near GPUs.
#
# A node's cores lie in domains: those of one socket that are near the same GPUs. How many of each
# are free is known for now alone; at other times as many are taken to be free as there may be. A
# share that has no wish gets the cores near its GPUs first, then others, one socket after the other
# in turn.

cdef enum:
    NEAR_GROUPS = 8        # GPUs near so many sets of domains are told apart

cdef struct Near:
    DomMap* m
    int exact
    int64_t free[MAX_DOMS]


cdef void near_load(Cluster* c, State* s, int i, int64_t cpus, Near* o) noexcept nogil:
    """Free cores of node i by domain; s NULL: of the empty node."""
    cdef int64_t cores = lmax(cpus, 0) // c.threads[i]
    cdef int16_t* used
    cdef int d
    o.m = &c.maps[c.dmap[i]]
    o.exact = s != NULL and o.m.n > 1 and (s == &c.now or c.near_now)
    if o.m.n <= 1:
        o.free[0] = cores
        return
    used = c.dom_used + <size_t>i * MAX_DOMS
    for d in range(o.m.n):
        if o.exact:
            o.free[d] = lmax(0, o.m.cores[d] - used[d])
        else:
            o.free[d] = lmin(o.m.cores[d], cores)


cdef inline uint32_t near_gpus(DomMap* m, uint64_t gpus) noexcept nogil:
    """Domains near any of these GPUs."""
    cdef uint32_t out = 0
    while gpus:
        out |= m.near[gs_ctz(gpus)]
        gpus &= gpus - 1
    return out


cdef inline int64_t near_sum(Near* o, uint32_t doms) noexcept nogil:
    cdef int64_t out = 0
    while doms:
        out += o.free[gs_ctz(doms)]
        doms &= doms - 1
    return out


cdef int64_t near_take(Near* o, int64_t n, uint32_t first, uint32_t doms,
                       int16_t* out) noexcept nogil:
    """n cores of these domains, those in `first` before others, one socket after the other in turn.
    What is missing. Cost: cores x sockets."""
    cdef uint32_t group, rest
    cdef int turn, k, d, got
    for turn in range(2):
        group = doms & first if turn == 0 else doms & ~first
        while n > 0:
            got = 0
            for k in range(o.m.n_sockets):
                rest = group & o.m.of_socket[k]
                while rest:
                    d = gs_ctz(rest)
                    rest &= rest - 1
                    if o.free[d] > 0:
                        o.free[d] -= 1
                        out[d] += 1
                        n -= 1
                        got = 1
                        break
                if n == 0:
                    break
            if not got:
                break
    return n


cdef inline void near_forget(Share* shares, int n) noexcept nogil:
    """Which cores these get is chosen when they start."""
    cdef int k
    for k in range(n):
        shares[k].cut = 0


cdef inline void near_cut(Cluster* c, Share* sh) noexcept nogil:
    """Choose the cores of a share that starts, where that was not done."""
    cdef Near o
    cdef int i = sh.node
    if sh.cut and c.dmap[i]:
        return
    memset(sh.cores, 0, sizeof(sh.cores))
    if c.dmap[i] == 0:
        return
    near_load(c, &c.now, i, 0, &o)
    near_take(&o, (sh.cpus + c.threads[i] - 1) // c.threads[i], near_gpus(o.m, sh.mask),
              o.m.every, sh.cores)
    sh.cut = 1


cdef inline void near_count(Cluster* c, Share* sh, int sign) noexcept nogil:
    """A share's cores are in use, or (sign -1) free again. After c.now.jobs changed."""
    cdef int16_t* used
    cdef int d, i = sh.node
    if c.dmap[i] == 0:
        return
    used = c.dom_used + <size_t>i * MAX_DOMS
    if c.now.jobs[i] == 0:
        memset(used, 0, MAX_DOMS * sizeof(int16_t))
        return
    for d in range(c.maps[c.dmap[i]].n):
        used[d] += sign * sh.cores[d]
        if used[d] < 0:
            used[d] = 0


cdef inline int near_wanted(Req* r) noexcept nogil:
    """Whether r has demands on where its cores lie. A whole node has them all."""
    if r.rare == NULL or r.excl:
        return 0
    return r.rare.per_socket or r.rare.gpus_socket or (r.rare.bind == 1 and r.gpu and not r.milli)


cdef int64_t tasks_in(Cluster* c, Req* r, int i, int64_t cores) noexcept nogil:
    """Most tasks that so many cores hold."""
    cdef int64_t u = usable_threads(c, r, i)
    if r.overcommit:
        return MAX_COUNT if cores > 0 else 0
    if r.rare.per_core == 1:
        return cores // ((r.cpt + u - 1) // u)
    if r.rare.per_core:
        return lmin(cores * u // r.cpt, cores * r.rare.per_core)
    return cores * u // r.cpt


cdef int64_t cores_for(Cluster* c, Req* r, int i, int64_t t) noexcept nogil:
    """Cores for t tasks of one socket."""
    cdef int64_t u = usable_threads(c, r, i)
    if r.overcommit or t == 0:
        return 0
    if r.rare.per_core == 1:
        return t * ((r.cpt + u - 1) // u)
    if r.rare.per_core:
        return lmax((t * r.cpt + u - 1) // u, (t + r.rare.per_core - 1) // r.rare.per_core)
    return (t * r.cpt + u - 1) // u


cdef int near_lay(Cluster* c, Req* r, int i, Near* all_, Fit* f, int64_t t, uint64_t gpus,
                  uint32_t doms, uint32_t* forced, int n_forced, Share* o) noexcept nogil:
    """Cores for t tasks beside these GPUs out of these domains, one at least in each of `forced`;
    into o. 1, or 0 when there are not so many."""
    cdef Near v = all_[0]
    cdef Rare* x = r.rare
    cdef uint32_t first = near_gpus(v.m, gpus) if x.bind != 2 else 0, mine
    cdef int64_t g = gs_pop(gpus), n = cores_need(c, r, i, t, g), left, k, size, total = 0
    cdef int u = usable_threads(c, r, i), turn, s, d
    memset(o.cores, 0, sizeof(o.cores))
    if x.per_socket:
        size = 0
        for s in range(v.m.n_sockets):
            k = 0
            for d in range(v.m.n):
                if v.m.of_socket[s] >> d & 1:
                    k += v.m.cores[d] if v.m.n > 1 else c.cpus[i] // c.threads[i]
            size = lmax(size, k)
        if r.cpt > size * u:
            # A task is on several sockets.
            if t > <int64_t>x.per_socket * v.m.n_sockets:
                return 0
        else:
            left = t
            for turn in range(2):
                for s in range(v.m.n_sockets):
                    mine = doms & v.m.of_socket[s]
                    if (mine & first == 0) != turn:
                        continue
                    k = lmin(lmin(left, x.per_socket), tasks_in(c, r, i, near_sum(&v, mine)))
                    left -= k
                    k = cores_for(c, r, i, k)
                    near_take(&v, k, first, mine, o.cores)
                    n -= k
            if left:
                return 0
    for s in range(n_forced):
        mine = 0
        for d in range(v.m.n):
            if forced[s] >> d & 1 and o.cores[d]:
                mine = 1
        if not mine:
            if near_take(&v, 1, first, forced[s], o.cores):
                return 0
            n -= 1
    if n > 0 and near_take(&v, n, first, doms, o.cores):
        return 0
    for d in range(v.m.n):
        total += o.cores[d]
    if total * c.threads[i] > f.cpus:
        return 0
    if r.mem_cpu > 0:
        o.mem = r.mem_cpu * total * u
    elif r.mem_node < 0 and r.mem_gpu > 0:
        o.mem = r.mem_gpu * g
    if o.mem > f.mem and o.mem > 0:
        return 0
    o.cpus = <int32_t>(total * c.threads[i])
    o.mask = gpus
    o.gpus = <int32_t>g
    o.cut = v.m.n > 1
    return 1


cdef int near_groups(DomMap* m, uint64_t mask, uint64_t* group) noexcept nogil:
    """GPUs by the domains that they are near; the number of sets, 0 where there are too many."""
    cdef uint32_t seen[NEAR_GROUPS]
    cdef int n = 0, k, g
    while mask:
        g = gs_ctz(mask)
        mask &= mask - 1
        for k in range(n):
            if seen[k] == m.near[g]:
                group[k] |= (<uint64_t>1) << g
                break
        else:
            if n == NEAR_GROUPS:
                return 0
            seen[n] = m.near[g]
            group[n] = (<uint64_t>1) << g
            n += 1
    return n


cdef uint64_t near_pick(Cluster* c, Req* r, int i, uint64_t* group, int which, int seeded, int64_t g,
                        int32_t* deal) noexcept nogil:
    """g GPUs of the sets in `which`; seeded: one of each at least. 0: there are not so many."""
    cdef Links* L = &c.links[c.cls[i]]
    cdef uint64_t mask = 0, out = 0
    cdef int k, sets = gs_pop(which)
    for k in range(NEAR_GROUPS):
        if which >> k & 1:
            mask |= group[k]
            if seeded:
                out |= best_gpus(L, group[k], 1)
    if gs_pop(mask) < g:
        return 0
    if seeded:
        if sets < 2 or g < sets or r.island or r.rare != NULL and r.rare.n_kinds:
            return 0
        if g > sets:
            out |= best_gpus(L, mask & ~out, <int>(g - sets))
    elif deal != NULL:
        out = kinds_gpus(c, r, i, mask, g, deal)
    else:
        out = whole_gpus(c, r, i, mask, g)
    return out if gs_pop(out) == g else 0


cdef int near_bound(Cluster* c, Req* r, int i, Near* v, Fit* f, uint64_t mask, int64_t t, int64_t g,
                    int32_t* deal, Share* o) noexcept nogil:
    """GPUs of the fewest domains near which there are cores for t tasks, and these."""
    cdef uint64_t group[NEAR_GROUPS]
    cdef uint64_t gpus, rest
    cdef uint32_t forced[MAX_GPUS]
    cdef int n = near_groups(v.m, mask, group), size, which, seeded, k, n_forced
    for size in range(1, n + 1):
        for which in range(1, 1 << n):
            if gs_pop(which) != size:
                continue
            for seeded in range(2):
                gpus = near_pick(c, r, i, group, which, seeded, g, deal)
                if gpus == 0:
                    continue
                n_forced = 0
                for k in range(n):
                    if group[k] & gpus:
                        forced[n_forced] = v.m.near[gs_ctz(group[k])]
                        n_forced += 1
                if near_lay(c, r, i, v, f, t, gpus, near_gpus(v.m, gpus), forced, n_forced, o):
                    return 1
    return 0


cdef int near_sockets(Cluster* c, Req* r, int i, Near* v, Fit* f, uint64_t mask, int64_t t,
                      Share* o) noexcept nogil:
    """So many GPUs near each of the fewest sockets that have cores for t tasks."""
    cdef Rare* x = r.rare
    cdef uint64_t gpus, near, rest
    cdef uint32_t forced[MAX_DOMS]
    cdef uint32_t chosen, doms
    cdef int count, k, s, best, ok
    for count in range(imin(x.n_sockets, MAX_DOMS), v.m.n_sockets + 1):
        chosen = 0
        for k in range(count):
            # The one with the most free cores of those that are left.
            best = -1
            for s in range(v.m.n_sockets):
                if chosen >> s & 1 or near_sum(v, v.m.of_socket[s]) < 1:
                    continue
                if gs_pop(socket_gpus(v.m, mask, s)) < x.gpus_socket:
                    continue
                if best < 0 or (near_sum(v, v.m.of_socket[s])
                                > near_sum(v, v.m.of_socket[best])):
                    best = s
            if best < 0:
                return 0
            chosen |= (<uint32_t>1) << best
        gpus = 0
        doms = 0
        ok = 1
        k = 0
        for s in range(v.m.n_sockets):
            if not chosen >> s & 1:
                continue
            near = socket_gpus(v.m, mask, s) & ~gpus
            if gs_pop(near) < x.gpus_socket:
                ok = 0
                break
            gpus |= best_gpus(&c.links[c.cls[i]], near, x.gpus_socket)
            doms |= v.m.of_socket[s]
            forced[k] = v.m.of_socket[s]
            k += 1
        if ok and near_lay(c, r, i, v, f, t, gpus, doms, forced, k, o):
            return 1
    return 0


cdef uint64_t socket_gpus(DomMap* m, uint64_t mask, int s) noexcept nogil:
    """GPUs near any domain of a socket."""
    cdef uint64_t out = 0
    while mask:
        if m.near[gs_ctz(mask)] & m.of_socket[s]:
            out |= gs_low(mask)
        mask &= mask - 1
    return out


cdef int near_choose(Cluster* c, State* s, Req* r, int i, Fit* f, int64_t t, int64_t g,
                     int32_t* deal, Share* o) noexcept nogil:
    """GPUs and cores of node i for t tasks and g GPUs of a request with demands on where its cores
    lie. 1, or 0: there are none such. Cost: 2^(sets of GPUs near the same cores)."""
    cdef Near v
    cdef uint64_t gpus = 0
    near_load(c, s, i, s.cpus[i] if s != NULL else c.cpus[i], &v)
    if r.rare.gpus_socket:
        return near_sockets(c, r, i, &v, f, f.mask, t, o)
    if r.rare.bind == 1 and g > 0 and not r.milli:
        return near_bound(c, r, i, &v, f, f.mask, t, g, deal, o)
    if r.milli:
        gpus = o.mask
    elif g > 0:
        if deal != NULL:
            gpus = kinds_gpus(c, r, i, f.mask, g, deal)
        else:
            gpus = whole_gpus(c, r, i, f.mask, g)
    return near_lay(c, r, i, &v, f, t, gpus, v.m.every, NULL, 0, o)


cdef int near_holds(Cluster* c, State* s, Req* r, int i, Fit* f, int64_t t,
                    int64_t g) noexcept nogil:
    cdef Share o
    memset(&o, 0, sizeof(Share))
    o.mem = 0
    return near_choose(c, s, r, i, f, t, g, NULL, &o)


cdef int near_fit(Cluster* c, State* s, Req* r, int i, Fit* f) noexcept nogil:
    """Lessen the tasks and GPUs that node i can hold to those that it can hold, with any fewer, where
    they are wanted. 0: not the smallest part."""
    cdef int64_t t = r.tmin, g, top
    if not near_wanted(r):
        return 1
    if r.gtotal:
        if r.rare.per_gpu:
            g = 0
            top = lmin(f.g, r.gtotal)
            while g < top and near_holds(c, s, r, i, f, (g + 1) * r.rare.per_gpu, g + 1):
                g += 1
            f.g = g
            f.t = g * r.rare.per_gpu
            return g > 0
        g = 0
        top = lmin(f.g, r.gtotal)
        while g < top and near_holds(c, s, r, i, f, t, g + 1):
            g += 1
        f.g = g
        if g == 0:
            return 0
        g = 1
    elif not near_holds(c, s, r, i, f, t, r.gpn if r.gpn else t * r.gpt):
        return 0
    if r.ntasks == 0:
        return 1
    top = lmin(f.t, r.ntasks)
    while t < top and near_holds(
        c, s, r, i, f, t + 1, 1 if r.gtotal else r.gpn if r.gpn else (t + 1) * r.gpt
    ):
        t += 1
    f.t = t
    return 1


cdef uint64_t near_prefer(Cluster* c, State* s, Req* r, int i, uint64_t mask, uint64_t gpus,
                          int64_t cores, int32_t* deal) noexcept nogil:
    """These GPUs, or others as well linked that have the cores near them which these lack."""
    cdef Near v
    cdef Links* L = &c.links[c.cls[i]]
    cdef uint64_t group[NEAR_GROUPS]
    cdef uint64_t other
    cdef int n, size, which, seeded
    if c.dmap[i] == 0 or gpus == 0 or (r.rare != NULL and r.rare.bind == 2):
        return gpus
    near_load(c, s, i, s.cpus[i], &v)
    if not v.exact or near_sum(&v, near_gpus(v.m, gpus)) >= cores:
        return gpus
    n = near_groups(v.m, mask, group)
    for size in range(1, n + 1):
        for which in range(1, 1 << n):
            if gs_pop(which) != size:
                continue
            for seeded in range(2):
                other = near_pick(c, r, i, group, which, seeded, gs_pop(gpus), deal)
                if (other and near_sum(&v, near_gpus(v.m, other)) >= cores
                        and inside_sum(L, other) // LINK_WEIGHT
                        >= inside_sum(L, gpus) // LINK_WEIGHT):
                    return other
    return gpus


cdef void near_anywhere(Cluster* c, Share* o) noexcept nogil:
    """The cores of a share wherever they lie, one socket after the other."""
    cdef Near v
    near_load(c, &c.now, o.node, 0, &v)
    memset(o.cores, 0, sizeof(o.cores))
    near_take(&v, o.cpus // c.threads[o.node], 0, v.m.every, o.cores)
    o.cut = 1
