/* The user part: from the fork to execve, and the short-lived child that appends a line to the
 * step's error file. Joins the cgroups and raises limits while still root, then becomes the user
 * for good, and only then touches paths of the user: on a file system that squashes root nothing
 * else works, and nothing else is safe. */
#include "stepd.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Slurm 26.05 stamps what its supervisor writes into a job's files: "[2026-11-29T13:54:17.007]
 * error: ...". */
static int stamp(char *out, size_t size, bool millis)
{
    struct timespec ts;
    struct tm tm;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    return millis ? snprintf(out, size, "%s.%03ld", date, ts.tv_nsec / 1000000)
                  : snprintf(out, size, "%s", date);
}

void say(int fd, const char *fmt, ...)
{
    char when[64], text[PATH_MAX + 256], line[PATH_MAX + 400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stamp(when, sizeof when, true);
    int n = snprintf(line, sizeof line, "[%s] error: %s\n", when, text);
    if (n > 0 && write(fd, line, (size_t)n) < 0)
        return; /* a full disk or a closed pipe of the user's: nothing to do about it here */
}

static struct {
    int fd;
    uint32_t task;
} report;

__attribute__((format(printf, 3, 4))) static _Noreturn void fail(int kind, int error,
                                                                 const char *fmt, ...)
{
    struct failure f;
    memset(&f, 0, sizeof f);
    f.kind = kind;
    f.task = report.task;
    f.error = error;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f.text, sizeof f.text, fmt, ap);
    va_end(ap);
    if (write(report.fd, &f, sizeof f) != (ssize_t)sizeof f)
        _exit(1);
    _exit(kind == FAIL_EXEC ? error & 0xff : 1);
}

/* A fresh child has the supervisor's blocked mask and ignored signals; the job must not see either.
 */
void default_signals(void)
{
    sigset_t none;
    static const char plain[64]; /* a kernel sigaction of zeros: SIG_DFL */
    for (int sig = 1; sig <= 64;
         sig++) /* by hand: the C library keeps 32 and 33 to itself, and hands them on ignored */
        syscall(SYS_rt_sigaction, sig, plain, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int become(const struct spec *s)
{
    if (geteuid() != 0)
        return s->uid == geteuid() ? 0 : (errno = EPERM, -1);
    if (setgroups(s->ngroups, s->groups) || setresgid(s->gid, s->gid, s->gid) ||
        setresuid(s->uid, s->uid, s->uid))
        return -1;
    if (s->uid != 0 &&
        setuid(0) == 0) /* cannot happen; if it does, nothing of the user's may run */
        return errno = EPERM, -1;
    return 0;
}

static int make_parents(const char *path)
{
    char dir[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof dir)
        return errno = ENAMETOOLONG, -1;
    memcpy(dir, path, n + 1);
    for (char *p = dir + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        if (mkdir(dir, 0777) && errno != EEXIST && errno != EISDIR && errno != EACCES &&
            errno != EROFS && errno != EPERM)
            return -1;
        *p = '/';
    }
    return 0;
}

/* Whether the first of the tasks here writes the same file: it makes it empty, before any other
 * opens it. */
static bool of_the_first(const struct spec *s, const struct task_spec *task, const char *path)
{
    return s->tasks && task != &s->tasks[0] &&
           (!strcmp(path, s->tasks[0].std[1]) || !strcmp(path, s->tasks[0].std[2]));
}

static int open_std(const struct spec *s, const struct task_spec *task, const char *path, int which)
{
    if (!*path)
        path = "/dev/null";
    if (which == 0)
        return open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    /* O_APPEND also when truncating: the batch shell, the steps and the lines of the supervisor
     * share the file, and none may write over another. */
    bool keeps = s->append || of_the_first(s, task, path);
    int flags = O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC | O_APPEND | (keeps ? 0 : O_TRUNC);
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENOENT &&
        make_parents(path) == 0) /* Slurm makes missing directories of an output file */
        fd = open(path, flags, 0666);
    return fd;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, text, strlen(text)) < 0)
        errno = 0; /* a courtesy: the step runs without it too */
    close(fd);
}

void spare_nobody(void)
{
    if (geteuid() == 0)
        write_file("/proc/self/oom_score_adj", "0");
}

/* "bad interpreter(X)" is what Slurm says when the script is there and what its first line names is
 * not. */
static bool interpreter(const char *path, char *out, size_t size)
{
    char head[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, head, sizeof head - 1);
    close(fd);
    if (n < 3 || head[0] != '#' || head[1] != '!')
        return false;
    head[n] = 0;
    char *p = head + 2 + strspn(head + 2, " \t");
    p[strcspn(p, " \t\n")] = 0;
    snprintf(out, size, "%s", p);
    return *p != 0 && access(p, X_OK) != 0;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

void keep_only(int *fds, size_t n)
{
    unsigned next = 3;
    if (n)
        qsort(fds, n, sizeof *fds, ascending);
    for (size_t i = 0; i < n; i++) {
        if (fds[i] < (int)next)
            continue;
        if (fds[i] > (int)next)
            syscall(SYS_close_range, next, (unsigned)fds[i] - 1, 0u);
        next = (unsigned)fds[i] + 1;
    }
    syscall(SYS_close_range, next, ~0u, 0u);
}

/* What could not be done for the task, and is told once it has an error file. */
struct late {
    int n;
    char text[5][160];
};

static void join_cgroups(const struct spec *s)
{
    for (size_t i = 0; i < s->ncg_procs; i++) {
        int fd = open(s->cg_procs[i], O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            fail(FAIL_SETUP, errno, "could not join cgroup %s: %s", s->cg_procs[i],
                 strerror(errno));
        close(fd);
    }
}

static void set_limits(const struct spec *s, struct late *late)
{
    for (size_t i = 0; i < s->nlimits; i++) {
        const struct limit_spec *l = &s->limits[i];
        struct rlimit now, want = l->value;
        if (getrlimit((__rlimit_resource_t)l->resource, &now))
            continue;
        if (want.rlim_max > now.rlim_max && geteuid() != 0)
            want.rlim_max = now.rlim_max;
        if (want.rlim_cur > want.rlim_max) {
            if (late->n < 4)
                snprintf(
                    late->text[late->n++], sizeof late->text[0],
                    "Can't propagate RLIMIT_%s of %llu from submit host: Operation not permitted",
                    l->name, (unsigned long long)l->value.rlim_cur);
            want.rlim_cur = want.rlim_max;
        }
        if (setrlimit((__rlimit_resource_t)l->resource, &want) && late->n < 4)
            snprintf(late->text[late->n++], sizeof late->text[0],
                     "Can't propagate RLIMIT_%s of %llu from submit host: %s", l->name,
                     (unsigned long long)l->value.rlim_cur, strerror(errno));
    }
}

/* "0-3,8": the CPUs it may run on. */
static void bind_cpus(const char *list, struct late *late)
{
    enum { CPUS = 8192 };
    unsigned long mask[CPUS / (8 * sizeof(unsigned long))] = {0};
    for (const char *p = list; *p;) {
        char *end;
        unsigned long from = strtoul(p, &end, 10), to = from;
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = from; cpu <= to && cpu < CPUS; cpu++)
            mask[cpu / (8 * sizeof *mask)] |= 1ul << cpu % (8 * sizeof *mask);
        if (end == p || (*end && *end != ','))
            break;
        p = *end ? end + 1 : end;
    }
    if (*list && syscall(SYS_sched_setaffinity, 0, sizeof mask, mask) < 0 && late->n < 5)
        snprintf(late->text[late->n++], sizeof late->text[0],
                 "sched_setaffinity(%.100s) failed: %s", list, strerror(errno));
}

static void open_streams(const struct spec *s, const struct task_spec *task,
                         const struct ends *ends)
{
    static const char *const names[3] = {"stdin", "stdout", "stderr"};
    int std[3];
    for (int i = 0; i < 3; i++) {
        const char *path = task->std[i];
        if (ends->std[i] >= 0)
            std[i] = ends->std[i];
        else
            std[i] = i == 2 && ends->std[1] < 0 && !strcmp(task->std[1], path)
                         ? std[1]
                         : open_std(s, task, path, i);
        if (std[i] < 0)
            fail(FAIL_OPEN, errno, "Could not open %s file %s: %s", names[i], path,
                 strerror(errno));
    }
    for (int i = 0; i < 3; i++)
        dup2(std[i], i); /* 0-2 are open in the supervisor, so std[] are all above */
}

/* Where the task's program is: as Slurm, a name is looked for in the PATH of the task's own
 * environment; what is found first counts, executable or not; else it is taken as it is. */
static const char *find_program(const char *name, const struct environ *e, char out[PATH_MAX])
{
    const char *path = NULL;
    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->at[i], "PATH=", 5))
            path = e->at[i] + 5;
    for (const char *p = path; p && !strchr(name, '/');) {
        size_t n = strcspn(p, ":");
        struct stat st;
        const char *dir = n ? p : "."; /* an empty part is the working directory */
        int length = snprintf(out, PATH_MAX, "%.*s/%s", n ? (int)n : 1, dir, name);
        if (length < PATH_MAX && stat(out, &st) == 0 && !S_ISDIR(st.st_mode))
            return out;
        p = p[n] ? p + n + 1 : NULL;
    }
    return name;
}

/* Moves a descriptor out of the way of scripts, which number theirs from 3. */
static int set_apart(int fd)
{
    int moved = fcntl(fd, F_DUPFD, 17);
    return moved < 0 ? fd : moved;
}

/* The task's environment: the step's, its own, and what only its process knows. */
static void make_environ(const struct spec *s, const struct task_spec *task, int pmi_fd,
                         struct environ *e)
{
    static char pid[100], pmi[4][128];
    bool whole = true;
    for (size_t i = 0; i < s->envc; i++)
        whole &= environ_add(e, s->envp[i]) == 0;
    for (size_t i = 0; task->env && task->env[i]; i++)
        whole &= environ_put(e, task->env[i]) == 0;
    if (s->pid_env) {
        snprintf(pid, sizeof pid, "%s=%d", s->pid_env, (int)getpid());
        whole &= environ_put(e, pid) == 0;
    }
    if (pmi_fd >= 0) {
        snprintf(pmi[0], sizeof pmi[0], "PMI_FD=%d", pmi_fd);
        snprintf(pmi[1], sizeof pmi[1], "PMI_RANK=%u", task->id);
        snprintf(pmi[2], sizeof pmi[2], "PMI_SIZE=%ld", s->all_tasks);
        snprintf(pmi[3], sizeof pmi[3], "PMI_JOBID=%s", s->pmi_jobid);
        for (int i = 0; i < 4; i++)
            whole &= environ_put(e, pmi[i]) == 0;
    }
    if (!whole)
        fail(FAIL_SETUP, ENOMEM, "no memory for the environment");
}

/* What the PMIx server wants in the environment: words up to an empty one. */
static void ask_pmix(int fd, struct environ *e)
{
    static char text[64u << 10];
    size_t used = 0;
    while (used < sizeof text) {
        ssize_t n = read(fd, text + used, sizeof text - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    char *at = text, *end = text + used;
    while (at < end && *at && memchr(at, 0, (size_t)(end - at))) {
        if (environ_put(e, at))
            fail(FAIL_SETUP, ENOMEM, "no memory for the environment");
        at += strlen(at) + 1;
    }
    if (at >= end || *at)
        fail(FAIL_SETUP, EIO, "the PMIx server could not be started");
}

/* Lines about how the task is bound, as the user has asked for; its pid stands in the brackets. */
static void show_note(const char *note)
{
    char text[4096];
    size_t used = 0;
    for (; *note && used + 16 < sizeof text; note++) {
        text[used++] = *note;
        if (note[0] == '[' && note[1] == ']')
            used += (size_t)snprintf(text + used, sizeof text - used, "%d", (int)getpid());
    }
    if (used && write(2, text, used) < 0)
        return; /* whoever does not take it does not see it */
}

_Noreturn void child_run(const struct spec *s, const struct task_spec *task, uint32_t index,
                         const struct ends *ends, pid_t leader, int report_fd)
{
    struct late late = {0};
    struct environ e = {0};
    int chdir_error = 0;

    report.fd = report_fd;
    report.task = index;
    if (ends->terminal) {
        setsid();
        if (ioctl(ends->std[0], TIOCSCTTY, 0))
            fail(FAIL_SETUP, errno, "could not get the terminal: %s", strerror(errno));
    } else if (setpgid(0, leader)) {
        setpgid(0, 0);
    }
    join_cgroups(s);
    spare_nobody();
    set_limits(s, &late);
    bind_cpus(task->cpus, &late);
    if (become(s))
        fail(FAIL_SETUP, errno, "could not become uid %u gid %u: %s", (unsigned)s->uid,
             (unsigned)s->gid, strerror(errno));

    umask(s->umask);
    default_signals(); /* before the first path of the user's: a FIFO may keep us, and a kill must
                          reach us there */
    if (chdir(s->cwd)) {
        chdir_error = errno;
        if (chdir("/tmp"))
            fail(FAIL_SETUP, errno, "could not chdir to /tmp: %s", strerror(errno));
    }
    int keep[] = {report_fd,    ends->gate,   ends->pmi,    ends->opened,
                  ends->turn,   ends->std[0], ends->std[1], ends->std[2]};
    keep_only(keep, sizeof keep / sizeof *keep); /* others' pipes are theirs alone */
    char byte;
    while (ends->turn >= 0 && read(ends->turn, &byte, 1) < 0 && errno == EINTR)
        ;
    open_streams(s, task, ends);
    if (ends->opened >= 0)
        close(ends->opened);
    int pmi_fd = ends->pmi < 0 || *s->pmix ? -1 : set_apart(ends->pmi);
    make_environ(s, task, pmi_fd, &e);
    if (*s->pmix)
        ask_pmix(ends->pmi, &e);
    syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
    if (chdir_error)
        say(2, "couldn't chdir to `%s': %s: going to /tmp instead", s->cwd, strerror(chdir_error));
    for (int i = 0; i < late.n; i++)
        say(2, "%s", late.text[i]);
    show_note(task->note);
    while (ends->gate >= 0 && read(ends->gate, &byte, 1) < 0 && errno == EINTR)
        ;
    int status = task_prologs(s, &e);
    if (status)
        _exit(status);
    if (pmi_fd >= 0)
        fcntl(pmi_fd, F_SETFD, 0);
    char path[PATH_MAX], what[300];
    char **argv = task->argv && *task->argv ? task->argv : s->argv;
    const char *program = find_program(argv[0], &e, path);
    execve(program, argv, e.at);
    int error = errno;
    if (error == ENOENT && interpreter(program, what, sizeof what))
        say(2, "execve(): bad interpreter(%s): %s", what, strerror(error));
    else
        say(2, "execve(): %s: %s", program, strerror(error));
    fail(FAIL_EXEC, error, "execve(): %s: %s", program, strerror(error));
}

_Noreturn void child_epilog(const struct spec *s, const struct task_spec *task, pid_t pid, int err)
{
    static char number[100], context[] = "SLURM_SCRIPT_CONTEXT=epilog_task";
    struct environ e = {0};
    report.fd = -1;
    setpgid(0, 0);
    join_cgroups(s);
    spare_nobody();
    if (become(s))
        _exit(1);
    umask(s->umask);
    default_signals();
    if (chdir(s->cwd) && chdir("/tmp"))
        _exit(1);
    if (err < 0 && *s->std[2])
        err = open(s->std[2], O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    if (err >= 0)
        dup2(err, 2);
    keep_only(NULL, 0);
    make_environ(s, task, -1, &e);
    if (s->pid_env) {
        snprintf(number, sizeof number, "%s=%d", s->pid_env, (int)pid);
        environ_put(&e, number);
    }
    environ_put(&e, context);
    task_epilogs(s, &e);
}

/* The error file, opened as the user; ends the process if that cannot be. */
static int error_file(const struct spec *s)
{
    if (become(s))
        _exit(1);
    default_signals();
    int fd = open(s->std[2], O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        _exit(1);
    return fd;
}

_Noreturn void child_note(const struct spec *s, const char *text)
{
    say(error_file(s), "%s", text);
    _exit(0);
}

_Noreturn void child_append(const struct spec *s, const char *reason)
{
    char when[64];
    int fd = error_file(s);
    stamp(when, sizeof when, false);
    say(fd, "*** %s CANCELLED AT %s%s ***", s->label, when, reason);
    _exit(0);
}

int note_text(char *out, size_t size, const char *text)
{
    char when[64];
    stamp(when, sizeof when, true);
    return snprintf(out, size, "[%s] error: %s\n", when, text);
}

int cancelled_text(char *out, size_t size, const struct spec *s, const char *reason)
{
    char when[64], text[TEXT_MAX];
    stamp(when, sizeof when, false);
    snprintf(text, sizeof text, "*** %s CANCELLED AT %s%s ***", s->label, when, reason);
    return note_text(out, size, text);
}
