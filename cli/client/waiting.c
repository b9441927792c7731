/* Until the job has started: nothing is on the other end yet, so the queue is asked now and then. */
#include "mover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A job that starts at once has called by then, and nothing is said. */
#define FIRST_MS 400
#define SECOND_MS 1000
#define LAST_MS 10000
#define BELL_MS 10000
/* the reason of a job whose PrologSlurmctld has failed (gsched/ledger/hooks.py) */
#define PROLOG "Prolog"
/* The job's end is with the controller and its nodes are free a few milliseconds after its last word;
 * with an epilog that may take long, so it is not waited for longer. */
#define FAREWELL_MS 300
#define FAREWELL_STEP_MS 4

static bool active, said, gone;
/* how much earlier than this clock the controller's may find that a job has not started in time */
#define EXPIRY_MS 2000

static int64_t begun, next;
static int64_t delay = SECOND_MS;
static pid_t asked;
static int answer = -1;
static char text[512];
static size_t used;

void waiting_start(void) {
    begun = now_ms();
    next = begun + FIRST_MS;
    active = *plan.job && (plan.mode == MODE_JOB || plan.mode == MODE_SALLOC);
}

static void forget_answer(void) {
    if (answer >= 0)
        close(answer);
    answer = -1;
    if (asked > 0) {
        kill(asked, SIGKILL);
        waitpid(asked, NULL, 0);
    }
    asked = 0;
}

void waiting_end(void) {
    forget_answer();
    active = false;
    if (said)
        note(plan.granted);
    said = false;
    bool late = now_ms() - begun >= BELL_MS;
    if (plan.mode == MODE_SALLOC && isatty(1) &&
        (plan.bell == BELL_ALWAYS || (plan.bell == BELL_LATE && late)))
        (void)!write(1, "\a", 1);
}

int waiting_fd(void) {
    return answer;
}

/* Starts squeue; what it says comes through `answer`. */
static bool ask(const char *const words[]) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    used = 0;
    asked = command_start("squeue", words, ends[1]);
    close(ends[1]);
    answer = ends[0];
    if (asked <= 0)
        forget_answer();
    return asked > 0;
}

static _Noreturn void taken_back(const char *words_of_it) {
    const char *const words[] = {"-Q", plan.job, NULL};
    forget_answer();
    if (*plan.job) {
        pid_t pid = command_start("scancel", words, -1);
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    note(words_of_it);
    leave(1);
}

static int64_t expires(void) {
    return plan.expires_s ? begun + (int64_t)1000 * plan.expires_s : INT64_MAX;
}

int64_t waiting_turn(int64_t now) {
    if (!active)
        return -1;
    int64_t end = expires();
    if (now >= end)
        taken_back(plan.expired);
    if (now < next || asked > 0) {
        int64_t later = next > now ? next : now + SECOND_MS;
        return later < end ? later : end;
    }
    const char *const words[] = {"-h", "-t", "all", "-o", "%T|%r", "-j", plan.job, NULL};
    next = now + delay;
    delay = 2 * delay < LAST_MS ? 2 * delay : LAST_MS;
    ask(words);
    return next < end ? next : end;
}

/* In the words of a real Slurm, where an allocation is granted before its PrologSlurmctld runs. */
static _Noreturn void prolog_failed(bool salloc) {
    if (salloc) {
        if (!plan.quiet) {
            complain("Granted job allocation %s", plan.job);
            complain("Waiting for resource configuration");
        }
        complain("PrologSlurmctld failed, job killed");
        complain("Job allocation %s has been revoked.", plan.job);
        complain("error: Job allocation %s has been revoked", plan.job);
    } else {
        complain("error: Job allocation %s has been revoked", plan.job);
        complain("PrologSlurmctld failed, job killed");
        complain("Force Terminated JobId=%s", plan.job);
    }
    leave(1);
}

/* It has ended, and not by this client. Told only when it is seen twice: what the agent has to say
 * of a job that ended at once may be on its way. */
static void over(const char *state, const char *reason) {
    if (!gone) {
        gone = true;
        next = now_ms() + SECOND_MS;
        return;
    }
    bool salloc = plan.mode == MODE_SALLOC;
    if (plan.expires_s && now_ms() >= expires() - EXPIRY_MS)
        taken_back(plan.expired);
    if (strcmp(state, "CANCELLED") != 0 && strcmp(state, "REVOKED") != 0 && *state) {
        complain("error: Job %s has ended (%s) before one of its nodes has called back to this host",
                 plan.job, state);
        leave(1);
    }
    if (strcmp(reason, PROLOG) == 0)
        prolog_failed(salloc);
    if (salloc)
        complain("Job allocation %s has been revoked.", plan.job);
    complain("Job has been cancelled");
    complain("error: %s: Job/step already completing or completed",
             salloc ? "Job submit/allocate failed" : "Unable to allocate resources");
    leave(1);
}

static bool one_of(const char *state, const char *const *all) {
    for (; *all; all++)
        if (strcmp(state, *all) == 0)
            return true;
    return false;
}

static void judge(void) {
    static const char *const waits[] = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", NULL};
    static const char *const ends[] = {"CANCELLED", "FAILED", "COMPLETED", "TIMEOUT", "DEADLINE",
                                       "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
                                       "REVOKED", NULL};
    text[used] = 0;
    if (strstr(text, "Invalid job id")) {
        over("", "");
        return;
    }
    text[strcspn(text, "\r\n")] = 0;
    char *reason = strchr(text, '|');
    if (reason)
        *reason++ = 0;
    if (one_of(text, ends)) {
        over(text, reason ? reason : "");
    } else {
        gone = false;
        if (!said && one_of(text, waits)) {
            said = true;
            note(plan.pending);
        }
    }
}

void waiting_read(void) {
    ssize_t n = read(answer, text + used, sizeof text - 1 - used);
    if (n < 0 && errno == EINTR)
        return;
    if (n > 0) {
        used += (size_t)n;
        if (used < sizeof text - 1)
            return;
    }
    forget_answer();
    judge();
}

/* One look at the queue: 1 the job is in it, 0 it is not, -1 nobody has said by then. */
static int listed(int64_t until) {
    const char *const words[] = {"-h", "-o", "%T", "-j", plan.job, NULL};
    int found = -1;
    if (!ask(words))
        return -1;
    for (;;) {
        struct pollfd there = {.fd = answer, .events = POLLIN};
        int64_t left = until - now_ms();
        if (left <= 0 || poll(&there, 1, (int)left) <= 0)
            break;
        ssize_t n = read(answer, text + used, sizeof text - 1 - used);
        if (n > 0 && used + (size_t)n < sizeof text - 1) {
            used += (size_t)n;
            continue;
        }
        text[used] = 0;
        found = used && !strstr(text, "Invalid job id");
        break;
    }
    forget_answer();
    return found;
}

void waiting_farewell(void) {
    if (!*plan.job || plan.no_shell || (plan.mode != MODE_JOB && plan.mode != MODE_SALLOC))
        return;
    int64_t until = now_ms() + FAREWELL_MS;
    while (listed(until) > 0 && now_ms() + FAREWELL_STEP_MS < until)
        usleep(1000 * FAREWELL_STEP_MS);
}

_Noreturn void waiting_revoke(void) {
    taken_back(plan.revoked);
}
