# The queue as columns, and the pass over it.

cdef enum:
    V_UNTESTED = 0
    V_STARTED = 1
    V_RESOURCES = 2
    V_PRIORITY = 3
    V_BEHIND = 4
    V_BEGIN = 5
    V_HELD = 6
    V_NODES_DOWN = 7
    V_NEVER = 8
    V_GROUP = 9
    V_RESERVATION = 10     # its reservation is not in force, or not for as long as it runs
    V_WINDOW = 11          # would start but for a reservation that it is not of
    V_LIMIT = 12           # more than a limit leaves it

cdef enum:
    ASIDE = 2                # `held` of a job that a pass does not look at, but whose reservation stays


cdef int queue_room(Cluster* c) noexcept nogil:
    """Room for one more job in every column. 0, or -1 without memory."""
    cdef int64_t need = c.q_used + 1, cap
    if map_reserve(&c.q_by_key):
        return -1
    # A place is at most once in each of these lists.
    if (grow(<void**>&c.q_fresh, &c.q_fresh_cap, need, sizeof(int32_t))
            or grow(<void**>&c.q_grave, &c.q_grave_cap, need, sizeof(int32_t))
            or grow(<void**>&c.q_free, &c.q_free_cap, need, sizeof(int32_t))
            or grow(<void**>&c.changed, &c.changed_cap, need, sizeof(int32_t))
            or grow(<void**>&c.started, &c.started_cap, need, sizeof(int64_t))
            or grow(<void**>&c.sorted, &c.sorted_cap, need, sizeof(Entry))
            or grow(<void**>&c.spare, &c.spare_cap, 2 * need, sizeof(Entry))):
        return -1
    if need <= c.q_cap:
        return 0
    cap = c.q_cap
    if grow(<void**>&c.q_key, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_priority, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_order, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_limit, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_ready, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_at, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_array, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_since, &cap, need, sizeof(int64_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_old, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_user, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_req, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_group, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_unit, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_chain, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_bin, &cap, need, sizeof(int32_t)):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_held, &cap, need, 1):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_verdict, &cap, need, 1):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_live, &cap, need, 1):
        return -1
    cap = c.q_cap
    if grow(<void**>&c.q_moved, &cap, need, 1):
        return -1
    c.q_cap = cap
    return 0


cdef int32_t queue_place(Cluster* c) noexcept nogil:
    """A place for a job; queue_room() came before."""
    if c.q_n_free:
        c.q_n_free -= 1
        return c.q_free[c.q_n_free]
    c.q_used += 1
    return c.q_used - 1


cdef void queue_fresh(Cluster* c, int32_t slot) noexcept nogil:
    """The job's place in the order is to be found at the next pass."""
    if not c.q_moved[slot]:
        c.q_moved[slot] = 1
        c.q_fresh[c.q_n_fresh] = slot
        c.q_n_fresh += 1


cdef void queue_drop(Cluster* c, int32_t slot) noexcept nogil:
    map_del(&c.q_by_key, c.q_key[slot])
    c.q_live[slot] = 0
    c.reqs[c.q_req[slot]].queued -= 1
    c.q_grave[c.q_n_grave] = slot
    c.q_n_grave += 1


cdef void queue_merge(Cluster* c) noexcept nogil:
    """Bring `sorted` up to date. Cost: jobs, and m log m for m added or moved ones."""
    cdef int64_t i, j, k, m = 0, n = 0
    cdef int32_t slot
    cdef Entry* fresh
    cdef Entry* t
    if c.q_n_fresh == 0 and c.q_n_grave == 0:
        return
    for i in range(c.n_sorted):
        slot = c.sorted[i].slot
        if c.q_live[slot] and not c.q_moved[slot]:
            c.sorted[n] = c.sorted[i]
            n += 1
    fresh = c.spare
    for i in range(c.q_n_fresh):
        slot = c.q_fresh[i]
        c.q_moved[slot] = 0
        if not c.q_live[slot]:
            continue
        fresh[m].priority = c.q_priority[slot]
        fresh[m].order = c.q_order[slot]
        fresh[m].key = c.q_key[slot]
        fresh[m].slot = slot
        m += 1
    c.q_n_fresh = 0
    for i in range(c.q_n_grave):
        c.q_free[c.q_n_free] = c.q_grave[i]
        c.q_n_free += 1
    c.q_n_grave = 0
    sort_entries(fresh, fresh + m, m)
    # From the back, so that sorted is its own target.
    i = n - 1
    j = m - 1
    k = n + m - 1
    while j >= 0:
        if i >= 0 and before(&fresh[j], &c.sorted[i]):
            c.sorted[k] = c.sorted[i]
            i -= 1
        else:
            c.sorted[k] = fresh[j]
            j -= 1
        k -= 1
    c.n_sorted = <int32_t>(n + m)


cdef inline void judge(Cluster* c, int32_t slot, uint8_t verdict) noexcept nogil:
    if c.q_verdict[slot] != verdict:
        c.q_verdict[slot] = verdict
        c.changed[c.n_changed] = slot
        c.n_changed += 1


cdef int possible(Cluster* c, Req* r) noexcept nogil:
    """Whether r would fit if no job ran on what can be used now. Cost: nodes, once per change."""
    cdef int on = c.w_on, keeps
    if r.possible_version != c.avail_version:
        c.w_on = W_PLACES if c.n_resvs else W_OFF
        empty_state(c, 0)
        r.keeps = r.keep
        r.possible = place(c, &c.then, r, 0)
        if r.keeps and not r.possible:
            # It would wait for ever beside what is kept for idle GPUs: it leaves as much as it can.
            r.keeps = 0
            r.possible = place(c, &c.then, r, 0)
            keeps = 2 if r.possible else KEEPS + 1
            while keeps <= KEEPS:
                r.keeps = keeps
                if place(c, &c.then, r, 0):
                    break
                keeps += 1
            else:
                r.keeps = 0
        r.possible_version = c.avail_version
        c.w_on = on
    return r.possible


cdef void keep_refresh(Cluster* c, Req* r) noexcept nogil:
    """r.keeps is as what can be used now says. The scratch state must not be in use."""
    possible(c, r)


cdef int ever(Cluster* c, Req* r) noexcept nogil:
    """Whether r fits into the cluster as configured. Cost: nodes, once per change."""
    cdef int on = c.w_on, keeps
    if r.ever_version != c.version:
        c.w_on = W_PLACES if c.n_resvs else W_OFF
        empty_state(c, 1)
        keeps = r.keeps
        r.keeps = 0
        r.ever = place(c, &c.then, r, 0)
        r.keeps = keeps
        r.ever_version = c.version
        c.w_on = on
    return r.ever


cdef int refused(Cluster* c, int32_t slot, int64_t now, int64_t duration) noexcept nogil:
    """The verdict on a job that cannot start; the first of its partition gets a reservation.
    -1 without memory."""
    cdef Req* r = &c.reqs[c.q_req[slot]]
    cdef int by_plan = r.refused_by_plan, got, first, v
    cdef int wait = confined(c, r.resv) and resv_until(&c.resvs[r.resv], now) < 0
    if not possible(c, r):
        if wait:
            return V_RESERVATION
        return V_NODES_DOWN if ever(c, r) else V_NEVER
    first = not headed(c, r)
    v = V_PRIORITY if by_plan else V_BEHIND
    if first:
        v = V_RESOURCES
    if wait:
        v = V_RESERVATION
    elif r.refused_by_window:
        v = V_WINDOW
    if c.book.on:
        got = plan_job(c, slot, now, duration)
        if got < 0:
            return -1
        if got == 2:
            return V_STARTED
        head_it(c, r)
        return v
    if not limit_may_wait(c, slot):
        return v
    head_it(c, r)
    if first:
        got = reserve(c, c.q_key[slot], c.q_req[slot], now, duration)
        if got > 0:
            c.q_at[slot] = c.heads[c.n_heads - 1].at
            limit_plan(c, slot)
        return -1 if got < 0 else v
    return v


cdef int start(Cluster* c, int32_t slot, int64_t end) noexcept nogil:
    """A job starts on what c.out says. 0, or -1 without memory."""
    cdef Book* b = &c.book
    cdef Sky* s
    cdef int k
    cdef int32_t resv = c.reqs[c.q_req[slot]].resv
    if take(c, c.q_key[slot], c.out, c.n_out, end, resv, NULL):
        return -1
    if c.q_group[slot] >= 0:
        c.group_left[c.q_group[slot]] -= 1
    if c.q_unit[slot] >= 0:
        c.group_left[c.q_unit[slot]] -= 1
    if c.q_chain[slot] >= 0:
        limit_take(c, c.q_chain[slot], c.q_limit[slot], c.out, c.n_out, 1)
    c.started[c.n_started] = c.q_key[slot]
    c.n_started += 1
    if c.n_out and c.out[0].mask:
        c.gpus_went += 1
    if b.on and not confined(c, resv):
        s = &b.sky[c.filters[c.reqs[c.q_req[slot]].filter].partition + 1]
        for k in range(c.n_out if s.made else 0):
            sky_take(b, s, 0, (lmin(end - b.now, YEAR) + b.slot - 1) // b.slot,
                     c.out[k].gpus, c.out[k].cpus)
    judge(c, slot, V_STARTED)
    queue_drop(c, slot)
    return 0


cdef inline int idler(Cluster* c, Req* r) noexcept nogil:
    """Whether nodes may keep less from r than when it was refused: fewer of their GPUs are idle."""
    return r.keeps and r.refused_went != c.gpus_went


cdef int run_pass(Cluster* c, int64_t now, int64_t max_starts, int64_t max_test) noexcept nogil:
    """One pass in order of priority. 0; 1 when max_starts ended it; -1 without memory."""
    cdef int32_t slot, k, over
    cdef int64_t limit, end, duration
    cdef int v, group, unit, cut
    cdef Req* r
    windows_begin(c)
    keep_plan(c)
    clear_plan(c)
    c.n_started = 0
    c.gpus_went = 0
    c.n_changed = 0
    c.tested = 0
    c.placed = 0
    c.book.freed = 0
    c.book.replans = 0
    c.book.closed = 0
    memset(c.book.looked, 0, sizeof(c.book.looked))
    c.pass_id += 1
    queue_merge(c)
    if c.book.on and (book_open(c, now) or book_keep(c)):
        return -1
    for k in range(c.n_sorted):
        slot = c.sorted[k].slot
        if c.book.keep != QUICK or c.q_held[slot] not in (0, ASIDE):
            c.q_at[slot] = 0
        if c.q_held[slot]:
            judge(c, slot, V_HELD)
            if c.q_held[slot] == ASIDE and quick_stay(c, slot):
                return -1
            continue
        if c.q_ready[slot] > now:
            judge(c, slot, V_BEGIN)
            continue
        group = c.q_group[slot]
        unit = c.q_unit[slot]
        if (group >= 0 and c.group_left[group] <= 0) or (unit >= 0 and c.group_left[unit] <= 0):
            judge(c, slot, V_GROUP)
            continue
        if c.q_chain[slot] >= 0:
            over = limit_before(c, c.q_chain[slot], c.q_limit[slot])
            if over >= 0:
                judge_limit(c, slot, over)
                continue
        if max_test and c.tested >= max_test:
            judge(c, slot, V_UNTESTED)
            if quick_stay(c, slot):
                return -1
            continue
        r = &c.reqs[c.q_req[slot]]
        if c.book.depth:
            group = c.filters[r.filter].partition + 1
            if c.book.looked[group] >= c.book.depth:
                judge(c, slot, V_UNTESTED)
                if quick_stay(c, slot):
                    return -1
                continue
            c.book.looked[group] += 1
        c.tested += 1
        if c.in_order and headed(c, r):
            # Room or not: one ahead is the cause.
            if possible(c, r):
                judge(c, slot, V_PRIORITY)
            else:
                judge(c, slot, V_NODES_DOWN if ever(c, r) else V_NEVER)
            if c.then.failed:
                return -1
            continue
        limit = c.q_limit[slot]
        duration = limit if limit else YEAR
        end = until_of(c, r.resv, now, now + limit if limit else FOREVER)
        c.w_at = now
        c.w_until = end if end < FOREVER else now + duration
        if c.book.keep == QUICK:
            v = quick_job(c, slot, now, duration, max_starts)
            if v < 0 or c.then.failed or c.now.failed:
                return -1
            if v == V_UNTESTED:
                return quick_rest(c, k)
            if v != V_STARTED and v != V_LIMIT:
                judge(c, slot, <uint8_t>v)
            continue
        if c.book.keep and c.q_old[slot] >= 0:
            if c.book.keep == HOLD and c.book.old[c.q_old[slot]].at > now:
                r.refused_by_plan = place(c, &c.now, r, 0)
                r.refused_by_window = (not r.refused_by_plan and c.w_cut
                                       and windows_alone(c, r))
                v = refused(c, slot, now, duration)
                if v < 0 or c.then.failed:
                    return -1
                judge(c, slot, <uint8_t>v)
                continue
            if book_lift(c, slot, 1):
                return -1
        # What is free only shrinks during a pass: a refusal holds for the whole class, for this
        # duration and longer if it was for a reservation, for any otherwise.
        if (r.pass_id != c.pass_id or end - now < r.refused_from or c.book.keep
                or idler(c, r)):
            c.placed += 1
            if place(c, &c.now, r, end):
                if limit_over(c, slot, end):
                    continue
                if max_starts and c.n_started >= max_starts:
                    return 1
                if start(c, slot, end):
                    return -1
                continue
            if c.now.failed:
                return -1
            r.pass_id = c.pass_id
            r.refused_at = c.n_started
            r.refused_went = c.gpus_went
            r.refused_len = end - now
            cut = c.w_cut
            # The plan is the cause only if the job would start without it.
            r.refused_by_plan = c.cut and place(c, &c.now, r, 0)
            r.refused_from = end - now if r.refused_by_plan or cut else 0
            r.refused_by_window = not r.refused_by_plan and c.w_cut and windows_alone(c, r)
        elif ((r.refused_by_plan or r.refused_by_window)
                and (r.refused_at != c.n_started or (c.w_on and r.refused_len != end - now))):
            # Jobs have started since: is it still the plan alone that keeps it waiting?
            r.refused_at = c.n_started
            r.refused_len = end - now
            # Of a job before, a window that does not concern this one may have been.
            r.refused_by_plan = place(c, &c.now, r, 0)
            r.refused_by_window = not r.refused_by_plan and windows_alone(c, r)
            if not r.refused_by_plan and not r.refused_by_window:
                r.refused_from = 0
        v = refused(c, slot, now, duration)
        if v < 0 or c.then.failed:
            return -1
        if v == V_STARTED:
            # The plan has found room that the order of choice above has not.
            if limit_over(c, slot, end):
                continue
            if max_starts and c.n_started >= max_starts:
                return 1
            if start(c, slot, end):
                return -1
            continue
        judge(c, slot, <uint8_t>v)
    return 0
