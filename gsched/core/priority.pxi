# Priorities of all waiting jobs at once, from columns.


def sweep(now, max_age, weight_age, weight_fair, most, rising, fixed, statics, since, who, fair, last):
    """Priorities at `now` into `last`, which has the ones before; bytes with 1 where one is another.

    Columns of one length: fixed ('q': what it is, if >= 0), statics ('d': the sum of what time does
    not change), since ('d': when its age began, < 0 not yet), who ('q': place in `fair`), last
    ('q'; < 0 a row that is not in use). `rising`: none gets less. GIL released. Cost: some ns a row.
    """
    cdef const int64_t[::1] f = fixed
    cdef const double[::1] s = statics
    cdef const double[::1] a = since
    cdef const int64_t[::1] w = who
    cdef const double[::1] share = fair
    cdef int64_t[::1] p = last
    cdef Py_ssize_t i, n = p.shape[0]
    cdef double t = now, longest = max_age, by_age = weight_age, by_share = weight_fair
    cdef double age, value, top = most
    cdef int64_t new
    cdef bint up = rising
    if not (f.shape[0] == s.shape[0] == a.shape[0] == w.shape[0] == n):
        raise ValueError("columns of different lengths")
    found = bytearray(n)
    cdef unsigned char[::1] changed = found
    with nogil:
        for i in range(n):
            if p[i] < 0 or f[i] >= 0:
                continue
            age = 0.0
            if a[i] >= 0.0 and t > a[i]:
                age = (t - a[i]) / longest
                if age > 1.0:
                    age = 1.0
            value = s[i] + by_age * age
            if 0 <= w[i] < share.shape[0]:
                value = value + by_share * share[w[i]]
            if value < 1.0:
                value = 1.0
            if value > top:
                value = top
            new = <int64_t>value
            if up and new < p[i]:
                continue
            if new != p[i]:
                p[i] = new
                changed[i] = 1
    return found
