/* Feeds the parts of the supervisor that read what others write: PMI from tasks, frames from
 * clients. Built with sanitizers by tests/e2e/test_stepd_fuzz.py.
 *
 *     stepd_fuzz pmi|wire SEED ROUNDS
 *
 * Input is made of words of the protocol, valid commands with bytes changed, and noise, cut at any
 * place. Ends with 0 when nothing was found. */
#include "pmi.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t state;

static uint32_t any(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static const char *const words[] = {
    "cmd=init pmi_version=1 pmi_subversion=1\n",
    "cmd=init pmi_version=2 pmi_subversion=0\n",
    "cmd=get_maxes\n",
    "cmd=put kvsname=7.0 key=a value=b c=d\n",
    "cmd=get kvsname=7.0 key=a\n",
    "cmd=barrier_in\n",
    "cmd=finalize\n",
    "cmd=abort exitcode=-3 message=no = more\n",
    "mcmd=spawn\nnprocs=1\ntotspawns=2\nspawnssofar=1\nendcmd\n",
    "    13cmd=kvs-fence;",
    "26    cmd=kvs-put;key=k;value=v;",
    "    30cmd=kvs-get;key=k;thrid=1;a=;;;",
    "    48cmd=info-getnodeattr;key=x;wait=TRUE;thrid=123456;",
    "    41cmd=info-putnodeattr;key=x;value=y;;z;thr",
    "    10cmd=abort;",
    "     9cmd=spawn",
    "=;;=;=", "cmd=", ";", "\n", " ", "999999", "-00001", "     0", "key=", "value=",
};

static size_t make_text(char *out, size_t most)
{
    size_t n = 0;
    while (n + 100 < most && any(12)) {
        switch (any(10)) {
        case 0: /* noise */
            for (uint32_t k = any(90); k; k--)
                out[n++] = (char)any(256);
            break;
        case 1: { /* a long one */
            char c = "ak=; \n"[any(6)];
            size_t length = any((uint32_t)(most - n < 90000 ? most - n : 90000));
            memset(out + n, c, length);
            n += length;
            break;
        }
        default: {
            const char *word = words[any(sizeof words / sizeof *words)];
            size_t length = strlen(word);
            memcpy(out + n, word, length);
            if (!any(5))
                out[n + any((uint32_t)length)] = (char)any(256);
            n += length;
        }
        }
    }
    return n;
}

static void drain(int fd)
{
    char rest[8192];
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
}

static struct wire nobody = {.fd = -1};

static void pmi_round(void)
{
    static char text[200000];
    struct task_spec tasks[3] = {{.id = 4}, {.id = 5}, {.id = 9}};
    struct spec s = {.tasks = tasks, .ntasks = 3, .all_tasks = 10, .nodes = 1 + any(2)};
    struct channel channels[3];
    int ends[3];
    s.pmi_jobid = "7.0";
    s.pmi_mapping = any(2) ? "(vector,(0,1,3))" : "";
    for (int i = 0; i < 3; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            exit(2);
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        channels[i] = (struct channel){-1, -1, -1, pair[0]};
        ends[i] = pair[1];
    }
    struct pmi *p = pmi_open(&s, channels);
    if (!p)
        exit(2);
    for (int turn = 0; turn < 12; turn++) {
        int i = (int)any(3);
        size_t n = make_text(text, sizeof text), at = 0;
        if (ends[i] >= 0 && turn < 3)
            n = (size_t)snprintf(text, sizeof text, "%s", words[any(2)]);
        while (ends[i] >= 0 && at < n) {
            size_t part = 1 + any((uint32_t)(n - at));
            ssize_t sent = send(ends[i], text + at, part, MSG_DONTWAIT | MSG_NOSIGNAL);
            pmi_turn(p, &nobody);
            if (any(3))
                drain(ends[i]);
            if (sent <= 0) {
                pmi_turn(p, &nobody);
                break;
            }
            at += (size_t)sent;
        }
        if (!any(6))
            pmi_exchanged(p, any(3), (unsigned char *)text, n);
        if (p->exchanging && any(2)) {
            unsigned char part[64] = {0};
            put32(part, 8);
            memcpy(part + 4, "k\0v\0k2\0v", 8);
            pmi_exchanged(p, p->round, part, any(sizeof part));
        }
        if (!any(15) && ends[i] >= 0) {
            close(ends[i]);
            ends[i] = -1;
        }
        pmi_turn(p, &nobody);
    }
    for (int i = 0; i < 3; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
        pmi_turn(p, &nobody);
        if (p->tasks[i].fd >= 0)
            close(p->tasks[i].fd);
        free(p->tasks[i].in.at);
        free(p->tasks[i].out.at);
    }
    close(p->epoll);
    kvs_free(&p->keys);
    kvs_free(&p->attributes);
    free(p->fresh.at);
    free(p->tasks);
    free(p->jobid);
    free(p);
}

static struct feeds feeds;
static bool nonsense;
static size_t heard;

static void on_input(struct wire *w, uint32_t task, const unsigned char *data, size_t n)
{
    nonsense |= feeds_take(&feeds, w, task, data, n) < 0;
}

static void on_window(struct wire *w, unsigned rows, unsigned columns)
{
    (void)w;
    heard += rows + columns;
}

static void on_exchange(struct wire *w, uint32_t round, const unsigned char *data, size_t n)
{
    (void)w;
    for (size_t i = 0; i < n; i++) /* all of it must be there */
        heard += data[i] + round;
}

static void wire_round(void)
{
    static const struct wire_calls calls = {on_input, on_window, on_exchange};
    static unsigned char text[300000];
    struct wire w = {.fd = -1};
    int pair[2], pipes[3][2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || feeds_open(&feeds, 3))
        exit(2);
    w.fd = pair[0];
    w.in = malloc(IN_BYTES);
    w.out = malloc(OUT_BYTES);
    w.most = 1u << 26;
    nonsense = false;
    for (int i = 0; i < 3; i++) {
        if (pipe2(pipes[i], O_NONBLOCK))
            exit(2);
        feeds.at[i] = (struct feed){.task = (uint32_t)i, .fd = pipes[i][1]};
    }
    feeds.n = 3;
    for (int turn = 0; turn < 20 && w.fd >= 0 && !nonsense; turn++) {
        size_t n = 0;
        while (n + 80000 < sizeof text && any(5)) {
            size_t length = any(3) ? any(40) : any(70000);
            unsigned char *head = text + n;
            put32(head, any(8) ? (uint32_t)length + 5 : any(2) ? any(300000000) : any(9));
            head[4] = (unsigned char)"IIIIKWX\0"[any(8)];
            put32(head + 5, any(5) ? any(4) : any(2) ? ALL_TASKS : any(1u << 31));
            for (size_t i = 0; i < length; i++)
                head[9 + i] = (unsigned char)(i * 7);
            n += 9 + length;
        }
        for (size_t at = 0; at < n && w.fd >= 0;) {
            ssize_t sent = send(pair[1], text + at, 1 + any((uint32_t)(n - at)),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent > 0)
                at += (size_t)sent;
            wire_turn(&w, POLLIN, &calls);
            if (nonsense)
                break;
            int who = (int)any(3);
            char rest[9000];
            if (any(4) && pipes[who][0] >= 0 && read(pipes[who][0], rest, sizeof rest) < 0)
                heard++;
            if (!any(200) && pipes[who][0] >= 0) {
                close(pipes[who][0]);
                pipes[who][0] = -1;
            }
            feeds_turn(&feeds);
            feeds_credit(&feeds);
            if (any(2))
                wire_short(&w, 'O', 1, rest, any(sizeof rest));
            if (!any(9))
                wire_large(&w, 'K', 1, text, any(sizeof text));
            wire_flush(&w);
            if (any(3))
                drain(pair[1]);
        }
    }
    feeds_close(&feeds);
    wire_close(&w);
    close(pair[1]);
    close(feeds.epoll);
    for (int i = 0; i < 3; i++)
        if (pipes[i][0] >= 0)
            close(pipes[i][0]);
    free(feeds.ring);
    free(feeds.at);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    state = strtoull(argv[2], NULL, 10);
    for (long i = atol(argv[3]); i > 0; i--) {
        if (!strcmp(argv[1], "pmi"))
            pmi_round();
        else
            wire_round();
    }
    printf("%zu\n", heard);
    return 0;
}
