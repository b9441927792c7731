/* The commands of PMI-1 and PMI-2: the same things under two names and in two spellings.
 *
 * PMI-1   cmd=put kvsname=7.0 key=K value=V\n            cmd=put_result rc=0 msg=success\n
 * PMI-2   "    27cmd=kvs-put;key=K;value=V;"             cmd=kvs-put-response;rc=0;
 *
 * A value is the rest of its line in PMI-1; in PMI-2 a semicolon in it is written twice.
 */
#include "pmi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTES_MAX = 64 };
struct request {
    struct {
        const char *name, *value;
    } at[ATTRIBUTES_MAX];
    size_t n;
    const char *thread; /* of PMI-2; "": none */
};

static const char *get(const struct request *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->at[i].name, name))
            return r->at[i].value;
    return NULL;
}

static void note(struct request *r, const char *name, const char *value)
{
    if (r->n < ATTRIBUTES_MAX) { /* more than any command that is carried out has */
        r->at[r->n].name = name;
        r->at[r->n++].value = value;
    }
}

static void parse1(struct request *r, char *p)
{
    while (*(p += strspn(p, " "))) {
        char *eq = strchr(p, '='), *end = p + strcspn(p, " ");
        if (!eq || eq > end) {
            p = end;
            continue;
        }
        *eq = 0;
        if (!strcmp(p, "value") || !strcmp(p, "message") || !strcmp(p, "msg"))
            end = eq + 1 + strlen(eq + 1);
        note(r, p, eq + 1);
        p = *end ? end + 1 : end;
        *end = 0;
    }
}

static void parse2(struct request *r, char *p)
{
    while (*p) {
        char *eq = strchr(p, '=');
        if (!eq)
            return;
        *eq = 0;
        char *to = eq + 1, *from = to, *value = to;
        for (; *from && !(from[0] == ';' && from[1] != ';'); from++) {
            if (*from == ';')
                from++;
            *to++ = *from;
        }
        char *next = *from ? from + 1 : from;
        *to = 0;
        note(r, p, value);
        p = next;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

struct answer {
    struct pmi_task *task;
    size_t begin;
    bool whole;
};

static void put(struct answer *a, const char *text, size_t n)
{
    a->whole = a->whole && bytes_add(&a->task->out, text, n) == 0;
}

static void add(struct answer *a, const char *name, const char *value)
{
    bool second = a->task->version == 2;
    put(a, name, strlen(name));
    put(a, "=", 1);
    for (const char *p = value; *p; p++) {
        put(a, p, 1);
        if (second && *p == ';')
            put(a, p, 1);
    }
    put(a, second ? ";" : " ", 1);
}

static void add_number(struct answer *a, const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    add(a, name, text);
}

static struct answer begin(struct pmi_task *t, const char *name, const char *thread, int rc)
{
    struct answer a = {t, t->out.used, true};
    if (t->version == 2)
        put(&a, "      ", 6); /* the length is put here */
    add(&a, "cmd", name);
    if (t->version == 2 && *thread)
        add(&a, "thrid", thread);
    add_number(&a, "rc", rc);
    return a;
}

static void end(struct answer *a)
{
    struct bytes *out = &a->task->out;
    char head[16];
    if (!a->whole) {
        out->used = a->begin; /* no memory: no answer */
    } else if (a->task->version == 2) {
        snprintf(head, sizeof head, "%6zu", out->used - a->begin - 6);
        memcpy(out->at + a->begin, head, 6);
    } else {
        out->at[out->used - 1] = '\n'; /* in the place of the last blank */
    }
}

static void simple(struct pmi_task *t, const char *name, const struct request *r, int rc,
                   const char *why)
{
    struct answer a = begin(t, name, r->thread, rc);
    if (t->version == 2) {
        if (rc)
            add(&a, "errmsg", why);
    } else {
        add(&a, "msg", rc ? why : "success");
    }
    end(&a);
}

/* ---- commands -------------------------------------------------------------------------------- */

typedef void handler(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name);

static void fullinit(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    struct answer a = begin(t, name, r->thread, 0);
    add(&a, "pmi-version", "2");
    add(&a, "pmi-subversion", "0");
    add_number(&a, "rank", t->rank);
    add_number(&a, "size", p->all_tasks);
    add(&a, "appnum", "0");
    add(&a, "debugged", "FALSE");
    add(&a, "pmiverbose", "FALSE");
    end(&a);
}

static void maxes(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    (void)p;
    struct answer a = begin(t, name, r->thread, 0);
    add_number(&a, "kvsname_max", 256);
    add_number(&a, "keylen_max", PMI_KEY_MAX);
    add_number(&a, "vallen_max", PMI_VALUE_MAX);
    end(&a);
}

static void universe(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    struct answer a = begin(t, name, r->thread, 0);
    add_number(&a, "size", p->all_tasks);
    end(&a);
}

static void appnum(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    (void)p;
    struct answer a = begin(t, name, r->thread, 0);
    add(&a, "appnum", "0");
    end(&a);
}

static void kvsname(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    struct answer a = begin(t, name, r->thread, 0);
    add(&a, t->version == 2 ? "jobid" : "kvsname", p->jobid);
    end(&a);
}

/* A key and a value that may be kept; else says why not. */
static bool pair(struct pmi_task *t, const struct request *r, const char *name, const char **key,
                 const char **value)
{
    *key = get(r, "key");
    *value = get(r, "value");
    if (*key && **key && *value && strlen(*key) < PMI_KEY_MAX && strlen(*value) < PMI_VALUE_MAX)
        return true;
    simple(t, name, r, -1, "invalid_key_or_value");
    return false;
}

static void kvsput(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    const char *key, *value;
    if (!pair(t, r, name, &key, &value))
        return;
    int rc = kvs_put(&p->keys, key, value);
    if (rc == 0 && p->nodes > 1)
        rc = p->fresh.used > p->keys.most || bytes_add(&p->fresh, key, strlen(key) + 1) ||
                     bytes_add(&p->fresh, value, strlen(value) + 1)
                 ? -1
                 : 0;
    simple(t, name, r, rc, "no_room_for_more_keys");
}

static void kvsget(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    const char *key = get(r, "key"), *value = key ? kvs_get(&p->keys, key) : NULL;
    struct answer a = begin(t, name, r->thread, t->version == 2 || value ? 0 : -1);
    if (t->version == 2)
        add(&a, "found", value ? "TRUE" : "FALSE");
    else
        add(&a, "msg", value ? "success" : "key_not_found");
    if (value || t->version != 2)
        add(&a, "value", value ? value : "unknown");
    end(&a);
}

static void jobattr(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    char size[32];
    const char *key = get(r, "key"), *value = NULL;
    snprintf(size, sizeof size, "%ld", p->all_tasks);
    if (key && !strcmp(key, "universeSize"))
        value = size;
    else if (key && !strcmp(key, "PMI_process_mapping"))
        value = kvs_get(&p->keys, key);
    struct answer a = begin(t, name, r->thread, 0);
    add(&a, "found", value ? "TRUE" : "FALSE");
    if (value)
        add(&a, "value", value);
    end(&a);
}

static void attribute(struct pmi_task *t, const char *thread, const char *value)
{
    struct answer a = begin(t, "info-getnodeattr-response", thread, 0);
    add(&a, "found", value ? "TRUE" : "FALSE");
    if (value)
        add(&a, "value", value);
    end(&a);
}

static void putnodeattr(struct pmi *p, struct pmi_task *t, const struct request *r,
                        const char *name)
{
    const char *key, *value;
    if (!pair(t, r, name, &key, &value))
        return;
    simple(t, name, r, kvs_put(&p->attributes, key, value), "no_room_for_more_keys");
    for (size_t i = 0; i < p->n; i++) {
        struct pmi_task *other = &p->tasks[i];
        if (other->fd >= 0 && *other->wants && !strcmp(other->wants, key)) {
            *other->wants = 0;
            attribute(other, other->wants_thread, value);
            pmi_push(p, other);
        }
    }
}

static void getnodeattr(struct pmi *p, struct pmi_task *t, const struct request *r,
                        const char *name)
{
    const char *key = get(r, "key"), *wait = get(r, "wait");
    const char *value = key ? kvs_get(&p->attributes, key) : NULL;
    (void)name;
    if (!value && key && strlen(key) < PMI_KEY_MAX && wait && !strcmp(wait, "TRUE")) {
        strcpy(t->wants, key);
        snprintf(t->wants_thread, sizeof t->wants_thread, "%s", r->thread);
    } else {
        attribute(t, r->thread, value);
    }
}

void pmi_release(struct pmi *p, struct pmi_task *t)
{
    (void)p;
    const char *name = t->version == 2 ? "kvs-fence-response" : "barrier_out";
    struct answer a = begin(t, name, t->fence_thread, 0);
    end(&a);
}

static void fence(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    if (t->fenced) {
        simple(t, name, r, -1, "already_in_a_fence");
        return;
    }
    snprintf(t->fence_thread, sizeof t->fence_thread, "%s", r->thread);
    pmi_fence(p, t);
}

static void finalize(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    (void)p;
    struct answer a = begin(t, name, r->thread, 0);
    end(&a);
}

static void abort_step(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    const char *code = get(r, "exitcode"), *text = get(r, "message");
    (void)name;
    if (!text)
        text = get(r, "msg");
    pmi_abort(p, t, code ? strtol(code, NULL, 10) : 1, text ? text : "");
}

static void refused(struct pmi *p, struct pmi_task *t, const struct request *r, const char *name)
{
    (void)p;
    simple(t, name, r, -1, "not_supported");
}

static const struct {
    const char *first, *first_answer, *second, *second_answer;
    handler *run;
} commands[] = {
    {NULL, NULL, "fullinit", "fullinit-response", fullinit},
    {"get_maxes", "maxes", NULL, NULL, maxes},
    {"get_universe_size", "universe_size", NULL, NULL, universe},
    {"get_appnum", "appnum", NULL, NULL, appnum},
    {"get_my_kvsname", "my_kvsname", "job-getid", "job-getid-response", kvsname},
    {"put", "put_result", "kvs-put", "kvs-put-response", kvsput},
    {"get", "get_result", "kvs-get", "kvs-get-response", kvsget},
    {"barrier_in", "barrier_out", "kvs-fence", "kvs-fence-response", fence},
    {NULL, NULL, "info-getjobattr", "info-getjobattr-response", jobattr},
    {NULL, NULL, "info-putnodeattr", "info-putnodeattr-response", putnodeattr},
    {NULL, NULL, "info-getnodeattr", "info-getnodeattr-response", getnodeattr},
    {"finalize", "finalize_ack", "finalize", "finalize-response", finalize},
    {"abort", "", "abort", "", abort_step},
    {"publish_name", "publish_result", "name-publish", "name-publish-response", refused},
    {"unpublish_name", "unpublish_result", "name-unpublish", "name-unpublish-response", refused},
    {"lookup_name", "lookup_result", "name-lookup", "name-lookup-response", refused},
    {NULL, NULL, "spawn", "spawn-response", refused},
    {NULL, NULL, "job-connect", "job-connect-response", refused},
    {NULL, NULL, "job-disconnect", "job-disconnect-response", refused},
};

static int init(struct pmi_task *t, const struct request *r)
{
    const char *version = get(r, "pmi_version");
    bool second = version && !strcmp(version, "2");
    t->version = 1; /* this answer is spelled as PMI-1 in either case */
    struct answer a = begin(t, "response_to_init", "", 0);
    add(&a, "pmi_version", second ? "2" : "1");
    add(&a, "pmi_subversion", second ? "0" : "1");
    end(&a);
    t->version = second ? 2 : 1;
    return 0;
}

/* A spawn of PMI-1 has several lines, "mcmd=spawn" to "endcmd", once for each program; the last
 * is answered. */
static bool spawn_lines(struct pmi_task *t, const char *line, const struct request *r)
{
    const char *all = get(r, "totspawns"), *so_far = get(r, "spawnssofar");
    if (!strncmp(line, "mcmd=", 5))
        t->spawning = true;
    if (!t->spawning)
        return false;
    if (all)
        t->spawns = strtol(all, NULL, 10);
    if (so_far)
        t->spawned = strtol(so_far, NULL, 10);
    if (!strcmp(line, "endcmd")) {
        t->spawning = false;
        if (t->spawned >= t->spawns)
            simple(t, "spawn_result", r, -1, "not_supported");
    }
    return true;
}

int pmi_command(struct pmi *p, struct pmi_task *t, char *line, size_t n)
{
    struct request r = {.thread = ""};
    char word[8];
    if (memchr(line, 0, n))
        return -1;
    snprintf(word, sizeof word, "%s", line); /* "mcmd=...", "endcmd": before it is taken apart */
    if (t->version == 2)
        parse2(&r, line);
    else
        parse1(&r, line);
    if (t->version != 2 && spawn_lines(t, word, &r))
        return 0;
    const char *cmd = get(&r, "cmd");
    if (!cmd)
        return -1;
    if (t->version != 2 && !strcmp(cmd, "init"))
        return init(t, &r);
    if (t->version == 2 && get(&r, "thrid"))
        r.thread = get(&r, "thrid");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *mine = t->version == 2 ? commands[i].second : commands[i].first;
        if (mine && !strcmp(mine, cmd)) {
            commands[i].run(p, t, &r,
                            t->version == 2 ? commands[i].second_answer : commands[i].first_answer);
            return 0;
        }
    }
    char name[96];
    snprintf(name, sizeof name, t->version == 2 ? "%.60s-response" : "%.60s_result", cmd);
    refused(p, t, &r, name);
    return 0;
}
