/* The mover: one process of the user's ids for a step, between the tasks' pipes and the client.
 *
 * An output is read only while there is room for it, so a client that is slow makes the tasks wait
 * and nothing grows. When the client is gone the pipes are closed: whoever writes gets SIGPIPE, as
 * with Slurm. The supervisor says little (lines for the error output, and, by closing the link, that
 * all tasks have ended) and is told nothing but the exit status.
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

static struct mover {
    struct wire wire;
    struct feeds feeds;
    struct pmi *pmi;
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

static void on_input(uint32_t task, const unsigned char *data, size_t n)
{
    m.nonsense |= feeds_take(&m.feeds, task, data, n) < 0;
}

static void on_window(unsigned rows, unsigned columns)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    if (m.terminal >= 0)
        ioctl(m.terminal, TIOCSWINSZ, &size);
    open_gate();
}

static void on_exchange(uint32_t round, const unsigned char *data, size_t n)
{
    if (m.pmi)
        pmi_exchanged(m.pmi, round, data, n);
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

/* Says of outputs that are at their end that they are. */
static void tell_ends(void)
{
    for (size_t i = 0; i < m.noutlets; i++) {
        struct outlet *o = &m.outlets[i];
        if (o->ended && !o->told && !(o->last && m.link >= 0))
            o->told = wire_short(&m.wire, o->letter, o->task, NULL, 0);
    }
}

/* One piece of an output; false: there is no room for more. */
static bool move(struct outlet *o)
{
    size_t room = wire_room(&m.wire);
    if (room < READ_LEAST)
        return false;
    ssize_t n = read(o->fd, wire_place(&m.wire), room < READ_BYTES ? room : READ_BYTES);
    if (n > 0)
        wire_commit(&m.wire, o->letter, o->task, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR)) /* EIO: nobody has the terminal */
        end_outlet(o);
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

static void read_link(void)
{
    char line[NOTE_MAX];
    ssize_t n = recv(m.link, line, sizeof line, MSG_DONTWAIT);
    if (n > 0) {
        wire_short(&m.wire, 'E', m.first, line, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(m.link);
        m.link = -1;
    }
}

static void client_gone(void)
{
    feeds_close(&m.feeds);
    for (size_t i = 0; i < m.noutlets; i++)
        end_outlet(&m.outlets[i]);
    _exit(m.wire.error & 0xff);
}

/* All has been said: waits for the client to close, so that what it still sends does no harm to
 * what it has not read. */
static _Noreturn void take_leave(void)
{
    char rest[4096];
    if (m.wire.fd >= 0)
        shutdown(m.wire.fd, SHUT_WR);
    struct pollfd p = {.fd = m.wire.fd, .events = POLLIN};
    while (m.wire.fd >= 0 && poll(&p, 1, -1) >= 0) {
        ssize_t n = recv(m.wire.fd, rest, sizeof rest, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            break;
    }
    _exit(0);
}

static int64_t until(void)
{
    int64_t at = m.gate >= 0 ? m.gate_until : 0;
    if (m.wire.connecting && (!at || m.wire.deadline < at))
        at = m.wire.deadline;
    return at;
}

static void turn(bool served)
{
    if (m.nonsense || (served && m.wire.fd < 0))
        client_gone();
    size_t room = wire_room(&m.wire);
    bool roomy = room >= READ_LEAST;
    struct pollfd p[] = {
        {.fd = m.wire.fd, .events = wire_events(&m.wire)},
        {.fd = roomy || !served ? m.link : -1, .events = POLLIN},
        {.fd = roomy && m.open ? m.outputs : -1, .events = POLLIN},
        {.fd = m.feeds.epoll, .events = POLLIN},
        {.fd = m.pmi ? pmi_epoll(m.pmi) : -1, .events = POLLIN},
    };
    int64_t at = until(), left = at ? at - now_ms() : -1;
    int n = poll(p, sizeof p / sizeof *p, at && left < 0 ? 0 : (int)left);
    if (n < 0)
        return;
    wire_turn(&m.wire, p[0].revents, &calls);
    if (m.gate >= 0 && now_ms() >= m.gate_until)
        open_gate();
    if (p[1].revents)
        read_link();
    if (p[3].revents)
        feeds_turn(&m.feeds);
    if (p[4].revents)
        pmi_turn(m.pmi, &m.wire);
    if (p[2].revents)
        move_outputs();
    feeds_credit(&m.feeds, &m.wire);
    tell_ends();
    wire_flush(&m.wire);
}

static bool finished(void)
{
    if (m.link >= 0 || m.open || !wire_empty(&m.wire))
        return false;
    for (size_t i = 0; i < m.noutlets; i++)
        if (!m.outlets[i].told)
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
    if (equip(s, channels) || (s->pmi && !(m.pmi = pmi_open(s, channels))))
        _exit(ENOMEM);
    if (served)
        wire_open(&m.wire, s->io, s);
    spec_free(s);
    if (m.wire.error)
        client_gone();
    while (!finished())
        turn(served);
    take_leave();
}
