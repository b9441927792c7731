# What would be, were a request another one, or the time another: nothing is changed by it.


cdef int head_of(Cluster* c, int64_t key) noexcept nogil:
    """The number of a job's reservation; -1: it has none."""
    cdef int h
    for h in range(c.n_heads):
        if c.heads[h].key == key and c.heads[h].at >= 0:
            return h
    return -1


cdef void set_aside(Cluster* c, int h, int64_t at, int back) noexcept nogil:
    """A reservation for `at` is left out of account, or put back. What others were left beside it
    stays as it is."""
    cdef Head* head = &c.heads[h]
    cdef Book* b = &c.book
    cdef Share* sh
    cdef int32_t resv = c.reqs[head.req].resv
    cdef int32_t k
    cdef int j
    head.at = at if back else -1
    if not b.on:
        for k in range(c.n_cons):
            if c.cons[k].head == h:
                c.cons[k].at = at if back else FOREVER
        return
    for j in range(head.n):
        sh = &c.planned[head.first + j]
        if back:
            # Its segments are cut: this needs no memory.
            book_take(c, sh, resv, at, head.until, 1)
        else:
            if book_grew(b, sh.node):
                c.then.failed = 1
            book_give(c, sh, resv, at, head.until)


cdef void state_at(Cluster* c, Req* r, int64_t now, int64_t at, int64_t duration,
                   int planned) noexcept nogil:
    """`then` becomes what is free at `at`, or throughout `duration` from then on beside the
    reservations where `planned`. Cost: nodes + allocated shares."""
    cdef Seg sum_
    cdef Parts parts
    cdef Over over
    cdef int64_t until = until_of(c, r.resv, at, at + duration)
    cdef int i, line
    memset(&over, 0, sizeof(Over))
    if planned and not c.book.on:
        overlapping(c, at, until, &over)
    future(c, now, at, until, &over)
    if not (c.book.on and planned):
        return
    for i in range(c.n):
        line = line_of(c, r, i)
        if line < 0:
            c.then.usable[i] = 0
            continue
        seg_window_of(c, r, line, i, at, until, &sum_, &parts)
        plan_state(c, &c.then, r, i, &sum_, &parts)
        plan_rows(c, &c.then, r, i, at, until)
    # What windows leave is in the lines of time already.
    c.then.told = 1
    c.w_on = W_OFF
    index_build(c, &c.then)


cdef int place_at(Cluster* c, Req* r, int64_t now, int64_t at, int64_t limit) noexcept nogil:
    """Whether r fits at time `at` (now, or later), with the answer in c.out. limit as in place()."""
    cdef int64_t end = windows_at(c, r, now, limit)
    if at <= now:
        return place(c, &c.now, r, end)
    state_at(c, r, now, at, limit if limit > 0 else YEAR, limit >= 0)
    return place(c, &c.then, r, 0)


cdef void survey(Cluster* c, Req* r, int64_t now, int64_t at, int64_t limit, uint32_t* bits,
                 uint8_t* gpus) noexcept nogil:
    """What each node lacks, and GPUs that r may choose from. Cost: nodes; at a later time twice
    that and the allocated shares."""
    cdef Filter* fl = &c.filters[r.filter]
    cdef State* s = &c.now
    cdef Need need
    cdef Fit f
    cdef int64_t end = windows_at(c, r, now, limit)
    cdef int i, e
    if at > now:
        s = &c.then
        state_at(c, r, now, at, limit if limit > 0 else YEAR, 0)
        end = 0
    need_of(r, &need)
    for e in range(fl.n_exclude):
        c.mark[fl.exclude[e]] = 1
    for i in range(c.n):
        bits[i] = lack_of(c, s, r, &need, i, end)
        gpus[i] = <uint8_t>gs_pop(pool(c, s, r, i)) if s.usable[i] else 0
    if at > now and limit >= 0:
        state_at(c, r, now, at, limit if limit else YEAR, 1)
        for i in range(c.n):
            if bits[i] == 0 and (not fit(c, s, r, i, 0, &f) or f.t < need.t
                                 or (r.gtotal and f.g < need.g)):
                bits[i] = 1 << W_RESERVED
    for e in range(fl.n_exclude):
        c.mark[fl.exclude[e]] = 0
