"""From the options of srun to a StepSpec, and to what its client does with standard input, output
and error."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gsched import hostlist
from gsched.errors import message
from gsched.gres import GresError, NothingNamed, parse_gpus, parse_gres, parse_tres_per_task
from gsched.request import COMMAND_LINE, ENVIRONMENT, Refusal, exclusions, job_name
from gsched_cli.launch_values import LaunchOptions
from gsched_cli.plan import OWN

if TYPE_CHECKING:
    from gsched.gres import GpuRequest
    from gsched.model.step import StepSpec

NULL = "/dev/null"
#: symbols whose values differ between the tasks of a step: such a file is opened on the node
_ON_NODE = re.compile(r"%[0-9]*[tnN]")
_SYMBOL = re.compile(r"%([0-9]*)([%AajJsux])")


class Files(NamedTuple):
    """Where a step's standard streams go: for the client, and for the nodes."""

    #: as the plan has them: "-", a path (still a pattern), or for input "" (none)
    client_in: str = OWN
    client_out: str = OWN
    client_err: str = OWN
    node_in: str = ""
    node_out: str = ""
    node_err: str = ""
    stdin_task: int = -1
    stdout_task: int = -1
    stderr_task: int = -1


def files(options: LaunchOptions, ntasks: int, cwd: str, node_cwd: str) -> Files:
    """`ntasks` 0: not known. Names are relative to `cwd` where the client opens them."""
    from gsched.model.step import ALL_TASKS, NO_TASK

    result = Files()
    kind, value = _kind(options.std_in, ntasks)
    if kind == "none":
        result = result._replace(client_in="", stdin_task=NO_TASK)
    elif kind == "task":
        result = result._replace(stdin_task=int(value))
    elif kind == "node":
        result = result._replace(client_in="", node_in=_joined(node_cwd, value), stdin_task=NO_TASK)
    elif kind == "file":
        result = result._replace(client_in=_joined(cwd, value), stdin_task=ALL_TASKS)
    error = options.std_err or options.std_out
    for which, name in (("out", options.std_out), ("err", error)):
        kind, value = _kind(name, ntasks)
        if kind == "none":
            result = result._replace(**{f"node_{which}": NULL})
        elif kind == "task":
            result = result._replace(**{f"std{which}_task": int(value)})
        elif kind == "node":
            result = result._replace(**{f"node_{which}": _joined(node_cwd, value)})
        elif kind == "file":
            result = result._replace(**{f"client_{which}": _joined(cwd, value)})
    return result


def _kind(name: str, ntasks: int) -> tuple[str, str]:
    """("all" | "none" | "task" | "node" | "file", its value)"""
    if not name or name.lower() == "all":
        return "all", ""
    if name.lower() == "none":
        return "none", ""
    if re.fullmatch(r"[0-9]{1,9}", name) and (not ntasks or int(name) < ntasks):
        return "task", name
    if "\\" not in name and _ON_NODE.search(name):
        return "node", name
    return "file", name


def _joined(cwd: str, name: str) -> str:
    return name if name.startswith("/") else posixpath.join(cwd, name)


def expanded(pattern: str, job_id: int, step: int | None, user: str, name: str) -> str:
    """A file of the client's with its symbols replaced; what is not known yet stays as it is."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    values: dict[str, str | None] = {
        "%": "%",
        "A": str(job_id),
        "a": "4294967294",
        "j": str(job_id),
        "J": None if step is None else f"{job_id}.{step}",
        "s": None if step is None else str(step),
        "u": user,
        "x": name,
    }

    def symbol(found: re.Match[str]) -> str:
        width, letter = found.groups()
        value = values[letter]
        if value is None or (letter in "Aaj" and not job_id):
            return found[0]
        return value.zfill(min(int(width), 10)) if width and letter in "AajJs" else value

    return _SYMBOL.sub(symbol, pattern)


def names(option: str, text: str) -> list[str]:
    try:
        return list(hostlist.expand(text))
    except hostlist.HostlistError as error:
        raise Refusal(f"Invalid --{option} specification: {error}") from None


def step_spec(
    options: LaunchOptions, argv: Sequence[str], cwd: str, umask: int, warnings: list[str]
) -> StepSpec:
    """What is asked of the agent; raises Refusal where options contradict each other.

    `warnings` takes sentences for the user. What belongs to the process (rlimits, host, files) is
    left to the caller.
    """
    from gsched.model.step import StepSpec

    exclusions(options)
    spec = StepSpec(job_id=options.jobid, argv=list(argv), cwd=cwd, umask=umask)
    spec.name = job_name(options.job_name or posixpath.basename(argv[0] if argv else ""))
    _size(spec, options, warnings)
    _gpus(spec, options)
    spec.mem_per_node = options.mem
    spec.mem_per_cpu = options.mem_per_cpu
    spec.mem_per_gpu = options.mem_per_gpu
    spec.overlap = options.overlap
    spec.exact = options.exact or options.shared in (1, 2)
    spec.exclusive = options.shared in (1, 2)
    spec.whole = options.whole
    spec.overcommit = options.overcommit
    spec.threads_per_core = options.threads_per_core
    spec.hint = options.hint
    spec.distribution = options.distribution
    spec.cpu_bind = options.cpu_bind
    spec.mem_bind = options.mem_bind
    spec.gres_flags = options.gres_flags
    spec.time_limit = options.time_limit
    spec.immediate = options.immediate
    spec.kill_on_bad_exit = options.kill_on_bad_exit
    spec.wait = options.wait_time
    spec.no_kill = options.no_kill
    spec.label = options.label
    spec.unbuffered = options.unbuffered
    spec.pty = options.pty
    spec.quiet = options.quiet
    spec.verbose = options.verbose
    spec.append = options.open_mode == "append"
    spec.export = options.export or "ALL"
    spec.task_prolog = options.task_prolog
    spec.task_epilog = options.task_epilog
    spec.mpi = options.mpi or ""
    spec.signal_num = options.signal_num
    spec.signal_before = options.signal_before
    spec.het_group = options.het_group
    spec.network = options.network
    spec.preserve_env = options.preserve_env
    spec.origin = "salloc" if options.interactive else ""
    spec.quit_on_interrupt = options.quit_on_interrupt
    spec.disable_status = options.disable_status
    spec.container = options.container
    spec.container_image = options.container_image
    spec.container_mounts = ",".join(options.container_mounts)
    spec.container_workdir = options.container_workdir
    spec.cpu_freq = options.cpu_freq
    spec.gpu_freq = options.gpu_freq
    return spec


def _size(spec: StepSpec, options: LaunchOptions, warnings: list[str]) -> None:
    """Nodes, tasks and CPUs."""
    spec.ntasks = options.ntasks
    if options.nodes is not None:
        spec.min_nodes, spec.max_nodes = options.nodes
    if spec.ntasks and spec.min_nodes > spec.ntasks:
        warnings.append(
            f"can't run {spec.ntasks} processes on {spec.min_nodes} nodes, "
            f"setting nnodes to {spec.ntasks}"
        )
        spec.min_nodes = spec.max_nodes = spec.ntasks
    spec.nodelist = names("nodelist", options.nodelist)
    if options.nodelist and not spec.nodelist:
        raise Refusal("Hostlist is empty!  Can not run job.")
    spec.exclude = names("exclude", options.exclude)
    spec.relative = options.relative
    spec.ntasks_per_node = options.ntasks_per_node
    spec.ntasks_per_socket = options.ntasks_per_socket
    spec.ntasks_per_core = options.ntasks_per_core
    spec.ntasks_per_gpu = options.ntasks_per_gpu
    spec.cpus_per_task = options.cpus_per_task
    spec.cpus_per_gpu = options.cpus_per_gpu


def _gpus(spec: StepSpec, options: LaunchOptions) -> None:
    """The GPU forms. -G on the command line silences those that the job's environment has."""
    if options.origin.get("gpus") == COMMAND_LINE:
        for name in ("gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"):
            if options.origin.get(name) == ENVIRONMENT:
                setattr(options, name.replace("-", "_"), None)
    try:
        _read_gpus(spec, options)
    except NothingNamed as error:
        raise Refusal(f"Unable to create step for job {spec.job_id}: {error}") from None
    except GresError as error:
        raise Refusal(str(error)) from None
    spec.gpu_bind = options.gpu_bind
    spec.tres_per_task = options.tres_per_task or ""
    spec.gpus_set = any(
        options.origin.get(name) == COMMAND_LINE
        for name in (
            *("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"),
            "tres-per-task",
        )
    )


def _read_gpus(spec: StepSpec, options: LaunchOptions) -> None:
    gres = _gres(spec, options)
    per_node = parse_gpus(options.gpus_per_node) if options.gpus_per_node is not None else None
    if per_node is not None and options.gres is not None and _names_gpus(options.gres):
        raise Refusal("--gpus-per-node and --gres=gpu are mutually exclusive.", kind="fatal")
    found: list[GpuRequest] = []

    def count(form: GpuRequest | None) -> int:
        if form is None or not form.count:
            return 0
        found.append(form)
        return form.count

    spec.gpus_per_node = count(per_node or gres)
    spec.gpus_total = count(parse_gpus(options.gpus) if options.gpus is not None else None)
    spec.gpus_per_socket = count(
        parse_gpus(options.gpus_per_socket) if options.gpus_per_socket is not None else None
    )
    if options.tres_per_task is not None:
        cpus, gpus = parse_tres_per_task(options.tres_per_task)
        if cpus and not spec.cpus_per_task:
            spec.cpus_per_task = cpus
        spec.gpus_per_task = count(gpus)
    if options.gpus_per_task is not None:
        spec.gpus_per_task = count(parse_gpus(options.gpus_per_task))
    spec.gpu_type = next((form.type for form in found if form.type), "")
    forms = (options.gpus, options.gpus_per_node, options.gpus_per_socket, options.gpus_per_task)
    if not found and any(form is not None for form in forms):
        # --gpus=0
        spec.no_gpus = True
    if spec.no_gpus:
        spec.gpus_per_node = spec.gpus_total = spec.gpus_per_socket = spec.gpus_per_task = 0


def _names_gpus(text: str) -> bool:
    return any(re.split(r"[:=]", item)[0].rpartition("/")[2] == "gpu" for item in text.split(","))


def known_gres(text: str, types: Sequence[str]) -> None:
    """Refuses resources that the cluster does not have."""
    for item in filter(None, text.split(",")):
        name = re.split(r"[:=]", item)[0].removeprefix("gres/")
        if name not in {"none", *types}:
            raise Refusal(message("ESLURM_INVALID_GRES"))


def _gres(spec: StepSpec, options: LaunchOptions) -> GpuRequest | None:
    """--gres; "none" and a count of 0 are a step without GPUs."""
    if options.gres is None:
        return None
    if options.gres.lower() == "none":
        spec.no_gpus = True
        return None
    request = parse_gres(options.gres)
    if request.share:
        # Parts of a GPU: the step has those of its job.
        return None
    if not request.count and (_names_gpus(options.gres) or request.counted):
        spec.no_gpus = True
    return request


def environment(env: Mapping[str, str], export: str) -> dict[str, str]:
    """The client's variables that its tasks get."""
    from gsched_cli import environ

    return environ.chosen(env, export)
