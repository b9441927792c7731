# Methods of Core. Allocations.


cdef class _Allocations(_Windows):
    def allocate(self, key, nodes, end=0, *, adopt=False, gpu_milli=0, reservation=-1, owner=-1,
                 extra=(), lot=-1, slots=(), caps=()):
        """Record that `key` holds (node, cpus, mem_mb, gpu_mask[, tasks]) until `end` (0: never).

        ValueError if it is known already, a node comes twice, a GPU does not exist or is held, or
        CPUs or memory are not free (lot: the partition with whose jobs it shares its cores; slots: the
        bitmap of them in its lot on each node, where it is known; caps: kinds of counted resources of
        which it takes as many as CPUs); with adopt=True CPUs, memory and parts may go beyond the
        node's size (work found running on a node that has shrunk). Cost: its nodes.
        """
        cdef Cluster* c = &self.c
        cdef int64_t k, until
        cdef int i, n = 0
        cdef int milli, g, resv, own, more, over = 0
        cdef int32_t row[EXTRAS]
        cdef Share* sh
        cdef uint64_t* given = NULL
        self._enter()
        k = _number(key, -FOREVER, FOREVER, "key")
        if map_get(&c.by_key, k) >= 0:
            raise ValueError(f"allocation {key} exists")
        until = _number(end, 0, FOREVER, "end") or FOREVER
        resv = self._resv(reservation)
        own = <int>_number(owner, -1, MAX_COUNT, "owner") + 1
        milli = <int>_number(gpu_milli, 0, MAX_PARTS, "gpu_milli")
        more = self._counts(extra, row)
        more |= <int32_t>self._caps(caps) << 1
        lot = self._lot(lot)
        if milli:
            self._share()
        rows = [tuple(one) for one in nodes]
        places = [_index(one) for one in slots]
        if places and (len(places) != len(rows) or not lot):
            raise ValueError(f"cores of a lot for {len(places)} of {len(rows)} nodes")
        if not rows or len(rows) > c.n:
            raise ValueError(f"an allocation on {len(rows)} nodes")
        try:
            for one in rows:
                if len(one) not in (4, 5, 6):
                    raise ValueError(
                        f"{one!r} is not (node, cpus, mem_mb, gpu_mask[, tasks[, cores]])"
                    )
                i = self._node(one[0])
                sh = &c.out[n]
                sh.node = i
                sh.cpus = <int32_t>_number(one[1], 0, MAX_COUNT, "CPUs")
                sh.mem = _number(one[2], 0, <int64_t>1 << 50, "memory")
                sh.mask = _mask(one[3], "GPU bitmap")
                sh.tasks = <int32_t>_number(one[4], 0, MAX_COUNT, "tasks") if len(one) > 4 else 0
                sh.cut = 0
                if len(one) == 6 and c.dmap[i] and len(one[5]) == c.maps[c.dmap[i]].n:
                    sh.cut = 1
                    memset(sh.cores, 0, sizeof(sh.cores))
                    for g in range(<int>len(one[5])):
                        sh.cores[g] = <int16_t>_number(one[5][g], 0, 32767, "cores")
                sh.gpus = gs_pop(sh.mask)
                sh.milli = milli
                sh.own = own
                sh.more = more
                sh.lot = lot
                memcpy(sh.extra, row, sizeof(row))
                for g in caps:
                    sh.extra[<int>g] = sh.cpus
                if milli and sh.gpus != 1:
                    raise ValueError(f"gpu_milli {milli} of GPUs {sh.mask:#x}: it is a share of one")
                if c.mark[i]:
                    raise ValueError(f"node {i} comes twice")
                g = 0
                if milli and sh.mask & c.used[i] & c.now.frac[i]:
                    g = c.now.took[<size_t>i * MAX_GPUS + gs_ctz(sh.mask)]
                    if g + milli >= CLOSED:
                        raise ValueError(f"{g + milli} parts of GPUs {sh.mask:#x} of node {i}")
                elif sh.mask & c.used[i]:
                    raise ValueError(
                        f"GPUs {sh.mask & c.used[i]:#x} of node {i} are held by another job"
                    )
                if milli and g + milli > parts_of(c, i, gs_ctz(sh.mask)):
                    over = 1
                    if not adopt:
                        raise ValueError(
                            f"{milli} parts of GPUs {sh.mask:#x} of node {i}: "
                            f"only {max(0, parts_of(c, i, gs_ctz(sh.mask)) - g)} are free"
                        )
                if not adopt:
                    if sh.mask & ~c.all[i]:
                        raise ValueError(f"node {i} has no GPUs {sh.mask & ~c.all[i]:#x}")
                    if sh.cpus > lot_room(c, lot, i):
                        raise ValueError(
                            f"{sh.cpus} CPUs of node {i}: only {lot_room(c, lot, i)} are free"
                        )
                    if sh.mem > c.now.mem[i]:
                        raise ValueError(f"{sh.mem} MB of node {i}: only {c.now.mem[i]} are free")
                    if more and not row_holds(extra_row(c.now.extra, i), sh.extra):
                        raise ValueError(f"node {i} has too little of {extra} free")
                c.mark[i] = 1
                n += 1
        finally:
            for i in range(n):
                c.mark[c.out[i].node] = 0
        c.shrunk = c.shrunk or over
        if places:
            given = <uint64_t*>calloc(<size_t>n * SLOT_WORDS, sizeof(uint64_t))
            if given == NULL:
                raise MemoryError
        try:
            for i in range(<int>len(places)):
                for g in range(SLOT_WORDS):
                    given[i * SLOT_WORDS + g] = <uint64_t>(
                        places[i] >> (64 * g) & 0xFFFFFFFFFFFFFFFF
                    )
            if take(c, k, c.out, n, until, resv, given):
                raise MemoryError
        finally:
            free(given)
        self._check()

    def allocation_lot(self, key):
        """(partition, bitmap of its cores in the lot on each of its nodes in the order of allocation())
        of one that shares cores; (-1, ()) of another."""
        cdef int32_t p
        cdef int w
        self._enter()
        p = self.c.allocs[self._alloc(key)].first
        if self.c.pieces[p].share.lot == 0:
            return -1, ()
        lot = self.c.pieces[p].share.lot - 1
        rows = []
        while p >= 0:
            if self.c.pieces[p].slots == NULL:
                # It has stood still on this node: what it has there it has for itself.
                return -1, ()
            rows.append(sum([
                _index(self.c.pieces[p].slots[w]) << (64 * w) for w in range(SLOT_WORDS)
            ]))
            p = self.c.pieces[p].next
        return lot, tuple(rows)

    def allocation_terms(self, key):
        """What allocate() must be told of it besides its shares to make it anew."""
        lot, slots = self.allocation_lot(key)
        return {
            "gpu_milli": self.allocation_milli(key), "owner": self.allocation_owner(key),
            "extra": self.allocation_extra(key), "caps": self.allocation_caps(key),
            "lot": lot, "slots": slots,
        }

    def allocation_caps(self, key):
        """The kinds of counted resources of which it holds as many as CPUs."""
        cdef int more, k
        self._enter()
        more = self.c.pieces[self.c.allocs[self._alloc(key)].first].share.more
        return tuple([k for k in range(EXTRAS) if more >> (k + 1) & 1])

    def allocation_cores(self, key):
        """(node, cores in each domain) of each node it still holds that has several; in the order
        of allocation()."""
        cdef int32_t p
        cdef int d
        self._enter()
        rows = []
        p = self.c.allocs[self._alloc(key)].first
        while p >= 0:
            if self.c.dmap[self.c.pieces[p].share.node]:
                n = self.c.maps[self.c.dmap[self.c.pieces[p].share.node]].n
                rows.append((
                    self.c.pieces[p].share.node,
                    tuple([self.c.pieces[p].share.cores[d] for d in range(<int>n)]),
                ))
            p = self.c.pieces[p].next
        return tuple(rows)

    def set_cores(self, node, cores):
        """How many cores of each of its domains are in use: said once after a node's domains changed
        while jobs hold some of it."""
        cdef int i, d
        self._enter()
        i = self._node(node)
        used = [_number(n, 0, 32767, "cores") for n in cores]
        if self.c.dmap[i] == 0:
            return
        if len(used) != self.c.maps[self.c.dmap[i]].n:
            raise ValueError(f"cores of {len(used)} domains of node {node}")
        for d in range(<int>len(used)):
            self.c.dom_used[<size_t>i * MAX_DOMS + <size_t>d] = <int16_t>used[d]
        index_move(&self.c, &self.c.now, i)

    def release(self, key):
        """Free all that `key` holds. Cost: its nodes."""
        self._enter()
        release_all(&self.c, self._alloc(key))
        self._check()

    def release_node(self, key, node):
        """Free what `key` holds on one node; with the last node the allocation is gone."""
        cdef int32_t a
        self._enter()
        a = self._alloc(key)
        if not release_one(&self.c, a, self._node(node)):
            raise ValueError(f"allocation {key} has nothing on node {node}")
        self._check()

    def reshape(self, key, row):
        """It holds (node, cpus, mem_mb, gpu_mask[, cores by domain]) of a node instead of what it
        holds there: see _core.pyi. Cost: its nodes."""
        cdef Cluster* c = &self.c
        cdef Share sh
        cdef int32_t a, p
        cdef int d
        cdef uint64_t own = 0
        self._enter()
        a = self._alloc(key)
        memset(&sh, 0, sizeof(Share))
        sh.node = self._node(row[0])
        sh.cpus = <int32_t>_number(row[1], 0, MAX_COUNT, "CPUs")
        sh.mem = _number(row[2], 0, <int64_t>1 << 50, "memory")
        sh.mask = _mask(row[3], "GPU bitmap")
        if len(row) == 5 and c.dmap[sh.node] and len(row[4]) == c.maps[c.dmap[sh.node]].n:
            sh.cut = 1
            for d in range(<int>len(row[4])):
                sh.cores[d] = <int16_t>_number(row[4][d], 0, 32767, "cores")
        p = c.allocs[a].first
        while p >= 0:
            if c.pieces[p].share.node == sh.node:
                own = c.pieces[p].share.mask
                if c.pieces[p].share.milli:
                    raise ValueError(f"allocation {key} is a share of a GPU")
            p = c.pieces[p].next
        if sh.mask & c.used[sh.node] & ~own:
            raise ValueError(
                f"GPUs {sh.mask & c.used[sh.node] & ~own:#x} of node {sh.node} are held by another job"
            )
        if not reshape(c, a, &sh):
            raise ValueError(f"allocation {key} has nothing on node {sh.node}")
        self._check()

    def set_end(self, key, end, late=()):
        """When it is expected to end (seconds, 0: no limit); late: see _core.pyi."""
        cdef Cluster* c = &self.c
        cdef int64_t until
        cdef int32_t a, p
        self._enter()
        until = _number(end, 0, FOREVER, "end") or FOREVER
        a = self._alloc(key)
        after = {
            self._node(node): _number(time, 0, FOREVER, "end") or FOREVER for node, time in late
        }
        c.allocs[a].end = until
        p = c.allocs[a].first
        while p >= 0:
            c.pieces[p].late = after.get(c.pieces[p].share.node, 0)
            p = c.pieces[p].next

    def allocation_milli(self, key):
        """The parts of one GPU that it holds on each node; 0 for whole GPUs or none."""
        self._enter()
        return self.c.pieces[self.c.allocs[self._alloc(key)].first].share.milli

    def allocation_extra(self, key):
        """(kind, count) of the counted resources that it holds on each node."""
        cdef Share* sh
        cdef int k
        self._enter()
        sh = &self.c.pieces[self.c.allocs[self._alloc(key)].first].share
        if not sh.more:
            return ()
        return tuple([
            (k, sh.extra[k]) for k in range(EXTRAS) if sh.extra[k] and not sh.more >> (k + 1) & 1
        ])

    def allocation_owner(self, key):
        """Whose jobs alone may be on its nodes; -1 anybody's."""
        self._enter()
        return self.c.pieces[self.c.allocs[self._alloc(key)].first].share.own - 1

    def allocation(self, key):
        """(node, cpus, tasks, mem_mb, gpu_mask) of each node it still holds; () if unknown."""
        cdef int32_t a, p
        self._enter()
        a = map_get(&self.c.by_key, _number(key, -FOREVER, FOREVER, "key"))
        if a < 0:
            return ()
        rows = []
        p = self.c.allocs[a].first
        while p >= 0:
            rows.append(_shares(&self.c.pieces[p].share, 1)[0])
            p = self.c.pieces[p].next
        return tuple(rows)
