# Methods of Core. Link classes and nodes.


cdef class _Nodes(_Cluster):
    def define_class(self, links, numa):
        """The class of nodes with this link matrix (NVLinks between each two GPUs) and these NUMA
        domains; the same number for the same content. Cost: 2^GPUs up to 16 GPUs, at first."""
        cdef int n, i, j
        cdef int32_t flat[MAX_GPUS * MAX_GPUS]
        cdef int32_t domains[MAX_GPUS]
        self._enter()
        rows = tuple([tuple(row) for row in links])
        places = tuple(numa)
        if len(rows) > MAX_GPUS:
            raise ValueError(f"{len(rows)} GPUs in a node: more than {MAX_GPUS}")
        n = <int>len(rows)
        if len(places) != n:
            raise ValueError(f"{len(places)} NUMA domains for {n} GPUs")
        for i in range(n):
            if len(rows[i]) != n:
                raise ValueError(f"row {i} of the link matrix has {len(rows[i])} columns, not {n}")
            domains[i] = <int32_t>_number(places[i], -1, 1 << 30, "NUMA domain")
            for j in range(n):
                flat[i * n + j] = <int32_t>_number(rows[i][j], 0, MAX_LINKS, "link count")
        for i in range(n):
            for j in range(i):
                if flat[i * n + j] != flat[j * n + i]:
                    raise ValueError(
                        f"links {i}-{j} are {flat[i * n + j]} one way, {flat[j * n + i]} the other"
                    )
        key = (
            tuple([flat[i * n + j] for i in range(n) for j in range(n) if i != j]),
            tuple([domains[i] for i in range(n)]),
        )
        known = self._classes.get(key)
        if known is not None:
            return known
        if self.c.n_links >= MAX_CLASSES:
            raise ValueError(f"more than {MAX_CLASSES} different link matrices")
        if links_init(&self.c.links[self.c.n_links], n, flat, domains):
            links_free(&self.c.links[self.c.n_links])
            raise MemoryError
        self.c.n_links += 1
        self._classes[key] = self.c.n_links - 1
        return self.c.n_links - 1

    cdef Links* _links(self, object cls) except NULL:
        return &self.c.links[_number(cls, 0, self.c.n_links - 1, "link class")]

    def islands(self, cls):
        """Bitmaps of the GPUs joined by NVLink, in order of their first GPU."""
        cdef Links* L = self._links(cls)
        cdef int i
        return tuple([L.island[i] for i in range(L.n_islands)])

    def best_gpus(self, cls, free, count, *, one_island=False):
        """The best `count` GPUs of a free bitmap: most links inside, then most links left among the
        rest, then the smallest bitmap. 0 if there are not so many (on one island, if asked).
        Cost: a look-up up to 16 GPUs (2^free at the first time), count^2 x free above."""
        cdef Links* L = self._links(cls)
        cdef uint64_t s = _mask(free, "free GPUs")
        cdef int k = <int>_number(count, 0, MAX_GPUS, "number of GPUs")
        self._enter()
        if s & ~low_bits(L.n):
            raise ValueError(f"free GPUs {free:#x} are not all of a node of {L.n}")
        if gs_pop(s) < k:
            return 0
        return best_on_island(L, s, k) if one_island else best_gpus(L, s, k)

    cdef int _layout(self, object gpu_type_masks, int n_gpus) except -1:
        cdef uint64_t seen = 0, m
        cdef int t
        found = {}
        for kind, mask in gpu_type_masks:
            t = <int>_number(kind, 0, MAX_TYPES - 1, "GPU type")
            m = _mask(mask, "GPU bitmap")
            if m & ~low_bits(n_gpus):
                raise ValueError(f"GPU bitmap {mask:#x} has bits beyond the {n_gpus} of its class")
            if m & seen:
                raise ValueError(f"GPU bitmap {mask:#x} gives GPUs a second type")
            seen |= m
            if m:
                found[t] = found.get(t, 0) | m
        key = tuple(sorted(found.items()))
        known = self._layouts.get(key)
        if known is not None:
            return known
        t = self.c.n_layouts
        if t >= MAX_LAYOUTS:
            raise ValueError(f"more than {MAX_LAYOUTS} different ways of GPU types in a node")
        bigger = <uint64_t*>realloc(
            self.c.layouts, (<size_t>t + 1) * MAX_TYPES * sizeof(uint64_t)
        )
        if bigger == NULL:
            raise MemoryError
        self.c.layouts = bigger
        memset(bigger + <size_t>t * MAX_TYPES, 0, MAX_TYPES * sizeof(uint64_t))
        for kind, mask in key:
            bigger[<size_t>t * MAX_TYPES + <size_t>kind] = <uint64_t>mask
        self.c.mixed[t] = 1 if len(key) > 1 else 0
        self.c.n_layouts += 1
        self._layouts[key] = t
        return t

    cdef int _pieces(self, object gpu_parts, uint16_t* out) except -1:
        """The parts of a node's GPUs as they are kept; room for them at the first that is not in
        thousandths."""
        cdef size_t k, places = <size_t>self.c.n * MAX_GPUS
        cdef int kind, n, g
        for k in range(MAX_GPUS):
            out[k] = WHOLE
        if gpu_parts is None:
            return 0
        rows = [(kind, number) for kind, number in gpu_parts]
        if len(rows) > MAX_GPUS:
            raise ValueError(f"parts of {len(rows)} GPUs in a node: more than {MAX_GPUS}")
        for g in range(<int>len(rows)):
            kind = <int>_number(rows[g][0], 0, KINDS - 1, "kind of GPU parts")
            n = <int>_number(rows[g][1], 0, MAX_PARTS, "number of GPU parts")
            out[g] = <uint16_t>(kind << KIND_AT | n)
        if self.c.pieces_of == NULL:
            self.c.pieces_of = <uint16_t*>malloc(places * sizeof(uint16_t))
            if self.c.pieces_of == NULL:
                raise MemoryError
            for k in range(places):
                self.c.pieces_of[k] = WHOLE
        return 0

    cdef int _map(self, object domains, object near) except -1:
        """The number of the way in which cores and GPUs of a node lie."""
        cdef Cluster* c = &self.c
        cdef DomMap* m
        cdef DomMap* bigger
        cdef int d, g
        rows = tuple([
            (_number(socket, 0, MAX_DOMS - 1, "socket"), _number(cores, 0, 32767, "cores"))
            for socket, cores in domains
        ])
        if len(rows) < 2:
            return 0
        if len(rows) > MAX_DOMS:
            raise ValueError(f"{len(rows)} domains of cores in a node: more than {MAX_DOMS}")
        masks = tuple([_number(mask, 0, (1 << len(rows)) - 1, "domains near a GPU")
                       for mask in near])
        if len(masks) > MAX_GPUS:
            raise ValueError(f"cores near {len(masks)} GPUs in a node: more than {MAX_GPUS}")
        known = self._maps.get((rows, masks))
        if known is not None:
            return known
        if c.n_maps >= MAX_MAPS:
            raise ValueError(f"more than {MAX_MAPS} ways in which cores lie in a node")
        if c.dom_used == NULL:
            c.dom_used = <int16_t*>calloc(<size_t>c.n * MAX_DOMS, sizeof(int16_t))
            if c.dom_used == NULL:
                raise MemoryError
        bigger = <DomMap*>realloc(c.maps, (<size_t>c.n_maps + 1) * sizeof(DomMap))
        if bigger == NULL:
            raise MemoryError
        c.maps = bigger
        m = &c.maps[c.n_maps]
        memset(m, 0, sizeof(DomMap))
        m.n = <int>len(rows)
        m.n_sockets = max(socket for socket, _ in rows) + 1
        m.every = (<uint32_t>1 << m.n) - 1
        for d in range(m.n):
            m.of_socket[rows[d][0]] |= <uint32_t>1 << d
            m.cores[d] = rows[d][1]
        for g in range(MAX_GPUS):
            m.near[g] = masks[g] if g < <int>len(masks) and masks[g] else m.every
        self._maps[rows, masks] = c.n_maps
        c.n_maps += 1
        return c.n_maps - 1

    cdef int _counts(self, object extra, int32_t* row) except -1:
        """Counts by kind as a row; whether there are any. Room for such rows, at the first one."""
        cdef int kind, more = 0
        memset(row, 0, EXTRAS * sizeof(int32_t))
        for number, count in extra:
            kind = <int>_number(number, 0, EXTRAS - 1, "kind of a counted resource")
            row[kind] = <int32_t>_number(count, 0, MAX_COUNT, "count of a resource")
            more = more or row[kind] > 0
        if more and extra_init(&self.c):
            raise MemoryError
        return more

    def set_sharing(self, partition, jobs):
        """Up to so many jobs may hold a core in a partition (1: only one), of those that ask for it
        (see request()). Said once, before its first one."""
        cdef int bit
        self._enter()
        bit = <int>_number(partition, 0, MAX_BITS - 1, "partition")
        jobs = _number(jobs, 1, MAX_COUNT, "jobs on a core")
        self.c.lot_most[bit + 1] = min(jobs, MOST_JOBS) if jobs > 1 else 0

    cdef int _lot(self, object partition) except -1:
        """The number of a lot; 0 for -1."""
        cdef int lot = <int>_number(partition, -1, MAX_BITS - 1, "lot") + 1
        if lot and not self.c.lot_most[lot]:
            raise ValueError(f"no cores are shared in partition {partition}")
        return lot

    cdef uint32_t _caps(self, object kinds) except? 0xffffffff:
        """Kinds of counted resources as bits."""
        cdef uint32_t bits = 0
        for kind in kinds:
            bits |= <uint32_t>1 << _number(kind, 0, EXTRAS - 1, "kind of a cap")
        if bits and extra_init(&self.c):
            raise MemoryError
        return bits

    cdef int _keep(self, int i, object cpus, object mem) except -1:
        """What node i keeps for each idle GPU; whether that is another than before."""
        cdef Cluster* c = &self.c
        cdef int32_t n = <int32_t>_number(cpus, 0, MAX_COUNT, "CPUs kept for a GPU")
        cdef int64_t mb = _number(mem, 0, <int64_t>1 << 50, "memory kept for a GPU")
        cdef int changed
        if c.keep_cpus == NULL:
            if not n and not mb:
                return 0
            c.keep_cpus = <int32_t*>calloc(c.n, sizeof(int32_t))
            c.keep_mem = <int64_t*>calloc(c.n, sizeof(int64_t))
            if c.keep_cpus == NULL or c.keep_mem == NULL:
                free(c.keep_cpus)
                c.keep_cpus = NULL
                raise MemoryError
        changed = c.keep_cpus[i] != n or c.keep_mem[i] != mb
        c.keep_cpus[i] = n
        c.keep_mem[i] = mb
        return changed

    def set_node(self, node, *, cls=0, cpus, mem_mb, gpu_type_masks=(), gpu_ok_mask=None,
                 usable=True, partitions=0, features=0, weight=1, threads=1, gpu_parts=None,
                 sockets=1, cores_per_socket=0, domains=(), near=(), extra=(), keep_cpus=0,
                 keep_mem_mb=0):
        """Describe a node; what runs on it stays allocated, also beyond its new size.

        cls: its link class (0: no GPUs); gpu_type_masks: (type, bitmap) pairs; gpu_ok_mask: the
        healthy GPUs (all by default); partitions, features: bitmaps of up to 256 bits; weight:
        lower is preferred; threads: CPUs per core, allocated together; gpu_parts: (kind, number) of
        the parts of each GPU; sockets, cores_per_socket (0: from the others): what requests may
        demand at least; domains: (socket, cores) each; near: bitmaps of domains near each GPU;
        keep_cpus, keep_mem_mb: what requests that leave GPUs alone leave for each idle GPU. Cost:
        constant, but a new weight orders all nodes anew at the next decision.
        """
        cdef Cluster* c = &self.c
        cdef int i, layout, k, n_cpus, n_threads, n_sockets, n_cores, changed, dmap
        cdef int64_t mem, w
        cdef uint64_t every = 0, ok, m
        cdef uint64_t parts[BIT_WORDS]
        cdef uint64_t feats[BIT_WORDS]
        cdef uint16_t pieces[MAX_GPUS]
        cdef int32_t row[EXTRAS]
        self._enter()
        i = self._node(node)
        self._counts(extra, row)
        self._pieces(gpu_parts, pieces)
        k = <int>_number(cls, 0, c.n_links - 1, "link class")
        n_cpus = <int>_number(cpus, 0, 1000000, "CPUs")
        n_threads = <int>_number(threads, 1, 1024, "threads per core")
        n_sockets = <int>_number(sockets, 1, 1024, "sockets")
        n_cores = <int>_number(cores_per_socket, 0, 1000000, "cores per socket")
        if n_cores == 0:
            n_cores = n_cpus // n_threads // n_sockets
        dmap = self._map(domains, near)
        mem = _number(mem_mb, 0, <int64_t>1 << 50, "memory")
        w = _number(weight, 0, <int64_t>1 << 62, "weight")
        pairs = [(kind, mask) for kind, mask in gpu_type_masks]
        layout = self._layout(pairs, c.links[k].n)
        for _, mask in pairs:
            every |= <uint64_t>mask
        ok = every if gpu_ok_mask is None else _mask(gpu_ok_mask, "healthy GPUs")
        _words(partitions, parts, "partitions")
        _words(features, feats, "features")
        changed = (
            c.cls[i] != k or c.layout[i] != layout or c.cpus[i] != n_cpus or c.mem[i] != mem
            or c.threads[i] != n_threads or c.all[i] != every
            or c.dmap[i] != dmap or c.sockets[i] != n_sockets or c.per_socket[i] != n_cores
        )
        for k in range(BIT_WORDS):
            changed = changed or c.parts[i * BIT_WORDS + k] != parts[k]
            changed = changed or c.feats[i * BIT_WORDS + k] != feats[k]
        if c.pieces_of != NULL:
            if memcmp(c.pieces_of + <size_t>i * MAX_GPUS, pieces, sizeof(pieces)):
                changed = 1
                c.shrunk = c.shrunk or c.now.frac[i] != 0
            memcpy(c.pieces_of + <size_t>i * MAX_GPUS, pieces, sizeof(pieces))
        if c.extra != NULL and memcmp(extra_row(c.extra, i), row, sizeof(row)):
            changed = 1
            row_add(extra_row(c.now.extra, i), extra_row(c.extra, i), -1)
            row_add(extra_row(c.now.extra, i), row, 1)
            memcpy(extra_row(c.extra, i), row, sizeof(row))
        if self._keep(i, keep_cpus, keep_mem_mb):
            changed = 1
        index_drop(c, &c.now, i)
        c.now.cpus[i] += n_cpus - c.cpus[i]
        # Cores that are shared are so many CPUs each.
        c.now.cpus[i] += <int32_t>(lots_held(c, i) * (c.threads[i] - n_threads))
        c.now.mem[i] += mem - c.mem[i]
        c.cls[i] = <int32_t>cls
        c.layout[i] = layout
        c.cpus[i] = n_cpus
        c.threads[i] = n_threads
        c.dmap[i] = dmap
        c.sockets[i] = n_sockets
        c.per_socket[i] = n_cores
        c.mem[i] = mem
        c.all[i] = every
        c.ok[i] = ok
        memcpy(c.parts + <size_t>i * BIT_WORDS, parts, sizeof(parts))
        memcpy(c.feats + <size_t>i * BIT_WORDS, feats, sizeof(feats))
        if c.weight[i] != w:
            c.weight[i] = w
            c.order_dirty = 1
        c.now.gpus[i] = every & ok & ~c.used[i]
        c.now.usable[i] = 1 if usable else 0
        if changed:
            c.version += 1
            # Its line of time is that of the node it was, with GPUs that may be no more.
            c.book.on = 0
            what = (
                cls, layout, n_cpus, n_threads, dmap, n_sockets, n_cores, mem, every,
                (<char*>parts)[:sizeof(parts)], (<char*>feats)[:sizeof(feats)],
                (<char*>pieces)[:sizeof(pieces)], keep_cpus, keep_mem_mb,
            )
            if len(self._kinds) < NODE_KINDS:
                # 0 are nodes that were never described.
                c.kind[i] = self._kinds.setdefault(what, len(self._kinds) + 1)
            else:
                c.kind[i] = self._kinds.get(what, -1)
        c.avail_version += 1
        index_move(c, &c.now, i)
        self._check()

    def set_usable(self, node, usable):
        """Whether new work may go to a node (not down, drained ...). Cost: constant."""
        cdef int i
        self._enter()
        i = self._node(node)
        self.c.now.usable[i] = 1 if usable else 0
        self.c.avail_version += 1
        index_move(&self.c, &self.c.now, i)
        self._check()

    def set_gpu_ok(self, node, mask):
        """Its healthy GPUs: others get no new work, allocations stay. Cost: constant."""
        cdef int i
        cdef uint64_t ok
        self._enter()
        i = self._node(node)
        ok = _mask(mask, "healthy GPUs")
        self.c.ok[i] = ok
        self.c.now.gpus[i] = self.c.all[i] & ok & ~self.c.used[i]
        self.c.avail_version += 1
        index_move(&self.c, &self.c.now, i)
        self._check()

    def node_free(self, node):
        """(free CPUs, free MB, bitmap of used GPUs) of a node. Cost: constant."""
        cdef int i
        self._enter()
        i = self._node(node)
        return self.c.now.cpus[i], self.c.now.mem[i], self.c.used[i]

    def node(self, node):
        """What a node has left, as NodeState."""
        cdef int i
        cdef int32_t idle[MAX_GPUS]
        self._enter()
        i = self._node(node)
        return NodeState(
            self.c.now.cpus[i], self.c.now.mem[i], self.c.now.gpus[i], self.c.used[i],
            self.c.now.jobs[i], bool(self.c.now.usable[i]), idle_of(&self.c, &self.c.now, i, idle),
        )
