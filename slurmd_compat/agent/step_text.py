"""What srun says about its step, in Slurm's words. Lines without their end."""

from __future__ import annotations

from collections.abc import Iterable

from gsched.wire.steps import TaskEnd

#: a share whose files could not be opened, or whose client could not be reached
NO_IO = "Slurmd could not connect IO"

#: as strsignal(3) of glibc has them
_SIGNALS = {
    1: "Hangup",
    2: "Interrupt",
    3: "Quit",
    4: "Illegal instruction",
    5: "Trace/breakpoint trap",
    6: "Aborted",
    7: "Bus error",
    8: "Floating point exception",
    9: "Killed",
    10: "User defined signal 1",
    11: "Segmentation fault",
    12: "User defined signal 2",
    13: "Broken pipe",
    14: "Alarm clock",
    15: "Terminated",
    16: "Stack fault",
    17: "Child exited",
    18: "Continued",
    19: "Stopped (signal)",
    20: "Stopped",
    21: "Stopped (tty input)",
    22: "Stopped (tty output)",
    23: "Urgent I/O condition",
    24: "CPU time limit exceeded",
    25: "File size limit exceeded",
    26: "Virtual timer expired",
    27: "Profiling timer expired",
    28: "Window changed",
    29: "I/O possible",
    30: "Power failure",
    31: "Bad system call",
}


def signal_words(number: int) -> str:
    if 34 <= number <= 64:
        return f"Real-time signal {number - 34}"
    return _SIGNALS.get(number, f"Unknown signal {number}")


def exit_code(wstatus: int) -> int:
    """What a shell, and srun, makes of a wait status: 128 and the signal, or the exit code."""
    signum = wstatus & 0x7F
    return 128 + signum if signum else wstatus >> 8 & 0xFF


def rank(wstatus: int) -> tuple[bool, int]:
    """Of several tasks the highest counts; a signal, as in real srun, before any exit code."""
    return bool(wstatus & 0x7F), exit_code(wstatus)


def shell_code(wstatus: int) -> int:
    """What salloc ends with when its shell has: real salloc takes the signals that a user ends a
    shell with for a good end."""
    signum = wstatus & 0x7F
    return (0 if signum in (1, 2, 3, 9) else 1) if signum else wstatus >> 8 & 0xFF


def ranges(numbers: Iterable[int]) -> str:
    """ "0-2,5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def tasks(numbers: Iterable[int]) -> str:
    """ "task 3" or "tasks 0-1,4"."""
    found = list(numbers)
    return f"task{'' if len(found) == 1 else 's'} {ranges(found)}"


def ended(wstatus: int, cause: str) -> str:
    """How tasks ended; "" for a plain success, which srun does not mention."""
    if cause == "oom":
        return "Out Of Memory"
    signum = wstatus & 0x7F
    if signum:
        core = " (core dumped)" if wstatus & 0x80 else ""
        return signal_words(signum) + core
    code = wstatus >> 8 & 0xFF
    return f"Exited with exit code {code}" if code else ""


def task_ends(node: str, ends: Iterable[TaskEnd], step: str = "") -> list[str]:
    """One line for each way in which tasks of a node have ended, by their first task. With the
    name of the step also what srun -v says of them."""
    groups: dict[tuple[int, str], list[int]] = {}
    for end in ends:
        how = end.cause if end.cause == "oom" else ""
        groups.setdefault((end.wstatus, how), []).append(end.task)
    lines = []
    for (wstatus, cause), numbers in sorted(groups.items(), key=lambda item: min(item[1])):
        words = ended(wstatus, cause)
        if step:
            count = f"{len(numbers)} task{'' if len(numbers) == 1 else 's'}"
            lines.append(
                f"Received task exit notification for {count} of {step} (status=0x{wstatus:04x})."
            )
        if step and not words:
            lines.append(f"{node}: {tasks(numbers)}: Completed")
        if words:
            lines.append(f"error: {node}: {tasks(numbers)}: {words}")
    return lines


def status(
    name: str,
    ntasks: int,
    started: set[int],
    ends: dict[int, TaskEnd],
) -> list[str]:
    """How a step's tasks stand, as after an interrupt: "StepId=292.0 tasks 0-1: running"."""
    waiting = [t for t in range(ntasks) if t not in started and t not in ends]
    running = [t for t in sorted(started) if t not in ends]
    good = [t for t, end in ends.items() if end.wstatus == 0]
    bad = [t for t, end in ends.items() if end.wstatus != 0]
    return [
        f"{name} {tasks(found)}: {word}"
        for found, word in (
            (waiting, "unknown"),
            (running, "running"),
            (good, "exited"),
            (bad, "exited abnormally"),
        )
        if found
    ]
