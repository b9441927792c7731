# Link classes: which k GPUs of a free set are the best.
#
# Weight of a pair = 4096 * NVLinks + (1 if both are in one NUMA domain). The best choice has the
# greatest sum of weights inside, then leaves the greatest sum among what stays free, then is the
# smallest bitmap. Up to SMALL GPUs the sums are tables and the answers are kept.

cdef enum:
    LINK_WEIGHT = 4096
    MAX_LINKS = 1000

cdef struct Links:
    int n
    int n_islands
    int uniform              # every pair weighs the same: any choice is as good as another
    uint64_t island[MAX_GPUS]
    int32_t* weight          # n x n
    uint32_t* inside         # sum of weights inside each set; n <= SMALL
    uint16_t* best           # [k][set] -> choice, 0 not known yet; n <= SMALL, made at first use
    uint8_t* largest         # size of the largest island inside each set; n <= SMALL


cdef inline int largest_island(Links* L, uint64_t free_set) noexcept nogil:
    cdef int i, k, most = 0
    if L.largest != NULL:
        return L.largest[free_set]
    for i in range(L.n_islands):
        k = gs_pop(free_set & L.island[i])
        if k > most:
            most = k
    return most


cdef int64_t inside_sum(Links* L, uint64_t s) noexcept nogil:
    cdef int64_t total = 0
    cdef uint64_t rest
    cdef int a
    if L.inside != NULL:
        return L.inside[s]
    while s:
        a = gs_ctz(s)
        s &= s - 1
        rest = s
        while rest:
            total += L.weight[a * L.n + gs_ctz(rest)]
            rest &= rest - 1
    return total


cdef uint64_t lowest(uint64_t s, int k) noexcept nogil:
    """The k lowest bits of s."""
    cdef uint64_t out = 0
    while k > 0 and s:
        out |= gs_low(s)
        s &= s - 1
        k -= 1
    return out


cdef uint64_t best_exact(Links* L, uint64_t s, int k) noexcept nogil:
    cdef uint64_t sub = 0, choice = 0
    cdef int64_t a, b, best_a = -1, best_b = -1
    while True:
        sub = (sub - s) & s      # the next larger subset of s
        if sub == 0:
            break
        if gs_pop(sub) != k:
            continue
        a = L.inside[sub]
        if a < best_a:
            continue
        b = L.inside[s ^ sub]
        if a > best_a or b > best_b:
            best_a = a
            best_b = b
            choice = sub
    return choice


cdef uint64_t best_greedy(Links* L, uint64_t s, int k) noexcept nogil:
    """Grow a choice from every seed by the GPU that adds most (then harms least); keep the best."""
    cdef int64_t gain[MAX_GPUS]
    cdef int64_t tie[MAX_GPUS]
    cdef int64_t a, b, best_a = -1, best_b = -1
    cdef uint64_t seeds = s, rest, r, pick, choice = 0
    cdef int g, j, step
    while seeds:
        g = gs_ctz(seeds)
        seeds &= seeds - 1
        pick = (<uint64_t>1) << g
        rest = s ^ pick
        r = rest
        while r:
            j = gs_ctz(r)
            r &= r - 1
            gain[j] = L.weight[g * L.n + j]
            tie[j] = outward(L, j, rest)
        for step in range(1, k):
            g = -1
            r = rest
            while r:
                j = gs_ctz(r)
                r &= r - 1
                if g < 0 or gain[j] > gain[g] or (gain[j] == gain[g] and tie[j] < tie[g]):
                    g = j
            pick |= (<uint64_t>1) << g
            rest ^= (<uint64_t>1) << g
            r = rest
            while r:
                j = gs_ctz(r)
                r &= r - 1
                gain[j] += L.weight[g * L.n + j]
                tie[j] -= L.weight[g * L.n + j]
        a = inside_sum(L, pick)
        b = inside_sum(L, rest)
        if a > best_a or (a == best_a and (b > best_b or (b == best_b and pick < choice))):
            best_a = a
            best_b = b
            choice = pick
    return choice


cdef int64_t outward(Links* L, int g, uint64_t s) noexcept nogil:
    """Sum of weights between a GPU and a set."""
    cdef int64_t total = 0
    cdef int j
    while s:
        j = gs_ctz(s)
        s &= s - 1
        if j != g:
            total += L.weight[g * L.n + j]
    return total


cdef uint64_t best_gpus(Links* L, uint64_t s, int k) noexcept nogil:
    """The best k GPUs of the free set s; all of s when it has no more than k."""
    cdef uint64_t choice
    cdef size_t at
    if k <= 0:
        return 0
    if gs_pop(s) <= k:
        return s
    if L.uniform:
        return lowest(s, k)
    if L.n > SMALL:
        return best_greedy(L, s, k)
    if L.best == NULL:
        L.best = <uint16_t*>calloc((<size_t>L.n + 1) << L.n, sizeof(uint16_t))
        if L.best == NULL:
            return best_exact(L, s, k)
    at = (<size_t>k << L.n) + <size_t>s
    if L.best[at] == 0:
        L.best[at] = <uint16_t>best_exact(L, s, k)
    return L.best[at]


cdef uint64_t best_on_island(Links* L, uint64_t s, int k) noexcept nogil:
    """The best k GPUs of s that lie on one island; 0 where no island has so many."""
    cdef uint64_t pick, choice = 0
    cdef int64_t a, b, best_a = -1, best_b = -1
    cdef int i
    for i in range(L.n_islands):
        if gs_pop(s & L.island[i]) < k:
            continue
        pick = best_gpus(L, s & L.island[i], k)
        a = inside_sum(L, pick)
        b = inside_sum(L, s ^ pick)
        if a > best_a or (a == best_a and (b > best_b or (b == best_b and pick < choice))):
            best_a = a
            best_b = b
            choice = pick
    return choice


cdef int links_init(Links* L, int n, const int32_t* links, const int32_t* numa) noexcept nogil:
    """Fill a class from its link matrix. 0, or -1 without memory."""
    cdef int i, j, g
    cdef uint64_t seen = 0, todo, isl, s, full
    memset(L, 0, sizeof(Links))
    L.n = n
    L.weight = <int32_t*>calloc(<size_t>(n * n) + 1, sizeof(int32_t))
    if L.weight == NULL:
        return -1
    L.uniform = 1
    for i in range(n):
        for j in range(n):
            if i != j:
                L.weight[i * n + j] = (
                    links[i * n + j] * LINK_WEIGHT + (1 if numa[i] == numa[j] else 0)
                )
                if L.weight[i * n + j] != L.weight[1]:
                    L.uniform = 0
    for i in range(n):
        if seen >> i & 1:
            continue
        isl = 0
        todo = (<uint64_t>1) << i
        while todo:
            g = gs_ctz(todo)
            todo &= todo - 1
            isl |= (<uint64_t>1) << g
            for j in range(n):
                if j != g and links[g * n + j] > 0 and not isl >> j & 1:
                    todo |= (<uint64_t>1) << j
        seen |= isl
        L.island[L.n_islands] = isl
        L.n_islands += 1
    if n > SMALL:
        return 0
    full = (<uint64_t>1) << n
    L.inside = <uint32_t*>calloc(full, sizeof(uint32_t))
    L.largest = <uint8_t*>calloc(full, sizeof(uint8_t))
    if L.inside == NULL or L.largest == NULL:
        return -1
    for s in range(1, full):
        g = gs_ctz(s)
        L.inside[s] = L.inside[s & (s - 1)] + <uint32_t>outward(L, g, s)
        for i in range(L.n_islands):
            j = gs_pop(s & L.island[i])
            if j > L.largest[s]:
                L.largest[s] = <uint8_t>j
    return 0


cdef void links_free(Links* L) noexcept nogil:
    free(L.weight)
    free(L.inside)
    free(L.best)
    free(L.largest)
