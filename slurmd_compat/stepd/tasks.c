/* The tasks of a step in its supervisor: their pipes, their start, their ends. The batch step is
 * one task without pipes. */
#include "stepd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define PIPE_BYTES (256 << 10) /* of an output when there are few: fewer turns for the same bytes */
#define PIPE_FEW 8
#define EPILOG_MS 12000 /* twice what each may take, and some */

/* All that is made before the first process. */
struct outfit {
    struct channel *mover; /* the ends of the mover */
    struct ends *tasks;    /* the ends of the tasks */
    int terminal;          /* the mover's side of the terminal; -1 none */
    int gate[2];
    struct rlimit files; /* as they were */
};

static bool wants_mover(const struct spec *s)
{
    return s->tasks && (*s->io || s->pmi || *s->pmix);
}

static int make_pipe(int *mover, int *task, int mover_end, bool large)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    *mover = ends[mover_end];
    *task = ends[1 - mover_end];
    fcntl(*mover, F_SETFL, O_NONBLOCK);
    if (large)
        fcntl(*mover, F_SETPIPE_SZ, PIPE_BYTES);
    return 0;
}

/* A terminal whose file belongs to the user: made with the user's name on it. */
static int make_terminal(const struct spec *s, int *master, int *slave)
{
    int unlock = 0, error;
    bool root = geteuid() == 0;
    if (root) {
        setfsgid(s->gid);
        setfsuid(s->uid);
    }
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    error = errno;
    if (root) {
        setfsuid(0);
        setfsgid(0);
    }
    errno = error;
    if (*master < 0 || ioctl(*master, TIOCSPTLCK, &unlock))
        return -1;
    *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return *slave < 0 ? -1 : 0;
}

static int equip_task(const struct spec *s, size_t i, struct outfit *o)
{
    const struct task_spec *task = &s->tasks[i];
    struct channel *mine = &o->mover[i];
    struct ends *theirs = &o->tasks[i];
    bool few = s->ntasks <= PIPE_FEW;
    if (s->pmi || *s->pmix) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            return -1;
        mine->pmi = pair[0];
        theirs->pmi = pair[1];
        fcntl(mine->pmi, F_SETFL, O_NONBLOCK);
    }
    if (!*s->io)
        return 0;
    if (s->pty && task->id == 0) {
        int slave;
        if (make_terminal(s, &o->terminal, &slave) || pipe2(o->gate, O_CLOEXEC))
            return -1;
        mine->in = mine->out = o->terminal;
        for (int k = 0; k < 3; k++)
            theirs->std[k] = slave;
        theirs->terminal = true;
        theirs->gate = o->gate[0];
        return 0;
    }
    if (s->pty)
        return 0; /* nothing of the others is seen */
    bool fed = s->stdin_task == -1 || s->stdin_task == (long)task->id;
    if (fed && !*task->std[0] && make_pipe(&mine->in, &theirs->std[0], 1, false))
        return -1;
    if (!*task->std[1] && make_pipe(&mine->out, &theirs->std[1], 0, few))
        return -1;
    if (!*task->std[2] && make_pipe(&mine->err, &theirs->std[2], 0, few))
        return -1;
    return 0;
}

static int equip(struct step *t, struct outfit *o)
{
    const struct spec *s = &t->spec;
    size_t n = t->ntasks;
    o->terminal = o->gate[0] = o->gate[1] = -1;
    o->mover = calloc(n, sizeof *o->mover);
    o->tasks = calloc(n, sizeof *o->tasks);
    if (!o->mover || !o->tasks)
        return -1;
    for (size_t i = 0; i < n; i++) {
        o->mover[i] = (struct channel){-1, -1, -1, -1};
        o->tasks[i] = (struct ends){
            .std = {-1, -1, -1}, .pmi = -1, .gate = -1, .opened = -1, .turn = -1};
    }
    if (!s->tasks)
        return 0;
    getrlimit(RLIMIT_NOFILE, &o->files);
    rlim_t most = o->files.rlim_max, need = 8 * n + 64;
    if (geteuid() == 0 && most < need)
        most = need;
    struct rlimit more = {.rlim_cur = most, .rlim_max = most};
    setrlimit(RLIMIT_NOFILE, &more);
    for (size_t i = 0; i < n; i++)
        if (equip_task(s, i, o))
            return -1;
    return 0;
}

static void close_ends(struct ends *e)
{
    int last = -1;
    for (int k = 0; k < 3; k++) {
        if (e->std[k] >= 0 && e->std[k] != last)
            close(e->std[k]);
        last = e->std[k];
        e->std[k] = -1;
    }
    if (e->pmi >= 0)
        close(e->pmi);
    if (e->gate >= 0)
        close(e->gate);
    if (e->opened >= 0)
        close(e->opened);
    if (e->turn >= 0)
        close(e->turn);
    e->pmi = e->gate = e->opened = e->turn = -1;
}

/* Tasks that write one file (a name with the node's in it, say) open it after the first of them,
 * which makes it empty. */
static int in_turn(const struct spec *s, struct ends *ends)
{
    int pair[2] = {-1, -1};
    for (size_t i = 1; i < s->ntasks; i++)
        for (int k = 1; k < 3; k++) {
            const char *path = s->tasks[i].std[k];
            if (!*path || ends[i].turn >= 0 ||
                (strcmp(path, s->tasks[0].std[1]) && strcmp(path, s->tasks[0].std[2])))
                continue;
            if (pair[0] < 0 && pipe2(pair, O_CLOEXEC))
                return -1;
            ends[0].opened = pair[1];
            ends[i].turn = fcntl(pair[0], F_DUPFD_CLOEXEC, 3);
            if (ends[i].turn < 0)
                return -1;
        }
    if (pair[0] >= 0)
        close(pair[0]);
    return 0;
}

static int start_mover(struct step *t, struct outfit *o)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        mover_run(&t->spec, o->mover, o->terminal, o->gate[1], pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return -1;
    }
    t->mover = pid;
    t->link = pair[0];
    for (size_t i = 0; i < t->ntasks; i++) {
        struct channel *c = &o->mover[i];
        int fds[] = {c->in, c->out == c->in ? -1 : c->out, c->err, c->pmi};
        for (size_t k = 0; k < sizeof fds / sizeof *fds; k++)
            if (fds[k] >= 0)
                close(fds[k]);
    }
    if (o->gate[1] >= 0)
        close(o->gate[1]);
    return 0;
}

static int start_task(struct step *t, size_t i, struct outfit *o, int report, pid_t *leader)
{
    static const struct task_spec none = {.cpus = "", .note = ""};
    const struct spec *s = &t->spec;
    struct task_spec batch = none;
    struct task *task = &t->tasks[i];
    const struct task_spec *what = s->tasks ? &s->tasks[i] : &batch;
    bool terminal = o->tasks[i].terminal;
    memcpy(batch.std, s->std, sizeof batch.std);
    task->begun = now_ms();
    task->cause = "none";
    pid_t pid = fork();
    if (pid == 0) {
        if (s->tasks)
            setrlimit(RLIMIT_NOFILE, &o->files);
        child_run(s, what, (uint32_t)i, &o->tasks[i], *leader, report);
    }
    if (pid < 0)
        return -1;
    if (!terminal) { /* both sides do it, so it is done whoever comes first */
        if (setpgid(pid, *leader ? *leader : pid))
            setpgid(pid, pid);
        if (!*leader)
            *leader = pid;
    }
    task->pid = pid;
    task->started = true;
    t->running++;
    close_ends(&o->tasks[i]);
    if (s->tasks)
        control_task(&t->control, what->id, task, 's');
    return 0;
}

int tasks_launch(struct step *t, char why[TEXT_MAX])
{
    struct outfit o;
    struct spec *s = &t->spec;
    int ends[2] = {-1, -1}, error, rc = -1;
    const char *what = "fork";
    pid_t leader = 0;
    t->ntasks = s->tasks ? s->ntasks : 1;
    t->tasks = calloc(t->ntasks, sizeof *t->tasks);
    memset(&o, 0, sizeof o);
    if (!t->tasks || pipe2(ends, O_CLOEXEC | O_NONBLOCK) || equip(t, &o)) {
        what = "pipes";
        goto out;
    }
    if ((*s->task_epilog[0] || *s->task_epilog[1]) && o.tasks[0].std[2] >= 0)
        t->step_err = fcntl(o.tasks[0].std[2], F_DUPFD_CLOEXEC, 3);
    t->begun = now_ms();
    if (wants_mover(s) && start_mover(t, &o))
        goto out;
    if (s->tasks && in_turn(s, o.tasks))
        goto out;
    for (size_t i = 0; i < t->ntasks; i++)
        if (start_task(t, i, &o, ends[1], &leader))
            goto out;
    rc = 0;
out:
    error = errno;
    snprintf(why, TEXT_MAX, "%s: %s", what, strerror(error));
    if (ends[1] >= 0)
        close(ends[1]);
    t->report = ends[0];
    if (t->tasks && t->tasks[0].started) {
        t->record.state = "running";
        if (!s->tasks) {
            t->record.pid = t->tasks[0].pid;
            t->record.started = true;
        }
    }
    free(o.mover);
    free(o.tasks);
    errno = error;
    return rc;
}

void tasks_failed(struct step *t, const struct failure *f)
{
    if (f->task >= t->ntasks)
        return;
    struct task *task = &t->tasks[f->task];
    task->failed = true;
    if (f->kind == FAIL_EXEC) {
        task->wstatus = (f->error & 0xff) << 8;
        if (!t->spec.tasks)
            life_fail(t, f->error, "exec", f->text, task->wstatus);
        return;
    }
    task->wstatus = f->kind == FAIL_OPEN ? OPEN_FAILURE_STATUS : 1 << 8;
    life_fail(t, f->error, f->kind == FAIL_OPEN ? "open" : "setup", f->text, task->wstatus);
    if (t->spec.tasks)
        life_kill(t, "launch", true); /* a step starts whole or not at all */
}

/* Higher is worse, as srun sees it. */
static int weight(int wstatus)
{
    return WIFSIGNALED(wstatus) ? 128 + WTERMSIG(wstatus) : WEXITSTATUS(wstatus);
}

static void ended(struct step *t, size_t i)
{
    struct record *r = &t->record;
    struct task *task = &t->tasks[i];
    task->ended = true;
    t->running--;
    if (!r->failed && weight(task->wstatus) >= weight(r->wstatus))
        r->wstatus = task->wstatus;
    r->utime_us += task->utime_us;
    r->stime_us += task->stime_us;
    r->maxrss_kb = task->maxrss_kb > r->maxrss_kb ? task->maxrss_kb : r->maxrss_kb;
    if (t->spec.tasks)
        control_task(&t->control, t->spec.tasks[i].id, task, 'e');
}

/* Runs the epilogs of a task that has ended; false if there is nothing to wait for. */
static bool start_epilog(struct step *t, size_t i)
{
    static const struct task_spec batch = {.cpus = "", .note = ""};
    const struct spec *s = &t->spec;
    struct task *task = &t->tasks[i];
    task->epilog_due = false;
    pid_t epilog = fork();
    if (epilog == 0)
        child_epilog(s, s->tasks ? &s->tasks[i] : &batch, task->pid, t->step_err);
    if (epilog < 0)
        return false;
    task->epilog = epilog;
    task->epilog_until = now_ms() + EPILOG_MS;
    return true;
}

static void exited(struct step *t, size_t i, int wstatus, const struct rusage *u)
{
    struct task *task = &t->tasks[i];
    const struct spec *s = &t->spec;
    read_reports(t); /* what it said before it went */
    bool epilog = !t->record.failed && (*s->task_epilog[0] || *s->task_epilog[1]);
    task->exited = true;
    if (!task->failed)
        task->wstatus = wstatus;
    task->utime_us = (int64_t)u->ru_utime.tv_sec * 1000000 + u->ru_utime.tv_usec;
    task->stime_us = (int64_t)u->ru_stime.tv_sec * 1000000 + u->ru_stime.tv_usec;
    task->maxrss_kb = u->ru_maxrss;
    task->elapsed_ms = now_ms() - task->begun;
    if (t->phase != RUNNING)
        task->cause = t->record.cause;
    else if (WIFSIGNALED(task->wstatus) && WTERMSIG(task->wstatus) == SIGKILL && s->tasks &&
             procs_oom_kills(s) > t->oom_kills)
        task->cause = "oom";
    if (epilog && t->phase == KILLING)
        task->epilog_due = true; /* it would be killed with the rest */
    else if (!epilog || !start_epilog(t, i))
        ended(t, i);
}

bool tasks_epilogs_due(const struct step *t)
{
    bool due = false;
    for (size_t i = 0; i < t->ntasks; i++) {
        if (!t->tasks[i].exited)
            return false;
        due = due || t->tasks[i].epilog_due;
    }
    return due;
}

int64_t tasks_start_epilogs(struct step *t)
{
    for (size_t i = 0; i < t->ntasks; i++)
        if (t->tasks[i].epilog_due && !start_epilog(t, i))
            ended(t, i);
    return now_ms() + EPILOG_MS;
}

bool tasks_reaped(struct step *t, pid_t pid, int wstatus, const struct rusage *u)
{
    for (size_t i = 0; i < t->ntasks; i++) {
        if (t->tasks[i].pid == pid && !t->tasks[i].exited) {
            exited(t, i, wstatus, u);
            return true;
        }
        if (t->tasks[i].epilog == pid) {
            t->tasks[i].epilog = 0;
            ended(t, i);
            return true;
        }
    }
    return false; /* a stray of the step's, ours since its parent ended */
}

int64_t tasks_on_time(struct step *t)
{
    int64_t at = 0, now = 0;
    for (size_t i = 0; t->running && i < t->ntasks; i++) {
        struct task *task = &t->tasks[i];
        if (!task->epilog)
            continue;
        now = now ? now : now_ms();
        if (now >= task->epilog_until) {
            kill(task->epilog, SIGKILL);
            task->epilog_until = now + 1000;
        }
        if (!at || task->epilog_until < at)
            at = task->epilog_until;
    }
    return at;
}
