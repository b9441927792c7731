"""The environment of a batch script: what was submitted, what --export leaves, Slurm's own.

Names and values are bytes: a user's environment need not be text in any encoding.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from gsched import topology
from gsched.config import Config
from gsched.hostlist import compress
from gsched.model import Job, NodeAlloc, Shape
from gsched.rawtext import to_bytes
from gsched.taskset import TaskSet, TaskSetError

#: a job without a limit "ends" after a year, as in Slurm
YEAR_S = 365 * 86400

_SLUID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_EXCLUSIVE = {0: "NO", 1: "NODE", 2: "USER", 3: "MCS", 4: "TOPO"}

#: so that mpirun of the usual families starts its remote parts through Slurm
LAUNCHERS = {
    "HYDRA_BOOTSTRAP": "slurm",
    "HYDRA_LAUNCHER_EXTRA_ARGS": "--external-launcher",
    "I_MPI_HYDRA_BOOTSTRAP": "slurm",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "--external-launcher",
    "OMPI_MCA_plm_slurm_args": "--external-launcher",
    "PRTE_MCA_plm_slurm_args": "--external-launcher",
}

#: what an sbatch run inside another job inherits of that one's allocation and must not pass on
_OF_ANOTHER_JOB = (
    b"SLURM_ARRAY_",
    b"SLURM_CPU",
    b"SLURM_DISTRIBUTION",
    b"SLURM_GPU",
    b"SLURM_HET_",
    b"SLURM_JOB",
    b"SLURM_LAUNCH_",
    b"SLURM_MEM_",
    b"SLURM_NNODES",
    b"SLURM_NODE",
    b"SLURM_NPROCS",
    b"SLURM_NTASKS",
    b"SLURM_OVERCOMMIT",
    b"SLURM_PACK_",
    b"SLURM_PROCID",
    b"SLURM_RESTART_COUNT",
    b"SLURM_SHARDS_ON_NODE",
    b"SLURM_SRUN_",
    b"SLURM_STEP",
    b"SLURM_TASK",
    b"SLURM_THREADS_PER_CORE",
    b"SLURM_TRES_",
    b"SLURMD_",
    b"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=",
    b"CUDA_VISIBLE_DEVICES=",
    b"GPU_DEVICE_ORDINAL=",
    b"ROCR_VISIBLE_DEVICES=",
    b"ZE_AFFINITY_MASK=",
)
#: of those, what sbatch itself sets for the new job
_OF_THE_SUBMISSION = (b"SLURM_JOB_NAME=",)


def sluid(cluster: str, milliseconds: int, sequence: int) -> str:
    """A job's lasting id, 14 characters: "s" and, in Crockford's base 32, 12 bits of the cluster,
    42 of the time (ms since the epoch) and 10 of a sequence number within that millisecond."""
    number = (
        (zlib.crc32(cluster.encode()) & 0xFFF) << 52
        | (milliseconds & (1 << 42) - 1) << 10
        | sequence & 0x3FF
    )
    digits = [_SLUID_DIGITS[number >> 5 * place & 31] for place in range(12, -1, -1)]
    return "s" + "".join(digits)


def repeats(counts: Iterable[int]) -> str:
    """Slurm's short form of one number per node: [6, 2] is "6,2", [2, 2, 2] is "2(x3)"."""
    groups: list[list[int]] = []
    for count in counts:
        if groups and groups[-1][0] == count:
            groups[-1][1] += 1
        else:
            groups.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)


# ---- --export --------------------------------------------------------------------------------


def export_items(export: str) -> list[str]:
    """The items of an --export list; commas inside quotes do not separate, outer quotes go."""
    items: list[str] = []
    quote = ""
    item: list[str] = []
    for char in export:
        if quote:
            if char == quote:
                quote = ""
            else:
                item.append(char)
        elif char in "'\"":
            quote = char
        elif char == ",":
            items.append("".join(item))
            item = []
        else:
            item.append(char)
    items.append("".join(item))
    return [text for text in items if text]


def is_plain_export(export: str) -> bool:
    """True for the default: everything, and nothing said about it in the environment."""
    return export.upper() in ("", "ALL")


def wants_login(export: str) -> bool:
    """True when the job starts from the user's login environment on the node: NONE and lists
    without ALL, but not NIL."""
    if is_plain_export(export) or export.upper() == "NIL":
        return False
    return all(item.upper() != "ALL" for item in export_items(export))


def parse(environment: bytes) -> dict[bytes, bytes]:
    """NUL-separated NAME=value to a dict; the first of a doubled name counts, as for getenv."""
    result: dict[bytes, bytes] = {}
    for item in environment.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and name:
            result.setdefault(name, value)
    return result


def exported(
    submitted: Mapping[bytes, bytes], export: str, login: Mapping[bytes, bytes] | None = None
) -> dict[bytes, bytes]:
    """What --export lets through of the submitted environment; SLURM_* always come along. What
    was filtered before stays as it is. `login` is the base where `wants_login`."""
    if is_plain_export(export):
        return dict(submitted)
    items = [] if export.upper() in ("NONE", "NIL") else export_items(export)
    everything = any(item.upper() == "ALL" for item in items)
    if everything:
        result = dict(submitted)
    else:
        result = dict(login or {})
        for name, value in submitted.items():
            if name.startswith((b"SLURM_", b"SPANK_")):
                result[name] = value
    for item in items:
        name_text, equals, value_text = item.partition("=")
        name = to_bytes(name_text)
        if equals:
            # With ALL, what the submitter's environment has goes before what the list says.
            if not (everything and name in submitted):
                result[name] = to_bytes(value_text)
        elif name in submitted:
            result[name] = submitted[name]
    return result


# ---- Slurm's own variables --------------------------------------------------------------------


def _gpu_count(text: str) -> str:
    """How the options spell a TRES text: "gres/gpu:h100:2" is "h100:2"."""
    items = [item.removeprefix("gres/") for item in text.split(",")]
    items = [item.removeprefix("gpu") for item in items if item.startswith("gpu")]
    return ",".join(item.removeprefix(":").removeprefix("=").replace("=", ":") for item in items)


def _tasks(job: Job) -> dict[str, str]:
    """What the options said about tasks and CPUs."""
    shape = job.spec.shape
    result: dict[str, str] = {}
    ntasks = shape.ntasks
    if not ntasks and shape.ntasks_per_node:
        ntasks = shape.ntasks_per_node * len(job.alloc)
    if not ntasks and shape.ntasks_per_gpu:
        ntasks = shape.ntasks_per_gpu * sum(part.whole_gpus for part in job.alloc)
    if ntasks:
        result["SLURM_NTASKS"] = result["SLURM_NPROCS"] = str(ntasks)
        result["SLURM_TASKS_PER_NODE"] = repeats(part.tasks for part in job.alloc)
    else:
        # Nothing said: as many as there are CPUs for.
        each = max(1, shape.cpus_per_task)
        result["SLURM_TASKS_PER_NODE"] = repeats(max(1, part.cpus // each) for part in job.alloc)
    return result | ratios(shape)


def ratios(shape: Shape) -> dict[str, str]:
    """What was said of tasks, CPUs and threads for each of something."""
    said = {
        "SLURM_NTASKS_PER_NODE": shape.ntasks_per_node,
        "SLURM_NTASKS_PER_SOCKET": shape.ntasks_per_socket,
        "SLURM_NTASKS_PER_CORE": shape.ntasks_per_core,
        "SLURM_NTASKS_PER_GPU": shape.ntasks_per_gpu,
        "SLURM_THREADS_PER_CORE": shape.threads_per_core,
        "SLURM_CPUS_PER_GPU": shape.cpus_per_gpu,
        "SLURM_CPUS_PER_TASK": shape.cpus_per_task if shape.cpus_per_task_set else 0,
    }
    return {name: str(value) for name, value in said.items() if value}


def _memory(job: Job, config: Config) -> dict[str, str]:
    shape = job.spec.shape
    per_gpu, per_cpu, per_node = shape.mem_per_gpu, shape.mem_per_cpu, shape.mem_per_node
    if per_gpu is None and per_cpu is None and per_node is None:
        if any(part.whole_gpus for part in job.alloc):
            per_gpu = config.def_mem_gpu(job.partition)
        default = config.def_mem(job.partition) if per_gpu is None else None
        if default is not None:
            per_cpu = default[1] if default[0] == "cpu" else None
            per_node = default[1] if default[0] == "node" else None
    # 0 is "all there is": no number is given then.
    if per_gpu:
        return {"SLURM_MEM_PER_GPU": str(per_gpu)}
    if per_cpu:
        return {"SLURM_MEM_PER_CPU": str(per_cpu)}
    if per_node:
        return {"SLURM_MEM_PER_NODE": str(per_node)}
    return {}


def gpus_asked(job: Job) -> dict[str, str]:
    """What the GPU options said, in their own words."""
    shape, tres = job.spec.shape, job.spec.tres
    result: dict[str, str] = {}

    def say(name: str, scope: str, count: int) -> None:
        kind = f"{shape.gpu_type}:" if shape.gpu_type else ""
        result[name] = _gpu_count(tres[scope]) if tres.get(scope) else f"{kind}{count}"

    if shape.gpus_total:
        say("SLURM_GPUS", "per_job", shape.gpus_total)
    # --gres=gpu:2 means the same but leaves no variable: it is kept under a name of its own.
    if shape.gpus_per_node and "gres" not in tres:
        say("SLURM_GPUS_PER_NODE", "per_node", shape.gpus_per_node)
    if shape.gpus_per_socket:
        say("SLURM_GPUS_PER_SOCKET", "per_socket", shape.gpus_per_socket)
    for name, scope in (("SLURM_TRES_PER_TASK", "per_task"), ("SLURM_TRES_BIND", "bind")):
        if tres.get(scope):
            result[name] = tres[scope]
    if job.spec.gpu_freq:
        result["SLURM_GPU_FREQ"] = job.spec.gpu_freq
    return result


def array_indices(text: str) -> list[int]:
    """The indices of an --array text, ascending: "1,3,5-9:2%2" is [1, 3, 5, 7, 9]. [] for what
    cannot be read: the text was checked at submission."""
    try:
        return list(TaskSet.asked(text)[0])
    except TaskSetError:
        return []


def array_variables(job: Job) -> dict[str, str]:
    """SLURM_ARRAY_* of a task; {} for any other job."""
    if not job.array_job_id or job.array_task_id < 0:
        return {}
    indices = array_indices(job.spec.array) or [job.array_task_id]
    gaps = {b - a for a, b in pairwise(indices)}
    return {
        "SLURM_ARRAY_JOB_ID": str(job.array_job_id),
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_ID": str(job.array_task_id),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        # Two indices make no step yet: "2,4" has a step of 1 (as Slurm shows it).
        "SLURM_ARRAY_TASK_STEP": str(gaps.pop() if len(gaps) == 1 and len(indices) > 2 else 1),
    }


#: variables of a component that the script of a heterogeneous job sees with the number of the
#: component behind their names, besides those that the options about tasks, memory and GPUs make
_OF_COMPONENT = (
    *("SLURM_JOB_ACCOUNT", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_ID", "SLURM_JOB_NAME"),
    *("SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS"),
    *("SLURM_JOB_RESERVATION", "SLURM_DISTRIBUTION"),
)


def component_variables(components: Sequence[Job], config: Config, now: int) -> dict[str, str]:
    """SLURM_HET_SIZE and NAME_HET_GROUP_n, also under the older name PACK, of a started
    heterogeneous job. Cost: O(nodes) of each component."""
    if len(components) < 2:
        return {}
    result = {"SLURM_HET_SIZE": str(len(components)), "SLURM_PACK_SIZE": str(len(components))}
    for number, job in enumerate(components):
        own = job_variables(job, 0, config, now)
        shown = {name: own[name] for name in _OF_COMPONENT if name in own}
        shown |= _tasks(job) | _memory(job, config) | gpus_asked(job)
        for name, value in shown.items():
            result[f"{name}_HET_GROUP_{number}"] = value
            result[f"{name}_PACK_GROUP_{number}"] = value
    return result


def usable_cpus(job: Job, part: NodeAlloc, config: Config) -> int:
    """CPUs of a share that tasks may use: with --threads-per-core not all threads of a core."""
    node, most = config.nodes.get(part.node), job.spec.shape.threads_per_core
    if node is None or not most or node.threads_per_core <= most:
        return part.cpus
    return part.cpus // node.threads_per_core * most


def job_variables(job: Job, index: int, config: Config, now: int) -> dict[str, str]:
    """The SLURM_* variables of the batch script on node `index` of the allocation. `now` (epoch
    seconds) is the start where the job does not say it. Cost: O(nodes of the job)."""
    spec = job.spec
    part = job.alloc[index]
    nodes = compress([share.node for share in job.alloc])
    start = job.start_time or now
    job_id = str(job.id)
    count = str(len(job.alloc))
    address, pattern = topology.address(config, part.node)
    result = {
        **LAUNCHERS,
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": part.node,
        "SLURMD_NODENAME": part.node,
        "SLURM_CLUSTER_NAME": config.cluster_name,
        "SLURM_CONF": config.path,
        "SLURM_CPUS_ON_NODE": str(usable_cpus(job, part, config)),
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": job_id,
        "SLURM_JOB_CPUS_PER_NODE": repeats(usable_cpus(job, share, config) for share in job.alloc),
        "SLURM_JOB_END_TIME": str(start + (job.time_limit or YEAR_S)),
        "SLURM_JOB_EXCLUSIVE": _EXCLUSIVE.get(spec.shape.exclusive, "NO"),
        "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_ID": job_id,
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_OVERSUBSCRIBE": "YES" if spec.shape.oversubscribe else "NO",
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_QOS": spec.qos or "normal",
        "SLURM_JOB_SLUID": job.sluid or sluid(config.cluster_name, job.submit_time * 1000, job.id),
        "SLURM_JOB_START_TIME": str(start),
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_USER": job.user,
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": count,
        "SLURM_NODEID": str(index),
        "SLURM_NODELIST": nodes,
        "SLURM_OOM_KILL_STEP": "0",
        "SLURM_PROCID": "0",
        "SLURM_STEPID": "-5",
        "SLURM_STEP_ID": "-5",
        "SLURM_TOPOLOGY_ADDR": address,
        "SLURM_TOPOLOGY_ADDR_PATTERN": pattern,
    }
    for name, value in (
        ("SLURM_JOB_ACCOUNT", spec.account),
        ("SLURM_JOB_RESERVATION", job.reservation or spec.reservation),
        ("SLURM_JOB_DEPENDENCY", spec.dependency),
        ("SLURM_JOB_LICENSES", spec.licenses),
        ("SLURM_DISTRIBUTION", spec.distribution),
        ("SLURM_RESTART_COUNT", str(job.restarts) if job.restarts else ""),
        ("GSCHED_RESTART_REASON", job.restart_reason if job.restarts else ""),
        ("SLURM_EXPORT_ENV", "" if is_plain_export(spec.export) else spec.export),
    ):
        if value:
            result[name] = value
    result.update(_tasks(job))
    result.update(_memory(job, config))
    result.update(gpus_asked(job))
    result.update(array_variables(job))
    return result


def batch_environment(
    job: Job,
    index: int,
    config: Config,
    submitted: bytes,
    *,
    now: int,
    gpus: Mapping[str, str] | None = None,
    login: Mapping[bytes, bytes] | None = None,
    components: Sequence[Job] = (),
) -> dict[bytes, bytes]:
    """The whole environment of the batch script on node `index` of the allocation.

    `submitted`: NUL-separated NAME=value; `gpus`: what binding says about the node's GPUs
    (CUDA_VISIBLE_DEVICES, SLURM_JOB_GPUS ...); `login`: the user's login environment, for jobs
    that start from it (`wants_login`) or asked for it. SLURM_TASK_PID is not in it: only the
    supervisor knows it. Cost: one dict entry per variable.
    """
    # Compared as "NAME=", so that a prefix may end a name.
    source = parse(submitted)
    if b"SLURM_JOB_ID" in source:
        source = {
            name: value
            for name, value in source.items()
            if not (name + b"=").startswith(_OF_ANOTHER_JOB)
            or (name + b"=").startswith(_OF_THE_SUBMISSION)
        }
    result = exported(source, job.spec.export, login)
    if job.spec.get_user_env and login:
        # What the submitter had set goes before what the login says.
        result = {**login, **result}
    result.setdefault(b"TMPDIR", b"/tmp")
    result.setdefault(b"SLURM_SUBMIT_DIR", to_bytes(job.spec.work_dir))
    result.setdefault(b"SLURM_SUBMIT_HOST", job.spec.alloc_node.encode())
    result.setdefault(b"SLURM_PRIO_PROCESS", b"0")
    own = job_variables(job, index, config, now)
    if components:
        # What each component asked for is told by its number alone.
        own = {name: value for name, value in own.items() if name not in gpus_asked(job)}
        own |= component_variables(components, config, now)
    if gpus:
        own.update(gpus)
    for name, value in own.items():
        result[name.encode()] = to_bytes(value)
    return result
