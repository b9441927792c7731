# Methods of Core. Decisions on one request.


cdef class _Decisions(_Allocations):
    cdef object _refusal(self, Req* r, int64_t end, int never):
        cdef int64_t why[WHYS]
        cdef int suited, k, able
        suited = explain(&self.c, r, end, why, &able)
        reasons = [Reason(_WHY[k][0], _WHY[k][1], why[k]) for k in range(WHYS) if why[k]]
        if never:
            empty_state(&self.c, 1)
            self.c.w_on = W_PLACES if self.c.n_resvs else W_OFF
        k = apart(&self.c, r, &self.c.then if never else &self.c.now, 0 if never else end)
        if k:
            reasons.append(Reason(_TOGETHER[k], bool(never), able if never else suited))
        return Refusal(bool(never), max(r.min_nodes, r.n_must), suited, tuple(reasons))

    def can_ever(self, req):
        """None if the cluster as configured, empty and with every node and GPU up, can hold it;
        else the Refusal. Cost: nodes, once per change of the configuration."""
        cdef Req* r
        cdef int ok
        self._ready()
        r = self._req(req)
        ok = ever(&self.c, r)
        self._check()
        self.c.w_on = W_PLACES if self.c.n_resvs else W_OFF
        return None if ok else self._refusal(r, 0, 1)

    def possible(self, req):
        """Whether it would fit if no job ran: False means that nodes or GPUs out of use are what
        is missing. Cost: nodes, once per change."""
        cdef Req* r
        cdef int ok
        self._ready()
        r = self._req(req)
        ok = possible(&self.c, r)
        self._check()
        return bool(ok)

    def place(self, req, now=0, limit_s=-1):
        """A Placement for now, or the Refusal with its counted reasons; nothing is allocated.

        limit_s -1: only what is free counts; else (0: no limit) the reservations of the last pass
        are respected too. Cost: candidates; a refusal costs nodes, and the first one of a class
        after a change of the configuration sorts them.
        """
        cdef Req* r
        cdef int64_t start, limit, end
        cdef int ok
        self._ready()
        r = self._req(req)
        start = _number(now, 0, <int64_t>1 << 60, "now")
        limit = _number(limit_s, -1, <int64_t>1 << 60, "limit_s")
        end = windows_at(&self.c, r, start, limit)
        ok = place(&self.c, &self.c.now, r, end)
        self._check()
        if ok:
            return _tuple(Placement, (_shares(self.c.out, self.c.n_out), r.milli))
        ok = ever(&self.c, r)
        self._check()
        return self._refusal(r, end, not ok)

    def repeat_place(self, req, repeat):
        """Place a request `repeat` times without the GIL and forget the answers: for benchmarks of
        the core alone. How often it fitted."""
        cdef Req* r
        cdef int64_t n, k, fitted = 0
        self._ready()
        r = self._req(req)
        n = _number(repeat, 1, MAX_COUNT, "repeat")
        self.c.w_on = W_PLACES if self.c.n_resvs else W_OFF
        self._busy = True
        with nogil:
            for k in range(n):
                fitted += place(&self.c, &self.c.now, r, 0)
        self._busy = False
        self._check()
        return fitted
