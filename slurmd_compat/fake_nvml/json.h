/* A small reader of JSON text into a tree; what it does not understand is an error with a line
 * number. */
#ifndef GSCHED_JSON_H
#define GSCHED_JSON_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden) /* only NVML's own names leave the library */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_OBJECT };

struct json {
    enum json_kind kind;
    double number;             /* of a number; 0 or 1 of a bool */
    char *text;                /* of a string */
    char *key;                 /* inside an object */
    struct json *first, *next; /* members of a list or object in order; the next one beside */
};

/* The tree, or NULL with a sentence in why. Depth is limited to 32, the length of the text by the
 * caller. */
struct json *json_parse(const char *text, size_t len, char *why, size_t why_size);
void json_free(struct json *j);

const struct json *json_get(const struct json *object, const char *key); /* NULL: absent or null */
/* The value of a key in object, else in fallback, else the default; a value of another kind counts
 * as absent. */
double json_number(const struct json *object, const struct json *fallback, const char *key,
                   double otherwise);
const char *json_text(const struct json *object, const struct json *fallback, const char *key,
                      const char *otherwise);

#pragma GCC visibility pop

#endif
