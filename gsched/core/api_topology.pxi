# Methods of Core. The network.


cdef class _Topology(_Rarities):
    cdef int _scratch(self) except -1:
        """Room for choosing gangs."""
        cdef Topo* t = &self.c.topo
        cdef size_t n = self.c.n
        if t.pick == NULL:
            t.pick = <int32_t*>malloc(n * sizeof(int32_t))
        if t.sort == NULL:
            t.sort = <Entry*>malloc((2 * n + 4 * <size_t>t.n_units) * sizeof(Entry))
        if t.pick == NULL or t.sort == NULL:
            raise MemoryError
        return 0

    def set_topology(self, leaves, parents, *, sizes=(), optional=False):
        """Where nodes are in the network; () and () for nowhere.

        leaves: for each node its leaf, -1 none; parents: for each unit the one above, -1 none,
        leaves first, then level by level. sizes: units are blocks, each level for gangs of so many
        nodes at most (0: any number): such a gang lies in one. optional: only requests with
        switches or a segment go by it. Cost: nodes + units.
        """
        cdef Cluster* c = &self.c
        cdef Topo t
        cdef int32_t* pick
        cdef Entry* sort
        cdef int i, u, k, units, at
        cdef size_t m
        self._enter()
        below = [_number(leaf, -1, MAX_UNITS, "leaf") for leaf in leaves]
        above = [_number(unit, -1, MAX_UNITS, "unit above") for unit in parents]
        bounds = [_number(size, 0, MAX_NODES, "block size") for size in sizes]
        units = <int>len(above)
        if units and len(below) != c.n:
            raise ValueError(f"leaves of {len(below)} nodes, but there are {c.n}")
        if units > MAX_UNITS:
            raise ValueError(f"{units} switches or blocks: more than {MAX_UNITS}")
        level = [0] * units
        for unit, parent in enumerate(above):
            if parent >= units or -1 < parent <= unit:
                raise ValueError(f"unit {unit} is below {parent}: those above come later")
            if parent >= 0:
                level[parent] = max(level[parent], level[unit] + 1)
        if level != sorted(level):
            raise ValueError("units are not in order of level")
        if units and max(level) >= MAX_LEVELS:
            raise ValueError(f"{max(level) + 1} levels of switches: more than {MAX_LEVELS}")
        if any([leaf >= level.count(0) for leaf in below]):
            raise ValueError(f"leaf {max(below)} is not one of the {level.count(0)}")
        # Requests for nodes next to each other need their scratch without a network too.
        pick = c.topo.pick
        sort = c.topo.sort
        c.topo.pick = NULL
        c.topo.sort = NULL
        topo_free(&c.topo)
        c.version += 1
        c.avail_version += 1
        c.then_is = 0
        if units == 0:
            c.topo.pick = pick
            c.topo.sort = sort
            return
        free(pick)
        free(sort)
        memset(&t, 0, sizeof(Topo))
        m = <size_t>units + 1
        t.n_units = units
        t.n_leaves = <int>level.count(0)
        t.n_levels = <int>max(level) + 1
        t.optional = 1 if optional else 0
        t.blocks = 1 if bounds else 0
        for k, size in enumerate(bounds[:t.n_levels]):
            t.size[k] = size
        t.leaf = <int32_t*>calloc(c.n, sizeof(int32_t))
        t.up = <int32_t*>calloc(m, sizeof(int32_t))
        t.level = <int32_t*>calloc(m, sizeof(int32_t))
        t.low = <int32_t*>calloc(m, sizeof(int32_t))
        t.high = <int32_t*>calloc(m, sizeof(int32_t))
        t.first = <int32_t*>calloc(m, sizeof(int32_t))
        t.members = <int32_t*>calloc(c.n, sizeof(int32_t))
        t.rank_low = <int32_t*>calloc(m, sizeof(int32_t))
        t.rank_end = <int32_t*>calloc(m, sizeof(int32_t))
        t.ranked = -1
        t.loaded = <int64_t*>calloc(m, sizeof(int64_t))
        t.start = <int32_t*>calloc(m, sizeof(int32_t))
        t.count = <int32_t*>calloc(m, sizeof(int32_t))
        t.held = <int32_t*>calloc(m, sizeof(int32_t))
        t.own = <int32_t*>calloc(m, sizeof(int32_t))
        t.used = <int64_t*>calloc(m, sizeof(int64_t))
        t.head = <int32_t*>calloc(<size_t>c.n + 1, sizeof(int32_t))
        t.next = <int32_t*>calloc(m, sizeof(int32_t))
        t.chosen = <int32_t*>calloc(m, sizeof(int32_t))
        t.part = <int32_t*>calloc(m, sizeof(int32_t))
        c.topo = t
        spans = [[unit] if unit < t.n_leaves else [] for unit in range(units)]
        for unit in range(units):
            if above[unit] >= 0:
                spans[above[unit]] += spans[unit]
        c.topo.below = <int32_t*>calloc(sum([len(s) for s in spans]) + 1, sizeof(int32_t))
        free(c.now.room)
        free(c.then.room)
        c.now.room = <int32_t*>calloc(GRID * m, sizeof(int32_t))
        c.then.room = <int32_t*>calloc(GRID * m, sizeof(int32_t))
        if (t.leaf == NULL or t.up == NULL or t.level == NULL or t.low == NULL or t.high == NULL
                or t.first == NULL or t.members == NULL or t.loaded == NULL or t.start == NULL
                or t.rank_low == NULL or t.rank_end == NULL
                or t.count == NULL or t.held == NULL or t.own == NULL or t.used == NULL
                or t.head == NULL or t.next == NULL or t.chosen == NULL or t.part == NULL
                or c.topo.below == NULL or c.now.room == NULL or c.then.room == NULL):
            topo_free(&c.topo)
            raise MemoryError
        at = 0
        for u in range(units):
            t.up[u] = above[u]
            t.level[u] = level[u]
            t.low[u] = at
            for leaf in sorted(spans[u]):
                c.topo.below[at] = leaf
                at += 1
            t.high[u] = at
        for k in range(t.n_levels):
            c.topo.lev[k] = <int32_t>level.index(k)
        c.topo.lev[t.n_levels] = units
        nodes = [[] for _ in range(t.n_leaves)]
        for i in range(c.n):
            t.leaf[i] = below[i]
            if below[i] >= 0:
                nodes[below[i]].append(i)
        at = 0
        for u in range(t.n_leaves):
            t.first[u] = at
            for i in nodes[u]:
                t.members[at] = i
                at += 1
        t.first[t.n_leaves] = at
        c.topo.widest = <int>max([len(one) for one in nodes])
        self._scratch()
        c.topo.on = 1
        topo_build(c, &c.now)
        topo_build(c, &c.then)

    cdef int _check_topology(self) except -1:
        cdef Cluster* c = &self.c
        cdef Topo* t = &c.topo
        cdef int i, k, u
        if not t.on:
            return 0
        room = {}
        for i in range(c.n):
            u = t.leaf[i]
            while u >= 0 and c.now.usable[i]:
                for k in range(gs_pop(c.now.gpus[i]) + 1):
                    room[k, u] = room.get((k, u), 0) + 1
                u = t.up[u]
        for k in range(GRID):
            for u in range(t.n_units):
                found = c.now.room[<size_t>k * t.n_units + u]
                assert found == room.get((k, u), 0), f"unit {u} has {found} nodes with {k} GPUs"
        for u in range(t.n_leaves):
            assert t.held[u] == 0, f"leaf {u} is still held by a request"
        return 0
