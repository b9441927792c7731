/* The connections of the agent and of the supervisors: hello, and messages one after another. */
#include "mover.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* a stranger may hold a connection so long, and so many of them at once */
#define HELLO_MS 10000
#define STRANGERS 1024
/* connections taken before anything else is done */
#define BATCH 64
#define CHUNK (128u << 10)
/* labels make more of what they are put before */
#define CHUNK_LABELLED (16u << 10)
/* the most that a message may hold which is taken whole */
#define WHOLE_MAX (64u << 20)

static struct link *first;
static int poller = -1;
static unsigned strangers;
/* no more descriptors: connections wait until one is closed */
static bool full;
static char chunk[CHUNK];

void links_start(void) {
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) {
        complain("error: epoll_create: %s", strerror(errno));
        leave(1);
    }
}

int links_fd(void) {
    return poller;
}

struct link *links_first(void) {
    return first;
}

struct link *links_next(struct link *l) {
    return l->next;
}

/* Data connections say nothing before the number of tasks is known. */
static bool heard(const struct link *l) {
    return l->kind != KIND_DATA || step_known;
}

static void poll_link(struct link *l) {
    bool out = l->queue.first != NULL;
    if (l->fd < 0 || (l->polled && l->polled_out == out))
        return;
    struct epoll_event e = {.events = (heard(l) ? EPOLLIN : 0u) | (out ? EPOLLOUT : 0u),
                            .data.ptr = l};
    epoll_ctl(poller, l->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, l->fd, &e);
    l->polled = true;
    l->polled_out = out;
}

void links_listen_to_data(void) {
    for (struct link *l = first; l; l = l->next) {
        if (l->kind != KIND_DATA || l->fd < 0)
            continue;
        if (l->polled)
            epoll_ctl(poller, EPOLL_CTL_DEL, l->fd, NULL);
        l->polled = false;
        poll_link(l);
    }
}

/* Closed at once, freed at the end of the turn: the turn may still have it in its hands. */
void link_close(struct link *l) {
    if (l->fd < 0)
        return;
    /* Closing is not enough: a child that has not executed its program yet holds the socket too. */
    if (l->polled)
        epoll_ctl(poller, EPOLL_CTL_DEL, l->fd, NULL);
    close(l->fd);
    l->fd = -1;
    queue_clear(&l->queue);
    free(l->body.data);
    l->body = (struct buffer){0};
    if (l->kind == KIND_NEW)
        strangers--;
    else if (l->kind == KIND_CONTROL)
        control_lost();
    else
        data_lost();
}

static void sweep(void) {
    for (struct link *l = first, *next; l; l = next) {
        next = l->next;
        if (l->fd >= 0)
            continue;
        if (l->previous)
            l->previous->next = l->next;
        else
            first = l->next;
        if (l->next)
            l->next->previous = l->previous;
        free(l);
        full = false;
    }
}

int64_t links_tidy(int64_t now) {
    int64_t next = -1;
    if (!strangers)
        return -1;
    for (struct link *l = first; l; l = l->next) {
        if (l->kind != KIND_NEW || l->fd < 0)
            continue;
        if (now >= l->since + HELLO_MS)
            link_close(l);
        else if (next < 0 || l->since + HELLO_MS < next)
            next = l->since + HELLO_MS;
    }
    sweep();
    return next;
}

bool link_send(struct link *l, struct blob *b) {
    if (l->fd < 0 || !queue_add(&l->queue, b))
        return false;
    if (queue_send(&l->queue, l->fd) < 0) {
        link_close(l);
        return false;
    }
    poll_link(l);
    return true;
}

/* ---- hello ------------------------------------------------------------------------------ */

/* Takes as long for every secret. */
static bool same_secret(const unsigned char *other) {
    unsigned differ = 0;
    for (size_t i = 0; i < SECRET_BYTES; i++)
        differ |= (unsigned)(listen_secret[i] ^ other[i]);
    return differ == 0;
}

static bool greeted(struct link *l) {
    static const unsigned char zero[4];
    const unsigned char *h = l->head;
    if (memcmp(h, "GSIO", 4) != 0 || h[4] != 1 || (h[5] != 'C' && h[5] != 'D') ||
        memcmp(h + 8, zero, sizeof zero) != 0 || !same_secret(h + 12))
        return false;
    l->place = (unsigned)h[6] << 8 | h[7];
    enum kind kind = h[5] == 'C' ? KIND_CONTROL : KIND_DATA;
    for (struct link *o = first; o; o = o->next) {
        if (o->fd < 0 || o->kind != kind)
            continue;
        if (kind == KIND_DATA && o->place == l->place)
            return false;
        /* The agent was restarted before its old connection was seen to end. */
        if (kind == KIND_CONTROL)
            link_close(o);
    }
    strangers--;
    l->kind = kind;
    l->have = 0;
    if (!heard(l)) {
        struct epoll_event e = {.events = 0, .data.ptr = l};
        epoll_ctl(poller, EPOLL_CTL_MOD, l->fd, &e);
    }
    link_known(l);
    return true;
}

/* ---- messages --------------------------------------------------------------------------- */

static bool streamed(const struct link *l) {
    return l->kind == KIND_DATA && (l->letter == 'O' || l->letter == 'E');
}

static bool whole(struct link *l) {
    bool good = true;
    if (l->kind == KIND_CONTROL)
        control_message(l);
    else
        good = data_message(l);
    l->body.used = 0;
    if (l->body.room > CHUNK) {
        free(l->body.data);
        l->body = (struct buffer){0};
    }
    return good;
}

/* The head is complete: what comes after it. */
static bool begun(struct link *l) {
    size_t size = get32(l->head);
    l->have = 0;
    if (streamed(l)) {
        l->task = (uint32_t)get32(l->head + FIELD_HEAD);
        if (l->task >= step_tasks)
            return false;
        l->left = size - FIELD_HEAD;
        l->in_body = l->left > 0;
        if (!l->in_body)
            data_closed(l, l->task, l->letter);
        return true;
    }
    l->left = size - 1;
    l->in_body = l->left > 0;
    return l->in_body || whole(l);
}

static bool head(struct link *l, const char **data, size_t *size) {
    size_t want = l->kind == KIND_NEW ? HELLO_BYTES : FIELD_HEAD;
    if (l->kind != KIND_NEW && l->have >= FIELD_HEAD)
        want = FIELD_HEAD + 4;
    size_t part = want - l->have < *size ? want - l->have : *size;
    memcpy(l->head + l->have, *data, part);
    l->have += part;
    *data += part;
    *size -= part;
    if (l->have < want)
        return true;
    if (l->kind == KIND_NEW)
        return greeted(l);
    if (want == FIELD_HEAD) {
        size_t length = get32(l->head);
        l->letter = (char)l->head[4];
        if (length < 1 || length > WHOLE_MAX || (streamed(l) && length < FIELD_HEAD))
            return false;
        if (streamed(l))
            return true;
    }
    return begun(l);
}

static bool body(struct link *l, const char **data, size_t *size) {
    size_t part = l->left < *size ? l->left : *size;
    if (streamed(l)) {
        if (!data_moved(l, *data, part))
            return false;
    } else {
        char *at = grown(&l->body, part);
        if (!at)
            return false;
        memcpy(at, *data, part);
    }
    *data += part;
    *size -= part;
    l->left -= part;
    if (l->left)
        return true;
    l->in_body = false;
    return streamed(l) || whole(l);
}

static void read_link(struct link *l) {
    size_t most = plan.label ? CHUNK_LABELLED : CHUNK;
    /* What follows a hello waits until it may be heard. */
    if (l->kind == KIND_NEW)
        most = HELLO_BYTES - l->have;
    ssize_t n = recv(l->fd, chunk, most, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        link_close(l);
        return;
    }
    const char *data = chunk;
    size_t size = (size_t)n;
    if (l->kind == KIND_DATA)
        stirred();
    while (size && l->fd >= 0)
        if (!(l->in_body ? body(l, &data, &size) : head(l, &data, &size))) {
            link_close(l);
            break;
        }
}

/* Makes room: the one that has been silent for longest. False: there is none. */
static bool drop_stranger(void) {
    struct link *oldest = NULL;
    for (struct link *l = first; l; l = l->next)
        if (l->kind == KIND_NEW && l->fd >= 0)
            oldest = l; /* new ones stand in front */
    if (oldest)
        link_close(oldest);
    return oldest != NULL;
}

static void watch(int fd) {
    static const int on = 1, idle = 60, between = 10, count = 6;
    if (strangers >= STRANGERS)
        drop_stranger();
    struct link *l = calloc(1, sizeof *l);
    if (!l) {
        close(fd);
        return;
    }
    /* A node that has lost its power says nothing any more. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    l->fd = fd;
    l->since = patient_ms();
    l->next = first;
    if (first)
        first->previous = l;
    first = l;
    strangers++;
    /* Nodes say who they are at once. */
    read_link(l);
    poll_link(l);
}

void links_accept(void) {
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            watch(fd);
        else if (errno == EMFILE || errno == ENFILE)
            full = !drop_stranger();
        else if (errno != EINTR && errno != ECONNABORTED)
            break;
        if (full)
            break;
    }
    sweep();
}

bool links_full(void) {
    return full;
}

void links_turn(void) {
    struct epoll_event events[64];
    int n = epoll_wait(poller, events, sizeof events / sizeof *events, 0);
    for (int i = 0; i < n && !outputs_blocked(); i++) {
        struct link *l = events[i].data.ptr;
        if (l->fd < 0)
            continue;
        if (events[i].events & EPOLLOUT) {
            if (queue_send(&l->queue, l->fd) < 0) {
                link_close(l);
                continue;
            }
            poll_link(l);
        }
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
            if (heard(l)) {
                read_link(l);
            } else {
                /* Broken, but what it had sent can still be read, later. */
                epoll_ctl(poller, EPOLL_CTL_DEL, l->fd, NULL);
                l->polled = false;
            }
            outputs_flush();
        }
    }
    sweep();
}
