/* How a GPU is doing: memory, load, temperature, clocks, errors. */
#include "nvml.h"

#include <string.h>

/* ---- memory, load, temperature, clocks ---- */

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct memory_v2) == 40, "nvmlMemory_v2_t");

static void amounts(const struct gpu *g, const struct mig *m, struct memory_v2 *out)
{
    const unsigned long long mib = 1ull << 20;
    uint64_t total = m ? m->mem_mib : g->mem_mib, used = m ? 0 : g->used_mib,
             reserved = m ? 0 : g->reserved_mib;
    for (unsigned i = 0; m && i < g->nprocs; i++)
        if (g->procs[i].gi == m->gi && g->procs[i].ci == m->ci)
            used += g->procs[i].mem_mib;
    if (reserved > total)
        reserved = total;
    if (used > total - reserved)
        used = total - reserved;
    out->total = total * mib;
    out->reserved = reserved * mib;
    out->used = used * mib;
    out->free = (total - reserved - used) * mib;
}

API int nvmlDeviceGetMemoryInfo(device_t d, struct memory *out)
{
    struct memory_v2 a;
    ANY_GPU(d);
    NEED(out);
    amounts(g, m, &a);
    *out = (struct memory){.total = a.total, .free = a.free, .used = a.used + a.reserved};
    return OK;
}

API int nvmlDeviceGetMemoryInfo_v2(device_t d, struct memory_v2 *out)
{
    ANY_GPU(d);
    NEED(out);
    if (out->version != 0x02000028)
        return VERSION_MISMATCH;
    amounts(g, m, out);
    return OK;
}

API int nvmlDeviceGetBAR1MemoryInfo(device_t d, struct memory *out)
{
    WHOLE_GPU(d);
    NEED(out);
    unsigned long long total = 1ull << 20;
    while (total < g->mem_mib << 20)
        total <<= 1;
    *out = (struct memory){.total = total, .free = total - (1ull << 20), .used = 1ull << 20};
    return OK;
}

API int nvmlDeviceGetUtilizationRates(device_t d, unsigned out[2])
{
    WHOLE_GPU(
        d); /* as on the real thing there is none for a MIG device, nor for a GPU in MIG mode */
    NEED(out);
    if (g->mig_mode)
        return NOT_SUPPORTED;
    out[0] = g->util;
    out[1] = g->mem_util;
    return OK;
}

API int nvmlDeviceGetTemperature(device_t d, unsigned sensor, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out && sensor == 0);
    *out = g->temp;
    return OK;
}

struct temperature {
    unsigned version, sensor;
    int value;
};

API int nvmlDeviceGetTemperatureV(device_t d, struct temperature *out)
{
    WHOLE_GPU(d);
    NEED(out);
    if (out->version != 0x0100000c)
        return VERSION_MISMATCH;
    NEED(out->sensor == 0);
    out->value = (int)g->temp;
    return OK;
}

API int nvmlDeviceGetTemperatureThreshold(device_t d, unsigned which, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    if (which > 3)
        return NOT_SUPPORTED;
    *out = (const unsigned[]){92, 89, 95, 87}[which];
    return OK;
}

static int clock_of(const struct gpu *g, unsigned domain, bool max, unsigned *out)
{
    NEED(out && domain < 4); /* graphics, SM, memory, video */
    *out = domain == 2 ? g->mem_clock : max ? g->clock_max : g->clock;
    return OK;
}

API int nvmlDeviceGetClockInfo(device_t d, unsigned domain, unsigned *out)
{
    WHOLE_GPU(d);
    return clock_of(g, domain, false, out);
}

API int nvmlDeviceGetMaxClockInfo(device_t d, unsigned domain, unsigned *out)
{
    WHOLE_GPU(d);
    return clock_of(g, domain, true, out);
}

API int nvmlDeviceGetClock(device_t d, unsigned domain, unsigned id, unsigned *out)
{
    WHOLE_GPU(d);
    return clock_of(g, domain, id != 0, out);
}

API int nvmlDeviceGetSupportedMemoryClocks(device_t d, unsigned *count, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(count);
    unsigned room = *count;
    *count = 1;
    if (room < 1 || !out)
        return INSUFFICIENT_SIZE;
    *out = g->mem_clock;
    return OK;
}

API int nvmlDeviceGetSupportedGraphicsClocks(device_t d, unsigned mem, unsigned *count,
                                             unsigned *out)
{
    WHOLE_GPU(d);
    NEED(count);
    if (mem != g->mem_clock)
        return NOT_FOUND;
    unsigned room = *count, n = g->clock_max >= 210 ? (g->clock_max - 210) / 15 + 1 : 1;
    *count = n;
    if (room < n || !out)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++)
        out[i] = g->clock_max - 15 * i;
    return OK;
}

/* ---- errors of the memory ---- */

API int nvmlDeviceGetEccMode(device_t d, unsigned *current, unsigned *pending)
{
    WHOLE_GPU(d);
    NEED(current && pending);
    *current = *pending = g->ecc;
    return OK;
}

API int nvmlDeviceGetTotalEccErrors(device_t d, unsigned type, unsigned counter,
                                    unsigned long long *out)
{
    WHOLE_GPU(d);
    NEED(out && type < 2 && counter < 2);
    if (!g->ecc)
        return NOT_SUPPORTED;
    *out = type ? g->ecc_uncorrected : g->ecc_corrected;
    return OK;
}

API int nvmlDeviceGetMemoryErrorCounter(device_t d, unsigned type, unsigned counter, unsigned where,
                                        unsigned long long *out)
{
    if (where != 2 && where < 8) { /* all errors of the file are those of the device memory */
        WHOLE_GPU(d);
        NEED(out && type < 2 && counter < 2);
        *out = 0;
        return g->ecc ? OK : NOT_SUPPORTED;
    }
    return where == 2 ? nvmlDeviceGetTotalEccErrors(d, type, counter, out) : INVALID_ARGUMENT;
}

API int nvmlDeviceGetRemappedRows(device_t d, unsigned *corrected, unsigned *uncorrected,
                                  unsigned *pending, unsigned *failure)
{
    WHOLE_GPU(d);
    NEED(corrected && uncorrected && pending && failure);
    *corrected = g->remapped[0];
    *uncorrected = g->remapped[1];
    *pending = g->remapped[2];
    *failure = g->remapped[3];
    return OK;
}

API int nvmlDeviceGetRetiredPages(device_t d, unsigned cause, unsigned *count,
                                  unsigned long long *out)
{
    WHOLE_GPU(d);
    NEED(count && cause < 2);
    unsigned room = *count, n = cause == 1 ? g->nretired : 0; /* double bit errors */
    *count = n;
    if (room < n || (n && !out))
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++)
        out[i] = g->retired[i];
    return OK;
}
