"""From a node's share of a step to the order of its supervisor (docs/design.md, section 7)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from gsched import patterns
from gsched.bits import bits
from gsched.config import Config
from gsched.cpuset import format_cpu_list, parse_cpu_list
from gsched.model import Job, StepNode
from gsched.model.step import StepSpec
from gsched.multiprog import multi_prog
from gsched.rawtext import to_bytes
from gsched.stepenv import step_environment
from gsched.taskbind import gpu_bind_of
from gsched.taskcpus import binds, parse_cpu_bind
from gsched.wire.steps import LaunchStep
from slurmd_compat import containers, pmix
from slurmd_compat.binding import list_text
from slurmd_compat.failure import LaunchError
from slurmd_compat.launcher import Grant, site_hooks

#: --mpi types that the supervisor serves itself
_SERVED = ("pmi2", "pmi1")
#: those that a server of libpmix serves, where it was built
_PMIX = ("pmix", "pmix_v4")

Order = list[tuple[str, str | bytes | int]]


def step_order(
    launch: LaunchStep,
    job: Job,
    config: Config,
    node: str,
    grant: Grant,
    *,
    owner: tuple[int, int],
    groups: str,
    rlimits: Sequence[tuple[str, str]],
    limit_s: int = 0,
    private: Callable[[], str] | None = None,
) -> Order:
    """The records of the order. `owner`: uid and gid that the tasks get; `groups`: their groups as
    the supervisor takes them, "" as they are; `limit_s`: seconds until it ends them, 0 never;
    `private` makes a directory for what the step's user alone may read.

    Raises LaunchError for what cannot be started. Cost: nodes and tasks of the step.
    """
    spec, step = launch.spec, launch.step
    share = step.nodes[launch.index]
    leader = next((part for part in launch.components if not part.het_offset), job)
    shared, own = step_environment(
        leader,
        step,
        spec,
        launch.index,
        config,
        launch.environment,
        launch.callback,
        launch.components,
    )
    masks = _masks(launch, config, node, grant)
    shared |= _packed(grant.variables | _bound(launch, config, masks))
    image = containers.of_step(spec)
    containers.say(image, shared)
    items: Order = [("arg", arg) for arg in containers.entered(image, config, spec.argv)]
    items += [
        ("uid", owner[0]),
        ("gid", owner[1]),
        ("umask", f"{spec.umask:o}"),
        ("cwd", spec.cwd),
        ("openmode", "append" if _appends(spec, config) else "truncate"),
        ("limit", limit_s),
        ("killwait", config.kill_wait),
        ("label", f"STEP {step.job_id}.{step.id} ON {node}"),
        ("pid_env", "SLURM_TASK_PID"),
        ("ntasks", step.ntasks),
        ("nnodes", len(step.nodes)),
        ("stdin_task", spec.stdin_task),
    ]
    if launch.callback.port:
        items += [
            ("io", f"{launch.callback.host}:{launch.callback.port}"),
            ("io_secret", launch.callback.secret.hex()),
        ]
    items.append(("io_index", launch.index))
    if spec.pty:
        items.append(("pty", "1"))
    if groups:
        items.append(("groups", groups))
    items += _pmi(launch, config, private)
    items += _hooks(spec, config)
    items += rlimits
    items += [("cgroup_procs", path) for path in grant.cgroup_procs]
    items += [("cgroup_kill", path) for path in grant.cgroup_kill]
    items += [("env", name + b"=" + value) for name, value in shared.items()]
    programs = [containers.entered(image, config, argv) for argv in _programs(launch)]
    for local, task in enumerate(share.tasks):
        items.append(("task", task))
        if programs:
            items += [("targ", arg) for arg in programs[local]]
        mine = own[local]
        if local < len(launch.task_gpus):
            mine |= _packed(grant.of_gpus(launch.task_gpus[local]))
        items += [("tenv", name + b"=" + value) for name, value in mine.items()]
        items += _cpus(launch, local, grant)
        items += _note(launch, local, node, masks)
        items += _files(launch, leader, node, task)
    return items


def _packed(variables: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): to_bytes(value) for name, value in variables.items()}


def _appends(spec: StepSpec, config: Config) -> bool:
    return spec.append or config.raw.get("jobfileappend", "0") == "1"


def _programs(launch: LaunchStep) -> list[list[str]]:
    """The program and arguments of each task here with --multi-prog; [] one for all."""
    spec = launch.spec
    if not spec.multi_prog:
        return []
    name = spec.argv[0] if spec.argv else ""
    try:
        tasks = launch.step.nodes[launch.index].tasks
        found = multi_prog(spec.multi_prog, launch.step.ntasks, name, tasks)
    except ValueError as error:
        raise LaunchError(str(error)) from None
    # What follows the file on the command line comes after the file's own arguments.
    return [[*argv, *spec.argv[1:]] for argv in found]


def _pmi(launch: LaunchStep, config: Config, private: Callable[[], str] | None) -> Order:
    kind = (launch.spec.mpi or config.raw.get("mpidefault", "none")).lower()
    step = launch.step
    if kind in _PMIX and private is not None:
        server = pmix.program()
        if server is None:
            raise LaunchError("PMIx is not there: it was built without libpmix")
        return [
            ("pmi_jobid", f"{step.job_id}.{step.id}"),
            ("pmix", str(server)),
            ("pmix_dir", private()),
            (
                "pmix_nodes",
                "\n".join(f"{n.node} {','.join(map(str, n.tasks))}" for n in step.nodes),
            ),
        ]
    if kind not in _SERVED:
        return []
    return [
        ("pmi", 2),
        ("pmi_jobid", f"{step.job_id}.{step.id}"),
        ("pmi_mapping", process_mapping(step.nodes)),
    ]


def process_mapping(nodes: Sequence[StepNode]) -> str:
    """Where each rank runs, as PMI says it: "(vector,(first node, nodes, ranks on each),...)"."""
    place = {task: index for index, node in enumerate(nodes) for task in node.tasks}
    #: runs of ranks on one node: node, how many
    runs: list[list[int]] = []
    for task in sorted(place):
        if runs and runs[-1][0] == place[task]:
            runs[-1][1] += 1
        else:
            runs.append([place[task], 1])
    #: blocks of nodes one after the other with as many ranks each
    blocks: list[list[int]] = []
    for node, count in runs:
        last = blocks[-1] if blocks else None
        if last and last[2] == count and node == last[0] + last[1]:
            last[1] += 1
        else:
            blocks.append([node, 1, count])
    return f"(vector,{','.join(f'({first},{number},{each})' for first, number, each in blocks)})"


def _hooks(spec: StepSpec, config: Config) -> Order:
    """The programs that run before and after each task."""
    found: Order = list(site_hooks(config))
    for key, path in (
        ("user_task_prolog", spec.task_prolog),
        ("user_task_epilog", spec.task_epilog),
    ):
        if path:
            found.append((key, os.path.join(spec.cwd, path)))
    return found


def _masks(launch: LaunchStep, config: Config, node: str, grant: Grant) -> list[int]:
    """The CPUs of each task here, or of all of them together; [] where tasks are not bound. In the
    machine's numbers where it has the CPUs."""
    share = launch.step.nodes[launch.index].alloc
    if node not in config.nodes or not binds(config) or not share.cpu_words:
        return []
    masks = []
    for text in launch.task_cpus or [format_cpu_list(share.cpu_ids)]:
        mask = sum(1 << cpu for cpu in parse_cpu_list(text))
        found = grant.machine_cpus(mask)
        masks.append(mask if found is None else sum(1 << cpu for cpu in found))
    return masks


def _bound(launch: LaunchStep, config: Config, masks: Sequence[int]) -> dict[str, str]:
    """SLURM_CPU_BIND with the masks, as wide as the node has CPUs."""
    bind = parse_cpu_bind(launch.spec.cpu_bind)
    if not masks or bind.kind == "none":
        return {}
    digits = -(-config.nodes[launch.step.nodes[launch.index].node].cpus // 4)
    said = "verbose" if bind.verbose else "quiet"
    listed = ",".join(f"0x{mask:0{digits}X}" for mask in masks)
    return {
        "SLURM_CPU_BIND": f"{said},mask_cpu:{listed}",
        "SLURM_CPU_BIND_LIST": listed,
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_CPU_BIND_VERBOSE": said,
    }


#: how the lines of --cpu-bind=verbose call the kinds of binding; MASK for the others
_KINDS = {
    "none": "NONE",
    "rank": "RANK",
    "map_cpu": "MAP ",
    "rank_ldom": "LDRANK",
    "map_ldom": "LDMAP ",
    "mask_ldom": "LDMASK",
}


def _note(launch: LaunchStep, local: int, node: str, masks: Sequence[int]) -> Order:
    """The lines of --cpu-bind=verbose and --gpu-bind=verbose for a task."""
    share = launch.step.nodes[launch.index]
    text = ""
    bind = parse_cpu_bind(launch.spec.cpu_bind)
    if bind.verbose and masks:
        mask = masks[local] if local < len(masks) else masks[0]
        shown = "0x0" if bind.kind == "none" else f"0x{mask:x} set"
        text = (
            f"cpu-bind={_KINDS.get(bind.kind, 'MASK')} - {node}, "
            f"task {share.tasks[local]:2d} {local:2d} []: mask {shown}\n"
        )
    if local < len(launch.task_gpus) and gpu_bind_of(launch.spec).verbose:
        mine = launch.task_gpus[local]
        listed = ",".join(str(bit) for bit in bits(mine))
        text += (
            f"gpu-bind: usable_gres=0x{mine:x}; bit_alloc=0x{share.alloc.gpus:x}; "
            f"local_inx=0; global_list={listed}; local_list={listed}\n"
        )
    return [("tnote", text)] if text else []


def _cpus(launch: LaunchStep, local: int, grant: Grant) -> Order:
    """The machine's CPUs for a task's own; none where the machine has them not."""
    if local >= len(launch.task_cpus):
        return []
    wanted = sum(1 << cpu for cpu in parse_cpu_list(launch.task_cpus[local]))
    found = grant.machine_cpus(wanted) if wanted else None
    return [("tcpus", list_text(found))] if found else []


def _files(launch: LaunchStep, job: Job, node: str, task: int) -> Order:
    """Where a task's standard streams lie on the node; without a name they go to the client."""
    spec = launch.spec

    def place(pattern: str) -> str:
        if not pattern:
            return ""
        name = patterns.expand(
            pattern, job, node, launch.index, step=str(launch.step.id), task=task
        )
        return os.path.join(spec.cwd, name)

    output, error = place(spec.std_out), place(spec.std_err)
    # The output of the others goes nowhere.
    if spec.stdout_task >= 0 and task != spec.stdout_task:
        output = os.devnull
    if spec.stderr_task >= 0 and task != spec.stderr_task:
        error = os.devnull
    return [("tstdin", place(spec.std_in)), ("tstdout", output), ("tstderr", error)]
