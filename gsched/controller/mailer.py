"""Runs the mail program, beside the controller's loop: mail may be slow, and may never come."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence

from gsched.ledger.mail import Mail
from gsched.rawtext import to_bytes

#: mails that may wait; more are dropped, with a word in the log
MOST_WAITING = 1000
#: seconds that a mail program may take
TIMEOUT_S = 60.0
#: programs that may run at once
WORKERS = 2

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Mailer:
    """A queue and its threads. `program` is MailProg; it is run without a shell."""

    def __init__(self, program: str, complain: Callable[[str], object]) -> None:
        self.program = program
        self._complain = complain
        self._queue: queue.Queue[Mail | None] = queue.Queue(MOST_WAITING)
        self._threads: list[threading.Thread] = []
        #: what was complained of last: the same is not said for every mail
        self._said = ""

    def send(self, mails: Sequence[Mail]) -> None:
        """Hands mails over; never waits."""
        for mail in mails:
            try:
                self._queue.put_nowait(mail)
            except queue.Full:
                self._say(f"more than {MOST_WAITING} mails wait: some are not sent")
                return
        while len(self._threads) < min(WORKERS, self._queue.qsize()):
            thread = threading.Thread(target=self._work, name="mail", daemon=True)
            self._threads.append(thread)
            thread.start()

    def finish(self, timeout_s: float = 5.0) -> None:
        """Lets what waits be sent, for so long at most."""
        for _ in self._threads:
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        while (mail := self._queue.get()) is not None:
            try:
                self._run(mail)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._say(f"mail program {self.program}: {error}")

    def _run(self, mail: Mail) -> None:
        env = {"PATH": _PATH, **mail.variables}
        if "TZ" in os.environ:
            env["TZ"] = os.environ["TZ"]
        done = subprocess.run(
            [self.program, b"-s", to_bytes(mail.subject), to_bytes(mail.recipient)],
            env={to_bytes(name): to_bytes(value) for name, value in env.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            start_new_session=True,
            check=False,
        )
        if done.returncode:
            self._say(f"mail program {self.program} ended with {done.returncode}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._complain(text)
