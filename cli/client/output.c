/* The own standard output and error, or files in their place.
 *
 * What is put is gathered and written when it is flushed or has grown; what cannot be written now
 * stays, and outputs_blocked() says that nothing more should be read until it is gone. The flags of
 * standard output are shared with whoever else has it open and are left alone: pipes and terminals
 * are opened anew, sockets have a flag for each call.
 */
#include "mover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* from here on it is written without being copied first */
#define DIRECT 4096
#define GATHER (64u << 10)

enum way { WAY_PLAIN, WAY_NONBLOCK, WAY_SOCKET, WAY_CAREFUL };
struct output {
    int fd;
    enum way way;
    bool blocked, polled, dead;
    struct buffer rest;
    size_t start;
};

static struct output made[2] = {{.fd = 1}, {.fd = 2}};
static struct output *outputs[2] = {&made[0], &made[1]};
static int poller = -1;

static void set_up(struct output *o, int fd) {
    struct stat found;
    char path[64];
    o->fd = fd;
    o->way = WAY_PLAIN;
    if (fstat(fd, &found) != 0) {
        o->dead = true;
    } else if (S_ISSOCK(found.st_mode)) {
        o->way = WAY_SOCKET;
    } else if (S_ISFIFO(found.st_mode) || isatty(fd)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int anew = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        o->way = anew < 0 ? WAY_CAREFUL : WAY_NONBLOCK;
        if (anew >= 0)
            o->fd = anew;
    }
}

static bool same(int a, int b) {
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && !S_ISREG(one.st_mode) &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* A named pipe is opened once somebody reads it; -1 with errno EINTR: a signal asked for the end.
 * Signals are blocked here, so an open that waits could not be interrupted. */
static int open_pipe(const char *path, int how) {
    static const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGQUIT);
    sigaddset(&ends, SIGHUP);
    for (;;) {
        int fd = open(path, how | O_NONBLOCK);
        if (fd >= 0 || errno != ENXIO)
            return fd;
        if (sigtimedwait(&ends, NULL, &pause) > 0) {
            errno = EINTR;
            return -1;
        }
    }
}

static int file(const struct plan *p, const char *path, const char *what) {
    int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (p->append ? O_APPEND : O_TRUNC);
    struct stat found;
    bool fifo = stat(path, &found) == 0 && S_ISFIFO(found.st_mode);
    int fd = fifo ? open_pipe(path, how) : open(path, how, 0666);
    if (fd < 0)
        complain("error: Could not open %s file: %s", what, strerror(errno));
    return fd;
}

bool outputs_open(const struct plan *p) {
    bool own[2] = {strcmp(p->out, "-") == 0, strcmp(p->err, "-") == 0};
    int fds[2] = {1, 2};
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        return false;
    if (!own[0] && (fds[0] = file(p, p->out, "stdout")) < 0)
        return false;
    /* One file for both, or one terminal or pipe: one order. */
    bool one = own[0] == own[1] && (own[0] ? same(1, 2) : strcmp(p->out, p->err) == 0);
    if (!one && !own[1] && (fds[1] = file(p, p->err, "stderr")) < 0)
        return false;
    set_up(outputs[0], fds[0]);
    if (one)
        outputs[1] = outputs[0];
    else
        set_up(outputs[1], fds[1]);
    return true;
}

int outputs_fd(void) {
    return poller;
}

bool output_dead(int which) {
    return outputs[which]->dead;
}

/* As write; -1 with EAGAIN where it would have to wait. */
static ssize_t once(struct output *o, const char *data, size_t size) {
    struct pollfd there = {.fd = o->fd, .events = POLLOUT};
    switch (o->way) {
    case WAY_SOCKET:
        return send(o->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    case WAY_CAREFUL:
        if (poll(&there, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        return write(o->fd, data, size < 512 ? size : 512);
    default:
        return write(o->fd, data, size);
    }
}

static void died(struct output *o) {
    int problem = errno;
    o->dead = true;
    o->rest.used = o->start = 0;
    if (problem != EPIPE && o != outputs[1])
        complain("error: Unable to write standard output: %s", strerror(problem));
    if (o == outputs[0])
        broken_output();
}

/* Bytes written, fewer only when it is blocked or dead. */
static size_t some(struct output *o, const char *data, size_t size) {
    size_t done = 0;
    while (done < size && !o->dead) {
        ssize_t n = once(o, data + done, size - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            struct epoll_event e = {.events = EPOLLOUT, .data.ptr = o};
            o->blocked = true;
            if (epoll_ctl(poller, o->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, o->fd, &e) == 0)
                o->polled = true;
            break;
        } else {
            died(o);
        }
    }
    return done;
}

static void flush(struct output *o) {
    if (o->dead || o->blocked)
        return;
    o->start += some(o, o->rest.data + o->start, o->rest.used - o->start);
    if (o->start >= o->rest.used)
        o->start = o->rest.used = 0;
}

void output_put(int which, const char *data, size_t size) {
    struct output *o = outputs[which];
    if (o->dead)
        return;
    if (!o->rest.used && !o->blocked && size >= DIRECT) {
        size_t done = some(o, data, size);
        data += done;
        size -= done;
    }
    if (!size || o->dead)
        return;
    char *at = grown(&o->rest, size);
    if (!at) {
        errno = ENOMEM;
        died(o);
        return;
    }
    memcpy(at, data, size);
    if (o->rest.used - o->start >= GATHER)
        flush(o);
}

void outputs_flush(void) {
    flush(outputs[0]);
    flush(outputs[1]);
}

bool outputs_blocked(void) {
    return (outputs[0]->blocked && !outputs[0]->dead) || (outputs[1]->blocked && !outputs[1]->dead);
}

void outputs_ready(void) {
    struct epoll_event events[2];
    int n = epoll_wait(poller, events, 2, 0);
    for (int i = 0; i < n; i++) {
        struct output *o = events[i].data.ptr;
        struct epoll_event none = {.events = 0, .data.ptr = o};
        o->blocked = false;
        epoll_ctl(poller, EPOLL_CTL_MOD, o->fd, &none);
        flush(o);
        /* An error is reported whether asked for or not. */
        if (!o->blocked) {
            epoll_ctl(poller, EPOLL_CTL_DEL, o->fd, NULL);
            o->polled = false;
        }
    }
}
