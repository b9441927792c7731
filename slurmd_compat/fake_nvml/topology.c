#include "topology.h"

#include "json.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (4l << 20)

static double within(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

static uint64_t count(const struct json *o, const struct json *d, const char *key, double otherwise)
{
    return (uint64_t)within(json_number(o, d, key, otherwise), 0, 9e15);
}

static unsigned small(const struct json *o, const struct json *d, const char *key, double otherwise)
{
    return (unsigned)within(json_number(o, d, key, otherwise), 0, 4e9);
}

static int whole(const struct json *o, const struct json *d, const char *key, int otherwise)
{
    return (int)within(json_number(o, d, key, otherwise), -2e9, 2e9);
}

/* Stable over runs and machines, different for different texts; not a secret. */
static void digest(const char *const *texts, uint8_t out[16])
{
    uint64_t h[2] = {0xcbf29ce484222325u, 0x9ae16a3b2f90404fu};
    for (; *texts; texts++)
        for (const char *p = *texts;; p++) {
            for (int i = 0; i < 2; i++)
                h[i] = (h[i] ^ (uint8_t)*p ^ (uint64_t)i << 8) * 0x100000001b3u;
            if (!*p)
                break;
        }
    for (int i = 0; i < 2; i++) {
        uint64_t z = h[i] + 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        memcpy(out + 8 * i, &z, 8);
    }
}

static void make_uuid(char *out, size_t size, const char *prefix, const char *const *texts)
{
    uint8_t b[16];
    digest(texts, b);
    snprintf(out, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             prefix, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
             b[12], b[13], b[14], b[15]);
}

/* "0-55,112-167" into a bit mask; false if it is not such a list. */
static bool cpu_list(const char *text, unsigned long *mask)
{
    while (*text) {
        char *end;
        if (!isdigit((unsigned char)*text))
            return false;
        unsigned long a = strtoul(text, &end, 10), b = a;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return false;
            b = strtoul(end + 1, &end, 10);
        }
        if (b < a || b >= CPU_WORDS * 64ul || (*end && *end != ','))
            return false;
        for (unsigned long i = a; i <= b; i++)
            mask[i / 64] |= 1ul << i % 64;
        text = *end ? end + 1 : end;
    }
    return true;
}

static bool bus_id(const char *text, unsigned v[4])
{
    char rest;
    return sscanf(text, "%8x:%2x:%2x.%1x%c", &v[0], &v[1], &v[2], &v[3], &rest) == 4;
}

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

static void read_migs(struct gpu *g, const struct json *list, const char *node)
{
    if (!list || list->kind != JSON_LIST)
        return;
    for (const struct json *m = list->first; m && g->nmigs < MIGS_MAX; m = m->next) {
        struct mig *x = &g->migs[g->nmigs++];
        char where[48];
        x->gi = small(m, NULL, "gi", g->nmigs);
        x->ci = small(m, NULL, "ci", 0);
        x->profile = small(m, NULL, "profile", 0);
        x->start = small(m, NULL, "start", 0);
        x->size = small(m, NULL, "size", 1);
        x->slices = small(m, NULL, "slices", 1);
        x->sms = small(m, NULL, "sms", 14);
        x->mem_mib = count(m, NULL, "mem_mib", 4864);
        copy(x->name, sizeof x->name, json_text(m, NULL, "name", "1g.5gb"));
        snprintf(where, sizeof where, "%u/%u", x->gi, x->ci);
        make_uuid(x->uuid, sizeof x->uuid, "MIG",
                  (const char *const[]){"mig", node, g->uuid, where, NULL});
        const char *given = json_text(m, NULL, "uuid", NULL);
        if (given)
            copy(x->uuid, sizeof x->uuid, given);
    }
    g->mig_mode = g->mig_mode || g->nmigs > 0;
}

static void read_processes(struct gpu *g, const struct json *list)
{
    if (!list || list->kind != JSON_LIST)
        return;
    for (const struct json *p = list->first; p && g->nprocs < PROCS_MAX; p = p->next) {
        struct proc *x = &g->procs[g->nprocs++];
        x->pid = small(p, NULL, "pid", 0);
        x->mem_mib = count(p, NULL, "mem_mib", 0);
        x->util = small(p, NULL, "util", 0);
        x->gi = small(p, NULL, "gi", 4294967295.0);
        x->ci = small(p, NULL, "ci", 4294967295.0);
        x->graphics = json_number(p, NULL, "graphics", 0) != 0;
        g->used_mib += x->mem_mib;
    }
}

static void read_health(struct gpu *g, const struct json *o, const struct json *d)
{
    const struct json *lost = json_get(o, "lost");
    if (lost && lost->kind <= JSON_NUMBER && lost->number != 0)
        g->error = lost->kind == JSON_BOOL ? 15 : (int)within(lost->number, 1, 999);
    g->ecc = json_number(o, d, "ecc", 1) != 0;
    g->ecc_corrected = count(o, d, "ecc_corrected", 0);
    g->ecc_uncorrected = count(o, d, "ecc_uncorrected", 0);
    g->retired_pending = small(o, d, "retired_pending", 0);
    const struct json *list = json_get(o, "retired");
    if (list && list->kind == JSON_LIST)
        for (const struct json *m = list->first; m && g->nretired < PAGES_MAX; m = m->next)
            if (m->kind == JSON_NUMBER)
                g->retired[g->nretired++] = (uint64_t)within(m->number, 0, 9e15);
    list = json_get(o, "remapped");
    if (list && list->kind == JSON_LIST) {
        const struct json *m = list->first;
        for (int i = 0; i < 4 && m; i++, m = m->next)
            g->remapped[i] = m->kind <= JSON_NUMBER ? (unsigned)within(m->number, 0, 4e9) : 0;
    }
}

static void read_fabric(struct gpu *g, const struct json *f)
{
    if (!f || f->kind != JSON_OBJECT)
        return;
    g->has_fabric = true;
    g->fabric_clique = small(f, NULL, "clique", 0);
    g->fabric_state = small(f, NULL, "state", 3);
    const char *hex = json_text(f, NULL, "cluster", "");
    for (int i = 0, n = 0; hex[i] && n < 32; i++) {
        if (!isxdigit((unsigned char)hex[i]))
            continue;
        int v = hex[i] <= '9' ? hex[i] - '0' : (hex[i] | 32) - 'a' + 10;
        g->fabric_cluster[n / 2] = (uint8_t)(g->fabric_cluster[n / 2] | (n % 2 ? v : v << 4));
        n++;
    }
}

static int read_gpu(struct topology *t, const struct json *o, const struct json *d,
                    const char *node, char *why, size_t why_size)
{
    unsigned index = t->ngpus, v[4];
    struct gpu *g = &t->gpus[index];
    const char *bus = json_text(o, NULL, "bus", "");
    if (!bus_id(bus, v)) {
        snprintf(why, why_size, "GPU %u: bus is not like 0000:1b:00.0: %.40s", index, bus);
        return -1;
    }
    g->domain = v[0], g->bus_no = v[1], g->device = v[2], g->function = v[3];
    snprintf(g->bus, sizeof g->bus, "%08X:%02X:%02X.%X", v[0], v[1], v[2], v[3]);
    copy(g->name, sizeof g->name, json_text(o, d, "name", "NVIDIA GPU"));
    copy(g->vbios, sizeof g->vbios, json_text(o, d, "vbios", "96.00.00.00.01"));
    const char *given = json_text(o, NULL, "uuid", NULL);
    if (given)
        copy(g->uuid, sizeof g->uuid, given);
    else
        make_uuid(g->uuid, sizeof g->uuid, "GPU",
                  (const char *const[]){"gpu", node, g->name, g->bus, NULL});
    uint8_t b[16];
    digest((const char *const[]){"serial", node, g->bus, NULL}, b);
    snprintf(g->serial, sizeof g->serial, "16%02u%07u", b[0] % 100u,
             (b[1] << 16 | b[2] << 8 | b[3]) % 10000000u);
    given = json_text(o, NULL, "serial", NULL);
    if (given)
        copy(g->serial, sizeof g->serial, given);
    g->minor = whole(o, NULL, "minor", (int)index);
    g->numa = whole(o, d, "numa", 0);
    g->gpu_numa = whole(o, d, "gpu_numa", -1);
    g->pci_id = small(o, d, "pci_id", 0x233010de);
    if (sscanf(json_text(o, d, "cc", "9.0"), "%d.%d", &g->cc_major, &g->cc_minor) != 2)
        g->cc_major = 9;
    const char *cpus = json_text(o, d, "cpus", "");
    if (!cpu_list(cpus, g->cpus)) {
        snprintf(why, why_size, "GPU %u: cpus is no list of CPUs below %d: %.60s", index,
                 CPU_WORDS * 64, cpus);
        return -1;
    }
    char path[128], *rest = NULL;
    copy(path, sizeof path, json_text(o, d, "path", ""));
    char *part = strtok_r(path, "/", &rest);
    for (int i = 0; i < 4 && part; i++, part = strtok_r(NULL, "/", &rest))
        copy(g->path[i], sizeof g->path[i], part);
    g->mem_mib = count(o, d, "mem_mib", 81559);
    g->reserved_mib = count(o, d, "reserved_mib", 500);
    g->used_mib = count(o, d, "used_mib", 0);
    g->util = small(o, d, "util", 0);
    g->mem_util = small(o, d, "mem_util", 0);
    g->temp = small(o, d, "temp", 34);
    g->power_mw = (unsigned)(1000 * within(json_number(o, d, "power_w", 70), 0, 1e6));
    g->power_limit_mw = (unsigned)(1000 * within(json_number(o, d, "power_limit_w", 700), 0, 1e6));
    g->energy_mj = 1000 * count(o, d, "energy_j", 0);
    g->clock_max = small(o, d, "clock_max_mhz", 1980);
    g->clock = small(o, d, "clock_mhz", 345);
    g->mem_clock = small(o, d, "mem_clock_mhz", 2619);
    g->reasons = count(o, d, "reasons", 1);
    read_health(g, o, d);
    g->mig_capable = json_number(o, d, "mig_capable", 0) != 0;
    g->mig_mode = g->mig_capable && json_number(o, NULL, "mig_mode", 0) != 0;
    if (g->mig_capable)
        read_migs(g, json_get(o, "mig"), node);
    read_processes(g, json_get(o, "processes"));
    const struct json *fabric = json_get(o, "fabric");
    read_fabric(g, fabric ? fabric : json_get(d, "fabric"));
    t->ngpus++;
    return 0;
}

static void add_link(struct gpu *g, int to, unsigned peer)
{
    for (int i = 0; i < LINKS_MAX; i++)
        if (g->links[i].to == LINK_NONE) {
            g->links[i].to = to == LINK_GPU ? LINK_GPU : LINK_SWITCH;
            g->links[i].peer = peer;
            return;
        }
}

static void read_links(struct topology *t, const struct json *n, const struct json *gpus)
{
    t->nlinks_version = small(n, NULL, "version", 4);
    const struct json *list = json_get(n, "switches");
    if (list && list->kind == JSON_LIST)
        for (const struct json *m = list->first; m && t->nswitches < 32; m = m->next)
            if (m->kind == JSON_STRING)
                copy(t->switches[t->nswitches++], sizeof t->switches[0], m->text);
    unsigned links = small(n, NULL, "links", 0);
    for (unsigned i = 0; i < t->ngpus && t->nswitches; i++)
        for (unsigned l = 0; l < links && l < LINKS_MAX; l++)
            add_link(&t->gpus[i], LINK_SWITCH, l % t->nswitches);
    list = json_get(n, "pairs");
    if (list && list->kind == JSON_LIST)
        for (const struct json *m = list->first; m; m = m->next) {
            const struct json *a = m->kind == JSON_LIST ? m->first : NULL, *b = a ? a->next : NULL,
                              *k = b ? b->next : NULL;
            if (!k || a->kind != JSON_NUMBER || b->kind != JSON_NUMBER || k->kind != JSON_NUMBER)
                continue;
            double x = a->number, y = b->number;
            if (x < 0 || y < 0 || x >= t->ngpus || y >= t->ngpus || x == y)
                continue;
            for (int l = 0; l < LINKS_MAX && l < k->number; l++) {
                add_link(&t->gpus[(int)x], LINK_GPU, (unsigned)y);
                add_link(&t->gpus[(int)y], LINK_GPU, (unsigned)x);
            }
        }
    unsigned i = 0;
    for (const struct json *g = gpus->first; g && i < t->ngpus; g = g->next, i++) {
        list = json_get(g, "links_down");
        if (list && list->kind == JSON_LIST)
            for (const struct json *m = list->first; m; m = m->next)
                if (m->kind == JSON_NUMBER && m->number >= 0 && m->number < LINKS_MAX)
                    t->gpus[i].links[(int)m->number].down = true;
    }
}

static void read_profiles(struct topology *t, const struct json *list)
{
    if (!list || list->kind != JSON_LIST)
        return;
    for (const struct json *m = list->first; m && t->nprofiles < PROFILES_MAX; m = m->next) {
        struct profile *p = &t->profiles[t->nprofiles++];
        p->index = small(m, NULL, "index", 0);
        p->id = small(m, NULL, "id", 0);
        p->slices = small(m, NULL, "slices", 1);
        p->count = small(m, NULL, "count", 1);
        p->sms = small(m, NULL, "sms", 14);
        p->mem_mib = count(m, NULL, "mem_mib", 0);
        copy(p->name, sizeof p->name, json_text(m, NULL, "name", ""));
    }
}

int topology_parse(struct topology *t, const char *text, unsigned long len, const char *node,
                   char *why, unsigned long why_size)
{
    memset(t, 0, sizeof *t);
    struct json *root = json_parse(text, len, why, why_size);
    if (!root)
        return -1;
    int rc = -1;
    const struct json *gpus = json_get(root, "gpus"), *defaults = json_get(root, "defaults");
    if (!gpus || gpus->kind != JSON_LIST) {
        snprintf(why, why_size, "no list \"gpus\"");
        goto out;
    }
    copy(t->driver, sizeof t->driver, json_text(root, NULL, "driver", "550.54.15"));
    t->cuda = whole(root, NULL, "cuda", 12040);
    for (const struct json *g = gpus->first; g; g = g->next) {
        if (t->ngpus == GPUS_MAX) {
            snprintf(why, why_size, "more than %d GPUs", GPUS_MAX);
            goto out;
        }
        if (read_gpu(t, g, defaults, node, why, why_size))
            goto out;
    }
    read_links(t, json_get(root, "nvlink"), gpus);
    read_profiles(t, json_get(root, "mig_profiles"));
    rc = 0;
out:
    json_free(root);
    return rc;
}

int topology_load(struct topology *t, const char *path, const char *node, char *why,
                  unsigned long why_size)
{
    struct stat st;
    int rc = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st)) {
        snprintf(why, why_size, "%.200s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
        snprintf(why, why_size, "%.200s: not a file of at most %ld bytes", path, FILE_MAX);
    } else {
        char *text = malloc((size_t)st.st_size + 1), inner[200] = "";
        ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
        if (n < 0)
            snprintf(why, why_size, "%.200s: cannot be read", path);
        else if ((rc = topology_parse(t, text, (unsigned long)n, node, inner, sizeof inner)))
            snprintf(why, why_size, "%.200s: %s", path, inner);
        free(text);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

int topology_level(const struct gpu *a, const struct gpu *b)
{
    static const int level[5] = {50, 40, 30, 20, 10};
    if (a == b)
        return 0;
    int n = 0;
    while (n < 4 && *a->path[n] && !strcmp(a->path[n], b->path[n]))
        n++;
    return level[n];
}
