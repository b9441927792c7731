/* The thin client: sbatch, squeue, srun ... as one small program, told apart by its name.
 *
 * What its parts share. main.c (which command, and the Python command instead), locate.c (where the
 * worker is), request.c (what it is sent), converse.c (what it says and asks), bytes.c; the files
 * of mover.h carry out what a worker answers to srun, salloc, sattach and sbcast.
 *
 * A message is four bytes of length, big-endian, a letter, and so many bytes less one.
 * A field of a request is a letter, four bytes of length, and the bytes.
 */
#ifndef CLIENT_H
#define CLIENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_BYTES 16
#define FIELD_HEAD 5
#define MESSAGE_MAX (2u << 30)
/* the largest file that a worker is sent; more than any script may have */
#define FILE_MAX (12u << 20)
/* a script up to this size goes along with the request */
#define SCRIPT_ALONG (256 << 10)
/* how long a worker may take to say that it is there, and to take what it is sent */
#define PATIENCE_MS 2000
#define SECRET_BYTES 32

struct buffer {
    char *data;
    size_t used, room;
};

/* main.c: the name of the command, its words, and the base of the ids of all that it asks for */
extern const char *name;
extern char **args;
extern char request_id[2 * ID_BYTES + 1];
/* standard input, once a worker has asked for it: the Python command must find it again */
extern int taken;

/* bytes.c */
void *grown(struct buffer *b, size_t more); /* place for `more` bytes at the end; NULL: none left */
void put32(void *at, size_t value);
size_t get32(const void *at);
bool write_all(int fd, const char *data, size_t size);
bool read_all(int fd, char *data, size_t size);

/* locate.c */
int connected(void); /* to a worker; -1 */
/* The value of a key (lower case) of slurm.conf; false: not there, or another file may say it. */
bool conf_value(const char *key, char *out, size_t size);

/* request.c */
bool request(struct buffer *b);

/* converse.c: what a worker left to be done */
enum outcome { DONE, IN_PYTHON, BY_PLAN };
/* Serves the worker until it tells the exit code or a plan. */
enum outcome converse(int fd, int *code, struct buffer *plan);

/* listen.c: where the nodes call back */
extern int listener; /* -1: none */
extern unsigned short listen_port;
extern unsigned char listen_secret[SECRET_BYTES];
bool listener_open(void);
void listener_field(char out[80]); /* "PORT HEXSECRET" */

/* mover.c */
int mover_run(const char *plan, size_t size);

#endif
