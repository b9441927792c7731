/* What a topology file says, as the functions of the library need it.
 *
 * The file (JSON). Everything but "gpus" may be missing; a key of "defaults" holds for every GPU
 * that does not have it. Keys that are not named here are passed over.
 *
 *   driver, cuda         texts of the driver version; cuda as 12040
 *   gpus: [ {            in the order of their index
 *     bus                "0000:1b:00.0" (required)
 *     name, uuid, serial, minor, cc ("9.0"), pci_id, vbios
 *     numa, cpus         NUMA node and CPU list near it
 *     path               "numa/host bridge/root port/switch": how long the common prefix of two
 *                        GPUs is tells SYS NODE PHB PXB PIX
 *     gpu_numa           NUMA node that the GPU itself is (coherent memory), else absent
 *     mem_mib, reserved_mib, used_mib
 *     util, mem_util (percent), temp (C), power_w, power_limit_w, energy_j
 *     clock_mhz, clock_max_mhz, mem_clock_mhz, reasons (bits of the clock event reasons)
 *     lost               true or an NVML error number: every question about this GPU is answered
 *                        with it (true: 15)
 *     ecc, ecc_corrected, ecc_uncorrected, retired: [addresses], retired_pending
 *     remapped           [correctable, uncorrectable, pending, failure]
 *     mig_capable, mig_mode
 *     mig                [{gi, ci, profile, start, size, slices, sms, mem_mib, name}]
 *     processes          [{pid, mem_mib, util, gi, ci, graphics}]
 *     links_down         [numbers of NVLinks that are down]
 *     fabric             {cluster (32 hex digits), clique, state}
 *   } ]
 *   nvlink               {version, links, switches: [bus ids], pairs: [[a, b, links], ...]}
 *   mig_profiles         [{index, id, slices, count, sms, mem_mib, name}]
 *
 * A file beside it with ".xid" behind its name (or the one that GSCHED_NVML_EVENTS names) raises
 * events: each new line "INDEX XID [EVENT-TYPE]" is one.
 */
#ifndef GSCHED_TOPOLOGY_H
#define GSCHED_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden) /* only NVML's own names leave the library */

#define GPUS_MAX 64
#define MIGS_MAX 8
#define LINKS_MAX 36
#define PROCS_MAX 128
#define PAGES_MAX 64
#define CPU_WORDS 64 /* 4096 CPUs */
#define PROFILES_MAX 18

struct mig {
    unsigned gi, ci, profile, start, size, slices, sms;
    uint64_t mem_mib;
    char name[32], uuid[48];
};

struct proc {
    unsigned pid, gi, ci, util;
    uint64_t mem_mib;
    bool graphics;
};

struct link {
    enum { LINK_NONE, LINK_GPU, LINK_SWITCH } to;
    unsigned peer; /* index of the GPU or the switch */
    bool down;
};

struct gpu {
    char name[96], uuid[48], serial[30], bus[20], vbios[32];
    char path[4][24];
    unsigned domain, bus_no, device, function, pci_id;
    int minor, numa, gpu_numa, cc_major, cc_minor;
    unsigned long cpus[CPU_WORDS];
    uint64_t mem_mib, reserved_mib, used_mib, energy_mj;
    unsigned util, mem_util, temp, power_mw, power_limit_mw, clock, clock_max, mem_clock;
    uint64_t reasons, ecc_corrected, ecc_uncorrected, retired[PAGES_MAX];
    unsigned nretired, retired_pending, remapped[4];
    int error; /* NVML's answer to everything about this GPU; 0: in good health */
    bool ecc, mig_capable, mig_mode, has_fabric;
    struct mig migs[MIGS_MAX];
    unsigned nmigs;
    struct proc procs[PROCS_MAX];
    unsigned nprocs;
    struct link links[LINKS_MAX];
    uint8_t fabric_cluster[16];
    unsigned fabric_clique, fabric_state;
};

struct profile {
    unsigned index, id, slices, count, sms;
    uint64_t mem_mib;
    char name[32];
};

struct topology {
    char driver[80];
    int cuda;
    unsigned ngpus, nlinks_version, nswitches, nprofiles;
    struct gpu gpus[GPUS_MAX];
    char switches[32][20];
    struct profile profiles[PROFILES_MAX];
};

/* Reads `path` into t; node is mixed into the UUIDs. 0, or -1 with a sentence in why (t is then
 * undefined). */
int topology_load(struct topology *t, const char *path, const char *node, char *why,
                  unsigned long why_size);
/* Same from text in memory. */
int topology_parse(struct topology *t, const char *text, unsigned long len, const char *node,
                   char *why, unsigned long why_size);
/* NVML's level of the common ancestor: 0 the same, 10 PIX, 20 PXB, 30 PHB, 40 NODE, 50 SYS. */
int topology_level(const struct gpu *a, const struct gpu *b);

#pragma GCC visibility pop

#endif
