/* What a follower may ask for: one command a line (stepd.c lists them). */
#include "stepd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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
    if (t->record.ended || t->phase != RUNNING || !life_note(t, text, NULL))
        control_reply(&t->control, k, "error no line can be written now\n");
    else
        control_reply(&t->control, k, "ok\n");
}

/* "batch": the first process of a batch step; "all": all processes; else a task's. */
static void send_signal(struct step *t, struct client *k, const char *one, const char *whom)
{
    long sig = number(one), task = number(whom);
    size_t which = 0;
    bool all = !strcmp(whom, "all");
    while (task >= 0 && which < t->spec.ntasks && t->spec.tasks[which].id != (uint32_t)task)
        which++;
    bool known =
        all || (t->spec.tasks ? task >= 0 && which < t->spec.ntasks : !strcmp(whom, "batch"));
    if (sig < 1 || sig > SIGRTMAX || !known) {
        control_reply(&t->control, k,
                      "error signal takes a number of 1 to %d and batch, all or a task here\n",
                      SIGRTMAX);
        return;
    }
    if (t->record.ended || (!all && t->tasks[which].exited)) {
        control_reply(&t->control, k, "error the step has ended\n");
        return;
    }
    struct spare spare = life_spare(t);
    if (all)
        procs_signal(&t->spec, &spare, (int)sig, 0);
    else
        kill(t->tasks[which].pid, (int)sig);
    control_reply(&t->control, k, "ok\n");
}

/* "HOST:PORT SECRET PLACE TASK INPUT": one more client; -1 in TASK: all, 1 in INPUT: it may feed. */
static void attach(struct step *t, struct client *k, const char *order)
{
    char address[301], secret[65], message[512];
    unsigned place;
    long task;
    int feeds, end = 0;
    int n = sscanf(order, "%300s %64[0-9a-f] %5u %11ld %1d%n", address, secret, &place, &task,
                   &feeds, &end);
    const char *colon = n == 5 ? strrchr(address, ':') : NULL;
    if (n != 5 || order[end] || strlen(secret) != 64 || !colon || colon == address ||
        number(colon + 1) < 1 || number(colon + 1) > 65535) {
        control_reply(&t->control, k, "error attach takes HOST:PORT SECRET PLACE TASK INPUT\n");
        return;
    }
    n = snprintf(message, sizeof message, "A%s", order);
    if (t->link < 0 || n >= (int)sizeof message ||
        send(t->link, message, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) != n)
        control_reply(&t->control, k, "error nobody can follow the step now\n");
    else
        control_reply(&t->control, k, "ok\n");
}

void command(struct step *t, struct client *k, char *line)
{
    const struct record *r = &t->record;
    struct control *c = &t->control;
    if (!strncmp(line, "notify ", 7)) {
        notify(t, k, line + 7);
        return;
    }
    if (!strncmp(line, "attach ", 7)) {
        attach(t, k, line + 7);
        return;
    }
    char *rest = NULL, *word = strtok_r(line, " ", &rest), *one = strtok_r(NULL, " ", &rest),
         *two = strtok_r(NULL, " ", &rest);
    if (!word)
        word = "";
    if (!strcmp(word, "ping") && !one) {
        control_reply(c, k, "state %s pid %d\n", r->state, (int)r->pid);
    } else if (!strcmp(word, "watch") && !one) {
        control_history(c, k, r, t->spec.tasks, t->tasks, t->spec.ntasks);
        k->watch = true;
    } else if ((!strcmp(word, "kill") || !strcmp(word, "kill9")) && one && !two) {
        control_reply(c, k, "ok\n");
        life_kill(t, one, word[4] == '9');
    } else if (!strcmp(word, "signal") && one && two) {
        send_signal(t, k, one, two);
    } else if (!strcmp(word, "limit") && one && !two) {
        long seconds = number(one);
        if (seconds < 0)
            control_reply(c, k, "error limit takes seconds\n");
        else {
            if (!r->ended && t->phase == RUNNING)
                life_limit(t, seconds);
            control_reply(c, k, "ok\n");
        }
    } else {
        control_reply(c, k, "error unknown command\n");
    }
}
