"""What allocation options mean together: from what was said to a JobSpec, with Slurm's rules.

`Options` holds the value of every option, parsed one by one and not yet put together. `finish`
applies the rules between options (which exclude each other, what one implies for another) and
makes the JobSpec. `admission.validate` repeats on the controller what does not need to be
believed. Everything here is pure: no clock, no files, no names looked up.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gsched import hostlist
from gsched.errors import message
from gsched.gres import (
    WITH_AND_WITHOUT_TYPE,
    GpuRequest,
    GresError,
    NothingNamed,
    parse_gpus,
    parse_gres,
    parse_tres_per_task,
)
from gsched.gres import (
    per_task as per_task_request,
)
from gsched.model import Alternative, JobSpec, Shape

if TYPE_CHECKING:
    from gsched.admission import Problem
    from gsched.config import Config

__all__ = ["Finished", "Options", "Refusal", "finish", "next_component", "validate"]

#: where an option was said; a later source overrides an earlier one
SCRIPT, ENVIRONMENT, COMMAND_LINE = 0, 1, 2

NICE_OFFSET_LIMIT = 2147483645


class Refusal(Exception):
    """A request that cannot be made into a job: sentences for the user and the exit code.

    `kind` "error" or "fatal" is the word Slurm puts before the sentences; "controller" one that
    Slurm's controller refuses, which each command tells with words of its own.
    """

    def __init__(self, *lines: str, code: int = 1, kind: str = "error", remark: str = "") -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.code = code
        self.kind = kind
        #: a line that Slurm prints bare, before the sentences
        self.remark = remark
        #: what had been remarked on before it was refused
        self.warnings: tuple[str, ...] = ()


class Options(msgspec.Struct):
    """Values of the allocation options; names as in JobSpec and Shape where they mean the same."""

    # who and where
    job_name: str | None = None
    account: str = ""
    qos: str = ""
    partition: str = ""
    reservation: str = ""
    wckey: str = ""
    clusters: str = ""
    uid: int | None = None
    gid: int | None = None
    # when
    time_limit: int | None = None
    time_min: int | None = None
    begin: int = 0
    deadline: int = 0
    nice: int = 0
    priority: int | None = None
    hold: bool = False
    requeue: bool | None = None
    dependency: str = ""
    kill_on_invalid_dep: bool | None = None
    array: str = ""
    delay_boot: int = 0
    reboot: bool = False
    signal_num: int = 0
    signal_before: int = 60
    signal_batch: bool = False
    # how much
    nodes: tuple[int, int] | None = None
    ntasks: int = 0
    ntasks_per_node: int = 0
    ntasks_per_socket: int = 0
    ntasks_per_core: int = 0
    ntasks_per_gpu: int = 0
    cpus_per_task: int = 0
    mincpus: int = 0
    mem: int | None = None
    mem_per_cpu: int | None = None
    mem_per_gpu: int | None = None
    tmp: int = 0
    gres: str | None = None
    gpus: str | None = None
    gpus_per_node: str | None = None
    gpus_per_task: str | None = None
    gpus_per_socket: str | None = None
    tres_per_task: str | None = None
    cpus_per_gpu: int = 0
    sockets_per_node: int = 0
    cores_per_socket: int = 0
    threads_per_core: int = 0
    #: tasks implied by -B, used when -n is not given
    implied_ntasks: int = 0
    core_spec: int = 0
    thread_spec: int = 0
    #: -1 not said; else as Shape.exclusive, with 3 for --oversubscribe
    shared: int = -1
    overcommit: bool = False
    # which
    constraint: str = ""
    prefer: str = ""
    batch_features: str = ""
    cluster_constraint: str = ""
    nodelist: str = ""
    nodefile: str = ""
    exclude: str = ""
    contiguous: bool = False
    spread_job: bool = False
    use_min_nodes: bool = False
    segment: int = 0
    switches: int = 0
    switch_wait: int = 0
    licenses: str = ""
    network: str = ""
    no_kill: bool = False
    # how tasks lie
    distribution: str = ""
    hint: str = ""
    gpu_bind: str = ""
    gpu_freq: str = ""
    cpu_freq: str = ""
    mem_bind: str = ""
    tres_bind: str = ""
    gres_flags: str = ""
    # files and words
    std_in: str = ""
    std_out: str = ""
    std_err: str = ""
    open_mode: str = ""
    chdir: str = ""
    comment: str = ""
    admin_comment: str = ""
    extra: str = ""
    mail_type: int = 0
    mail_user: str = ""
    container: str = ""
    #: the image that script and tasks run in, what of the node it sees, and where they start in it
    container_image: str = ""
    container_mounts: list[str] = []
    container_workdir: str = ""
    power: str = ""
    burst_buffer: str = ""
    wait_all_nodes: int | None = None
    # the environment of the job
    export: str = ""
    export_file: str = ""
    get_user_env: bool = False
    propagate: str = ""
    # the command itself
    wrap: str | None = None
    parsable: bool = False
    quiet: bool = False
    verbose: int = 0
    wait: bool = False
    test_only: bool = False
    ignore_pbs: bool = False
    #: options that have no effect in this release, in the order given
    ignored: list[str] = []
    #: option (its long name) -> where it was said last
    origin: dict[str, int] = {}


#: options of a component of a heterogeneous job that do not hold for the next one: what and how
#: much it wants; the others (names, times, files, words) are said once for all
_OF_ONE_COMPONENT = (
    *("partition", "nodes", "ntasks", "implied_ntasks", "ntasks_per_node", "ntasks_per_socket"),
    *("ntasks_per_core", "ntasks_per_gpu", "cpus_per_task", "mincpus", "mem_per_cpu"),
    *("mem_per_gpu", "tmp", "gres", "gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket"),
    *("tres_per_task", "cpus_per_gpu", "sockets_per_node", "cores_per_socket"),
    *("threads_per_core", "core_spec", "thread_spec", "shared", "constraint", "prefer"),
    *("batch_features", "nodelist", "nodefile", "contiguous", "spread_job", "use_min_nodes"),
    "segment",
    *("switches", "switch_wait", "licenses", "network", "gpu_bind", "gpu_freq", "tres_bind"),
    *("gres_flags", "mail_type", "mail_user"),
)


def next_component(options: Options) -> None:
    """Forgets what was said for one component of a heterogeneous job alone."""
    fresh = Options()
    for name in _OF_ONE_COMPONENT:
        setattr(options, name, getattr(fresh, name))
        options.origin.pop(name.replace("_", "-"), None)


class Finished(NamedTuple):
    """A request put together: its spec and remarks for the user."""

    spec: JobSpec
    warnings: tuple[str, ...] = ()


def finish(options: Options) -> Finished:
    """The JobSpec for `options`; raises Refusal with Slurm's sentences where they contradict.

    Fields that only the submitting process knows (work_dir, command, umask, ...) keep their
    defaults. Cost: one pass over the values; host lists are expanded.
    """
    warnings: list[str] = []
    exclusions(options)
    try:
        shape = _shape(options, warnings)
        found = [_gpus(each, shape, warnings) for each in _each_choice(options)]
    except Refusal as problem:
        problem.warnings = () if options.quiet else tuple(warnings)
        raise
    gpus = found[0]
    spec = JobSpec(
        name=job_name(options.job_name) if options.job_name is not None else "",
        shape=gpus.shape,
        partitions=tuple(filter(None, options.partition.split(","))),
        account=options.account,
        qos=options.qos,
        time_limit=options.time_limit,
        time_min=options.time_min,
        begin=options.begin,
        deadline=options.deadline,
        nice=options.nice,
        priority=options.priority,
        # Priority 0 is how Slurm spells "held".
        hold=options.hold or options.priority == 0,
        requeue=options.requeue,
        reboot=options.reboot,
        std_in=options.std_in,
        std_out=options.std_out,
        std_err=options.std_err,
        open_mode=options.open_mode,
        comment=options.comment,
        admin_comment=options.admin_comment,
        wckey=options.wckey,
        dependency=options.dependency,
        array=options.array,
        reservation=options.reservation,
        licenses=options.licenses,
        mail_type=options.mail_type,
        mail_user=options.mail_user,
        signal_num=options.signal_num,
        signal_before=options.signal_before,
        signal_batch=options.signal_batch,
        export=options.export or "ALL",
        get_user_env=options.get_user_env,
        tres=gpus.tres,
        alternatives=tuple(Alternative(*each) for each in found) if len(found) > 1 else (),
        kill_on_node_fail=not options.no_kill,
        spread=options.spread_job,
        network=options.network,
        switches=options.switches,
        switch_wait=options.switch_wait,
        distribution=options.distribution,
        core_spec=options.core_spec,
        thread_spec=options.thread_spec,
        hint=options.hint,
        gpu_bind=options.gpu_bind,
        gpu_freq=options.gpu_freq,
        cpu_freq=options.cpu_freq,
        mem_bind=options.mem_bind,
        kill_on_invalid_dep=options.kill_on_invalid_dep,
        extra=options.extra,
        container=options.container,
        container_image=options.container_image,
        container_mounts=",".join(options.container_mounts),
        container_workdir=options.container_workdir,
        prefer=options.prefer,
        batch_features=options.batch_features,
        power=options.power,
        burst_buffer=options.burst_buffer,
        cluster_features=options.cluster_constraint,
        delay_boot=options.delay_boot,
        wait_all_nodes=options.wait_all_nodes,
        ignored=tuple(dict.fromkeys(options.ignored)),
    )
    return Finished(spec, tuple(warnings))


def validate(
    spec: JobSpec, config: Config, script: bytes = b"", environment: bytes = b""
) -> Problem | None:
    """What the controller finds wrong with a decoded submission: `admission.validate`."""
    # Imported late: the command line pays for the types of the configuration only when it asks.
    from gsched import admission

    return admission.validate(spec, config, script, environment)


def job_name(text: str) -> str:
    """A job name as Slurm keeps it: double quotes become back quotes, so that SQL is safe."""
    return text.replace('"', "`")


def exclusions(options: Options) -> None:
    """Options that cannot stand together; the command line silences the environment."""
    memory = {
        name: options.origin.get(name, COMMAND_LINE)
        for name, value in (
            ("mem", options.mem),
            ("mem-per-cpu", options.mem_per_cpu),
            ("mem-per-gpu", options.mem_per_gpu),
        )
        if value is not None
    }
    if COMMAND_LINE in memory.values():
        for name in [name for name, origin in memory.items() if origin == ENVIRONMENT]:
            del memory[name]
            if name == "mem":
                options.mem = None
            elif name == "mem-per-cpu":
                options.mem_per_cpu = None
            else:
                options.mem_per_gpu = None
    if len(memory) > 1:
        raise Refusal(
            "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", kind="fatal"
        )
    if options.gpus_per_task is not None and options.ntasks_per_gpu:
        raise Refusal(
            "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
            kind="fatal",
        )
    if options.verbose and options.quiet:
        raise Refusal("don't specify both --verbose (-v) and --quiet (-Q)")


def _names(option: str, text: str) -> tuple[str, ...]:
    try:
        # Duplicates mean nothing for a set of nodes.
        return tuple(dict.fromkeys(hostlist.expand(text)))
    except hostlist.HostlistError as error:
        raise Refusal(f"Invalid --{option} specification: {error}") from None


def _shape(options: Options, warnings: list[str]) -> Shape:
    """Nodes, tasks, CPUs and memory; GPUs are added by `_gpus`."""
    nodelist = _names("nodelist", options.nodelist)
    if options.nodelist and not nodelist:
        raise Refusal(message("ESLURM_INVALID_NODE_COUNT"), kind="controller")
    exclude = _names("exclude", options.exclude)
    min_nodes, max_nodes, nodes_set = 1, 0, False
    if options.nodes is not None:
        min_nodes, max_nodes = options.nodes
        nodes_set = True
    ntasks = options.ntasks
    if not ntasks and options.implied_ntasks:
        ntasks = options.implied_ntasks
        warnings.append(f"Number of tasks implicitly set to {ntasks}.")
    if options.ntasks and nodes_set and min_nodes > ntasks:
        warnings.append(
            f"can't run {ntasks} processes on {min_nodes} nodes, setting nnodes to {ntasks}"
        )
        min_nodes = max_nodes = ntasks
    elif ntasks and nodes_set and max_nodes > ntasks:
        max_nodes = ntasks
    if len(nodelist) > min_nodes:
        # All named nodes are wanted, however few nodes were asked for.
        min_nodes = len(nodelist)
        max_nodes = max(max_nodes, min_nodes) if max_nodes else 0
    return Shape(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        nodes_set=nodes_set,
        ntasks=ntasks,
        ntasks_per_node=options.ntasks_per_node,
        cpus_per_task=options.cpus_per_task or 1,
        cpus_per_task_set=options.cpus_per_task > 0,
        min_cpus_node=options.mincpus,
        mem_per_node=options.mem,
        mem_per_cpu=options.mem_per_cpu,
        mem_per_gpu=options.mem_per_gpu,
        exclusive=options.shared if options.shared in (1, 2) else 0,
        features=options.constraint,
        nodelist=nodelist,
        exclude=exclude,
        cpus_per_gpu=options.cpus_per_gpu,
        tmp_disk_mb=options.tmp,
        contiguous=options.contiguous,
        spread=options.spread_job,
        use_min_nodes=options.use_min_nodes,
        segment=options.segment,
        sockets_per_node=options.sockets_per_node,
        cores_per_socket=options.cores_per_socket,
        threads_per_core=options.threads_per_core,
        ntasks_per_socket=options.ntasks_per_socket,
        ntasks_per_core=options.ntasks_per_core,
        ntasks_per_gpu=options.ntasks_per_gpu,
        oversubscribe=options.shared == 3,
        overcommit=options.overcommit,
        prefer=options.prefer,
        gres_binding=_binding(options),
        one_island="one-island" in options.gres_flags.split(","),
    )


def _binding(options: Options) -> int:
    """Shape.gres_binding; what is said last counts."""
    found = 0
    for flag in options.gres_flags.split(","):
        found = {"enforce-binding": 1, "disable-binding": 2}.get(flag, found)
    return found


class _Gpus(NamedTuple):
    shape: Shape
    tres: dict[str, str]


#: options in which "|" stands between requests any of which will do
_WITH_CHOICES = ("gpus", "gpus_per_node", "gpus_per_task", "gres")
#: so many of them a job may give
_MOST_CHOICES = 8


def _each_choice(options: Options) -> list[Options]:
    """The same options for each of the alternatives that one of them may give."""
    with_some = [name for name in _WITH_CHOICES if "|" in (getattr(options, name) or "")]
    if not with_some:
        return [options]
    name = with_some[0]
    texts = getattr(options, name).split("|")
    if len(with_some) > 1 or len(texts) > _MOST_CHOICES or not all(texts):
        raise Refusal(
            f"Alternatives (|) may stand in one GPU option, at most {_MOST_CHOICES} of them",
            message("ESLURM_INVALID_GRES"),
        )
    found = []
    for text in texts:
        found.append(copy.copy(options))
        setattr(found[-1], name, text)
    return found


def _gpus(options: Options, shape: Shape, warnings: list[str]) -> _Gpus:
    """The GPU forms, each read, compared with each other, and laid into the shape."""
    try:
        return _read_gpus(options, shape)
    except NothingNamed as error:
        raise Refusal(str(error), kind="controller") from None
    except GresError as error:
        raise Refusal(str(error)) from None


def _per_task(options: Options) -> tuple[int, GpuRequest | None]:
    """CPUs and GPUs per task, from --tres-per-task and --gpus-per-task (which wins)."""
    cpus, gpus = 0, None
    if options.tres_per_task is not None:
        cpus, gpus = parse_tres_per_task(options.tres_per_task)
    if options.gpus_per_task is not None:
        asked = parse_gpus(options.gpus_per_task)
        gpus = per_task_request(list(asked.kinds or ((asked.type, asked.count),)))
    return cpus, gpus


def _read_gpus(options: Options, shape: Shape) -> _Gpus:
    total = parse_gpus(options.gpus) if options.gpus is not None else None
    gres = parse_gres(options.gres) if options.gres is not None else None
    per_node = parse_gpus(options.gpus_per_node) if options.gpus_per_node is not None else None
    if per_node is not None and gres is not None and gres.count:
        raise Refusal("--gpus-per-node and --gres=gpu are mutually exclusive.", kind="fatal")
    if per_node is None:
        per_node = gres
    per_socket = (
        parse_gpus(options.gpus_per_socket) if options.gpus_per_socket is not None else None
    )
    task_cpus, per_task = _per_task(options)
    parts = gres if gres is not None and gres.share else None
    if parts is not None:
        # A GPU is given whole or in parts, and the clock of one that is shared is nobody's.
        if any(form and form.count for form in (total, per_task, per_socket)) or options.gpu_freq:
            raise Refusal(message("ESLURM_INVALID_GRES"))
        shape = _replace(shape, share=parts.share, share_count=parts.count, gpu_type=parts.type)
        per_node = None
    if task_cpus and not shape.cpus_per_task_set:
        shape = _replace(shape, cpus_per_task=task_cpus, cpus_per_task_set=True)

    asked = [form for form in (total, per_node, per_task, per_socket) if form and form.count]
    types = {kind for form in asked for kind, _ in form.kinds or ((form.type, 0),)}
    if "" in types and len(types) > 1:
        raise Refusal(WITH_AND_WITHOUT_TYPE)
    kinds = _kinds(types, total, per_node, per_task, per_socket)
    ntasks = _consistent(options, shape, total, per_node, per_task, per_socket)

    tres: dict[str, str] = {}
    if total and total.count:
        tres["per_job"] = total.shown
    if per_node and per_node.count:
        tres["per_node"] = per_node.shown
        if per_node is gres:
            # Shown alike, but --gres leaves no SLURM_GPUS_PER_NODE behind.
            tres["gres"] = per_node.shown
    if parts is not None:
        tres["per_node"] = tres["gres"] = parts.shown
    if gres is not None and gres.counted:
        shape = _replace(shape, counted=gres.counted)
        if per_node is not None and per_node is not gres and per_node.count:
            tres["per_node"] = f"{per_node.shown},{gres.shown}"
        else:
            tres["per_node"] = tres["gres"] = gres.shown
    if per_socket and per_socket.count:
        tres["per_socket"] = per_socket.shown
    words = []
    if shape.cpus_per_task_set:
        words.append(f"cpu={shape.cpus_per_task}")
    if per_task and per_task.count:
        words.append(per_task.shown)
    bind = options.tres_bind or (f"gres/gpu:{options.gpu_bind}" if options.gpu_bind else "")
    if not bind and per_task and per_task.count:
        # Without another wish each task sees only its own GPUs.
        bind = f"gres/gpu:per_task:{per_task.count}"
    if bind:
        tres["bind"] = bind
    if words:
        tres["per_task"] = ",".join(words)
    return _Gpus(
        _replace(
            shape,
            ntasks=ntasks,
            gpus_total=total.count if total else 0,
            gpus_per_node=per_node.count if per_node else 0,
            gpus_per_task=per_task.count if per_task else 0,
            gpus_per_socket=per_socket.count if per_socket else 0,
            gpu_type="" if kinds else types.pop() if types else shape.gpu_type,
            gpu_kinds=kinds,
        ),
        tres,
    )


def _kinds(
    types: set[str],
    total: GpuRequest | None,
    per_node: GpuRequest | None,
    per_task: GpuRequest | None,
    per_socket: GpuRequest | None,
) -> tuple[tuple[str, int, int, int], ...]:
    """(type, per node, per task, in all) of each type, where there are several."""
    if len(types) < 2:
        return ()
    forms = [form for form in (per_node, per_task, total, per_socket) if form and form.count]
    if len(forms) > 1 or forms[0] is per_socket:
        raise Refusal(
            "GPUs of several types are asked for per node, per task or in all: in one of the ways",
            message("ESLURM_INVALID_GRES"),
        )
    rows = []
    for kind in sorted(types):
        node, task, all_ = (form.of(kind) if form else 0 for form in (per_node, per_task, total))
        rows.append((kind, node, task, all_))
    return tuple(rows)


def _replace(shape: Shape, **changes: object) -> Shape:
    return msgspec.structs.replace(shape, **changes)


def _consistent(
    options: Options,
    shape: Shape,
    total: GpuRequest | None,
    per_node: GpuRequest | None,
    per_task: GpuRequest | None,
    per_socket: GpuRequest | None,
) -> int:
    """Checks the GPU forms against each other and the tasks; returns the number of tasks."""
    invalid = message("ESLURM_INVALID_GRES")
    gpus = total.count if total else 0
    node = per_node.count if per_node else 0
    task = per_task.count if per_task else 0
    socket = per_socket.count if per_socket else 0
    ntasks = shape.ntasks
    if socket and not options.sockets_per_node:
        raise Refusal("--gpus-per-socket option requires --sockets-per-node specification", invalid)
    if options.cpus_per_gpu and options.cpus_per_task:
        raise Refusal("--cpus-per-gpu is mutually exclusive with --cpus-per-task", invalid)
    if shape.mem_per_gpu and not (gpus or node or task or socket):
        raise Refusal(
            f"Requested mem_per_tres=gres/gpu:{shape.mem_per_gpu} but did not request any GPU.",
            invalid,
        )
    if task:
        if gpus:
            if gpus % task:
                raise Refusal(
                    "Failed to validate job spec, --gpus not multiple of --gpus-per-task", invalid
                )
            if ntasks and ntasks != gpus // task:
                raise Refusal(
                    "Failed to validate job spec. Based on --gpus and --gpus-per-task number of "
                    "requested tasks differ from -n/--ntasks.",
                    invalid,
                )
            ntasks = gpus // task
        elif not ntasks:
            if not shape.ntasks_per_node:
                raise Refusal(
                    "Failed to validate job spec. --gpus-per-task or --tres-per-task used "
                    "without either --gpus or -n/--ntasks is not allowed.",
                    invalid,
                )
            ntasks = shape.ntasks_per_node * shape.min_nodes
    if gpus and node:
        if gpus % node:
            raise Refusal(
                "Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node",
                invalid,
            )
        needed = gpus // node
        if shape.nodes_set and not shape.min_nodes <= needed <= shape.max_nodes:
            raise Refusal(
                "Failed to validate job spec. Based on --gpu and --gres=gpu/--gpus-per-node "
                f"required nodes ({needed}) doesn't fall between min_nodes ({shape.min_nodes}) "
                f"and max_nodes ({shape.max_nodes}) boundaries.",
                invalid,
            )
    elif gpus and shape.nodes_set and gpus < shape.min_nodes:
        # Every node of a job with --gpus has one at least.
        raise Refusal("Failed to validate job spec, --gpus < -N", invalid)
    if shape.ntasks_per_gpu:
        if ntasks and not (gpus or node or socket) and ntasks % shape.ntasks_per_gpu:
            raise Refusal(
                "Failed to validate job spec, -n/--ntasks has to be a multiple of "
                "--ntasks-per-gpu.",
                invalid,
            )
        if not (gpus or node or socket or ntasks or shape.nodes_set):
            raise Refusal(
                "gres_job_state_validate: --ntasks-per-tres needs either a GRES GPU "
                "specification or a node/ntask specification",
                invalid,
            )
        if not ntasks and gpus:
            ntasks = gpus * shape.ntasks_per_gpu
        elif not ntasks and node:
            ntasks = node * shape.min_nodes * shape.ntasks_per_gpu
    return ntasks
