# Why a request is refused: nodes counted by what they lack.

cdef enum:
    # never: not on this node as it is configured
    W_PARTITION = 0
    W_FEATURES
    W_EXCLUDED
    W_LAYOUT
    W_CPUS_TOTAL
    W_MEMORY_TOTAL
    W_GPU_TYPE
    W_GPUS_TOTAL
    W_ISLAND_TOTAL
    W_NEAR_TOTAL
    W_GRES_TOTAL
    W_CAP_TOTAL
    # not now
    W_STATE
    W_BUSY
    W_CPUS
    W_MEMORY
    W_GPUS
    W_ISLAND
    W_NEAR
    W_GRES
    W_CAP
    W_KEPT
    W_RESERVED
    W_WINDOW
    WHYS

cdef enum:
    FEW_KINDS = 256          # of nodes, whose lacks for good are remembered while nodes are counted

cdef struct Need:
    int64_t t
    int64_t g
    int64_t cpus             # usable ones


cdef void need_of(Req* r, Need* o) noexcept nogil:
    """The least that each node must hold; all of it where one node is asked for."""
    o.t = r.tmin
    o.g = smallest_gpus(r)
    if r.max_nodes == 1 or r.cap_nodes == 1:
        o.t = lmax(r.tmin, r.ntasks)
        if r.gtotal:
            o.g = r.gtotal
        elif not r.gpn:
            o.g = o.t * r.gpt
    elif r.rare != NULL and r.rare.per_gpu:
        o.t = r.rare.per_gpu
    o.cpus = cpu_need(r, o.t, o.g)


cdef inline int64_t kind_need(Req* r, Need* need, int k) noexcept nogil:
    """GPUs of one type that each node must have."""
    cdef Rare* x = r.rare
    if x.gpn[k]:
        return x.gpn[k]
    if x.gpt[k]:
        return x.gpt[k] * need.t
    return x.gtotal[k] if r.max_nodes == 1 or r.cap_nodes == 1 else 0


cdef void lacks(Cluster* c, Req* r, Need* need, int i, int64_t cpus, int64_t mem, uint64_t gpus,
                int* no_cpus, int* no_mem, int* no_type, int* no_gpus,
                int* no_island) noexcept nogil:
    """What of the need is missing on node i with so much free."""
    cdef int64_t cores = cores_need(c, r, i, need.t, need.g)
    cdef int64_t charge = cores * c.threads[i], memory = 0
    cdef uint64_t mask = gpus if r.milli == 0 else divisible(c, r, i, gpus), kinds
    cdef int k
    no_type[0] = no_gpus[0] = no_island[0] = 0
    if r.excl:
        charge = lmax(charge, c.cpus[i])
    no_cpus[0] = cpus < charge
    if r.mem_cpu > 0:
        memory = r.mem_cpu * cores * usable_threads(c, r, i)
    elif r.mem_node == 0:
        memory = c.mem[i]
    elif r.mem_node > 0:
        memory = r.mem_node
    elif r.mem_gpu > 0:
        memory = r.mem_gpu * need.g
    no_mem[0] = mem < memory
    if not r.gpu:
        return
    kinds = type_mask(c, r, i)
    if mask & kinds == 0 and c.all[i]:
        no_type[0] = (c.all[i] & kinds) == 0
    if no_type[0]:
        return
    mask &= kinds
    no_gpus[0] = gs_pop(mask) < need.g
    if r.rare != NULL:
        for k in range(r.rare.n_kinds):
            if gs_pop(mask & kind_mask(c, r.rare, i, k)) < kind_need(r, need, k):
                no_gpus[0] = 1
    if r.island and not no_gpus[0]:
        no_island[0] = largest_island(&c.links[c.cls[i]], mask) < need.g


cdef int near_lacks(Cluster* c, State* s, Req* r, Need* need, int i, int64_t cpus, int64_t mem,
                    uint64_t gpus) noexcept nogil:
    """Whether cores near GPUs, or by socket, are what is missing."""
    cdef Fit f
    if not near_wanted(r):
        return 0
    f.cpus = cpus
    f.mem = mem
    f.mask = gpus & type_mask(c, r, i)
    return not near_holds(c, s, r, i, &f, need.t, need.g)


cdef uint32_t lack_ever(Cluster* c, Req* r, Need* need, int i) noexcept nogil:
    """What node i lacks for good, but for being excluded: the same for all nodes of a kind, but for
    generic resources besides GPUs."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef int no_cpus, no_mem, no_type, no_gpus, no_island, no_more, no_cap = 0
    if fl.partition >= 0 and not has_bit(c.parts + <size_t>i * BIT_WORDS, fl.partition):
        return 1 << W_PARTITION
    if not features_fit(c, fl, i):
        return 1 << W_FEATURES
    if not layout_fits(c, fl, i):
        return 1 << W_LAYOUT
    lacks(c, r, need, i, c.cpus[i], c.mem[i], c.all[i],
          &no_cpus, &no_mem, &no_type, &no_gpus, &no_island)
    no_more = r.more and not row_holds(extra_row(c.extra, i), r.extra)
    if r.caps and caps_left(r, extra_row(c.extra, i)) < cores_need(c, r, i, need.t, need.g) * c.threads[i]:
        no_cap = 1
    if no_cpus or no_mem or no_type or no_gpus or no_island or no_more or no_cap:
        return (no_cap << W_CAP_TOTAL | no_cpus << W_CPUS_TOTAL | no_mem << W_MEMORY_TOTAL | no_type << W_GPU_TYPE
                | no_gpus << W_GPUS_TOTAL | no_island << W_ISLAND_TOTAL
                | no_more << W_GRES_TOTAL)
    if near_lacks(c, NULL, r, need, i, c.cpus[i], c.mem[i], c.all[i]):
        return 1 << W_NEAR_TOTAL
    return 0


cdef uint32_t lack_now(Cluster* c, State* s, Req* r, Need* need, int i,
                       int64_t end) noexcept nogil:
    """What node i lacks, where it lacks nothing for good."""
    cdef Fit f
    cdef int64_t cpus = s.cpus[i], mem = s.mem[i]
    cdef uint64_t free_
    cdef int no_cap = 0
    cdef int no_cpus, no_mem, no_type, no_gpus, no_island, no_more
    if not s.usable[i]:
        return 1 << W_STATE
    if r.lot and not s.told:
        cpus += lot_joins(c, s, r, i)
    lacks(c, r, need, i, cpus, mem, pool(c, s, r, i),
          &no_cpus, &no_mem, &no_type, &no_gpus, &no_island)
    if (r.alone and s.jobs[i]) or not owner_fits(s, r, i):
        return 1 << W_BUSY
    no_more = not extra_fits(s, r, i)
    if r.caps:
        no_cap = (caps_left(r, extra_row(s.extra, i))
                  < cores_need(c, r, i, need.t, need.g) * c.threads[i])
    if no_cpus or no_mem or no_gpus or no_island or no_more or no_cap:
        return (no_cap << W_CAP | no_cpus << W_CPUS | no_mem << W_MEMORY | no_gpus << W_GPUS
                | no_island << W_ISLAND | no_more << W_GRES)
    if near_lacks(c, s, r, need, i, s.cpus[i], s.mem[i], pool(c, s, r, i)):
        return 1 << W_NEAR
    if r.odd and not s.told:
        cpus = odd_cpus(c, s, r, i, &mem)
        lacks(c, r, need, i, cpus, mem, pool(c, s, r, i),
              &no_cpus, &no_mem, &no_type, &no_gpus, &no_island)
        if no_cpus or no_mem:
            return 1 << W_KEPT
    if c.w_on:
        free_ = pool(c, s, r, i)
        if not window_fit(c, s, r, i, &cpus, &free_, &mem):
            return 1 << W_WINDOW
        lacks(c, r, need, i, cpus, mem, free_,
              &no_cpus, &no_mem, &no_type, &no_gpus, &no_island)
        if no_cpus or no_mem or no_gpus or no_island:
            return 1 << W_WINDOW
    if end > 0 and (not fit(c, s, r, i, end, &f)
                    or f.t < need.t or (r.gtotal and f.g < need.g)):
        return 1 << W_RESERVED
    return 0


cdef uint32_t lack_of(Cluster* c, State* s, Req* r, Need* need, int i,
                      int64_t end) noexcept nogil:
    """What node i lacks, as bits by the numbers above; 0: nothing. Excluded nodes are marked."""
    cdef uint32_t bits = lack_ever(c, r, need, i)
    if c.mark[i] and bits != 1 << W_PARTITION:
        return 1 << W_EXCLUDED
    return bits if bits else lack_now(c, s, r, need, i, end)


cdef int explain(Cluster* c, Req* r, int64_t end, int64_t* why, int* able) noexcept nogil:
    """Count nodes by what they lack; the number of nodes that lack nothing, and of those that lack
    nothing for good. Cost: nodes; ~1 ns each for those of a few kinds that never suit."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef Need need
    cdef uint32_t bits
    cdef uint32_t known[FEW_KINDS]
    cdef int64_t count[FEW_KINDS]
    cdef int i, e, k, suited = 0
    memset(why, 0, WHYS * sizeof(int64_t))
    able[0] = 0
    need_of(r, &need)
    for e in range(fl.n_exclude):
        c.mark[fl.exclude[e]] = 1
    memset(known, 0xff, sizeof(known))
    memset(count, 0, sizeof(count))
    for i in range(c.n):
        k = c.kind[i]
        if 0 <= k < FEW_KINDS and not c.mark[i] and not r.more:
            if known[k] == <uint32_t>0xffffffff:
                known[k] = lack_ever(c, r, &need, i)
            if known[k]:
                count[k] += 1
                continue
            bits = lack_now(c, &c.now, r, &need, i, end)
        else:
            bits = lack_of(c, &c.now, r, &need, i, end)
        suited += bits == 0
        able[0] += bits & ((1 << W_STATE) - 1) == 0
        while bits:
            why[gs_ctz(bits)] += 1
            bits &= bits - 1
    for k in range(FEW_KINDS):
        bits = known[k] if count[k] else 0
        while bits:
            why[gs_ctz(bits)] += count[k]
            bits &= bits - 1
    for e in range(fl.n_exclude):
        c.mark[fl.exclude[e]] = 0
    return suited
