/* What a follower may ask for: one command a line (stepd.c lists them). */
#include "stepd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

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
    if (t->record.ended || (!all && !t->tasks[which].pid)) {
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

void command(struct step *t, struct client *k, char *line)
{
    const struct record *r = &t->record;
    struct control *c = &t->control;
    if (!strncmp(line, "notify ", 7)) {
        notify(t, k, line + 7);
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
