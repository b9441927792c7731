/* The data connection: a hello, then messages of four bytes of length (of what follows), a letter,
 * and so many bytes less one. Nothing the client sends is believed. */
#include "mover.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_MS 15000
#define FRAME_MAX (1u << 20) /* of other messages; input comes in far smaller ones */

void put32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void alive_options(int fd)
{
    int on = 1, idle = 60, every = 30, times = 5;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* A client whose host has died must not be waited for for ever. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

void wire_open(struct wire *w, const char *address, const unsigned char secret[32], unsigned place)
{
    char host[301];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    const char *colon = strrchr(address, ':');
    size_t n = (size_t)(colon - address);
    memset(w, 0, sizeof *w);
    w->fd = -1;
    if (n > 1 && address[0] == '[' && address[n - 1] == ']') { /* [::1]:port */
        address++;
        n -= 2;
    }
    memcpy(host, address, n); /* spec.c: at most 300 */
    host[n] = 0;
    if (getaddrinfo(host, colon + 1, &hints, &found)) {
        w->error = EHOSTUNREACH;
        return;
    }
    w->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    w->out = malloc(OUT_BYTES);
    w->in = malloc(IN_BYTES);
    if (w->fd < 0 || !w->out || !w->in ||
        (connect(w->fd, found->ai_addr, found->ai_addrlen) && errno != EINPROGRESS)) {
        w->error = errno ? errno : ENOMEM;
        wire_close(w);
    } else {
        alive_options(w->fd);
        w->connecting = true;
        w->deadline = now_ms() + CONNECT_MS;
        memcpy(w->out, "GSIO\1D", 6);
        w->out[6] = (unsigned char)(place >> 8);
        w->out[7] = (unsigned char)place;
        memset(w->out + 8, 0, 4);
        memcpy(w->out + 12, secret, 32);
        w->used = 44;
    }
    freeaddrinfo(found);
}

void wire_close(struct wire *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    free(w->body);
    free(w->out);
    free(w->in);
    w->body = w->out = w->in = NULL;
    w->used = w->head = w->got = 0;
    while (w->blobs) {
        struct blob *next = w->blobs->next;
        free(w->blobs);
        w->blobs = next;
    }
}

bool wire_empty(const struct wire *w)
{
    return w->fd < 0 || (!w->used && !w->blobs);
}

short wire_events(const struct wire *w)
{
    return (short)((w->connecting ? 0 : POLLIN) | (wire_empty(w) ? 0 : POLLOUT));
}

/* ---- sending --------------------------------------------------------------------------------- */

size_t wire_room(const struct wire *w)
{
    size_t end = w->head + w->used + HEAD + OUT_SPARE;
    return w->fd < 0 || w->blobs || end >= OUT_BYTES ? 0 : OUT_BYTES - end;
}

unsigned char *wire_place(struct wire *w)
{
    return w->out + w->head + w->used + HEAD;
}

void wire_commit(struct wire *w, char letter, uint32_t task, size_t n)
{
    unsigned char *at = w->out + w->head + w->used;
    put32(at, (uint32_t)n + HEAD - 4);
    at[4] = (unsigned char)letter;
    put32(at + 5, task);
    w->used += HEAD + n;
}

bool wire_short(struct wire *w, char letter, uint32_t number, const void *data, size_t n)
{
    if (w->fd < 0)
        return true; /* nobody to be told */
    if (w->blobs || w->head + w->used + HEAD + n > OUT_BYTES)
        return false;
    if (n)
        memcpy(wire_place(w), data, n);
    wire_commit(w, letter, number, n);
    return true;
}

bool wire_large(struct wire *w, char letter, uint32_t number, const void *data, size_t n)
{
    struct blob *b, **last = &w->blobs;
    if (w->fd < 0)
        return true;
    if (!(b = malloc(sizeof *b + HEAD + n)))
        return false;
    *b = (struct blob){.size = HEAD + n};
    put32(b->bytes, (uint32_t)n + HEAD - 4);
    b->bytes[4] = (unsigned char)letter;
    put32(b->bytes + 5, number);
    if (n)
        memcpy(b->bytes + HEAD, data, n);
    while (*last)
        last = &(*last)->next;
    *last = b;
    return true;
}

void wire_flush(struct wire *w)
{
    while (w->fd >= 0 && !w->connecting && !wire_empty(w)) {
        struct blob *b = w->used ? NULL : w->blobs;
        const unsigned char *from = b ? b->bytes + b->at : w->out + w->head;
        ssize_t n = send(w->fd, from, b ? b->size - b->at : w->used, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            wire_close(w);
        if (n < 0)
            return;
        if (b && (b->at += (size_t)n) == b->size) {
            w->blobs = b->next;
            free(b);
        } else if (!b) {
            w->head += (size_t)n;
            w->used -= (size_t)n;
            if (!w->used)
                w->head = 0;
        }
    }
    if (w->head > OUT_BYTES / 2) { /* so that room is where it is looked for */
        memmove(w->out, w->out + w->head, w->used);
        w->head = 0;
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A message that is kept whole has come. */
static void deliver(struct wire *w, const struct wire_calls *calls)
{
    const unsigned char *p = w->body;
    if (w->letter == 'W' && w->filled == 4)
        calls->window(w, (unsigned)p[0] << 8 | p[1], (unsigned)p[2] << 8 | p[3]);
    else if (w->letter == 'K' && w->filled >= 4)
        calls->exchange(w, get32(p), p + 4, w->filled - 4);
    free(w->body);
    w->body = NULL;
    w->inside = false;
}

/* Takes what it can of the n bytes; how many. -1: nonsense. */
static ssize_t take(struct wire *w, const unsigned char *p, size_t n,
                    const struct wire_calls *calls)
{
    if (!w->inside) {
        if (n < 5)
            return 0;
        uint32_t length = get32(p);
        size_t head = p[4] == 'I' ? HEAD : 5;
        size_t most = p[4] == 'K' ? w->most + 16 : FRAME_MAX;
        if (length < head - 4 || length > most)
            return -1;
        if (n < head)
            return 0;
        w->inside = true;
        w->letter = (char)p[4];
        w->left = length - (head - 4);
        w->filled = 0;
        if (w->letter == 'I') {
            w->task = get32(p + 5);
            if (!w->left) {
                calls->input(w, w->task, NULL, 0);
                w->inside = false;
            }
            return HEAD;
        }
        if (w->letter == 'W' || w->letter == 'K') {
            if (w->letter == 'W' && w->left > 64)
                return -1;
            w->body = malloc(w->left ? w->left : 1);
            if (!w->body)
                return -1;
        }
        if (!w->left)
            deliver(w, calls); /* also a letter that is not known */
        return 5;
    }
    size_t part = n < w->left ? n : w->left;
    w->left -= part;
    if (w->letter == 'I') {
        calls->input(w, w->task, p, part);
        if (!w->left)
            w->inside = false;
    } else {
        if (w->body)
            memcpy(w->body + w->filled, p, part);
        w->filled += part;
        if (!w->left)
            deliver(w, calls);
    }
    return (ssize_t)part;
}

static void receive(struct wire *w, const struct wire_calls *calls)
{
    ssize_t n = recv(w->fd, w->in + w->got, IN_BYTES - w->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        wire_close(w);
        return;
    }
    w->got += (size_t)n;
    size_t at = 0;
    while (at < w->got && w->fd >= 0) {
        ssize_t used = take(w, w->in + at, w->got - at, calls);
        if (used < 0) {
            wire_close(w);
            return;
        }
        if (used == 0)
            break;
        at += (size_t)used;
    }
    w->got -= at;
    memmove(w->in, w->in + at, w->got);
}

void wire_turn(struct wire *w, short revents, const struct wire_calls *calls)
{
    if (w->fd < 0)
        return;
    if (w->connecting) {
        socklen_t size = sizeof w->error;
        if (!revents && now_ms() < w->deadline)
            return;
        if (!revents)
            w->error = ETIMEDOUT;
        else if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &w->error, &size))
            w->error = errno;
        if (w->error) {
            wire_close(w);
            return;
        }
        w->connecting = false;
    }
    if (revents & (POLLIN | POLLHUP | POLLERR))
        receive(w, calls);
    wire_flush(w);
}
