/* pmix-server: what PMIx programs of a step on this node talk to, through libpmix.
 *
 * Standard input is a socket to the step's mover. A message is four bytes of length, big-endian, a
 * letter, and so many bytes less one. The mover says
 *   S  what there is: NUL-terminated records key=value: nspace, size (ranks of the step), uid, gid,
 *      dir (private to the user), here (place of this node), and for each node in the order of
 *      places node=NAME and ranks=0,1,2
 *   K  all parts of an exchange, in the order of places: each four bytes of length, and bytes
 * and hears
 *   E  rank (4 bytes) and NUL-terminated NAME=value: what this local rank is to find in its
 *      environment. One for each; nothing is said before
 *   K  this node's part of an exchange
 *   A  status (4 bytes), text: a rank has called abort
 *
 * Ends with the mover. What one node cannot serve alone (spawn, publish, groups over some nodes) is
 * refused. Exit: 0; 1 with a line on standard error.
 */
#include <errno.h>
#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MESSAGE_MAX (1u << 30)
#define NODES_MAX 65536

static struct {
    const char *nspace, *dir;
    uint32_t size, here, nodes, locals;
    uid_t uid;
    gid_t gid;
    char *name[NODES_MAX], *ranks[NODES_MAX];
} step;

/* An exchange under way: libpmix wants to be called back, in the order in which it asked. */
struct waiting {
    struct waiting *next;
    pmix_modex_cbfunc_t done;
    void *data;
};
static struct waiting *first, **last = &first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void give_up(const char *what, pmix_status_t status)
{
    fprintf(stderr, "pmix-server: %s: %s\n", what, PMIx_Error_string(status));
    exit(1);
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool write_all(const void *data, size_t n)
{
    for (const char *at = data; n;) {
        ssize_t wrote = write(0, at, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        at += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

static bool read_all(void *data, size_t n)
{
    for (char *at = data; n;) {
        ssize_t got = read(0, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static void put32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* With the lock held where more than one thread may speak. */
static void say(char letter, const void *head, size_t nhead, const void *data, size_t n)
{
    unsigned char start[5];
    put32(start, (uint32_t)(1 + nhead + n));
    start[4] = (unsigned char)letter;
    if (!write_all(start, sizeof start) || !write_all(head, nhead) || !write_all(data, n))
        _exit(0); /* the mover has gone, and the step with it */
}

/* ---- what libpmix asks ---------------------------------------------------------------------- */

static pmix_status_t connected(const pmix_proc_t *proc, void *object, pmix_info_t *info, size_t n,
                               pmix_op_cbfunc_t done, void *data)
{
    (void)proc, (void)object, (void)info, (void)n, (void)done, (void)data;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                               void *data)
{
    (void)proc, (void)object, (void)done, (void)data;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t aborted(const pmix_proc_t *proc, void *object, int status, const char text[],
                             pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t done, void *data)
{
    (void)proc, (void)object, (void)procs, (void)n, (void)done, (void)data;
    unsigned char code[4];
    put32(code, (uint32_t)status);
    pthread_mutex_lock(&lock);
    say('A', code, sizeof code, text ? text : "", text ? strlen(text) : 0);
    pthread_mutex_unlock(&lock);
    return PMIX_OPERATION_SUCCEEDED;
}

/* All ranks of the step, named one by one or as the wildcard. */
static bool whole_step(const pmix_proc_t procs[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(procs[i].nspace, step.nspace))
            return false;
    return (n == 1 && procs[0].rank == PMIX_RANK_WILDCARD) || n == step.size;
}

static pmix_status_t fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                           size_t ninfo, char *data, size_t n, pmix_modex_cbfunc_t done, void *arg)
{
    (void)info, (void)ninfo;
    struct waiting *w;
    if (!whole_step(procs, nprocs))
        return PMIX_ERR_NOT_SUPPORTED;
    if (n > MESSAGE_MAX - 16 || !(w = calloc(1, sizeof *w)))
        return PMIX_ERR_NOMEM;
    w->done = done;
    w->data = arg;
    pthread_mutex_lock(&lock);
    *last = w;
    last = &w->next;
    say('K', NULL, 0, data, n);
    pthread_mutex_unlock(&lock);
    free(data); /* ours, as the interface has it */
    return PMIX_SUCCESS;
}

/* What a rank of another node has put is in what was exchanged, or nowhere. */
static pmix_status_t direct(const pmix_proc_t *proc, const pmix_info_t info[], size_t n,
                            pmix_modex_cbfunc_t done, void *data)
{
    (void)proc, (void)info, (void)n, (void)done, (void)data;
    return PMIX_ERR_NOT_FOUND;
}

static pmix_server_module_t module = {
    .client_connected2 = connected,
    .client_finalized = finalized,
    .abort = aborted,
    .fence_nb = fence,
    .direct_modex = direct,
};

static void exchanged(const unsigned char *parts, size_t n)
{
    char *all = malloc(n + 1);
    size_t used = 0;
    if (!all)
        give_up("exchange", PMIX_ERR_NOMEM);
    while (n >= 4) {
        size_t one = get32(parts);
        if (one > n - 4)
            break;
        memcpy(all + used, parts + 4, one);
        used += one;
        parts += 4 + one;
        n -= 4 + one;
    }
    pthread_mutex_lock(&lock);
    struct waiting *w = first;
    if (w) {
        first = w->next;
        if (!first)
            last = &first;
    }
    pthread_mutex_unlock(&lock);
    if (w)
        w->done(n ? PMIX_ERR_BAD_PARAM : PMIX_SUCCESS, all, used, w->data, free, all);
    else
        free(all);
    free(w);
}

/* ---- the beginning -------------------------------------------------------------------------- */

static void understand(char *at, size_t n)
{
    for (char *end = at + n; at < end; at += strlen(at) + 1) {
        char *value = strchr(at, '=');
        if (!value)
            continue;
        value++;
        size_t key = (size_t)(value - at) - 1;
#define IS(name) (key == sizeof name - 1 && !memcmp(at, name, key))
        if (IS("nspace"))
            step.nspace = value;
        else if (IS("dir"))
            step.dir = value;
        else if (IS("size"))
            step.size = (uint32_t)strtoul(value, NULL, 10);
        else if (IS("here"))
            step.here = (uint32_t)strtoul(value, NULL, 10);
        else if (IS("uid"))
            step.uid = (uid_t)strtoul(value, NULL, 10);
        else if (IS("gid"))
            step.gid = (gid_t)strtoul(value, NULL, 10);
        else if (IS("node") && step.nodes < NODES_MAX)
            step.name[step.nodes++] = value;
        else if (IS("ranks") && step.nodes)
            step.ranks[step.nodes - 1] = value;
#undef IS
    }
    bool whole = step.nspace && step.dir && step.size && step.here < step.nodes;
    for (uint32_t i = 0; whole && i < step.nodes; i++)
        whole = step.ranks[i] != NULL;
    if (!whole) {
        fprintf(stderr, "pmix-server: the order is not whole\n");
        exit(1);
    }
}

static char *joined(char **words, char between)
{
    size_t n = 1;
    for (uint32_t i = 0; i < step.nodes; i++)
        n += strlen(words[i]) + 1;
    char *text = malloc(n), *at = text;
    if (!text)
        give_up("order", PMIX_ERR_NOMEM);
    *at = 0;
    for (uint32_t i = 0; i < step.nodes; i++) {
        if (i)
            *at++ = between;
        at = stpcpy(at, words[i]);
    }
    return text;
}

static void load(pmix_info_t *info, const char *key, const void *value, pmix_data_type_t type)
{
    PMIX_INFO_LOAD(info, key, value, type);
}

/* What is known of one rank. */
static void describe(pmix_info_t *info, uint32_t rank, uint32_t node, uint16_t local)
{
    pmix_data_array_t *array;
    pmix_rank_t number = rank;
    uint32_t zero = 0;
    PMIX_DATA_ARRAY_CREATE(array, 8, PMIX_INFO);
    pmix_info_t *at = array->array;
    load(at++, PMIX_RANK, &number, PMIX_PROC_RANK);
    load(at++, PMIX_GLOBAL_RANK, &number, PMIX_PROC_RANK);
    load(at++, PMIX_APP_RANK, &number, PMIX_PROC_RANK);
    load(at++, PMIX_APPNUM, &zero, PMIX_UINT32);
    load(at++, PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    load(at++, PMIX_NODE_RANK, &local, PMIX_UINT16);
    load(at++, PMIX_NODEID, &node, PMIX_UINT32);
    load(at++, PMIX_HOSTNAME, step.name[node], PMIX_STRING);
    memset(info, 0, sizeof *info);
    PMIX_LOAD_KEY(info->key, PMIX_PROC_DATA);
    info->value.type = PMIX_DATA_ARRAY;
    info->value.data.darray = array;
}

static void must(const char *what, pmix_status_t status)
{
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED)
        give_up(what, status);
}

static void introduce(void)
{
    char *names = joined(step.name, ','), *ranks = joined(step.ranks, ';');
    char *node_map, *proc_map;
    pmix_info_t *info, *at;
    uint32_t one = 1, zero = 0;
    step.locals = 1;
    for (const char *p = step.ranks[step.here]; *p; p++)
        step.locals += *p == ',';
    must("nodes", PMIx_generate_regex(names, &node_map));
    must("ranks", PMIx_generate_ppn(ranks, &proc_map));
    size_t n = 14 + step.size;
    PMIX_INFO_CREATE(info, n);
    at = info;
    load(at++, PMIX_UNIV_SIZE, &step.size, PMIX_UINT32);
    load(at++, PMIX_MAX_PROCS, &step.size, PMIX_UINT32);
    load(at++, PMIX_JOB_SIZE, &step.size, PMIX_UINT32);
    load(at++, PMIX_JOB_NUM_APPS, &one, PMIX_UINT32);
    load(at++, PMIX_APPNUM, &zero, PMIX_UINT32);
    load(at++, PMIX_NUM_NODES, &step.nodes, PMIX_UINT32);
    load(at++, PMIX_LOCAL_SIZE, &step.locals, PMIX_UINT32);
    load(at++, PMIX_NODE_SIZE, &step.locals, PMIX_UINT32);
    load(at++, PMIX_LOCAL_PEERS, step.ranks[step.here], PMIX_STRING);
    load(at++, PMIX_JOBID, step.nspace, PMIX_STRING);
    load(at++, PMIX_TMPDIR, step.dir, PMIX_STRING);
    load(at++, PMIX_NSDIR, step.dir, PMIX_STRING);
    load(at++, PMIX_NODE_MAP, node_map, PMIX_REGEX);
    load(at++, PMIX_PROC_MAP, proc_map, PMIX_REGEX);
    for (uint32_t node = 0; node < step.nodes; node++) {
        uint16_t local = 0;
        for (const char *p = step.ranks[node]; *p && at < info + n; p += *p == ',') {
            char *end;
            describe(at++, (uint32_t)strtoul(p, &end, 10), node, local++);
            if (end == p)
                break;
            p = end;
        }
    }
    must("nspace", PMIx_server_register_nspace(step.nspace, (int)step.locals, info,
                                               (size_t)(at - info), NULL, NULL));
    free(names);
    free(ranks);
}

static void tell_environment(uint32_t rank)
{
    pmix_proc_t proc;
    char **env = NULL, *text = NULL;
    size_t n = 0;
    PMIX_PROC_LOAD(&proc, step.nspace, rank);
    must("client", PMIx_server_register_client(&proc, step.uid, step.gid, NULL, NULL, NULL));
    must("environment", PMIx_server_setup_fork(&proc, &env));
    FILE *out = open_memstream(&text, &n);
    if (!out)
        give_up("environment", PMIX_ERR_NOMEM);
    for (char **one = env; one && *one; one++)
        fwrite(*one, 1, strlen(*one) + 1, out);
    fclose(out);
    unsigned char number[4];
    put32(number, rank);
    say('E', number, sizeof number, text, n);
    free(text);
}

static void begin(char *order, size_t n)
{
    pmix_info_t *info;
    bool no = false;
    understand(order, n);
    /* The hash store: what lies in memory alone needs no cleaning up. */
    setenv("PMIX_MCA_gds", "hash", 1);
    PMIX_INFO_CREATE(info, 5);
    load(&info[0], PMIX_SERVER_TMPDIR, step.dir, PMIX_STRING);
    load(&info[1], PMIX_SYSTEM_TMPDIR, step.dir, PMIX_STRING);
    load(&info[2], PMIX_HOSTNAME, step.name[step.here], PMIX_STRING);
    load(&info[3], PMIX_SERVER_TOOL_SUPPORT, &no, PMIX_BOOL);
    load(&info[4], PMIX_SERVER_NSPACE, "gsched", PMIX_STRING);
    must("start", PMIx_server_init(&module, info, 5));
    introduce();
    for (const char *p = step.ranks[step.here]; *p; p += *p == ',') {
        char *end;
        tell_environment((uint32_t)strtoul(p, &end, 10));
        if (end == p)
            break;
        p = end;
    }
}

int main(void)
{
    bool begun = false;
    /* It runs outside of the step's control group: what a task made of it would too. */
    prctl(PR_SET_DUMPABLE, 0);
    for (;;) {
        unsigned char head[5];
        if (!read_all(head, sizeof head))
            break;
        size_t n = get32(head);
        if (n < 1 || n > MESSAGE_MAX)
            break;
        n--;
        char *body = malloc(n + 1);
        if (!body || !read_all(body, n))
            break;
        body[n] = 0;
        if (head[4] == 'S' && !begun) {
            begun = true;
            begin(body, n); /* it is kept: strings point into it */
        } else {
            if (head[4] == 'K' && begun)
                exchanged((unsigned char *)body, n);
            free(body);
        }
    }
    if (begun)
        PMIx_server_finalize();
    return 0;
}
