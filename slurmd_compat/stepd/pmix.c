/* The PMIx server of the step on this node: a program of its own (slurmd_compat/pmix/server.c), a
 * child of the mover. The mover hands on what each task is to find in its environment, through the
 * socket that the task waits on, and carries the server's exchanges to the client and back. Tasks
 * themselves speak to the server, which has the user's ids as they do. */
#include "mover.h"
#include "pmi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES (64u << 10)

struct pmix {
    int fd; /* -1: gone */
    pid_t pid;
    struct bytes in, out;
    size_t sent, most;
    struct pmix_task {
        uint32_t rank;
        int fd; /* -1: it has what it needs */
    } *tasks;
    size_t n;
    uint32_t round;
    long nodes;
};

static int add_record(struct bytes *b, const char *key, const char *value)
{
    return bytes_add(b, key, strlen(key)) || bytes_add(b, "=", 1) ||
           bytes_add(b, value, strlen(value) + 1);
}

static int add_number(struct bytes *b, const char *key, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    return add_record(b, key, text);
}

/* A message to the server, behind what waits already. */
static int queue(struct pmix *p, char letter, const void *data, size_t n)
{
    unsigned char head[5];
    put32(head, (uint32_t)n + 1);
    head[4] = (unsigned char)letter;
    return bytes_add(&p->out, head, sizeof head) || bytes_add(&p->out, data, n);
}

static int order(struct pmix *p, const struct spec *s)
{
    struct bytes b = {0};
    int bad = add_record(&b, "nspace", s->pmi_jobid) || add_record(&b, "dir", s->pmix_dir) ||
              add_number(&b, "size", s->all_tasks) || add_number(&b, "here", s->io_index) ||
              add_number(&b, "uid", (long)s->uid) || add_number(&b, "gid", (long)s->gid);
    /* "NAME RANKS\n" for each node */
    for (const char *at = s->pmix_nodes; !bad && *at;) {
        size_t name = strcspn(at, " \n"), rest = strcspn(at, "\n");
        const char *ranks = at + name + (at[name] == ' ');
        bad = bytes_add(&b, "node=", 5) || bytes_add(&b, at, name) || bytes_add(&b, "", 1) ||
              bytes_add(&b, "ranks=", 6) || bytes_add(&b, ranks, (size_t)(at + rest - ranks)) ||
              bytes_add(&b, "", 1);
        at += rest + (at[rest] == '\n');
    }
    bad = bad || queue(p, 'S', b.at, b.used);
    free(b.at);
    return bad ? -1 : 0;
}

static int start(struct pmix *p, const struct spec *s)
{
    int pair[2];
    pid_t mover = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char path[] = "PATH=/usr/bin:/bin", home[] = "HOME=/";
        char *argv[] = {(char *)s->pmix, NULL}, *envp[] = {path, home, NULL};
        int null = open("/dev/null", O_RDWR);
        setsid(); /* signals to the tasks are not for it */
        /* It is no part of the step, so nobody else would end it: tasks may have stopped it. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != mover)
            _exit(0);
        signal(SIGPIPE, SIG_DFL);
        dup2(pair[1], 0);
        dup2(null, 1);
        dup2(null, 2);
        keep_only(NULL, 0);
        execve(s->pmix, argv, envp);
        _exit(127);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return -1;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    p->pid = pid;
    return pair[0];
}

struct pmix *pmix_open(const struct spec *s, const struct channel *channels)
{
    struct pmix *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->n = s->ntasks;
    p->nodes = s->nodes;
    p->most = PMI_STORE_BYTES(s->all_tasks);
    p->tasks = calloc(p->n, sizeof *p->tasks);
    if (!p->tasks || order(p, s))
        return NULL;
    for (size_t i = 0; i < p->n; i++)
        p->tasks[i] = (struct pmix_task){s->tasks[i].id, channels[i].pmi};
    p->fd = start(p, s);
    if (p->fd < 0)
        pmix_close(p); /* tasks learn that there is none */
    return p;
}

void pmix_close(struct pmix *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    if (p->pid > 0)
        kill(p->pid, SIGKILL);
    p->pid = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->tasks[i].fd >= 0) {
            close(p->tasks[i].fd);
            p->tasks[i].fd = -1;
        }
}

size_t pmix_exchange_max(const struct pmix *p)
{
    size_t most = p->most + 8 * (size_t)p->nodes;
    return most < UINT32_MAX - 64 ? most : UINT32_MAX - 64;
}

int pmix_fd(const struct pmix *p)
{
    return p->fd;
}

short pmix_events(const struct pmix *p)
{
    return (short)(POLLIN | (p->sent < p->out.used ? POLLOUT : 0));
}

static void push(struct pmix *p)
{
    while (p->fd >= 0 && p->sent < p->out.used) {
        ssize_t n =
            send(p->fd, p->out.at + p->sent, p->out.used - p->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            p->sent += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n == 0 || errno != EINTR)
            pmix_close(p);
    }
    free(p->out.at);
    p->out = (struct bytes){0};
    p->sent = 0;
}

/* What a task adds to its environment; it reads until the end. An environment fits into the
 * socket: one that does not is none. */
static void equip(struct pmix *p, uint32_t rank, const char *text, size_t n)
{
    for (size_t i = 0; i < p->n; i++) {
        struct pmix_task *t = &p->tasks[i];
        if (t->rank != rank || t->fd < 0)
            continue;
        if (send(t->fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
            send(t->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* an empty word: it was whole */
        close(t->fd);
        t->fd = -1;
    }
}

static void all_parts(struct pmix *p, const unsigned char *data, size_t n)
{
    p->round++;
    if (queue(p, 'K', data, n))
        pmix_close(p);
    else
        push(p);
}

static void obey(struct pmix *p, struct wire *w, char letter, const unsigned char *body, size_t n)
{
    if (letter == 'E' && n >= 4) {
        equip(p, get32(body), (const char *)body + 4, n - 4);
    } else if (letter == 'A' && n >= 4) {
        wire_large(w, 'A', get32(body), body + 4, n - 4);
    } else if (letter == 'K' && p->nodes > 1) {
        wire_large(w, 'K', p->round, body, n);
    } else if (letter == 'K') { /* alone: its part is all */
        struct bytes all = {0};
        unsigned char head[4];
        put32(head, (uint32_t)n);
        if (!bytes_add(&all, head, sizeof head) && !bytes_add(&all, body, n))
            all_parts(p, (unsigned char *)all.at, all.used);
        free(all.at);
    }
}

void pmix_turn(struct pmix *p, short revents, struct wire *w)
{
    if (p->fd < 0 || !revents)
        return;
    if (revents & POLLOUT)
        push(p);
    if (p->fd < 0 || !(revents & (POLLIN | POLLHUP | POLLERR)))
        return;
    char data[READ_BYTES];
    ssize_t n = recv(p->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || bytes_add(&p->in, data, (size_t)n)) {
        pmix_close(p);
        return;
    }
    size_t at = 0;
    while (p->fd >= 0 && p->in.used - at >= 5) {
        const unsigned char *head = (unsigned char *)p->in.at + at;
        size_t length = get32(head);
        if (length < 1 || length > p->most + 16) {
            pmix_close(p);
            return;
        }
        if (p->in.used - at < 4 + length)
            break;
        obey(p, w, (char)head[4], head + 5, length - 1);
        at += 4 + length;
    }
    p->in.used -= at;
    memmove(p->in.at, p->in.at + at, p->in.used);
}

void pmix_exchanged(struct pmix *p, uint32_t round, const unsigned char *data, size_t n)
{
    if (round == p->round && p->fd >= 0)
        all_parts(p, data, n);
}
