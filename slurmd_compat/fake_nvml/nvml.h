/* The library's own state and what its parts share. ABI facts (sizes, versions, codes) are those
 * that pynvml states. */
#ifndef GSCHED_NVML_H
#define GSCHED_NVML_H

#include "topology.h"

#include <pthread.h>

#pragma GCC visibility push(hidden) /* only NVML's own names leave the library */

#define API __attribute__((visibility("default")))

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    MEMORY = 20,
    VERSION_MISMATCH = 25,
};

typedef struct handle *device_t; /* opaque: the address of a slot below */

struct handle {
    char slot;
};

/* One lock around everything: calls are short, and the topology may be replaced between two of
 * them. */
struct state {
    pthread_mutex_t lock;
    unsigned users; /* nvmlInit minus nvmlShutdown */
    char path[4096], node[128], why[512];
    long long stamp[4]; /* what stat said of the file read last */
    struct topology *top;
    unsigned persistence[GPUS_MAX], compute_mode[GPUS_MAX], power_limit_mw[GPUS_MAX],
        accounting[GPUS_MAX];
    struct handle devices[GPUS_MAX], mig_devices[GPUS_MAX][MIGS_MAX];
    struct handle gpu_instances[GPUS_MAX][MIGS_MAX], compute_instances[GPUS_MAX][MIGS_MAX];
};
extern struct state state;

int hold(void);
void release(int *held);
#define LOCKED __attribute__((cleanup(release), unused)) int held_ = hold()

/* The place of a handle in one of the arrays above, -1: not from it. */
int slot_of(const struct handle *h, const struct handle *array, int n);
/* The GPU of a device handle (of its parent for a MIG handle, with *mig set), or NULL and the
 * answer to give in *rc. */
struct gpu *gpu_of(device_t d, struct mig **mig, int *rc);
/* Opens a getter: g (and m, if it is a MIG handle) are set, or the function has returned the
 * answer. */
#define ANY_GPU(d)                         \
    LOCKED;                                \
    int rc_;                               \
    struct mig *m = NULL;                  \
    struct gpu *g = gpu_of((d), &m, &rc_); \
    if (!g)                                \
    return rc_
#define WHOLE_GPU(d) \
    ANY_GPU(d);      \
    if (m)           \
    return NOT_SUPPORTED
#define NEED(p)                      \
    do {                             \
        if (!(p))                    \
            return INVALID_ARGUMENT; \
    } while (0)

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
_Static_assert(sizeof(struct pci_info) == 68, "nvmlPciInfo_t");
void fill_pci(struct pci_info *p, unsigned domain, unsigned bus, unsigned device, unsigned function,
              unsigned id);

int give_text(char *out, unsigned size, const char *text);
int index_of(const struct gpu *g);

#pragma GCC visibility pop

#endif
