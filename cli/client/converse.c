/* The conversation with a worker: what it says, and what it asks for. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static bool answer(int fd, char letter, const char *data, size_t size) {
    char head[FIELD_HEAD];
    put32(head, size + 1);
    head[4] = letter;
    /* Together, so that the worker is woken once. */
    struct iovec parts[] = {{head, sizeof head}, {(char *)data, size}};
    ssize_t n;
    do
        n = writev(fd, parts, 2);
    while (n < 0 && errno == EINTR);
    if (n < (ssize_t)sizeof head)
        return n >= 0 && write_all(fd, head + n, sizeof head - (size_t)n) &&
               write_all(fd, data, size);
    n -= sizeof head;
    return write_all(fd, data + n, size - (size_t)n);
}

/* An errno as text: "E" and its number. */
static bool refused(int fd, int number) {
    char line[16];
    int size = snprintf(line, sizeof line, "%d", number);
    return answer(fd, 'N', line, (size_t)size);
}

/* ---- what a worker asks for ------------------------------------------------------------- */

static bool send_file(int fd, int file) {
    struct buffer data = {0};
    int failed = 0;
    while (data.used <= FILE_MAX) {
        char *at = grown(&data, 65536);
        if (!at) {
            failed = ENOMEM;
            break;
        }
        ssize_t n = read(file, at, 65536);
        data.used -= 65536 - (n > 0 ? (size_t)n : 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            failed = errno;
        if (n <= 0)
            break;
    }
    bool good = failed ? refused(fd, failed) : answer(fd, 'D', data.data, data.used);
    free(data.data);
    return good;
}

static bool send_path(int fd, const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0)
        return refused(fd, errno);
    bool good = send_file(fd, file);
    close(file);
    return good;
}

static bool send_input(int fd) {
    if (taken < 0) {
        char data[65536];
        taken = memfd_create("stdin", MFD_CLOEXEC);
        size_t size = 0;
        while (taken >= 0 && size <= FILE_MAX) {
            ssize_t n = read(0, data, sizeof data);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                break;
            if (!write_all(taken, data, (size_t)n))
                return false;
            size += (size_t)n;
        }
    }
    if (taken < 0 || lseek(taken, 0, SEEK_SET) != 0)
        return refused(fd, errno);
    return send_file(fd, taken);
}

/* What lies at a path: "-" nothing, "f" a file, "d" a directory, "o" another thing. */
static bool send_kind(int fd, const char *path) {
    struct stat found;
    const char *kind = "-";
    if (stat(path, &found) == 0)
        kind = S_ISREG(found.st_mode) ? "f" : S_ISDIR(found.st_mode) ? "d" : "o";
    else if (lstat(path, &found) == 0)
        kind = "o";
    return answer(fd, 'D', kind, 1);
}

/* ---- what a worker says ----------------------------------------------------------------- */

/* a pipe that can be written takes so much without making the writer wait */
#define STRETCH 4096

/* Output that was not written yet: messages as they came. A reader that takes its time (a pager) must
 * not hold the worker, so all that comes is taken, and written when there is nothing to take. */
static struct buffer kept;
static size_t written; /* bytes of it */

/* The first stretch of it; the rest of its message stays, with a head of its own. */
static bool write_stretch(size_t most) {
    unsigned char *head = (unsigned char *)kept.data + written;
    size_t left = get32(head) - 1, part = left < most ? left : most;
    char letter = (char)head[4];
    if (!write_all(letter == 'O' ? 1 : 2, (char *)head + FIELD_HEAD, part))
        return false;
    written += part;
    if (part == left) {
        written += FIELD_HEAD;
    } else {
        put32(kept.data + written, left - part + 1);
        kept.data[written + 4] = letter;
    }
    if (written == kept.used)
        written = kept.used = 0;
    return true;
}

static bool write_kept(void) {
    while (kept.used)
        if (!write_stretch(SIZE_MAX))
            return false;
    return true;
}

/* Writes until the worker says more; false: whoever read the output has gone. */
static bool write_meanwhile(int fd) {
    while (kept.used) {
        struct pollfd both[] = {
            {.fd = fd, .events = POLLIN},
            {.fd = kept.data[written + 4] == 'O' ? 1 : 2, .events = POLLOUT},
        };
        if (poll(both, 2, -1) < 0 && errno != EINTR)
            return true;
        if (both[0].revents)
            return true;
        if (both[1].revents && !write_stretch(STRETCH))
            return false;
    }
    return true;
}

static bool keep(char letter, const char *data, size_t size) {
    char *at = size ? grown(&kept, FIELD_HEAD + size) : NULL;
    if (at) {
        put32(at, size + 1);
        at[4] = letter;
        memcpy(at + FIELD_HEAD, data, size);
    }
    return at || !size;
}

enum outcome converse(int fd, int *code, struct buffer *plan) {
    struct buffer in = {0};
    struct pollfd there = {.fd = fd, .events = POLLIN};
    bool shown = false;
    /* Workers that die again and again, or are all busy, do not keep a command waiting. */
    if (poll(&there, 1, PATIENCE_MS) != 1)
        return IN_PYTHON;
    for (;;) {
        unsigned char head[FIELD_HEAD];
        in.used = 0;
        if (!write_meanwhile(fd)) {
            *code = 1;
            return DONE;
        }
        if (!read_all(fd, (char *)head, sizeof head))
            break;
        size_t size = get32(head);
        if (size < 1 || size > MESSAGE_MAX)
            break;
        size--;
        char *data = grown(&in, size + 1);
        if (!data || !read_all(fd, data, size))
            break;
        data[size] = 0;
        bool good = true, output = head[4] == 'O' || head[4] == 'E';
        /* Whatever else it says comes after the output. */
        if ((output && !keep((char)head[4], data, size)) || (!output && !write_kept())) {
            *code = 1;
            return DONE;
        }
        switch (head[4]) {
        case 'O':
        case 'E':
            shown = true;
            break;
        case 'X':
            *code = size ? (unsigned char)data[0] : 1;
            return DONE;
        case 'M':
            *plan = in;
            plan->used = size;
            return BY_PLAN;
        case 'R':
            good = send_path(fd, data);
            break;
        case 'H':
            break;
        case 'S':
            good = send_kind(fd, data);
            break;
        case 'I':
            good = send_input(fd);
            break;
        default: /* 'P', and what a newer worker may say */
            return IN_PYTHON;
        }
        if (!good)
            break;
    }
    if (!shown)
        return IN_PYTHON;
    /* Half of an answer cannot be taken back. */
    write_kept();
    fprintf(stderr, "%s: error: the answer broke off\n", name);
    *code = 1;
    return DONE;
}
