/* stepd DIR [EVENTFD [-]]: runs the step described by DIR/spec ("-": by what standard input holds)
 * and stays with it until its last process is gone. `stepd --check SPEC` only reads a spec and says
 * what is wrong with it.
 *
 * DIR/status   what has happened, one line each, appended; a later line overrides
 * DIR/ctl      control socket; made when there is no follower (any more), and on SIGUSR1: a new file
 *              is dear where many were removed lately (ext4). One command a line:
 *                ping                    -> state STATE pid PID
 *                watch                   -> the events so far, then each as it happens
 *                kill CAUSE              SIGCONT+SIGTERM to all, killwait, SIGKILL
 *                kill9 CAUSE             SIGKILL at once
 *                signal N batch|all
 *                limit SECONDS           from the start; 0 none
 *                notify TEXT             a line for the error file
 * EVENTFD      a connected socket that gets the events from the start and takes the same commands
 *
 * Events, and lines of the status file:
 *   started PID
 *   failed ERRNO TEXT        "open: ...", "exec: ..." or "setup: ..."; `ended` follows
 *   ended WSTATUS CAUSE UTIME_US STIME_US MAXRSS_KB ELAPSED_MS     CAUSE: none timeout killed oom
 *   released                 no process of the step is left
 *
 * Outlives whoever started it. Time passes only in poll(): it waits for nothing that a user
 * controls. Exit: 0 released; 1 could not start (see status); 2 wrong use; 3 DIR was begun before.
 */
#include "stepd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_WAIT_MS \
    250 /* the user's line in the error file comes before the signal, but is not waited for longer \
         */
#define RETRY_MIN_MS 20
#define RETRY_MAX_MS 1000

enum phase { RUNNING, ANNOUNCING, TERMINATING, KILLING };

struct step {
    struct spec spec;
    struct control control;
    struct record record;
    enum phase phase;
    pid_t main_pid, helper; /* 0: none */
    int report;             /* reading end of the child's pipe; -1 once it is closed */
    int64_t begun, limit_at, warn_at,
        next_at; /* ms; 0: never; next_at: the next move of the kill sequence */
    int64_t retry;
    int64_t spare_until; /* a line written after the end has this long */
    bool kill_at_once;
    int stuck; /* rounds in which only the writer of the message was left */
};

int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void set_limit(struct step *t, long seconds)
{
    const struct spec *s = &t->spec;
    t->limit_at = seconds ? t->begun + 1000 * (int64_t)seconds : 0;
    t->warn_at = 0;
    if (seconds && s->warn_signal) {
        int64_t at = t->limit_at - 1000 * (int64_t)s->warn_before;
        t->warn_at = at > t->begun ? at : t->begun;
    }
}

static void send_kill(struct step *t)
{
    procs_kill(&t->spec, t->helper);
    t->phase = KILLING;
    t->retry =
        t->retry ? (2 * t->retry < RETRY_MAX_MS ? 2 * t->retry : RETRY_MAX_MS) : RETRY_MIN_MS;
    t->next_at = now_ms() + t->retry;
}

static void send_term(struct step *t)
{
    if (t->kill_at_once) {
        send_kill(t);
        return;
    }
    procs_signal(&t->spec, t->helper, SIGCONT, SIGTERM);
    t->phase = TERMINATING;
    t->next_at = now_ms() + 1000 * (int64_t)t->spec.killwait;
}

/* The words behind CANCELLED in the error file, by the cause given; NULL: no line. */
static const char *reason_text(const char *cause, bool at_once)
{
    static const struct {
        const char *cause, *text;
    } known[] = {
        {"timeout", " DUE TO TIME LIMIT"},
        {"requeue", " DUE TO JOB REQUEUE"},
        {"preempted", " DUE TO PREEMPTION"},
        {"task_failure", " DUE TO TASK FAILURE"},
        {"node", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"},
        {"node_fail", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(cause, known[i].cause))
            return known[i].text;
    if (!strcmp(cause, "silent") || !strcmp(cause, "end") || !strcmp(cause, "launch"))
        return NULL; /* not a cancellation: the attempt is being taken back or cleared away */
    return at_once ? " DUE to SIGNAL Killed" : " DUE to SIGNAL Terminated";
}

static void begin_kill(struct step *t, const char *cause, bool at_once)
{
    if (t->record.released)
        return;
    if (t->phase != RUNNING) { /* under way; only a harder way changes anything */
        if (at_once && t->phase != KILLING) {
            t->kill_at_once = true;
            if (t->phase == TERMINATING)
                send_kill(t);
        }
        return;
    }
    t->kill_at_once = at_once;
    t->limit_at = t->warn_at = 0;
    if (!t->record.ended)
        t->record.cause = !strcmp(cause, "timeout") ? "timeout"
                          : !strcmp(cause, "oom")   ? "oom"
                                                    : "killed";
    t->record.state = "ending";
    control_publish(&t->control, &t->record, NULL);
    const char *text = reason_text(cause, at_once);
    if (text && *t->spec.std[2] && !t->record.ended && !t->helper) {
        pid_t pid = fork();
        if (pid == 0)
            child_append(&t->spec, text);
        if (pid > 0) {
            t->helper = pid;
            t->phase = ANNOUNCING;
            t->next_at = now_ms() + MESSAGE_WAIT_MS;
            return;
        }
    }
    send_term(t);
}

static void fail(struct step *t, int error, const char *kind, const char *text, int wstatus)
{
    struct record *r = &t->record;
    if (r->failed)
        return;
    r->failed = true;
    r->error = error;
    r->wstatus = wstatus;
    snprintf(r->text, sizeof r->text, "%s: %s", kind, text);
    for (char *p = r->text; *p; p++) /* part of it comes from the user's side: one plain line */
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    control_publish(&t->control, r, "failed");
}

/* The child's pipe: end of file means that execve succeeded. */
static void read_report(struct step *t)
{
    struct failure f;
    ssize_t n = read(t->report, &f, sizeof f);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(t->report);
    t->report = -1;
    if (n != (ssize_t)sizeof f)
        return;
    f.text[sizeof f.text - 1] = 0;
    if (f.kind == FAIL_OPEN)
        fail(t, f.error, "open", f.text, OPEN_FAILURE_STATUS);
    else if (f.kind == FAIL_EXEC)
        fail(t, f.error, "exec", f.text, (f.error & 0xff) << 8);
    else
        fail(t, f.error, "setup", f.text, 1 << 8);
}

/* Whatever the script made of it, the step has not had the memory it needed. The line in its error
 * file is the last but for what leftovers write. */
static void out_of_memory(struct step *t, long kills)
{
    char text[256];
    t->record.cause = "oom";
    if (!*t->spec.std[2] || t->helper)
        return;
    const char *label = t->spec.label; /* "JOB 7 ON node1" */
    int length = !strncmp(label, "JOB ", 4) ? (int)strcspn(label += 4, " ") : 0;
    snprintf(text, sizeof text,
             "Detected %ld oom_kill event%s in StepId=%.*s.batch. "
             "Some of the step tasks have been OOM Killed.",
             kills, kills == 1 ? "" : "s", length, label);
    pid_t pid = fork();
    if (pid == 0)
        child_note(&t->spec, text);
    if (pid > 0) {
        t->helper = pid;
        t->spare_until = now_ms() + MESSAGE_WAIT_MS;
    }
}

static void main_ended(struct step *t, int wstatus, const struct rusage *u)
{
    struct record *r = &t->record;
    if (t->report >= 0)
        read_report(t); /* what it said before it went */
    t->main_pid = 0;
    r->ended = true;
    if (!r->failed)
        r->wstatus = wstatus;
    r->utime_us = (int64_t)u->ru_utime.tv_sec * 1000000 + u->ru_utime.tv_usec;
    r->stime_us = (int64_t)u->ru_stime.tv_sec * 1000000 + u->ru_stime.tv_usec;
    r->maxrss_kb = u->ru_maxrss;
    r->elapsed_ms = now_ms() - t->begun;
    r->state = "ending";
    t->limit_at = t->warn_at = 0;
    long kills = r->failed ? 0 : procs_oom_kills(&t->spec);
    if (kills > 0 && t->phase == RUNNING)
        out_of_memory(t, kills);
    control_publish(&t->control, r, "ended");
}

/* The writer of the message hangs in a dead file server and is all that is left. It holds nothing
 * of the step's: let it be. */
static bool writer_stuck(struct step *t)
{
    if (!t->record.ended || !t->helper)
        return false;
    if (now_ms() < t->spare_until)
        return false;
    kill(t->helper, SIGKILL);
    return ++t->stuck > 5 && procs_only(&t->spec, t->helper) && procs_cgroups_empty(&t->spec);
}

/* Reaps what has ended; true when no process of the step is left. */
static bool reap(struct step *t)
{
    for (;;) {
        struct rusage u;
        int wstatus;
        pid_t pid = wait4(-1, &wstatus, WNOHANG, &u);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0) /* ECHILD */
            return t->record.ended && procs_cgroups_empty(&t->spec);
        if (pid == 0)
            return writer_stuck(t);
        if (pid == t->main_pid)
            main_ended(t, wstatus, &u);
        else if (pid == t->helper)
            t->helper = 0;
    }
}

static long number(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    long v = strtol(text, &end, 10);
    return errno || *end || v > INT_MAX ? -1 : v;
}

static void notify(struct step *t, struct client *k, const char *text)
{
    if (t->record.ended || t->helper || t->phase != RUNNING || !*t->spec.std[2]) {
        control_reply(&t->control, k, "error no line can be written now\n");
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        child_note(&t->spec, text);
    if (pid > 0)
        t->helper = pid;
    control_reply(&t->control, k, "ok\n");
}

static void command(struct step *t, struct client *k, char *line)
{
    const struct record *r = &t->record;
    struct control *c = &t->control;
    if (!strncmp(line, "notify ", 7)) {
        notify(t, k, line + 7);
        return;
    }
    char *rest = NULL, *word = strtok_r(line, " ", &rest), *one = strtok_r(NULL, " ", &rest),
         *two = strtok_r(NULL, " ", &rest);
    if (!word)
        word = "";
    if (!strcmp(word, "ping") && !one) {
        control_reply(c, k, "state %s pid %d\n", r->state, (int)r->pid);
    } else if (!strcmp(word, "watch") && !one) {
        control_history(c, k, r);
        k->watch = true;
    } else if ((!strcmp(word, "kill") || !strcmp(word, "kill9")) && one && !two) {
        control_reply(c, k, "ok\n");
        begin_kill(t, one, word[4] == '9');
    } else if (!strcmp(word, "signal") && one && two) {
        long sig = number(one);
        if (sig < 1 || sig > SIGRTMAX || (strcmp(two, "batch") && strcmp(two, "all")))
            control_reply(c, k, "error signal takes a number of 1 to %d and batch or all\n",
                          SIGRTMAX);
        else if (r->ended)
            control_reply(c, k, "error the step has ended\n");
        else {
            if (*two == 'a')
                procs_signal(&t->spec, t->helper, (int)sig, 0);
            else
                kill(t->main_pid, (int)sig);
            control_reply(c, k, "ok\n");
        }
    } else if (!strcmp(word, "limit") && one && !two) {
        long seconds = number(one);
        if (seconds < 0)
            control_reply(c, k, "error limit takes seconds\n");
        else {
            if (!r->ended && t->phase == RUNNING)
                set_limit(t, seconds);
            control_reply(c, k, "ok\n");
        }
    } else {
        control_reply(c, k, "error unknown command\n");
    }
}

static void on_time(struct step *t)
{
    int64_t now = now_ms();
    if (t->warn_at && now >= t->warn_at) {
        t->warn_at = 0;
        if (t->main_pid)
            kill(t->main_pid, t->spec.warn_signal);
    }
    if (t->limit_at && now >= t->limit_at)
        begin_kill(t, "timeout", false);
    if (t->phase == ANNOUNCING && (!t->helper || now >= t->next_at))
        send_term(t);
    else if ((t->phase == TERMINATING || t->phase == KILLING) && now >= t->next_at)
        send_kill(t);
}

static int wait_ms(const struct step *t)
{
    int64_t at = 0, marks[3] = {t->warn_at, t->limit_at, t->phase == RUNNING ? 0 : t->next_at};
    for (int i = 0; i < 3; i++)
        if (marks[i] && (!at || marks[i] < at))
            at = marks[i];
    if (!at)
        return -1;
    int64_t left = at - now_ms();
    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

static void live(struct step *t, int signals)
{
    for (;;) {
        struct pollfd p[3 + CLIENTS_MAX];
        int at[3 + CLIENTS_MAX];
        nfds_t n = 0;
        p[n++] = (struct pollfd){.fd = signals, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = t->control.listener, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = t->report, .events = POLLIN}; /* -1 is passed over */
        for (int i = 0; i < CLIENTS_MAX; i++)
            if (t->control.clients[i].fd >= 0) {
                at[n] = i;
                p[n++] = (struct pollfd){.fd = t->control.clients[i].fd, .events = POLLIN};
            }
        int wait = wait_ms(t);
        /* After the main process's end, members of its cgroup that are no children of ours end
         * without a word. */
        if (t->record.ended && (wait < 0 || wait > 200))
            wait = 200;
        if (poll(p, n, wait) < 0 && errno != EINTR)
            usleep(RETRY_MIN_MS * 1000); /* out of kernel memory: not a reason to let the step go */
        if (p[0].revents) {
            struct signalfd_siginfo si[8];
            for (ssize_t got; (got = read(signals, si, sizeof si)) > 0;)
                for (size_t i = 0; i < (size_t)got / sizeof *si; i++)
                    if (si[i].ssi_signo == SIGUSR1)
                        t->control.wanted = true;
        }
        if (t->report >= 0 && p[2].revents)
            read_report(t);
        for (nfds_t i = 3; i < n; i++) {
            struct client *k = &t->control.clients[at[i]];
            char line[LINE_MAX_BYTES];
            bool fresh = true;
            if (!p[i].revents || k->fd < 0)
                continue;
            while (k->fd >= 0 && control_line(&t->control, k, line, fresh) == 1) {
                fresh = false;
                command(t, k, line);
            }
        }
        if (p[1].revents)
            control_accept(&t->control);
        if (t->control.wanted)
            control_open(&t->control);
        on_time(t);
        bool before = t->record.ended;
        if (reap(t))
            return;
        if (t->record.ended && !before && t->phase == RUNNING) {
            t->phase = ANNOUNCING; /* leftovers: no line in the file, straight to SIGTERM */
            send_term(t);
            if (reap(t))
                return;
        } else if (t->phase == ANNOUNCING && !t->helper) {
            send_term(t);
        }
    }
}

static int launch(struct step *t)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return -1;
    t->begun = now_ms();
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child_run(&t->spec, ends[1]);
    }
    int error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        errno = error;
        return -1;
    }
    setpgid(pid, pid); /* both sides do it, so it is done whoever comes first */
    t->report = ends[0];
    t->main_pid = t->record.pid = pid;
    t->record.started = true;
    t->record.state = "running";
    set_limit(t, t->spec.limit);
    return 0;
}

static int settle(int eventfd) /* a supervisor's own surroundings; returns the signal descriptor */
{
    sigset_t set;
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
    if (eventfd > 3)
        syscall(SYS_close_range, 3u, (unsigned)eventfd - 1, 0u);
    syscall(SYS_close_range, (unsigned)(eventfd > 2 ? eventfd + 1 : 3), ~0u, 0u);
    if (eventfd > 2)
        fcntl(eventfd, F_SETFD, FD_CLOEXEC);
    setsid();
    umask(077);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (geteuid() ==
        0) { /* the last to be chosen when memory runs out: whoever cleans up must live */
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            if (write(fd, "-1000", 5) < 0)
                errno = 0;
            close(fd);
        }
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD,
           SIG_DFL); /* ignored by whoever started us, it would take the exit statuses away */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set,
              SIGTERM); /* a shutdown of the daemon's service is no reason to leave a job alone */
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
    static struct step t;
    char why[TEXT_MAX] = "";
    int eventfd = -1;
    if (argc == 3 &&
        !strcmp(argv[1], "--check")) { /* reads a spec and says whether it is good; runs nothing */
        int rc = spec_load(&t.spec, argv[2], why);
        if (rc)
            fprintf(stderr, "stepd: %s\n", why);
        spec_free(&t.spec);
        return rc ? 1 : 0;
    }
    if (argc >= 3 && ((eventfd = (int)number(argv[2])) < 3 || fcntl(eventfd, F_GETFD) < 0)) {
        fprintf(stderr, "stepd: not an open descriptor above 2: %s\n", argv[2]);
        return 2;
    }
    bool piped = argc == 4 && !strcmp(argv[3], "-");
    if (argc < 2 || argc > 4 || *argv[1] == '-' || (argc == 4 && !piped)) {
        fprintf(stderr, "usage: stepd DIR [EVENTFD [-]]\n");
        return 2;
    }
    if (chdir(argv[1])) {
        fprintf(stderr, "stepd: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    int loaded = piped ? spec_load(&t.spec, NULL, why) : 0; /* before standard input is let go */
    int signals = settle(eventfd);
    t.record.state = "starting";
    t.record.cause = "none";
    t.report = -1;
    control_start(&t.control);
    if (control_claim(&t.control))
        return errno == EEXIST ? 3 : 2; /* never a second run of the same attempt */
    int bound = 0, error = 0;
    if (eventfd > 2) {
        control_adopt(&t.control, eventfd);
        t.control.clients[0].watch = true;
    } else {
        bound = control_open(&t.control);
        error = errno;
    }
    int rc = 1;
    if (signals < 0 || bound) {
        snprintf(why, sizeof why, "control socket: %s", strerror(error));
    } else if ((loaded = piped ? loaded : spec_load(&t.spec, "spec", why)) == 0) {
        if (launch(&t) == 0)
            rc = 0;
        else
            snprintf(why, sizeof why, "fork: %s", strerror(errno));
    } else {
        error = EINVAL;
    }
    if (rc == 0) {
        control_publish(&t.control, &t.record, "started");
        spec_trim(&t.spec);
        live(&t, signals);
    } else {
        fail(&t, error, "setup", why, 1 << 8);
        t.record.ended = true;
        control_publish(&t.control, &t.record, "ended");
    }
    t.record.released = true;
    t.record.state = "released";
    control_publish(&t.control, &t.record, "released");
    control_close(&t.control);
    spec_free(&t.spec);
    return rc;
}
