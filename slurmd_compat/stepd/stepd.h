/* stepd: the supervisor of one step. What the parts of the program share.
 *
 * Root part: spec.c (what to run), procs.c (who belongs to the step, and killing them), control.c
 * (status file, control socket, events), stepd.c (the life of the step).  User part: child.c,
 * everything that touches what the user owns. The root part opens no path a user can write; the
 * user part runs under the user's ids.
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

struct spec {
    char *data;  /* the file's bytes; the strings below point into it */
    char **argv; /* NULL-terminated */
    char **envp; /* NULL-terminated, one slot to spare for pid_env */
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
};

/* spec.c: 0, or -1 with a sentence in why. spec_load reads the file `path`; NULL:
 * standard input. */
int spec_load(struct spec *s, const char *path, char why[TEXT_MAX]);
void spec_trim(struct spec *s); /* frees what only the child needed: argv, environment, groups */
void spec_free(struct spec *s);

/* child.c: the failure the child reports through its close-on-exec pipe. */
enum fail_kind { FAIL_SETUP = 1, FAIL_OPEN = 2, FAIL_EXEC = 3 };
struct failure {
    int kind, error;
    char text[TEXT_MAX];
};
_Noreturn void child_run(const struct spec *s, int report_fd);
/* Adds a line of somebody's to the error file, as the user. */
_Noreturn void child_note(const struct spec *s, const char *text);
_Noreturn void child_append(const struct spec *s,
                            const char *reason); /* the CANCELLED line, as the user */

/* procs.c */
void procs_signal(const struct spec *s, pid_t spare, int sig1, int sig2); /* sig2 0: none */
void procs_kill(const struct spec *s, pid_t spare); /* SIGKILL to all, cgroups included */
long procs_oom_kills(const struct spec *s); /* processes that its memory cgroup has killed */
bool procs_cgroups_empty(const struct spec *s);
bool procs_only(const struct spec *s, pid_t pid); /* nothing of the step is left but this one */

/* control.c: the watchers and the record */
struct record { /* what has happened so far; each is also one line of the status file */
    pid_t pid;
    bool started, failed, ended, released;
    int error, wstatus;
    const char *state, *cause;
    char text[TEXT_MAX + 16];
    int64_t utime_us, stime_us, maxrss_kb, elapsed_ms;
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
void control_history(struct control *c, struct client *k, const struct record *r);
/* Appends the event (one of: started failed ended released; NULL none) and the state to the status
 * file, then sends the event to the watchers. */
void control_publish(struct control *c, const struct record *r, const char *event);

int64_t now_ms(void); /* monotonic */

#endif
