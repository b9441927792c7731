# Methods of Core. Advance reservations.


cdef class _Windows(_Requests):
    def set_reservation(self, reservation, spans, nodes, *, firm=False, flex=False):
        """Describe a reservation anew: (start, end) of each time it is in force, and (node, CPUs or
        -1 for the whole node, GPUs) of what it keeps. Without spans or nodes it keeps nothing, and
        its jobs find nothing. See _core.pyi. Cost: all windows + allocated shares."""
        self._describe(reservation, spans, nodes, firm, flex)
        self._rebuild()

    def set_reservations(self, rows):
        """The same for several at once: (reservation, spans, nodes) each. Cost: as for one."""
        try:
            for reservation, spans, nodes in rows:
                self._describe(reservation, spans, nodes, False, False)
        finally:
            self._rebuild()

    cdef int _describe(self, reservation, spans, nodes, firm, flex) except -1:
        cdef Cluster* c = &self.c
        cdef Resv* v
        cdef int64_t* start
        cdef int64_t* end
        cdef Share* shares
        cdef int k, i, n_spans, n_shares
        cdef int32_t number
        self._enter()
        _number(reservation, 0, MAX_RESVS - 1, "reservation")
        times = sorted([(_number(a, 0, FOREVER, "start of a reservation"),
                         _number(b, 0, FOREVER, "end of a reservation")) for a, b in spans])
        for a, b in times:
            if b <= a:
                raise ValueError(f"a reservation from {a} to {b} ends before it begins")
        rows = sorted([tuple(row) for row in nodes])
        seen = set()
        for row in rows:
            if len(row) not in (3, 4):
                raise ValueError(f"{row!r} is not (node, cpus, gpu_mask[, mem_mb])")
            i = self._node(row[0])
            _number(row[1], -1, MAX_COUNT, "CPUs of a reservation")
            _mask(row[2], "GPUs of a reservation")
            _number(row[3] if len(row) == 4 else 0, 0, <int64_t>1 << 50, "memory of a reservation")
            if i in seen:
                raise ValueError(f"node {i} comes twice in reservation {reservation}")
            seen.add(i)
        number = self._resv(reservation)
        n_spans = <int>len(times)
        n_shares = <int>len(rows)
        start = <int64_t*>calloc(<size_t>n_spans + 1, sizeof(int64_t))
        end = <int64_t*>calloc(<size_t>n_spans + 1, sizeof(int64_t))
        shares = <Share*>calloc(<size_t>n_shares + 1, sizeof(Share))
        if start == NULL or end == NULL or shares == NULL:
            free(start)
            free(end)
            free(shares)
            raise MemoryError
        for k in range(n_spans):
            start[k], end[k] = times[k]
        for k in range(n_shares):
            shares[k].node = rows[k][0]
            shares[k].cpus = rows[k][1]
            shares[k].mask = rows[k][2]
            shares[k].mem = rows[k][3] if len(rows[k]) == 4 else 0
        v = &c.resvs[number]
        free(v.start)
        free(v.end)
        free(v.shares)
        v.live = 1
        v.firm = 1 if firm else 0
        v.flex = 1 if flex else 0
        v.n_spans = n_spans
        v.start = start
        v.end = end
        v.n_shares = n_shares
        v.shares = shares
        # Longer than anything that runs or is planned.
        v.always = n_spans == 1 and start[0] <= 0 and end[0] >= <int64_t>1 << 40
        return 0

    cdef int _rebuild(self) except -1:
        """The windows of all reservations, by node, and what of them is in use."""
        cdef Cluster* c = &self.c
        cdef Window* x
        cdef int64_t total = 0
        cdef int k, j
        cdef int32_t p, resv
        for k in range(c.n_resvs):
            total += c.resvs[k].n_shares if c.resvs[k].n_spans else 0
        if grow(<void**>&c.windows, &c.windows_cap, total, sizeof(Window)):
            raise MemoryError
        if c.win_head == NULL:
            c.win_head = <int32_t*>malloc(<size_t>c.n * sizeof(int32_t))
            if c.win_head == NULL:
                raise MemoryError
        memset(c.win_head, 0xff, <size_t>c.n * sizeof(int32_t))
        c.n_windows = 0
        # From the back, so that a node's windows are in order of their reservations.
        for k in range(c.n_resvs - 1, -1, -1):
            for j in range(c.resvs[k].n_shares if c.resvs[k].n_spans else 0):
                x = &c.windows[c.n_windows]
                memset(x, 0, sizeof(Window))
                x.resv = k
                x.node = c.resvs[k].shares[j].node
                x.whole = c.resvs[k].shares[j].cpus < 0
                x.cpus = c.cpus[x.node] if x.whole else c.resvs[k].shares[j].cpus
                x.mask = c.all[x.node] if x.whole else c.resvs[k].shares[j].mask
                x.mem = 0 if x.whole else c.resvs[k].shares[j].mem
                x.next = c.win_head[x.node]
                c.win_head[x.node] = c.n_windows
                c.n_windows += 1
        for p in range(c.pieces_used):
            if c.pieces[p].owner >= 0:
                resv = c.allocs[c.pieces[p].owner].resv
                if resv >= 0:
                    window_use(c, resv, c.pieces[p].share.node, c.pieces[p].share.cpus)
        # Answers that were kept do not hold any longer.
        c.version += 1
        c.avail_version += 1
        # Its lines of windows are numbered as they were.
        c.book.on = 0
        return 0
