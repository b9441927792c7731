/* Keys and values that tasks tell each other. */
#include "pmi.h"

#include <stdlib.h>
#include <string.h>

int bytes_add(struct bytes *b, const void *data, size_t n)
{
    if (b->used + n > b->room) {
        size_t room = b->room ? b->room : 512;
        while (room < b->used + n)
            room *= 2;
        char *at = realloc(b->at, room);
        if (!at)
            return -1;
        b->at = at;
        b->room = room;
    }
    if (n)
        memcpy(b->at + b->used, data, n);
    b->used += n;
    return 0;
}

static uint64_t hash(const char *key)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 1099511628211u;
    return h ^ h >> 29;
}

/* Its place, or where it would go; the table is never full. */
static size_t place(const struct kvs *k, const char *key)
{
    size_t i = hash(key) & (k->room - 1);
    while (k->at[i] && strcmp(k->at[i], key))
        i = (i + 1) & (k->room - 1);
    return i;
}

static int grow(struct kvs *k)
{
    struct kvs more = *k;
    more.room = k->room ? 2 * k->room : 64;
    if (!(more.at = calloc(more.room, sizeof *more.at)))
        return -1;
    for (size_t i = 0; i < k->room; i++)
        if (k->at[i])
            more.at[place(&more, k->at[i])] = k->at[i];
    free(k->at);
    *k = more;
    return 0;
}

int kvs_put(struct kvs *k, const char *key, const char *value)
{
    size_t nkey = strlen(key) + 1, nvalue = strlen(value) + 1;
    if (k->bytes + nkey + nvalue > k->most || (2 * (k->n + 1) > k->room && grow(k)))
        return -1;
    char *pair = malloc(nkey + nvalue);
    if (!pair)
        return -1;
    memcpy(pair, key, nkey);
    memcpy(pair + nkey, value, nvalue);
    size_t i = place(k, key);
    if (k->at[i]) {
        k->bytes -= nkey + strlen(k->at[i] + nkey) + 1;
        free(k->at[i]);
    } else {
        k->n++;
    }
    k->at[i] = pair;
    k->bytes += nkey + nvalue;
    return 0;
}

const char *kvs_get(const struct kvs *k, const char *key)
{
    const char *pair = k->room ? k->at[place(k, key)] : NULL;
    return pair ? pair + strlen(pair) + 1 : NULL;
}

void kvs_free(struct kvs *k)
{
    for (size_t i = 0; i < k->room; i++)
        free(k->at[i]);
    free(k->at);
    *k = (struct kvs){0};
}
