/* What a worker is sent: the command line and what is known of this process. */
#include "client.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static bool field(struct buffer *b, char letter, const char *data, size_t size) {
    char *at = grown(b, FIELD_HEAD + size);
    if (!at)
        return false;
    at[0] = letter;
    put32(at + 1, size);
    memcpy(at + FIELD_HEAD, data, size);
    return true;
}

static bool text(struct buffer *b, char letter, const char *data) {
    return field(b, letter, data, strlen(data));
}

static bool limits(struct buffer *b) {
    static const struct {
        const char *name;
        int number;
    } all[] = {
        {"CPU", RLIMIT_CPU},         {"FSIZE", RLIMIT_FSIZE}, {"DATA", RLIMIT_DATA},
        {"STACK", RLIMIT_STACK},     {"CORE", RLIMIT_CORE},   {"RSS", RLIMIT_RSS},
        {"NPROC", RLIMIT_NPROC},     {"AS", RLIMIT_AS},       {"NOFILE", RLIMIT_NOFILE},
        {"MEMLOCK", RLIMIT_MEMLOCK},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct rlimit found;
        char line[64];
        if (getrlimit((__rlimit_resource_t)all[i].number, &found) != 0)
            continue;
        if (found.rlim_cur == RLIM_INFINITY)
            snprintf(line, sizeof line, "%s=-1", all[i].name);
        else
            snprintf(line, sizeof line, "%s=%llu", all[i].name, (unsigned long long)found.rlim_cur);
        if (!text(b, 'l', line))
            return false;
    }
    return true;
}

/* Which of standard input, output and error are terminals, and the rows and columns of the first. */
static bool terminals(struct buffer *b) {
    struct winsize size = {0};
    char line[64];
    int there[3];
    for (int i = 0; i < 3; i++)
        there[i] = isatty(i) ? 1 : 0;
    if (there[0])
        ioctl(0, TIOCGWINSZ, &size);
    snprintf(line, sizeof line, "%d %d %d %hu %hu", there[0], there[1], there[2], size.ws_row,
             size.ws_col);
    return text(b, 't', line);
}

/* sbatch's worker would ask for the script: it goes along, where an argument looks like one. A wrong
 * guess costs its bytes alone. False: no memory. */
static bool script(struct buffer *b) {
    for (char **arg = args + 1; *arg; arg++) {
        struct stat found;
        int file = **arg == '-' ? -1 : open(*arg, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (file < 0)
            continue;
        bool good = true, is = fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                               found.st_size >= 2 && found.st_size <= SCRIPT_ALONG;
        if (is) {
            size_t path = strlen(*arg) + 1, size = (size_t)found.st_size, start = b->used;
            char *at = grown(b, FIELD_HEAD + path + size);
            ssize_t n = at ? read(file, at + FIELD_HEAD + path, size) : -1;
            good = at != NULL;
            /* Another size than it had: it is just being written. */
            is = n == found.st_size && memcmp(at + FIELD_HEAD + path, "#!", 2) == 0;
            if (is) {
                at[0] = 'f';
                put32(at + 1, path + size);
                memcpy(at + FIELD_HEAD, *arg, path);
            } else {
                b->used = start;
            }
        }
        close(file);
        if (is || !good)
            return good;
    }
    return true;
}

bool request(struct buffer *b) {
    char cwd[4096], host[256] = "", number[32];
    mode_t mask = umask(077);
    umask(mask);
    if (!getcwd(cwd, sizeof cwd)) {
        const char *pwd = getenv("PWD");
        snprintf(cwd, sizeof cwd, "%s", pwd && *pwd ? pwd : "/");
    }
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    char *head = grown(b, FIELD_HEAD);
    if (!head)
        return false;
    head[4] = 'C';
    bool good = text(b, 'n', name) && text(b, 'i', request_id) && text(b, 'd', cwd);
    snprintf(number, sizeof number, "%o", (unsigned)mask);
    good = good && text(b, 'u', number);
    snprintf(number, sizeof number, "%ld", (long)getsid(0));
    good = good && text(b, 's', number) && text(b, 'h', host) && limits(b);
    if (good && listener >= 0) {
        char where[80];
        listener_field(where);
        good = text(b, 'c', where) && terminals(b);
    }
    for (char **arg = args + 1; good && *arg; arg++)
        good = text(b, 'a', *arg);
    if (good && strcmp(name, "sbatch") == 0)
        good = script(b);
    for (char **var = environ; good && *var; var++)
        good = text(b, 'e', *var);
    if (good)
        put32(b->data, b->used - 4);
    return good;
}
