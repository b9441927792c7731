# Methods of Core. Whose work makes way.


cdef class _Preempt(_Surveys):
    def cheapest(self, req, keys, costs, now=0, limit_s=0, *, avoid=(), strict=False,
                 lent=()):
        """(keys to release, Placement then), or None: see _core.pyi."""
        cdef Cluster* c = &self.c
        cdef Hunt h
        cdef int64_t start, limit, total = 0
        cdef int32_t p
        cdef int k, j, i, got
        cdef int32_t* last = NULL
        cdef Entry* entries = NULL
        cdef bint ordered = bool(strict)
        self._ready()
        memset(&h, 0, sizeof(Hunt))
        h.c = c
        h.r = self._req(req)
        start = _number(now, 0, <int64_t>1 << 60, "now")
        limit = _number(limit_s, 0, <int64_t>1 << 60, "limit_s")
        groups = [
            [self._alloc(one) for one in (key if isinstance(key, tuple) else (key,))]
            for key in keys
        ]
        allocs = [one for group in groups for one in group]
        prices = [_number(cost, 0, <int64_t>1 << 50, "cost") for cost in costs]
        if len(groups) != len(prices) or len(set(allocs)) != len(allocs):
            raise ValueError(f"{len(groups)} allocations, {len(prices)} costs")
        if prices != sorted(prices) and not ordered:
            raise ValueError("costs must rise")
        out = [self._node(one) for one in avoid]
        still = set(lent)
        out = [one for one in set(out) if c.now.usable[<int>one]]
        if not allocs:
            return None
        h.n = <int>len(groups)
        for got in allocs:
            p = c.allocs[got].first
            while p >= 0:
                total += 1
                p = c.pieces[p].next
        h.v = <Victim*>calloc(<size_t>h.n, sizeof(Victim))
        h.at = <int32_t*>calloc(<size_t>c.n + 2, sizeof(int32_t))
        h.on = <int32_t*>calloc(<size_t>total + 1, sizeof(int32_t))
        h.allocs = <int32_t*>calloc(<size_t>len(allocs) + 1, sizeof(int32_t))
        last = <int32_t*>calloc(<size_t>c.n + 1, sizeof(int32_t))
        entries = <Entry*>calloc(2 * <size_t>c.n, sizeof(Entry))
        try:
            if (h.v == NULL or h.at == NULL or h.on == NULL or entries == NULL
                    or h.allocs == NULL or last == NULL):
                raise MemoryError
            got = 0
            for k in range(h.n):
                h.v[k].first = got
                h.v[k].count = <int>len(groups[k])
                for one in groups[k]:
                    h.allocs[got] = one
                    got += 1
                h.v[k].cost = prices[k]
                h.v[k].lent = keys[k] in still
                # On a node that several of its allocations have it is named once.
                for j in range(h.v[k].count):
                    p = c.allocs[h.allocs[h.v[k].first + j]].first
                    while p >= 0:
                        i = c.pieces[p].share.node
                        if last[i] != k + 1:
                            last[i] = k + 1
                            h.at[i + 2] += 1
                        p = c.pieces[p].next
            for i in range(c.n):
                h.at[i + 2] += h.at[i + 1]
                last[i] = 0
            for k in range(h.n):
                for j in range(h.v[k].count):
                    p = c.allocs[h.allocs[h.v[k].first + j]].first
                    while p >= 0:
                        i = c.pieces[p].share.node
                        if last[i] != k + 1:
                            last[i] = k + 1
                            h.on[h.at[i + 1]] = k
                            h.at[i + 1] += 1
                        p = c.pieces[p].next
            for i in out:
                c.now.usable[i] = 0
                index_move(c, &c.now, i)
            # Windows count for its whole time; what is planned does not.
            windows_at(c, h.r, start, limit)
            self._busy = True
            with nogil:
                got = cheapest(&h, ordered, entries, entries + c.n)
                if got:
                    for k in range(h.n):
                        if h.v[k].chosen:
                            out_one(&h, k)
                    got = place(c, &c.now, h.r, 0)
            found = None
            if got:
                found = (
                    [keys[k] for k in range(h.n) if h.v[k].chosen],
                    _tuple(Placement, (_shares(c.out, c.n_out), h.r.milli)),
                )
            all_back(&h)
            for i in out:
                c.now.usable[i] = 1
                index_move(c, &c.now, i)
            self.last_hunt = h.placed
        finally:
            self._busy = False
            free(h.v)
            free(h.allocs)
            free(last)
            free(h.at)
            free(h.on)
            free(entries)
        self._check()
        return found
