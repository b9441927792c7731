/* Programs that the client runs: salloc's shell, SrunProlog and SrunEpilog, commands of this
 * installation. */
#include "mover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

pid_t shell_pid;
int shell_status;
bool shell_done;
/* the shell has the terminal while it runs */
static bool foreground;
static struct termios modes;

/* The terminal's foreground is `group` from now on, whoever has it. */
static void hand_terminal(pid_t group) {
    sigset_t ttou, mask;
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    sigprocmask(SIG_BLOCK, &ttou, &mask);
    tcsetpgrp(0, group);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

/* In a child: signals and limits as they were when this program started. */
static void forget_signals(void) {
    setrlimit(RLIMIT_NOFILE, &files_before);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

static void set_environment(char **env) {
    for (; env && *env; env++)
        putenv(*env);
}

static bool program(const char *path) {
    struct stat there;
    return stat(path, &there) == 0 && S_ISREG(there.st_mode) && access(path, X_OK) == 0;
}

/* Where a command lies, by the rules of salloc's manual page: an absolute path; below the working
 * directory where it begins with "."; in PATH; below the working directory. */
static bool found(const char *command, char out[4096]) {
    const char *path = getenv("PATH"), *folder = plan.chdir;
    char own[4096] = "";
    int n;
    if (*command == '/')
        return snprintf(out, 4096, "%s", command) < 4096 && program(out);
    if (!*folder)
        folder = getcwd(own, sizeof own) ? own : ".";
    for (const char *at = path ? path : "/bin:/usr/bin"; *command && *command != '.';) {
        size_t size = strcspn(at, ":");
        n = snprintf(out, 4096, "%.*s/%s", size ? (int)size : 1, size ? at : ".", command);
        if (n > 0 && n < 4096 && !strchr(command, '/') && program(out))
            return true;
        if (!at[size])
            break;
        at += size + 1;
    }
    n = snprintf(out, 4096, "%s/%s", folder, command);
    return *command && n > 0 && n < 4096 && program(out);
}

static void failed(int code) {
    shell_status = code << 8;
    shell_done = true;
}

bool shell_start(char **argv, char **env, const char *given, size_t size) {
    char path[4096];
    if (!argv[0] || !found(argv[0], path)) {
        complain("error: _fork_command: Unable to find command \"%s\"", argv[0] ? argv[0] : "");
        failed(1);
        return false;
    }
    foreground = isatty(0) && tcgetpgrp(0) == getpgrp() && tcgetattr(0, &modes) == 0;
    shell_pid = fork();
    if (shell_pid < 0) {
        shell_pid = 0;
        complain("error: fork: %s", strerror(errno));
        failed(1);
        return false;
    }
    if (shell_pid == 0) {
        setpgid(0, 0);
        if (foreground)
            hand_terminal(getpid());
        set_environment(env);
        for (size_t at = 0; at < size; at += strnlen(given + at, size - at) + 1) {
            char *one = strndup(given + at, size - at);
            if (one && strchr(one, '='))
                putenv(one);
        }
        if (*plan.chdir && chdir(plan.chdir) != 0)
            fprintf(stderr, "%s: error: Unable to chdir(%s): %s\n", name, plan.chdir,
                    strerror(errno));
        forget_signals();
        execvp(path, argv);
        fprintf(stderr, "%s: error: execv: %s: %s\n", name, argv[0], strerror(errno));
        _exit(1);
    }
    setpgid(shell_pid, shell_pid);
    if (foreground)
        hand_terminal(shell_pid);
    return true;
}

void shell_signal(int signum) {
    if (!shell_pid || shell_done)
        return;
    if (!signum)
        signum = foreground ? SIGHUP : SIGTERM;
    kill(-shell_pid, signum);
    kill(-shell_pid, SIGCONT);
}

void shell_reap(void) {
    int status;
    while (shell_pid && !shell_done && waitpid(shell_pid, &status, WNOHANG | WUNTRACED) > 0) {
        if (WIFSTOPPED(status)) {
            if (!foreground)
                continue;
            /* The user's own shell is to have the terminal while this one is stopped. */
            hand_terminal(getpgrp());
            kill(getpid(), SIGSTOP);
            hand_terminal(shell_pid);
            kill(-shell_pid, SIGCONT);
            continue;
        }
        shell_status = status;
        shell_done = true;
        if (foreground) {
            hand_terminal(getpgrp());
            if (WIFSIGNALED(status))
                tcsetattr(0, TCSADRAIN, &modes);
        }
    }
}

/* salloc's: the shell's own; of a shell that a signal has ended 0 or 1, as its manual page says. */
int shell_code(void) {
    static const int harmless[] = {SIGHUP, SIGINT, SIGKILL, SIGQUIT};
    if (WIFEXITED(shell_status))
        return WEXITSTATUS(shell_status);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (WTERMSIG(shell_status) == harmless[i])
            return 0;
    return 1;
}

int program_run(const char *path, char **argv, char **env) {
    int status = -1;
    size_t count = 0;
    if (access(path, R_OK | X_OK) != 0) {
        /* As with Slurm: what is not there (for this user) keeps nobody from his work. */
        complain("Access denied for %s: %s", path, strerror(errno));
        return 0;
    }
    while (argv[count])
        count++;
    char **words = calloc(count + 2, sizeof *words);
    if (!words)
        return -1;
    words[0] = (char *)path;
    memcpy(words + 1, argv, count * sizeof *words);
    pid_t pid = fork();
    if (pid == 0) {
        set_environment(env);
        forget_signals();
        execv(path, words);
        fprintf(stderr, "%s: error: Failed to execute %s prolog/epilog script: %s\n", name, name,
                strerror(errno));
        _exit(127);
    }
    free(words);
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    if (!WIFEXITED(status)) {
        complain("error: script did not exit normally");
        return 1 << 8;
    }
    return status;
}

/* What would change how these commands answer. */
static void plain_environment(void) {
    static const char *const others[] = {"SCANCEL_", "SQUEUE_", "SLURM_CLUSTERS="};
    for (char **var = environ; *var;) {
        bool other = false;
        char key[256];
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            other = other || strncmp(*var, others[i], strlen(others[i])) == 0;
        size_t size = strcspn(*var, "=");
        if (!other || size >= sizeof key) {
            var++;
            continue;
        }
        memcpy(key, *var, size);
        key[size] = 0;
        if (unsetenv(key) != 0)
            var++;
    }
}

pid_t command_start(const char *command, const char *const *words, int out) {
    char path[4096];
    const char *argv[16] = {command};
    for (size_t i = 0; words[i] && i < 14; i++)
        argv[i + 1] = words[i];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return -1;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + strlen(command) >= sizeof path)
        return -1;
    strcpy(slash + 1, command);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup2(null, 0);
    if (out >= 0) {
        dup2(out, 1);
        dup2(out, 2);
    }
    plain_environment();
    forget_signals();
    execv(path, (char **)argv);
    _exit(127);
}
