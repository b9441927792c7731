/* The loop of the mover, and what it decides. */
#include "mover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* an agent that is started again calls within this time */
#define LOST_MS 30000
/* and one that has taken a step for the first time within this */
#define CALL_MS 60000
/* what is still on its way when the step has ended */
#define DRAIN_MS 2000
#define TASKS_MAX (1u << 24)
#define NODES_MAX 65536u

struct plan plan;
uint32_t step_tasks, step_nodes;
bool step_known;
sigset_t mask_before;
struct rlimit files_before;

static struct link *control;
/* what could not be told to the agent yet */
static struct queue backlog;
static bool called, ended, leaving, revoked, broken, given_back, hung_up;
/* the control connection was lost after the allocation had been given back */
static bool lost_late;
/* the allocation is there, and nothing is to run in it (--no-shell) */
static bool granted;
static int code = 1;
static uint32_t arrived, open_data;
/* since when (patient clock) */
static int64_t lost_since, quiet_since, given_back_at;

/* ---- the own words ---------------------------------------------------------------------- */

/* The client's own words do not go into the files of the tasks. */
static void say(int which, const char *data, size_t size) {
    if (strcmp(which ? plan.err : plan.out, "-") == 0)
        output_put(which, data, size);
    else
        write_all(which ? 2 : 1, data, size);
}

void note(const char *text) {
    say(1, text, strlen(text));
}

void complain(const char *format, ...) {
    char line[4096];
    va_list more;
    int at = snprintf(line, sizeof line, "%s: ", name);
    va_start(more, format);
    int n = vsnprintf(line + at, sizeof line - (size_t)at - 1, format, more);
    va_end(more);
    if (n < 0)
        return;
    size_t size = strlen(line);
    line[size++] = '\n';
    say(1, line, size);
}

_Noreturn void leave(int with) {
    /* What nobody takes within this time is lost with the process. */
    int64_t until = patient_ms() + DRAIN_MS;
    outputs_flush();
    while (outputs_blocked() && patient_ms() < until) {
        struct pollfd there = {.fd = outputs_fd(), .events = POLLIN};
        int64_t since = now_ms();
        if (poll(&there, 1, PATIENT_MS) > 0)
            outputs_ready();
        patient_waited(now_ms() - since);
    }
    tty_restore();
    exit(with);
}

/* ---- to the agent ----------------------------------------------------------------------- */

void to_agent(struct blob *b) {
    if (!b)
        return;
    if (control)
        link_send(control, b);
    else if (!ended)
        queue_add(&backlog, b);
    blob_drop(b);
}

static void tell_signal(int signum) {
    struct blob *b = blob_message('G', 1);
    if (b)
        b->data[FIELD_HEAD] = (unsigned char)signum;
    to_agent(b);
}

void broken_output(void) {
    if (!broken)
        to_agent(blob_message('B', 0));
    broken = true;
}

static void give_back(void) {
    struct blob *b = blob_message('Z', 4);
    if (b)
        put32(b->data + FIELD_HEAD, (size_t)(unsigned)shell_status);
    given_back = true;
    given_back_at = patient_ms();
    to_agent(b);
}

/* ---- from the agent --------------------------------------------------------------------- */

static void start_input(void) {
    if (step_known && arrived >= step_nodes)
        input_start();
}

static void send_size(struct link *only) {
    struct blob *b = plan.pty ? tty_size() : NULL;
    if (!b)
        return;
    for (struct link *l = links_first(); l; l = links_next(l))
        if (l->kind == KIND_DATA && (!only || l == only))
            link_send(l, b);
    blob_drop(b);
}

static void run_prolog(void) {
    int status = *plan.prolog ? program_run(plan.prolog, plan.argv, plan.env) : 0;
    if (status == 0)
        return;
    complain("error: %s prolog failed rc = %d. Aborting step.", name,
             WIFEXITED(status) ? WEXITSTATUS(status) : status);
    tell_signal(SIGTERM);
}

void link_known(struct link *l) {
    if (l->kind == KIND_DATA) {
        arrived++;
        open_data++;
        send_size(l);
        start_input();
        return;
    }
    control = l;
    if (!called) {
        called = true;
        waiting_end();
        run_prolog();
    }
    while (backlog.first) {
        struct blob *b = backlog.first->blob;
        b->refs++;
        struct queue rest = {.first = backlog.first->next, .last = backlog.last};
        backlog.first->next = NULL;
        backlog.last = backlog.first;
        queue_clear(&backlog);
        if (rest.first)
            backlog = rest;
        if (control)
            link_send(control, b);
        blob_drop(b);
    }
}

static void layout(const char *data, size_t size) {
    if (size < 8 || step_known)
        return;
    uint32_t nodes = (uint32_t)get32(data), tasks = (uint32_t)get32(data + 4);
    if (nodes > NODES_MAX || tasks > TASKS_MAX)
        return;
    if (plan.label && !labels_start(tasks)) {
        complain("error: no memory for %u tasks", tasks);
        leave(1);
    }
    step_nodes = nodes;
    step_tasks = tasks;
    step_known = true;
    if (plan.pty)
        tty_raw();
    links_listen_to_data();
    start_input();
}

static void allocated(const char *data, size_t size) {
    if (plan.mode != MODE_SALLOC || shell_pid || shell_done)
        return;
    if (plan.no_shell) {
        granted = true;
        return;
    }
    outputs_flush();
    shell_start(plan.argv, plan.env, data, size);
    if (shell_done)
        give_back();
}

/* What --quiet leaves out: "srun: ..." without one of these words after it. */
static bool just_information(const char *line, size_t size) {
    static const char *const words[] = {"error:", "fatal:", "warning:"};
    /* An allocation speaks as salloc does, whoever asked for it (srun --bcast). */
    const char *speaker = plan.mode == MODE_SALLOC ? "salloc" : name;
    size_t prefix = strlen(speaker);
    if (size < prefix + 2 || memcmp(line, speaker, prefix) != 0 ||
        memcmp(line + prefix, ": ", 2) != 0)
        return false;
    line += prefix + 2;
    size -= prefix + 2;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (size >= strlen(words[i]) && memcmp(line, words[i], strlen(words[i])) == 0)
            return false;
    return true;
}

static void told(int which, const char *data, size_t size) {
    while (size) {
        const char *end = memchr(data, '\n', size);
        size_t part = end ? (size_t)(end - data) + 1 : size;
        if (!(which && plan.quiet && just_information(data, part)))
            say(which, data, part);
        data += part;
        size -= part;
    }
}

void control_message(struct link *l) {
    const char *data = l->body.data;
    size_t size = l->body.used;
    switch (l->letter) {
    case 'o':
    case 'e':
        told(l->letter == 'e', data, size);
        break;
    case 'A':
        allocated(data, size);
        break;
    case 'N':
        layout(data, size);
        break;
    case 'X':
        ended = true;
        code = size ? (unsigned char)data[0] : 1;
        quiet_since = patient_ms();
        input_stop();
        break;
    case 'R':
        if (!revoked && plan.kill)
            shell_signal(plan.kill_signal);
        revoked = true;
        break;
    default: /* of a newer agent */
        break;
    }
}

void control_lost(void) {
    control = NULL;
    lost_late = given_back;
    lost_since = patient_ms();
}

/* ---- from the supervisors --------------------------------------------------------------- */

void stirred(void) {
    if (ended)
        quiet_since = patient_ms();
}

bool data_moved(struct link *l, const char *data, size_t size) {
    int which = l->letter == 'E';
    uint32_t only = which ? plan.stderr_task : plan.stdout_task;
    if (only != ALL_TASKS && l->task != only)
        return true;
    if (plan.label)
        return label_put(which, l->task, data, size);
    output_put(which, data, size);
    return true;
}

void data_closed(struct link *l, uint32_t task, char letter) {
    (void)l;
    if (plan.label)
        label_close(letter == 'E', task);
}

bool data_message(struct link *l) {
    const char *data = l->body.data;
    size_t size = l->body.used;
    struct blob *b;
    switch (l->letter) {
    case 'C':
        if (size != 8)
            return false;
        input_credit(l, (uint32_t)get32(data), (uint32_t)get32(data + 4));
        return true;
    case 'K':
        return exchange_part(l, data, size);
    case 'A':
        b = blob_message('A', size);
        if (b && size)
            memcpy(b->data + FIELD_HEAD, data, size);
        to_agent(b);
        return true;
    default: /* of a newer supervisor */
        return true;
    }
}

void data_lost(void) {
    open_data--;
}

/* ---- signals ---------------------------------------------------------------------------- */

static bool asks_to_end(int signum) {
    return signum == SIGINT || signum == SIGTERM || signum == SIGQUIT || signum == SIGHUP;
}

/* sattach and sbcast end by a signal as any program does: the step of sattach goes on, and that of
 * sbcast ends because nobody follows it. */
static bool mortal(void) {
    return plan.mode == MODE_ATTACH || strcmp(name, "sbcast") == 0;
}

static void die(int signum) {
    sigset_t one;
    tty_restore();
    signal(signum, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, signum);
    kill(getpid(), signum);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

/* Before a node has called. */
static void signalled_early(int signum) {
    bool waits = plan.mode == MODE_JOB || plan.mode == MODE_SALLOC;
    if (signum == SIGCONT || signum == SIGPIPE || signum == SIGALRM)
        return;
    if (waits)
        waiting_revoke();
    if (!asks_to_end(signum)) {
        tell_signal(signum);
        return;
    }
    if (plan.mode == MODE_STEP)
        complain("Cancelled pending job step with signal %d", signum);
    leave(1);
}

static void signalled(int signum, pid_t from) {
    static int asked;
    switch (signum) {
    case SIGWINCH:
        send_size(NULL);
        return;
    case SIGCHLD:
        shell_reap();
        if (shell_done && !given_back)
            give_back();
        return;
    case SIGTSTP:
        tty_stop();
        send_size(NULL);
        return;
    case SIGPIPE:
        /* Written to a pipe whose reader has gone: told as such. */
        if (from == getpid())
            return;
        break;
    case SIGCONT:
        if (plan.pty && step_known)
            tty_raw();
        break;
    default:
        break;
    }
    if (mortal() && signum != SIGCONT) {
        outputs_flush();
        die(signum);
    }
    /* Nobody is left to be told. */
    if (asks_to_end(signum) && (leaving || (called && !control && asked++)))
        leave(leaving ? code : 1);
    if (!called) {
        signalled_early(signum);
        return;
    }
    tell_signal(signum);
    if (signum == SIGHUP && plan.mode == MODE_SALLOC) {
        hung_up = true;
        shell_signal(SIGHUP);
    }
}

static int catch_signals(void) {
    static const int all[] = {SIGINT,  SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2,
                              SIGALRM, SIGPIPE, SIGCONT, SIGCHLD};
    struct sigaction hangup;
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sigaddset(&mask, all[i]);
    /* Under nohup it stays without effect. */
    if (sigaction(SIGHUP, NULL, &hangup) != 0 || hangup.sa_handler != SIG_IGN)
        sigaddset(&mask, SIGHUP);
    if (plan.pty) {
        sigaddset(&mask, SIGWINCH);
        sigaddset(&mask, SIGTSTP);
    }
    /* Started by a process that ignores its children, this one must still hear of its own. */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &mask, &mask_before);
    return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void read_signals(int fd) {
    struct signalfd_siginfo one;
    while (read(fd, &one, sizeof one) == (ssize_t)sizeof one)
        signalled((int)one.ssi_signo, (pid_t)one.ssi_pid);
}

/* ---- the end ---------------------------------------------------------------------------- */

static void finish(int with) {
    labels_close();
    outputs_flush();
    leaving = true;
    code = with;
}

static _Noreturn void last(void) {
    int status = called && *plan.epilog ? program_run(plan.epilog, plan.argv, plan.env) : 0;
    if (status != 0)
        complain("error: %s epilog failed status=%d", name,
                 WIFEXITED(status) ? WEXITSTATUS(status) : status);
    waiting_farewell();
    leave(code);
}

/* What was asked for is not wanted any more. A step ends by itself when nobody can be called. */
static _Noreturn void cancel_job(int with) {
    const char *const words[] = {"-Q", plan.job, NULL};
    if (*plan.job && (plan.mode == MODE_JOB || plan.mode == MODE_SALLOC)) {
        pid_t pid = command_start("scancel", words, -1);
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    leave(with);
}

/* Decides on the end; the time (ms, patient clock) of the next look, -1 none. */
static int64_t decide_salloc(int64_t now) {
    if (!shell_done) {
        if (!shell_pid && (ended || (granted && !control)))
            finish(granted ? 0 : code);
        if (shell_pid || control || leaving)
            return -1;
        if (now < lost_since + LOST_MS)
            return lost_since + LOST_MS;
        complain("error: the node of job %s does not answer any more", plan.job);
        cancel_job(1);
    }
    /* The agent's last words, or nobody there to say them. */
    if (ended || (!control && called && (revoked || lost_late)))
        finish(hung_up ? 1 : shell_code());
    else if (now >= given_back_at + LOST_MS)
        cancel_job(shell_code());
    return given_back_at + LOST_MS;
}

static int64_t decide(int64_t now) {
    if (plan.mode == MODE_SALLOC)
        return called ? decide_salloc(now) : -1;
    if (ended) {
        if (!open_data && arrived >= step_nodes) {
            finish(code);
            return -1;
        }
        if (outputs_blocked()) {
            quiet_since = now;
            return -1;
        }
        if (now >= quiet_since + DRAIN_MS)
            finish(code);
        return quiet_since + DRAIN_MS;
    }
    if (control || (!called && plan.mode == MODE_JOB))
        return -1;
    int64_t until = lost_since + (called ? LOST_MS : CALL_MS);
    if (now < until)
        return until;
    if (called)
        complain("error: Timed out waiting for job step to complete");
    else
        complain("error: no node of job %s has called back within %d s: is port %hu of this host "
                 "open to them?",
                 plan.job, CALL_MS / 1000, listen_port);
    leave(1);
}

/* ---- the loop --------------------------------------------------------------------------- */

static int64_t sooner(int64_t a, int64_t b) {
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static void turn(int signals) {
    enum { LISTENER, SIGNALS, OUTPUTS, LINKS, INPUT, WAITING, COUNT };
    static int64_t before;
    int64_t now = now_ms();
    patient_waited(before ? now - before : 0);
    before = now;
    int64_t patient = patient_ms();
    /* Those that are by the patient clock are looked at as often as it moves. */
    int64_t last_words = leaving ? -1 : decide(patient);
    int64_t hellos = links_tidy(patient);
    int64_t next = waiting_turn(now);
    if (last_words >= 0 || hellos >= 0) {
        int64_t left = sooner(last_words, hellos) - patient;
        next = sooner(next, now + (left < PATIENT_MS ? left : PATIENT_MS));
    }
    if (leaving && !outputs_blocked())
        last();
    struct pollfd fds[COUNT] = {
        [LISTENER] = {.fd = links_full() ? -1 : listener, .events = POLLIN},
        [SIGNALS] = {.fd = signals, .events = POLLIN},
        [OUTPUTS] = {.fd = outputs_blocked() ? outputs_fd() : -1, .events = POLLIN},
        [LINKS] = {.fd = outputs_blocked() ? -1 : links_fd(), .events = POLLIN},
        [INPUT] = {.fd = input_fd(), .events = POLLIN},
        [WAITING] = {.fd = waiting_fd(), .events = POLLIN},
    };
    int wait = next < 0 ? -1 : next <= now ? 0 : next - now > 60000 ? 60000 : (int)(next - now);
    if (input_always())
        wait = 0;
    if (poll(fds, COUNT, wait) < 0) {
        if (errno == EINTR)
            return;
        complain("error: poll: %s", strerror(errno));
        leave(1);
    }
    if (fds[SIGNALS].revents)
        read_signals(signals);
    if (fds[OUTPUTS].revents)
        outputs_ready();
    if (fds[LISTENER].revents)
        links_accept();
    if (fds[LINKS].revents)
        links_turn();
    if (fds[INPUT].revents || input_always())
        input_turn();
    if (fds[WAITING].revents && waiting_fd() >= 0)
        waiting_read();
    outputs_flush();
}

/* A connection for each node of the step. */
static void raise_files(void) {
    struct rlimit more;
    if (getrlimit(RLIMIT_NOFILE, &files_before) != 0)
        return;
    more = files_before;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

int mover_run(const char *data, size_t size) {
    if (!plan_read(&plan, data, size)) {
        fprintf(stderr, "%s: fatal: the answer of the frontend makes no sense\n", name);
        return 1;
    }
    /* For this process alone. */
    unsetenv("GSCHED_REQUEST_ID");
    unsetenv("GSCHED_LISTENER");
    fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
    raise_files();
    int signals = catch_signals();
    if (signals < 0) {
        fprintf(stderr, "%s: fatal: signalfd: %s\n", name, strerror(errno));
        return 1;
    }
    if (!outputs_open(&plan) || !input_open(&plan))
        cancel_job(1);
    tty_save();
    links_start();
    waiting_start();
    lost_since = patient_ms();
    for (;;)
        turn(signals);
}
