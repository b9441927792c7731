# Methods of Core. Why a request waits, node by node, and what other request would not.


cdef class _Surveys(_Decisions):
    cdef int _moment(self, object req, object now, object limit_s, object at, object without,
                     int64_t* when, int64_t* limit, int* head, int64_t* head_at) except -1:
        """The arguments, and the reservation that is left out of account."""
        cdef Cluster* c = &self.c
        self._ready()
        self._req(req)
        when[0] = _number(now, 0, <int64_t>1 << 60, "now")
        when[1] = _number(at, 0, <int64_t>1 << 60, "at")
        limit[0] = _number(limit_s, -1, <int64_t>1 << 60, "limit_s")
        if c.book.on and when[1] > when[0] and when[1] < c.book.now:
            raise ValueError(f"at {at} is before the last pass")
        head[0] = -1 if without is None else head_of(
            c, _number(without, -FOREVER, FOREVER, "without"))
        if head[0] >= 0:
            head_at[0] = c.heads[head[0]].at
            set_aside(c, head[0], head_at[0], 0)
        return 0

    def what_if(self, req, now=0, limit_s=-1, *, at=0, without=None):
        """A Placement for `at` (now, if that is not later), or None; nothing is allocated."""
        cdef Cluster* c = &self.c
        cdef int64_t when[2]
        cdef int64_t limit, head_at
        cdef int head, ok
        self._moment(req, now, limit_s, at, without, when, &limit, &head, &head_at)
        ok = place_at(c, &c.reqs[req], when[0], when[1], limit)
        if head >= 0:
            set_aside(c, head, head_at, 1)
        self._check()
        return _tuple(Placement, (_shares(c.out, c.n_out), c.reqs[req].milli)) if ok else None

    def earliest(self, req, now, limit_s=0, *, without=None):
        """The first time after `now` at which it fits beside the reservations; 0: none."""
        cdef Cluster* c = &self.c
        cdef int64_t when[2]
        cdef int64_t limit, head_at, found
        cdef int head
        self._moment(req, now, limit_s, 0, without, when, &limit, &head, &head_at)
        if limit <= 0:
            limit = YEAR
        if c.book.on:
            # What the pass found for the class holds beside the reservation that is left out.
            c.reqs[req].plan_pass = 0
            found = plan_start(c, &c.reqs[req], limit)
            c.reqs[req].plan_pass = 0
        else:
            found = find_start(c, &c.reqs[req], when[0], limit)
        if head >= 0:
            set_aside(c, head, head_at, 1)
        self._check()
        return found if found > 0 else 0

    def survey(self, req, now=0, limit_s=-1, *, at=0, without=None):
        """What each node lacks for a part of the request."""
        cdef Cluster* c = &self.c
        cdef int64_t when[2]
        cdef int64_t limit, head_at
        cdef int head
        cdef Need need
        cdef char* lacks
        self._moment(req, now, limit_s, at, without, when, &limit, &head, &head_at)
        lacks = <char*>malloc(<size_t>c.n * 5)
        if lacks != NULL:
            survey(c, &c.reqs[req], when[0], when[1], limit, <uint32_t*>lacks,
                   <uint8_t*>lacks + <size_t>c.n * 4)
        if head >= 0:
            set_aside(c, head, head_at, 1)
        if lacks == NULL:
            raise MemoryError
        try:
            self._check()
            need_of(&c.reqs[req], &need)
            return Survey(
                (need.t, need.cpus, need.g),
                lacks[:<Py_ssize_t>c.n * 4],
                (lacks + <Py_ssize_t>c.n * 4)[:c.n],
            )
        finally:
            free(lacks)
