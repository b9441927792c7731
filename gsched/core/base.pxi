# Small C helpers: bits, growable buffers, a hash map from keys to slots.

from libc.stdint cimport (
    INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    static inline int gs_ctz(uint64_t x) { return __builtin_ctzll(x); }
    static inline int gs_clz(uint64_t x) { return __builtin_clzll(x); }
    /* Without -mpopcnt the compiler's builtin is a call to a table routine. */
    static inline int gs_pop(uint64_t x) {
    #ifdef __POPCNT__
        return __builtin_popcountll(x);
    #else
        x = x - ((x >> 1) & 0x5555555555555555ULL);
        x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
        x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
        return (int)((x * 0x0101010101010101ULL) >> 56);
    #endif
    }
    static inline uint64_t gs_low(uint64_t x) { return x & (~x + 1); }
    static inline uint64_t gs_mix(uint64_t x) {
        x ^= x >> 33; x *= 0xff51afd7ed558ccdULL;
        x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ULL;
        return x ^ (x >> 33);
    }
    """
    int gs_ctz(uint64_t x) nogil
    int gs_clz(uint64_t x) nogil
    int gs_pop(uint64_t x) nogil
    uint64_t gs_low(uint64_t x) nogil
    uint64_t gs_mix(uint64_t x) nogil

cdef enum:
    MAX_GPUS = 64          # GPUs per node
    MAX_NODES = 100000
    MAX_BITS = 256         # partitions, and features
    BIT_WORDS = 4          # MAX_BITS in words
    MAX_TYPES = 256        # GPU types of a cluster
    MAX_CLASSES = 1024     # link matrices of a cluster
    MAX_LAYOUTS = 4096     # ways in which a node's GPUs are of types
    NODE_KINDS = 1 << 16   # nodes that are told apart
    SMALL = 16             # up to so many GPUs the choice is a look-up
    PLANNED = 257          # jobs with a reservation in an EASY pass: one a partition, one for all nodes
    OVER_WORDS = 5         # PLANNED in words
    GRID = 65              # buckets: free GPUs 0..64 x largest free island 0..64
    MAX_COUNT = 1000000000 # largest count of tasks, CPUs, GPUs in a request

# How long a job without a limit is taken to run when a start in the future is looked for.
cdef int64_t YEAR = 365 * 86400
cdef int64_t FOREVER = INT64_MAX
# more than any limit leaves
cdef int64_t LIMIT_MOST = INT64_MAX >> 1


cdef inline int imax(int a, int b) noexcept nogil:
    return a if a > b else b


cdef inline int imin(int a, int b) noexcept nogil:
    return a if a < b else b


cdef inline int64_t lmin(int64_t a, int64_t b) noexcept nogil:
    return a if a < b else b


cdef inline int64_t lmax(int64_t a, int64_t b) noexcept nogil:
    return a if a > b else b


cdef inline uint64_t low_bits(int n) noexcept nogil:
    return ~(<uint64_t>0) if n >= 64 else ((<uint64_t>1) << n) - 1


cdef int grow(void** p, int64_t* cap, int64_t need, size_t size) noexcept nogil:
    """Make room for `need` elements; new room is zeroed. 0, or -1 without memory."""
    cdef int64_t n
    cdef void* q
    if need <= cap[0]:
        return 0
    n = lmax(16, cap[0] * 2)
    if n < need:
        n = need
    q = realloc(p[0], <size_t>n * size)
    if q == NULL:
        return -1
    memset(<char*>q + <size_t>cap[0] * size, 0, <size_t>(n - cap[0]) * size)
    p[0] = q
    cap[0] = n
    return 0


# Open addressing with backward-shift deletion; value -1 marks an empty place.
cdef struct Map:
    int64_t* key
    int32_t* value
    uint64_t mask
    uint64_t used


cdef int map_init(Map* m, uint64_t places) noexcept nogil:
    m.key = <int64_t*>malloc(places * sizeof(int64_t))
    m.value = <int32_t*>malloc(places * sizeof(int32_t))
    m.mask = places - 1
    m.used = 0
    if m.key == NULL or m.value == NULL:
        free(m.key)
        free(m.value)
        m.key = NULL
        m.value = NULL
        return -1
    memset(m.value, 0xff, places * sizeof(int32_t))
    return 0


cdef inline int32_t map_get(Map* m, int64_t key) noexcept nogil:
    cdef uint64_t i = gs_mix(<uint64_t>key) & m.mask
    while m.value[i] >= 0:
        if m.key[i] == key:
            return m.value[i]
        i = (i + 1) & m.mask
    return -1


cdef int map_reserve(Map* m) noexcept nogil:
    """Room for one more. 0, or -1 without memory (the map is as before)."""
    cdef Map bigger
    cdef uint64_t i, j
    if (m.used + 1) * 3 < (m.mask + 1) * 2:
        return 0
    if map_init(&bigger, (m.mask + 1) * 2):
        return -1
    for i in range(m.mask + 1):
        if m.value[i] >= 0:
            j = gs_mix(<uint64_t>m.key[i]) & bigger.mask
            while bigger.value[j] >= 0:
                j = (j + 1) & bigger.mask
            bigger.key[j] = m.key[i]
            bigger.value[j] = m.value[i]
    bigger.used = m.used
    free(m.key)
    free(m.value)
    m[0] = bigger
    return 0


cdef void map_put(Map* m, int64_t key, int32_t value) noexcept nogil:
    """Store a key that is not in the map; map_reserve() came before."""
    cdef uint64_t i = gs_mix(<uint64_t>key) & m.mask
    while m.value[i] >= 0:
        i = (i + 1) & m.mask
    m.key[i] = key
    m.value[i] = value
    m.used += 1


cdef void map_del(Map* m, int64_t key) noexcept nogil:
    cdef uint64_t i = gs_mix(<uint64_t>key) & m.mask
    cdef uint64_t j, home
    while m.value[i] >= 0 and m.key[i] != key:
        i = (i + 1) & m.mask
    if m.value[i] < 0:
        return
    j = i
    while True:
        j = (j + 1) & m.mask
        if m.value[j] < 0:
            break
        home = gs_mix(<uint64_t>m.key[j]) & m.mask
        # Move it back unless its home lies between the hole and where it stands.
        if ((j - home) & m.mask) >= ((j - i) & m.mask):
            m.key[i] = m.key[j]
            m.value[i] = m.value[j]
            i = j
    m.value[i] = -1
    m.used -= 1


cdef void map_free(Map* m) noexcept nogil:
    free(m.key)
    free(m.value)
    m.key = NULL
    m.value = NULL
