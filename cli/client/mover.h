/* The mover: carries out the plan that a worker answered to srun, salloc, sattach or sbcast.
 *
 * mover.c is the loop and what is decided; plan.c reads the plan; links.c keeps the connections of
 * agent and supervisors, queue.c what is to be sent on them, output.c and label.c write, input.c
 * reads and exchange.c gathers; tty.c, child.c (salloc's shell and other programs) and waiting.c
 * (until the job starts) do what their names say. Protocol: docs/design.md, section 7.
 *
 * Nothing that is moved is kept: what cannot be written stops the reading of all connections, and
 * TCP stops whoever sends.
 */
#ifndef MOVER_H
#define MOVER_H

#include "client.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#define ALL_TASKS 0xffffffffu
/* bytes of input that a task may be sent before it has asked for any */
#define FREE_CREDIT (64u << 10)

enum mode { MODE_STEP, MODE_JOB, MODE_SALLOC, MODE_ATTACH };
enum bell { BELL_NEVER, BELL_LATE, BELL_ALWAYS };

struct plan {
    enum mode mode;
    const char *job; /* its id; "" unknown */
    const char *in, *out, *err;
    const char *pending, *granted, *revoked, *expired, *prolog, *epilog, *chdir;
    int expires_s; /* seconds in which the job must start; 0 no limit */
    bool append, label, pty, quiet, no_shell, kill;
    int kill_signal; /* 0: as Slurm chooses */
    enum bell bell;
    uint32_t stdin_task, stdout_task, stderr_task; /* ALL_TASKS or one */
    char **argv, **env; /* NULL-terminated */
};

bool plan_read(struct plan *p, const char *data, size_t size); /* plan.c; false: it makes no sense */

/* ---- queue.c: bytes to be sent, shared by the connections that they go to */
struct blob {
    unsigned refs;
    size_t size;
    unsigned char data[];
};
struct item {
    struct item *next;
    struct blob *blob;
};
struct queue {
    struct item *first, *last;
    size_t sent; /* of the first */
};
/* A message of that letter with room for `size` bytes after it; NULL: no memory. */
struct blob *blob_message(char letter, size_t size);
void blob_drop(struct blob *b);
bool queue_add(struct queue *q, struct blob *b); /* takes a reference of its own */
int queue_send(struct queue *q, int fd);         /* 1 all sent, 0 not yet, -1 broken */
void queue_clear(struct queue *q);

/* ---- links.c */
enum kind { KIND_NEW, KIND_CONTROL, KIND_DATA };
#define HELLO_BYTES 44
struct link {
    struct link *next, *previous;
    int fd; /* -1: closed, to be freed */
    enum kind kind;
    unsigned place;
    int64_t since; /* ms, patient clock: when it was accepted */
    bool polled, polled_out;
    /* the message under way */
    unsigned char head[HELLO_BYTES];
    size_t have;
    bool in_body;
    char letter;
    uint32_t task;
    size_t left;
    struct buffer body;
    struct queue queue;

    /* it has asked for input, and for so much beyond what is free */
    bool credited;
    uint64_t credit;
};
void links_start(void);
int links_fd(void); /* readable when links_turn has something to do */
void links_accept(void);
bool links_full(void); /* links_accept would be in vain */
void links_turn(void);
void links_listen_to_data(void); /* once the number of tasks is known */
/* Closes what has not said who it is; the time (ms) of the next such look, -1 none. */
int64_t links_tidy(int64_t now);
bool link_send(struct link *l, struct blob *b);
void link_close(struct link *l);
struct link *links_first(void);
struct link *links_next(struct link *l);

/* ---- output.c: the own standard output and error, or files in their place */
struct output;
bool outputs_open(const struct plan *p);
void output_put(int which, const char *data, size_t size); /* 0 output, 1 error */
void outputs_flush(void);
bool outputs_blocked(void);
void outputs_ready(void);     /* one of them takes more */
bool output_dead(int which);  /* nobody reads it */
int outputs_fd(void);         /* readable when outputs_ready is to be called */

/* ---- label.c */
bool labels_start(uint32_t ntasks);
/* Bytes of a task's output with its number before each line; false: no memory. */
bool label_put(int which, uint32_t task, const char *data, size_t size);
void label_close(int which, uint32_t task); /* an unfinished line is finished */
void labels_close(void);

/* ---- input.c */
bool input_open(const struct plan *p);
void input_start(void); /* all data connections are there */
void input_credit(struct link *l, uint32_t task, uint32_t bytes);
void input_stop(void);
int input_fd(void); /* to poll; -1: nothing can be read now, or always (input_always) */
bool input_always(void);
void input_turn(void);

/* ---- exchange.c */
/* A node's part of a round; false: it makes no sense. */
bool exchange_part(struct link *l, const char *data, size_t size);

/* ---- tty.c */
void tty_save(void);
void tty_raw(void);     /* --pty */
void tty_restore(void); /* on every way out */
void tty_stop(void);    /* SIGTSTP: stops this process, and is back once it goes on */
struct blob *tty_size(void); /* the message W; NULL: no terminal */

/* ---- child.c */
extern pid_t shell_pid;  /* 0: none */
extern int shell_status; /* wait status once it has ended */
extern bool shell_done;
bool shell_start(char **argv, char **env, const char *given, size_t size);
void shell_signal(int signum);
void shell_reap(void); /* at SIGCHLD */
int shell_code(void);
/* Runs a program of the site's and waits; its wait status, -1 where it cannot be run. */
int program_run(const char *path, char **argv, char **env);
/* A command of this installation beside this program, output to `out` (-1 none); its pid. */
pid_t command_start(const char *command, const char *const *words, int out);

/* ---- waiting.c: until a job has started */
void waiting_start(void);
void waiting_end(void);                /* a node has called */
int64_t waiting_turn(int64_t now);     /* the time (ms) of the next turn, -1 none */
int waiting_fd(void);                  /* readable: waiting_read is to be called */
void waiting_read(void);
/* After the end: until the queue does not show the job any more, if that comes soon. Who asks next
 * finds it gone and its GPUs free, as after real srun. */
void waiting_farewell(void);
_Noreturn void waiting_revoke(void);   /* a signal: the job is cancelled */

/* ---- clock.c */
#define PATIENT_MS 100
int64_t now_ms(void);                  /* the machine's, monotonic */
int64_t patient_ms(void);              /* of the time in which something could have been heard */
void patient_waited(int64_t ms);       /* the connections are looked at again after so long */

/* ---- mover.c */
extern struct plan plan;
extern struct rlimit files_before;
extern sigset_t mask_before; /* signals that were blocked when this program started */
extern uint32_t step_tasks, step_nodes;
extern bool step_known;
void note(const char *text);           /* on standard error, whatever stands in its way */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void leave(int code);
void link_known(struct link *l); /* it has said who it is */
void control_message(struct link *l);
void control_lost(void);
bool data_message(struct link *l);     /* false: it makes no sense */
bool data_moved(struct link *l, const char *data, size_t size);
void data_closed(struct link *l, uint32_t task, char letter);
void data_lost(void);
void to_agent(struct blob *b);
void broken_output(void);
void stirred(void); /* something came over a data connection */

#endif
