/* Reads a plan: NUL-terminated key=value records. */
#include "mover.h"

#include <stdlib.h>
#include <string.h>

static bool listed(char ***list, size_t *count, char *value) {
    char **more = realloc(*list, (*count + 2) * sizeof **list);
    if (!more)
        return false;
    more[(*count)++] = value;
    more[*count] = NULL;
    *list = more;
    return true;
}

static bool number(const char *text, long least, long most, long *out) {
    char *end;
    *out = strtol(text, &end, 10);
    return *text && !*end && *out >= least && *out <= most;
}

bool plan_read(struct plan *p, const char *data, size_t size) {
    size_t argc = 0, envc = 0;
    bool mode = false, task = false;
    char *copy = malloc(size + 1);
    *p = (struct plan){.job = "", .in = "", .out = "-", .err = "-", .pending = "", .granted = "",
                       .revoked = "", .expired = "", .prolog = "", .epilog = "", .chdir = "",
                       .stdin_task = ALL_TASKS, .stdout_task = ALL_TASKS, .stderr_task = ALL_TASKS};
    p->argv = calloc(1, sizeof *p->argv);
    p->env = calloc(1, sizeof *p->env);
    if (!copy || !p->argv || !p->env)
        return false;
    memcpy(copy, data, size);
    copy[size] = 0;
    const struct {
        const char *key;
        const char **text;
    } texts[] = {
        {"job", &p->job},         {"stdin", &p->in},        {"stdout", &p->out},
        {"stderr", &p->err},      {"pending", &p->pending}, {"granted", &p->granted},
        {"revoked", &p->revoked}, {"prolog", &p->prolog},   {"epilog", &p->epilog},
        {"chdir", &p->chdir},     {"expired", &p->expired},
    };
    const struct {
        const char *key;
        uint32_t *task;
    } tasks[] = {
        {"stdin_task", &p->stdin_task},
        {"stdout_task", &p->stdout_task},
        {"stderr_task", &p->stderr_task},
    };
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {
        {"append", &p->append}, {"label", &p->label},      {"pty", &p->pty},
        {"quiet", &p->quiet},   {"noshell", &p->no_shell},
    };
    for (char *at = copy; at < copy + size; at += strlen(at) + 1) {
        char *value = strchr(at, '=');
        long found;
        if (!value)
            return false;

        size_t key = (size_t)(value++ - at);
#define IS(word) (key == sizeof(word) - 1 && memcmp(at, word, key) == 0)
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            if (strlen(texts[i].key) == key && memcmp(at, texts[i].key, key) == 0)
                *texts[i].text = value;
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (strlen(flags[i].key) == key && memcmp(at, flags[i].key, key) == 0)
                *flags[i].flag = strcmp(value, "1") == 0;
        if (IS("mode")) {
            static const char *const modes[] = {"step", "job", "salloc", "attach"};
            for (size_t i = 0; i < 4; i++)
                if (strcmp(value, modes[i]) == 0) {
                    p->mode = (enum mode)i;
                    mode = true;
                }
        } else if (IS("arg")) {
            if (!listed(&p->argv, &argc, value))
                return false;
        } else if (IS("env")) {
            if (!listed(&p->env, &envc, value))
                return false;
        } else if (IS("killsig")) {
            if (!number(value, 0, 64, &found))
                return false;
            p->kill = true;
            p->kill_signal = (int)found;
        } else if (IS("expires")) {
            if (!number(value, 0, INT32_MAX, &found))
                return false;
            p->expires_s = (int)found;
        } else if (IS("bell")) {
            p->bell = strcmp(value, "1") == 0 ? BELL_ALWAYS : BELL_LATE;
        }
        for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
            if (strlen(tasks[i].key) != key || memcmp(at, tasks[i].key, key) != 0)
                continue;
            if (!number(value, -1, INT32_MAX, &found))
                return false;
            *tasks[i].task = found < 0 ? ALL_TASKS : (uint32_t)found;
            task = task || i == 0;
        }
#undef IS
    }
    if (p->pty && !task)
        p->stdin_task = 0;
    return mode;
}
