# Advance reservations: nodes, or CPUs and GPUs of them, that are kept for some jobs for some time.
#
# A job that is not of the reservation gets nothing of a window on a node if it would be there
# while the window is open. A job of the reservation gets nothing else, and only while it is open;
# one of a FLEX reservation may also run elsewhere and at other times. GPUs are kept by
# themselves, CPUs by number: those that the reservation's own jobs hold are not kept once more.
# A job of a reservation ends with it at the latest.
#
# Jobs outside (and those in a reservation) draw on different resources, their domains: a job that
# starts in one domain takes nothing from the plans of the others.

cdef enum:
    MAX_RESVS = 65536
    OUTSIDE = -1           # domain of jobs without a reservation
    ANYWHERE = -2          # of those of FLEX reservations: they may take from all


cdef void windows_free(Cluster* c) noexcept nogil:
    cdef int k
    for k in range(c.n_resvs):
        free(c.resvs[k].start)
        free(c.resvs[k].end)
        free(c.resvs[k].shares)
        free(c.resvs[k].bits)
    free(c.resvs)
    free(c.near)
    free(c.windows)
    free(c.win_head)


cdef inline int confined(Cluster* c, int32_t resv) noexcept nogil:
    """Whether jobs of that reservation (-1 none) keep to its resources and its time."""
    return resv >= 0 and not c.resvs[resv].flex


cdef inline int32_t domain_of(Cluster* c, int32_t resv) noexcept nogil:
    if resv < 0:
        return OUTSIDE
    return ANYWHERE if c.resvs[resv].flex else resv


cdef inline int same_domain(int32_t a, int32_t b) noexcept nogil:
    return a == b or a == ANYWHERE or b == ANYWHERE


cdef inline int headed(Cluster* c, Req* r) noexcept nogil:
    """Whether the pass has met a blocked job of its partition; of its reservation where it keeps to
    one: jobs that wait for that do not stand before those that wait for a partition."""
    if confined(c, r.resv):
        return c.resvs[r.resv].headed
    return c.headed[c.filters[r.filter].partition + 1]


cdef inline void head_it(Cluster* c, Req* r) noexcept nogil:
    if confined(c, r.resv):
        c.resvs[r.resv].headed = 1
    else:
        c.headed[c.filters[r.filter].partition + 1] = 1


cdef inline int no_window(Cluster* c, int i) noexcept nogil:
    return c.n_windows == 0 or c.win_head[i] < 0


cdef inline int32_t window_of(Cluster* c, int32_t resv, int i) noexcept nogil:
    """The window of a reservation on node i; -1 none."""
    cdef int32_t w = c.win_head[i] if c.n_windows else -1
    while w >= 0 and c.windows[w].resv != resv:
        w = c.windows[w].next
    return w


cdef inline int has_parts(Cluster* c, int i) noexcept nogil:
    """Whether a window keeps a part of node i."""
    cdef int32_t w = c.win_head[i] if c.n_windows else -1
    while w >= 0:
        if not c.windows[w].whole:
            return 1
        w = c.windows[w].next
    return 0


cdef uint64_t* resv_bits(Cluster* c, int32_t resv) noexcept nogil:
    """The nodes of which a reservation keeps something, over ranks; NULL without memory. Cost: a
    64th of the nodes + its own, once per change."""
    cdef Resv* v = &c.resvs[resv]
    cdef int k, rank
    if v.bits != NULL and v.bits_version == c.version:
        return v.bits
    if v.bits == NULL:
        v.bits = <uint64_t*>malloc(<size_t>c.words * sizeof(uint64_t))
        if v.bits == NULL:
            return NULL
    memset(v.bits, 0, <size_t>c.words * sizeof(uint64_t))
    for k in range(v.n_shares if v.n_spans else 0):
        rank = c.rank[v.shares[k].node]
        v.bits[rank >> 6] |= (<uint64_t>1) << (rank & 63)
    v.bits_version = c.version
    return v.bits


cdef inline uint64_t* own_nodes(Cluster* c, Req* r) noexcept nogil:
    """The nodes that r keeps to, over ranks; NULL: it keeps to none."""
    if c.w_on == W_OFF or not confined(c, r.resv):
        return NULL
    return resv_bits(c, r.resv)


cdef inline void window_use(Cluster* c, int32_t resv, int i, int32_t cpus) noexcept nogil:
    """A job of the reservation takes CPUs of node i, or gives them back."""
    cdef int32_t w = window_of(c, resv, i)
    if w >= 0:
        c.windows[w].used += cpus


cdef inline int64_t resv_until(Resv* v, int64_t at) noexcept nogil:
    """How long it is in force if it is so at that time; else -1."""
    cdef int64_t until = -1
    cdef int k
    for k in range(v.n_spans):
        if v.start[k] <= at < v.end[k]:
            until = lmax(until, v.end[k])
    return until


cdef inline int64_t until_of(Cluster* c, int32_t resv, int64_t at, int64_t until) noexcept nogil:
    """When a job ends that starts then: one of a reservation with it, at the latest."""
    cdef int64_t last
    if resv < 0 or c.resvs[resv].flex:
        return until
    last = resv_until(&c.resvs[resv], at)
    return until if last < 0 else lmin(until, last)


cdef inline int resv_meets(Resv* v, int64_t at, int64_t until) noexcept nogil:
    """Whether it is in force at some time in [at, until)."""
    cdef int k
    for k in range(v.n_spans):
        if v.start[k] < until and at < v.end[k]:
            return 1
    return 0


cdef int64_t window_next(Cluster* c, int32_t resv, int64_t at) noexcept nogil:
    """The first time from `at` on at which it is in force; -1 never."""
    cdef Resv* v = &c.resvs[resv]
    cdef int k
    for k in range(v.n_spans):
        if at < v.end[k]:
            return lmax(v.start[k], at)
    return -1


cdef void windows_begin(Cluster* c) noexcept nogil:
    """Before placements: windows count, where there are any."""
    cdef int k
    c.w_on = W_TIMED if c.n_resvs else W_OFF
    for k in range(c.n_resvs):
        c.resvs[k].headed = 0


cdef int64_t windows_at(Cluster* c, Req* r, int64_t now, int64_t limit) noexcept nogil:
    """Windows count for a job that starts now (limit as in place()): the end for fit()."""
    cdef int64_t end = 0
    windows_begin(c)
    if limit < 0 and c.w_on:
        c.w_on = W_PLACES
    elif limit == 0:
        end = until_of(c, r.resv, now, FOREVER)
    elif limit > 0:
        end = until_of(c, r.resv, now, now + limit)
    c.w_at = now
    c.w_until = end if 0 < end < FOREVER else now + YEAR
    return end


cdef int window_fit(Cluster* c, State* s, Req* r, int i, int64_t* cpus,
                    uint64_t* mask, int64_t* mem) noexcept nogil:
    """Reduce what node i has free in s to what windows leave to r in [w_at, w_until). 0: nothing.
    Cost: the windows of the node."""
    cdef Window* x
    cdef Resv* v
    cdef int32_t w = c.win_head[i] if c.n_windows else -1
    cdef int32_t used
    cdef int64_t own = MAX_COUNT
    cdef int mine = 0, kept = confined(c, r.resv)
    while w >= 0:
        x = &c.windows[w]
        v = &c.resvs[x.resv]
        w = x.next
        if s == &c.now:
            used = x.used
        else:
            used = x.then if c.w_on == W_TIMED else 0
        if x.resv == r.resv:
            mine = 1
            if not kept:
                continue
            if c.w_on == W_TIMED and resv_until(v, c.w_at) < 0:
                c.w_cut = 1
                return 0
            if x.whole:
                continue
            if r.excl:
                return 0
            own = x.cpus - used
            mask[0] &= x.mask
        elif (c.w_on == W_TIMED and (v.firm or not kept)
              and resv_meets(v, c.w_at, c.w_until)):
            c.w_cut = 1
            if x.whole or r.excl:
                return 0
            cpus[0] -= lmax(x.cpus - used, 0)
            mem[0] -= x.mem
            mask[0] &= ~x.mask
    # What others keep is no part of its own: that bounds what they leave.
    cpus[0] = lmin(cpus[0], own)
    return 1 if mine or not kept else 0


cdef int windows_alone(Cluster* c, Req* r) noexcept nogil:
    """Whether r would start now if there were no windows."""
    cdef int on = c.w_on, ok
    if confined(c, r.resv):
        return 0
    c.w_on = W_OFF
    ok = place(c, &c.now, r, 0)
    c.w_on = on
    return ok


# --- the time of one blocked job, see backfill.pxi


cdef int64_t windows_times(Cluster* c, int64_t* out) noexcept nogil:
    """Times at which a reservation begins or ends, into out; their number (also without out)."""
    cdef int64_t n = 0
    cdef int k, j
    for k in range(c.n_resvs):
        if c.resvs[k].always:
            continue
        for j in range(c.resvs[k].n_spans if out != NULL else 0):
            out[n + 2 * j] = c.resvs[k].start[j]
            out[n + 2 * j + 1] = c.resvs[k].end[j]
        n += 2 * c.resvs[k].n_spans
    return n


cdef uint64_t windows_sign(Cluster* c, Req* r, int64_t at, int64_t until) noexcept nogil:
    """A number that is the same for two times between which no window opens or closes for r."""
    cdef uint64_t sign = 0
    cdef int k, what
    for k in range(c.n_resvs):
        if c.resvs[k].n_spans == 0 or c.resvs[k].always:
            continue
        what = resv_meets(&c.resvs[k], at, until)
        if k == r.resv and resv_until(&c.resvs[k], at) >= 0:
            what |= 2
        sign = gs_mix(sign + <uint64_t>what)
    return sign


cdef void windows_then(Cluster* c, int64_t now, int64_t at, Over* over) noexcept nogil:
    """CPUs that the jobs of reservations hold at time `at`. Cost: windows + allocated shares; with
    a scope those of its nodes."""
    cdef int32_t p, w, k, resv
    cdef int h, q, n = c.pieces_used
    if c.scope >= 0:
        n = c.n_near
        for q in range(c.resvs[c.scope].n_shares):
            w = c.win_head[c.resvs[c.scope].shares[q].node]
            while w >= 0:
                c.windows[w].then = c.windows[w].used
                w = c.windows[w].next
    else:
        for w in range(c.n_windows):
            c.windows[w].then = c.windows[w].used
    for q in range(n):
        p = c.near[q] if c.scope >= 0 else q
        if c.pieces[p].owner < 0:
            continue
        resv = c.allocs[c.pieces[p].owner].resv
        if resv >= 0 and piece_end(c, p, now) <= at:
            w = window_of(c, resv, c.pieces[p].share.node)
            if w >= 0:
                c.windows[w].then -= c.pieces[p].share.cpus
    for h in range(imin(c.n_heads, PLANNED)):
        resv = c.reqs[c.heads[h].req].resv
        if resv < 0 or not over.bits[h >> 6] >> (h & 63) & 1:
            continue
        for k in range(c.heads[h].first, c.heads[h].first + c.heads[h].n):
            w = window_of(c, resv, c.planned[k].node)
            if w >= 0:
                c.windows[w].then += c.planned[k].cpus


# --- the time of nodes, see book.pxi: a line for each node, as jobs outside see it, and a line for
# each window, as the jobs of its reservation see it


cdef inline int line_of(Cluster* c, Req* r, int i) noexcept nogil:
    """The line of time of node i that r goes by; -1: it has nothing there."""
    cdef int32_t w
    if r.resv < 0:
        return i
    w = window_of(c, r.resv, i)
    if w >= 0:
        return c.n + w
    return -1 if confined(c, r.resv) else i


cdef int book_take(Cluster* c, Share* sh, int32_t resv, int64_t at, int64_t until,
                   int planned) noexcept nogil:
    """Take a share of a job out of its node's time. What windows keep is not in the node's line
    anyway. 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef int32_t w
    if no_window(c, sh.node):
        return line_take(c, sh.node, sh, book_cpus(sh), at, until, planned)
    if line_take(c, sh.node, sh, 0 if confined(c, resv) else book_cpus(sh), at, until, planned):
        return -1
    w = c.win_head[sh.node]
    while w >= 0:
        if line_take(c, c.n + w, sh, line_cpus(c, w, sh, resv), at, until, planned):
            return -1
        w = c.windows[w].next
    return 0


cdef inline int32_t line_cpus(Cluster* c, int32_t w, Share* sh, int32_t resv) noexcept nogil:
    """CPUs that a share takes out of a window's line: jobs outside keep out of it."""
    return book_cpus(sh) if resv >= 0 or c.resvs[c.windows[w].resv].flex else 0


cdef void book_give(Cluster* c, Share* sh, int32_t resv, int64_t at, int64_t until) noexcept nogil:
    """Put a planned share back."""
    cdef Book* b = &c.book
    cdef int32_t w = -1 if no_window(c, sh.node) else c.win_head[sh.node]
    line_give(c, sh.node, sh, 0 if w >= 0 and confined(c, resv) else book_cpus(sh), at, until)
    while w >= 0:
        line_give(c, c.n + w, sh, line_cpus(c, w, sh, resv), at, until)
        w = c.windows[w].next


cdef int windows_open(Cluster* c) noexcept nogil:
    """Lines of windows, and nodes without what they keep, from what runs. Cost: windows x the
    segments of their nodes + allocated shares. 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef Window* x
    cdef int32_t w, p, k, j, last
    cdef int n, resv
    for w in range(c.n_windows):
        x = &c.windows[w]
        for n in range(c.resvs[x.resv].n_spans):
            if c.resvs[x.resv].end[n] <= b.now:
                continue
            if (seg_cut(b, x.node, lmax(c.resvs[x.resv].start[n], b.now)) < 0
                    or seg_cut(b, x.node, c.resvs[x.resv].end[n]) < 0):
                return -1
    # A copy for each window, with the CPUs that are its own and not in use by its jobs.
    for w in range(c.n_windows):
        x = &c.windows[w]
        last = -1
        k = b.head[x.node]
        while k >= 0:
            j = seg_new(b)
            if j < 0:
                return -1
            seg_like(b, j, k)
            b.segs[j].cpus = x.cpus
            b.segs[j].next = -1
            if last < 0:
                b.head[c.n + w] = j
            else:
                b.segs[last].next = j
            last = j
            k = b.segs[k].next
        b.clock += 1
        b.stamp[c.n + w] = b.clock
    for p in range(c.pieces_used if c.n_windows else 0):
        if c.pieces[p].owner < 0:
            continue
        resv = c.allocs[c.pieces[p].owner].resv
        w = window_of(c, resv, c.pieces[p].share.node) if resv >= 0 else -1
        if w < 0:
            continue
        k = b.head[c.n + w]
        while k >= 0 and b.segs[k].at < rounded(b, piece_end(c, p, b.now)):
            b.segs[k].cpus -= book_cpus(&c.pieces[p].share)
            k = b.segs[k].next
    for w in range(c.n_windows):
        if c.win_head[c.windows[w].node] == w:
            windows_lay(c, c.windows[w].node)
    return 0


cdef void windows_lay(Cluster* c, int i) noexcept nogil:
    """The lines of node i and of its windows, which are cut at the same times, as jobs see them."""
    cdef Book* b = &c.book
    cdef Window* x
    cdef Window* y
    cdef Seg all_
    cdef Seg* g
    cdef int32_t k = b.head[i], w, o
    w = c.win_head[i]
    while w >= 0:
        c.windows[w].seg = b.head[c.n + w]
        w = c.windows[w].next
    while k >= 0:
        all_ = b.segs[k]
        w = c.win_head[i]
        # First what each keeps at this time, in `then`; only afterwards its line is written.
        while w >= 0:
            x = &c.windows[w]
            x.then = b.segs[x.seg].cpus
            w = x.next
        w = c.win_head[i]
        while w >= 0:
            x = &c.windows[w]
            w = x.next
            g = &b.segs[x.seg]
            g.cpus = all_.cpus
            if not c.resvs[x.resv].flex:
                if resv_until(&c.resvs[x.resv], all_.at) < 0:
                    g.cpus = 0
                    g.gpus = 0
                    g.frac = 0
                    x.seg = g.next
                    continue
                if not x.whole:
                    g.gpus &= x.mask
                    g.frac &= x.mask
                    g.jobs += 1
            o = c.win_head[i]
            while o >= 0:
                y = &c.windows[o]
                o = y.next
                if y != x and (c.resvs[y.resv].firm or c.resvs[x.resv].flex):
                    seg_without(c, g, y, all_.at)
            if not c.resvs[x.resv].flex and not x.whole:
                g.cpus = imin(g.cpus, x.then)
            x.seg = g.next
        w = c.win_head[i]
        while w >= 0:
            seg_without(c, &b.segs[k], &c.windows[w], all_.at)
            w = c.windows[w].next
        k = all_.next


cdef inline void seg_without(Cluster* c, Seg* g, Window* y, int64_t at) noexcept nogil:
    """Take out of a segment what a window keeps then."""
    if resv_until(&c.resvs[y.resv], at) < 0:
        return
    if y.whole:
        g.cpus = imin(g.cpus, 0)
        g.gpus = 0
        g.frac = 0
        return
    if y.then > 0:
        g.cpus -= y.then
    g.mem -= y.mem
    g.gpus &= ~y.mask
    g.frac &= ~y.mask
    g.jobs += 1
