/* The process management interface: what pmi.c (connections, exchanges), pmicmd.c (the commands of
 * both protocols) and kvs.c (keys and values) share. */
#ifndef PMI_H
#define PMI_H

#include "mover.h"

#define PMI_KEY_MAX 64 /* bytes of a key and of a value, with their NUL, as clients are told */
#define PMI_VALUE_MAX 1024
#define PMI_LINE_MAX (64u << 10) /* of a command; as MPICH's */
/* Bytes of keys and values that a step may leave with us, who are in none of its groups: far more
 * than MPI needs for so many ranks. */
#define PMI_STORE_BYTES(ranks) ((16u << 20) + 4096 * (size_t)(ranks))

struct kvs {
    char **at; /* "key\0value\0"; a table of 2^n places, found by hashing */
    size_t n, room, bytes;
    size_t most; /* bytes that it takes */
};
/* -1: no room for more. */
int kvs_put(struct kvs *k, const char *key, const char *value);
const char *kvs_get(const struct kvs *k, const char *key); /* NULL: not there */
void kvs_free(struct kvs *k);

struct bytes { /* a buffer that grows */
    char *at;
    size_t used, room;
};
int bytes_add(struct bytes *b, const void *data, size_t n); /* -1: no memory */

struct pmi_task {
    uint32_t rank;
    int fd;        /* -1: gone */
    int version;   /* 0: has not said which */
    bool fenced;   /* waits for the others */
    bool writes;   /* waits for room in its socket */
    bool spawning; /* within the lines of a spawn */
    long spawns, spawned;
    char fence_thread[32];   /* what the answer to its fence carries */
    char wants[PMI_KEY_MAX]; /* attribute of the node that it waits for; "": none */
    char wants_thread[32];
    struct bytes in, out;
    size_t sent;
};

struct pmi {
    int epoll;
    struct pmi_task *tasks;
    size_t n, fenced;
    long all_tasks, nodes;
    char *jobid;
    struct kvs keys, attributes; /* of the step; of this node */
    struct bytes fresh;          /* put here since the last fence */
    uint32_t round;
    bool exchanging;
    struct wire *wire;
};

/* One command of a task, whole and NUL-terminated; it is changed. -1: nonsense. */
int pmi_command(struct pmi *p, struct pmi_task *t, char *line, size_t n);
/* Sends what answers there are. */
void pmi_push(struct pmi *p, struct pmi_task *t);
/* The answer to a fence. */
void pmi_release(struct pmi *p, struct pmi_task *t);
/* A task has come to the fence. */
void pmi_fence(struct pmi *p, struct pmi_task *t);
void pmi_abort(struct pmi *p, struct pmi_task *t, long code, const char *text);

#endif
