/* The thin client: sbatch, squeue, scancel ... as one small program, told apart by its name.
 *
 * It sends its arguments, directory and environment to a warm worker of this host's frontend, which
 * runs the same Python function that the command is, and writes what comes back. What a worker must
 * not do for a user (read a file, read standard input) it asks for; what it cannot do (wait, write
 * files) it hands back: then, as whenever anything goes wrong here, the Python command runs in this
 * process with the same request id, so that nothing is carried out twice.
 *
 * A message is four bytes of length, big-endian, a letter, and so many bytes less one.
 * A field of a request is a letter, four bytes of length, and the bytes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#define ID_BYTES 16
#define FIELD_HEAD 5
#define MESSAGE_MAX (2u << 30)
/* the largest file that a worker is sent; more than any script may have */
#define FILE_MAX (12u << 20)
#define PYTHON "gsched-command"
/* how long a worker may take to say that it is there */
#define PATIENCE_MS 2000

extern char **environ;

static char **args;
static const char *name;
static char request_id[2 * ID_BYTES + 1];
/* standard input, once a worker has asked for it: the Python command must find it again */
static int taken = -1;

struct buffer {
    char *data;
    size_t used, room;
};

static void *grown(struct buffer *b, size_t more) {
    if (b->used + more > b->room) {
        size_t room = b->room ? b->room : 4096;
        while (room < b->used + more)
            room *= 2;
        char *data = realloc(b->data, room);
        if (!data)
            return NULL;
        b->data = data;
        b->room = room;
    }
    void *at = b->data + b->used;
    b->used += more;
    return at;
}

static void put32(char *at, size_t value) {
    at[0] = (char)(value >> 24);
    at[1] = (char)(value >> 16);
    at[2] = (char)(value >> 8);
    at[3] = (char)value;
}

static size_t get32(const unsigned char *at) {
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

/* The Python command in this process; only comes back as a message and an exit code. */
static _Noreturn void python(void) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash = NULL;
    if (n > 0) {
        path[n] = 0;
        slash = strrchr(path, '/');
    }
    size_t count = 0;
    while (args[count])
        count++;
    char **argv = calloc(count + 2, sizeof *argv);
    if (slash && argv && (size_t)(slash + 1 - path) + sizeof PYTHON < sizeof path) {
        strcpy(slash + 1, PYTHON);
        argv[0] = path;
        argv[1] = (char *)name;
        for (size_t i = 1; i < count; i++)
            argv[i + 1] = args[i];
        if (taken >= 0 && lseek(taken, 0, SEEK_SET) == 0)
            dup2(taken, 0);
        setenv("GSCHED_REQUEST_ID", request_id, 1);
        execv(path, argv);
    }
    fprintf(stderr, "%s: fatal: cannot run %s: %s\n", name, path, strerror(errno));
    _exit(1);
}

/* ---- where the worker is ---------------------------------------------------------------- */

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

/* The directory of SlurmctldPidFile; false where only a full reading of the file can tell. */
static bool run_directory(const char *conf, char out[4096]) {
    static const char key[] = "slurmctldpidfile";
    bool includes = false, found = false;
    char line[8192];
    FILE *file = fopen(conf, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        char *at = line + strspn(line, " \t");
        if (strncasecmp(at, "include", 7) == 0)
            includes = true;
        if (strncasecmp(at, key, sizeof key - 1) != 0)
            continue;
        at += sizeof key - 1;
        at += strspn(at, " \t");
        if (*at++ != '=')
            continue;
        at[strcspn(at, "#\r\n")] = 0;
        at += strspn(at, " \t\"");
        size_t size = strlen(at);
        while (size && strchr(" \t\"", at[size - 1]))
            at[--size] = 0;
        if (size >= 4096 || strchr(at, '%'))
            includes = true;
        else {
            strcpy(out, at);
            found = *at != 0;
        }
    }
    fclose(file);
    if (!found) {
        strcpy(out, "/var/run");
        return !includes;
    }
    char *slash = strrchr(out, '/');
    if (!slash)
        return false;
    if (slash == out)
        slash++;
    *slash = 0;
    return true;
}

static int connected(void) {
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
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return -1;
    return fd;
}

/* ---- what is sent ----------------------------------------------------------------------- */

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

static bool request(struct buffer *b) {
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
    for (char **arg = args + 1; good && *arg; arg++)
        good = text(b, 'a', *arg);
    for (char **var = environ; good && *var; var++)
        good = text(b, 'e', *var);
    if (good)
        put32(b->data, b->used - 4);
    return good;
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, char *data, size_t size) {
    while (size) {
        ssize_t n = read(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool answer(int fd, char letter, const char *data, size_t size) {
    char head[FIELD_HEAD];
    put32(head, size + 1);
    head[4] = letter;
    return write_all(fd, head, sizeof head) && write_all(fd, data, size);
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

/* ---- the conversation ------------------------------------------------------------------- */

/* Serves the worker until it tells the exit code; true: to be done in Python. */
static bool converse(int fd, int *code) {
    struct buffer in = {0};
    struct pollfd there = {.fd = fd, .events = POLLIN};
    bool shown = false;
    /* Workers that die again and again, or are all busy, do not keep a command waiting. */
    if (poll(&there, 1, PATIENCE_MS) != 1)
        return true;
    for (;;) {
        unsigned char head[FIELD_HEAD];
        in.used = 0;
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
        bool good = true;
        switch (head[4]) {
        case 'O':
        case 'E':
            shown = true;
            if (!write_all(head[4] == 'O' ? 1 : 2, data, size)) {
                /* Whoever read the output has gone. */
                *code = 1;
                return false;
            }
            break;
        case 'X':
            *code = size ? (unsigned char)data[0] : 1;
            return false;
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
            return true;
        }
        if (!good)
            break;
    }
    if (!shown)
        return true;
    /* Half of an answer cannot be taken back. */
    fprintf(stderr, "%s: error: the answer broke off\n", name);
    *code = 1;
    return false;
}

int main(int argc, char **argv) {
    (void)argc;
    args = argv;
    name = argv[0] ? strrchr(argv[0], '/') : NULL;
    name = name ? name + 1 : argv[0] ? argv[0] : "sbatch";
    unsigned char id[ID_BYTES];
    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        python();
    for (size_t i = 0; i < sizeof id; i++)
        sprintf(request_id + 2 * i, "%02x", id[i]);
    signal(SIGPIPE, SIG_IGN);
    if (getenv("GSCHED_PYTHON_CLIENT"))
        python();
    struct buffer out = {0};
    int code = 1;
    int fd = connected();
    if (fd < 0 || !request(&out) || !write_all(fd, out.data, out.used) || converse(fd, &code)) {
        signal(SIGPIPE, SIG_DFL);
        python();
    }
    return code;
}
