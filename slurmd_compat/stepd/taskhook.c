/* The programs around a task, run as the user in processes of the task's own: what they read,
 * write or wait for concerns nobody else. */
#include "stepd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROLOG_OUTPUT_MAX (1u << 20)
#define EPILOG_MS 5000 /* as Slurm: "meant to be a very short-lived program" */

static char *const no_environ[1];

static int find(const struct environ *e, const char *name, size_t length)
{
    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->at[i], name, length) && e->at[i][length] == '=')
            return (int)i;
    return -1;
}

int environ_put(struct environ *e, char *assignment)
{
    int at = find(e, assignment, strcspn(assignment, "="));
    if (at < 0)
        return environ_add(e, assignment);
    e->at[at] = assignment;
    return 0;
}

int environ_add(struct environ *e, char *assignment)
{
    if (e->n + 2 > e->room) {
        size_t room = e->room ? 2 * e->room : 256;
        char **more = realloc(e->at, room * sizeof *more);
        if (!more)
            return -1;
        e->at = more;
        e->room = room;
    }
    e->at[e->n++] = assignment;
    e->at[e->n] = NULL;
    return 0;
}

void environ_drop(struct environ *e, const char *name, size_t length)
{
    int at = find(e, name, length);
    if (at < 0)
        return;
    memmove(e->at + at, e->at + at + 1, (e->n - (size_t)at) * sizeof *e->at);
    e->n--;
}

/* Starts a program with the given standard output and error (-1: none); its pid, or -1. The pipe
 * tells whether it could be executed: *error is then 0. */
static pid_t start(const char *path, const struct environ *e, int out, int err, int *error)
{
    int told[2];
    *error = 0;
    if (pipe2(told, O_CLOEXEC))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char *)path, NULL};
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        setpgid(0, 0); /* so that its children can be ended with it */
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(null, 0);
        dup2(out < 0 ? null : out, 1);
        dup2(err < 0 ? null : err, 2);
        execve(path, argv, e->at ? e->at : (char **)no_environ);
        int code = errno;
        if (write(told[1], &code, sizeof code) < 0)
            _exit(126);
        _exit(127);
    }
    close(told[1]);
    if (pid > 0) {
        setpgid(pid, pid);
        if (read(told[0], error, sizeof *error) != (ssize_t)sizeof *error)
            *error = 0;
    }
    close(told[0]);
    return pid;
}

static void write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t wrote = write(fd, text, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return;
        text += wrote;
        n -= (size_t)wrote;
    }
}

/* One line of what a prolog has written. */
static void obey(char *line, struct environ *e)
{
    if (!strncmp(line, "print ", 6)) {
        size_t n = strlen(line);
        line[n] = '\n'; /* in the place of its NUL, and put back */
        write_all(1, line + 6, n + 1 - 6);
        line[n] = 0;
    } else if (!strncmp(line, "export ", 7)) {
        char *name = line + 7 + strspn(line + 7, " \t"), *eq = strchr(name, '=');
        if (!eq || eq == name)
            return;
        char *end = eq;
        while (end > name && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        if (end == name)
            return;
        memmove(end, eq, strlen(eq) + 1); /* "NAME =x" names NAME, as in Slurm */
        environ_put(e, name);
    } else if (!strncmp(line, "unset ", 6)) {
        char *name = line + 6 + strspn(line + 6, " \t");
        size_t n = strcspn(name, " \t=");
        if (n)
            environ_drop(e, name, n);
    }
}

static int prolog(const char *path, const char *what, const char *option, struct environ *e)
{
    int ends[2], error, wstatus;
    if (!*path)
        return 0;
    if (pipe2(ends, O_CLOEXEC))
        return 1;
    error = access(path, R_OK | X_OK) ? errno : 0;
    pid_t pid = error ? -1 : start(path, e, ends[1], -1, &error);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        say(2, "run_command: %s can not be executed (%s) %s", what, path,
            strerror(error ? error : EAGAIN));
        say(2, "%s did not exit normally. reason: Run command failed - configuration error", what);
        say(2, "%s failed status=1", option);
        return 1;
    }
    /* Kept for good: the environment points into it. */
    char *text = malloc(PROLOG_OUTPUT_MAX + 1);
    size_t got = 0;
    for (ssize_t n; text; got += (size_t)n) {
        n = read(ends[0], text + got, PROLOG_OUTPUT_MAX - got);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            break;
    }
    close(ends[0]);
    while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
        ;
    int status = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : 1;
    if (!WIFEXITED(wstatus))
        say(2, "%s did not exit normally. reason: ", what);
    if (status) {
        say(2, "%s failed status=%d", option, status);
        return status;
    }
    char *line = text;
    for (char *end; text && (end = memchr(line, '\n', got - (size_t)(line - text)));
         line = end + 1) {
        *end = 0;
        obey(line, e);
    }
    return 0;
}

int task_prologs(const struct spec *s, struct environ *e)
{
    if (!*s->task_prolog[0] && !*s->task_prolog[1])
        return 0;
    static char context[] = "SLURM_SCRIPT_CONTEXT=prolog_task";
    environ_put(e, context);
    int status = prolog(s->task_prolog[0], "slurm task_prolog", "TaskProlog", e);
    if (!status)
        status = prolog(s->task_prolog[1], "user task_prolog", "--task-prolog", e);
    environ_drop(e, context, strcspn(context, "="));
    return status;
}

static void epilog(const char *path, const char *what, const struct environ *e)
{
    int error, wstatus = 0;
    if (!*path)
        return;
    if (access(path, R_OK | X_OK)) {
        say(2, "Could not run %s [%s]: access denied", what, path);
        say(2, "TaskEpilog failed status=-1");
        return;
    }
    pid_t pid = start(path, e, -1, 2, &error);
    if (pid < 0)
        return;
    if (error)
        say(2, "execve(%s): %s", path, strerror(error));
    int64_t end = now_ms() + EPILOG_MS;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (pid_t gone; (gone = waitpid(pid, &wstatus, WNOHANG)) != pid;) {
        int64_t left = end - now_ms();
        if ((gone < 0 && errno != EINTR) || left <= 0) {
            kill(-pid, SIGKILL);
            while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
                ;
            break;
        }
        struct timespec wait = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
        sigtimedwait(&child, NULL, &wait);
    }
    kill(-pid, SIGKILL); /* "along with any descendant processes" */
    if (wstatus)
        say(2, "TaskEpilog failed status=%d", wstatus);
}

_Noreturn void task_epilogs(const struct spec *s, const struct environ *e)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    epilog(s->task_epilog[0], "user task_epilog", e);
    epilog(s->task_epilog[1], "slurm task_epilog", e);
    _exit(0);
}
