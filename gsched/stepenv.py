"""The environment of the tasks of a step, and of the shell of salloc.

A task's environment is srun's own, as --export lets it through, then what srun says about the job
and the step, then what the node knows. Names and values are bytes, as a user's need not be text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gsched import topology
from gsched.config import Config
from gsched.distribution import parse_distribution
from gsched.environment import (
    LAUNCHERS,
    YEAR_S,
    exported,
    gpus_asked,
    parse,
    ratios,
    repeats,
    sluid,
    usable_cpus,
)
from gsched.hostlist import compress
from gsched.model import Job, NodeAlloc, Step
from gsched.model.step import Callback, StepSpec
from gsched.rawtext import to_bytes
from gsched.taskcpus import parse_cpu_bind

#: of a step's GPUs: said anew for each step, and not passed on to one without GPUs
_OF_GPUS = (
    b"CUDA_VISIBLE_DEVICES",
    b"GPU_DEVICE_ORDINAL",
    b"ROCR_VISIBLE_DEVICES",
    b"SLURM_GPUS_ON_NODE",
    b"SLURM_STEP_GPUS",
    b"ZE_AFFINITY_MASK",
)

#: what -E leaves as the client has it
_PRESERVED = (
    b"SLURM_JOB_NUM_NODES",
    b"SLURM_NNODES",
    b"SLURM_NPROCS",
    b"SLURM_NTASKS",
    b"SLURM_TASKS_PER_NODE",
)


def step_environment(
    job: Job,
    step: Step,
    spec: StepSpec,
    index: int,
    config: Config,
    submitted: bytes,
    callback: Callback,
    components: Sequence[Job] = (),
) -> tuple[dict[bytes, bytes], list[dict[bytes, bytes]]]:
    """What all tasks of node `index` of the step share, and what is each task's own beyond that.

    `submitted`: the client's environment, NUL-separated NAME=value. `job` leads the step's job,
    `components` are all components of a heterogeneous one. Not in it: which GPUs a task has
    (slurmd_compat/binding.py), SLURM_TASK_PID and the variables of PMI, which the supervisor knows.
    Cost: nodes of the job and of the step, tasks of the node.
    """
    source = parse(submitted)
    result = exported(source, spec.export)
    if "gpu" in config.gres_types:
        for old in _OF_GPUS:
            result.pop(old, None)
    inside = b"SLURM_JOB_ID" in source or job.spec.interactive != "srun"
    for name, text in _defaults(job, spec).items():
        result.setdefault(name.encode(), to_bytes(text))
    own = {
        **_of_job(job, config, _parts_of(job, step, components)),
        **_of_options(spec, step, inside),
        **_of_step(step, spec, callback),
        **_of_node(step, index, config),
    }
    if _passes_all(spec.export):
        own["SRUN_DEBUG"] = str(3 + spec.verbose - (1 if spec.quiet else 0))
    for name, text in own.items():
        result[name.encode()] = to_bytes(text)
    if spec.preserve_env:
        result |= {name: source[name] for name in _PRESERVED if name in source}
    tasks = []
    for local, task in enumerate(step.nodes[index].tasks):
        mine = {b"SLURM_LOCALID": b"%d" % local, b"SLURM_PROCID": b"%d" % task}
        if not local and b"TMPDIR" not in result:
            # Only the first one, as in Slurm.
            mine[b"TMPDIR"] = config.tmp_fs.encode()
        tasks.append(mine)
    return result, tasks


def _passes_all(export: str) -> bool:
    """Whether srun's own variables without SLURM_ in front come along."""
    items = [item.upper() for item in export.split(",")]
    return "ALL" in items or export == ""


def _parts_of(job: Job, step: Step, components: Sequence[Job]) -> list[NodeAlloc]:
    """The allocation as the step sees it: of a heterogeneous job that of its components."""
    offsets = {node.het_offset for node in step.nodes}
    mine = [part for part in components if part.het_offset in offsets]
    if not mine:
        return job.alloc
    return [part for component in mine for part in component.alloc]


def _defaults(job: Job, spec: StepSpec) -> dict[str, str]:
    """What is only said where the client's environment does not."""
    return {
        **LAUNCHERS,
        "SLURM_JOB_NAME": job.spec.name,
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_SUBMIT_DIR": job.spec.work_dir if job.spec.interactive else spec.cwd,
        "SLURM_SUBMIT_HOST": job.spec.alloc_node or spec.client_host,
        "SLURM_UMASK": f"{spec.umask:04o}",
    }


def _of_job(job: Job, config: Config, parts: Sequence[NodeAlloc]) -> dict[str, str]:
    nodes = compress([part.node for part in parts])
    job_id = str(job.het_job_id or job.id)
    found = {
        "SLURM_CLUSTER_NAME": config.cluster_name,
        "SLURM_CONF": config.path,
        "SLURM_JOBID": job_id,
        "SLURM_JOB_CPUS_PER_NODE": repeats(usable_cpus(job, part, config) for part in parts),
        "SLURM_JOB_END_TIME": str(job.start_time + (job.time_limit or YEAR_S)),
        "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_GROUP": job.group,
        "SLURM_JOB_ID": job_id,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(len(parts)),
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_QOS": job.spec.qos or "normal",
        "SLURM_JOB_SLUID": job.sluid or sluid(config.cluster_name, job.submit_time * 1000, job.id),
        "SLURM_JOB_START_TIME": str(job.start_time),
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_USER": job.user,
        "SLURM_NODELIST": nodes,
        "SLURM_OOM_KILL_STEP": "0",
    }
    for name, text in (
        ("SLURM_JOB_ACCOUNT", job.spec.account),
        ("SLURM_JOB_RESERVATION", job.reservation or job.spec.reservation),
    ):
        if text:
            found[name] = text
    return found


def _of_options(spec: StepSpec, step: Step, inside: bool) -> dict[str, str]:
    """What the options of srun leave behind. `inside` a job."""
    found: dict[str, str] = {}
    program = spec.argv[0].rpartition("/")[2] if spec.argv else ""
    if inside and spec.name and spec.name != program:
        found["SLURM_JOB_NAME"] = spec.name
    how = parse_distribution(spec.distribution)
    if spec.distribution:
        found["SLURM_DISTRIBUTION"] = how.text
        if how.plane:
            found["SLURM_DIST_PLANESIZE"] = str(how.plane)
    elif inside:
        found["SLURM_DISTRIBUTION"] = "block" if step.ntasks > len(step.nodes) else "cyclic"
    if spec.cpus_per_task:
        found["SLURM_CPUS_PER_TASK"] = str(spec.cpus_per_task)
        found["SLURM_TRES_PER_TASK"] = f"cpu={spec.cpus_per_task}"
    if spec.tres_per_task:
        found["SLURM_TRES_PER_TASK"] = spec.tres_per_task
    threads = spec.threads_per_core or (1 if spec.hint == "nomultithread" else 0)
    for name, value in (
        ("SLURM_NTASKS_PER_NODE", spec.ntasks_per_node),
        ("SLURM_NTASKS_PER_SOCKET", spec.ntasks_per_socket),
        ("SLURM_NTASKS_PER_CORE", spec.ntasks_per_core),
        ("SLURM_NTASKS_PER_GPU", spec.ntasks_per_gpu),
        ("SLURM_THREADS_PER_CORE", threads),
        ("SLURM_OVERCOMMIT", int(spec.overcommit)),
        ("SLURM_LABELIO", int(spec.label)),
    ):
        if value:
            found[name] = str(value)
    if spec.mpi:
        found["SLURM_MPI_TYPE"] = spec.mpi
    if spec.cpu_freq:
        found["SLURM_CPU_FREQ_REQ"] = spec.cpu_freq.capitalize()
    found |= _binding(spec)
    return found


def _binding(spec: StepSpec) -> dict[str, str]:
    """SLURM_CPU_BIND and SLURM_MEM_BIND with their parts."""
    found: dict[str, str] = {}
    try:
        bind = parse_cpu_bind(spec.cpu_bind)
    except ValueError:
        bind = parse_cpu_bind("")
    kind = bind.kind
    if not kind and (spec.threads_per_core or spec.hint == "nomultithread"):
        kind = "threads"
    elif not kind and spec.ntasks_per_core:
        kind = "cores"
    elif not kind and spec.ntasks_per_socket:
        kind = "sockets"
    if kind:
        said = "verbose" if bind.verbose else "quiet"
        colon = ":" if bind.text else ""
        found["SLURM_CPU_BIND"] = f"{said},{kind}{colon}{bind.text}"
        found["SLURM_CPU_BIND_LIST"] = bind.text
        found["SLURM_CPU_BIND_TYPE"] = f"{kind}{colon}"
        found["SLURM_CPU_BIND_VERBOSE"] = said
    if spec.mem_bind:
        items = spec.mem_bind.split(",")
        said = "verbose" if {"v", "verbose"} & {item.lower() for item in items} else "quiet"
        rest = [item for item in items if item.lower() not in ("v", "verbose", "q", "quiet")]
        kind, colon, listed = ",".join(rest).partition(":")
        if kind:
            found["SLURM_MEM_BIND"] = ",".join([said, *rest])
            found["SLURM_MEM_BIND_LIST"] = listed
            found["SLURM_MEM_BIND_TYPE"] = f"{kind}{colon}"
            found["SLURM_MEM_BIND_VERBOSE"] = said
    return found


def _of_step(step: Step, spec: StepSpec, callback: Callback) -> dict[str, str]:
    nodes = compress([node.node for node in step.nodes])
    per_node = repeats(len(node.tasks) for node in step.nodes)
    count, ntasks, step_id = str(len(step.nodes)), str(step.ntasks), str(step.id & 0xFFFFFFFF)
    port = str(callback.port)
    return {
        "SLURMD_DEBUG": "2",
        "SLURM_LAUNCH_NODE_IPADDR": callback.host,
        "SLURM_NNODES": count,
        "SLURM_NPROCS": ntasks,
        "SLURM_NTASKS": ntasks,
        "SLURM_SRUN_COMM_HOST": callback.host,
        "SLURM_SRUN_COMM_PORT": port,
        "SLURM_STEPID": step_id,
        "SLURM_STEP_ID": step_id,
        "SLURM_STEP_LAUNCHER_PORT": port,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_STEP_NUM_TASKS": ntasks,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_TASKS_PER_NODE": per_node,
    }


def _of_node(step: Step, index: int, config: Config) -> dict[str, str]:
    node = step.nodes[index]
    address, pattern = topology.address(config, node.node)
    return {
        "SLURMD_NODENAME": node.node,
        "SLURM_CPUS_ON_NODE": str(node.alloc.cpus),
        "SLURM_GTIDS": ",".join(str(task) for task in node.tasks),
        "SLURM_NODEID": str(index),
        "SLURM_TOPOLOGY_ADDR": address,
        "SLURM_TOPOLOGY_ADDR_PATTERN": pattern,
    }


# ---- salloc ------------------------------------------------------------------------------------


def salloc_environment(job: Job, config: Config, components: Sequence[Job] = ()) -> dict[str, str]:
    """What the shell of salloc is told besides its own environment: not SLURM_CONF, the file has
    another path where salloc runs. Cost: nodes of the job."""
    found = _salloc(job, config)
    if len(components) > 1:
        found["SLURM_HET_SIZE"] = found["SLURM_PACK_SIZE"] = str(len(components))
        shared = ("SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST")
        for number, component in enumerate(components):
            for name, text in _salloc(component, config).items():
                if name.startswith("SLURM_") and name not in shared:
                    found[f"{name}_HET_GROUP_{number}"] = text
                    found[f"{name}_PACK_GROUP_{number}"] = text
    return found


def _salloc(job: Job, config: Config) -> dict[str, str]:
    spec, shape = job.spec, job.spec.shape
    nodes = compress([part.node for part in job.alloc])
    job_id, count = str(job.id), str(len(job.alloc))
    found = {
        **LAUNCHERS,
        "SLURM_CLUSTER_NAME": config.cluster_name,
        "SLURM_JOBID": job_id,
        "SLURM_JOB_CPUS_PER_NODE": repeats(usable_cpus(job, part, config) for part in job.alloc),
        "SLURM_JOB_ID": job_id,
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_QOS": spec.qos or "normal",
        "SLURM_NNODES": count,
        "SLURM_NODELIST": nodes,
        "SLURM_SUBMIT_DIR": spec.work_dir,
        "SLURM_SUBMIT_HOST": spec.alloc_node,
    }
    ntasks = shape.ntasks or shape.ntasks_per_node * len(job.alloc)
    if ntasks:
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(ntasks)
        found["SLURM_TASKS_PER_NODE"] = repeats(part.tasks for part in job.alloc)
    else:
        each = max(1, shape.cpus_per_task)
        found["SLURM_TASKS_PER_NODE"] = repeats(max(1, part.cpus // each) for part in job.alloc)
    texts: Mapping[str, str] = {
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_RESERVATION": job.reservation or spec.reservation,
        "SLURM_GPU_BIND": spec.gpu_bind,
        "SLURM_HINT": spec.hint,
        "SLURM_NETWORK": spec.network,
        "SLURM_CPU_FREQ_REQ": spec.cpu_freq.capitalize(),
    }
    found |= {name: text for name, text in texts.items() if text}
    found |= ratios(shape)
    if shape.overcommit:
        found["SLURM_OVERCOMMIT"] = "1"
    found |= _memory_asked(job, config)
    if spec.distribution:
        how = parse_distribution(spec.distribution)
        found["SLURM_DISTRIBUTION"] = how.text
        if how.plane:
            found["SLURM_DIST_PLANESIZE"] = str(how.plane)
    found |= gpus_asked(job)
    return found


def _memory_asked(job: Job, config: Config) -> dict[str, str]:
    """What an option said of memory: not what the cluster gives to jobs that say nothing."""
    shape = job.spec.shape
    default = config.def_mem(job.partition)
    given = {"cpu": shape.mem_per_cpu, "node": shape.mem_per_node, "gpu": shape.mem_per_gpu}
    if given["gpu"] == config.def_mem_gpu(job.partition):
        del given["gpu"]
    if default is not None and given[default[0]] == default[1]:
        del given[default[0]]
    return {f"SLURM_MEM_PER_{kind.upper()}": str(size) for kind, size in given.items() if size}
