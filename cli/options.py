"""The allocation options, once for sbatch, srun, salloc and `#SBATCH` lines: one table.

A row says how an option is written, which environment variable stands for it, where it may
appear, and what it sets. `cli/getopt.py` walks a command line over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gsched.request import COMMAND_LINE, ENVIRONMENT, Options, Refusal
from gsched_cli import option_values as v

#: kinds of argument
NONE, REQUIRED, OPTIONAL = 0, 1, 2
#: where an option may appear: command line, environment, `#SBATCH`
ANYWHERE, NOT_IN_SCRIPT = 0, 1


class Option(NamedTuple):
    """One row of the table."""

    name: str
    argument: int
    set: v.Setter
    short: str = ""
    #: variables without their SBATCH_ (SRUN: SLURM_, SALLOC_) prefix; "/NAME" is taken as it is
    env: tuple[str, ...] = ()
    where: int = ANYWHERE
    #: False: taken, recorded and said to have no effect in this release
    effect: bool = True
    metavar: str = ""
    help: str = ""


def row(
    name: str,
    argument: int,
    setter: v.Setter,
    short: str = "",
    env: str = "",
    metavar: str = "",
    help: str = "",
    where: int = ANYWHERE,
    effect: bool = True,
) -> Option:
    return Option(name, argument, setter, short, tuple(env.split()), where, effect, metavar, help)


_o = row


def _build() -> tuple[Option, ...]:
    n, r, o = NONE, REQUIRED, OPTIONAL
    rows = (
        _o("account", r, v.name("account"), "A", "ACCOUNT", "name", "account to charge"),
        _o("acctg-freq", r, v.acctg_freq, "", "ACCTG_FREQ", "spec", "sampling rates", effect=False),
        _o("admin-comment", r, v.word("admin_comment"), "", "", "text", "administrator's remark"),
        _o("array", r, v.word("array"), "a", "ARRAY_INX", "indexes", "run as a job array"),
        _o("batch", r, v.word("batch_features"), "", "BATCH", "list",
           "features the script's node must have"),
        _o("bb", r, v.word("burst_buffer"), "", "BURST_BUFFER", "spec", "burst buffer",
           effect=False),
        _o("bbf", r, v.ignore, "", "", "file", "burst buffer file", effect=False),
        _o("begin", r, v.point("begin", "begin"), "b", "BEGIN", "time", "do not start before"),
        _o("chdir", r, v.word("chdir"), "D", "", "directory", "where the script runs"),
        # Slurm takes the singular too, which else could be either of the next two.
        _o("cluster", r, v.word("clusters"), "", "", "names", "the same as --clusters"),
        _o("cluster-constraint", r, v.word("cluster_constraint"), "", "", "list",
           "features of the cluster", effect=False),
        _o("clusters", r, v.word("clusters"), "M", "CLUSTERS /SLURM_CLUSTERS", "names",
           "clusters to submit to"),
        _o("comment", r, v.word("comment"), "", "COMMENT", "text", "a remark kept with the job"),
        # Segments lie in as few blocks as hold them anyway.
        _o("consolidate-segments", n, v.ignore, "", "", "", "keep segments together"),
        _o("constraint", r, v.word("constraint"), "C", "CONSTRAINT", "list",
           "features the nodes must have"),
        _o("container", r, v.word("container"), "", "CONTAINER", "path", "OCI bundle",
           effect=False),
        _o("container-id", r, v.ignore, "", "CONTAINER_ID", "id", "name of the container",
           effect=False),
        _o("container-image", r, v.container_image, "", "", "image",
           "run script and tasks in this image"),
        _o("container-mounts", r, v.container_mounts, "", "", "src:dst[:flags]",
           "what of the node the image sees, and where"),
        _o("container-type", r, v.ignore, "", "", "type", "kind of container", effect=False),
        _o("container-workdir", r, v.container_workdir, "", "", "path",
           "working directory in the image"),
        _o("contiguous", n, v.flag("contiguous"), "", "", "", "nodes that lie side by side"),
        _o("core-spec", r, v.positive("core_spec", "core-spec"), "S", "CORE_SPEC", "n",
           "cores left to the system"),
        _o("cores-per-socket", r, v.positive("cores_per_socket", "cores-per-socket"), "", "", "n",
           "nodes with at least so many cores in a socket"),
        _o("cpu-freq", r, v.cpu_freq, "", "CPU_FREQ_REQ", "spec", "CPU frequency", effect=False),
        _o("cpus-per-gpu", r, v.positive("cpus_per_gpu", "cpus-per-gpu"), "", "CPUS_PER_GPU", "n",
           "CPUs for each GPU"),
        _o("cpus-per-task", r, v.positive("cpus_per_task", "cpus-per-task"), "c", "", "n",
           "CPUs for each task"),
        _o("deadline", r, v.point("deadline", "deadline"), "", "DEADLINE", "time",
           "give up if it cannot end before"),
        _o("delay-boot", r, v.delay_boot, "", "DELAY_BOOT", "minutes",
           "wait before nodes are booted", effect=False),
        _o("dependency", r, v.word("dependency"), "d", "DEPENDENCY", "list",
           "wait for other jobs: type:jobid[+minutes]"),
        _o("distribution", r, v.distribution, "m", "DISTRIBUTION", "type",
           "how tasks are laid over nodes and sockets"),
        _o("error", r, v.word("std_err"), "e", "ERROR", "file", "where standard error goes"),
        _o("exclude", r, v.word("exclude"), "x", "", "nodes", "nodes not to use"),
        _o("exclusive", o, v.exclusive, "", "EXCLUSIVE", "user", "whole nodes"),
        _o("export", r, v.export, "", "EXPORT", "names",
           "environment to take along: ALL, NONE, NIL or a list"),
        _o("export-file", r, v.word("export_file"), "", "", "file",
           "environment from a file, NUL-separated"),
        _o("extra", r, v.word("extra"), "", "", "text", "any text kept with the job"),
        _o("extra-node-info", r, v.extra_node_info, "B", "", "S[:C[:T]]",
           "sockets, cores and threads a node must have"),
        _o("get-user-env", o, v.get_user_env, "", "GET_USER_ENV", "timeout",
           "environment of a fresh login"),
        _o("gid", r, v.group, "", "", "group", "run as this group (root only)"),
        _o("gpu-bind", r, v.gpu_bind, "", "GPU_BIND", "type", "GPUs each task sees"),
        _o("gpu-freq", r, v.gpu_freq, "", "GPU_FREQ", "spec", "GPU frequency", effect=False),
        _o("gpus", r, v.word("gpus"), "G", "GPUS", "[type:]n", "GPUs for the job"),
        _o("gpus-per-node", r, v.word("gpus_per_node"), "", "GPUS_PER_NODE", "[type:]n",
           "GPUs on each node"),
        _o("gpus-per-socket", r, v.word("gpus_per_socket"), "", "GPUS_PER_SOCKET", "[type:]n",
           "GPUs for each socket"),
        _o("gpus-per-task", r, v.word("gpus_per_task"), "", "GPUS_PER_TASK", "[type:]n",
           "GPUs for each task"),
        _o("gres", r, v.word("gres"), "", "GRES", "list", "generic resources of each node"),
        _o("gres-flags", r, v.gres_flags, "", "GRES_FLAGS", "flags",
           "how generic resources are bound"),
        _o("help", n, v.ignore, "h", "", "", "this text", where=NOT_IN_SCRIPT),
        _o("hint", r, v.hint, "", "HINT /SLURM_HINT", "type", "hints for the placement of tasks"),
        _o("hold", n, v.flag("hold"), "H", "", "", "do not start until released"),
        _o("ignore-pbs", n, v.flag("ignore_pbs"), "", "IGNORE_PBS", "",
           "pass over #PBS and #BSUB lines"),
        _o("input", r, v.word("std_in"), "i", "INPUT", "file", "where standard input comes from"),
        _o("job-name", r, v.word("job_name"), "J", "JOB_NAME", "name", "name of the job"),
        _o("kill-on-invalid-dep", r, v.kill_on_invalid_dep, "", "KILL_ON_INVALID_DEP", "yes|no",
           "end it when its dependency can never be met"),
        _o("licenses", r, v.word("licenses"), "L", "LICENSES", "names", "licences it holds"),
        _o("mail-type", r, v.mail_type, "", "MAIL_TYPE", "types", "events to be told of"),
        _o("mail-user", r, v.word("mail_user"), "", "MAIL_USER", "user", "who is told"),
        _o("mcs-label", r, v.ignore, "", "", "label", "security label", effect=False),
        _o("mem", r, v.memory("mem", "mem"), "", "MEM_PER_NODE", "size",
           "memory of each node (MB, or K, M, G, T); 0: all"),
        _o("mem-bind", r, v.mem_bind, "", "MEM_BIND", "type", "memory binding", effect=False),
        _o("mem-per-cpu", r, v.memory("mem_per_cpu", "mem-per-cpu"), "", "MEM_PER_CPU", "size",
           "memory for each CPU"),
        _o("mem-per-gpu", r, v.memory("mem_per_gpu", "mem-per-gpu"), "", "MEM_PER_GPU", "size",
           "memory for each GPU"),
        _o("mincpus", r, v.positive("mincpus", "mincpus"), "", "", "n",
           "nodes with at least so many CPUs"),
        _o("network", r, v.word("network"), "", "NETWORK", "type", "network", effect=False),
        _o("nice", o, v.nice, "", "", "n", "lower (or raise) the priority"),
        _o("no-kill", o, v.no_kill, "k", "NO_KILL", "off", "keep it when a node fails",
           effect=False),
        _o("no-requeue", n, v.flag("requeue", False), "", "NO_REQUEUE", "", "never run it again"),
        _o("nodefile", r, v.nodefile, "F", "", "file", "file with the nodes to use"),
        _o("nodelist", r, v.node_names("nodelist"), "w", "", "nodes",
           "nodes that must be among them"),
        _o("nodes", r, v.nodes, "N", "", "n[-m]", "number of nodes"),
        _o("ntasks", r, v.positive("ntasks", "ntasks"), "n", "", "n", "number of tasks"),
        _o("ntasks-per-core", r, v.positive("ntasks_per_core", "ntasks-per-core"), "", "", "n",
           "tasks on each core"),
        _o("ntasks-per-gpu", r, v.positive("ntasks_per_gpu", "ntasks-per-gpu"), "",
           "NTASKS_PER_GPU", "n", "tasks for each GPU"),
        _o("ntasks-per-node", r, v.positive("ntasks_per_node", "ntasks-per-node"), "", "", "n",
           "tasks on each node"),
        _o("ntasks-per-socket", r, v.positive("ntasks_per_socket", "ntasks-per-socket"), "", "",
           "n", "tasks on each socket"),
        _o("ntasks-per-tres", r, v.positive("ntasks_per_gpu", "ntasks-per-tres"), "",
           "NTASKS_PER_TRES", "n", "the same as --ntasks-per-gpu"),
        _o("oom-kill-step", o, v.oom_kill_step, "", "OOM_KILL_STEP", "0|1",
           "end all of a step that runs out of memory", effect=False),
        _o("open-mode", r, v.open_mode, "", "OPEN_MODE", "append|truncate",
           "how output files are opened"),
        _o("output", r, v.word("std_out"), "o", "OUTPUT", "file", "where standard output goes"),
        _o("overcommit", n, v.flag("overcommit"), "O", "OVERCOMMIT", "",
           "more tasks than CPUs"),
        _o("oversubscribe", n, v.flag("shared", 3), "s", "", "", "share nodes with other jobs"),
        _o("parsable", n, v.flag("parsable"), "", "PARSABLE", "", "print the job id alone"),
        _o("partition", r, v.name("partition"), "p", "PARTITION", "names", "where to run"),
        _o("power", r, v.word("power"), "", "POWER", "flags", "power management", effect=False),
        _o("prefer", r, v.word("prefer"), "", "PREFER", "list", "features that would be welcome"),
        _o("priority", r, v.priority, "", "PRIORITY", "n", "set the priority"),
        _o("profile", r, v.profile, "", "PROFILE", "what", "profiling", effect=False),
        _o("propagate", o, v.word("propagate"), "", "", "limits",
           "resource limits to take along"),
        _o("qos", r, v.name("qos"), "q", "QOS", "name", "quality of service"),
        _o("quiet", n, v.flag("quiet"), "Q", "", "", "say nothing but errors"),
        _o("reboot", n, v.flag("reboot"), "", "REBOOT", "", "boot the nodes first",
           effect=False),
        _o("requeue", o, v.requeue, "", "REQUEUE", "expedite", "it may be run again"),
        _o("reservation", r, v.word("reservation"), "", "RESERVATION", "name",
           "run inside a reservation"),
        _o("resources", r, v.ignore, "", "", "spec", "further resources", effect=False),
        _o("resv-ports", o, v.ignore, "", "RESV_PORTS", "n", "reserve ports", effect=False),
        _o("segment", r, v.positive("segment", "segment"), "", "SEGMENT_SIZE", "n",
           "nodes in groups of so many, each within one block"),
        _o("signal", r, v.signal, "", "SIGNAL", "[R][B:]signal[@seconds]",
           "signal it before its time is up"),
        _o("sockets-per-node", r, v.positive("sockets_per_node", "sockets-per-node"), "", "", "n",
           "nodes with at least so many sockets"),
        _o("spread-job", n, v.flag("spread_job"), "", "SPREAD_JOB", "",
           "over as many nodes as possible"),
        _o("spread-segments", n, v.ignore, "", "", "", "segments in different blocks",
           effect=False),
        _o("stepmgr", n, v.ignore, "", "STEPMGR", "", "steps are managed in the job"),
        _o("switches", r, v.switches, "", "REQ_SWITCH", "n[@time]", "how many leaf switches"),
        _o("test-only", n, v.flag("test_only"), "", "TEST_ONLY", "",
           "say when it could start, submit nothing"),
        _o("thread-spec", r, v.positive("thread_spec", "thread-spec"), "", "THREAD_SPEC", "n",
           "threads left to the system"),
        _o("threads-per-core", r, v.positive("threads_per_core", "threads-per-core"), "",
           "THREADS_PER_CORE", "n", "threads to use of each core"),
        _o("time", r, v.time_limit, "t", "TIMELIMIT", "time",
           "limit: minutes, [hours:]minutes:seconds, days-hours[:minutes[:seconds]]"),
        _o("time-min", r, v.time_min, "", "TIME_MIN", "time", "the least it can do with"),
        _o("tmp", r, v.memory("tmp", "tmp"), "", "", "size", "temporary disk of each node"),
        _o("tres-bind", r, v.word("tres_bind"), "", "TRES_BIND", "spec",
           "binding of tasks to resources"),
        _o("tres-per-task", r, v.word("tres_per_task"), "", "TRES_PER_TASK", "list",
           "resources for each task"),
        _o("uid", r, v.user, "", "", "user", "run as this user (root only)"),
        _o("usage", n, v.ignore, "", "", "", "a short summary", where=NOT_IN_SCRIPT),
        _o("use-min-nodes", n, v.flag("use_min_nodes"), "", "USE_MIN_NODES", "",
           "of a range of nodes take the least"),
        _o("verbose", n, v.verbose, "v", "", "", "tell more (may be repeated)"),
        _o("version", n, v.ignore, "V", "", "", "print the version", where=NOT_IN_SCRIPT),
        _o("wait", n, v.flag("wait"), "W", "WAIT", "", "return when the job has ended"),
        _o("wait-all-nodes", r, v.wait_all_nodes, "", "WAIT_ALL_NODES", "0|1",
           "start when all nodes are ready"),
        _o("wckey", r, v.word("wckey"), "", "WCKEY", "name", "characterisation key"),
        _o("wrap", r, v.word("wrap"), "", "", "command", "make a script of this command",
           where=NOT_IN_SCRIPT),
    )  # fmt: skip
    return rows


#: every option, by long name in alphabetical order
OPTIONS: tuple[Option, ...] = _build()
BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_SHORT: dict[str, Option] = {option.short: option for option in OPTIONS if option.short}


def apply(
    options: Options, said: list[tuple[Option, str | None]], origin: int, context: v.Context
) -> None:
    """Sets what `said` says, in order: the last of several wins. Raises Refusal."""
    for option, text in said:
        option.set(options, text or "", context)
        options.origin[option.name] = origin
        if not option.effect:
            options.ignored.append(f"--{option.name}")


def from_environment(
    options: Options,
    env: Mapping[str, str],
    prefix: str,
    context: v.Context,
    table: Iterable[Option] = OPTIONS,
) -> None:
    """Sets what the environment says (SBATCH_TIMELIMIT=5 ...). Raises Refusal.

    A variable for an option without argument counts when it is empty, "yes" or a number other
    than 0.
    """
    # Most environments have none of a hundred names.
    names, said = _variables(prefix, table)
    there = names.intersection(env)
    for option, variables in said if there else ():
        for name in variables:
            if name not in there:
                continue
            text = env[name]
            if option.argument == NONE and not _affirmed(text):
                continue
            apply(options, [(option, text)], ENVIRONMENT, context)
            break
    debug = env.get(prefix + "DEBUG")
    if debug is not None:
        v.verbosity(options, debug, context)
    wait = env.get(prefix + "WAIT4SWITCH")
    if wait is not None:
        v.wait_for_switches(options, wait, context)


_Variables = tuple[frozenset[str], list[tuple[Option, list[str]]]]
#: of all options, by prefix
_known_variables: dict[str, _Variables] = {}


def _variables(prefix: str, table: Iterable[Option]) -> _Variables:
    """The variables that options have, all together and of each option in their order."""
    if table is OPTIONS and prefix in _known_variables:
        return _known_variables[prefix]
    said = [
        (option, [name[1:] if name[0] == "/" else prefix + name for name in option.env])
        for option in table
        if option.env
    ]
    found = frozenset(name for _, variables in said for name in variables), said
    if table is OPTIONS:
        _known_variables[prefix] = found
    return found


def _affirmed(text: str) -> bool:
    if text in {"", "yes"}:
        return True
    try:
        return int(text) != 0
    except ValueError:
        return False


__all__ = [
    "ANYWHERE",
    "BY_NAME",
    "BY_SHORT",
    "COMMAND_LINE",
    "NONE",
    "NOT_IN_SCRIPT",
    "OPTIONAL",
    "OPTIONS",
    "REQUIRED",
    "Option",
    "Refusal",
    "apply",
    "from_environment",
    "row",
]
