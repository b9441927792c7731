#include "json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 32

struct reader {
    const char *at, *end, *begin;
    const char *problem;
};

static void skip(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip(r);
    if (r->at < r->end && *r->at == c) {
        r->at++;
        return true;
    }
    return false;
}

static void *wrong(struct reader *r, const char *problem)
{
    if (!r->problem)
        r->problem = problem;
    return NULL;
}

static int hex4(struct reader *r)
{
    int v = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        if (r->at >= r->end || !isxdigit((unsigned char)*r->at))
            return -1;
        char c = *r->at;
        v = v * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

static char *utf8(char *out, int code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    } else {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    }
    return out;
}

static char *string(struct reader *r)
{
    skip(r);
    if (r->at >= r->end || *r->at != '"')
        return wrong(r, "a string was expected");
    const char *p = ++r->at;
    while (p < r->end && *p != '"')
        p += *p == '\\' ? 2 : 1;
    if (p >= r->end)
        return wrong(r, "a string without end");
    char *text = malloc((size_t)(p - r->at) + 1),
         *out = text; /* an escape is never shorter than what it stands for */
    if (!text)
        return wrong(r, "out of memory");
    while (*r->at != '"') {
        if (*r->at != '\\') {
            *out++ = *r->at++;
            continue;
        }
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        char c = r->at[1];
        const char *known = c ? strchr(from, c) : NULL;
        r->at += 2;
        int code;
        if (known) {
            *out++ = to[known - from];
        } else if (c == 'u' && (code = hex4(r)) > 0) {
            out = utf8(out, code);
        } else {
            free(text);
            return wrong(r, "an unknown escape in a string");
        }
    }
    r->at++;
    *out = 0;
    return text;
}

static struct json *value(struct reader *r, int depth);

static bool members(struct reader *r, struct json *j, char close, int depth)
{
    struct json **tail = &j->first;
    if (take(r, close))
        return true;
    do {
        char *key = NULL;
        if (close == '}') {
            key = string(r);
            if (!key)
                return false;
            if (!take(r, ':')) {
                free(key);
                return wrong(r, "':' was expected"), false;
            }
        }
        struct json *m = value(r, depth);
        if (!m) {
            free(key);
            return false;
        }
        m->key = key;
        *tail = m;
        tail = &m->next;
    } while (take(r, ','));
    if (!take(r, close))
        return wrong(r, close == '}' ? "',' or '}' was expected" : "',' or ']' was expected"),
               false;
    return true;
}

static bool word(struct reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, w, n))
        return false;
    r->at += n;
    return true;
}

static bool number(struct reader *r, double *out)
{
    char digits[64];
    size_t n = 0;
    while (r->at + n < r->end && n < sizeof digits - 1 && strchr("+-.eE0123456789", r->at[n]) &&
           r->at[n])
        n++;
    memcpy(digits, r->at, n);
    digits[n] = 0;
    char *end = digits;
    *out = n && (isdigit((unsigned char)*digits) || *digits == '-') ? strtod(digits, &end) : 0;
    if (!n || end == digits || *end || !isfinite(*out))
        return false;
    r->at += n;
    return true;
}

static struct json *value(struct reader *r, int depth)
{
    skip(r);
    if (depth > DEPTH_MAX)
        return wrong(r, "nested too deeply");
    struct json *j = calloc(1, sizeof *j);
    if (!j)
        return wrong(r, "out of memory");
    bool good = true;
    if (r->at >= r->end) {
        good = false;
        wrong(r, "the text ends too early");
    } else if (take(r, '{')) {
        j->kind = JSON_OBJECT;
        good = members(r, j, '}', depth + 1);
    } else if (take(r, '[')) {
        j->kind = JSON_LIST;
        good = members(r, j, ']', depth + 1);
    } else if (*r->at == '"') {
        j->kind = JSON_STRING;
        good = (j->text = string(r)) != NULL;
    } else if (word(r, "true")) {
        j->kind = JSON_BOOL;
        j->number = 1;
    } else if (word(r, "false")) {
        j->kind = JSON_BOOL;
    } else if (word(r, "null")) {
        j->kind = JSON_NULL;
    } else {
        j->kind = JSON_NUMBER;
        good = isdigit((unsigned char)*r->at) || *r->at == '-' ? number(r, &j->number) : false;
        if (!good)
            wrong(r, "a value was expected");
    }
    if (good)
        return j;
    json_free(j);
    return NULL;
}

struct json *json_parse(const char *text, size_t len, char *why, size_t why_size)
{
    struct reader r = {.at = text, .begin = text, .end = text + len};
    struct json *j = value(&r, 0);
    skip(&r);
    if (j && r.at != r.end) {
        json_free(j);
        j = wrong(&r, "more text after the value");
    }
    if (!j) {
        int line = 1;
        for (const char *p = r.begin; p < r.at && p < r.end; p++)
            line += *p == '\n';
        snprintf(why, why_size, "line %d: %s", line, r.problem ? r.problem : "not JSON");
    }
    return j;
}

void json_free(struct json *j)
{
    while (j) { /* siblings in a loop, children by recursion of at most DEPTH_MAX */
        struct json *next = j->next;
        json_free(j->first);
        free(j->text);
        free(j->key);
        free(j);
        j = next;
    }
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *m = object->first; m; m = m->next)
        if (!strcmp(m->key, key))
            return m->kind == JSON_NULL ? NULL : m;
    return NULL;
}

double json_number(const struct json *object, const struct json *fallback, const char *key,
                   double otherwise)
{
    const struct json *m = json_get(object, key);
    if (!m || m->kind > JSON_NUMBER)
        m = json_get(fallback, key);
    return m && m->kind <= JSON_NUMBER ? m->number : otherwise;
}

const char *json_text(const struct json *object, const struct json *fallback, const char *key,
                      const char *otherwise)
{
    const struct json *m = json_get(object, key);
    if (!m || m->kind != JSON_STRING)
        m = json_get(fallback, key);
    return m && m->kind == JSON_STRING ? m->text : otherwise;
}
