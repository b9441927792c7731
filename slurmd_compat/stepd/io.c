/* The mover: one process of the user's ids for a step, between the tasks' pipes and the client.
 *
 * An output is read only while there is room for it, so a client that is slow makes the tasks wait
 * and nothing grows. When the client is gone the pipes are closed: whoever writes gets SIGPIPE, as
 * with Slurm. The supervisor says little (lines for the error output, who else wants to follow, and,
 * by closing the link, that all tasks have ended) and is told nothing but the exit status.
 *
 * Followers (sattach) get what comes from now on. One that does not read makes the tasks wait, as
 * the client does; one that is gone changes nothing.
 */
#include "mover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#define READ_BYTES (64u << 10)
#define READ_LEAST (8u << 10) /* smaller pieces are not worth a turn */
#define GATE_MS 1000          /* a terminal's task waits for the size of the window */
#define NOTE_MAX 2048

struct outlet { /* an output of a task */
    uint32_t task;
    char letter;
    int fd; /* -1: at its end */
    bool ended, told;
    bool last; /* its end is told when no line of the supervisor can follow */
};

enum { FOLLOWERS_MAX = 8 };
struct follower {
    struct wire wire;
    bool used, feeds; /* there is one; it may send input */
    long task;        /* whose output it gets; -1 all */
};

static struct mover {
    struct wire wire;
    struct follower followers[FOLLOWERS_MAX];
    struct feeds feeds;
    struct pmi *pmi;
    struct pmix *pmix;
    struct outlet *outlets;
    size_t noutlets, open;
    int outputs; /* epoll of the outlets */
    int terminal, gate, link;
    int64_t gate_until;
    uint32_t first; /* task that lines of the supervisor are put down to */
    bool nonsense;
} m;

static void open_gate(void)
{
    if (m.gate >= 0)
        close(m.gate);
    m.gate = -1;
}

static struct follower *follower_of(const struct wire *w)
{
    for (size_t i = 0; i < FOLLOWERS_MAX; i++)
        if (w == &m.followers[i].wire)
            return &m.followers[i];
    return NULL;
}

static void on_input(struct wire *w, uint32_t task, const unsigned char *data, size_t n)
{
    struct follower *f = follower_of(w);
    if (f && (!f->feeds || !n))
        return; /* it may come and go: its end of file is not that of the input */
    if (feeds_take(&m.feeds, w, task, data, n) < 0) {
        if (f)
            f->feeds = false;
        else
            m.nonsense = true;
    }
}

static void on_window(struct wire *w, unsigned rows, unsigned columns)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    if (w != &m.wire)
        return;
    if (m.terminal >= 0)
        ioctl(m.terminal, TIOCSWINSZ, &size);
    open_gate();
}

static void on_exchange(struct wire *w, uint32_t round, const unsigned char *data, size_t n)
{
    if (m.pmi && w == &m.wire)
        pmi_exchanged(m.pmi, round, data, n);
    if (m.pmix && w == &m.wire)
        pmix_exchanged(m.pmix, round, data, n);
}

static const struct wire_calls calls = {on_input, on_window, on_exchange};

static void add_outlet(uint32_t task, char letter, int fd)
{
    struct outlet *o = &m.outlets[m.noutlets++];
    *o = (struct outlet){.task = task, .letter = letter, .fd = fd};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = o};
    if (epoll_ctl(m.outputs, EPOLL_CTL_ADD, fd, &e) == 0)
        m.open++;
}

static void end_outlet(struct outlet *o)
{
    if (o->ended)
        return;
    epoll_ctl(m.outputs, EPOLL_CTL_DEL, o->fd, NULL);
    if (o->fd != m.terminal)
        close(o->fd);
    o->fd = -1;
    o->ended = true;
    m.open--;
}

/* Room at all who get something. */
static size_t room(void)
{
    size_t least = wire_room(&m.wire);
    for (size_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct wire *w = &m.followers[i].wire;
        if (m.followers[i].used && w->fd >= 0 && wire_room(w) < least)
            least = wire_room(w);
    }
    return least;
}

/* What the client is told, also to the followers of that task. */
static void tell_followers(char letter, uint32_t task, const void *data, size_t n)
{
    for (size_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct follower *f = &m.followers[i];
        if (f->used && (f->task < 0 || f->task == (long)task))
            wire_short(&f->wire, letter, task, data, n);
    }
}

/* Says of outputs that are at their end that they are. */
static void tell_ends(void)
{
    for (size_t i = 0; i < m.noutlets; i++) {
        struct outlet *o = &m.outlets[i];
        if (!o->ended || o->told || (o->last && m.link >= 0))
            continue;
        o->told = wire_short(&m.wire, o->letter, o->task, NULL, 0);
        if (o->told)
            tell_followers(o->letter, o->task, NULL, 0);
    }
}

/* One piece of an output; false: there is no room for more. */
static bool move(struct outlet *o)
{
    size_t most = room();
    if (most < READ_LEAST)
        return false;
    unsigned char *place = wire_place(&m.wire);
    ssize_t n = read(o->fd, place, most < READ_BYTES ? most : READ_BYTES);
    if (n > 0) {
        wire_commit(&m.wire, o->letter, o->task, (size_t)n);
        tell_followers(o->letter, o->task, place, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        end_outlet(o); /* EIO: nobody has the terminal */
    }
    return true;
}

static void move_outputs(void)
{
    static size_t turn;
    struct epoll_event e[64];
    int n = epoll_wait(m.outputs, e, 64, 0);
    for (int i = 0; i < n; i++) /* in turn: none is always the one for which there is no room */
        if (!move(e[((size_t)i + turn) % (size_t)n].data.ptr)) {
            turn++;
            break;
        }
}

static int hex(const char *text, unsigned char out[32])
{
    for (size_t i = 0; i < 32; i++)
        if (sscanf(text + 2 * i, "%2hhx", &out[i]) != 1)
            return -1;
    return 0;
}

/* "HOST:PORT SECRET PLACE TASK INPUT"; command.c has looked at it. */
static void follow(char *order)
{
    char address[301], secret[65];
    unsigned char bytes[32];
    unsigned place;
    long task;
    int feeds;
    if (sscanf(order, "%300s %64s %u %ld %d", address, secret, &place, &task, &feeds) != 5 ||
        strlen(secret) != 64 || hex(secret, bytes))
        return;
    for (size_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct follower *f = &m.followers[i];
        if (f->used)
            continue;
        *f = (struct follower){.used = true, .feeds = feeds == 1, .task = task};
        wire_open(&f->wire, address, bytes, place);
        if (f->wire.fd < 0)
            f->used = false;
        return;
    }
}

static void read_link(void)
{
    char line[NOTE_MAX];
    ssize_t n = recv(m.link, line, sizeof line - 1, MSG_DONTWAIT);
    if (n > 0) {
        line[n] = 0;
        if (*line == 'A') {
            follow(line + 1);
        } else {
            wire_short(&m.wire, 'E', m.first, line + 1, (size_t)n - 1);
            tell_followers('E', m.first, line + 1, (size_t)n - 1);
        }
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(m.link);
        m.link = -1;
        if (m.pmix)
            pmix_close(m.pmix); /* no task is left to be served */
    }
}

static void client_gone(void)
{
    feeds_close(&m.feeds);
    for (size_t i = 0; i < m.noutlets; i++)
        end_outlet(&m.outlets[i]);
    _exit(m.wire.error & 0xff);
}

/* All has been said: waits for the client and the followers to close, so that what they still send
 * does no harm to what they have not read. */
static _Noreturn void take_leave(void)
{
    char rest[4096];
    struct pollfd p[1 + FOLLOWERS_MAX];
    p[0] = (struct pollfd){.fd = m.wire.fd, .events = POLLIN};
    for (size_t i = 0; i < FOLLOWERS_MAX; i++)
        p[1 + i] = (struct pollfd){.fd = m.followers[i].used ? m.followers[i].wire.fd : -1,
                                   .events = POLLIN};
    for (size_t i = 0; i < 1 + FOLLOWERS_MAX; i++)
        if (p[i].fd >= 0)
            shutdown(p[i].fd, SHUT_WR);
    for (bool open = true; open;) {
        open = false;
        for (size_t i = 0; i < 1 + FOLLOWERS_MAX; i++) {
            ssize_t n = p[i].fd < 0 ? 0 : recv(p[i].fd, rest, sizeof rest, MSG_DONTWAIT);
            if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                open = true;
            else
                p[i].fd = -1;
        }
        if (open && poll(p, 1 + FOLLOWERS_MAX, -1) < 0 && errno != EINTR)
            break;
    }
    _exit(0);
}

static void sooner(int64_t *at, int64_t when)
{
    if (!*at || when < *at)
        *at = when;
}

static int64_t until(void)
{
    int64_t at = m.gate >= 0 ? m.gate_until : 0;
    if (m.wire.connecting)
        sooner(&at, m.wire.deadline);
    for (size_t i = 0; i < FOLLOWERS_MAX; i++)
        if (m.followers[i].used && m.followers[i].wire.connecting)
            sooner(&at, m.followers[i].wire.deadline);
    return at;
}

/* A follower that is gone leaves its place when nothing refers to it any more. */
static void turn_follower(struct follower *f, short revents)
{
    wire_turn(&f->wire, revents, &calls);
    if (f->wire.fd >= 0)
        return;
    f->used = false;
    for (size_t i = 0; i < m.feeds.n; i++)
        if (m.feeds.at[i].from == &f->wire)
            m.feeds.at[i].from = &m.wire;
    if (m.feeds.from == &f->wire)
        m.feeds.from = &m.wire;
}

enum { WIRE, LINK, OUTPUTS, FEEDS, PMI, PMIX, FOLLOWERS };

static void turn(bool served)
{
    if (m.nonsense || (served && m.wire.fd < 0))
        client_gone();
    bool roomy = room() >= READ_LEAST;
    struct pollfd p[FOLLOWERS + FOLLOWERS_MAX] = {
        [WIRE] = {.fd = m.wire.fd, .events = wire_events(&m.wire)},
        [LINK] = {.fd = roomy || !served ? m.link : -1, .events = POLLIN},
        [OUTPUTS] = {.fd = roomy && m.open ? m.outputs : -1, .events = POLLIN},
        [FEEDS] = {.fd = m.feeds.epoll, .events = POLLIN},
        [PMI] = {.fd = m.pmi ? pmi_epoll(m.pmi) : -1, .events = POLLIN},
        [PMIX] = {.fd = m.pmix ? pmix_fd(m.pmix) : -1, .events = m.pmix ? pmix_events(m.pmix) : 0},
    };
    nfds_t n = FOLLOWERS;
    for (size_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct follower *f = &m.followers[i];
        p[FOLLOWERS + i] = (struct pollfd){.fd = f->used ? f->wire.fd : -1,
                                           .events = f->used ? wire_events(&f->wire) : 0};
        if (f->used)
            n = FOLLOWERS + i + 1;
    }
    int64_t at = until(), left = at ? at - now_ms() : -1;
    if (poll(p, n, at && left < 0 ? 0 : (int)left) < 0)
        return;
    wire_turn(&m.wire, p[WIRE].revents, &calls);
    for (size_t i = 0; i < FOLLOWERS_MAX; i++)
        if (m.followers[i].used)
            turn_follower(&m.followers[i], FOLLOWERS + i < n ? p[FOLLOWERS + i].revents : 0);
    if (m.gate >= 0 && now_ms() >= m.gate_until)
        open_gate();
    if (p[LINK].revents)
        read_link();
    if (p[FEEDS].revents)
        feeds_turn(&m.feeds);
    if (p[PMI].revents)
        pmi_turn(m.pmi, &m.wire);
    if (m.pmix)
        pmix_turn(m.pmix, p[PMIX].revents, &m.wire);
    if (p[OUTPUTS].revents)
        move_outputs();
    feeds_credit(&m.feeds);
    tell_ends();
    wire_flush(&m.wire);
    for (size_t i = 0; i < FOLLOWERS_MAX; i++)
        if (m.followers[i].used)
            wire_flush(&m.followers[i].wire);
}

static bool finished(void)
{
    if (m.link >= 0 || m.open || !wire_empty(&m.wire))
        return false;
    for (size_t i = 0; i < m.noutlets; i++)
        if (!m.outlets[i].told)
            return false;
    for (size_t i = 0; i < FOLLOWERS_MAX; i++)
        if (m.followers[i].used && !wire_empty(&m.followers[i].wire))
            return false;
    return true;
}

static int equip(const struct spec *s, const struct channel *channels)
{
    size_t readers = 0;
    m.outlets = calloc(2 * s->ntasks + 1, sizeof *m.outlets);
    m.outputs = epoll_create1(EPOLL_CLOEXEC);
    if (!m.outlets || m.outputs < 0 || feeds_open(&m.feeds, s->ntasks))
        return -1;
    m.first = s->tasks[0].id;
    for (size_t i = 0; i < s->ntasks; i++) {
        const struct channel *c = &channels[i];
        if (c->out >= 0)
            add_outlet(s->tasks[i].id, 'O', c->out);
        if (c->err >= 0)
            add_outlet(s->tasks[i].id, 'E', c->err);
        if (i == 0 && m.noutlets)
            m.outlets[m.noutlets - 1].last = true;
        if (c->in >= 0)
            m.feeds.at[readers++] =
                (struct feed){.task = s->tasks[i].id, .fd = c->in, .terminal = c->in == m.terminal};
    }
    m.feeds.n = readers;
    return 0;
}

_Noreturn void mover_run(struct spec *s, struct channel *channels, int terminal, int gate, int link)
{
    size_t n = 0;
    int *keep = calloc(4 * s->ntasks + 4, sizeof *keep);
    if (!keep)
        _exit(ENOMEM);
    for (size_t i = 0; i < s->ntasks; i++) {
        keep[n++] = channels[i].in;
        keep[n++] = channels[i].out;
        keep[n++] = channels[i].err;
        keep[n++] = channels[i].pmi;
    }
    keep[n++] = gate;
    keep[n++] = link;
    keep[n++] = terminal;
    keep_only(keep, n); /* nothing of the supervisor's: from here on we are the user's */
    free(keep);
    spare_nobody();
    if (become(s))
        _exit(errno ? errno : EPERM);
    prctl(PR_SET_DUMPABLE, 0); /* what the tasks wrote is for the client alone */
    default_signals();
    signal(SIGPIPE, SIG_IGN);
    m.terminal = terminal;
    m.gate = gate;
    m.gate_until = now_ms() + GATE_MS;
    m.link = link;
    m.wire.fd = -1;
    bool served = *s->io != 0;
    if (equip(s, channels) || (s->pmi && !(m.pmi = pmi_open(s, channels))) ||
        (*s->pmix && !(m.pmix = pmix_open(s, channels))))
        _exit(ENOMEM);
    if (served)
        wire_open(&m.wire, s->io, s->io_secret, (unsigned)s->io_index);
    if (m.pmi)
        m.wire.most = pmi_exchange_max(m.pmi);
    if (m.pmix)
        m.wire.most = pmix_exchange_max(m.pmix);
    spec_free(s);
    if (m.wire.error)
        client_gone();
    while (!finished())
        turn(served);
    take_leave();
}
