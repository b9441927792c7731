/* PMI: gathers a part of each round from every node and sends all of them to all. */
#include "mover.h"

#include <stdlib.h>
#include <string.h>

struct round {
    struct round *next;
    uint32_t number, have;
    struct buffer *parts; /* by place */
    bool *there;
};

static struct round *rounds;

static struct round *round_of(uint32_t number) {
    for (struct round *r = rounds; r; r = r->next)
        if (r->number == number)
            return r;
    struct round *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->number = number;
    r->parts = calloc(step_nodes, sizeof *r->parts);
    r->there = calloc(step_nodes, sizeof *r->there);
    r->next = rounds;
    rounds = r;
    return r;
}

static void drop(struct round *r) {
    struct round **at = &rounds;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    for (uint32_t i = 0; r->parts && i < step_nodes; i++)
        free(r->parts[i].data);
    free(r->parts);
    free(r->there);
    free(r);
}

static bool answer(struct round *r) {
    size_t size = 4;
    for (uint32_t i = 0; i < step_nodes; i++)
        size += 4 + r->parts[i].used;
    struct blob *b = blob_message('K', size);
    if (!b)
        return false;
    unsigned char *at = b->data + FIELD_HEAD;
    put32(at, r->number);
    at += 4;
    for (uint32_t i = 0; i < step_nodes; i++) {
        put32(at, r->parts[i].used);
        if (r->parts[i].used)
            memcpy(at + 4, r->parts[i].data, r->parts[i].used);
        at += 4 + r->parts[i].used;
    }
    for (struct link *l = links_first(); l; l = links_next(l))
        if (l->kind == KIND_DATA)
            link_send(l, b);
    blob_drop(b);
    return true;
}

bool exchange_part(struct link *l, const char *data, size_t size) {
    if (size < 4 || l->place >= step_nodes)
        return false;
    struct round *r = round_of((uint32_t)get32(data));
    if (!r || !r->parts || !r->there || r->there[l->place])
        return false;
    char *at = grown(&r->parts[l->place], size - 4);
    if (size > 4) {
        if (!at)
            return false;
        memcpy(at, data + 4, size - 4);
    }
    r->there[l->place] = true;
    if (++r->have < step_nodes)
        return true;
    bool good = answer(r);
    drop(r);
    return good;
}
