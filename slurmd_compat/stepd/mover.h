/* The mover: the user part that connects the tasks of a step with their client. What its files
 * share. It is one process without threads, waits only in poll(), and holds little: an output that
 * the client does not take stays in the task's pipe. */
#ifndef MOVER_H
#define MOVER_H

#include "stepd.h"

#include <poll.h>

#define HEAD 9 /* length, letter, task */
#define OUT_BYTES (256u << 10)
#define OUT_SPARE 4096 /* kept for short messages: credit, ends */
#define IN_BYTES (64u << 10)
#define CREDIT (64u << 10) /* bytes of input that a client may send unasked */
#define HELD (256u << 10)  /* that are held at most: it is told so once it has sent some */

/* wire.c: the data connection */
struct blob { /* a message that is too large for the buffer */
    struct blob *next;
    size_t at, size;
    unsigned char bytes[];
};
struct wire {
    int fd; /* -1: none, or gone */
    bool connecting, shut;
    int64_t deadline; /* of connecting */
    int error;        /* why it could not be made */
    unsigned char *out;
    size_t head, used;
    struct blob *blobs; /* after what is in the buffer */
    unsigned char *in;
    size_t got;
    bool inside;         /* of a message: the rest of this is for it */
    char letter;         /* its kind */
    uint32_t task;       /* of an `I` */
    size_t left;         /* bytes of it that have not come */
    unsigned char *body; /* of a message kept whole */
    size_t most;         /* bytes that it may have: what is exchanged among the nodes */
    size_t filled;
};
/* Called with what the client says. */
struct wire_calls {
    /* n 0: end of file */
    void (*input)(struct wire *w, uint32_t task, const unsigned char *data, size_t n);
    void (*window)(struct wire *w, unsigned rows, unsigned columns);
    void (*exchange)(struct wire *w, uint32_t round, const unsigned char *data, size_t n);
};
/* Begins to connect; wire->error says whether that has failed. `place`: of this node in the step. */
void wire_open(struct wire *w, const char *address, const unsigned char secret[32], unsigned place);
short wire_events(const struct wire *w);
/* After poll. Closes the connection when the client is gone. */
void wire_turn(struct wire *w, short revents, const struct wire_calls *calls);
/* Room for bytes of output; 0 while a large message is on its way. */
size_t wire_room(const struct wire *w);
/* A place for n bytes of a message that is then said to have been n: put them there, commit. */
unsigned char *wire_place(struct wire *w);
void wire_commit(struct wire *w, char letter, uint32_t task, size_t n);
/* A short message; false: no room now. */
bool wire_short(struct wire *w, char letter, uint32_t number, const void *data, size_t n);
/* A message of any length. */
bool wire_large(struct wire *w, char letter, uint32_t number, const void *data, size_t n);
void wire_flush(struct wire *w);
bool wire_empty(const struct wire *w);
void wire_close(struct wire *w);
void put32(unsigned char *at, uint32_t value);
uint32_t get32(const unsigned char *at);

/* feed.c: standard input on its way to tasks */
struct feed {
    uint32_t task;
    int fd; /* -1: nobody reads (any more) */
    bool terminal, waits, eof;
    bool fed;            /* some has come for it alone */
    unsigned char *ring; /* what has been sent to it alone; NULL: nothing */
    size_t head, used;
    uint64_t at;       /* how far it is in what is for all */
    bool done;         /* the end of file has been passed on */
    uint32_t owed;     /* credit to be told */
    struct wire *from; /* whom: who has sent last */
};
struct feeds {
    struct feed *at;
    size_t n;
    int epoll; /* those that wait for room in a pipe */
    unsigned char *ring;
    uint64_t base, end; /* of the bytes for all that are still held */
    bool eof, fed;
    uint32_t owed;
    struct wire *from;
};
int feeds_open(struct feeds *f, size_t n);
/* 0; -1: the client has sent more than it may. */
int feeds_take(struct feeds *f, struct wire *from, uint32_t task, const unsigned char *data,
               size_t n);
void feeds_turn(struct feeds *f);   /* after its epoll has become readable */
void feeds_credit(struct feeds *f); /* tells what may be sent on */
void feeds_close(struct feeds *f);

/* pmi.c: the process management interface */
struct pmi;
struct pmi *pmi_open(const struct spec *s, const struct channel *channels);
size_t pmi_exchange_max(const struct pmi *p); /* bytes of what comes back */
int pmi_epoll(const struct pmi *p);
void pmi_turn(struct pmi *p, struct wire *w);
/* All parts of an exchange. */
void pmi_exchanged(struct pmi *p, uint32_t round, const unsigned char *data, size_t n);

/* pmix.c: the same through a server of libpmix, a process of its own */
struct pmix;
struct pmix *pmix_open(const struct spec *s, const struct channel *channels);
size_t pmix_exchange_max(const struct pmix *p);
int pmix_fd(const struct pmix *p); /* -1: it is gone */
short pmix_events(const struct pmix *p);
void pmix_turn(struct pmix *p, short revents, struct wire *w);
void pmix_exchanged(struct pmix *p, uint32_t round, const unsigned char *data, size_t n);
void pmix_close(struct pmix *p);

#endif
