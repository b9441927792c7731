/* The sockets on which tasks speak PMI-1 or PMI-2, and the exchange of what they put with the other
 * nodes, which the client carries out. A task that talks nonsense loses its connection; one that
 * does not read its answers is not read. */
#include "pmi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PMI2_HEAD 6 /* digits of the length of a command */
#define READ_BYTES 4096

struct pmi *pmi_open(const struct spec *s, const struct channel *channels)
{
    struct pmi *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    p->n = s->ntasks;
    p->tasks = calloc(p->n, sizeof *p->tasks);
    p->jobid = strdup(*s->pmi_jobid ? s->pmi_jobid : "0.0");
    p->all_tasks = s->all_tasks;
    p->nodes = s->nodes;
    p->keys.most = p->attributes.most = PMI_STORE_BYTES(p->all_tasks);
    if (p->epoll < 0 || !p->tasks || !p->jobid)
        return NULL;
    if (*s->pmi_mapping && strlen(s->pmi_mapping) < PMI_VALUE_MAX)
        kvs_put(&p->keys, "PMI_process_mapping", s->pmi_mapping);
    for (size_t i = 0; i < p->n; i++) {
        struct pmi_task *t = &p->tasks[i];
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = t};
        *t = (struct pmi_task){.rank = s->tasks[i].id, .fd = channels[i].pmi};
        if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, t->fd, &e))
            return NULL;
    }
    return p;
}

size_t pmi_exchange_max(const struct pmi *p)
{
    size_t most = p->keys.most + 8 * (size_t)p->nodes;
    return most < UINT32_MAX - 64 ? most : UINT32_MAX - 64;
}

int pmi_epoll(const struct pmi *p)
{
    return p->epoll;
}

static void drop(struct pmi *p, struct pmi_task *t)
{
    if (t->fd < 0)
        return;
    epoll_ctl(p->epoll, EPOLL_CTL_DEL, t->fd, NULL);
    close(t->fd);
    t->fd = -1;
    free(t->in.at);
    free(t->out.at);
    t->in = t->out = (struct bytes){0};
}

/* Sends answers; as long as some are left, nothing more is read from this task. */
void pmi_push(struct pmi *p, struct pmi_task *t)
{
    while (t->fd >= 0 && t->sent < t->out.used) {
        ssize_t n =
            send(t->fd, t->out.at + t->sent, t->out.used - t->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            t->sent += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            break;
        else if (n == 0 || errno != EINTR)
            drop(p, t);
    }
    if (t->fd < 0)
        return;
    bool writes = t->sent < t->out.used;
    if (!writes)
        t->sent = t->out.used = 0;
    if (writes != t->writes) {
        struct epoll_event e = {.events = writes ? EPOLLOUT : EPOLLIN, .data.ptr = t};
        epoll_ctl(p->epoll, EPOLL_CTL_MOD, t->fd, &e);
        t->writes = writes;
    }
}

/* Length of the first command in what has come, with what frames it (before it: *head, after it:
 * *tail); 0: not whole yet, -1: nonsense. */
static ssize_t framed(const struct pmi_task *t, const char *at, size_t n, size_t *head,
                      size_t *tail)
{
    if (t->version == 2) {
        size_t length = 0;
        *head = PMI2_HEAD;
        *tail = 0;
        if (n < PMI2_HEAD)
            return 0;
        char digits[PMI2_HEAD + 1] = "", *end; /* with blanks before or after them */
        memcpy(digits, at, PMI2_HEAD);
        if (digits[strspn(digits, " ")] < '0' || digits[strspn(digits, " ")] > '9')
            return -1;
        length = strtoul(digits, &end, 10);
        if (end[strspn(end, " ")])
            return -1;
        if (!length || length > PMI_LINE_MAX)
            return -1;
        return n < PMI2_HEAD + length ? 0 : (ssize_t)length;
    }
    const char *end = memchr(at, '\n', n);
    *head = 0;
    *tail = 1;
    if (!end)
        return n > PMI_LINE_MAX ? -1 : 0;
    return end - at ? end - at : -1;
}

static void obey(struct pmi *p, struct pmi_task *t)
{
    size_t at = 0;
    while (t->fd >= 0 && !t->writes) {
        size_t head, tail;
        ssize_t n = framed(t, t->in.at + at, t->in.used - at, &head, &tail);
        if (n < 0) {
            drop(p, t);
            return;
        }
        if (!n)
            break;
        char *line = t->in.at + at + head, *after = line + n, kept = *after;
        *after = 0; /* bytes_add left one more */
        int rc = pmi_command(p, t, line, (size_t)n);
        if (t->fd < 0)
            return;
        *after = kept;
        if (rc) {
            drop(p, t);
            return;
        }
        at += head + (size_t)n + tail;
        pmi_push(p, t);
    }
    if (t->fd < 0)
        return;
    t->in.used -= at;
    memmove(t->in.at, t->in.at + at, t->in.used);
}

static void receive(struct pmi *p, struct pmi_task *t)
{
    char data[READ_BYTES + 1];
    ssize_t n = recv(t->fd, data, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(p, t);
        return;
    }
    data[n] = 0; /* room for the NUL behind the last command */
    if (bytes_add(&t->in, data, (size_t)n + 1)) {
        drop(p, t);
        return;
    }
    t->in.used--;
    obey(p, t);
}

/* ---- the fence ------------------------------------------------------------------------------- */

static void release_all(struct pmi *p)
{
    p->fenced = 0;
    p->round++;
    for (size_t i = 0; i < p->n; i++) {
        struct pmi_task *t = &p->tasks[i];
        bool fenced = t->fenced;
        t->fenced = false;
        if (fenced && t->fd >= 0)
            pmi_release(p, t);
    }
}

void pmi_fence(struct pmi *p, struct pmi_task *t)
{
    t->fenced = true;
    if (++p->fenced < p->n)
        return;
    if (p->nodes > 1) {
        p->exchanging = wire_large(p->wire, 'K', p->round, p->fresh.at, p->fresh.used);
    } else {
        release_all(p);
        for (size_t i = 0; i < p->n; i++)
            if (&p->tasks[i] != t) /* its own answer is sent when its command is done */
                pmi_push(p, &p->tasks[i]);
    }
    free(p->fresh.at);
    p->fresh = (struct bytes){0};
}

/* One node's part: pairs of a key and a value, each with its NUL. */
static void learn(struct pmi *p, const char *at, size_t n)
{
    while (n) {
        const char *value = memchr(at, 0, n);
        if (!value)
            return;
        value++;
        const char *end = memchr(value, 0, n - (size_t)(value - at));
        if (!end)
            return;
        kvs_put(&p->keys, at, value);
        n -= (size_t)(end + 1 - at);
        at = end + 1;
    }
}

void pmi_exchanged(struct pmi *p, uint32_t round, const unsigned char *data, size_t n)
{
    if (!p->exchanging || round != p->round)
        return;
    while (n >= 4) {
        size_t part = get32(data);
        if (part > n - 4)
            break;
        learn(p, (const char *)data + 4, part);
        data += 4 + part;
        n -= 4 + part;
    }
    p->exchanging = false;
    release_all(p);
    for (size_t i = 0; i < p->n; i++)
        pmi_push(p, &p->tasks[i]);
}

void pmi_abort(struct pmi *p, struct pmi_task *t, long code, const char *text)
{
    (void)t;
    wire_large(p->wire, 'A', (uint32_t)code, text, strlen(text));
}

void pmi_turn(struct pmi *p, struct wire *w)
{
    struct epoll_event e[64];
    int n = epoll_wait(p->epoll, e, 64, 0);
    p->wire = w;
    for (int i = 0; i < n; i++) {
        struct pmi_task *t = e[i].data.ptr;
        if (t->fd < 0)
            continue;
        if (t->writes) {
            pmi_push(p, t);
            if (t->fd >= 0 && !t->writes && t->in.used)
                obey(p, t); /* what came before the answers were taken */
        } else {
            receive(p, t);
        }
    }
}
