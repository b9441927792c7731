/* Reading the spec: NUL-terminated key=value records. Written by the node daemon, yet every value
 * is checked: a half written file must not start half a job. */
#include "stepd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *key, *name;
    int resource;
} known_limits[] = {
    {"as", "AS", RLIMIT_AS},
    {"core", "CORE", RLIMIT_CORE},
    {"cpu", "CPU", RLIMIT_CPU},
    {"data", "DATA", RLIMIT_DATA},
    {"fsize", "FSIZE", RLIMIT_FSIZE},
    {"memlock", "MEMLOCK", RLIMIT_MEMLOCK},
    {"nofile", "NOFILE", RLIMIT_NOFILE},
    {"nproc", "NPROC", RLIMIT_NPROC},
    {"rss", "RSS", RLIMIT_RSS},
    {"stack", "STACK", RLIMIT_STACK},
    {"locks", "LOCKS", RLIMIT_LOCKS},
    {"rtprio", "RTPRIO", RLIMIT_RTPRIO},
};

static int whole(const char *text, int base, long low, long high, long *out)
{
    char *end;
    if (!isalnum((unsigned char)*text) && *text != '-')
        return -1;
    errno = 0;
    long v = strtol(text, &end, base);
    if (errno || end == text || *end || v < low || v > high)
        return -1;
    *out = v;
    return 0;
}

static int one_limit(const char *text, size_t n, rlim_t *out)
{
    char word[32], *end;
    if (n == 0 || n >= sizeof word)
        return -1;
    memcpy(word, text, n);
    word[n] = 0;
    if (!strcmp(word, "unlimited")) {
        *out = RLIM_INFINITY;
        return 0;
    }
    if (!isdigit((unsigned char)*word))
        return -1;
    errno = 0;
    unsigned long long v = strtoull(word, &end, 10);
    if (errno || *end)
        return -1;
    *out = (rlim_t)v;
    return 0;
}

static int add_rlimit(struct spec *s, const char *key, const char *value)
{
    const char *colon = strchr(value, ':');
    if (!colon || s->nlimits == sizeof s->limits / sizeof *s->limits)
        return -1;
    struct limit_spec *l = &s->limits[s->nlimits];
    if (one_limit(value, (size_t)(colon - value), &l->value.rlim_cur) ||
        one_limit(colon + 1, strlen(colon + 1), &l->value.rlim_max))
        return -1;
    for (size_t i = 0; i < sizeof known_limits / sizeof *known_limits; i++)
        if (!strcmp(key, known_limits[i].key)) {
            l->name = known_limits[i].name;
            l->resource = known_limits[i].resource;
            s->nlimits++;
            return 0;
        }
    return -1;
}

static int add_groups(struct spec *s, const char *value)
{
    size_t n = 1;
    for (const char *p = value; *p; p++)
        n += *p == ',';
    free(s->groups);
    s->ngroups = 0;
    s->groups = calloc(n, sizeof *s->groups);
    if (!s->groups)
        return -1;
    for (const char *p = value; *p;) {
        char *end;
        if (!isdigit((unsigned char)*p))
            return -1;
        errno = 0;
        unsigned long v = strtoul(p, &end, 10);
        if (errno || v >= UINT_MAX || (*end && *end != ','))
            return -1;
        s->groups[s->ngroups++] = (gid_t)v;
        p = *end ? end + 1 : end;
    }
    return 0;
}

static int path_value(const char **slot, const char *value, bool may_be_empty)
{
    if (*value != '/' && !(may_be_empty && !*value))
        return -1;
    if (strlen(value) >= PATH_MAX)
        return -1;
    *slot = value;
    return 0;
}

static int add_secret(struct spec *s, const char *value)
{
    if (strlen(value) != 2 * sizeof s->io_secret)
        return -1;
    for (size_t i = 0; i < sizeof s->io_secret; i++) {
        unsigned v = 0;
        for (size_t k = 0; k < 2; k++) {
            int c = (unsigned char)value[2 * i + k];
            if (!isxdigit(c))
                return -1;
            v = 16 * v + (unsigned)(isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
        }
        s->io_secret[i] = (unsigned char)v;
    }
    return 0;
}

static int word_value(const char **slot, const char *value, size_t most)
{
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127 || *p == ';')
            return -1;
    if (strlen(value) > most)
        return -1;
    *slot = value;
    return 0;
}

/* A task, and what is said of it. The pools leave a NULL between one and the next. */
static int task_record(struct spec *s, const char *key, char *value)
{
    struct task_spec *t = s->ntasks ? &s->tasks[s->ntasks - 1] : NULL;
    long v;
    if (!strcmp(key, "task")) {
        if (whole(value, 10, 0, (long)ALL_TASKS - 1, &v))
            return -1;
        s->tasks[s->ntasks++] = (struct task_spec){
            .id = (uint32_t)v,
            .argv = s->pool_argv + ++s->pool_argc,
            .env = s->pool_env + ++s->pool_envc,
            .std = {"", "", ""},
            .cpus = "",
            .note = "",
        };
        return 0;
    }
    if (!t)
        return -1;
    if (!strcmp(key, "targ")) {
        s->pool_argv[s->pool_argc++] = value;
    } else if (!strcmp(key, "tenv")) {
        if (!strchr(value, '=') || *value == '=')
            return -1;
        s->pool_env[s->pool_envc++] = value;
    } else if (!strcmp(key, "tcpus")) {
        if (strspn(value, "0123456789,-") != strlen(value))
            return -1;
        t->cpus = value;
    } else if (!strcmp(key, "tnote")) {
        t->note = value;
    } else if (!strcmp(key, "tstdin")) {
        return path_value(&t->std[0], value, true);
    } else if (!strcmp(key, "tstdout")) {
        return path_value(&t->std[1], value, true);
    } else if (!strcmp(key, "tstderr")) {
        return path_value(&t->std[2], value, true);
    } else {
        return -1;
    }
    return 0;
}

static int step_record(struct spec *s, const char *key, char *value)
{
    if (!strcmp(key, "ntasks"))
        return whole(value, 10, 1, INT_MAX, &s->all_tasks);
    if (!strcmp(key, "nnodes"))
        return whole(value, 10, 1, UINT16_MAX, &s->nodes);
    if (!strcmp(key, "io")) {
        const char *colon = strrchr(value, ':');
        long port;
        if (*value && (!colon || colon == value || whole(colon + 1, 10, 1, UINT16_MAX, &port)))
            return -1;
        return word_value(&s->io, value, 300);
    }
    if (!strcmp(key, "io_secret"))
        return add_secret(s, value);
    if (!strcmp(key, "io_index"))
        return whole(value, 10, 0, UINT16_MAX, &s->io_index);
    if (!strcmp(key, "pty")) {
        s->pty = !strcmp(value, "1");
        return s->pty || !strcmp(value, "0") ? 0 : -1;
    }
    if (!strcmp(key, "stdin_task"))
        return whole(value, 10, -2, (long)ALL_TASKS - 1, &s->stdin_task);
    if (!strcmp(key, "pmi"))
        return whole(value, 10, 0, 2, &s->pmi);
    if (!strcmp(key, "pmi_jobid"))
        return word_value(&s->pmi_jobid, value, 64);
    if (!strcmp(key, "pmi_mapping"))
        return word_value(&s->pmi_mapping, value, 1u << 16);
    if (!strcmp(key, "pmix"))
        return path_value(&s->pmix, value, true);
    if (!strcmp(key, "pmix_dir"))
        return path_value(&s->pmix_dir, value, true);
    if (!strcmp(key, "pmix_nodes")) {
        s->pmix_nodes = value;
        return 0;
    }
    if (!strcmp(key, "task_prolog"))
        return path_value(&s->task_prolog[0], value, true);
    if (!strcmp(key, "user_task_prolog"))
        return path_value(&s->task_prolog[1], value, true);
    if (!strcmp(key, "user_task_epilog"))
        return path_value(&s->task_epilog[0], value, true);
    if (!strcmp(key, "task_epilog"))
        return path_value(&s->task_epilog[1], value, true);
    return task_record(s, key, value);
}

/* One record; 0, or -1 when the value is not what the key takes. */
static int record(struct spec *s, const char *key, char *value)
{
    long v;
    if (!strcmp(key, "arg")) {
        s->argv[s->argc++] = value;
    } else if (!strcmp(key, "env")) {
        if (!strchr(value, '=') || *value == '=')
            return -1;
        s->envp[s->envc++] = value;
    } else if (!strcmp(key, "uid") || !strcmp(key, "gid")) {
        if (whole(value, 10, 0, (long)UINT_MAX - 1, &v))
            return -1;
        if (*key == 'u')
            s->uid = (uid_t)v;
        else
            s->gid = (gid_t)v;
    } else if (!strcmp(key, "groups")) {
        return add_groups(s, value);
    } else if (!strcmp(key, "umask")) {
        if (whole(value, 8, 0, 0777, &v))
            return -1;
        s->umask = (mode_t)v;
    } else if (!strcmp(key, "cwd")) {
        return path_value(&s->cwd, value, false);
    } else if (!strcmp(key, "stdin")) {
        return path_value(&s->std[0], value, true);
    } else if (!strcmp(key, "stdout")) {
        return path_value(&s->std[1], value, true);
    } else if (!strcmp(key, "stderr")) {
        return path_value(&s->std[2], value, true);
    } else if (!strcmp(key, "openmode")) {
        s->append = !strcmp(value, "append");
        return s->append || !strcmp(value, "truncate") ? 0 : -1;
    } else if (!strcmp(key, "limit")) {
        return whole(value, 10, 0, INT_MAX, &s->limit);
    } else if (!strcmp(key, "killwait")) {
        return whole(value, 10, 0, INT_MAX, &s->killwait);
    } else if (!strcmp(key, "warn_signal")) {
        if (whole(value, 10, 1, SIGRTMAX, &v))
            return -1;
        s->warn_signal = (int)v;
    } else if (!strcmp(key, "warn_before")) {
        return whole(value, 10, 0, INT_MAX, &s->warn_before);
    } else if (!strcmp(key, "label")) {
        if (strlen(value) > 200 || strpbrk(value, "\r\n"))
            return -1;
        s->label = value;
    } else if (!strcmp(key, "pid_env")) {
        if (!*value || strlen(value) > 64 || strchr(value, '='))
            return -1;
        s->pid_env = value;
    } else if (!strcmp(key, "cgroup_procs")) {
        return path_value(&s->cg_procs[s->ncg_procs++], value, false);
    } else if (!strcmp(key, "cgroup_kill")) {
        return path_value(&s->cg_kill[s->ncg_kill++], value, false);
    } else if (!strncmp(key, "rlimit_", 7)) {
        return add_rlimit(s, key + 7, value);
    } else {
        return step_record(s, key, value);
    }
    return 0;
}

static char *slurp(const char *path, size_t *len, char why[TEXT_MAX])
{
    struct stat st;
    char *data = NULL;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : 0;
    if (fd < 0 || fstat(fd, &st)) {
        snprintf(why, TEXT_MAX, "spec: %s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > (off_t)SPEC_MAX) {
        snprintf(why, TEXT_MAX, "spec: not a file of 1 to %u bytes", SPEC_MAX);
        goto out;
    }
    data = malloc((size_t)st.st_size);
    size_t got = 0;
    while (data && got < (size_t)st.st_size) {
        ssize_t n = read(fd, data + got, (size_t)st.st_size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    if (!data || got != (size_t)st.st_size) {
        snprintf(why, TEXT_MAX, "spec: could not be read whole");
        free(data);
        data = NULL;
    }
    *len = got;
out:
    if (fd >= 0)
        close(fd);
    return data;
}

static int check_tasks(struct spec *s, char why[TEXT_MAX])
{
    for (size_t i = 0; i < s->ntasks; i++) {
        const struct task_spec *t = &s->tasks[i];
        char **argv = *t->argv ? t->argv : s->argv;
        if (!argv[0] || !*argv[0]) {
            snprintf(why, TEXT_MAX, "spec: nothing to run for task %u", t->id);
            return -1;
        }
        if (t->id >= (uint32_t)s->all_tasks || (i && t->id <= t[-1].id)) {
            snprintf(why, TEXT_MAX, "spec: task %u out of order, or not of %ld", t->id,
                     s->all_tasks);
            return -1;
        }
    }
    if (s->ntasks > (size_t)s->all_tasks || s->io_index >= s->nodes) {
        snprintf(why, TEXT_MAX, "spec: no place in the step");
        return -1;
    }
    s->std[2] = s->tasks[0].std[2]; /* where lines about the step go */
    return 0;
}

int spec_load(struct spec *s, const char *path, char why[TEXT_MAX])
{
    memset(s, 0, sizeof *s);
    size_t len = 0, records = 0;
    s->uid = geteuid();
    s->gid = getegid();
    s->umask = 022;
    s->cwd = "/";
    s->std[0] = s->std[1] = s->std[2] = "";
    s->killwait = 30;
    s->label = "STEP";
    s->all_tasks = s->nodes = 1;
    s->stdin_task = -1;
    s->io = s->pmi_jobid = s->pmi_mapping = "";
    s->pmix = s->pmix_dir = s->pmix_nodes = "";
    s->task_prolog[0] = s->task_prolog[1] = s->task_epilog[0] = s->task_epilog[1] = "";
    s->data = slurp(path, &len, why);
    if (!s->data)
        return -1;
    if (s->data[len - 1] != 0) {
        snprintf(why, TEXT_MAX, "spec: cut off (no NUL at its end)");
        return -1;
    }
    for (size_t i = 0; i < len; i++)
        records += s->data[i] == 0;
    s->argv = calloc(records + 1, sizeof *s->argv);
    s->envp = calloc(records + 2, sizeof *s->envp);
    s->cg_procs = calloc(records + 1, sizeof *s->cg_procs);
    s->cg_kill = calloc(records + 1, sizeof *s->cg_kill);
    s->tasks = calloc(records + 1, sizeof *s->tasks);
    s->pool_argv = calloc(records + 2, sizeof *s->pool_argv);
    s->pool_env = calloc(records + 2, sizeof *s->pool_env);
    if (!s->argv || !s->envp || !s->cg_procs || !s->cg_kill || !s->tasks || !s->pool_argv ||
        !s->pool_env) {
        snprintf(why, TEXT_MAX, "spec: out of memory");
        return -1;
    }
    for (char *p = s->data; p < s->data + len; p += strlen(p) + 1) {
        char *eq = strchr(p, '=');
        if (!eq) {
            snprintf(why, TEXT_MAX, "spec: record without '=': %.60s", p);
            return -1;
        }
        *eq = 0;
        if (record(s, p, eq + 1)) {
            snprintf(why, TEXT_MAX, "spec: bad key or value: %.40s=%.80s", p, eq + 1);
            return -1;
        }
        *eq = '='; /* so that strlen(p) spans the record again */
    }
    if (s->ntasks)
        return check_tasks(s, why);
    free(s->tasks);
    s->tasks = NULL;
    if (s->argc == 0 || s->argv[0][0] != '/') {
        snprintf(why, TEXT_MAX, "spec: the first arg is no absolute path");
        return -1;
    }
    return 0;
}

/* The file in which the memory cgroup that the step has joined counts its kills, or NULL. */
static char *find_oom_file(const struct spec *s)
{
    static const char *const names[] = {"memory.oom_control", "memory.events"}; /* v1, v2 */
    for (size_t i = 0; i < s->ncg_procs; i++) {
        const char *end = strrchr(s->cg_procs[i], '/');
        if (!end)
            continue;
        for (int k = 0; k < 2; k++) {
            char *path;
            int dir = (int)(end - s->cg_procs[i]);
            if (asprintf(&path, "%.*s/%s", dir, s->cg_procs[i], names[k]) < 0)
                return NULL;
            if (!access(path, R_OK))
                return path;
            free(path);
        }
    }
    return NULL;
}

/* Environments reach megabytes; the supervisor of a day-long job need not hold one. */
void spec_trim(struct spec *s)
{
    struct spec keep = *s;
    size_t need = strlen(s->cwd) + strlen(s->label) + strlen(s->std[2]) + 3;
    for (size_t i = 0; i < s->ncg_kill; i++)
        need += strlen(s->cg_kill[i]) + 1;
    s->oom_file = keep.oom_file = find_oom_file(s);
    if (*s->task_epilog[0] || *s->task_epilog[1])
        return; /* they get the environment */
    char *data = malloc(need), *p = data;
    if (!data)
        return; /* keeping it all is the harmless way out */
    keep.data = data;
    keep.label = p;
    p = stpcpy(p, s->label) + 1;
    keep.std[2] = p;
    p = stpcpy(p, s->std[2]) + 1;
    keep.cwd = p;
    p = stpcpy(p, s->cwd) + 1;
    for (size_t i = 0; i < s->ncg_kill; i++) {
        const char *from = s->cg_kill[i];
        keep.cg_kill[i] = p;
        p = stpcpy(p, from) + 1;
    }
    free(s->argv);
    free(s->envp);
    free(s->cg_procs);
    free(s->data);
    free(s->pool_argv);
    free(s->pool_env);
    keep.pool_argv = keep.pool_env = NULL;
    keep.io = keep.pmi_jobid = keep.pmi_mapping = "";
    keep.pmix = keep.pmix_dir = keep.pmix_nodes = "";
    for (int i = 0; i < 2; i++)
        keep.task_prolog[i] = keep.task_epilog[i] = "";
    for (size_t i = 0; i < s->ntasks; i++)
        keep.tasks[i] =
            (struct task_spec){.id = s->tasks[i].id, .cpus = "", .note = "", .std = {"", "", ""}};
    keep.argv = keep.envp = NULL;
    keep.cg_procs = NULL;
    keep.argc = keep.envc = keep.ncg_procs = 0;
    keep.pid_env = NULL;
    keep.std[0] = keep.std[1] = "";
    *s = keep;
}

void spec_free(struct spec *s)
{
    free(s->data);
    free(s->argv);
    free(s->envp);
    free(s->groups);
    free(s->cg_procs);
    free(s->cg_kill);
    free(s->oom_file);
    free(s->tasks);
    free(s->pool_argv);
    free(s->pool_env);
    memset(s, 0, sizeof *s);
}
