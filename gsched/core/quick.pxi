# Quick passes beside the reservations of a plan: they stand, and what starts delays none of them.
#
# A job may start before its own reservation. One whose reservation does not hold any more (a node
# went away, a job before it outlasted its time) gets another, before those behind it are looked
# at: these are put back if they must be. So does the first blocked job of a partition that has
# none, as one that came since the plan was made, but that one puts back nobody.

cdef enum:
    REPLANS = 128            # reservations made in a pass; what needs more waits for a plan


cdef inline int32_t tally_of(Book* b, int64_t what, int kind) noexcept nogil:
    cdef int32_t n = map_get(&b.tally, what * 4 + kind)
    return n if n > 0 else 0


cdef int tally_add(Book* b, int64_t what, int kind) noexcept nogil:
    """Count one more. 0, or -1 without memory."""
    cdef Map* m = &b.tally
    cdef int64_t key = what * 4 + kind
    cdef uint64_t i = gs_mix(<uint64_t>key) & m.mask
    while m.value[i] >= 0:
        if m.key[i] == key:
            m.value[i] += 1
            return 0
        i = (i + 1) & m.mask
    if map_reserve(m):
        return -1
    map_put(m, key, 1)
    return 0


cdef inline int64_t pair_of(Cluster* c, int32_t slot) noexcept nogil:
    return (<int64_t>c.q_user[slot] * (MAX_BITS + 1)
            + c.filters[c.reqs[c.q_req[slot]].filter].partition + 1)


cdef int tally_up(Cluster* c, int32_t slot) noexcept nogil:
    """A job has got a reservation. 0, or -1 without memory."""
    cdef Book* b = &c.book
    limit_plan(c, slot)
    b.parts[c.filters[c.reqs[c.q_req[slot]].filter].partition + 1] += 1
    if c.q_user[slot] >= 0:
        b.users[c.q_user[slot]] += 1
        if b.per_pair and tally_add(b, pair_of(c, slot), 0):
            return -1
    if b.per_array >= 0 and c.q_array[slot] >= 0 and tally_add(b, c.q_array[slot], 1):
        return -1
    if b.per_unit and c.q_unit[slot] >= 0 and tally_add(b, c.q_unit[slot], 2):
        return -1
    if c.q_group[slot] >= 0 and tally_add(b, c.q_group[slot], 3):
        return -1
    return 0


cdef int may_reserve(Cluster* c, int32_t slot) noexcept nogil:
    """Whether the options let a job have a reservation, beside those that have theirs."""
    cdef Book* b = &c.book
    cdef int32_t user = c.q_user[slot]
    cdef int64_t priority = c.q_priority[slot]
    if b.tier_bits:
        priority &= ((<int64_t>1) << b.tier_bits) - 1
    if priority < b.min_priority:
        return 0
    if b.min_age and b.now - c.q_since[slot] < b.min_age:
        return 0
    if (b.per_partition
            and b.parts[c.filters[c.reqs[c.q_req[slot]].filter].partition + 1] >= b.per_partition):
        return 0
    if user >= 0:
        if b.per_user and b.users[user] >= b.per_user:
            return 0
        if b.per_pair and tally_of(b, pair_of(c, slot), 0) >= b.per_pair:
            return 0
    # No more of an array with a throttle than may start.
    if c.q_group[slot] >= 0 and tally_of(b, c.q_group[slot], 3) >= c.group_left[c.q_group[slot]]:
        return 0
    if (b.per_array >= 0 and c.q_array[slot] >= 0
            and tally_of(b, c.q_array[slot], 1) >= b.per_array):
        return 0
    if (b.per_unit and c.q_unit[slot] >= 0
            and tally_of(b, c.q_unit[slot], 2) >= c.group_left[c.q_unit[slot]]):
        return 0
    return 1


cdef int quick_holds(Cluster* c, int32_t slot, Head* h) noexcept nogil:
    """Whether a job still wants its reservation, which begins now if it should have begun."""
    cdef int group = c.q_group[slot], unit = c.q_unit[slot]
    if c.q_held[slot] not in (0, ASIDE) or c.q_ready[slot] > lmax(h.at, c.book.now):
        return 0
    if c.q_chain[slot] >= 0 and limit_before(c, c.q_chain[slot], c.q_limit[slot]) >= 0:
        return 0
    if (group >= 0 and c.group_left[group] <= 0) or (unit >= 0 and c.group_left[unit] <= 0):
        return 0
    if h.at < c.book.now:
        h.at = c.book.now
        h.until = until_of(c, c.reqs[h.req].resv, h.at,
                           h.at + (c.q_limit[slot] if c.q_limit[slot] else YEAR))
    return 1


cdef int quick_stay(Cluster* c, int32_t slot) noexcept nogil:
    """The pass does not look at a job: its reservation stays. 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef Head* h
    if b.keep != QUICK or c.q_old[slot] == -1:
        return 0
    h = &b.old[c.q_old[slot] if c.q_old[slot] >= 0 else -2 - c.q_old[slot]]
    c.q_at[slot] = h.at
    c.n_out = h.n
    memcpy(c.out, &b.shares[h.first], <size_t>h.n * sizeof(Share))
    if plan_keep(c, slot, h.at, h.until - h.at, 0) < 0:
        return -1
    c.heads[c.n_heads - 1].fresh = h.fresh
    return 0


cdef int quick_again(Cluster* c, int32_t slot, int k) noexcept nogil:
    """A reservation of the last pass does not hold any more: another one for its job. 0, or -1
    without memory."""
    cdef Book* b = &c.book
    cdef Head* h = &b.old[k]
    cdef int64_t at
    if b.replans >= REPLANS:
        # What starts now might take what it needs.
        b.closed = 1
        c.q_old[slot] = -2 - k
        return 0
    b.replans += 1
    at = plan_start(c, &c.reqs[h.req], c.q_limit[slot] if c.q_limit[slot] else YEAR, 1)
    if c.then.failed:
        return -1
    if at < 0:
        return 0
    if grow(<void**>&b.shares, &b.shares_cap, b.n_shares + c.n_out, sizeof(Share)):
        return -1
    memcpy(&b.shares[b.n_shares], c.out, <size_t>c.n_out * sizeof(Share))
    near_forget(&b.shares[b.n_shares], c.n_out)
    h.at = at
    h.until = until_of(c, c.reqs[h.req].resv, at,
                       at + (c.q_limit[slot] if c.q_limit[slot] else YEAR))
    h.first = <int32_t>b.n_shares
    h.n = c.n_out
    h.fresh = 1
    b.n_shares += c.n_out
    c.q_old[slot] = k
    return book_lift(c, slot, 0)


cdef int quick_rest(Cluster* c, int32_t k) noexcept nogil:
    """The pass ends before the job at place k. 1, or -1 without memory."""
    for k in range(k, c.n_sorted):
        if quick_stay(c, c.sorted[k].slot):
            return -1
    return 1


cdef int quick_plan(Cluster* c, int32_t slot, int64_t now, int64_t duration) noexcept nogil:
    """The reservation of a job that does not start now, if it is to have one. 2: it can start now,
    with the answer in c.out; 1; 0: none; -1 without memory."""
    cdef Book* b = &c.book
    cdef Req* r = &c.reqs[c.q_req[slot]]
    cdef int first = not headed(c, r)
    cdef int64_t at
    if c.q_old[slot] != -1:
        return -1 if quick_stay(c, slot) else 1
    if (not first or b.replans >= REPLANS or not limit_may_wait(c, slot)
            or not may_reserve(c, slot)):
        return 0
    b.replans += 1
    at = plan_start(c, r, duration, first)
    if c.then.failed:
        return -1
    c.q_at[slot] = lmax(at, 0)
    if at < 0:
        return 0
    if at == now:
        return 2
    return plan_keep(c, slot, at, duration, 1)


cdef int quick_job(Cluster* c, int32_t slot, int64_t now, int64_t duration,
                   int64_t max_starts) noexcept nogil:
    """Start a job, or give the verdict on it. V_UNTESTED: max_starts ends the pass; -1 without
    memory."""
    cdef Book* b = &c.book
    cdef Req* r = &c.reqs[c.q_req[slot]]
    cdef int32_t old = c.q_old[slot]
    cdef int64_t limit = c.q_limit[slot]
    cdef int64_t end = until_of(c, r.resv, now, now + limit if limit else FOREVER)
    cdef Head* h
    cdef int known = r.pass_id == c.pass_id and not idler(c, r), fits = 0, by_plan = 0, v
    c.w_at = now
    c.w_until = end if end < FOREVER else now + duration
    if c.w_on and r.refused_len != end - now:
        # A window may be in the way of one and not of a shorter one.
        known = 0
    # What is free only shrinks during a pass, but for what a start before its reservation leaves
    # to others later on.
    if b.closed:
        by_plan = 1
    elif known and not r.refused_by_plan and not (old >= 0 and b.old[old].at == now):
        pass
    elif (known and old < 0 and end - now >= r.refused_from and r.refused_freed == b.freed):
        if r.refused_at != c.n_started:
            r.refused_at = c.n_started
            r.refused_by_plan = place(c, &c.now, r, 0)
        by_plan = r.refused_by_plan
    else:
        if old >= 0 and book_lift(c, slot, 1):
            return -1
        c.placed += 1
        fits = place(c, &c.now, r, end)
        if not fits and not c.now.failed:
            by_plan = c.cut and place(c, &c.now, r, 0)
        if not fits and old >= 0 and b.old[old].at == now and not unsure(r):
            # Its time has come: what was kept for it is there.
            h = &b.old[old]
            c.n_out = h.n
            memcpy(c.out, &b.shares[h.first], <size_t>h.n * sizeof(Share))
            fits = 1
        if c.now.failed:
            return -1
        if fits:
            if limit_over(c, slot, end):
                # What was kept for it is free: it could not use that.
                return V_LIMIT
            if max_starts and c.n_started >= max_starts:
                if old >= 0 and book_lift(c, slot, 0):
                    return -1
                return V_UNTESTED
            if old >= 0:
                b.freed += 1
            return -1 if start(c, slot, end) else V_STARTED
        r.refused_by_window = not by_plan and c.w_cut and windows_alone(c, r)
        r.refused_len = end - now
        if old >= 0 and book_lift(c, slot, 0):
            return -1
        if not by_plan or old < 0:
            r.pass_id = c.pass_id
            r.refused_at = c.n_started
            r.refused_went = c.gpus_went
            r.refused_by_plan = by_plan
            r.refused_from = end - now if by_plan else 0
            r.refused_freed = b.freed
    if by_plan:
        r.refused_by_window = 0
    v = refused(c, slot, now, duration)
    if v == V_STARTED:
        # The plan has found room that the order of choice above has not.
        if limit_over(c, slot, end):
            return V_LIMIT
        if max_starts and c.n_started >= max_starts:
            return V_UNTESTED
        return -1 if start(c, slot, end) else V_STARTED
    if v == V_BEHIND and by_plan:
        v = V_PRIORITY
    elif v == V_PRIORITY and not by_plan:
        v = V_BEHIND
    return v
