/* Output with the number of its task before each line.
 *
 * Lines are written whole. One that does not end within LINE bytes is cut, as Slurm does, so that
 * what is kept stays small.
 */
#include "mover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 1024

struct part {
    size_t used;
    char data[LINE];
};

static struct part **parts;
static uint32_t count;
static int width = 1;

bool labels_start(uint32_t ntasks) {
    if (parts && count == ntasks)
        return true;
    free(parts);
    parts = calloc(2 * (size_t)ntasks + 1, sizeof *parts);
    count = ntasks;
    width = snprintf(NULL, 0, "%u", ntasks ? ntasks - 1 : 0);
    return parts != NULL;
}

static struct part **place(int which, uint32_t task) {
    return &parts[2 * (size_t)task + (size_t)which];
}

static void line(int which, uint32_t task, const struct part *before, const char *data, size_t size) {
    char label[16];
    output_put(which, label, (size_t)snprintf(label, sizeof label, "%*u: ", width, task));
    if (before)
        output_put(which, before->data, before->used);
    output_put(which, data, size);
    output_put(which, "\n", 1);
}

bool label_put(int which, uint32_t task, const char *data, size_t size) {
    struct part **at = place(which, task);
    while (size) {
        size_t had = *at ? (*at)->used : 0;
        size_t most = LINE - had < size ? LINE - had : size;
        const char *end = memchr(data, '\n', most);
        size_t part = end ? (size_t)(end - data) : most;
        if (!end && had + part < LINE) {
            if (!*at && !(*at = malloc(sizeof **at)))
                return false;
            memcpy((*at)->data + had, data, part);
            (*at)->used = had + part;
            return true;
        }
        line(which, task, *at, data, part);
        free(*at);
        *at = NULL;
        data += part + (end ? 1 : 0);
        size -= part + (end ? 1 : 0);
    }
    return true;
}

void label_close(int which, uint32_t task) {
    struct part **at = place(which, task);
    if (!*at)
        return;
    line(which, task, NULL, (*at)->data, (*at)->used);
    free(*at);
    *at = NULL;
}

void labels_close(void) {
    for (uint32_t task = 0; parts && task < count; task++) {
        label_close(0, task);
        label_close(1, task);
    }
    free(parts);
    parts = NULL;
}
