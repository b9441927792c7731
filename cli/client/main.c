/* Which command this is: asks a worker first, the Python command where that cannot be.
 *
 * It sends its arguments, directory and environment to a warm worker of this host's frontend, which
 * runs the same Python function that the command is, and writes what comes back. What a worker must
 * not do for a user (read a file, read standard input) it asks for; what it cannot do (wait, write
 * files) it hands back: then, as whenever anything goes wrong here, the Python command runs in this
 * process with the same request id, so that nothing is carried out twice. For srun, salloc, sattach
 * and sbcast the answer is a plan, which the mover carries out.
 */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PYTHON "gsched-command"
#define MOVER "gsched-mover"

char **args;
const char *name;
char request_id[2 * ID_BYTES + 1];
int taken = -1;

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
        /* The same request must be called back at the same place. */
        if (listener >= 0 && fcntl(listener, F_SETFD, 0) == 0) {
            char where[80], both[96];
            listener_field(where);
            snprintf(both, sizeof both, "%d %s", listener, where);
            setenv("GSCHED_LISTENER", both, 1);
        }
        execv(path, argv);
    }
    fprintf(stderr, "%s: fatal: cannot run %s: %s\n", name, path, strerror(errno));
    _exit(1);
}

/* Commands whose answer is a plan: nodes call them back. */
static bool moves(void) {
    static const char *const all[] = {"srun", "salloc", "sattach", "sbcast"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i]) == 0)
            return true;
    return false;
}

/* gsched-mover NAME LISTEN_FD PLAN_FD: what a Python process becomes to carry out its plan. The
 * file has the secret, then the plan. */
static int as_mover(int argc, char **argv) {
    struct buffer plan = {0};
    struct stat found;
    char *end[2] = {NULL, NULL};
    long fds[2] = {-1, -1};
    for (int i = 0; i < 2 && argc == 4; i++)
        fds[i] = strtol(argv[2 + i], &end[i], 10);
    if (argc != 4 || *end[0] || *end[1] || fstat((int)fds[0], &found) != 0 ||
        !S_ISSOCK(found.st_mode) || !read_all((int)fds[1], (char *)listen_secret, SECRET_BYTES)) {
        fprintf(stderr, "usage: " MOVER " NAME LISTEN_FD PLAN_FD (run by srun, salloc ...)\n");
        return 1;
    }
    name = argv[1];
    listener = (int)fds[0];
    fcntl(listener, F_SETFD, FD_CLOEXEC);
    for (;;) {
        char *at = grown(&plan, 65536);
        ssize_t n = at ? read((int)fds[1], at, 65536) : -1;
        plan.used -= 65536 - (n > 0 ? (size_t)n : 0);
        if (n < 0 && at && errno == EINTR)
            continue;
        if (n < 0) {
            fprintf(stderr, "%s: fatal: cannot read the plan: %s\n", name, strerror(errno));
            return 1;
        }
        if (n == 0)
            break;
    }
    close((int)fds[1]);
    return mover_run(plan.data, plan.used);
}

/* Nothing else may come to lie where the standard streams are looked for. */
static void fill_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDWR);
}

int main(int argc, char **argv) {
    args = argv;
    fill_streams();
    name = argv[0] ? strrchr(argv[0], '/') : NULL;
    name = name ? name + 1 : argv[0] ? argv[0] : "sbatch";
    if (strcmp(name, MOVER) == 0)
        return as_mover(argc, argv);
    unsigned char id[ID_BYTES];
    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        python();
    for (size_t i = 0; i < sizeof id; i++)
        sprintf(request_id + 2 * i, "%02x", id[i]);
    if (getenv("GSCHED_PYTHON_CLIENT"))
        python();
    signal(SIGPIPE, SIG_IGN);
    struct buffer out = {0}, plan = {0};
    int code = 1;
    enum outcome outcome = IN_PYTHON;
    int fd = moves() && !listener_open() ? -1 : connected();
    if (fd >= 0 && request(&out) && write_all(fd, out.data, out.used))
        outcome = converse(fd, &code, &plan);
    signal(SIGPIPE, SIG_DFL);
    if (outcome == IN_PYTHON)
        python();
    if (outcome == DONE)
        return code;
    close(fd);
    free(out.data);
    return mover_run(plan.data, plan.used);
}
