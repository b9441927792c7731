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

__attribute__((format(printf, 2, 3))) static void say(int fd, const char *fmt, ...)
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

__attribute__((format(printf, 4, 5))) static _Noreturn void fail(int report, int kind, int error,
                                                                 const char *fmt, ...)
{
    struct failure f;
    memset(&f, 0, sizeof f);
    f.kind = kind;
    f.error = error;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f.text, sizeof f.text, fmt, ap);
    va_end(ap);
    if (write(report, &f, sizeof f) != (ssize_t)sizeof f)
        _exit(1);
    _exit(kind == FAIL_EXEC ? error & 0xff : 1);
}

/* A fresh child has the supervisor's blocked mask and ignored signals; the job must not see either.
 */
static void default_signals(void)
{
    sigset_t none;
    static const char plain[64]; /* a kernel sigaction of zeros: SIG_DFL */
    for (int sig = 1; sig <= 64;
         sig++) /* by hand: the C library keeps 32 and 33 to itself, and hands them on ignored */
        syscall(SYS_rt_sigaction, sig, plain, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int become(const struct spec *s)
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

static int open_std(const struct spec *s, int which)
{
    const char *path = *s->std[which] ? s->std[which] : "/dev/null";
    if (which == 0)
        return open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    /* O_APPEND also when truncating: the batch shell, the steps and the lines of the supervisor
     * share the file, and none may write over another. */
    int flags = O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC | O_APPEND | (s->append ? 0 : O_TRUNC);
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENOENT &&
        make_parents(path) == 0) /* Slurm makes missing directories of an output file */
        fd = open(path, flags, 0666);
    return fd;
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

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, text, strlen(text)) < 0)
        errno = 0; /* a courtesy: the step runs without it too */
    close(fd);
}

_Noreturn void child_run(const struct spec *s, int report)
{
    static const char *const names[3] = {"stdin", "stdout", "stderr"};
    char late[4][160];
    int nlate = 0, std[3], chdir_error = 0;

    setpgid(0, 0);
    for (size_t i = 0; i < s->ncg_procs; i++) {
        int fd = open(s->cg_procs[i], O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            fail(report, FAIL_SETUP, errno, "could not join cgroup %s: %s", s->cg_procs[i],
                 strerror(errno));
        close(fd);
    }
    if (geteuid() == 0)
        write_file("/proc/self/oom_score_adj", "0");
    for (size_t i = 0; i < s->nlimits; i++) {
        const struct limit_spec *l = &s->limits[i];
        struct rlimit now, want = l->value;
        if (getrlimit((__rlimit_resource_t)l->resource, &now))
            continue;
        if (want.rlim_max > now.rlim_max && geteuid() != 0)
            want.rlim_max = now.rlim_max;
        if (want.rlim_cur > want.rlim_max) {
            if (nlate < 4)
                snprintf(
                    late[nlate++], sizeof late[0],
                    "Can't propagate RLIMIT_%s of %llu from submit host: Operation not permitted",
                    l->name, (unsigned long long)l->value.rlim_cur);
            want.rlim_cur = want.rlim_max;
        }
        if (setrlimit((__rlimit_resource_t)l->resource, &want) && nlate < 4)
            snprintf(late[nlate++], sizeof late[0],
                     "Can't propagate RLIMIT_%s of %llu from submit host: %s", l->name,
                     (unsigned long long)l->value.rlim_cur, strerror(errno));
    }
    if (become(s))
        fail(report, FAIL_SETUP, errno, "could not become uid %u gid %u: %s", (unsigned)s->uid,
             (unsigned)s->gid, strerror(errno));

    umask(s->umask);
    default_signals(); /* before the first path of the user's: a FIFO may keep us, and a kill must
                          reach us there */
    if (chdir(s->cwd)) {
        chdir_error = errno;
        if (chdir("/tmp"))
            fail(report, FAIL_SETUP, errno, "could not chdir to /tmp: %s", strerror(errno));
    }
    for (int i = 0; i < 3; i++) {
        std[i] = i == 2 && !strcmp(s->std[1], s->std[2]) ? std[1] : open_std(s, i);
        if (std[i] < 0)
            fail(report, FAIL_OPEN, errno, "Could not open %s file %s: %s", names[i], s->std[i],
                 strerror(errno));
    }
    for (int i = 0; i < 3; i++)
        dup2(std[i], i); /* 0-2 are open in the supervisor, so std[] are all above */
    syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
    if (chdir_error)
        say(2, "couldn't chdir to `%s': %s: going to /tmp instead", s->cwd, strerror(chdir_error));
    for (int i = 0; i < nlate; i++)
        say(2, "%s", late[i]);
    if (s->pid_env) {
        static char text[100];
        snprintf(text, sizeof text, "%s=%d", s->pid_env, (int)getpid());
        s->envp[s->envc] = text; /* spec_load left this slot */
    }
    execve(s->argv[0], s->argv, s->envp);
    int error = errno;
    char what[300];
    if (error == ENOENT && interpreter(s->argv[0], what, sizeof what))
        say(2, "execve(): bad interpreter(%s): %s", what, strerror(error));
    else
        say(2, "execve(): %s: %s", s->argv[0], strerror(error));
    fail(report, FAIL_EXEC, error, "execve(): %s: %s", s->argv[0], strerror(error));
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
