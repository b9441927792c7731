# Methods of Core. Request classes.


cdef class _Requests(_Nodes):
    cdef int _filter(self, int partition, tuple alternatives, tuple exclude) except -1:
        """The filter with this content, one reference more."""
        cdef Filter* f
        cdef int i, k
        key = (partition, alternatives, exclude)
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

    def request(self, *, partition=-1, features_all=0, features_any=(), min_nodes=1, max_nodes=0,
                cap_nodes=0, ntasks=0, cpus_per_task=1, min_cpus_node=0, ntasks_per_node=0,
                mem_per_node_mb=-1, mem_per_cpu_mb=0, mem_per_gpu_mb=0, gpus_per_node=0,
                gpus_per_task=0, gpus_total=0, cpus_per_gpu=0, gpu_type=-1, exclusive=False,
                overcommit=False, one_island=False, threads_per_core=0, nodelist=(), exclude=()):
        """The number of the request class with this content, one reference more.

        See _core.pyi for each field. Cost: constant, and a bitmap of nodes for each different
        (partition, features, exclude).
        """
        cdef Req r
        cdef int i, k, partition_bit
        cdef uint64_t words[BIT_WORDS]
        self._enter()
        memset(&r, 0, sizeof(Req))
        partition_bit = <int>_number(partition, -1, MAX_BITS - 1, "partition")
        _words(features_all, words, "features")
        options = []
        for mask in features_any:
            _words(mask, words, "features")
            options.append(mask | features_all)
        if not options and features_all:
            options.append(features_all)
        alternatives = tuple(sorted(set(options)))
        inside = tuple(sorted({self._node(n) for n in nodelist}))
        outside = tuple(sorted({self._node(n) for n in exclude}))
        r.min_nodes = <int>_number(min_nodes, 1, MAX_COUNT, "min_nodes")
        r.max_nodes = <int>_number(max_nodes, 0, MAX_COUNT, "max_nodes")
        r.cap_nodes = <int>_number(cap_nodes, 0, MAX_COUNT, "cap_nodes")
        r.ntasks = <int>_number(ntasks, 0, MAX_COUNT, "ntasks")
        r.cpt = <int>_number(cpus_per_task, 1, MAX_COUNT, "cpus_per_task")
        r.mincpus = <int>_number(min_cpus_node, 0, MAX_COUNT, "min_cpus_node")
        if r.mincpus < 1:
            r.mincpus = 1
        r.tpn = <int>_number(ntasks_per_node, 0, MAX_COUNT, "ntasks_per_node")
        r.mem_node = _number(mem_per_node_mb, -1, <int64_t>1 << 50, "mem_per_node_mb")
        r.mem_cpu = _number(mem_per_cpu_mb, 0, <int64_t>1 << 30, "mem_per_cpu_mb")
        r.mem_gpu = _number(mem_per_gpu_mb, 0, <int64_t>1 << 50, "mem_per_gpu_mb")
        r.gpn = <int>_number(gpus_per_node, 0, MAX_COUNT, "gpus_per_node")
        r.gpt = <int>_number(gpus_per_task, 0, MAX_COUNT, "gpus_per_task")
        r.gtotal = <int>_number(gpus_total, 0, MAX_COUNT, "gpus_total")
        r.cpg = <int>_number(cpus_per_gpu, 0, MAX_COUNT, "cpus_per_gpu")
        r.gtype = <int>_number(gpu_type, -1, MAX_TYPES - 1, "gpu_type")
        r.tpc = <int>_number(threads_per_core, 0, 1024, "threads_per_core")
        r.excl = 1 if exclusive else 0
        r.overcommit = 1 if overcommit else 0
        r.island = 1 if one_island else 0
        r.gpu = 1 if r.gpn or r.gpt or r.gtotal else 0
        r.tmin = 1 if r.ntasks or not r.tpn else r.tpn
        if r.max_nodes and r.max_nodes < r.min_nodes:
            raise ValueError(f"max_nodes {max_nodes} is below min_nodes {min_nodes}")
        if r.max_nodes and len(inside) > r.max_nodes:
            raise ValueError(f"{len(inside)} nodes to include, but max_nodes is {max_nodes}")
        if set(inside) & set(outside):
            raise ValueError(f"node {min(set(inside) & set(outside))} is included and excluded")
        if (r.mem_node >= 0) + (r.mem_cpu > 0) + (r.mem_gpu > 0) > 1:
            raise ValueError("memory is asked per node, CPU or GPU: only one of them")
        if r.gtotal and (r.gpn or r.gpt):
            raise ValueError(
                f"gpus_total {gpus_total} with gpus_per_node or gpus_per_task: "
                "say the number of nodes or tasks instead"
            )
        if r.gtotal and r.gtotal < r.min_nodes:
            raise ValueError(f"gpus_total {gpus_total} is below min_nodes {min_nodes}")
        if (r.mem_gpu or r.cpg) and not r.gpu:
            raise ValueError("memory or CPUs per GPU are asked without GPUs")
        r.n_must = <int>len(inside)
        key = (
            partition_bit, alternatives, outside, inside, r.min_nodes, r.max_nodes, r.cap_nodes,
            r.ntasks, r.cpt, r.mincpus, r.tpn, r.mem_node, r.mem_cpu, r.mem_gpu, r.gpn, r.gpt, r.gtotal, r.cpg,
            r.gtype, r.tpc, r.excl, r.overcommit, r.island,
        )
        known = self._requests.get(key)
        if known is not None:
            i = known
            self.c.reqs[i].refs += 1
            return i
        if self._free_requests:
            i = self._free_requests[-1]
        else:
            i = self.c.n_reqs
            if grow(<void**>&self.c.reqs, &self.c.reqs_cap, i + 1, sizeof(Req)):
                raise MemoryError
        r.must = <int32_t*>calloc(<size_t>r.n_must + 1, sizeof(int32_t))
        if r.must == NULL:
            raise MemoryError
        for k in range(r.n_must):
            r.must[k] = inside[k]
        try:
            r.filter = self._filter(partition_bit, alternatives, outside)
        except BaseException:
            free(r.must)
            raise
        r.refs = 1
        self.c.reqs[i] = r
        if self._free_requests:
            self._free_requests.pop()
        else:
            self.c.n_reqs += 1
            self._request_keys.append(None)
        self._requests[key] = i
        self._request_keys[i] = key
        return i

    def drop_request(self, req):
        """Give back one reference taken by request(); with the last one the class is forgotten.
        ValueError while that would leave a queued job without its class."""
        cdef Req* r
        cdef int i
        self._enter()
        r = self._req(req)
        i = <int>req
        if r.refs == 1 and r.queued:
            raise ValueError(f"request class {req} is used by {r.queued} queued jobs")
        r.refs -= 1
        if r.refs:
            return
        free(r.must)
        self._drop_filter(r.filter)
        memset(r, 0, sizeof(Req))
        del self._requests[self._request_keys[i]]
        self._request_keys[i] = None
        self._free_requests.append(i)
