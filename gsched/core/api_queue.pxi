# Methods of Core. The queue and the pass.


cdef class Core(_Limits):
    """A cluster of n_nodes nodes, all unusable until set_node() describes them.

    Methods raise ValueError with the offending value, RuntimeError while schedule() runs in
    another thread, MemoryError. Nothing is changed by a call that raises, but for MemoryError out
    of schedule().
    """

    def queue_add(self, key, req, priority, order, limit_s=0, ready_at=0, *, held=0, group=-1,
                  unit=-1, user=-1, array=-1, since=0, chain=-1):
        """A waiting job. Higher priority first, then lower order, then lower key. limit_s 0: no
        limit; ready_at: not before; held (1..255): not at all; group, unit: see
        set_group(); user: number of its
        owner, for max_user; array: number of its array, for max_array; since: since when it waits,
        for min_age; chain: see set_chain(). Cost: constant here, its place in the order is found by the next pass."""
        cdef Cluster* c = &self.c
        cdef Req* r
        cdef int64_t k, p, o, limit, ready, family, waits, bound
        cdef int h, g, u, owner
        cdef int32_t slot
        self._enter()
        k = _number(key, -FOREVER, FOREVER, "key")
        r = self._req(req)
        p = _number(priority, -FOREVER, FOREVER, "priority")
        o = _number(order, -FOREVER, FOREVER, "order")
        limit = _number(limit_s, 0, <int64_t>1 << 60, "limit_s")
        ready = _number(ready_at, 0, FOREVER, "ready_at")
        h = <int>_number(held, 0, 255, "held")
        g = <int>_number(group, -1, c.n_groups - 1, "group")
        u = <int>_number(unit, -1, c.n_groups - 1, "unit")
        owner = <int>_number(user, -1, MAX_COUNT, "user")
        family = _number(array, -1, <int64_t>1 << 60, "array")
        waits = _number(since, 0, FOREVER, "since")
        bound = _number(chain, -1, c.n_chains - 1, "chain")
        if grow(<void**>&c.book.users, &c.book.users_cap, owner + 1, sizeof(int32_t)):
            raise MemoryError
        if map_get(&c.q_by_key, k) >= 0:
            raise ValueError(f"job {key} is in the queue")
        if map_get(&c.by_key, k) >= 0:
            raise ValueError(f"job {key} holds an allocation")
        if queue_room(c):
            raise MemoryError
        slot = queue_place(c)
        c.q_key[slot] = k
        c.q_req[slot] = <int32_t>req
        c.q_priority[slot] = p
        c.q_order[slot] = o
        c.q_limit[slot] = limit
        c.q_ready[slot] = ready
        c.q_at[slot] = 0
        c.q_user[slot] = owner
        c.q_array[slot] = family
        c.q_since[slot] = waits
        c.q_old[slot] = -1
        c.q_held[slot] = <uint8_t>h
        c.q_group[slot] = g
        c.q_unit[slot] = u
        c.q_chain[slot] = <int32_t>bound
        c.q_bin[slot] = -1
        c.q_verdict[slot] = V_UNTESTED
        c.q_live[slot] = 1
        r.queued += 1
        map_put(&c.q_by_key, k, slot)
        queue_fresh(c, slot)

    def queue_remove(self, key):
        """A job leaves the queue without a start."""
        self._enter()
        queue_drop(&self.c, self._job(key))

    def queue_update(self, key, *, req=None, priority=None, order=None, limit_s=None,
                     ready_at=None, held=None, group=None, unit=None, chain=None):
        """Change what is given of a waiting job. Cost: constant."""
        cdef Cluster* c = &self.c
        cdef int32_t slot
        cdef int64_t p, o, limit, ready, bound
        cdef int h, g, u
        self._enter()
        slot = self._job(key)
        p = c.q_priority[slot] if priority is None else _number(
            priority, -FOREVER, FOREVER, "priority")
        o = c.q_order[slot] if order is None else _number(order, -FOREVER, FOREVER, "order")
        limit = c.q_limit[slot] if limit_s is None else _number(
            limit_s, 0, <int64_t>1 << 60, "limit_s")
        ready = c.q_ready[slot] if ready_at is None else _number(ready_at, 0, FOREVER, "ready_at")
        h = c.q_held[slot] if held is None else <int>_number(held, 0, 255, "held")
        g = c.q_group[slot] if group is None else <int>_number(group, -1, c.n_groups - 1, "group")
        u = c.q_unit[slot] if unit is None else <int>_number(unit, -1, c.n_groups - 1, "unit")
        bound = c.q_chain[slot] if chain is None else _number(chain, -1, c.n_chains - 1, "chain")
        if req is not None:
            self._req(req).queued += 1
            c.reqs[c.q_req[slot]].queued -= 1
            c.q_req[slot] = <int32_t>req
        if p != c.q_priority[slot] or o != c.q_order[slot]:
            c.q_priority[slot] = p
            c.q_order[slot] = o
            queue_fresh(c, slot)
        c.q_limit[slot] = limit
        c.q_ready[slot] = ready
        c.q_held[slot] = <uint8_t>h
        c.q_group[slot] = g
        c.q_unit[slot] = u
        c.q_chain[slot] = <int32_t>bound

    def queue_priorities(self, keys, priorities):
        """New priorities of many jobs: two arrays of int64 ('q') of the same length. Keys that are
        not in the queue are passed over. The number of jobs changed. Cost: keys."""
        cdef const int64_t[::1] k = keys
        cdef const int64_t[::1] p = priorities
        cdef Py_ssize_t i
        cdef int32_t slot
        cdef int64_t n = 0
        self._enter()
        if k.shape[0] != p.shape[0]:
            raise ValueError(f"{k.shape[0]} keys, {p.shape[0]} priorities")
        with nogil:
            for i in range(k.shape[0]):
                slot = map_get(&self.c.q_by_key, k[i])
                if slot < 0 or self.c.q_priority[slot] == p[i]:
                    continue
                self.c.q_priority[slot] = p[i]
                queue_fresh(&self.c, slot)
                n += 1
        return n

    def queue_hold(self, keys, held):
        """The same `held` for many jobs: an array of int64 ('q'). Keys that are not in the queue
        are passed over. The next pass tells the verdict on each anew. Cost: keys."""
        cdef const int64_t[::1] k = keys
        cdef Py_ssize_t i
        cdef int32_t slot
        cdef uint8_t h
        self._enter()
        h = <uint8_t>_number(held, 0, 255, "held")
        with nogil:
            for i in range(k.shape[0]):
                slot = map_get(&self.c.q_by_key, k[i])
                if slot >= 0:
                    self.c.q_held[slot] = h
                    self.c.q_verdict[slot] = V_UNTESTED

    def set_group(self, group, left):
        """Jobs of this group that may still start; each start of a pass takes one. A job may be in
        two: its group (an array's throttle, a limit) and its unit (rows of the queue of which only
        one is to start, as of a job for several partitions). Numbered from 0 without gaps, both in
        one row. Cost: constant."""
        cdef int64_t g, n
        self._enter()
        g = _number(group, 0, self.c.n_groups, "group")
        n = _number(left, -FOREVER, FOREVER, "left")
        if grow(<void**>&self.c.group_left, &self.c.groups_cap, g + 1, sizeof(int64_t)):
            raise MemoryError
        if g == self.c.n_groups:
            self.c.n_groups += 1
        self.c.group_left[g] = n

    def set_in_order(self, on):
        """Whether passes without a plan let nobody overtake the first blocked job of his
        partition (first in, first out) instead of those who do not delay it. Cost: constant."""
        self._enter()
        self.c.in_order = 1 if on else 0

    def __len__(self):
        # Jobs in the queue.
        return <Py_ssize_t>self.c.q_by_key.used

    def verdict(self, key):
        """The verdict of the last pass on a waiting job."""
        self._enter()
        return self.c.q_verdict[self._job(key)]

    def verdicts(self):
        """Keys and verdicts of all waiting jobs in order, as bytes: int64 and uint8 arrays (order
        as of the last pass; later changes are not in it). Cost: jobs."""
        cdef Cluster* c = &self.c
        cdef int64_t* keys
        cdef uint8_t* codes
        cdef int64_t n = 0, i
        cdef int32_t slot
        self._enter()
        keys = <int64_t*>malloc(<size_t>c.n_sorted * 9 + 1)
        if keys == NULL:
            raise MemoryError
        codes = <uint8_t*>(keys + c.n_sorted)
        for i in range(c.n_sorted):
            slot = c.sorted[i].slot
            if c.q_live[slot] and c.q_key[slot] == c.sorted[i].key:
                keys[n] = c.sorted[i].key
                codes[n] = c.q_verdict[slot]
                n += 1
        try:
            return (<char*>keys)[:n * 8], (<char*>codes)[:n]
        finally:
            free(keys)

    def schedule(self, now, max_starts=0, max_test=0, *, plan_jobs=0, resolution=60,
                 window=604800, min_priority=None, max_user=0, max_partition=0,
                 max_user_partition=0, max_array=-1, one_per_unit=False, min_age=0,
                 busy_first=False, partition_depth=0, tier_bits=0, keep=0, grouped=False):
        """One pass over the queue in order: start what fits, reserve for the first blocked job of
        each partition (EASY), judge the rest.

        Started jobs are allocated here under their key until now + limit, and leave the queue.
        max_starts, max_test: 0 means no bound. grouped: jobs of a single row (of no array and no
        unit) that got the verdict PRIORITY, BEHIND or HELD are told in `alike`, by verdict, and
        not in `changed`: thousands may have got the same. The GIL is not held; other calls on this core raise
        RuntimeError meanwhile. Cost: jobs (some ns each) + one placement per request class (and
        duration, where a reservation is the cause) + per reservation log(ends) x (nodes + shares).
        """
        cdef Cluster* c = &self.c
        cdef int k, got, v
        cdef int32_t slot
        got = self._pass(
            now, max_starts, max_test, plan_jobs, resolution, window, min_priority, max_user,
            max_partition, max_user_partition, max_array, one_per_unit, min_age, busy_first,
            partition_depth, tier_bits, keep,
        )
        began = []
        for k in range(c.n_started):
            began.append(
                _tuple(Start, (
                    c.started[k],
                    _tuple(Placement, (
                        self.allocation(c.started[k]), self.allocation_milli(c.started[k])
                    )),
                ))
            )
        changed = []
        alike = {}
        for k in range(c.n_changed):
            slot = c.changed[k]
            v = c.q_verdict[slot]
            if (grouped and (v == V_PRIORITY or v == V_BEHIND or v == V_HELD)
                    and c.q_array[slot] < 0 and c.q_unit[slot] < 0):
                if v not in alike:
                    alike[v] = ([], [])
                keys, orders = alike[v]
                keys.append(c.q_key[slot])
                orders.append(c.q_order[slot])
            else:
                changed.append((c.q_key[slot], v))
        return Plan(
            began,
            [self._reservation(k) for k in range(c.n_heads) if c.heads[k].fresh],
            changed,
            c.tested,
            c.placed,
            got == 1,
            alike,
        )

    def run_plan(self, now, max_starts=0, max_test=0, *, plan_jobs=0, resolution=60,
                 window=604800, min_priority=None, max_user=0, max_partition=0,
                 max_user_partition=0, max_array=-1, one_per_unit=False, min_age=0,
                 busy_first=False, partition_depth=0, tier_bits=0, keep=0):
        """schedule() without its report, which costs as much as there is to report: the number of
        reservations. For a plan on a copy, of which adopt_plan() takes what it needs."""
        self._pass(
            now, max_starts, max_test, plan_jobs, resolution, window, min_priority, max_user,
            max_partition, max_user_partition, max_array, one_per_unit, min_age, busy_first,
            partition_depth, tier_bits, keep,
        )
        return self.c.n_heads

    cdef int _pass(self, now, max_starts, max_test, plan_jobs, resolution, window, min_priority,
                   max_user, max_partition, max_user_partition, max_array, one_per_unit, min_age,
                   busy_first, partition_depth, tier_bits, keep) except -1:
        """0, or 1 when max_starts ended it."""
        cdef Cluster* c = &self.c
        cdef int64_t t, starts, tests
        cdef int got
        self._ready()
        t = _number(now, 0, <int64_t>1 << 60, "now")
        starts = _number(max_starts, 0, MAX_COUNT, "max_starts")
        tests = _number(max_test, 0, MAX_COUNT, "max_test")
        c.book.exact = _number(plan_jobs, 0, MAX_COUNT, "plan_jobs")
        c.book.step = _number(resolution, 1, MAX_COUNT, "resolution")
        c.book.window = _number(window, 1, <int64_t>1 << 56, "window")
        c.book.min_priority = -FOREVER if min_priority is None else _number(
            min_priority, -FOREVER, FOREVER, "min_priority")
        c.book.per_user = _number(max_user, 0, MAX_COUNT, "max_user")
        c.book.per_partition = _number(max_partition, 0, MAX_COUNT, "max_partition")
        c.book.per_pair = _number(max_user_partition, 0, MAX_COUNT, "max_user_partition")
        c.book.per_array = _number(max_array, -1, MAX_COUNT, "max_array")
        c.book.per_unit = 1 if one_per_unit else 0
        c.book.min_age = _number(min_age, 0, MAX_COUNT, "min_age")
        c.book.busy = 1 if busy_first else 0
        c.book.depth = _number(partition_depth, 0, MAX_COUNT, "partition_depth")
        c.book.tier_bits = <int>_number(tier_bits, 0, 62, "tier_bits")
        c.book.keep = <int>_number(keep, 0, QUICK, "keep")
        c.book.on = 1 if c.book.exact or c.book.keep == QUICK else 0
        self._busy = True
        try:
            with nogil:
                got = run_pass(c, t, starts, tests)
        finally:
            self._busy = False
        if got < 0:
            raise MemoryError
        self._check()
        return got

    def estimates(self):
        """Keys and start estimates of all waiting jobs in order, as bytes of int64 arrays: the time
        of the reservation, or the time before which it will not start; 0: not known."""
        cdef Cluster* c = &self.c
        cdef int64_t* keys
        cdef int64_t n = 0, i
        cdef int32_t slot
        self._enter()
        keys = <int64_t*>malloc(<size_t>c.n_sorted * 16 + 1)
        if keys == NULL:
            raise MemoryError
        for i in range(c.n_sorted):
            slot = c.sorted[i].slot
            if c.q_live[slot] and c.q_key[slot] == c.sorted[i].key:
                keys[n] = c.sorted[i].key
                keys[c.n_sorted + n] = c.q_at[slot]
                n += 1
        try:
            return (<char*>keys)[:n * 8], (<char*>(keys + c.n_sorted))[:n * 8]
        finally:
            free(keys)

    def reservations(self):
        """The reservations of the last pass."""
        cdef Cluster* c = &self.c
        cdef int k
        self._enter()
        return [self._reservation(k) for k in range(c.n_heads)]

    def check(self):
        """Recount everything from the allocations; AssertionError with the first difference. For
        the tests. Cost: nodes + allocations."""
        cdef Cluster* c = &self.c
        cdef int i, b, r
        cdef int32_t a, p
        self._ready()
        cpus = [c.cpus[i] for i in range(c.n)]
        mem = [c.mem[i] for i in range(c.n)]
        used = [0] * c.n
        jobs = [0] * c.n
        owners = [0] * c.n
        rows = {}
        parts = [0] * c.n
        shares = {}
        live = 0
        held = {}
        for a in range(c.allocs_used):
            if not c.allocs[a].live:
                continue
            assert map_get(&c.by_key, c.allocs[a].key) == a, f"key {c.allocs[a].key} is lost"
            p = c.allocs[a].first
            while p >= 0:
                assert c.pieces[p].owner == a, f"share {p} is not of allocation {a}"
                i = c.pieces[p].share.node
                if c.pieces[p].slots == NULL:
                    cpus[i] -= c.pieces[p].share.cpus
                for b in range(MAX_SLOTS if c.pieces[p].slots != NULL else 0):
                    if c.pieces[p].slots[b >> 6] >> (b & 63) & 1:
                        at = (i, c.pieces[p].share.lot, b)
                        held[at] = held.get(at, 0) + 1
                        if held[at] == 1:
                            cpus[i] -= c.threads[i]
                mem[i] -= c.pieces[p].share.mem
                mask = c.pieces[p].share.mask
                if c.pieces[p].share.milli:
                    at = (i, gs_ctz(mask))
                    shares[at] = shares.get(at, 0) + c.pieces[p].share.milli
                    assert shares[at] <= parts_of(c, i, at[1]) or c.shrunk, (
                        f"{shares[at]} parts of GPU {at[1]} of node {i}"
                    )
                    parts[i] |= mask
                else:
                    assert not used[i] & mask, f"a GPU of node {i} is held twice"
                    used[i] |= mask
                if working(&c.pieces[p].share):
                    jobs[i] += 1
                    owners[i] = owners[i] or c.pieces[p].share.own
                for b in range(EXTRAS if c.pieces[p].share.more else 0):
                    rows[i, b] = rows.get((i, b), 0) + c.pieces[p].share.extra[b]
                live += 1
                p = c.pieces[p].next
        for r in range(c.n_lots):
            for b in range(c.lots[r].n):
                at = (c.lots[r].node, c.lots[r].lot, b)
                assert c.lots[r].held[b] == held.pop(at, 0), f"jobs on core {b} of {at}"
        assert not held, f"cores {held} are in no lot"
        assert live == c.pieces_live, f"{live} shares, {c.pieces_live} counted"
        for i in range(c.n):
            assert not used[i] & parts[i], f"a GPU of node {i} is held whole and in parts"
            used[i] |= parts[i]
            assert parts[i] == c.now.frac[i], f"node {i} has GPUs {c.now.frac[i]:#x} in parts"
            if c.now.took != NULL:
                for b in range(MAX_GPUS):
                    assert c.now.took[<size_t>i * MAX_GPUS + b] == shares.get((i, b), 0)
            assert cpus[i] == c.now.cpus[i], f"node {i} has {cpus[i]} CPUs, not {c.now.cpus[i]}"
            assert mem[i] == c.now.mem[i], f"node {i} has {mem[i]} MB, not {c.now.mem[i]}"
            assert used[i] == c.used[i], f"node {i} has GPUs {used[i]:#x} used, not {c.used[i]:#x}"
            assert jobs[i] == c.now.jobs[i], f"node {i} has {jobs[i]} jobs, not {c.now.jobs[i]}"
            for b in range(EXTRAS if c.extra != NULL else 0):
                at = c.extra[i * EXTRAS + b] - rows.get((i, b), 0)
                assert at == c.now.extra[i * EXTRAS + b], f"node {i} has {at} free of kind {b}"
            assert owners[i] == c.now.owner[i], f"node {i} is of {owners[i]}, not {c.now.owner[i]}"
            free_gpus = c.all[i] & c.ok[i] & ~c.used[i]
            assert free_gpus == c.now.gpus[i], f"node {i} has {free_gpus:#x} free"
            assert (c.now.nfree[i] != 255) == bool(c.now.usable[i]), f"node {i} is misfiled"
            if c.now.nfree[i] != 255:
                r = c.rank[i]
                b = c.now.nfree[i] * GRID + c.now.nisland[i]
                assert c.now.nfree[i] == gs_pop(c.now.gpus[i]), f"node {i} is in a wrong bucket"
                assert c.now.bucket[b][r >> 6] >> (r & 63) & 1, f"node {i} is not in its bucket"
        self._check_topology()
