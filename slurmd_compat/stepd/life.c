/* The life of a step in its supervisor: limits, signals, kills, ends. */
#include "stepd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MIN_MS 20
#define RETRY_MAX_MS 1000
#define UNKILLABLE_MS 3000 /* epilogs do not wait longer for the rest to be gone */

int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void life_limit(struct step *t, long seconds)
{
    const struct spec *s = &t->spec;
    t->limit_at = seconds ? t->begun + 1000 * (int64_t)seconds : 0;
    t->warn_at = 0;
    if (seconds && s->warn_signal) {
        int64_t at = t->limit_at - 1000 * (int64_t)s->warn_before;
        t->warn_at = at > t->begun ? at : t->begun;
    }
}

struct spare life_spare(const struct step *t)
{
    return (struct spare){{t->helper, t->mover}};
}

static void send_kill(struct step *t)
{
    struct spare spare = life_spare(t);
    procs_kill(&t->spec, &spare);
    if (t->phase != KILLING)
        t->killed_at = now_ms();
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
    struct spare spare = life_spare(t);
    procs_signal(&t->spec, &spare, SIGCONT, SIGTERM);
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

bool life_note(struct step *t, const char *text, const char *reason)
{
    char line[2 * TEXT_MAX];
    if (t->link >= 0 && !*t->spec.std[2]) { /* the mover has it in a moment, the client too */
        int n = reason ? cancelled_text(line + 1, sizeof line - 1, &t->spec, reason)
                       : note_text(line + 1, sizeof line - 1, text);
        size_t length = n + 1 < (int)sizeof line ? (size_t)n + 1 : sizeof line - 1;
        *line = 'N'; /* a note */
        return send(t->link, line, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length;
    }
    if (!*t->spec.std[2] || t->helper)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        if (reason)
            child_append(&t->spec, reason);
        child_note(&t->spec, text);
    }
    if (pid > 0)
        t->helper = pid;
    return pid > 0;
}

void life_kill(struct step *t, const char *cause, bool at_once)
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
    if (t->spec.tasks && t->spec.io_index != 0)
        text = NULL; /* once for a step is enough: its first node says it, as with Slurm */
    if (text && !t->record.ended && life_note(t, NULL, text) && t->helper) {
        t->phase = ANNOUNCING;
        t->next_at = now_ms() + MESSAGE_WAIT_MS;
        return;
    }
    send_term(t);
}

void life_fail(struct step *t, int error, const char *kind, const char *text, int wstatus)
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

/* The children's pipe: end of file means that all have been executed. */
void read_reports(struct step *t)
{
    struct failure f;
    while (t->report >= 0) {
        ssize_t n = read(t->report, &f, sizeof f);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n != (ssize_t)sizeof f) {
            close(t->report);
            t->report = -1;
            return;
        }
        f.text[sizeof f.text - 1] = 0;
        tasks_failed(t, &f);
    }
}

/* Whatever the tasks made of it, the step has not had the memory it needed. The line in its error
 * file is the last but for what leftovers write. */
static void out_of_memory(struct step *t, long kills)
{
    char text[256];
    t->record.cause = "oom";
    const char *label = t->spec.label; /* "JOB 7 ON node1", "STEP 7.0 ON node1" */
    bool batch = !strncmp(label, "JOB ", 4);
    label += batch ? 4 : !strncmp(label, "STEP ", 5) ? 5 : 0;
    snprintf(text, sizeof text,
             "Detected %ld oom_kill event%s in StepId=%.*s%s. "
             "Some of the step tasks have been OOM Killed.",
             kills, kills == 1 ? "" : "s", (int)strcspn(label, " "), label, batch ? ".batch" : "");
    if (life_note(t, text, NULL) && t->helper)
        t->spare_until = now_ms() + MESSAGE_WAIT_MS;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* All tasks have ended: what is left of the step has no business any more. */
static void step_ended(struct step *t)
{
    struct record *r = &t->record;
    r->ended = true;
    r->elapsed_ms = now_ms() - t->begun;
    r->state = "ending";
    t->limit_at = t->warn_at = 0;
    long kills = r->failed ? 0 : procs_oom_kills(&t->spec) - t->oom_kills;
    if (kills > 0 && t->phase == RUNNING)
        out_of_memory(t, kills);
    control_publish(&t->control, r, "ended");
    close_fd(&t->link); /* the mover's sign that nothing more is said */
    close_fd(&t->step_err);
    if (t->phase == KILLING)
        t->next_at = now_ms();
}

static bool nothing_left(const struct step *t)
{
    struct spare spare = life_spare(t);
    return procs_only(&t->spec, &spare) && procs_cgroups_empty(&t->spec);
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
    return ++t->stuck > 5 && nothing_left(t);
}

/* The mover serves the client as long as there is one; it is no part of the step. */
static void mover_ended(struct step *t, int wstatus)
{
    t->mover = 0;
    close_fd(&t->link);
    if (t->record.ended || wstatus == 0)
        return;
    char text[TEXT_MAX];
    int error = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : EPIPE;
    if (WIFEXITED(wstatus))
        snprintf(text, sizeof text, "could not connect to the client: %s", strerror(error));
    else
        snprintf(text, sizeof text, "what moves its input and output got signal %d",
                 WTERMSIG(wstatus));
    life_fail(t, error, "io", text, 1 << 8);
    life_kill(t, "silent", true);
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
        if (pid == 0 && t->record.ended && t->mover && !t->helper && nothing_left(t))
            return true;
        if (pid == 0)
            return writer_stuck(t);
        if (pid == t->helper) {
            t->helper = 0;
        } else if (pid == t->mover) {
            mover_ended(t, wstatus);
        } else if (tasks_reaped(t, pid, wstatus, &u) && !t->running && !t->record.ended) {
            step_ended(t);
        }
    }
}

static void on_time(struct step *t)
{
    int64_t now = now_ms();
    if (t->warn_at && now >= t->warn_at) {
        t->warn_at = 0;
        for (size_t i = 0; i < t->ntasks; i++)
            if (t->tasks[i].pid && !t->tasks[i].exited)
                kill(t->tasks[i].pid, t->spec.warn_signal);
    }
    if (t->limit_at && now >= t->limit_at)
        life_kill(t, "timeout", false);
    if (t->phase == ANNOUNCING && (!t->helper || now >= t->next_at))
        send_term(t);
    else if (t->phase == KILLING && now >= t->next_at && tasks_epilogs_due(t) &&
             (nothing_left(t) || now >= t->killed_at + UNKILLABLE_MS))
        t->next_at = tasks_start_epilogs(t);
    else if ((t->phase == TERMINATING || t->phase == KILLING) && now >= t->next_at)
        send_kill(t);
    if (!t->running && !t->record.ended)
        step_ended(t); /* the last epilog could not be started */
}

static int wait_ms(const struct step *t)
{
    int64_t at = 0,
            marks[4] = {t->warn_at, t->limit_at, t->phase == RUNNING ? 0 : t->next_at, t->tasks_at};
    for (int i = 0; i < 4; i++)
        if (marks[i] && (!at || marks[i] < at))
            at = marks[i];
    if (!at)
        return -1;
    int64_t left = at - now_ms();
    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

void life_live(struct step *t, int signals)
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
            read_reports(t);
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
        t->tasks_at = tasks_on_time(t);
        bool before = t->record.ended;
        if (reap(t))
            return;
        if (t->record.ended && !before && t->phase == RUNNING) {
            t->phase = ANNOUNCING; /* leftovers: no line in the file */
            if (t->spec.tasks)     /* of a batch step they are asked to go, of others not */
                send_kill(t);
            else
                send_term(t);
            if (reap(t))
                return;
        } else if (t->phase == ANNOUNCING && !t->helper) {
            send_term(t);
        }
        control_flush(&t->control);
    }
}
