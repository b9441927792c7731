/* MIG: devices inside a device, GPU instances and compute instances. What is in the file is there;
 * nothing can be made. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

API int nvmlDeviceGetMigMode(device_t d, unsigned *current, unsigned *pending)
{
    WHOLE_GPU(d);
    NEED(current && pending);
    if (!g->mig_capable)
        return NOT_SUPPORTED;
    *current = *pending = g->mig_mode;
    return OK;
}

API int nvmlDeviceGetMaxMigDeviceCount(device_t d, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    *out = g->mig_capable ? 7 : 0;
    return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned index, device_t *out)
{
    WHOLE_GPU(d);
    NEED(out && index < 7);
    if (!g->mig_capable || !g->mig_mode)
        return NOT_SUPPORTED;
    if (index >= g->nmigs)
        return NOT_FOUND;
    *out = &state.mig_devices[index_of(g)][index];
    return OK;
}

API int nvmlDeviceIsMigDeviceHandle(device_t d, unsigned *out)
{
    ANY_GPU(d);
    NEED(out);
    *out = m != NULL;
    return OK;
}

#define OF_MIG(d) \
    ANY_GPU(d);   \
    NEED(out);    \
    if (!m)       \
    return INVALID_ARGUMENT

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t d, device_t *out)
{
    OF_MIG(d);
    *out = &state.devices[index_of(g)];
    return OK;
}

API int nvmlDeviceGetGpuInstanceId(device_t d, unsigned *out)
{
    OF_MIG(d);
    *out = m->gi;
    return OK;
}

API int nvmlDeviceGetComputeInstanceId(device_t d, unsigned *out)
{
    OF_MIG(d);
    *out = m->ci;
    return OK;
}

struct attributes {
    unsigned sms, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long mem_mib;
};
_Static_assert(sizeof(struct attributes) == 40, "nvmlDeviceAttributes_t");

API int nvmlDeviceGetAttributes_v2(device_t d, struct attributes *out)
{
    OF_MIG(d);
    memset(out, 0, sizeof *out);
    out->sms = m->sms;
    out->copy = m->slices;
    out->decoder = m->slices / 2;
    out->gi_slices = out->ci_slices = m->slices;
    out->mem_mib = m->mem_mib;
    return OK;
}

/* An instance handle: its place k in the GPU's list, or the answer to give. */
static struct gpu *instance(const struct handle *h, const struct handle *array, struct mig **m,
                            int *rc)
{
    int k = slot_of(h, array, GPUS_MAX * MIGS_MAX);
    *rc = state.users ? INVALID_ARGUMENT : UNINITIALIZED;
    if (!state.users || k < 0)
        return NULL;
    return gpu_of(&state.mig_devices[k / MIGS_MAX][k % MIGS_MAX], m, rc);
}

API int nvmlDeviceGetGpuInstanceById(device_t d, unsigned id, device_t *out)
{
    WHOLE_GPU(d);
    NEED(out);
    for (unsigned k = 0; k < g->nmigs; k++)
        if (g->migs[k].gi == id) {
            *out = &state.gpu_instances[index_of(g)][k];
            return OK;
        }
    return g->mig_capable ? NOT_FOUND : NOT_SUPPORTED;
}

API int nvmlDeviceGetGpuInstances(device_t d, unsigned profile, device_t *out, unsigned *count)
{
    WHOLE_GPU(d);
    NEED(count);
    if (!g->mig_mode)
        return NOT_SUPPORTED;
    *count = 0;
    for (unsigned k = 0; k < g->nmigs; k++) {
        bool first = true; /* several compute instances share one GPU instance */
        for (unsigned j = 0; j < k; j++)
            first = first && g->migs[j].gi != g->migs[k].gi;
        if (first && g->migs[k].profile == profile && out)
            out[(*count)++] = &state.gpu_instances[index_of(g)][k];
    }
    return OK;
}

struct gpu_instance_info {
    device_t device;
    unsigned id, profile, start, size;
};
_Static_assert(sizeof(struct gpu_instance_info) == 24, "nvmlGpuInstanceInfo_t");

API int nvmlGpuInstanceGetInfo(device_t i, struct gpu_instance_info *out)
{
    LOCKED;
    struct mig *m = NULL;
    int rc;
    struct gpu *g = instance(i, &state.gpu_instances[0][0], &m, &rc);
    if (!g)
        return rc;
    NEED(out);
    *out = (struct gpu_instance_info){&state.devices[index_of(g)], m->gi, m->profile, m->start,
                                      m->size};
    return OK;
}

API int nvmlGpuInstanceGetComputeInstanceById(device_t i, unsigned id, device_t *out)
{
    LOCKED;
    struct mig *m = NULL;
    int rc;
    struct gpu *g = instance(i, &state.gpu_instances[0][0], &m, &rc);
    if (!g)
        return rc;
    NEED(out);
    for (unsigned k = 0; k < g->nmigs; k++)
        if (g->migs[k].gi == m->gi && g->migs[k].ci == id) {
            *out = &state.compute_instances[index_of(g)][k];
            return OK;
        }
    return NOT_FOUND;
}

API int nvmlGpuInstanceGetComputeInstances(device_t i, unsigned profile, device_t *out,
                                           unsigned *count)
{
    (void)profile; /* one compute instance takes its GPU instance whole here */
    LOCKED;
    struct mig *m = NULL;
    int rc;
    struct gpu *g = instance(i, &state.gpu_instances[0][0], &m, &rc);
    if (!g)
        return rc;
    NEED(count);
    *count = 0;
    for (unsigned k = 0; k < g->nmigs && out; k++)
        if (g->migs[k].gi == m->gi)
            out[(*count)++] = &state.compute_instances[index_of(g)][k];
    return OK;
}

struct compute_instance_info {
    device_t device, gpu_instance;
    unsigned id, profile, start, size;
};
_Static_assert(sizeof(struct compute_instance_info) == 32, "nvmlComputeInstanceInfo_t");

API int nvmlComputeInstanceGetInfo_v2(device_t i, struct compute_instance_info *out)
{
    LOCKED;
    struct mig *m = NULL;
    int rc;
    struct gpu *g = instance(i, &state.compute_instances[0][0], &m, &rc);
    if (!g)
        return rc;
    NEED(out);
    int x = index_of(g);
    static const unsigned profile_of[9] = {0, 0, 1, 2, 3,
                                           3, 6, 4, 5}; /* NVML_COMPUTE_INSTANCE_PROFILE_n_SLICE */
    *out = (struct compute_instance_info){&state.devices[x],
                                          &state.gpu_instances[x][m - g->migs],
                                          m->ci,
                                          profile_of[m->slices < 9 ? m->slices : 0],
                                          0,
                                          m->slices};
    return OK;
}

struct profile_info {
    unsigned id, p2p, slices, count, sms, copy, decoder, encoder, jpeg, ofa;
    unsigned long long mem_mib;
};
_Static_assert(sizeof(struct profile_info) == 48, "nvmlGpuInstanceProfileInfo_t");
struct profile_info_v2 {
    unsigned version, id, p2p, slices, count, sms, copy, decoder, encoder, jpeg, ofa;
    unsigned long long mem_mib;
    char name[96];
};
_Static_assert(sizeof(struct profile_info_v2) == 152, "nvmlGpuInstanceProfileInfo_v2_t");

static const struct profile *profile_at(unsigned index)
{
    for (unsigned i = 0; i < state.top->nprofiles; i++)
        if (state.top->profiles[i].index == index)
            return &state.top->profiles[i];
    return NULL;
}

API int nvmlDeviceGetGpuInstanceProfileInfo(device_t d, unsigned index, struct profile_info *out)
{
    WHOLE_GPU(d);
    NEED(out && index < PROFILES_MAX);
    const struct profile *p = g->mig_capable ? profile_at(index) : NULL;
    if (!p)
        return NOT_SUPPORTED;
    *out = (struct profile_info){.id = p->id,
                                 .slices = p->slices,
                                 .count = p->count,
                                 .sms = p->sms,
                                 .copy = p->slices,
                                 .mem_mib = p->mem_mib};
    return OK;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(device_t d, unsigned index,
                                             struct profile_info_v2 *out)
{
    WHOLE_GPU(d);
    NEED(out && index < PROFILES_MAX);
    if (out->version != 0x02000098)
        return VERSION_MISMATCH;
    const struct profile *p = g->mig_capable ? profile_at(index) : NULL;
    if (!p)
        return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->version = 0x02000098;
    out->id = p->id;
    out->slices = p->slices;
    out->count = p->count;
    out->sms = p->sms;
    out->copy = p->slices;
    out->mem_mib = p->mem_mib;
    snprintf(out->name, sizeof out->name, "MIG %s", p->name);
    return OK;
}

API int nvmlDeviceGetGpuInstanceRemainingCapacity(device_t d, unsigned id, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    for (unsigned i = 0; g->mig_capable && i < state.top->nprofiles; i++) {
        const struct profile *p = &state.top->profiles[i];
        unsigned used = 0;
        if (p->id != id)
            continue;
        for (unsigned k = 0; k < g->nmigs; k++)
            used += g->migs[k].slices;
        *out = p->slices && used < 7 ? (7 - used) / p->slices : 0;
        return OK;
    }
    return NOT_SUPPORTED;
}
