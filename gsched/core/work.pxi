# What jobs usually ask for, and how much of a node's idle GPUs is of no use to such jobs.
#
# The measure of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): over all usual shapes,
# weighted by how often they come, the idle GPU capacity of a node that the shape cannot use: all
# of it where the shape does not fit, else what lies on GPUs with less room than it needs of each.

cdef enum:
    WHOLE = 1000           # thousandths of a GPU
    MAX_GROUPS = 512       # usual shapes that differ in GPUs
    MAX_STEPS = 1024       # different numbers of CPUs in them
    LEVELS = 100           # of the coarse score
    FINE = 16              # binary places behind a thousandth of a GPU
    REST = 10              # a rest that is not filled weighs so many times a GPU without CPUs
    ARRIVALS = 128         # jobs that come by while a rest of a GPU is to be filled

cdef struct Work:
    int n_groups
    int n_steps
    int n_sizes
    int64_t total            # sum of the weights, those of shapes without GPUs too
    int32_t* size            # of each group: its size as an index into sizes
    int32_t* need            # GPUs
    uint64_t* kinds          # n_groups x BIT_WORDS x 1: bit of a GPU type; all zero: any
    int32_t* sizes           # thousandths of a GPU, rising
    int32_t* step            # CPUs, rising
    int64_t* weight          # [steps that the CPUs reach][group]: of its shapes that have the CPUs
    int64_t* level           # drop of fragmentation from which on the coarse score is so high
    uint64_t* masks          # [layout][group]: GPUs of the types asked for
    int n_layouts            # masks are made for so many
    int64_t per_cpu          # thousandths of a GPU that come with a CPU in usual jobs, << FINE
    int unit                 # all sizes are multiples of it
    int64_t* fill            # [units left on a GPU] -> what will be filled of it, << FINE


cdef void work_free(Work* w) noexcept nogil:
    free(w.size); free(w.need); free(w.kinds); free(w.sizes); free(w.step); free(w.weight)
    free(w.level); free(w.masks); free(w.fill)
    memset(w, 0, sizeof(Work))


cdef int work_masks(Cluster* c) noexcept nogil:
    """GPUs that count for each group, for layouts that came since. 0, or -1 without memory."""
    cdef Work* w = &c.work
    cdef uint64_t* bigger
    cdef uint64_t* kinds
    cdef uint64_t m, bits
    cdef int layout, k, t, any_kind
    if w.n_layouts >= c.n_layouts or w.n_groups == 0:
        return 0
    bigger = <uint64_t*>realloc(
        w.masks, <size_t>c.n_layouts * <size_t>w.n_groups * sizeof(uint64_t)
    )
    if bigger == NULL:
        return -1
    w.masks = bigger
    for layout in range(w.n_layouts, c.n_layouts):
        for k in range(w.n_groups):
            kinds = w.kinds + k * BIT_WORDS
            any_kind = 1
            m = 0
            for t in range(BIT_WORDS):
                bits = kinds[t]
                while bits:
                    any_kind = 0
                    m |= c.layouts[<size_t>layout * MAX_TYPES + (t << 6) + gs_ctz(bits)]
                    bits &= bits - 1
            w.masks[<size_t>layout * w.n_groups + k] = ~(<uint64_t>0) if any_kind else m
    w.n_layouts = c.n_layouts
    return 0


cdef int work_fill(Work* w, const int64_t* weight) noexcept nogil:
    """How much of a rest of a GPU will be filled, when ARRIVALS jobs of the usual sizes come by
    and each is taken if that is better than to wait. weight: of each size. 0, or -1."""
    cdef int64_t total = 0, sum_, best
    cdef int64_t* now
    cdef int64_t* then
    cdef int units = WHOLE // w.unit, step, left, d
    for d in range(w.n_sizes):
        total += weight[d]
    if total == 0:
        return 0
    w.fill = <int64_t*>calloc(2 * (<size_t>units + 1), sizeof(int64_t))
    if w.fill == NULL:
        return -1
    now = w.fill
    then = w.fill + units + 1
    for step in range(ARRIVALS):
        for left in range(units + 1):
            sum_ = 0
            for d in range(w.n_sizes):
                best = now[left]
                if w.sizes[d] <= left * w.unit:
                    best = lmax(best, ((<int64_t>w.sizes[d]) << FINE)
                                + now[left - w.sizes[d] // w.unit])
                sum_ += weight[d] * best
            then[left] = sum_ // total
        memcpy(now, then, (<size_t>units + 1) * sizeof(int64_t))
    return 0


# A node as the measure sees it: per size how many GPUs have that room, and how much is idle there.
cdef struct Idle:
    int n
    int total
    int64_t* weight          # the row of Work.weight for its CPUs
    int32_t gpu[MAX_GPUS]
    int32_t count[MAX_GROUPS]
    int32_t room[MAX_GROUPS]


cdef inline int64_t* step_of(Work* w, int64_t cpus) noexcept nogil:
    cdef int lo = 0, hi = w.n_steps, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if w.step[mid] <= cpus:
            lo = mid + 1
        else:
            hi = mid
    return w.weight + <size_t>lo * w.n_groups


cdef inline void idle_add(Work* w, Idle* o, int32_t left, int sign) noexcept nogil:
    """Count a GPU with so much left, or (sign -1) no longer."""
    cdef int d
    o.total += sign * left
    for d in range(w.n_sizes):
        if w.sizes[d] > left:
            break
        o.count[d] += sign
        o.room[d] += sign * left


cdef void idle_fill(Cluster* c, State* s, int i, Idle* o) noexcept nogil:
    cdef Work* w = &c.work
    cdef int g
    o.n = c.links[c.cls[i]].n
    o.total = 0
    memset(o.count, 0, <size_t>w.n_sizes * sizeof(int32_t))
    memset(o.room, 0, <size_t>w.n_sizes * sizeof(int32_t))
    idle_of(c, s, i, o.gpu)
    for g in range(o.n):
        if o.gpu[g]:
            idle_add(w, o, o.gpu[g], 1)


cdef int64_t fragments(Cluster* c, int i, int64_t cpus, Idle* o) noexcept nogil:
    """Idle thousandths of GPUs that are of no use, times the sum of weights."""
    cdef Work* w = &c.work
    cdef int64_t useful = 0
    cdef int64_t* weight = step_of(w, cpus)
    cdef uint64_t* masks = w.masks + <size_t>c.layout[i] * w.n_groups
    cdef uint64_t every = c.all[i]
    cdef int k, d, g, count, room
    if o.total == 0:
        return 0
    for k in range(w.n_groups):
        if weight[k] == 0:
            continue
        d = w.size[k]
        if every & ~masks[k] == 0:
            if o.count[d] >= w.need[k]:
                useful += weight[k] * o.room[d]
        elif every & masks[k]:
            count = room = 0
            for g in range(o.n):
                if masks[k] >> g & 1 and o.gpu[g] >= w.sizes[d]:
                    count += 1
                    room += o.gpu[g]
            if count >= w.need[k]:
                useful += weight[k] * room
    return w.total * o.total - useful
