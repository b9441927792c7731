# Cores that several jobs hold at once: those of one partition, up to so many on each (OverSubscribe).
#
# The cores of a node that jobs of a partition hold together are its lot there. Each has a number in
# the lot and a count of its jobs; it is in use for everybody else from its first job to its last.
# A job takes free cores before it joins others, and those with the fewest jobs first. What is free
# on a node counts cores nobody holds, as ever; who may join sees those of his lot besides.
#
# Nodes of which advance reservations keep a part lend nothing, nor do jobs inside reservations.

cdef enum:
    MAX_SLOTS = SLOT_WORDS * 64    # cores of a node that may be in a lot
    MOST_JOBS = 255        # on a core
    HIDDEN = 0xffff                # `then` of a core that nobody may join


cdef void lots_free(Cluster* c) noexcept nogil:
    cdef int k
    for k in range(c.n_lots):
        free(c.lots[k].held)
        free(c.lots[k].then)
        free(c.lots[k].dom)
    free(c.lots)
    free(c.lot_head)
    if c.pieces != NULL:
        for k in range(c.pieces_used):
            free(c.pieces[k].slots)


cdef inline Lot* lot_of(Cluster* c, int i, int lot) noexcept nogil:
    """The cores of that lot on node i; NULL: nobody ever held any."""
    cdef int32_t k = c.lot_head[i] if c.lot_head != NULL else -1
    while k >= 0:
        if c.lots[k].lot == lot:
            return &c.lots[k]
        k = c.lots[k].next
    return NULL


cdef int lot_grow(Lot* x, int n) noexcept nogil:
    """Places for n cores. 0, or -1 without memory."""
    cdef uint16_t* held
    cdef uint16_t* then
    cdef uint8_t* dom
    if n <= x.n:
        return 0
    held = <uint16_t*>calloc(<size_t>n, sizeof(uint16_t))
    then = <uint16_t*>calloc(<size_t>n, sizeof(uint16_t))
    dom = <uint8_t*>calloc(<size_t>n, 1)
    if held == NULL or then == NULL or dom == NULL:
        free(held)
        free(then)
        free(dom)
        return -1
    if x.n:
        memcpy(held, x.held, <size_t>x.n * sizeof(uint16_t))
        memcpy(then, x.then, <size_t>x.n * sizeof(uint16_t))
        memcpy(dom, x.dom, <size_t>x.n)
    free(x.held)
    free(x.then)
    free(x.dom)
    x.held = held
    x.then = then
    x.dom = dom
    x.n = n
    return 0


cdef Lot* lot_make(Cluster* c, int i, int lot) noexcept nogil:
    """The same, made where it is missing, with places for all cores; NULL without memory."""
    cdef Lot* x = lot_of(c, i, lot)
    if x == NULL:
        if c.lot_head == NULL:
            c.lot_head = <int32_t*>malloc(<size_t>c.n * sizeof(int32_t))
            if c.lot_head == NULL:
                return NULL
            memset(c.lot_head, 0xff, <size_t>c.n * sizeof(int32_t))
        if grow(<void**>&c.lots, &c.lots_cap, c.n_lots + 1, sizeof(Lot)):
            return NULL
        x = &c.lots[c.n_lots]
        memset(x, 0, sizeof(Lot))
        x.node = i
        x.lot = lot
        x.next = c.lot_head[i]
        c.lot_head[i] = c.n_lots
        c.n_lots += 1
    if lot_grow(x, imin(MAX_SLOTS, c.cpus[i] // c.threads[i])):
        return NULL
    return x


cdef int64_t lot_joins(Cluster* c, State* s, Req* r, int i) noexcept nogil:
    """CPUs of node i that r may have beside other jobs. Cost: cores, for requests that share."""
    cdef Lot* x = lot_of(c, i, r.lot)
    cdef uint16_t* held
    cdef int64_t n = 0
    cdef int k
    if x == NULL or not no_window(c, i):
        return 0
    held = x.held if s == &c.now else x.then
    for k in range(x.n):
        if 0 < held[k] < r.level:
            n += 1
    return n * c.threads[i]


cdef int64_t lot_room(Cluster* c, int lot, int i) noexcept nogil:
    """CPUs of node i that one more job of a lot (0 none) may hold now."""
    cdef Lot* x = lot_of(c, i, lot) if lot else NULL
    cdef int64_t n = c.now.cpus[i]
    cdef int k
    for k in range(x.n if x != NULL else 0):
        if 0 < x.held[k] < c.lot_most[lot]:
            n += c.threads[i]
    return n


cdef int64_t lots_held(Cluster* c, int i) noexcept nogil:
    """Cores of node i that lots hold."""
    cdef int32_t x = c.lot_head[i] if c.lot_head != NULL else -1
    cdef int64_t n = 0
    cdef int k
    while x >= 0:
        for k in range(c.lots[x].n):
            if c.lots[x].held[k]:
                n += 1
        x = c.lots[x].next
    return n


cdef int lot_top(Cluster* c, State* s, int lot) noexcept nogil:
    """The most jobs on any core of the lot that may be joined. Cost: its cores."""
    cdef Lot* x
    cdef uint16_t* held
    cdef int j, k, top = 0
    for j in range(c.n_lots):
        x = &c.lots[j]
        if x.lot != lot:
            continue
        held = x.held if s == &c.now else x.then
        for k in range(x.n):
            if held[k] != HIDDEN and held[k] > top:
                top = held[k]
    return top


cdef int lot_pick(uint16_t* held, int n, int64_t cores, int64_t fresh,
                  uint64_t* slots) noexcept nogil:
    """So many cores into slots: `fresh` that nobody of the lot holds, then those with the fewest
    jobs, by number. How many are missing."""
    cdef int k, least, low = 0
    memset(slots, 0, SLOT_WORDS * sizeof(uint64_t))
    for k in range(n):
        if fresh > 0 and cores > 0 and held[k] == 0:
            slots[k >> 6] |= (<uint64_t>1) << (k & 63)
            fresh -= 1
            cores -= 1
    while cores > 0:
        least = HIDDEN
        for k in range(n):
            if low < held[k] < least:
                least = held[k]
        if least == HIDDEN:
            break
        for k in range(n):
            if cores > 0 and held[k] == least:
                slots[k >> 6] |= (<uint64_t>1) << (k & 63)
                cores -= 1
        low = least
    return <int>cores


cdef inline int64_t lot_fresh(Cluster* c, State* s, Share* sh) noexcept nogil:
    """Of a share's CPUs those that nobody holds in s."""
    cdef int64_t t = c.threads[sh.node]
    if sh.lot == 0:
        return sh.cpus
    return lmin((sh.cpus + t - 1) // t, lmax(s.cpus[sh.node], 0) // t) * t


cdef int lot_lay(Cluster* c, State* s, Share* sh) noexcept nogil:
    """Take a planned share of a lot in the scratch state; the CPUs that nobody held."""
    cdef Lot* x = lot_make(c, sh.node, sh.lot)
    cdef uint64_t slots[SLOT_WORDS]
    cdef int64_t fresh = lot_fresh(c, s, sh)
    cdef int k, t = c.threads[sh.node]
    if x == NULL:
        s.failed = 1
        return sh.cpus
    lot_pick(x.then, x.n, (sh.cpus + t - 1) // t, fresh // t, slots)
    for k in range(x.n):
        if slots[k >> 6] >> (k & 63) & 1:
            x.then[k] += 1
    return <int>fresh


cdef void lots_then(Cluster* c) noexcept nogil:
    """The scratch state begins as it is now."""
    cdef int k
    for k in range(c.n_lots):
        memcpy(c.lots[k].then, c.lots[k].held, <size_t>c.lots[k].n * sizeof(uint16_t))


cdef void lots_clear(Cluster* c) noexcept nogil:
    """Nobody holds anything in the scratch state."""
    cdef int k
    for k in range(c.n_lots):
        memset(c.lots[k].then, 0, <size_t>c.lots[k].n * sizeof(uint16_t))


cdef void lots_hide(Cluster* c, int i) noexcept nogil:
    """What may be joined on node i is in its CPUs already, in the scratch state."""
    cdef int32_t k = c.lot_head[i]
    while k >= 0:
        memset(c.lots[k].then, 0xff, <size_t>c.lots[k].n * sizeof(uint16_t))
        k = c.lots[k].next


cdef int lot_end(Cluster* c, Piece* pc) noexcept nogil:
    """A share ends in the scratch state: the CPUs that nobody holds any more."""
    cdef Lot* x = lot_of(c, pc.share.node, pc.share.lot)
    cdef int k, n = 0
    for k in range(x.n):
        if pc.slots[k >> 6] >> (k & 63) & 1 and x.then[k] != HIDDEN:
            x.then[k] -= 1
            if x.then[k] == 0:
                n += 1
    return n * c.threads[pc.share.node]


cdef void lot_hold(Cluster* c, Piece* pc, int sign) noexcept nogil:
    """The cores of a share get (sign 1) or lose (-1) one job: what is free changes with the first
    and the last. After c.now.jobs changed."""
    cdef int i = pc.share.node, k, n = 0
    cdef Lot* x = lot_of(c, i, pc.share.lot)
    cdef int16_t* used = c.dom_used + <size_t>i * MAX_DOMS if c.dmap[i] else NULL
    for k in range(x.n):
        if not pc.slots[k >> 6] >> (k & 63) & 1:
            continue
        if sign < 0:
            x.held[k] -= 1
        if x.held[k] == 0:
            n += 1
            if used != NULL:
                used[x.dom[k]] += sign
                if used[x.dom[k]] < 0:
                    used[x.dom[k]] = 0
        if sign > 0:
            x.held[k] += 1
    c.now.cpus[i] -= sign * n * c.threads[i]
    if used != NULL and c.now.jobs[i] == 0:
        memset(used, 0, MAX_DOMS * sizeof(int16_t))


cdef int lot_begin(Cluster* c, Piece* pc, uint64_t* given) noexcept nogil:
    """Choose the cores of a share that starts, or take those given; and the domains of those that
    nobody holds. Nothing is counted yet. 0, or -1 without memory."""
    cdef Share* sh = &pc.share
    cdef Lot* x = lot_make(c, sh.node, sh.lot)
    cdef int64_t t = c.threads[sh.node], cores = (sh.cpus + t - 1) // t, fresh
    cdef int k, d, last = 0, missing
    cdef Near o
    pc.slots = <uint64_t*>calloc(SLOT_WORDS, sizeof(uint64_t))
    if x == NULL or pc.slots == NULL:
        return -1
    if given != NULL:
        memcpy(pc.slots, given, SLOT_WORDS * sizeof(uint64_t))
        for k in range(MAX_SLOTS):
            if pc.slots[k >> 6] >> (k & 63) & 1:
                last = k + 1
        if lot_grow(x, last):
            return -1
    else:
        fresh = lot_fresh(c, &c.now, sh) // t
        missing = lot_pick(x.held, x.n, cores, fresh, pc.slots)
        if missing:
            # Work that is found running on a node that has shrunk: cores beyond its size.
            if lot_grow(x, imin(MAX_SLOTS, x.n + missing)):
                return -1
            lot_pick(x.held, x.n, cores, fresh + missing, pc.slots)
    memset(sh.cores, 0, sizeof(sh.cores))
    sh.cut = 1
    if c.dmap[sh.node] == 0:
        return 0
    fresh = 0
    for k in range(x.n):
        if pc.slots[k >> 6] >> (k & 63) & 1 and x.held[k] == 0:
            fresh += 1
    near_load(c, &c.now, sh.node, 0, &o)
    near_take(&o, fresh, near_gpus(o.m, sh.mask), o.m.every, sh.cores)
    d = 0
    last = 0
    for k in range(x.n):
        if not (pc.slots[k >> 6] >> (k & 63) & 1 and x.held[k] == 0):
            continue
        while d < o.m.n - 1 and last >= sh.cores[d]:
            d += 1
            last = 0
        x.dom[k] = <uint8_t>d
        last += 1
    return 0


# ---- in the time of nodes, see book.pxi


cdef int lots_home(Cluster* c) noexcept nogil:
    """Which lot the line of each node knows: that of the first of its partitions that shares.
    0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef int i, k, found = 0
    for k in range(MAX_BITS + 1):
        found = found or c.lot_most[k]
    if not found:
        free(b.home)
        b.home = NULL
        return 0
    if b.home == NULL:
        b.home = <int32_t*>malloc(<size_t>c.n * sizeof(int32_t))
        if b.home == NULL:
            return -1
    for i in range(c.n):
        b.home[i] = 0
        if not no_window(c, i):
            continue
        for k in range(MAX_BITS):
            if c.lot_most[k + 1] and has_bit(c.parts + <size_t>i * BIT_WORDS, k):
                b.home[i] = k + 1
                break
    return 0


cdef void lot_open(Cluster* c, int i, Seg* g) noexcept nogil:
    """What the first segment of node i has for its lot."""
    cdef int lot = c.book.home[i], most = c.lot_most[lot], k
    cdef Lot* x = lot_of(c, i, lot) if lot else NULL
    g.top = g.cpus
    g.room = most * g.cpus
    if x == NULL:
        return
    for k in range(x.n):
        if 0 < x.held[k] < most:
            g.top += c.threads[i]
            g.room += (most - x.held[k]) * c.threads[i]


cdef void lot_close(Cluster* c, Piece* pc, Seg* g) noexcept nogil:
    """A share of a lot ends: its segment has so much more. The scratch counts go along."""
    cdef int i = pc.share.node, lot = c.book.home[i], most = c.lot_most[lot]
    cdef int t = c.threads[i], k, h
    cdef Lot* x = lot_of(c, i, pc.share.lot)
    for k in range(x.n):
        if not pc.slots[k >> 6] >> (k & 63) & 1:
            continue
        h = x.then[k]
        x.then[k] -= 1
        if h == 1:
            g.cpus += t
        if pc.share.lot != lot:
            if h == 1:
                g.top += t
                g.room += most * t
        elif h <= most:
            g.room += t
            if h == most:
                g.top += t


cdef inline int32_t seg_cpus(Cluster* c, int lot, int i, Seg* g) noexcept nogil:
    """CPUs that a segment of node i's line has for a request of that lot (0 none)."""
    if lot == 0 or c.book.home == NULL or c.book.home[i] != lot:
        return g.cpus
    return imin(g.top, g.room)


cdef inline void seg_lot(Cluster* c, Seg* g, Share* sh, int32_t cpus, int sign) noexcept nogil:
    """A share takes (sign -1) CPUs of a segment, or gives them back: for others as many as it has,
    for its own lot one job on each."""
    cdef int lot = c.book.home[sh.node]
    if sh.lot and sh.lot == lot:
        # Where its owner keeps others out, none of the lot come in either.
        g.top += sign * (cpus - sh.cpus)
        g.room += sign * cpus
        return
    g.top += sign * cpus
    g.room += sign * (cpus + (c.lot_most[lot] - 1) * sh.cpus)
