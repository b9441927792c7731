# Limits on what jobs may hold together: of associations, QOS, users and accounts.
#
# A bin is what is left of one limit. A job's chain names the bins that it draws on, and how much of
# each: a job that does not fit into all of them is passed over, makes no reservation, and delays
# nobody. What a job is counted with is what it asks for until its place is known, and then what
# it holds there. Who means what by a bin is not known here (gsched.cluster.limits).

cdef enum:
    L_FIXED = 0              # a number that does not depend on the place
    L_CPUS = 1
    L_MEM = 2
    L_NODES = 3
    L_GPUS = 4               # whole ones
    L_BILL = 5               # what these cost by the chain's weights
    L_HOSTS = 6              # nodes that no other job of the bin is on
    L_EACH = 8               # beside CPUs, memory or GPUs: of a node, on the average


cdef inline int64_t limit_times(Item* t, int64_t amount, int64_t seconds) noexcept nogil:
    """The demand: for the limits of minutes times the seconds that it may last, never too much for
    a number."""
    cdef double product
    if t.timed:
        product = <double>amount * <double>(seconds if seconds else YEAR) * t.factor
        if product >= <double>LIMIT_MOST:
            return LIMIT_MOST
        if t.factor != 1.0 or product > 9007199254740992.0:
            return <int64_t>product
        return amount * (seconds if seconds else YEAR)
    return amount


cdef int64_t limit_bill(Chain* h, int64_t cpus, int64_t mem, int64_t nodes,
                        int64_t gpus) noexcept nogil:
    """What a place is billed for. Rounded down, but not for what binary fractions lose."""
    cdef double a = h.weight[0] * cpus, b = h.weight[1] * mem, g = h.weight[3] * gpus
    cdef double rest = h.weight[2] * nodes + h.rest, most
    if h.bill == 0:
        return cpus
    if h.bill == 1:
        return <int64_t>(a + b + g + h.gres + rest + 1e-9)
    most = a if a > b else b
    if h.bill == 2:
        most = g if g > most else most
        most = h.most if h.most > most else most
        return <int64_t>(most + rest + 1e-9)
    return <int64_t>(most + g + h.gres + rest + 1e-9)


cdef int64_t limit_amount(Cluster* c, Chain* h, Item* t, Share* out, int n) noexcept nogil:
    """How much of a bin the place `out` counts for, without the time."""
    cdef int64_t cpus = 0, mem = 0, gpus = 0, sum_ = 0
    cdef int k, what = t.what & ~L_EACH, per = lmax(n, 1) if t.what & L_EACH else 1
    cdef Bin* b = &c.bins[t.bin]
    if t.what == L_FIXED:
        return t.amount
    if t.what == L_NODES:
        return n
    for k in range(n):
        if t.what == L_HOSTS:
            sum_ += b.jobs == NULL or b.jobs[out[k].node] == 0
            continue
        cpus += out[k].cpus
        mem += out[k].mem
        gpus += out[k].gpus if out[k].milli == 0 else 0
    if what == L_CPUS:
        return cpus // per
    if what == L_MEM:
        return mem // per
    if what == L_GPUS:
        return gpus // per
    if t.what == L_BILL:
        return limit_bill(h, cpus, mem, n, gpus)
    return sum_


cdef int32_t limit_before(Cluster* c, int32_t chain, int64_t seconds) noexcept nogil:
    """The first bin that a job of that chain does not fit into by what it asks for; -1 none. Cost:
    its bins."""
    cdef Chain* h = &c.chains[chain]
    cdef Item* t
    cdef int k
    for k in range(h.n):
        t = &h.items[k]
        if t.what != L_HOSTS and limit_times(t, t.amount, seconds) > c.bins[t.bin].left + t.spare:
            return t.bin
    return -1


cdef int32_t limit_after(Cluster* c, int32_t chain, int64_t seconds, Share* out,
                         int n) noexcept nogil:
    """The same by the place that it would have. Cost: its bins x nodes."""
    cdef Chain* h = &c.chains[chain]
    cdef Item* t
    cdef int k
    for k in range(h.n):
        t = &h.items[k]
        if (t.what != L_FIXED
                and limit_times(t, limit_amount(c, h, t, out, n), seconds)
                > c.bins[t.bin].left + t.spare):
            return t.bin
    return -1


cdef void limit_take(Cluster* c, int32_t chain, int64_t seconds, Share* out, int n,
                     int sign) noexcept nogil:
    """A job has begun there (sign 1), or its start is taken back (-1)."""
    cdef Chain* h = &c.chains[chain]
    cdef Item* t
    cdef Bin* b
    cdef int64_t amount
    cdef int k, j
    for k in range(h.n):
        t = &h.items[k]
        b = &c.bins[t.bin]
        if b.fixed:
            continue
        if t.what == L_HOSTS:
            if b.jobs == NULL:
                continue
            for j in range(n):
                if sign < 0:
                    b.jobs[out[j].node] -= 1
                if b.jobs[out[j].node] == 0:
                    b.left -= sign
                if sign > 0:
                    b.jobs[out[j].node] += 1
            continue
        amount = limit_times(t, limit_amount(c, h, t, out, n), seconds)
        b.left = lmax(b.left - sign * amount, -LIMIT_MOST)


cdef int limit_may_wait(Cluster* c, int32_t slot) noexcept nogil:
    """Whether a job may have a reservation: its priority is enough for that, and what is planned
    before it would leave enough of its bins, if it all began."""
    cdef Chain* h
    cdef Item* t
    cdef Bin* b
    cdef int k
    if c.q_chain[slot] < 0:
        return 1
    h = &c.chains[c.q_chain[slot]]
    if c.q_priority[slot] < h.floor:
        return 0
    for k in range(h.n):
        t = &h.items[k]
        b = &c.bins[t.bin]
        if b.fixed or t.what == L_HOSTS or b.pass_id != c.pass_id:
            continue
        if limit_times(t, t.amount, c.q_limit[slot]) > b.left - b.ahead + t.spare:
            return 0
    return 1


cdef void limit_plan(Cluster* c, int32_t slot) noexcept nogil:
    """A job has got a reservation."""
    cdef Chain* h
    cdef Item* t
    cdef Bin* b
    cdef int k
    if c.q_chain[slot] < 0:
        return
    h = &c.chains[c.q_chain[slot]]
    for k in range(h.n):
        t = &h.items[k]
        b = &c.bins[t.bin]
        if b.pass_id != c.pass_id:
            b.pass_id = c.pass_id
            b.ahead = 0
        b.ahead = lmin(b.ahead + limit_times(t, t.amount, c.q_limit[slot]), LIMIT_MOST)


cdef inline void judge_limit(Cluster* c, int32_t slot, int32_t bin_) noexcept nogil:
    c.q_at[slot] = 0
    if c.q_verdict[slot] != V_LIMIT or c.q_bin[slot] != bin_:
        c.q_verdict[slot] = V_LIMIT
        c.q_bin[slot] = bin_
        c.changed[c.n_changed] = slot
        c.n_changed += 1


cdef inline int32_t limit_filter(Req* r, int j) noexcept nogil:
    """The filters of r by number: its own, then those of its sets of features."""
    return r.filter if j == 0 else r.rare.variants[j - 1].filter


cdef int limit_again(Cluster* c, int32_t slot, int32_t over, int64_t end) noexcept nogil:
    """Another place, in c.out, for a job whose place has more nodes than a bin has left: one on
    the nodes that the bin's jobs are on already, and as many of the others in its place as are
    left. Cost: a placement, and the nodes."""
    cdef Req* r = &c.reqs[c.q_req[slot]]
    cdef Chain* h = &c.chains[c.q_chain[slot]]
    cdef int32_t* jobs = c.bins[over].jobs
    cdef size_t size = <size_t>c.words * sizeof(uint64_t)
    cdef int64_t left = c.bins[over].left
    cdef int n = r.rare.n_variants if r.rare != NULL else 0
    cdef uint64_t* kept
    cdef uint64_t* only
    cdef uint64_t* bits
    cdef int i, j, k, some = 0, ok
    if jobs == NULL:
        return 0
    kept = <uint64_t*>calloc(<size_t>n + 2, size)
    if kept == NULL:
        return 0
    only = kept + <size_t>(n + 1) * c.words
    for j in range(n + 1):
        # So that place() does not make them anew while they are narrowed.
        filter_refresh(c, &c.filters[limit_filter(r, j)])
        memcpy(kept + <size_t>j * c.words, c.filters[limit_filter(r, j)].bits, size)
    for i in range(c.n):
        if jobs[i] <= 0:
            continue
        only[c.rank[i] >> 6] |= <uint64_t>1 << (c.rank[i] & 63)
        for j in range(1 if n else 0, n + 1):
            some |= kept[<size_t>j * c.words + (c.rank[i] >> 6)] >> (c.rank[i] & 63) & 1
    for k in range(h.n):
        if h.items[k].bin == over:
            left += h.items[k].spare
            break
    for k in range(c.n_out):
        i = c.out[k].node
        if left > 0 and jobs[i] <= 0:
            only[c.rank[i] >> 6] |= <uint64_t>1 << (c.rank[i] & 63)
            left -= 1
    if not some:
        free(kept)
        return 0
    for j in range(n + 1):
        bits = c.filters[limit_filter(r, j)].bits
        for k in range(c.words):
            bits[k] &= only[k]
    c.placed += 1
    ok = (place(c, &c.now, r, end)
          and limit_after(c, c.q_chain[slot], c.q_limit[slot], c.out, c.n_out) < 0)
    for j in range(n + 1):
        memcpy(c.filters[limit_filter(r, j)].bits, kept + <size_t>j * c.words, size)
    free(kept)
    return ok


cdef int limit_over(Cluster* c, int32_t slot, int64_t end) noexcept nogil:
    """Whether the place in c.out, until `end`, is more than a job may have, and there is no other
    for it. The verdict is given then."""
    cdef int32_t over
    if c.q_chain[slot] < 0:
        return 0
    over = limit_after(c, c.q_chain[slot], c.q_limit[slot], c.out, c.n_out)
    if over < 0 or limit_again(c, slot, over, end):
        return 0
    judge_limit(c, slot, over)
    return 1


cdef void chains_free(Cluster* c) noexcept nogil:
    cdef int k
    for k in range(c.n_chains if c.chains != NULL else 0):
        free(c.chains[k].items)
    for k in range(c.n_bins if c.bins != NULL else 0):
        free(c.bins[k].jobs)
    free(c.chains)
    free(c.bins)
    free(c.q_chain)
    free(c.q_bin)
