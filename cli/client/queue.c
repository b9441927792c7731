/* What is to be sent on a connection that may not take it at once. */
#include "mover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct blob *blob_message(char letter, size_t size) {
    struct blob *b = malloc(sizeof *b + FIELD_HEAD + size);
    if (!b)
        return NULL;
    b->refs = 1;
    b->size = FIELD_HEAD + size;
    put32(b->data, size + 1);
    b->data[4] = (unsigned char)letter;
    return b;
}

void blob_drop(struct blob *b) {
    if (b && --b->refs == 0)
        free(b);
}

bool queue_add(struct queue *q, struct blob *b) {
    struct item *i = malloc(sizeof *i);
    if (!i)
        return false;
    *i = (struct item){.blob = b};
    b->refs++;
    if (q->last)
        q->last->next = i;
    else
        q->first = i;
    q->last = i;
    return true;
}

static void drop_first(struct queue *q) {
    struct item *i = q->first;
    q->first = i->next;
    if (!q->first)
        q->last = NULL;
    q->sent = 0;
    blob_drop(i->blob);
    free(i);
}

int queue_send(struct queue *q, int fd) {
    while (q->first) {
        struct blob *b = q->first->blob;
        ssize_t n = send(fd, b->data + q->sent, b->size - q->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        q->sent += (size_t)n;
        if (q->sent == b->size)
            drop_first(q);
    }
    return 1;
}

void queue_clear(struct queue *q) {
    while (q->first)
        drop_first(q);
}
