/* The terminal: raw for --pty, and back as it was on every way out. */
#include "mover.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static bool saved, raw;

void tty_save(void) {
    saved = isatty(0) && tcgetattr(0, &before) == 0;
}

void tty_raw(void) {
    struct termios now = before;
    if (!saved)
        return;
    cfmakeraw(&now);
    /* From the background this stops the process, as it should. */
    raw = tcsetattr(0, TCSADRAIN, &now) == 0 || raw;
}

void tty_restore(void) {
    sigset_t ttou, mask;
    if (!saved || !raw)
        return;
    /* Also when the terminal is another's by now. */
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    sigprocmask(SIG_BLOCK, &ttou, &mask);
    tcsetattr(0, TCSADRAIN, &before);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    raw = false;
}

void tty_stop(void) {
    bool was = raw;
    tty_restore();
    kill(getpid(), SIGSTOP);
    if (was)
        tty_raw();
}

struct blob *tty_size(void) {
    struct winsize size;
    if (!isatty(0) || ioctl(0, TIOCGWINSZ, &size) != 0)
        return NULL;
    struct blob *b = blob_message('W', 4);
    if (b)
        put32(b->data + FIELD_HEAD, (size_t)size.ws_row << 16 | size.ws_col);
    return b;
}
