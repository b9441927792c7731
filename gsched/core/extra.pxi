# Counted resources of a node besides CPUs, memory and GPUs: network cards, dongles, whatever a site
# counts. A kind is a number below EXTRAS; what there is stands in rows of so many counts. There are
# rows only once somebody has, or wants, one.


cdef inline int row_holds(int32_t* free_, int32_t* want) noexcept nogil:
    cdef int k
    for k in range(EXTRAS):
        if want[k] and free_[k] < want[k]:
            return 0
    return 1


cdef inline void row_add(int32_t* row, int32_t* by, int sign) noexcept nogil:
    cdef int k
    for k in range(EXTRAS):
        row[k] += sign * by[k]


cdef inline int32_t* extra_row(int32_t* rows, int i) noexcept nogil:
    return rows + <size_t>i * EXTRAS


cdef inline int extra_fits(State* s, Req* r, int i) noexcept nogil:
    """Whether node i has free in s what r wants of it."""
    return r.more == 0 or row_holds(extra_row(s.extra, i), r.extra)


cdef inline void extra_count(State* s, Share* sh, int sign) noexcept nogil:
    """A share's counts are given back (sign 1) or taken (-1)."""
    if sh.more:
        row_add(extra_row(s.extra, sh.node), sh.extra, sign)


cdef int extra_init(Cluster* c) noexcept nogil:
    """Rows for all nodes, at the first kind. 0, or -1 without memory."""
    cdef size_t places = <size_t>c.n * EXTRAS
    if c.extra == NULL:
        c.extra = <int32_t*>calloc(places, sizeof(int32_t))
    if c.now.extra == NULL:
        c.now.extra = <int32_t*>calloc(places, sizeof(int32_t))
    if c.then.extra == NULL:
        c.then.extra = <int32_t*>calloc(places, sizeof(int32_t))
    return 0 if c.extra != NULL and c.now.extra != NULL and c.then.extra != NULL else -1
