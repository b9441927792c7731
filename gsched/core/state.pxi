# The cluster as flat arrays (see types.pxi), and the index of free nodes.

cdef int state_init(State* s, int n) noexcept nogil:
    memset(s, 0, sizeof(State))
    s.cpus = <int32_t*>calloc(n, sizeof(int32_t))
    s.mem = <int64_t*>calloc(n, sizeof(int64_t))
    s.gpus = <uint64_t*>calloc(n, sizeof(uint64_t))
    s.frac = <uint64_t*>calloc(n, sizeof(uint64_t))
    s.jobs = <int32_t*>calloc(n, sizeof(int32_t))
    s.owner = <int32_t*>calloc(n, sizeof(int32_t))
    s.usable = <uint8_t*>calloc(n, 1)
    s.nfree = <uint8_t*>malloc(n)
    s.nisland = <uint8_t*>calloc(n, 1)
    s.bucket = <uint64_t**>calloc(GRID * GRID, sizeof(uint64_t*))
    s.count = <int32_t*>calloc(GRID * GRID, sizeof(int32_t))
    if (s.cpus == NULL or s.mem == NULL or s.gpus == NULL or s.frac == NULL or s.jobs == NULL or s.usable == NULL
            or s.owner == NULL or s.nfree == NULL or s.nisland == NULL or s.bucket == NULL or s.count == NULL):
        return -1
    memset(s.nfree, 255, n)
    return 0


cdef void state_free(State* s) noexcept nogil:
    cdef int i
    if s.bucket != NULL:
        for i in range(GRID * GRID):
            free(s.bucket[i])
    free(s.cpus)
    free(s.mem)
    free(s.gpus)
    free(s.frac)
    free(s.took)
    free(s.jobs)
    free(s.owner)
    free(s.extra)
    free(s.usable)
    free(s.nfree)
    free(s.nisland)
    free(s.bucket)
    free(s.count)
    free(s.room)


cdef inline void index_drop(Cluster* c, State* s, int i) noexcept nogil:
    """Take node i out of its bucket."""
    cdef int f = s.nfree[i], b, r, w
    cdef uint64_t* bits
    if f == 255:
        return
    b = f * GRID + s.nisland[i]
    bits = s.bucket[b]
    r = c.rank[i]
    w = r >> 6
    bits[w] &= ~((<uint64_t>1) << (r & 63))
    if bits[w] == 0:
        bits[c.words + (w >> 6)] &= ~((<uint64_t>1) << (w & 63))
    s.count[b] -= 1
    if s.count[b] == 0:
        s.filled[f] &= ~((<uint64_t>1) << (s.nisland[i] - 1 if f else 0))
    s.nfree[i] = 255
    if c.topo.on:
        topo_count(c, s, i, f, -1)


cdef inline void index_put(Cluster* c, State* s, int i) noexcept nogil:
    """Put node i into the bucket of what it has free; nodes out of use are in none."""
    index_file(c, s, i)
    if c.topo.on and s.nfree[i] != 255:
        topo_count(c, s, i, s.nfree[i], 1)


cdef inline void index_file(Cluster* c, State* s, int i) noexcept nogil:
    cdef int f, l, b, r, w
    if not s.usable[i]:
        return
    f = gs_pop(s.gpus[i])
    l = largest_island(&c.links[c.cls[i]], s.gpus[i]) if f else 0
    b = f * GRID + l
    if s.bucket[b] == NULL:
        s.bucket[b] = <uint64_t*>calloc(c.words + c.sums, sizeof(uint64_t))
        if s.bucket[b] == NULL:
            s.failed = 1
            return
    r = c.rank[i]
    w = r >> 6
    s.bucket[b][w] |= (<uint64_t>1) << (r & 63)
    s.bucket[b][c.words + (w >> 6)] |= (<uint64_t>1) << (w & 63)
    s.count[b] += 1
    s.filled[f] |= (<uint64_t>1) << (l - 1 if f else 0)
    s.nfree[i] = <uint8_t>f
    s.nisland[i] = <uint8_t>l


cdef inline void index_move(Cluster* c, State* s, int i) noexcept nogil:
    """Node i changed: into the right bucket. Nothing while ranks are to be made anew."""
    if s == &c.now:
        c.clock += 1
        c.stamp[i] = c.clock
    if c.order_dirty and s == &c.now:
        return
    index_drop(c, s, i)
    index_put(c, s, i)


cdef void index_build(Cluster* c, State* s) noexcept nogil:
    """All nodes into buckets; into those of `then` the nodes alone that it is about. Cost: nodes."""
    cdef int f, l, b, i
    for f in range(GRID):
        if s.filled[f] == 0:
            continue
        for l in range(GRID):
            b = f * GRID + l
            if s.count[b]:
                memset(s.bucket[b], 0, (<size_t>c.words + c.sums) * sizeof(uint64_t))
                s.count[b] = 0
        s.filled[f] = 0
    memset(s.nfree, 255, c.n)
    if s == &c.then and c.scope >= 0:
        for i in range(c.resvs[c.scope].n_shares):
            index_file(c, s, c.resvs[c.scope].shares[i].node)
    else:
        for i in range(c.n):
            index_file(c, s, i)
    if c.topo.on:
        topo_build(c, s)


cdef inline int before(Entry* a, Entry* b) noexcept nogil:
    if a.priority != b.priority:
        return a.priority > b.priority
    if a.order != b.order:
        return a.order < b.order
    return a.key < b.key


cdef void sort_entries(Entry* a, Entry* b, int64_t n) noexcept nogil:
    """Merge sort of a by (priority down, order, key) with b as scratch. Cost: n log n."""
    cdef int64_t width = 1, lo, mid, hi, i, j, k
    cdef Entry* src = a
    cdef Entry* dst = b
    cdef Entry* t
    while width < n:
        lo = 0
        while lo < n:
            mid = lmin(lo + width, n)
            hi = lmin(lo + 2 * width, n)
            if mid >= hi or not before(&src[mid], &src[mid - 1]):
                memcpy(&dst[lo], &src[lo], <size_t>(hi - lo) * sizeof(Entry))
            else:
                i = lo
                j = mid
                for k in range(lo, hi):
                    if i < mid and (j >= hi or not before(&src[j], &src[i])):
                        dst[k] = src[i]
                        i += 1
                    else:
                        dst[k] = src[j]
                        j += 1
            lo = hi
        t = src
        src = dst
        dst = t
        width *= 2
    if src != a:
        memcpy(a, src, <size_t>n * sizeof(Entry))


cdef int cluster_order(Cluster* c) noexcept nogil:
    """Ranks from weights, then the index. Cost: nodes x log(nodes). 0, or -1 without memory."""
    cdef Entry* a
    cdef int i
    if not c.order_dirty:
        return 0
    a = <Entry*>malloc(2 * <size_t>c.n * sizeof(Entry))
    if a == NULL:
        return -1
    for i in range(c.n):
        a[i].priority = -c.weight[i]
        a[i].order = i
        a[i].key = 0
        a[i].slot = i
    sort_entries(a, a + c.n, c.n)
    for i in range(c.n):
        c.node_of[i] = a[i].slot
        c.rank[a[i].slot] = i
    free(a)
    c.order_dirty = 0
    c.orders += 1
    c.version += 1
    c.avail_version += 1
    index_build(c, &c.now)
    return 0


cdef inline int has_bit(uint64_t* words, int bit) noexcept nogil:
    return <int>(words[bit >> 6] >> (bit & 63) & 1)


cdef inline int features_fit(Cluster* c, Filter* f, int i) noexcept nogil:
    cdef int a, w, ok
    cdef uint64_t* want
    cdef uint64_t* have = c.feats + <size_t>i * BIT_WORDS
    if f.n_alts == 0:
        return 1
    for a in range(f.n_alts):
        want = f.alts + a * BIT_WORDS
        ok = 1
        for w in range(BIT_WORDS):
            if have[w] & want[w] != want[w]:
                ok = 0
                break
        if ok:
            return 1
    return 0


cdef inline int layout_fits(Cluster* c, Filter* f, int i) noexcept nogil:
    return (c.sockets[i] >= f.sockets and c.per_socket[i] >= f.cores
            and c.threads[i] >= f.threads)


cdef void filter_refresh(Cluster* c, Filter* f) noexcept nogil:
    """Make a filter's bitmap anew where nodes changed. Cost: nodes, else nothing."""
    cdef int r, i, e
    if f.version == c.version:
        return
    memset(f.bits, 0, <size_t>c.words * sizeof(uint64_t))
    for r in range(c.n):
        i = c.node_of[r]
        if f.partition >= 0 and not has_bit(c.parts + <size_t>i * BIT_WORDS, f.partition):
            continue
        if features_fit(c, f, i) and layout_fits(c, f, i):
            f.bits[r >> 6] |= (<uint64_t>1) << (r & 63)
    for e in range(f.n_exclude):
        r = c.rank[f.exclude[e]]
        f.bits[r >> 6] &= ~((<uint64_t>1) << (r & 63))
    f.version = c.version


cdef void empty_state(Cluster* c, int all_up) noexcept nogil:
    """`then` becomes the cluster without jobs: as configured (all_up), or what is usable of it."""
    cdef State* s = &c.then
    cdef int i
    s.told = 0
    if c.then_is == (c.version if all_up else -c.avail_version):
        return
    for i in range(c.n):
        s.cpus[i] = c.cpus[i]
        s.mem[i] = c.mem[i]
        s.gpus[i] = c.all[i] if all_up else c.all[i] & c.ok[i]
        s.frac[i] = 0
        s.jobs[i] = 0
        s.owner[i] = 0
        s.usable[i] = 1 if all_up else c.now.usable[i]
    if s.took != NULL:
        memset(s.took, 0, <size_t>c.n * MAX_GPUS * sizeof(uint16_t))
    lots_clear(c)
    if s.extra != NULL:
        memcpy(s.extra, c.extra, <size_t>c.n * EXTRAS * sizeof(int32_t))
    index_build(c, s)
    c.then_is = c.version if all_up else -c.avail_version


cdef void cluster_free(Cluster* c) noexcept nogil:
    cdef int i
    if c.links != NULL:
        for i in range(c.n_links):
            links_free(&c.links[i])
    if c.filters != NULL:
        for i in range(c.n_filters):
            free(c.filters[i].alts)
            free(c.filters[i].exclude)
            free(c.filters[i].bits)
    if c.reqs != NULL:
        for i in range(c.n_reqs):
            free(c.reqs[i].must)
            rare_free(c.reqs[i].rare)
            free(c.reqs[i].score)
            free(c.reqs[i].seen)
            firsts_free(&c.reqs[i].firsts)
    windows_free(c)
    lots_free(c)
    book_free(&c.book)
    free(c.q_at)
    free(c.q_user)
    free(c.q_old)
    free(c.q_array)
    free(c.q_since)
    work_free(&c.work)
    topo_free(&c.topo)
    free(c.stamp)
    free(c.cand_s)
    state_free(&c.now)
    state_free(&c.then)
    map_free(&c.by_key)
    map_free(&c.q_by_key)
    free(c.kind); free(c.cls); free(c.layout); free(c.cpus); free(c.threads); free(c.mem); free(c.weight)
    free(c.sockets); free(c.per_socket); free(c.dmap); free(c.maps); free(c.dom_used)
    free(c.pieces_of); free(c.extra); free(c.keep_cpus); free(c.keep_mem); free(c.all); free(c.ok); free(c.used); free(c.parts); free(c.feats)
    free(c.rank); free(c.node_of); free(c.links); free(c.layouts); free(c.mixed)
    free(c.pieces); free(c.allocs); free(c.filters); free(c.reqs); free(c.out)
    free(c.cand); free(c.cand_t); free(c.cand_g); free(c.mark)
    free(c.con_head); free(c.cons); free(c.heads); free(c.planned); free(c.times)
    free(c.q_key); free(c.q_priority); free(c.q_order); free(c.q_limit); free(c.q_ready)
    free(c.q_req); free(c.q_group); free(c.q_unit); free(c.q_held); free(c.q_verdict)
    free(c.q_live); free(c.q_moved); free(c.q_free); free(c.q_grave); free(c.q_fresh)
    chains_free(c)
    free(c.sorted); free(c.spare); free(c.group_left); free(c.started); free(c.changed)


cdef int cluster_init(Cluster* c, int n) noexcept nogil:
    """A cluster of n nodes without CPUs. 0, or -1 without memory (cluster_free() is still due)."""
    cdef size_t m = <size_t>n
    cdef int i
    memset(c, 0, sizeof(Cluster))
    c.n = n
    c.words = (n + 63) >> 6
    c.sums = (c.words + 63) >> 6
    c.order_dirty = 1
    c.version = 1
    c.avail_version = 1
    c.piece_free = -1
    c.alloc_free = -1
    c.scope = -1
    c.cls = <int32_t*>calloc(m, sizeof(int32_t))
    c.layout = <int32_t*>calloc(m, sizeof(int32_t))
    c.cpus = <int32_t*>calloc(m, sizeof(int32_t))
    c.threads = <int32_t*>calloc(m, sizeof(int32_t))
    c.sockets = <int32_t*>calloc(m, sizeof(int32_t))
    c.dmap = <int32_t*>calloc(m, sizeof(int32_t))
    c.kind = <int32_t*>calloc(m, sizeof(int32_t))
    c.maps = <DomMap*>calloc(1, sizeof(DomMap))
    c.per_socket = <int32_t*>calloc(m, sizeof(int32_t))
    c.mem = <int64_t*>calloc(m, sizeof(int64_t))
    c.weight = <int64_t*>calloc(m, sizeof(int64_t))
    c.all = <uint64_t*>calloc(m, sizeof(uint64_t))
    c.ok = <uint64_t*>calloc(m, sizeof(uint64_t))
    c.used = <uint64_t*>calloc(m, sizeof(uint64_t))
    c.parts = <uint64_t*>calloc(m * BIT_WORDS, sizeof(uint64_t))
    c.feats = <uint64_t*>calloc(m * BIT_WORDS, sizeof(uint64_t))
    c.rank = <int32_t*>calloc(m, sizeof(int32_t))
    c.node_of = <int32_t*>calloc(m, sizeof(int32_t))
    c.links = <Links*>calloc(MAX_CLASSES, sizeof(Links))
    c.layouts = <uint64_t*>calloc(MAX_TYPES, sizeof(uint64_t))   # layout 0: no GPUs
    c.mixed = <uint8_t*>calloc(MAX_LAYOUTS, 1)
    c.n_layouts = 1
    c.out = <Share*>calloc(m, sizeof(Share))
    c.cand = <int32_t*>calloc(m, sizeof(int32_t))
    c.cand_t = <int32_t*>calloc(m, sizeof(int32_t))
    c.cand_g = <int32_t*>calloc(m, sizeof(int32_t))
    c.cand_s = <int64_t*>calloc(m, sizeof(int64_t))
    c.stamp = <int64_t*>calloc(m, sizeof(int64_t))
    c.mark = <uint8_t*>calloc(m, 1)
    c.con_head = <int32_t*>malloc(m * sizeof(int32_t))
    if (c.cls == NULL or c.layout == NULL or c.cpus == NULL or c.threads == NULL or c.mem == NULL
            or c.sockets == NULL or c.per_socket == NULL or c.dmap == NULL or c.maps == NULL
            or c.kind == NULL
            or c.weight == NULL or c.all == NULL or c.ok == NULL or c.used == NULL
            or c.parts == NULL or c.feats == NULL or c.rank == NULL or c.node_of == NULL
            or c.links == NULL or c.layouts == NULL or c.mixed == NULL or c.out == NULL
            or c.cand == NULL or c.cand_t == NULL or c.cand_g == NULL or c.mark == NULL
            or c.con_head == NULL or c.cand_s == NULL or c.stamp == NULL):
        return -1
    memset(c.con_head, 0xff, m * sizeof(int32_t))
    if state_init(&c.now, n) or state_init(&c.then, n):
        return -1
    if map_init(&c.by_key, 64) or map_init(&c.q_by_key, 64):
        return -1
    if links_init(&c.links[0], 0, NULL, NULL):
        return -1
    c.n_links = 1
    c.n_maps = c.maps[0].n = c.maps[0].n_sockets = 1
    c.maps[0].every = c.maps[0].of_socket[0] = 1
    for i in range(MAX_GPUS):
        c.maps[0].near[i] = 1
    for i in range(n):
        c.threads[i] = 1
    return 0
