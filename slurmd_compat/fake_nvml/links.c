/* Where the GPUs are: CPUs and memory near them, PCIe distance, NVLink, NVLink fabric. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

/* ---- affinity ---- */

API int nvmlDeviceGetCpuAffinity(device_t d, unsigned size, unsigned long *out)
{
    ANY_GPU(d);
    NEED(out && size);
    for (unsigned i = 0; i < size; i++)
        out[i] = i < CPU_WORDS ? g->cpus[i] : 0;
    return OK;
}

API int nvmlDeviceGetCpuAffinityWithinScope(device_t d, unsigned size, unsigned long *out,
                                            unsigned scope)
{
    NEED(scope < 2);
    return nvmlDeviceGetCpuAffinity(d, size, out);
}

API int nvmlDeviceGetMemoryAffinity(device_t d, unsigned size, unsigned long *out, unsigned scope)
{
    ANY_GPU(d);
    NEED(out && size && scope < 2);
    memset(out, 0, size * sizeof *out);
    if (g->numa < 0 || (unsigned)g->numa >= 64 * size)
        return NOT_SUPPORTED;
    out[g->numa / 64] |= 1ul << g->numa % 64;
    return OK;
}

API int nvmlDeviceGetNumaNodeId(device_t d, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    if (g->gpu_numa < 0)
        return NOT_SUPPORTED;
    *out = (unsigned)g->gpu_numa;
    return OK;
}

/* ---- how the GPUs hang together ---- */

API int nvmlDeviceGetTopologyCommonAncestor(device_t d, device_t e, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    struct gpu *h = gpu_of(e, &m, &rc_);
    if (!h)
        return rc_;
    *out = (unsigned)topology_level(g, h);
    return OK;
}

API int nvmlDeviceOnSameBoard(device_t d, device_t e, int *out)
{
    WHOLE_GPU(d);
    NEED(out);
    struct gpu *h = gpu_of(e, &m, &rc_);
    if (!h)
        return rc_;
    *out = g == h;
    return OK;
}

static int give_devices(const struct gpu *const *found, unsigned n, unsigned *count, device_t *out)
{
    unsigned room = *count;
    *count = n;
    if (!out || room == 0)
        return OK; /* the first of two calls */
    if (room < n)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++)
        out[i] = &state.devices[index_of(found[i])];
    return OK;
}

API int nvmlDeviceGetTopologyNearestGpus(device_t d, unsigned level, unsigned *count, device_t *out)
{
    const struct gpu *found[GPUS_MAX];
    unsigned n = 0;
    WHOLE_GPU(d);
    NEED(count);
    for (unsigned i = 0; i < state.top->ngpus; i++) {
        const struct gpu *h = &state.top->gpus[i];
        if (h != g && !h->error && (unsigned)topology_level(g, h) == level)
            found[n++] = h;
    }
    return give_devices(found, n, count, out);
}

API int nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, device_t *out)
{
    const struct gpu *found[GPUS_MAX];
    unsigned n = 0;
    LOCKED;
    if (!state.users)
        return UNINITIALIZED;
    NEED(count && cpu < CPU_WORDS * 64);
    for (unsigned i = 0; i < state.top->ngpus; i++) {
        const struct gpu *h = &state.top->gpus[i];
        if (!h->error && h->cpus[cpu / 64] >> cpu % 64 & 1)
            found[n++] = h;
    }
    return give_devices(found, n, count, out);
}

static const struct link *link_at(const struct gpu *g, unsigned link, int *rc)
{
    /* A GPU in MIG mode has no NVLink and no peers. */
    *rc = link >= LINKS_MAX                               ? INVALID_ARGUMENT
          : g->links[link].to == LINK_NONE || g->mig_mode ? NOT_SUPPORTED
                                                          : OK;
    return *rc == OK ? &g->links[link] : NULL;
}

#define LINK(d, number)                                \
    WHOLE_GPU(d);                                      \
    NEED(out);                                         \
    const struct link *l = link_at(g, (number), &rc_); \
    if (!l)                                            \
    return rc_

API int nvmlDeviceGetNvLinkState(device_t d, unsigned link, unsigned *out)
{
    LINK(d, link);
    *out = !l->down && !(l->to == LINK_GPU && state.top->gpus[l->peer].error);
    return OK;
}

API int nvmlDeviceGetNvLinkVersion(device_t d, unsigned link, unsigned *out)
{
    LINK(d, link);
    *out = state.top->nlinks_version;
    return OK;
}

API int nvmlDeviceGetNvLinkCapability(device_t d, unsigned link, unsigned capability, unsigned *out)
{
    LINK(d, link);
    NEED(capability < 6);
    *out = capability != 4; /* all but an SLI bridge */
    return OK;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(device_t d, unsigned link, unsigned *out)
{
    LINK(d, link);
    *out = l->to == LINK_GPU ? 0 : 2;
    return OK;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t d, unsigned link, struct pci_info *out)
{
    LINK(d, link);
    if (l->to == LINK_GPU) {
        const struct gpu *h = &state.top->gpus[l->peer];
        fill_pci(out, h->domain, h->bus_no, h->device, h->function, h->pci_id);
    } else {
        unsigned v[4] = {0, 0, 0, 0};
        if (sscanf(state.top->switches[l->peer], "%8x:%2x:%2x.%1x", &v[0], &v[1], &v[2], &v[3]) !=
            4)
            v[1] = l->peer;
        fill_pci(out, v[0], v[1], v[2], v[3], 0x22a310de);
    }
    return OK;
}

static unsigned common_links(const struct gpu *a, const struct gpu *b)
{
    unsigned direct = 0, up_a = 0, up_b = 0;
    for (int i = 0; i < LINKS_MAX; i++) {
        direct += a->links[i].to == LINK_GPU && a->links[i].peer == (unsigned)index_of(b) &&
                  !a->links[i].down;
        up_a += a->links[i].to == LINK_SWITCH && !a->links[i].down;
        up_b += b->links[i].to == LINK_SWITCH && !b->links[i].down;
    }
    return direct + (up_a < up_b ? up_a : up_b);
}

API int nvmlDeviceGetP2PStatus(device_t d, device_t e, unsigned what, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out && what <= 4);
    struct gpu *h = gpu_of(e, &m, &rc_);
    if (!h)
        return rc_;
    bool linked = g != h && !g->mig_mode && !h->mig_mode && common_links(g, h) > 0;
    bool near = topology_level(g, h) <= 30 && !g->mig_mode && !h->mig_mode;
    *out = linked || (near && (what == 0 || what == 1 || what == 4)) ? 0 : 5;
    return OK;
}

struct fabric {
    uint8_t cluster[16];
    int status;
    unsigned clique;
    uint8_t state;
};
_Static_assert(sizeof(struct fabric) == 28, "nvmlGpuFabricInfo_t");

static struct fabric fabric_of(const struct gpu *g)
{
    struct fabric f = {.status = OK,
                       .clique = g->fabric_clique,
                       .state = g->has_fabric ? (uint8_t)g->fabric_state : 0};
    memcpy(f.cluster, g->fabric_cluster, 16);
    return f;
}

API int nvmlDeviceGetGpuFabricInfo(device_t d, struct fabric *out)
{
    WHOLE_GPU(d);
    NEED(out);
    memset(out, 0, sizeof *out);
    *out = fabric_of(g);
    return OK;
}

API int nvmlDeviceGetGpuFabricInfoV(device_t d, unsigned *out)
{
    WHOLE_GPU(d);
    NEED(out);
    unsigned version = *out;
    if (version != 0x02000024 && version != 0x03000028)
        return VERSION_MISMATCH;
    struct fabric f = fabric_of(g);
    memset(out + 1, 0, (version & 0xffff) - 4);
    memcpy(out + 1, f.cluster, 16);
    out[5] = (unsigned)f.status;
    out[6] = f.clique;
    out[7] = f.state;
    return OK; /* no health mask: every part "not supported" */
}
