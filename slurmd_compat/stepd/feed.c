/* Standard input on its way from the client to tasks. A client may send so many bytes ahead and
 * then waits to be told of more, so that little is held here whoever does not read. What is for
 * all tasks is held once, until the slowest has it. */
#include "mover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CREDIT_STEP (16u << 10) /* told when so much has gone, or all */

int feeds_open(struct feeds *f, size_t n)
{
    memset(f, 0, sizeof *f);
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->at = calloc(n ? n : 1, sizeof *f->at);
    return f->epoll < 0 || !f->at ? -1 : 0;
}

static void forget(struct feeds *f, struct feed *d)
{
    if (d->fd >= 0) {
        if (d->waits)
            epoll_ctl(f->epoll, EPOLL_CTL_DEL, d->fd, NULL);
        if (!d->terminal) /* the terminal is also read */
            close(d->fd);
    }
    d->fd = -1;
    d->waits = false;
    d->owed += (uint32_t)d->used; /* gone, too */
    d->used = 0;
    free(d->ring);
    d->ring = NULL;
}

static void wait_for(struct feeds *f, struct feed *d, bool waits)
{
    struct epoll_event e = {.events = EPOLLOUT, .data.ptr = d};
    if (d->waits != waits)
        epoll_ctl(f->epoll, waits ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, d->fd, &e);
    d->waits = waits;
}

/* Writes what it takes; how much, -1: nobody reads. */
static ssize_t pass(struct feed *d, const unsigned char *data, size_t n)
{
    for (;;) {
        ssize_t wrote = write(d->fd, data, n);
        if (wrote >= 0)
            return wrote;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return -1;
    }
}

static void finish(struct feeds *f, struct feed *d)
{
    static const unsigned char end = 4; /* the terminal's end of file */
    if (d->terminal) {
        if (!d->done)
            d->done = pass(d, &end, 1) != 0;
        wait_for(f, d, !d->done);
    } else {
        forget(f, d);
    }
}

/* Moves on what is held for one. */
static void push(struct feeds *f, struct feed *d)
{
    while (d->fd >= 0 && d->used) {
        size_t part = HELD - d->head < d->used ? HELD - d->head : d->used;
        ssize_t n = pass(d, d->ring + d->head, part);
        if (n < 0)
            forget(f, d);
        if (n <= 0)
            break;
        d->head = (d->head + (size_t)n) % HELD;
        d->used -= (size_t)n;
        d->owed += (uint32_t)n;
    }
    while (d->fd >= 0 && !d->used && d->at < f->end) {
        size_t head = d->at % HELD, part = f->end - d->at;
        ssize_t n = pass(d, f->ring + head, part < HELD - head ? part : HELD - head);
        if (n < 0)
            forget(f, d);
        if (n <= 0)
            break;
        d->at += (uint64_t)n;
    }
    if (d->fd < 0)
        return;
    bool all = !d->used && d->at == f->end;
    if (all && (d->eof || f->eof))
        finish(f, d);
    else
        wait_for(f, d, !all);
}

/* What the slowest has had need not be held. */
static void release(struct feeds *f)
{
    uint64_t least = f->end;
    for (size_t i = 0; i < f->n; i++)
        if (f->at[i].fd >= 0 && f->at[i].at < least)
            least = f->at[i].at;
    f->owed += (uint32_t)(least - f->base);
    f->base = least;
}

static int take_for_all(struct feeds *f, const unsigned char *data, size_t n)
{
    if (f->eof)
        return 0; /* after its end: nothing */
    if (!n)
        f->eof = true;
    if (!f->fed)
        f->owed += HELD - CREDIT;
    f->fed = true;
    if (n > HELD - (f->end - f->base))
        return -1;
    if (n && !f->ring && !(f->ring = malloc(HELD)))
        return -1;
    while (n) {
        size_t head = f->end % HELD, part = n < HELD - head ? n : HELD - head;
        memcpy(f->ring + head, data, part);
        f->end += part;
        data += part;
        n -= part;
    }
    for (size_t i = 0; i < f->n; i++)
        if (f->at[i].fd >= 0)
            push(f, &f->at[i]);
    release(f);
    return 0;
}

int feeds_take(struct feeds *f, struct wire *from, uint32_t task, const unsigned char *data,
               size_t n)
{
    struct feed *d = NULL;
    if (task == ALL_TASKS) {
        f->from = from;
        return take_for_all(f, data, n);
    }
    for (size_t i = 0; !d && i < f->n; i++)
        if (f->at[i].task == task)
            d = &f->at[i];
    if (!d)
        return 0; /* not here, or it reads from elsewhere */
    d->from = from;
    if (!d->fed)
        d->owed += HELD - CREDIT;
    d->fed = true;
    if (d->fd < 0 || d->eof) {
        d->owed += (uint32_t)n; /* nobody reads it: gone at once */
        return 0;
    }
    if (!n) {
        d->eof = true;
    } else {
        if (n > HELD - d->used)
            return -1;
        if (!d->ring && !(d->ring = malloc(HELD)))
            return -1;
        for (size_t left = n; left;) {
            size_t tail = (d->head + d->used) % HELD;
            size_t part = left < HELD - tail ? left : HELD - tail;
            memcpy(d->ring + tail, data, part);
            d->used += part;
            data += part;
            left -= part;
        }
    }
    push(f, d);
    return 0;
}

void feeds_turn(struct feeds *f)
{
    struct epoll_event e[32];
    int n = epoll_wait(f->epoll, e, 32, 0);
    for (int i = 0; i < n; i++)
        push(f, e[i].data.ptr);
    if (n > 0)
        release(f);
}

static void tell(struct wire *w, uint32_t task, uint32_t *owed, bool empty)
{
    unsigned char n[4];
    if (!w || !*owed || (!empty && *owed < CREDIT_STEP))
        return;
    put32(n, *owed);
    if (wire_short(w, 'C', task, n, sizeof n))
        *owed = 0;
}

void feeds_credit(struct feeds *f)
{
    for (size_t i = 0; i < f->n; i++)
        tell(f->at[i].from, f->at[i].task, &f->at[i].owed, !f->at[i].used);
    tell(f->from, ALL_TASKS, &f->owed, f->base == f->end);
}

void feeds_close(struct feeds *f)
{
    for (size_t i = 0; i < f->n; i++)
        forget(f, &f->at[i]);
}
