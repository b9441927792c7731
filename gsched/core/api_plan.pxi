# Methods of Core. A plan made on a copy, and what becomes of it.


cdef class _Plans(_Preempt):
    def copy(self):
        """A core that is in all this one is, for a plan in another thread: nothing is shared. It
        gives the same answers, but place() with a limit respects no reservations before its first
        pass. Cost: a memcpy of the arrays (some ms at 10,000 nodes and 100,000 jobs)."""
        cdef _Cluster other
        cdef int bad
        self._ready()
        other = type(self)(1)
        cluster_free(&other.c)
        memset(&other.c, 0, sizeof(Cluster))
        with nogil:
            bad = cluster_copy(&other.c, &self.c)
        if bad:
            raise MemoryError
        other._classes = dict(self._classes)
        other._layouts = dict(self._layouts)
        other._maps = dict(self._maps)
        other._kinds = dict(self._kinds)
        other._filters = dict(self._filters)
        other._requests = dict(self._requests)
        other._request_keys = list(self._request_keys)
        other._filter_keys = list(self._filter_keys)
        other._free_requests = list(self._free_requests)
        other._free_filters = list(self._free_filters)
        return other

    def adopt_plan(self, plan):
        """Take over the reservations and estimates of the last pass of `plan`, a copy() of this
        core: of all jobs that still wait as they did. Their own ones are forgotten. Whether each
        still fits is found out by the next pass with keep=STAND, which gives others to those that
        do not. Jobs that the plan started are reserved for from its time on. How many reservations
        there are. Cost: jobs (some ns each) + shares."""
        cdef _Cluster other = plan
        cdef int bad
        self._ready()
        if other is self or other.c.n != self.c.n:
            raise ValueError("the plan is not one of a copy of this core")
        other._enter()
        with nogil:
            bad = adopt_plan(&self.c, &other.c)
        if bad:
            raise MemoryError
        return self.c.n_heads

    def drop_plan(self):
        """Forget all reservations and estimates."""
        cdef int32_t k
        self._enter()
        clear_plan(&self.c)
        self.c.book.on = 0
        for k in range(self.c.q_used):
            self.c.q_at[k] = 0

    def replanned(self):
        """(reservations that the last pass had to make anew, whether it found so many in need of
        one that it started nothing more). For keep=STAND."""
        self._enter()
        return self.c.book.replans, bool(self.c.book.closed)

    def reservation(self, key):
        """The Reservation of a waiting job; None without one. Cost: reservations."""
        cdef Cluster* c = &self.c
        cdef int64_t wanted = _number(key, -FOREVER, FOREVER, "key")
        cdef int k
        self._enter()
        for k in range(c.n_heads):
            if c.heads[k].key == wanted:
                return self._reservation(k)
        return None

    cdef object _reservation(self, int k):
        cdef Head* h = &self.c.heads[k]
        return _tuple(Reservation, (
            h.key, h.at, h.until,
            _tuple(Placement, (
                _shares(self.c.planned + h.first, h.n),
                self.c.planned[h.first].milli if h.n else 0,
            )),
        ))

    def start_estimate(self, key):
        """estimates() of one waiting job. Cost: constant."""
        self._enter()
        return self.c.q_at[self._job(key)]

    def order_estimates(self):
        """As estimates(), but the `order` of each job in place of its key, and only of those with
        an estimate and no reservation. Cost: jobs."""
        cdef Cluster* c = &self.c
        cdef int64_t* found
        cdef int64_t n = 0, i
        cdef int32_t slot
        cdef int next_head = 0
        self._enter()
        found = <int64_t*>malloc(<size_t>c.n_sorted * 16 + 1)
        if found == NULL:
            raise MemoryError
        with nogil:
            for i in range(c.n_sorted):
                slot = c.sorted[i].slot
                if not c.q_live[slot] or c.q_key[slot] != c.sorted[i].key:
                    continue
                if next_head < c.n_heads and c.heads[next_head].key == c.sorted[i].key:
                    next_head += 1
                    continue
                if c.q_at[slot]:
                    found[n] = c.q_order[slot]
                    found[c.n_sorted + n] = c.q_at[slot]
                    n += 1
        try:
            return (<char*>found)[:n * 8], (<char*>(found + c.n_sorted))[:n * 8]
        finally:
            free(found)
