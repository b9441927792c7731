# Methods of Core. Filters of nodes, and the demands that few requests have.


cdef class _Rarities(_Nodes):
    cdef int _filter(self, int partition, tuple alternatives, tuple exclude,
                     tuple layout=(0, 0, 0)) except -1:
        """The filter with this content, one reference more."""
        cdef Filter* f
        cdef int i, k
        key = (partition, alternatives, exclude, layout)
        known = self._filters.get(key)
        if known is not None:
            i = known
            self.c.filters[i].refs += 1
            return i
        if self._free_filters:
            i = self._free_filters[-1]
        else:
            i = self.c.n_filters
            if grow(<void**>&self.c.filters, &self.c.filters_cap, i + 1, sizeof(Filter)):
                raise MemoryError
        f = &self.c.filters[i]
        memset(f, 0, sizeof(Filter))
        f.partition = partition
        f.sockets, f.cores, f.threads = layout
        f.n_alts = <int>len(alternatives)
        f.n_exclude = <int>len(exclude)
        f.alts = <uint64_t*>calloc(<size_t>f.n_alts * BIT_WORDS + 1, sizeof(uint64_t))
        f.exclude = <int32_t*>calloc(<size_t>f.n_exclude + 1, sizeof(int32_t))
        f.bits = <uint64_t*>calloc(<size_t>self.c.words, sizeof(uint64_t))
        if f.alts == NULL or f.exclude == NULL or f.bits == NULL:
            free(f.alts)
            free(f.exclude)
            free(f.bits)
            memset(f, 0, sizeof(Filter))
            raise MemoryError
        for k in range(f.n_alts):
            _words(alternatives[k], f.alts + k * BIT_WORDS, "features")
        for k in range(f.n_exclude):
            f.exclude[k] = exclude[k]
        f.refs = 1
        if self._free_filters:
            self._free_filters.pop()
        else:
            self.c.n_filters += 1
            self._filter_keys.append(None)
        self._filters[key] = i
        self._filter_keys[i] = key
        return i

    cdef void _drop_filter(self, int i):
        cdef Filter* f = &self.c.filters[i]
        f.refs -= 1
        if f.refs:
            return
        free(f.alts)
        free(f.exclude)
        free(f.bits)
        memset(f, 0, sizeof(Filter))
        del self._filters[self._filter_keys[i]]
        self._filter_keys[i] = None
        self._free_filters.append(i)

    cdef object _demands(self, object kinds, object per_core, object per_gpu, object variants,
                        object per_socket, object gpus_socket, object sockets, object bind):
        """The rare demands in one normal form, None without any."""
        cdef uint64_t words[BIT_WORDS]
        rows = []
        for kind, per_node, per_task, total in kinds:
            rows.append((
                _number(kind, 0, MAX_TYPES - 1, "GPU type"),
                _number(per_node, 0, MAX_COUNT, "GPUs of a type per node"),
                _number(per_task, 0, MAX_COUNT, "GPUs of a type per task"),
                _number(total, 0, MAX_COUNT, "GPUs of a type in all"),
            ))
        rows.sort()
        if len(rows) > MAX_KINDS:
            raise ValueError(f"{len(rows)} GPU types in one request: more than {MAX_KINDS}")
        if len({row[0] for row in rows}) < len(rows):
            raise ValueError("a GPU type comes twice in one request")
        sets = []
        for alternatives, groups in variants:
            wanted = []
            for count, choices in groups:
                wanted.append((_number(count, 1, MAX_COUNT, "nodes with a feature"),
                               tuple(choices)))
            for mask in (*alternatives, *[mask for _, masks in wanted for mask in masks]):
                _words(mask, words, "features")
            sets.append((tuple(sorted(set(alternatives))), tuple(wanted)))
        if len(sets) > MAX_VARIANTS:
            raise ValueError(f"{len(sets)} sets of features in turn: more than {MAX_VARIANTS}")
        found = (
            tuple(rows),
            _number(per_core, 0, MAX_COUNT, "ntasks_per_core"),
            _number(per_gpu, 0, MAX_COUNT, "ntasks_per_gpu"),
            tuple(sets),
            _number(per_socket, 0, MAX_COUNT, "ntasks_per_socket"),
            _number(gpus_socket, 0, MAX_GPUS, "gpus_per_socket"),
            _number(sockets if gpus_socket else 0, 0, 1024, "min_sockets"),
            _number(bind, 0, 2, "gpu_binding"),
        )
        return found if any(found) else None

    cdef int _check_demands(self, Req* r, tuple demands) except -1:
        """ValueError where they contradict the rest of the request."""
        kinds, _, per_gpu, variants, _, gpus_socket, sockets, _ = demands
        if kinds:
            if r.gtype >= 0 or r.milli or r.island:
                raise ValueError(
                    "GPUs of several types go neither with gpu_type, gpu_milli nor one_island"
                )
            for place_, asked, name in (
                (1, r.gpn, "per_node"), (2, r.gpt, "per_task"), (3, r.gtotal, "total")
            ):
                if sum([row[place_] for row in kinds]) != asked:
                    raise ValueError(f"gpus_{name} {asked} is not the sum over the types")
        if gpus_socket and (kinds or r.gpn != gpus_socket * max(1, sockets) or r.gpt or r.milli
                            or r.island):
            raise ValueError(
                f"gpus_per_socket {gpus_socket} of {sockets} sockets needs gpus_per_node to be their "
                "product, and no other form"
            )
        if per_gpu and (not r.gtotal or r.ntasks != r.gtotal * per_gpu):
            raise ValueError(
                f"ntasks_per_gpu {per_gpu} needs gpus_total, and ntasks for each of them"
            )
        for _, groups in variants:
            if sum([count for count, _ in groups]) > max(r.min_nodes, r.max_nodes):
                raise ValueError("more nodes with certain features than nodes")
        return 0

    cdef Rare* _rare(self, tuple demands, int partition, tuple exclude,
                     tuple layout) except? NULL:
        cdef Rare* x = <Rare*>calloc(1, sizeof(Rare))
        cdef Variant* v
        cdef int k, j, a
        if x == NULL:
            raise MemoryError
        kinds, per_core, per_gpu, variants, per_socket, gpus_socket, sockets, bind = demands
        try:
            x.n_kinds = <int>len(kinds)
            for k in range(x.n_kinds):
                x.kind[k], x.gpn[k], x.gpt[k], x.gtotal[k] = kinds[k]
            x.per_core, x.per_gpu, x.per_socket = per_core, per_gpu, per_socket
            x.gpus_socket, x.n_sockets, x.bind = gpus_socket, max(1, sockets), bind
            if kinds:
                x.deal = <int32_t*>calloc(<size_t>self.c.n * MAX_KINDS, sizeof(int32_t))
                if x.deal == NULL:
                    raise MemoryError
            if variants:
                x.variants = <Variant*>calloc(<size_t>len(variants), sizeof(Variant))
                if x.variants == NULL:
                    raise MemoryError
            for alternatives, groups in variants:
                v = &x.variants[x.n_variants]
                v.filter = self._filter(partition, alternatives, exclude, layout)
                x.n_variants += 1
                v.n_groups = <int>len(groups)
                a = <int>sum([len(masks) for _, masks in groups])
                v.count = <int32_t*>calloc(<size_t>v.n_groups + 1, sizeof(int32_t))
                v.first = <int32_t*>calloc(<size_t>v.n_groups + 1, sizeof(int32_t))
                v.alts = <uint64_t*>calloc(<size_t>a * BIT_WORDS + 1, sizeof(uint64_t))
                if v.count == NULL or v.first == NULL or v.alts == NULL:
                    raise MemoryError
                j = a = 0
                for count, masks in groups:
                    v.count[j] = count
                    for mask in masks:
                        _words(mask, v.alts + <size_t>a * BIT_WORDS, "features")
                        a += 1
                    j += 1
                    v.first[j] = a
        except BaseException:
            self._drop_rare(x)
            raise
        return x

    cdef void _drop_rare(self, Rare* x):
        cdef int k
        if x == NULL:
            return
        for k in range(x.n_variants):
            self._drop_filter(x.variants[k].filter)
        rare_free(x)
