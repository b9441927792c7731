/* Standard input for the tasks: as much as they have asked for, to all of them or to one. */
#include "mover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (16u << 10)

static int fd = -1;
static bool pollable, ended, started;
static uint32_t target;
/* bytes sent, to each that gets them */
static uint64_t sent;

bool input_open(const struct plan *p) {
    struct stat found;
    target = p->stdin_task;
    if (!*p->in) {
        ended = true;
        return true;
    }
    fd = strcmp(p->in, "-") == 0 ? 0 : open(p->in, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        complain("error: Could not open stdin file: %s", strerror(errno));
        return false;
    }
    if (fstat(fd, &found) != 0) {
        fd = -1; /* closed by whoever started this: an empty input */
        return true;
    }
    pollable = S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode) || isatty(fd);
    if (pollable && !S_ISSOCK(found.st_mode)) {
        /* Another process may read what was there to be read: this one must not wait for more. The
         * flags of standard input are shared with others, so it is opened anew where that may be. */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int anew = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (anew >= 0)
            fd = anew;
    }
    return true;
}

void input_start(void) {
    started = true;
}

void input_credit(struct link *l, uint32_t task, uint32_t bytes) {
    if (task != target)
        return;
    l->credited = true;
    l->credit += bytes;
}

/* Does this connection get what is read? Of one task only the node that has it, once that is known
 * because it has asked for more. */
static bool gets(const struct link *l, bool known) {
    return l->kind == KIND_DATA && l->fd >= 0 && (!known || l->credited);
}

static bool target_known(void) {
    if (target != ALL_TASKS)
        for (struct link *l = links_first(); l; l = links_next(l))
            if (l->kind == KIND_DATA && l->fd >= 0 && l->credited)
                return true;
    return false;
}

void input_stop(void) {
    ended = true;
}

/* How much may be read now. Nothing while something waits to be sent: it would have to be kept. */
static size_t may(void) {
    if (!started || ended)
        return 0;
    uint64_t most = UINT64_MAX;
    bool known = target_known();
    for (struct link *l = links_first(); l; l = links_next(l)) {
        if (!gets(l, known))
            continue;
        if (l->queue.first || sent >= FREE_CREDIT + l->credit)
            return 0;
        if (FREE_CREDIT + l->credit - sent < most)
            most = FREE_CREDIT + l->credit - sent;
    }
    return most < CHUNK ? (size_t)most : CHUNK;
}

int input_fd(void) {
    return fd >= 0 && pollable && may() ? fd : -1;
}

bool input_always(void) {
    return (fd < 0 || !pollable) && may();
}

void input_turn(void) {
    static char data[CHUNK];
    size_t most = may();
    if (!most)
        return;
    ssize_t n = fd >= 0 ? read(fd, data, most) : 0;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    /* A read error (EIO: a terminal that is gone) ends it as an end of file does. */
    if (n <= 0) {
        n = 0;
        ended = true;
    }
    struct blob *b = blob_message('I', 4 + (size_t)n);
    if (!b) {
        complain("error: no memory for standard input");
        ended = true;
        return;
    }
    put32(b->data + FIELD_HEAD, target);
    memcpy(b->data + FIELD_HEAD + 4, data, (size_t)n);
    sent += (uint64_t)n;
    bool known = target_known();
    for (struct link *l = links_first(); l; l = links_next(l))
        if (gets(l, known))
            link_send(l, b);
    blob_drop(b);
}
