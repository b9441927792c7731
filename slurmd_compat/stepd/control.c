/* The record of the step and those who follow it: the status file, the control socket, the events.
 * All paths are relative: the working directory is the step's own, private to the daemon, and may
 * be longer than a socket name. */
#include "stepd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

void control_start(struct control *c)
{
    *c = (struct control){.listener = -1, .status = -1};
    for (int i = 0; i < CLIENTS_MAX; i++)
        c->clients[i].fd = -1;
}

/* Appends to the record. A line that could be written only in part (a full disk) is ended by the
 * next one, so that it spoils nothing but itself. */
static int append(struct control *c, const char *text, size_t n)
{
    size_t skip = c->torn ? 1 : 0;
    struct iovec parts[2] = {{.iov_base = (char[]){'\n'}, .iov_len = skip},
                             {.iov_base = (char *)text, .iov_len = n}};
    if (c->status < 0)
        return -1;
    ssize_t wrote = writev(c->status, parts, 2);
    if (wrote == (ssize_t)(n + skip))
        c->torn = false;
    else if (wrote > 0)
        c->torn = true, errno = ENOSPC;
    return wrote == (ssize_t)(n + skip) ? 0 : -1;
}

int control_claim(struct control *c)
{
    c->status = open("status", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (c->status < 0)
        return -1;
    char text[64];
    int n =
        snprintf(text, sizeof text, "stepd %d %d\nstate starting\n", STEPD_VERSION, (int)getpid());
    if (append(c, text, (size_t)n) == 0)
        return 0;
    int error = errno;
    close(c->status);
    c->status = -1;
    unlink("status"); /* half a claim is none: another try must be possible */
    errno = error;
    return -1;
}

int control_open(struct control *c)
{
    c->wanted = false;
    if (c->listener >= 0)
        return 0;
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "ctl"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old = umask(0177);
    int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, sizeof a);
    umask(old);
    if (rc == 0 && listen(fd, 8) == 0) {
        c->listener = fd;
        return 0;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        unlink("ctl"); /* bound, but nobody would be heard: another try must be possible */
    errno = error;
    return -1;
}

void control_close(struct control *c)
{
    if (c->listener >= 0)
        unlink("ctl");
}

static void drop(struct control *c, struct client *k)
{
    close(k->fd);
    k->fd = -1;
    bool any = false;
    for (int i = 0; i < CLIENTS_MAX; i++)
        any = any || c->clients[i].fd >= 0;
    if (!any)
        c->wanted = true; /* whoever follows us next must find us */
}

void control_adopt(struct control *c, int fd)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (c->clients[i].fd < 0) {
            c->clients[i] = (struct client){.fd = fd};
            return;
        }
    close(fd); /* more followers than anyone needs */
}

void control_accept(struct control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) ||
        (who.uid != 0 && who.uid != geteuid()))
        close(fd);
    else
        control_adopt(c, fd);
}

static void send_text(struct control *c, struct client *k, const char *text, size_t n)
{
    if (k->fd < 0)
        return;
    if (send(k->fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
        drop(c, k); /* gone, or does not read: it can come back and ask; we wait for nobody */
}

void control_reply(struct control *c, struct client *k, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        send_text(c, k, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

int control_line(struct control *c, struct client *k, char out[LINE_MAX_BYTES], bool fresh)
{
    if (fresh) {
        ssize_t n = recv(k->fd, k->line + k->used, sizeof k->line - k->used, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            drop(c, k);
            return -1;
        }
        k->used += n > 0 ? (size_t)n : 0;
    }
    char *end = memchr(k->line, '\n', k->used);
    if (!end) {
        if (k->used == sizeof k->line) {
            control_reply(c, k, "error line too long\n");
            if (k->fd >= 0)
                drop(c, k);
            return -1;
        }
        return 0;
    }
    size_t n = (size_t)(end - k->line);
    memcpy(out, k->line, n);
    out[n] = 0;
    if (memchr(out, 0, n)) /* a NUL inside: no command has one */
        strcpy(out, "?");
    k->used -= n + 1;
    memmove(k->line, end + 1, k->used);
    return 1;
}

/* All lines of the record, or the one line of an event. */
static int lines(const struct record *r, const char *only, char *out, size_t size)
{
    size_t n = 0;
#define LINE(name, on, ...)                                 \
    if ((on) && (!only || !strcmp(only, name)) && n < size) \
    n += (size_t)snprintf(out + n, size - n, __VA_ARGS__)
    LINE("started", r->started, "started %d\n", (int)r->pid);
    LINE("failed", r->failed, "failed %d %s\n", r->error, r->text);
    LINE("ended", r->ended, "ended %d %s %lld %lld %lld %lld\n", r->wstatus, r->cause,
         (long long)r->utime_us, (long long)r->stime_us, (long long)r->maxrss_kb,
         (long long)r->elapsed_ms);
    LINE("released", r->released, "released\n");
#undef LINE
    return (int)(n < size ? n : size - 1);
}

/* Room for n more bytes of lines about tasks; NULL without memory. */
static char *queue_room(struct control *c, size_t n)
{
    if (c->queued + n > c->room) {
        size_t room = c->room ? c->room : 1024;
        while (room < c->queued + n)
            room *= 2;
        char *queue = realloc(c->queue, room);
        if (!queue)
            return NULL;
        c->queue = queue;
        c->room = room;
    }
    return c->queue + c->queued;
}

void control_task(struct control *c, uint32_t id, const struct task *task, char which)
{
    enum { LONGEST = 200 };
    char *at = queue_room(c, LONGEST);
    if (!at)
        return;
    if (which == 's')
        c->queued += (size_t)snprintf(at, LONGEST, "task %u started %d\n", id, (int)task->pid);
    else
        c->queued += (size_t)snprintf(at, LONGEST, "task %u ended %d %s %lld %lld %lld %lld\n", id,
                                      task->wstatus, task->cause, (long long)task->utime_us,
                                      (long long)task->stime_us, (long long)task->maxrss_kb,
                                      (long long)task->elapsed_ms);
}

void control_flush(struct control *c)
{
    if (!c->queued)
        return;
    append(c, c->queue, c->queued);
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (c->clients[i].fd >= 0 && c->clients[i].watch)
            send_text(c, &c->clients[i], c->queue, c->queued);
    c->queued = 0;
    if (c->room > 65536) {
        free(c->queue);
        c->queue = NULL;
        c->room = 0;
    }
}

void control_history(struct control *c, struct client *k, const struct record *r,
                     const struct task_spec *specs, const struct task *tasks, size_t n)
{
    char text[1024];
    control_flush(c); /* what is told below would be told again */
    int length = lines(r, "started", text, sizeof text);
    if (length > 0)
        send_text(c, k, text, (size_t)length);
    for (size_t i = 0; i < n; i++) {
        if (tasks[i].started)
            control_task(c, specs[i].id, &tasks[i], 's');
        if (tasks[i].ended)
            control_task(c, specs[i].id, &tasks[i], 'e');
    }
    if (c->queued)
        send_text(c, k, c->queue, c->queued);
    c->queued = 0;
    static const char *const rest[] = {"failed", "ended", "released"};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if ((length = lines(r, rest[i], text, sizeof text)) > 0)
            send_text(c, k, text, (size_t)length);
}

void control_publish(struct control *c, const struct record *r, const char *event)
{
    char text[1200];
    control_flush(c); /* in the order of what has happened */
    int n = event ? lines(r, event, text, sizeof text) : 0;
    int all = n + snprintf(text + n, sizeof text - (size_t)n, "state %s\n", r->state);
    append(c, text, (size_t)all); /* where that fails, followers still hear of it */
    if (!event)
        return;
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (c->clients[i].fd >= 0 && c->clients[i].watch)
            send_text(c, &c->clients[i], text, (size_t)n);
}
