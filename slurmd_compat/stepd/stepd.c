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
 *                signal N batch|all|TASK
 *                limit SECONDS           from the start; 0 none
 *                notify TEXT             a line for the error file
 *                attach HOST:PORT SECRET PLACE TASK INPUT
 *                                        one more client; TASK -1: all; INPUT 1: it may feed them
 * EVENTFD      a connected socket that gets the events from the start and takes the same commands
 *
 * Events, and lines of the status file:
 *   started PID              the batch process
 *   task N started PID
 *   task N ended WSTATUS CAUSE UTIME_US STIME_US MAXRSS_KB ELAPSED_MS     after its epilogs
 *   failed ERRNO TEXT        "open: ...", "exec: ...", "setup: ..." or "io: ..."; `ended` follows
 *   ended WSTATUS CAUSE UTIME_US STIME_US MAXRSS_KB ELAPSED_MS     CAUSE: none timeout killed oom
 *   released                 no process of the step is left
 *
 * Of a step of tasks, all that a client has sent or gets goes through one more process, the mover
 * (io.c), which lives until the client has everything.
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

/* A number of a command line; -1: none. */
static int descriptor(const char *text)
{
    char *end;
    long v = strtol(text, &end, 10);
    return *text < '0' || *text > '9' || *end || v > INT_MAX ? -1 : (int)v;
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
    if (argc >= 3 && ((eventfd = descriptor(argv[2])) < 3 || fcntl(eventfd, F_GETFD) < 0)) {
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
    t.report = t.link = t.step_err = -1;
    control_start(&t.control);
    int claimed = control_claim(&t.control), error = errno;
    if (claimed && (error == EEXIST || eventfd < 0))
        return error == EEXIST ? 3 : 2; /* never a second run of the same attempt */
    int bound = 0;
    if (eventfd > 2) {
        control_adopt(&t.control, eventfd);
        t.control.clients[0].watch = true;
    } else {
        bound = control_open(&t.control);
        error = errno;
    }
    int rc = 1;
    if (claimed) { /* a full disk: what has no record does not run */
        snprintf(why, sizeof why, "could not write the step's record: %s", strerror(error));
    } else if (signals < 0 || bound) {
        snprintf(why, sizeof why, "control socket: %s", strerror(error));
    } else if ((loaded = piped ? loaded : spec_load(&t.spec, "spec", why)) == 0) {
        rc = tasks_launch(&t, why) ? 1 : 0;
        error = errno;
    } else {
        error = EINVAL;
    }
    if (rc == 0) {
        control_publish(&t.control, &t.record, t.record.started ? "started" : NULL);
        life_limit(&t, t.spec.limit);
        spec_trim(&t.spec);
        t.oom_kills = t.spec.tasks ? procs_oom_kills(&t.spec) : 0;
    } else {
        life_fail(&t, error, "setup", why, 1 << 8);
        if (t.running) /* some of the tasks: none of them may run */
            life_kill(&t, "launch", true);
    }
    if (t.running) {
        life_live(&t, signals);
    } else {
        t.record.ended = true;
        control_publish(&t.control, &t.record, "ended");
    }
    if (t.mover > 0)
        kill(t.mover, SIGCONT); /* it has the user's id: a task may have stopped it */
    t.record.released = true;
    t.record.state = "released";
    control_publish(&t.control, &t.record, "released");
    control_close(&t.control);
    spec_free(&t.spec);
    return rc;
}
