"""The options of srun and salloc: rows of the table that they share with sbatch, with the names of
their own environment variables, and rows of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gsched_cli import launch_values as w
from gsched_cli import option_values as v
from gsched_cli.options import BY_NAME, NONE, OPTIONAL, REQUIRED, Option, row

#: rows of sbatch's table that neither srun nor salloc has
_OF_SCRIPTS = {
    *("array", "batch", "export-file", "ignore-pbs", "kill-on-invalid-dep", "parsable"),
    *("requeue", "no-requeue", "wait", "wrap", "test-only", "open-mode"),
}
#: those that salloc does not have either: a job of salloc has no files, and no tasks of its own
_OF_TASKS = {"error", "export", "input", "output", "propagate"}

#: option -> variables of srun: without its SLURM_, "/NAME" as it is. Rows that are not here have
#: none. The names are Slurm's (man srun); a later one counts where the first is absent.
_SRUN_ENV = {
    **{name: name.upper().replace("-", "_") for name in (
        "account", "acctg-freq", "bcast", "bcast-exclude", "clusters", "compress", "constraint",
        "core-spec", "cpu-bind", "cpus-per-gpu", "delay-boot", "dependency", "disable-status",
        "distribution", "epilog", "exact", "exclusive", "gpu-bind", "gpu-freq", "gpus",
        "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres-flags", "hint", "immediate",
        "job-name", "mem-bind", "mem-per-cpu", "mem-per-gpu", "network", "no-kill",
        "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket",
        "open-mode", "overcommit",
        "overlap", "partition", "power", "profile", "prolog", "qos", "reservation",
        "resv-ports", "send-libs", "signal", "spread-job", "task-epilog", "task-prolog",
        "thread-spec", "threads", "threads-per-core", "use-min-nodes", "wait", "wckey",
        "tres-per-task", "tres-bind", "prefer", "het-group", "oom-kill-step",
    )},
    "bb": "BURST_BUFFER",
    "chdir": "WORKING_DIR REMOTE_CWD",
    "container": "/SRUN_CONTAINER",
    "container-id": "/SRUN_CONTAINER_ID",
    "cpu-freq": "CPU_FREQ_REQ",
    "cpus-per-task": "/SRUN_CPUS_PER_TASK",
    "error": "/SRUN_ERROR STDERRMODE",
    "export": "/SRUN_EXPORT_ENV EXPORT_ENV",
    "gres": "STEP_GRES GRES",
    "input": "/SRUN_INPUT STDINMODE",
    "jobid": "JOB_ID JOBID",
    "kill-on-bad-exit": "KILL_BAD_EXIT",
    "label": "LABELIO",
    "mem": "MEM_PER_NODE",
    "mpi": "MPI_TYPE",
    "nodes": "JOB_NUM_NODES NNODES",
    "ntasks": "NTASKS NPROCS",
    "output": "/SRUN_OUTPUT STDOUTMODE",
    "segment": "/SRUN_SEGMENT_SIZE",
    "slurmd-debug": "/SLURMD_DEBUG",
    "switches": "REQ_SWITCH",
    "time": "TIMELIMIT",
    "unbuffered": "UNBUFFEREDIO",
}  # fmt: skip

#: the same for salloc, with SALLOC_
_SALLOC_ENV = {
    **{name: name.upper().replace("-", "_") for name in (
        "account", "acctg-freq", "bell", "constraint", "container", "core-spec", "cpus-per-gpu",
        "delay-boot", "exclusive", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
        "gpus-per-task", "gres", "gres-flags", "immediate", "mem-bind", "mem-per-cpu",
        "mem-per-gpu", "network", "no-bell", "no-kill", "overcommit", "partition", "power",
        "prefer", "profile", "qos", "reservation", "signal", "spread-job", "thread-spec",
        "threads-per-core", "tres-bind", "tres-per-task", "use-min-nodes", "wait-all-nodes",
        "wckey", "oom-kill-step",
    )},
    "bb": "BURST_BUFFER",
    "clusters": "CLUSTERS /SLURM_CLUSTERS",
    "cpu-freq": "CPU_FREQ_REQ",
    "hint": "HINT /SLURM_HINT",
    "kill-command": "KILL_CMD",
    "mem": "MEM_PER_NODE",
    "segment": "SEGMENT_SIZE",
    "switches": "REQ_SWITCH",
    "time": "TIMELIMIT",
}  # fmt: skip


def _aliases() -> tuple[Option, ...]:
    r = REQUIRED
    return (
        row("cluster", r, v.word("clusters"), "", "", "names", "the same as --clusters"),
        row("tasks-per-node", r, v.positive("ntasks_per_node", "ntasks-per-node"), "", "", "n",
            "the same as --ntasks-per-node"),
    )  # fmt: skip


def _both() -> tuple[Option, ...]:
    n, o = NONE, OPTIONAL
    return (
        *_aliases(),
        row("context", REQUIRED, v.ignore, "", "", "type", "security context", effect=False),
        row("immediate", o, w.immediate, "I", "", "secs", "give up if it cannot start in time"),
        row("usage", n, v.ignore, "", "", "", "a short summary"),
        row("x11", o, w.x11, "", "", "which", "X11 forwarding", effect=False),
    )


def _of_srun() -> tuple[Option, ...]:
    n, r, o = NONE, REQUIRED, OPTIONAL
    return (
        row("accel-bind", r, w.accel_bind, "", "", "g|n", "bind to near accelerators",
            effect=False),
        row("async", n, v.flag("asynchronous"), "", "", "", "do not wait for the step"),
        row("bcast", o, w.bcast, "", "", "path", "copy the program to the nodes first"),
        row("bcast-exclude", r, v.ignore, "", "", "paths", "libraries that are not copied",
            effect=False),
        row("compress", o, w.compress, "", "", "type", "compress what --bcast copies",
            effect=False),
        row("cpu-bind", r, w.cpu_bind, "", "", "type", "binding of tasks to CPUs"),
        row("cpu_bind", r, w.cpu_bind, "", "", "type", "the same as --cpu-bind"),
        row("debugger-test", n, v.ignore, "", "", "", "for tests of debuggers", effect=False),
        row("disable-status", n, v.flag("disable_status"), "X", "", "",
            "the first Ctrl-C goes to the tasks at once"),
        row("epilog", r, v.word("epilog"), "", "", "program", "run here when the step has ended"),
        row("exact", n, v.flag("exact"), "", "", "", "only the resources that the step asks for"),
        row("exclusive", o, w.exclusive, "", "", "user",
            "for a job: whole nodes; for a step: CPUs that no other step uses"),
        row("external-launcher", n, v.flag("overlap"), "", "", "",
            "a step for the daemons of another launcher"),
        row("het-group", r, w.het_group, "", "", "n", "components of the job to run on"),
        row("pack-group", r, w.het_group, "", "", "n", "the same as --het-group"),
        row("ignore-signals", r, v.ignore, "", "", "signals", "signals that are not passed on",
            effect=False),
        row("interactive", n, v.flag("interactive"), "", "", "",
            "the shell of salloc on the first node"),
        row("jobid", r, w.counted("jobid", "--jobid", 1), "", "", "id", "a step of this job"),
        row("kill-on-bad-exit", o, w.kill_on_bad_exit, "K", "", "0|1",
            "end the step when a task fails"),
        row("label", n, v.flag("label"), "l", "", "", "number of the task before each line"),
        row("mpi", r, v.word("mpi"), "", "", "type", "kind of MPI; list: which there are"),
        row("msg-timeout", r, w.checked("--msg-timeout", 1), "", "", "seconds",
            "wait so long for an answer", effect=False),
        row("multi-prog", n, v.flag("multi_prog"), "", "", "",
            "the command names a file that says which task runs what"),
        row("no-allocate", n, v.flag("no_allocate"), "Z", "", "", "without allocation"),
        row("open-mode", r, v.open_mode, "", "", "append|truncate", "how output files are opened"),
        row("overlap", n, v.flag("overlap"), "", "", "", "share everything with other steps"),
        row("parsable", n, v.flag("parsable"), "", "", "", "with --async: print the id alone"),
        row("preserve-env", n, v.flag("preserve_env"), "E", "", "",
            "SLURM_NNODES and SLURM_NTASKS count more than -N and -n"),
        row("prolog", r, v.word("prolog"), "", "", "program", "run here before the step"),
        row("pty", o, w.pty, "", "", "fd", "task 0 in a pseudo terminal"),
        row("quit-on-interrupt", n, v.flag("quit_on_interrupt"), "", "", "",
            "the first Ctrl-C ends the step"),
        row("relative", r, w.counted("relative", "--relative"), "r", "", "n",
            "begin at node n of the job"),
        row("resv-ports", o, w.checked("--resv-port"), "", "", "n", "reserve ports",
            effect=False),
        row("send-libs", o, w.send_libs, "", "", "yes|no", "with --bcast: libraries, too",
            effect=False),
        row("slurmd-debug", r, w.slurmd_debug, "", "", "level", "debug level of the daemons",
            effect=False),
        row("task-epilog", r, v.word("task_epilog"), "", "", "program", "run after each task"),
        row("task-prolog", r, v.word("task_prolog"), "", "", "program", "run before each task"),
        row("test-only", n, v.flag("test_only"), "", "", "", "say when it could start"),
        row("threads", r, w.checked("--threads", 1), "T", "", "n",
            "messages sent at once", effect=False),
        row("treewidth", r, v.ignore, "", "", "n", "fan-out of messages", effect=False),
        row("unbuffered", n, v.flag("unbuffered"), "u", "", "", "output at once"),
        row("wait", r, w.wait, "W", "", "seconds", "after the first task's end, end the others"),
        row("wait-for-children", n, v.ignore, "", "", "",
            "a task has ended with its last process", effect=False),
        row("whole", n, v.flag("whole"), "", "", "", "all that the job has on the nodes"),
    )  # fmt: skip


def _of_salloc() -> tuple[Option, ...]:
    n, o = NONE, OPTIONAL
    return (
        row("bell", n, v.flag("bell", 2), "", "", "", "ring the bell once it is allocated"),
        row("kill-command", o, w.kill_command, "K", "", "signal",
            "signal for the command when the allocation is gone"),
        row("no-bell", n, v.flag("bell", 0), "", "", "", "never ring the bell"),
        row("no-shell", n, v.flag("no_shell"), "", "", "", "only allocate"),
    )  # fmt: skip


def _table(
    without: Iterable[str], own: Iterable[Option], names: Mapping[str, str]
) -> dict[str, Option]:
    rows = {option.name: option for option in BY_NAME.values()}
    for name in without:
        rows.pop(name, None)
    rows |= {option.name: option for option in own}
    return {
        name: rows[name]._replace(env=tuple(names.get(name, "").split())) for name in sorted(rows)
    }


def _shorts(table: Mapping[str, Option]) -> dict[str, Option]:
    return {option.short: option for option in table.values() if option.short}


SRUN: dict[str, Option] = _table(
    {*_OF_SCRIPTS, "get-user-env", "wait-all-nodes"},
    (*_both(), *_of_srun()),
    _SRUN_ENV,
)
# A step heeds it; what a job does with it is the node's failure.
SRUN["no-kill"] = SRUN["no-kill"]._replace(effect=True)
SRUN_SHORT = _shorts(SRUN)
SALLOC: dict[str, Option] = _table(_OF_SCRIPTS | _OF_TASKS, (*_both(), *_of_salloc()), _SALLOC_ENV)
SALLOC_SHORT = _shorts(SALLOC)
