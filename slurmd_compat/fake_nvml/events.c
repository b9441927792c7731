/* Processes on the GPUs, and Xid events from a file that tests write to. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
};
_Static_assert(sizeof(struct process) == 24, "nvmlProcessInfo_t");

static int list_processes(device_t d, bool graphics, unsigned *count, struct process *out)
{
    ANY_GPU(d);
    NEED(count);
    unsigned room = *count, n = 0;
    for (unsigned i = 0; i < g->nprocs; i++) {
        const struct proc *p = &g->procs[i];
        if (p->graphics != graphics || (m && (p->gi != m->gi || p->ci != m->ci)))
            continue;
        if (out && n < room)
            out[n] = (struct process){p->pid, p->mem_mib << 20, p->gi, p->ci};
        n++;
    }
    *count = n;
    return n > room || (n && !out) ? INSUFFICIENT_SIZE : OK;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *count, struct process *out)
{
    return list_processes(d, false, count, out);
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t d, unsigned *count, struct process *out)
{
    return list_processes(d, true, count, out);
}

API int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t d, unsigned *count, struct process *out)
{
    (void)out;
    ANY_GPU(d);
    NEED(count);
    *count = 0;
    return OK;
}

struct sample {
    unsigned pid;
    unsigned long long stamp;
    unsigned sm, mem, enc, dec;
};
_Static_assert(sizeof(struct sample) == 32, "nvmlProcessUtilizationSample_t");

API int nvmlDeviceGetProcessUtilization(device_t d, struct sample *out, unsigned *count,
                                        unsigned long long since)
{
    WHOLE_GPU(d);
    NEED(count);
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    unsigned long long now =
        (unsigned long long)ts.tv_sec * 1000000u + (unsigned long long)ts.tv_nsec / 1000u;
    unsigned room = *count, n = since > now ? 0 : g->nprocs;
    *count = n;
    if (!n)
        return NOT_FOUND;
    if (!out || room < n)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++) {
        unsigned share = g->mem_mib ? (unsigned)(100 * g->procs[i].mem_mib / g->mem_mib) : 0;
        out[i] = (struct sample){g->procs[i].pid, now, g->procs[i].util, share, 0, 0};
    }
    return OK;
}

/* ---- accounting: of the processes in the file, none of the past ---- */

struct account {
    unsigned gpu, mem;
    unsigned long long max_memory, time, start;
    unsigned running, reserved[5];
};
_Static_assert(sizeof(struct account) == 56, "nvmlAccountingStats_t");

API int nvmlDeviceGetAccountingMode(device_t d, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    *out = state.accounting[index_of(g)];
    return OK;
}

API int nvmlDeviceGetAccountingBufferSize(device_t d, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    *out = PROCS_MAX;
    return OK;
}

API int nvmlDeviceGetAccountingPids(device_t d, unsigned *count, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(count);
    unsigned room = *count;
    *count = g->nprocs;
    if (room < g->nprocs || (g->nprocs && !out))
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < g->nprocs; i++)
        out[i] = g->procs[i].pid;
    return OK;
}

API int nvmlDeviceGetAccountingStats(device_t d, unsigned pid, struct account *out)
{
    WHOLE_GPU(d);
    NEED(out);
    for (unsigned i = 0; i < g->nprocs; i++)
        if (g->procs[i].pid == pid) {
            *out = (struct account){
                .gpu = g->procs[i].util, .max_memory = g->procs[i].mem_mib << 20, .running = 1};
            return OK;
        }
    return NOT_FOUND;
}

/* ---- events ---- */

struct event_set {
    unsigned long long types[GPUS_MAX]; /* what each GPU is registered for */
    long offset;            /* how far the file has been read; -1: nothing registered yet */
    struct event_set *next; /* list of the living ones, to tell a good handle */
};
static struct event_set *sets;

static void events_path(char *out, size_t size)
{
    const char *given = getenv("GSCHED_NVML_EVENTS");
    if (given && *given)
        snprintf(out, size, "%s", given);
    else
        snprintf(out, size, "%s.xid", state.path);
}

static bool living(const struct event_set *s)
{
    for (const struct event_set *x = sets; x; x = x->next)
        if (x == s)
            return true;
    return false;
}

API int nvmlEventSetCreate(struct event_set **out)
{
    LOCKED;
    if (!state.users)
        return UNINITIALIZED;
    NEED(out);
    struct event_set *s = calloc(1, sizeof *s);
    if (!s)
        return MEMORY;
    s->offset = -1;
    s->next = sets;
    sets = s;
    *out = s;
    return OK;
}

API int nvmlEventSetFree(struct event_set *s)
{
    LOCKED;
    for (struct event_set **at = &sets; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            free(s);
            return OK;
        }
    return INVALID_ARGUMENT;
}

API int nvmlDeviceGetSupportedEventTypes(device_t d, unsigned long long *out)
{
    WHOLE_GPU(d);
    NEED(out);
    *out = 0x1 | 0x2 | 0x8 | 0x4000 | 0x8000;
    return OK;
}

API int nvmlDeviceRegisterEvents(device_t d, unsigned long long types, struct event_set *s)
{
    char path[4200];
    struct stat st;
    WHOLE_GPU(d);
    NEED(living(s) && types);
    if (types & ~0xffffull)
        return NOT_SUPPORTED;
    s->types[index_of(g)] |= types;
    if (s->offset < 0) { /* only what happens from now on */
        events_path(path, sizeof path);
        s->offset = stat(path, &st) ? 0 : (long)st.st_size;
    }
    return OK;
}

struct event {
    device_t device;
    unsigned long long type, data;
    unsigned gi, ci;
};
_Static_assert(sizeof(struct event) == 32, "nvmlEventData_t");

/* The next line of the file that concerns this set. */
static bool next_event(struct event_set *s, struct event *out)
{
    char path[4200], line[128];
    bool found = false;
    events_path(path, sizeof path);
    FILE *f = s->offset >= 0 ? fopen(path, "re") : NULL;
    if (!f)
        return false;
    if (fseek(f, s->offset, SEEK_SET) == 0)
        while (!found && fgets(line, sizeof line, f) && strchr(line, '\n')) {
            unsigned index, xid, type = 8;
            s->offset = ftell(f);
            if (sscanf(line, "%u %u %x", &index, &xid, &type) < 2 || index >= state.top->ngpus ||
                !(s->types[index] & type))
                continue;
            *out = (struct event){&state.devices[index], type, xid, 0xffffffff, 0xffffffff};
            found = true;
        }
    fclose(f);
    return found;
}

API int nvmlEventSetWait_v2(struct event_set *s, struct event *out, unsigned timeout_ms)
{
    NEED(out);
    for (unsigned waited = 0;; waited += 5) {
        int rc = TIMEOUT;
        {
            LOCKED; /* not while sleeping: others may ask meanwhile */
            if (!state.users)
                rc = UNINITIALIZED;
            else if (!living(s))
                rc = INVALID_ARGUMENT;
            else if (next_event(s, out))
                rc = OK;
        }
        if (rc != TIMEOUT || waited >= timeout_ms)
            return rc;
        struct timespec ts = {.tv_nsec = 5000000};
        nanosleep(&ts, NULL);
    }
}
