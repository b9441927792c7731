/* Where the worker is: the socket of this host's frontend, from slurm.conf. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* As gsched.config.locate.find_slurm_conf; false: let Python look. */
static bool slurm_conf(char out[4096]) {
    const char *named = getenv("SLURM_CONF");
    if (named && *named)
        return (size_t)snprintf(out, 4096, "%s", named) < 4096;
    const char *base = getenv("XDG_DATA_HOME");
    if (base && base[0] == '/') {
        if (snprintf(out, 4096, "%s/gsched/etc/slurm.conf", base) >= 4096)
            return false;
    } else {
        const char *home = getenv("HOME");
        if (!home || home[0] != '/')
            return false;
        if (snprintf(out, 4096, "%s/.local/share/gsched/etc/slurm.conf", home) >= 4096)
            return false;
    }
    if (exists(out))
        return true;
    strcpy(out, "/var/lib/gsched/etc/slurm.conf");
    if (!exists(out))
        strcpy(out, "/etc/slurm/slurm.conf");
    return true;
}

/* The last value of a key (lower case) in the file: 1; 0 none; -1: only a full reading can tell. */
static int value_in(const char *conf, const char *key, char *out, size_t room) {
    int known = 0;
    size_t length = strlen(key);
    char line[8192];
    FILE *file = fopen(conf, "re");
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file)) {
        char *at = line + strspn(line, " \t");
        if (strncasecmp(at, "include", 7) == 0 && !known)
            known = -1;
        if (strncasecmp(at, key, length) != 0)
            continue;
        at += length;
        at += strspn(at, " \t");
        if (*at++ != '=')
            continue;
        at[strcspn(at, "#\r\n")] = 0;
        at += strspn(at, " \t\"");
        size_t size = strlen(at);
        while (size && strchr(" \t\"", at[size - 1]))
            at[--size] = 0;
        if (size >= room || strchr(at, '%')) {
            known = -1;
        } else if (size) {
            strcpy(out, at);
            known = 1;
        }
    }
    fclose(file);
    return known;
}

bool conf_value(const char *key, char *out, size_t size) {
    char conf[4096];
    return slurm_conf(conf) && value_in(conf, key, out, size) == 1;
}

/* The directory of SlurmctldPidFile; false where only a full reading of the file can tell. */
static bool run_directory(const char *conf, char out[4096]) {
    int known = value_in(conf, "slurmctldpidfile", out, 4096);
    if (known <= 0) {
        strcpy(out, "/var/run");
        return known == 0;
    }
    char *slash = strrchr(out, '/');
    if (!slash)
        return false;
    if (slash == out)
        slash++;
    *slash = 0;
    return true;
}

int connected(void) {
    char conf[4096], folder[4096];
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!slurm_conf(conf) || !run_directory(conf, folder))
        return -1;
    if ((size_t)snprintf(to.sun_path, sizeof to.sun_path, "%s/command.sock", folder) >=
        sizeof to.sun_path) {
        int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
            return -1;
        snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/command.sock", dir);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    /* Holds for connecting, too: the queue of a socket that nobody serves is full some time, and so
     * is the room for a request with a large environment. */
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000, .tv_usec = PATIENCE_MS % 1000 * 1000};
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}
