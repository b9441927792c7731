# Methods of Core. Request classes.


cdef class _Requests(_Topology):
    cdef int32_t _resv(self, object number) except -2:
        """A reservation's number, which need not be described yet."""
        cdef int32_t k = <int32_t>_number(number, -1, MAX_RESVS - 1, "reservation")
        if grow(<void**>&self.c.resvs, &self.c.resvs_cap, k + 1, sizeof(Resv)):
            raise MemoryError
        if k >= self.c.n_resvs:
            self.c.n_resvs = k + 1
        return k

    cdef int _share(self) except -1:
        """Room for shares of GPUs, at the first one."""
        cdef size_t places = <size_t>self.c.n * MAX_GPUS
        if self.c.now.took == NULL:
            self.c.now.took = <uint16_t*>calloc(places, sizeof(uint16_t))
        if self.c.then.took == NULL:
            self.c.then.took = <uint16_t*>calloc(places, sizeof(uint16_t))
        if self.c.now.took == NULL or self.c.then.took == NULL:
            raise MemoryError
        return 0

    def set_workload(self, shapes):
        """What jobs usually ask for, for the policies FGD and DENSE_FIT: (cpus, gpus, gpu_milli, GPU
        types, weight) each. Cost: shapes x groups, and all scores are made anew."""
        cdef Work w
        cdef int k, step, n
        cdef int64_t by_size[MAX_GROUPS]
        cdef uint64_t words[BIT_WORDS]
        self._enter()
        rows = []
        total = 0
        for cpus, gpus, milli, types, weight in shapes:
            _number(cpus, 0, MAX_COUNT, "CPUs of a usual shape")
            _number(gpus, 0, MAX_GPUS, "GPUs of a usual shape")
            _number(milli, 0, WHOLE - 1, "gpu_milli of a usual shape")
            if milli and gpus != 1:
                raise ValueError(f"gpu_milli {milli} is a share of one GPU, not of {gpus}")
            kinds = 0
            for kind in types:
                kinds |= 1 << _number(kind, 0, MAX_TYPES - 1, "GPU type")
            total += _number(weight, 1, MAX_COUNT, "weight of a usual shape")
            if gpus:
                rows.append((cpus, (milli or WHOLE, gpus, kinds), weight))
        if total > MAX_COUNT:
            raise ValueError(f"the weights of the usual shapes add up to {total}")
        groups = sorted({row[1] for row in rows})
        sizes = sorted({group[0] for group in groups})
        steps = sorted({row[0] for row in rows})
        if len(groups) > MAX_GROUPS or len(steps) > MAX_STEPS:
            raise ValueError(
                f"{len(groups)} kinds of GPU demand and {len(steps)} of CPUs in the usual shapes: "
                f"more than {MAX_GROUPS} and {MAX_STEPS}"
            )
        memset(&w, 0, sizeof(Work))
        n = w.n_groups = <int>len(groups)
        w.n_sizes = <int>len(sizes)
        w.n_steps = <int>len(steps)
        w.total = total
        w.size = <int32_t*>calloc(<size_t>n + 1, sizeof(int32_t))
        w.need = <int32_t*>calloc(<size_t>n + 1, sizeof(int32_t))
        w.kinds = <uint64_t*>calloc(<size_t>n * BIT_WORDS + 1, sizeof(uint64_t))
        w.sizes = <int32_t*>calloc(<size_t>w.n_sizes + 1, sizeof(int32_t))
        w.step = <int32_t*>calloc(<size_t>w.n_steps + 1, sizeof(int32_t))
        w.weight = <int64_t*>calloc((<size_t>w.n_steps + 1) * (<size_t>n + 1), sizeof(int64_t))
        w.level = <int64_t*>calloc(LEVELS, sizeof(int64_t))
        if (w.size == NULL or w.need == NULL or w.kinds == NULL or w.sizes == NULL
                or w.step == NULL or w.weight == NULL or w.level == NULL):
            work_free(&w)
            raise MemoryError
        for k in range(n):
            w.size[k] = sizes.index(groups[k][0])
            w.need[k] = groups[k][1]
            _words(groups[k][2], words, "GPU types")
            memcpy(w.kinds + k * BIT_WORDS, words, sizeof(words))
        for k in range(w.n_sizes):
            w.sizes[k] = sizes[k]
        for k in range(w.n_steps):
            w.step[k] = steps[k]
        place = {group: k for k, group in enumerate(groups)}
        for cpus, group, weight in rows:
            k = place[group]
            for step in range(<int>steps.index(cpus) + 1, w.n_steps + 1):
                w.weight[<size_t>step * <size_t>n + <size_t>k] += weight
        w.level[0] = -INT64_MAX
        for k in range(1, LEVELS):
            w.level[k] = <int64_t>_ceil(total * float(WHOLE) * _log(k / (LEVELS - float(k))))
        w.unit = <int>_gcd(WHOLE, *sizes)
        milli = sum([group[0] * group[1] * weight for _, group, weight in rows])
        cpus = sum([cpus * weight for cpus, _, weight in rows])
        w.per_cpu = min((milli << FINE) // cpus, 1 << 40) if cpus else 0
        for k in range(w.n_sizes):
            by_size[k] = sum([x * group[1] for _, group, x in rows if group[0] == sizes[k]])
        if work_fill(&w, by_size):
            work_free(&w)
            raise MemoryError
        work_free(&self.c.work)
        self.c.work = w
        # No score that is kept holds any longer.
        self.c.version += 1

    def request(self, *, partition=-1, features_all=0, features_any=(), min_nodes=1, max_nodes=0,
                cap_nodes=0, ntasks=0, cpus_per_task=1, min_cpus_node=0, ntasks_per_node=0,
                mem_per_node_mb=-1, mem_per_cpu_mb=0, mem_per_gpu_mb=0, gpus_per_node=0,
                gpus_per_task=0, gpus_total=0, cpus_per_gpu=0, gpu_type=-1, exclusive=False,
                overcommit=False, one_island=False, threads_per_core=0, nodelist=(), exclude=(),
                gpu_milli=0, gpu_kind=0, one_shared=False, policy=0, gpu_kinds=(),
                ntasks_per_core=0, ntasks_per_gpu=0, min_sockets=0, min_cores_per_socket=0,
                min_threads=0, variants=(), switches=0, segment=0, contiguous=False,
                spread=False, use_min_nodes=False, reservation=-1, ntasks_per_socket=0,
                gpus_per_socket=0, gpu_binding=0, owner=-1, extra=(), cpu_caps=(),
                shares_cpus=False, leaves_gpus=False):
        """The number of the request class with this content, one reference more.

        See _core.pyi for each field. Cost: constant, and a bitmap of nodes for each different
        (partition, features, exclude).
        """
        cdef Req r
        cdef int i, k, partition_bit
        cdef Rare* rare
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
        r.kind = <int>_number(gpu_kind, 0, KINDS - 1, "gpu_kind")
        r.milli = <int>_number(
            gpu_milli, 0, MAX_PARTS if r.kind else WHOLE - 1, "gpu_milli"
        )
        r.one_shared = 1 if one_shared else 0
        r.policy = <int>_number(policy, 0, POLICIES - 1, "policy")
        r.resv = self._resv(reservation)
        r.tpc = <int>_number(threads_per_core, 0, 1024, "threads_per_core")
        r.excl = 1 if exclusive else 0
        r.own = <int>_number(owner, -1, MAX_COUNT, "owner") + 1
        r.more = self._counts(extra, r.extra)
        r.caps = self._caps(cpu_caps)
        for k in range(EXTRAS):
            if r.caps >> k & 1 and r.extra[k]:
                raise ValueError(f"kind {k} is a cap and a count")
        r.more = r.more or r.caps != 0
        r.overcommit = 1 if overcommit else 0
        r.island = 1 if one_island else 0
        r.switches = <int>_number(switches, 0, MAX_COUNT, "switches")
        r.segment = <int>_number(segment, 0, MAX_COUNT, "segment")
        r.contiguous = 1 if contiguous else 0
        r.spread = 1 if spread else 0
        r.few = 1 if use_min_nodes else 0
        layout = (
            _number(min_sockets, 0, 1024, "min_sockets"),
            _number(min_cores_per_socket, 0, 1000000, "min_cores_per_socket"),
            _number(min_threads, 0, 1024, "min_threads"),
        )
        demands = self._demands(gpu_kinds, ntasks_per_core, ntasks_per_gpu, variants,
                                ntasks_per_socket, gpus_per_socket, min_sockets, gpu_binding)
        if demands is not None:
            self._check_demands(&r, demands)
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
        if r.milli and (r.gpn != 1 or r.gpt or r.gtotal or r.excl or r.island):
            raise ValueError(
                f"gpu_milli {gpu_milli} is a share of one GPU: gpus_per_node must be 1, without "
                "gpus_per_task, gpus_total, exclusive and one_island"
            )
        if (r.kind or r.one_shared) and not r.milli:
            raise ValueError(f"gpu_kind {gpu_kind} without gpu_milli")
        if shares_cpus and r.resv < 0 and not (demands is not None and (
                demands[4] or demands[5] or demands[7] == 1)):
            r.lot = self._lot(partition)
            r.most = r.level = self.c.lot_most[r.lot]
        r.alone = r.excl and not r.lot
        r.keep = leaves_gpus and not r.gpu and not r.excl and r.resv < 0
        r.keeps = r.keep
        r.odd = r.lot or r.caps or r.keep
        if r.milli:
            if not r.policy:
                r.policy = P_DENSE
            self._share()
        if r.contiguous:
            self._scratch()
        r.n_must = <int>len(inside)
        key = (
            partition_bit, alternatives, outside, inside, r.min_nodes, r.max_nodes, r.cap_nodes,
            r.ntasks, r.cpt, r.mincpus, r.tpn, r.mem_node, r.mem_cpu, r.mem_gpu, r.gpn, r.gpt, r.gtotal, r.cpg,
            r.gtype, r.tpc, r.excl, r.overcommit, r.island, r.milli, r.policy,
            r.kind, r.one_shared, layout, demands,
            r.switches, r.segment, r.contiguous, r.spread, r.few, r.resv, r.own,
            tuple([r.extra[k] for k in range(EXTRAS)]) if r.more else (),
            r.caps, r.lot, r.keep,
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
            if demands is not None:
                r.rare = self._rare(demands, partition_bit, outside, layout)
            r.filter = self._filter(partition_bit, alternatives, outside, layout)
        except BaseException:
            self._drop_rare(r.rare)
            free(r.must)
            raise
        r.refs = 1
        self.c.req_serial += 1
        r.serial = self.c.req_serial
        self.c.reqs[i] = r
        if self._free_requests:
            self._free_requests.pop()
        else:
            self.c.n_reqs += 1
            self._request_keys.append(None)
        self._requests[key] = i
        self._request_keys[i] = key
        return i

    def request_extra(self, req):
        """Its `extra`."""
        cdef Req* r
        cdef int k
        self._enter()
        r = self._req(req)
        return tuple([(k, r.extra[k]) for k in range(EXTRAS) if r.extra[k]])

    def request_terms(self, req):
        """What allocate() must be told of it besides its shares."""
        cdef Req* r
        cdef int k
        self._enter()
        r = self._req(req)
        return {
            "owner": r.own - 1, "extra": self.request_extra(req), "lot": r.lot - 1,
            "caps": tuple([k for k in range(EXTRAS) if r.caps >> k & 1]),
        }

    def request_owner(self, req):
        """Its `owner`."""
        self._enter()
        return self._req(req).own - 1

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
        self._drop_rare(r.rare)
        if r.score != NULL:
            self.c.scored -= <int64_t>self.c.n * 2 * <int64_t>sizeof(int64_t)
        free(r.score)
        free(r.seen)
        if r.firsts.at != NULL:
            self.c.scored -= firsts_bytes(&self.c)
        firsts_free(&r.firsts)
        self._drop_filter(r.filter)
        memset(r, 0, sizeof(Req))
        del self._requests[self._request_keys[i]]
        self._request_keys[i] = None
        self._free_requests.append(i)
