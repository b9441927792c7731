# Methods of Core. Why a request waits, node by node, and what other request would not.


cdef class _Surveys(_Decisions):
    cdef list _moment(self, object req, object now, object limit_s, object at, object without,
                      int64_t* when, int64_t* limit):
        """The arguments; the reservations that are left out of account, as (number, time)."""
        cdef Cluster* c = &self.c
        cdef int h
        self._ready()
        self._req(req)
        when[0] = _number(now, 0, <int64_t>1 << 60, "now")
        when[1] = _number(at, 0, <int64_t>1 << 60, "at")
        limit[0] = _number(limit_s, -1, <int64_t>1 << 60, "limit_s")
        if c.book.on and when[1] > when[0] and when[1] < c.book.now:
            raise ValueError(f"at {at} is before the last pass")
        keys = [_number(key, -FOREVER, FOREVER, "without") for key in without]
        aside = []
        for key in keys:
            h = head_of(c, key)
            if h >= 0:
                aside.append((h, c.heads[h].at))
                set_aside(c, h, c.heads[h].at, 0)
        return aside

    cdef int _moment_over(self, list aside) except -1:
        cdef int h
        cdef int64_t head_at
        for h, head_at in aside:
            set_aside(&self.c, h, head_at, 1)
        return self._check()

    def what_if(self, req, now=0, limit_s=-1, *, at=0, without=()):
        """A Placement for `at` (now, if that is not later), or None; nothing is allocated."""
        cdef Cluster* c = &self.c
        cdef int64_t when[2]
        cdef int64_t limit
        cdef int ok
        aside = self._moment(req, now, limit_s, at, without, when, &limit)
        ok = place_at(c, &c.reqs[req], when[0], when[1], limit)
        self._moment_over(aside)
        return _tuple(Placement, (_shares(c.out, c.n_out), c.reqs[req].milli)) if ok else None

    def earliest(self, req, now, limit_s=0, *, without=()):
        """The first time after `now` at which it fits beside the reservations; 0: none."""
        cdef Cluster* c = &self.c
        cdef int64_t when[2]
        cdef int64_t limit, found
        aside = self._moment(req, now, limit_s, 0, without, when, &limit)
        if limit <= 0:
            limit = YEAR
        windows_begin(c)
        if c.book.on:
            # What the pass found for the class holds beside the reservation that is left out.
            c.reqs[req].plan_pass = 0
            found = plan_start(c, &c.reqs[req], limit, 0)
            c.reqs[req].plan_pass = 0
        else:
            found = find_start(c, &c.reqs[req], when[0], limit)
        self._moment_over(aside)
        return found if found > 0 else 0

    def survey(self, req, now=0, limit_s=-1, *, at=0, without=()):
        """What each node lacks for a part of the request."""
        cdef Cluster* c = &self.c
        cdef int64_t when[2]
        cdef int64_t limit
        cdef Need need
        cdef char* lacks
        aside = self._moment(req, now, limit_s, at, without, when, &limit)
        lacks = <char*>malloc(<size_t>c.n * 5)
        if lacks != NULL:
            survey(c, &c.reqs[req], when[0], when[1], limit, <uint32_t*>lacks,
                   <uint8_t*>lacks + <size_t>c.n * 4)
        try:
            self._moment_over(aside)
            if lacks == NULL:
                raise MemoryError
            need_of(&c.reqs[req], &need)
            return Survey(
                (need.t, need.cpus, need.g),
                lacks[:<Py_ssize_t>c.n * 4],
                (lacks + <Py_ssize_t>c.n * 4)[:c.n],
            )
        finally:
            free(lacks)

    def ahead(self, key):
        """Rows before that of `key` in its partition that could start now, and the first of them
        that waits for resources."""
        cdef Cluster* c = &self.c
        cdef int32_t mine, slot
        cdef int64_t i, rows = 0, first = 0
        cdef int partition
        cdef uint8_t v
        self._enter()
        mine = self._job(key)
        partition = c.filters[c.reqs[c.q_req[mine]].filter].partition
        for i in range(c.n_sorted):
            slot = c.sorted[i].slot
            if not c.q_live[slot] or c.q_key[slot] != c.sorted[i].key:
                continue
            if slot == mine:
                return rows, first
            if c.filters[c.reqs[c.q_req[slot]].filter].partition != partition:
                continue
            v = c.q_verdict[slot]
            if v == V_HELD or v == V_BEGIN:
                continue
            rows += 1
            if first == 0 and (v == V_RESOURCES or v == V_PRIORITY or v == V_BEHIND):
                first = c.q_key[slot]
        return 0, 0
