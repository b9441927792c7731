/* stepd: the supervisor of one step. What the parts of the program share.
 *
 * Root part: spec.c (what to run), procs.c (who belongs to the step, and killing them), control.c
 * (status file, control socket, events), command.c (what a follower may ask for), tasks.c (starting
 * tasks, and their ends), life.c (the life of the step), stepd.c (the program).  User part: child.c
 * and taskhook.c (a task until it is executed, its prolog and epilog), io.c, wire.c, feed.c, pmi*.c
 * (the mover: one process that connects the tasks with their client). The root part opens no path
 * a user can write and reads nothing that a user has written; the user part runs under the user's
 * ids.
 */
#ifndef STEPD_H
#define STEPD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define STEPD_VERSION 1
#define SPEC_MAX \
    (64u << 20)      /* bytes of a spec file; an environment is limited to far less by execve */
#define TEXT_MAX 512 /* bytes of an error text */

/* Slurm reports a step whose files could not be opened as ended by "signal" 53 (ExitCode 0:53). */
#define OPEN_FAILURE_STATUS 53

struct limit_spec {
    const char *name; /* upper case, as in RLIMIT_<name> */
    int resource;
    struct rlimit value;
};

#define ALL_TASKS 0xffffffffu

/* A task of a step; the batch step has none. */
struct task_spec {
    uint32_t id;        /* in the whole step */
    char **argv, **env; /* its own, NULL-terminated; no argv: that of the step */
    const char *std[3]; /* absolute paths; "": through the client */
    const char *cpus;   /* list it is bound to; "": not bound */
    const char *note;   /* lines for its standard error, with its pid in place of []; "": none */
};

struct spec {
    char *data;  /* the file's bytes; the strings below point into it */
    char **argv; /* NULL-terminated */
    char **envp; /* NULL-terminated */
    size_t argc, envc;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t ngroups;
    mode_t umask;
    const char *cwd;
    const char *std[3]; /* absolute paths of stdin, stdout, stderr; "" is /dev/null */
    bool append;
    long limit;    /* seconds from the start; 0 none */
    long killwait; /* seconds between SIGTERM and SIGKILL */
    int warn_signal;
    long warn_before; /* seconds before the limit at which warn_signal goes to the batch process */
    const char *label;
    const char *pid_env;   /* name of a variable that gets the child's pid (SLURM_TASK_PID) */
    const char **cg_procs; /* files that take "0" */
    const char **cg_kill;  /* directories whose cgroup holds the whole step */
    size_t ncg_procs, ncg_kill;
    char *oom_file; /* of its memory cgroup: holds a line "oom_kill N"; NULL: none */
    struct limit_spec limits[16];
    size_t nlimits;

    /* a step of tasks */
    struct task_spec *tasks; /* NULL: the batch step */
    size_t ntasks;           /* here */
    long all_tasks, nodes;   /* of the whole step */
    char **pool_argv, **pool_env;
    size_t pool_argc, pool_envc;
    const char *io;              /* host:port of the client; "": none */
    unsigned char io_secret[32]; /* what the client knows us by */
    long io_index;               /* our place among the nodes of the step */
    bool pty;                    /* task 0 gets a terminal */
    long stdin_task;             /* -1 all, -2 none */
    long pmi;                    /* 0 none; else tasks get PMI_FD (both protocols are spoken) */
    const char *pmi_jobid, *pmi_mapping;
    const char
        *pmix; /* the server's program; "": none. Its directory, and "NAME RANKS\n" of each */
    const char *pmix_dir, *pmix_nodes; /* node, in the order of places */
    const char *task_prolog[2];        /* the cluster's, then the user's; "": none */
    const char *task_epilog[2];        /* the user's, then the cluster's */
};

/* spec.c: 0, or -1 with a sentence in why. spec_load reads the file `path`; NULL:
 * standard input. */
int spec_load(struct spec *s, const char *path, char why[TEXT_MAX]);
void spec_trim(struct spec *s); /* frees what only the child needed: argv, environment, groups */
void spec_free(struct spec *s);

/* What a task's process has been given already; -1: to be opened by path. */
struct ends {
    int std[3];
    int pmi;       /* its end of the socket; -1 none */
    int gate;      /* it waits here for the end of file; -1 none */
    int opened;    /* the first task of several on one file closes this once it has opened it, */
    int turn;      /* and the others wait for that here before they open it; -1 none */
    bool terminal; /* std[0] is its terminal */
};

/* child.c: the failure that a child reports through the close-on-exec pipe all share. */
enum fail_kind { FAIL_SETUP = 1, FAIL_OPEN = 2, FAIL_EXEC = 3 };
struct failure {
    int kind, error;
    uint32_t task; /* which of the tasks here */
    char text[TEXT_MAX];
};
/* `leader`: the process group to join; 0: its own. */
_Noreturn void child_run(const struct spec *s, const struct task_spec *task, uint32_t index,
                         const struct ends *ends, pid_t leader, int report_fd);
/* Adds a line of somebody's to the error file, as the user. */
_Noreturn void child_note(const struct spec *s, const char *text);
_Noreturn void child_append(const struct spec *s,
                            const char *reason); /* the CANCELLED line, as the user */
/* The same lines, for who has another way to write them; bytes, as snprintf. */
int note_text(char *out, size_t size, const char *text);
int cancelled_text(char *out, size_t size, const struct spec *s, const char *reason);
/* Parts of it for the other files of the user part. */
void default_signals(void);
int become(const struct spec *s); /* the user, for good; -1 with errno */
void spare_nobody(void);          /* when memory runs out: not as the supervisor itself */
/* Closes all descriptors above 2 but those n (some may be -1; sorts them). */
void keep_only(int *fds, size_t n);
/* "[stamp] error: ...", as the supervisor of Slurm writes into the files of a step. */
void say(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* taskhook.c: the programs around a task, run as the user. An environment that changes: */
struct environ {
    char **at;
    size_t n, room;
};
/* Both keep the pointer; -1: no memory. environ_add: the name is not in it yet. */
int environ_put(struct environ *e, char *assignment);
int environ_add(struct environ *e, char *assignment);
void environ_drop(struct environ *e, const char *name, size_t length);
/* Runs the cluster's and the user's task prolog; 0, or the exit code that the task then has. */
int task_prologs(const struct spec *s, struct environ *e);
/* The process that runs the epilogs of a task, `e` its environment; messages to descriptor 2. */
_Noreturn void task_epilogs(const struct spec *s, const struct environ *e);

/* procs.c. `spare`: processes of ours that are not touched */
enum { SPARE_MAX = 2 };
struct spare {
    pid_t at[SPARE_MAX]; /* 0: none */
};
void procs_signal(const struct spec *s, const struct spare *spare, int sig1,
                  int sig2); /* sig2 0: none */
void procs_kill(const struct spec *s,
                const struct spare *spare); /* SIGKILL to all, cgroups included */
long procs_oom_kills(const struct spec *s); /* processes that its memory cgroup has killed */
bool procs_cgroups_empty(const struct spec *s);
bool procs_only(const struct spec *s,
                const struct spare *spare); /* nothing else of the step is left */

/* control.c: the watchers and the record */
struct record { /* what has happened so far; each is also one line of the status file */
    pid_t pid;
    bool started, failed, ended, released;
    int error, wstatus;
    const char *state, *cause;
    char text[TEXT_MAX + 16];
    int64_t utime_us, stime_us, maxrss_kb, elapsed_ms;
};
struct task {     /* a task, and what has become of it */
    pid_t pid;    /* kept after its end, for the record */
    pid_t epilog; /* 0: not (or no more) there */
    bool started, exited, ended;
    bool failed; /* wstatus is what its report said */
    int wstatus;
    const char *cause;
    int64_t begun, utime_us, stime_us, maxrss_kb, elapsed_ms;
    int64_t epilog_until;
    bool epilog_due; /* once nothing is killed any more */
};
enum { CLIENTS_MAX = 16, LINE_MAX_BYTES = 1024 };
struct client {
    int fd; /* -1 free */
    bool watch;
    size_t used;
    char line[LINE_MAX_BYTES];
};
struct control {
    int listener; /* -1: not made */
    int status;   /* the record, for appending */
    bool torn;    /* the last line of the record lacks its end */
    bool wanted;  /* make the control socket at the next turn */
    struct client clients[CLIENTS_MAX];
    char *queue; /* lines about tasks that are told together */
    size_t queued, room;
};
void control_start(struct control *c);
/* Creates the status file; -1 with errno EEXIST if the step was begun before. */
int control_claim(struct control *c);
int control_open(struct control *c); /* binds ctl in the working directory; -1 with errno */
void control_close(struct control *c);
void control_adopt(struct control *c, int fd);
void control_accept(struct control *c);
/* Reads what a client sent; 1 and one line in out, 0 nothing complete yet, -1 gone (closed here).
 */
int control_line(struct control *c, struct client *k, char out[LINE_MAX_BYTES], bool fresh);
void control_reply(struct control *c, struct client *k, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells all that has happened; `tasks`: n of them with their specs, or NULL. */
void control_history(struct control *c, struct client *k, const struct record *r,
                     const struct task_spec *specs, const struct task *tasks, size_t n);
/* Appends the event (one of: started failed ended released; NULL none) and the state to the status
 * file, then sends the event to the watchers. */
void control_publish(struct control *c, const struct record *r, const char *event);
/* Queues a line about a task (which: 's' its start, 'e' its end); control_flush tells it. */
void control_task(struct control *c, uint32_t id, const struct task *task, char which);
void control_flush(struct control *c);

/* life.c: the step in the supervisor */
enum phase { RUNNING, ANNOUNCING, TERMINATING, KILLING };
struct step {
    struct spec spec;
    struct control control;
    struct record record;
    enum phase phase;
    struct task *tasks; /* one for each in spec.tasks; the batch step has one too */
    size_t ntasks, running;
    pid_t helper, mover; /* 0: none */
    int link;            /* to the mover; -1 none */
    int report;          /* reading end of the children's pipe; -1 once it is closed */
    int64_t begun, limit_at, warn_at,
        next_at; /* ms; 0: never; next_at: the next move of the kill sequence */
    int64_t retry, killed_at;
    int64_t spare_until; /* a line written after the end has this long */
    bool kill_at_once;
    int stuck;        /* rounds in which only the writer of the message was left */
    long oom_kills;   /* of its cgroup before it began */
    int step_err;     /* where the epilogs of tasks write; -1 none */
    int64_t tasks_at; /* when tasks_on_time is due; 0 never */
};
#define MESSAGE_WAIT_MS \
    250 /* the user's line in the error file comes before the signal, but is not waited for longer \
         */
void life_limit(struct step *t, long seconds);
void life_kill(struct step *t, const char *cause, bool at_once);
void life_fail(struct step *t, int error, const char *kind, const char *text, int wstatus);
void life_live(struct step *t, int signals);
struct spare life_spare(const struct step *t);
/* Writes a line into the error file or sends it to the client; false if that cannot be done now.
 * `reason` NULL: `text` itself, else the CANCELLED line. Sets t->helper if it takes a while. */
bool life_note(struct step *t, const char *text, const char *reason);
void read_reports(struct step *t);

/* command.c */
void command(struct step *t, struct client *k, char *line);

/* Joins the cgroups and becomes the user, runs the epilogs of a task that had the id `pid`;
 * messages to `err`, -1: to the error file of the first task. */
_Noreturn void child_epilog(const struct spec *s, const struct task_spec *task, pid_t pid, int err);

/* tasks.c */
int tasks_launch(struct step *t, char why[TEXT_MAX]); /* -1 with errno and a sentence */
/* The end of a child; false if it is none of ours. */
bool tasks_reaped(struct step *t, pid_t pid, int wstatus, const struct rusage *u);
void tasks_failed(struct step *t, const struct failure *f);
/* All tasks are gone, and epilogs have waited for what was killed. */
bool tasks_epilogs_due(const struct step *t);
int64_t tasks_start_epilogs(struct step *t); /* when the last will be over */
int64_t tasks_on_time(struct step *t);       /* when it wants to be called again; 0: never */

/* io.c: the mover */
struct channel { /* of one task; -1: none */
    int in, out, err;
    int pmi;
};
/* Ends by itself. Exit: 0; else an errno: the client could not be called. */
_Noreturn void mover_run(struct spec *s, struct channel *channels, int terminal, int gate,
                         int link);

int64_t now_ms(void); /* monotonic */

#endif
