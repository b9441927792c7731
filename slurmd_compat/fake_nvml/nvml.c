/* The fake libnvidia-ml.so.1: start, handles, and what is asked of a GPU as a whole.
 * GSCHED_NVML_TOPOLOGY names the file that describes the machine (format: topology.h),
 * GSCHED_NVML_NODE is mixed into the UUIDs. The file may be replaced while programs run: the next
 * call sees the new one (a bad one is ignored). */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct state state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool changed(void)
{
    struct stat st;
    if (stat(state.path, &st))
        return false; /* between unlink and rename, or gone: what was read stays true */
    long long now[4] = {(long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                        st.st_mtim.tv_nsec};
    if (!memcmp(now, state.stamp, sizeof now))
        return false;
    memcpy(state.stamp, now, sizeof now);
    return true;
}

static void refresh(void)
{
    struct topology *fresh = changed() ? malloc(sizeof *fresh) : NULL;
    if (!fresh)
        return;
    if (topology_load(fresh, state.path, state.node, state.why, sizeof state.why)) {
        free(fresh);
        return;
    }
    free(state.top);
    state.top = fresh;
}

int hold(void)
{
    pthread_mutex_lock(&state.lock);
    if (state.users)
        refresh();
    return 1;
}

void release(int *held)
{
    (void)held;
    pthread_mutex_unlock(&state.lock);
}

int slot_of(const struct handle *h, const struct handle *array, int n)
{
    return h >= array && h < array + n ? (int)(h - array) : -1;
}

int index_of(const struct gpu *g)
{
    return (int)(g - state.top->gpus);
}

struct gpu *gpu_of(device_t d, struct mig **mig, int *rc)
{
    *rc = UNINITIALIZED;
    if (!state.users)
        return NULL;
    *rc = INVALID_ARGUMENT;
    int i = slot_of(d, state.devices, GPUS_MAX), k = -1;
    if (i < 0 && (k = slot_of(d, &state.mig_devices[0][0], GPUS_MAX * MIGS_MAX)) >= 0) {
        i = k / MIGS_MAX;
        k %= MIGS_MAX;
    }
    if (i < 0 || (unsigned)i >= state.top->ngpus)
        return NULL;
    struct gpu *g = &state.top->gpus[i];
    if (g->error) {
        *rc = g->error;
        return NULL;
    }
    if (k >= 0) {
        if ((unsigned)k >= g->nmigs)
            return NULL;
        *mig = &g->migs[k];
    }
    *rc = OK;
    return g;
}

int give_text(char *out, unsigned size, const char *text)
{
    NEED(out);
    size_t n = strlen(text);
    if (size < n + 1)
        return INSUFFICIENT_SIZE;
    memcpy(out, text, n + 1);
    return OK;
}

/* ---- start ---- */

API int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&state.lock);
    int rc = OK;
    if (!state.users) {
        const char *path = getenv("GSCHED_NVML_TOPOLOGY"), *node = getenv("GSCHED_NVML_NODE");
        snprintf(state.path, sizeof state.path, "%s", path ? path : "");
        snprintf(state.node, sizeof state.node, "%s", node ? node : "");
        memset(state.stamp, 0, sizeof state.stamp);
        free(state.top);
        state.top = NULL;
        *state.why = 0;
        changed();
        if (!*state.path)
            snprintf(state.why, sizeof state.why, "GSCHED_NVML_TOPOLOGY is not set");
        else if ((state.top = malloc(sizeof *state.top)) &&
                 topology_load(state.top, state.path, state.node, state.why, sizeof state.why)) {
            free(state.top);
            state.top = NULL;
        }
        if (!state.top)
            rc = DRIVER_NOT_LOADED;
        memset(state.persistence, 0, sizeof state.persistence);
        memset(state.compute_mode, 0, sizeof state.compute_mode);
        memset(state.power_limit_mw, 0, sizeof state.power_limit_mw);
        memset(state.accounting, 0, sizeof state.accounting);
    }
    if (rc == OK)
        state.users++;
    pthread_mutex_unlock(&state.lock);
    return rc;
}

API int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API int nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

API int nvmlShutdown(void)
{
    pthread_mutex_lock(&state.lock);
    int rc = state.users ? OK : UNINITIALIZED;
    if (state.users)
        state.users--;
    pthread_mutex_unlock(&state.lock);
    return rc;
}

/* Not NVML's: why the topology could not be read, in one sentence; "" when it could. */
API const char *gsched_nvml_problem(void)
{
    return state.why;
}

API const char *nvmlErrorString(int code)
{
    static const char *const texts[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "GPU access blocked by the operating system",
        "Driver/library version mismatch",
        "In use by another client",
        "Insufficient memory",
        "No data",
        "vGPU ECC not supported",
        "Insufficient resources",
        "Frequency not supported",
        "Argument version mismatch",
        "Deprecated",
        "Not ready",
        "GPU not found",
        "Invalid state",
        "Reset type not supported",
    };
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

API int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    LOCKED;
    return state.users ? give_text(out, size, state.top->driver) : UNINITIALIZED;
}

API int nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    LOCKED;
    char text[96];
    if (!state.users)
        return UNINITIALIZED;
    snprintf(text, sizeof text, "%d.%s", state.top->cuda / 1000, state.top->driver);
    return give_text(out, size, text);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    LOCKED;
    if (!state.users)
        return UNINITIALIZED;
    NEED(out);
    *out = state.top->cuda;
    return OK;
}

API int nvmlSystemGetCudaDriverVersion(int *out)
{
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
    char path[64], name[64] = "";
    NEED(out);
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return NOT_FOUND;
    if (fgets(name, sizeof name, f))
        name[strcspn(name, "\n")] = 0;
    fclose(f);
    return give_text(out, size, name);
}

/* ---- handles ---- */

API int nvmlDeviceGetCount_v2(unsigned *out)
{
    LOCKED;
    if (!state.users)
        return UNINITIALIZED;
    NEED(out);
    *out = state.top->ngpus;
    return OK;
}

static int handle_at(unsigned i, device_t *out)
{
    NEED(out);
    if (i >= state.top->ngpus)
        return INVALID_ARGUMENT;
    if (state.top->gpus[i].error)
        return state.top->gpus[i].error;
    *out = &state.devices[i];
    return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *out)
{
    LOCKED;
    return state.users ? handle_at(index, out) : UNINITIALIZED;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *out)
{
    LOCKED;
    if (!state.users)
        return UNINITIALIZED;
    NEED(uuid && out);
    for (unsigned i = 0; i < state.top->ngpus; i++) {
        struct gpu *g = &state.top->gpus[i];
        if (!strcmp(uuid, g->uuid))
            return handle_at(i, out);
        for (unsigned k = 0; k < g->nmigs; k++)
            if (!strcmp(uuid, g->migs[k].uuid)) {
                *out = &state.mig_devices[i][k];
                return g->error;
            }
    }
    return NOT_FOUND;
}

API int nvmlDeviceGetHandleBySerial(const char *serial, device_t *out)
{
    LOCKED;
    if (!state.users)
        return UNINITIALIZED;
    NEED(serial && out);
    for (unsigned i = 0; i < state.top->ngpus; i++)
        if (!strcmp(serial, state.top->gpus[i].serial))
            return handle_at(i, out);
    return NOT_FOUND;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device_t *out)
{
    LOCKED;
    unsigned v[4];
    if (!state.users)
        return UNINITIALIZED;
    NEED(bus && out && sscanf(bus, "%8x:%2x:%2x.%1x", &v[0], &v[1], &v[2], &v[3]) == 4);
    for (unsigned i = 0; i < state.top->ngpus; i++) {
        struct gpu *g = &state.top->gpus[i];
        if (g->domain == v[0] && g->bus_no == v[1] && g->device == v[2] && g->function == v[3])
            return handle_at(i, out);
    }
    return NOT_FOUND;
}

API int nvmlDeviceGetName(device_t d, char *out, unsigned size)
{
    char text[160];
    ANY_GPU(d);
    snprintf(text, sizeof text, m ? "%s MIG %s" : "%s", g->name, m ? m->name : "");
    return give_text(out, size, text);
}

API int nvmlDeviceGetUUID(device_t d, char *out, unsigned size)
{
    ANY_GPU(d);
    return give_text(out, size, m ? m->uuid : g->uuid);
}

API int nvmlDeviceGetSerial(device_t d, char *out, unsigned size)
{
    WHOLE_GPU(d);
    return give_text(out, size, g->serial);
}

API int nvmlDeviceGetVbiosVersion(device_t d, char *out, unsigned size)
{
    WHOLE_GPU(d);
    return give_text(out, size, g->vbios);
}

#define GETTER(function, type, check, value) \
    API int function(device_t d, type *out)  \
    {                                        \
        check(d);                            \
        NEED(out);                           \
        *out = (type)(value);                \
        return OK;                           \
    }

GETTER(nvmlDeviceGetIndex, unsigned, WHOLE_GPU, index_of(g))
GETTER(nvmlDeviceGetMinorNumber, unsigned, WHOLE_GPU, g->minor)
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, WHOLE_GPU, g->energy_mj)
GETTER(nvmlDeviceGetPowerUsage, unsigned, WHOLE_GPU, g->power_mw)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, WHOLE_GPU, g->reasons)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, WHOLE_GPU, g->reasons)
GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, WHOLE_GPU, g->reasons | 0x1ff)
GETTER(nvmlDeviceGetPerformanceState, unsigned, WHOLE_GPU, g->util ? 0 : 8)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, WHOLE_GPU,
       g->cc_major >= 9   ? 5
       : g->cc_major == 8 ? 4
                          : 3)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, WHOLE_GPU,
       g->cc_major >= 9   ? 5
       : g->cc_major == 8 ? 4
                          : 3)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, WHOLE_GPU, 16)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, WHOLE_GPU, 16)
GETTER(nvmlDeviceGetPersistenceMode, unsigned, WHOLE_GPU, state.persistence[index_of(g)])
GETTER(nvmlDeviceGetComputeMode, unsigned, WHOLE_GPU, state.compute_mode[index_of(g)])
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, WHOLE_GPU, g->retired_pending)

static unsigned power_limit(const struct gpu *g)
{
    unsigned set = state.power_limit_mw[index_of(g)];
    return set ? set : g->power_limit_mw;
}

GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, WHOLE_GPU, power_limit(g))
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, WHOLE_GPU, power_limit(g))
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, WHOLE_GPU, g->power_limit_mw)

API int nvmlDeviceGetPowerManagementLimitConstraints(device_t d, unsigned *low, unsigned *high)
{
    WHOLE_GPU(d);
    NEED(low && high);
    *low = g->power_limit_mw / 7 * 2;
    *high = g->power_limit_mw;
    return OK;
}

/* What only root may change; it lasts until the last user of the library is gone. */
#define SETTER(function, good, where)            \
    API int function(device_t d, unsigned value) \
    {                                            \
        WHOLE_GPU(d);                            \
        NEED(good);                              \
        if (geteuid() != 0)                      \
            return NO_PERMISSION;                \
        where[index_of(g)] = value;              \
        return OK;                               \
    }
SETTER(nvmlDeviceSetPersistenceMode, value <= 1, state.persistence)
SETTER(nvmlDeviceSetComputeMode, value <= 3, state.compute_mode)
SETTER(nvmlDeviceSetAccountingMode, value <= 1, state.accounting)
SETTER(nvmlDeviceSetPowerManagementLimit,
       value >= g->power_limit_mw / 7 * 2 && value <= g->power_limit_mw, state.power_limit_mw)

API int nvmlDeviceGetCudaComputeCapability(device_t d, int *major, int *minor)
{
    ANY_GPU(d);
    NEED(major && minor);
    *major = g->cc_major;
    *minor = g->cc_minor;
    return OK;
}

void fill_pci(struct pci_info *p, unsigned domain, unsigned bus, unsigned device, unsigned function,
              unsigned id)
{
    memset(p, 0, sizeof *p);
    snprintf(p->legacy, sizeof p->legacy, "%04X:%02X:%02X.%X", domain & 0xffff, bus & 255,
             device & 255, function & 15);
    snprintf(p->bus_id, sizeof p->bus_id, "%08X:%02X:%02X.%X", domain, bus & 255, device & 255,
             function & 15);
    p->domain = domain;
    p->bus = bus;
    p->device = device;
    p->id = p->subsystem = id;
}

API int nvmlDeviceGetPciInfo_v3(device_t d, struct pci_info *out)
{
    WHOLE_GPU(d);
    NEED(out);
    fill_pci(out, g->domain, g->bus_no, g->device, g->function, g->pci_id);
    return OK;
}
