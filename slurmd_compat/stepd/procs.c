/* Who belongs to the step: all descendants (the supervisor is their subreaper, so a double fork
 * does not get away) and all members of the step's cgroups. Only files of the kernel are read here.
 */
#include "stepd.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pids {
    pid_t *at;
    size_t n, room;
};

static bool spared(const struct spare *spare, pid_t pid)
{
    for (int i = 0; i < SPARE_MAX; i++)
        if (spare->at[i] == pid)
            return true;
    return false;
}

static void add(struct pids *p, pid_t pid)
{
    if (p->n == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        pid_t *at = realloc(p->at, room * sizeof *at);
        if (!at)
            return; /* the next round gets those that are left */
        p->at = at;
        p->room = room;
    }
    p->at[p->n++] = pid;
}

/* Reads decimal numbers, one a blank or line, from a kernel file into p. -1: no such file. */
static int add_numbers(struct pids *p, const char *path)
{
    char buf[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    long value = -1;
    for (ssize_t n; (n = read(fd, buf, sizeof buf)) > 0;)
        for (ssize_t i = 0; i < n; i++) {
            if (isdigit((unsigned char)buf[i])) {
                value = (value < 0 ? 0 : value) * 10 + (buf[i] - '0');
            } else if (value >= 0) {
                if (value > 0)
                    add(p, (pid_t)value);
                value = -1;
            }
        }
    if (value > 0)
        add(p, (pid_t)value);
    close(fd);
    return 0;
}

static int add_children(struct pids *p, pid_t of)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/task", (int)of);
    DIR *d = opendir(path);
    if (!d)
        return 0; /* ended meanwhile */
    int rc = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)of, e->d_name);
        if (add_numbers(p, path) && errno == ENOENT && of == getpid())
            rc = -1; /* a kernel without CONFIG_PROC_CHILDREN */
    }
    closedir(d);
    return rc;
}

/* The slow way, for kernels without the children files: parents of all processes of the machine. */
static void add_by_parent(struct pids *p, const struct spare *spare)
{
    DIR *d = opendir("/proc");
    if (!d)
        return;
    struct pids all = {0}, parents = {0};
    for (struct dirent *e; (e = readdir(d));) {
        char path[64], buf[512], state;
        int ppid;
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/stat", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        ssize_t n = read(fd, buf, sizeof buf - 1);
        close(fd);
        if (n <= 0)
            continue;
        buf[n] = 0;
        char *paren = strrchr(buf, ')'); /* the name before it may hold anything */
        if (!paren || sscanf(paren + 1, " %c %d", &state, &ppid) != 2)
            continue;
        size_t before = all.n;
        add(&all, (pid_t)atoi(e->d_name));
        if (all.n > before)
            add(&parents, (pid_t)ppid);
        if (parents.n < all.n)
            all.n = parents.n;
    }
    closedir(d);
    pid_t self = getpid();
    for (bool more = true; more;) { /* grow the set until nothing joins */
        more = false;
        for (size_t i = 0; i < all.n; i++) {
            bool in = parents.at[i] == self;
            for (size_t j = 0; !in && j < p->n; j++)
                in = parents.at[i] == p->at[j] && !spared(spare, p->at[j]);
            for (size_t j = 0; in && j < p->n; j++)
                in = all.at[i] != p->at[j];
            if (in) {
                add(p, all.at[i]);
                more = true;
            }
        }
    }
    free(all.at);
    free(parents.at);
}

static int ascending(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
    return x < y ? -1 : x > y;
}

/* Those that are spared may be among them; what they have started themselves is not. */
static void collect(struct pids *p, const struct spec *s, const struct spare *spare)
{
    pid_t self = getpid();
    p->n = 0;
    if (add_children(p, self)) {
        p->n = 0;
        add_by_parent(p, spare);
    } else {
        for (size_t i = 0; i < p->n; i++)
            if (!spared(spare, p->at[i]))
                add_children(p, p->at[i]);
    }
    for (size_t i = 0; i < s->ncg_kill; i++) {
        char path[PATH_MAX + 16];
        snprintf(path, sizeof path, "%s/cgroup.procs", s->cg_kill[i]);
        add_numbers(p, path);
    }
    if (p->n)
        qsort(p->at, p->n, sizeof *p->at, ascending);
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) /* once each, and neither ourselves nor init */
        if (p->at[i] > 1 && p->at[i] != self && (n == 0 || p->at[n - 1] != p->at[i]))
            p->at[n++] = p->at[i];
    p->n = n;
}

static int put(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? -1 : 0;
}

void procs_signal(const struct spec *s, const struct spare *spare, int sig1, int sig2)
{
    struct pids p = {0};
    collect(&p, s, spare);
    for (size_t i = 0; i < p.n; i++)
        if (!spared(spare, p.at[i])) {
            kill(p.at[i], sig1);
            if (sig2)
                kill(p.at[i], sig2);
        }
    free(p.at);
}

void procs_kill(const struct spec *s, const struct spare *spare)
{
    struct pids p = {0};
    size_t before = 0;
    for (size_t i = 0; i < s->ncg_kill;
         i++) /* v2 kills by itself; v1 stands still so that no fork gets ahead of us */
        if (put(s->cg_kill[i], "cgroup.kill", "1"))
            put(s->cg_kill[i], "freezer.state", "FROZEN");
    /* What forks faster than it is read is stopped first; a stopped process makes no new ones. */
    for (int round = 0; round < 16; round++) {
        collect(&p, s, spare);
        if (p.n <= before)
            break;
        before = p.n;
        for (size_t i = 0; i < p.n; i++)
            if (!spared(spare, p.at[i]))
                kill(p.at[i], SIGSTOP);
    }
    for (size_t i = 0; i < p.n; i++)
        if (!spared(spare, p.at[i]))
            kill(p.at[i], SIGKILL);
    for (size_t i = 0; i < s->ncg_kill; i++)
        put(s->cg_kill[i], "freezer.state", "THAWED");
    free(p.at);
}

long procs_oom_kills(const struct spec *s)
{
    char buf[512];
    int fd = s->oom_file ? open(s->oom_file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    buf[n > 0 ? n : 0] = 0;
    const char *at = strstr(buf, "oom_kill "); /* not "oom_kill_disable 0" */
    return at ? strtol(at + 9, NULL, 10) : 0;
}

bool procs_cgroups_empty(const struct spec *s)
{
    bool empty = true;
    for (size_t i = 0; empty && i < s->ncg_kill; i++) {
        char path[PATH_MAX + 32], buf[256];
        snprintf(path, sizeof path, "%s/cgroup.events", s->cg_kill[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) { /* v2: counts what lies below too */
            ssize_t n = read(fd, buf, sizeof buf - 1);
            buf[n > 0 ? n : 0] = 0;
            empty = strstr(buf, "populated 1") == NULL;
        } else {
            snprintf(path, sizeof path, "%s/cgroup.procs", s->cg_kill[i]);
            fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0)
                continue; /* no such cgroup any more */
            empty = read(fd, buf, 1) <= 0;
        }
        close(fd);
    }
    return empty;
}

bool procs_only(const struct spec *s, const struct spare *spare)
{
    struct pids p = {0};
    collect(&p, s, spare);
    bool only = true;
    for (size_t i = 0; only && i < p.n; i++)
        only = spared(spare, p.at[i]);
    free(p.at);
    return only;
}
