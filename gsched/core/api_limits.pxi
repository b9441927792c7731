# Methods of Core. Limits: bins and chains.


cdef int64_t _what(object value) except -1:
    """One of COUNTED."""
    if value not in COUNTED.values():
        raise ValueError(f"what {value} is none of what is counted")
    return value

cdef class _Limits(_Plans):
    def set_bin(self, bin, left, *, fixed=False, jobs=None):
        """What is left of a limit; each start of a pass that draws on it takes some. fixed: starts
        take nothing (a bound for each job by itself). jobs: jobs of the bin on each node, an array
        of int32 ('i'), for a limit on nodes that counts each once. Numbered from 0 without gaps.
        Cost: constant; with jobs the nodes."""
        cdef Cluster* c = &self.c
        cdef int64_t b, n
        cdef const int32_t[::1] on
        cdef int k
        self._enter()
        b = _number(bin, 0, c.n_bins, "bin")
        n = _number(left, -LIMIT_MOST, LIMIT_MOST, "left")
        if grow(<void**>&c.bins, &c.bins_cap, b + 1, sizeof(Bin)):
            raise MemoryError
        if b == c.n_bins:
            memset(&c.bins[b], 0, sizeof(Bin))
            c.n_bins += 1
        c.bins[b].left = n
        c.bins[b].fixed = 1 if fixed else 0
        if jobs is None:
            free(c.bins[b].jobs)
            c.bins[b].jobs = NULL
            return
        on = jobs
        if on.shape[0] != c.n:
            raise ValueError(f"{on.shape[0]} counts for {c.n} nodes")
        if c.bins[b].jobs == NULL:
            c.bins[b].jobs = <int32_t*>malloc(<size_t>c.n * sizeof(int32_t))
            if c.bins[b].jobs == NULL:
                raise MemoryError
        for k in range(c.n):
            c.bins[b].jobs[k] = on[k]

    def bin_left(self, bin):
        """What is left of a limit, as of the last pass."""
        self._enter()
        return self.c.bins[_number(bin, 0, self.c.n_bins - 1, "bin")].left

    def set_chain(self, chain, items, *, floor=None, bill=(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)):
        """The bins that a job draws on, in the order in which they are told: (bin, what, amount,
        timed, factor, spare). what: one of COUNTED (of a node on the average: only with a fixed
        bin); amount: what it counts for by what it asks for; timed: times its seconds and the
        factor; spare: what such jobs may have beside what is left. floor: priority that it must
        have to get a reservation.
        bill: how BILLED is found for a place: 0 CPUs, 1 the sum, 2 the largest of what nodes have
        and the rest, 3 the largest of CPUs and memory and the rest; weights of a CPU, a MB, a node
        and a GPU; the sum and the largest of other GRES; the rest. Numbered from 0 without gaps.
        Cost: bins."""
        cdef Cluster* c = &self.c
        cdef Chain* h
        cdef Item* made = NULL
        cdef int64_t number, least
        cdef int n, k
        cdef double parts[7]
        self._enter()
        number = _number(chain, 0, c.n_chains, "chain")
        least = -FOREVER if floor is None else _number(floor, -FOREVER, FOREVER, "floor")
        mode = _number(bill[0], 0, 3, "bill")
        for k in range(7):
            parts[k] = bill[k + 1]
        items = list(items)
        n = <int>len(items)
        read = []
        for bin, what, amount, timed, factor, spare in items:
            read.append((
                _number(bin, 0, c.n_bins - 1, "bin"),
                _what(what),
                _number(amount, 0, LIMIT_MOST, "amount"),
                1 if timed else 0,
                float(factor),
                _number(spare, -LIMIT_MOST, LIMIT_MOST, "spare"),
            ))
        if grow(<void**>&c.chains, &c.chains_cap, number + 1, sizeof(Chain)):
            raise MemoryError
        made = <Item*>malloc(<size_t>(n + 1) * sizeof(Item))
        if made == NULL:
            raise MemoryError
        for k in range(n):
            made[k].bin = read[k][0]
            made[k].what = read[k][1]
            made[k].amount = read[k][2]
            made[k].timed = read[k][3]
            made[k].factor = read[k][4]
            made[k].spare = read[k][5]
        if number == c.n_chains:
            memset(&c.chains[number], 0, sizeof(Chain))
            c.n_chains += 1
        h = &c.chains[number]
        free(h.items)
        h.items = made
        h.n = n
        h.floor = least
        h.bill = <int>mode
        for k in range(4):
            h.weight[k] = parts[k]
        h.gres = parts[4]
        h.most = parts[5]
        h.rest = parts[6]

    def over_limit(self, wanted):
        """Whether jobs of these (chain, limit_s) would fit into their bins together by what they
        ask for: the number of the first bin that is too small; -1 they would. Nothing is changed.
        Cost: their bins."""
        cdef Cluster* c = &self.c
        cdef int64_t chain, seconds, amount
        cdef Chain* h
        cdef Item* t
        cdef int k
        self._enter()
        taken = {}
        for first, second in wanted:
            chain = _number(first, -1, c.n_chains - 1, "chain")
            seconds = _number(second, 0, <int64_t>1 << 60, "limit_s")
            if chain < 0:
                continue
            h = &c.chains[chain]
            for k in range(h.n):
                t = &h.items[k]
                if t.what == L_HOSTS:
                    continue
                amount = limit_times(t, t.amount, seconds)
                if not c.bins[t.bin].fixed:
                    taken[t.bin] = amount = min(taken.get(t.bin, 0) + amount, LIMIT_MOST)
                if amount > c.bins[t.bin].left + t.spare:
                    return t.bin
        return -1

    def limit_of(self, key):
        """The bin that is too small for a waiting job with the verdict LIMIT."""
        self._enter()
        return self.c.q_bin[self._job(key)]

    def give_limits(self, key, chain, limit_s):
        """An allocation that a pass has made is to be released as if it had never begun: its bins
        get back what it took."""
        cdef Cluster* c = &self.c
        cdef int64_t number, seconds
        cdef int32_t p
        cdef int n = 0
        self._enter()
        number = _number(chain, 0, c.n_chains - 1, "chain")
        seconds = _number(limit_s, 0, <int64_t>1 << 60, "limit_s")
        p = c.allocs[self._alloc(key)].first
        while p >= 0:
            c.out[n] = c.pieces[p].share
            n += 1
            p = c.pieces[p].next
        limit_take(c, <int32_t>number, seconds, c.out, n, -1)
