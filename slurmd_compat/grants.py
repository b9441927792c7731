"""What an attempt is given on this node: its GPUs by name, cgroups that hold it to its share."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gsched import gpushare
from gsched.config import Config
from gsched.hostlist import compress
from gsched.model import NodeAlloc
from gsched.model.step import BATCH_STEP, INTERACTIVE_STEP, StepNode
from gsched.wire.nodes import LaunchSpec
from slurmd_compat import binding, cgroups, leftovers, notices
from slurmd_compat.agent import Key
from slurmd_compat.cgroups import CgroupHandle
from slurmd_compat.failure import LaunchError
from slurmd_compat.inventory import Inventory
from slurmd_compat.launcher import Grant

#: of what a job is told about its GPUs, what prolog and epilog hear too
_HOOK_VARIABLES = (
    *("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"),
    "SLURM_SHARDS_ON_NODE",
)
#: seconds between tries to remove a control group that was not empty
RETRY_S = 2


def _caps_major() -> int:
    try:
        return binding.caps_major(Path("/proc/devices").read_text())
    except OSError:
        return 0


def step_name(step: int) -> str:
    """What the group of a step is called after: its number, or Slurm's word."""
    return {BATCH_STEP: "batch", INTERACTIVE_STEP: "interactive"}.get(step, str(step))


class Grants:
    """Gives and takes back. One per daemon."""

    def __init__(
        self, config: Config, node: str, spool: str, inventory: Inventory, log: Any
    ) -> None:
        self.config = config
        self.node = node
        self._spool = Path(spool)
        self.inventory = inventory
        self.log = log
        self._places = {gpu.uuid: index for index, gpu in enumerate(inventory.gpus)}
        self._flags = config.gres_flags(node)
        self._caps_major = _caps_major()
        self._parts = gpushare.parts(config, node, inventory.gpus)
        self._handles: dict[Key, cgroups.CgroupHandle] = {}
        #: groups that were not empty yet
        self._stubborn: list[cgroups.CgroupHandle] = []
        self._retry_at = 0.0
        self._said: set[str] = set()
        self._cgroups = self._make(spool)
        self._order = binding.abstract_order(cgroups.machine_cpus())
        self.constrained = self._cgroups is not None and self._cgroups.enforces("devices")

    def _make(self, spool: str) -> cgroups.Cgroups | None:
        config = self.config
        confine = any(plugin.endswith("cgroup") for plugin in config.task_plugin)
        track = config.proctrack_type == "proctrack/cgroup"
        if config.cgroup.plugin == "disabled" or not (confine or track):
            return None
        want = cgroups.Want(
            cores=confine and config.cgroup.constrain_cores,
            ram=confine and config.cgroup.constrain_ram_space,
            swap=confine and config.cgroup.constrain_swap_space,
            devices=confine and config.cgroup.constrain_devices,
            processes=self._pids > 0,
        )
        node = config.nodes[self.node]
        # Clusters of one name may share a machine; what is below the spool is one's own.
        place = f"{config.cluster_name}-{zlib.crc32(spool.encode()):08x}"
        made = cgroups.Cgroups(
            f"gsched/{place}/{self.node}",
            want,
            mount=config.cgroup.mountpoint,
            node_cpus=node.cpus,
            node_memory_mb=node.real_memory,
        )
        for sentence in made.not_enforced():
            self.log.warning(sentence)
        return made if made.version else None

    def grant(self, key: Key, launch: LaunchSpec) -> Grant:
        """GPUs and cgroups of an attempt that is about to start. Raises LaunchError."""
        bitmap = self._bitmap(launch, strict=True)
        grant = Grant(self._variables(bitmap, launch) | notices.variables(self._spool, key))
        if self._cgroups is None:
            return grant
        handle = self._job_group(self._cgroups, key, launch)
        # Without limits of its own: what the job has is the script's.
        self._confine(grant, key, self._cgroups.create_step(handle, "batch", pids=self._pids))
        return grant

    def _job_group(self, groups: cgroups.Cgroups, key: Key, launch: LaunchSpec) -> CgroupHandle:
        """The attempt's own group; made if it is not there."""
        handle = self._handles.get(key)
        if handle is not None:
            return handle
        bitmap = self._bitmap(launch, strict=True)
        part = launch.job.alloc[launch.node_index]
        cpus, memory_mb, deny = self._limits(groups, bitmap, part)
        handle = groups.create(
            key.job_id,
            key.attempt,
            cpus=cpus,
            memory_mb=memory_mb,
            devices_deny=deny,
            pids=self._pids,
        )
        self._handles[key] = handle
        self._say_gaps(key, handle)
        if "contain" in {flag.lower() for flag in self.config.prolog_flags}:
            # For who comes from elsewhere (pam_slurm_adopt); the job's daemons end with it.
            groups.create_step(handle, "extern", pids=self._pids)
        return handle

    @property
    def _pids(self) -> int:
        """Most processes of a job. Its steps get the same: they are below its group, whose limit
        holds for all of them together."""
        return self.config.max_job_processes

    def _limits(
        self, groups: cgroups.Cgroups, bitmap: int, part: NodeAlloc
    ) -> tuple[list[int], int, Sequence[str]]:
        """CPUs, memory in MB and denied devices of a share, as far as they are enforced."""
        cpus = binding.machine_cpus(part.cpu_ids, self._order) if part.cpu_words else []
        rules = binding.device_rules(
            self.inventory.gpus, bitmap, self.inventory.foreign, self._caps_major
        )
        return (
            (cpus or []) if groups.enforces("cores") else [],
            self._memory(part.mem_mb) if groups.enforces("ram") else 0,
            rules.deny if self.constrained else (),
        )

    def _say_gaps(self, key: Key, handle: CgroupHandle) -> None:
        for sentence in handle.not_enforced:
            if sentence not in self._said:
                self._said.add(sentence)
                self.log.warning(f"job {key.job_id}: {sentence}")

    def _confine(self, grant: Grant, key: Key, handle: CgroupHandle) -> None:
        self._say_gaps(key, handle)
        grant.cgroup_procs = handle.procs_files
        grant.cgroup_kill = handle.kill_dirs

    def grant_step(self, key: Key, launch: LaunchSpec, share: StepNode, step: int) -> Grant:
        """What a step has of it: its GPUs by name, and a group in the job's. Raises LaunchError."""
        bitmap = self._bitmap(launch, strict=True, bits=share.alloc.gpus)

        def of_gpus(bits: int) -> dict[str, str]:
            own = self._bitmap(launch, strict=False, bits=bits)
            # Its tasks see what the step's group lets them see.
            found = self._variables(own, launch, bitmap, "SLURM_STEP_GPUS")
            found.pop("SLURM_GPUS_ON_NODE", None)
            return found

        own = self._variables(bitmap, launch, bitmap, "SLURM_STEP_GPUS")
        grant = Grant(own | notices.variables(self._spool, key))
        grant.of_gpus = of_gpus
        grant.machine_cpus = lambda cpus: binding.machine_cpus(cpus, self._order)
        if self._cgroups is None:
            return grant
        # Where no script runs the job's group is made with its first step.
        above = self._job_group(self._cgroups, key, launch)
        cpus, memory_mb, deny = self._limits(self._cgroups, bitmap, share.alloc)
        handle = self._cgroups.create_step(
            above,
            step_name(step),
            cpus=cpus,
            memory_mb=memory_mb,
            devices_deny=deny,
            pids=self._pids,
        )
        self._confine(grant, key, handle)
        return grant

    def release_step(self, key: Key, step: int) -> None:
        """Takes back what only the step had; nothing of it runs any more."""
        above = self._handles.get(key)
        if above is not None:
            self._remove(above.step(step_name(step)))

    def kill_step(self, key: Key, step: int) -> int:
        """Ends everything in a step's group; how many processes there were."""
        above = self._handles.get(key)
        return self._end(f"step {key.job_id}.{step}", above.step(step_name(step))) if above else 0

    def step_pids(self, key: Key, step: int) -> list[int]:
        """The processes in a step's group."""
        above = self._handles.get(key)
        return above.step(step_name(step)).pids() if above else []

    def _memory(self, mem_mb: int) -> int:
        """cgroup.conf's view of a job's memory, MB; 0 no limit."""
        if not mem_mb:
            return 0
        conf = self.config.cgroup
        node = self.config.nodes[self.node].real_memory
        limit = min(mem_mb * conf.allowed_ram_space / 100, node * conf.max_ram_percent / 100)
        return max(int(limit), conf.min_ram_space)

    def restore(self, key: Key, launch: LaunchSpec) -> None:
        """Takes up the grant of an attempt that a former daemon started."""
        if self._cgroups is not None and key not in self._handles:
            self._handles[key] = self._cgroups.adopt(key.job_id, key.attempt)

    def sweep(self, known: Iterable[Key]) -> None:
        """At the start: what a former daemon left of attempts that nobody knows."""
        if self._cgroups is not None:
            for problem in self._cgroups.sweep({(key.job_id, key.attempt) for key in known}):
                self.log.error(problem)

    def evidence(self, key: Key, step: int, known: Iterable[int] = ()) -> str:
        """What is left of a step (the script) that should have ended: its processes, what they are
        and where in the kernel they wait. `known`: such as are known without a group."""
        pids = {pid for pid in known if os.path.exists(f"/proc/{pid}")} | {
            *self.step_pids(key, step)
        }
        rows = [leftovers.describe(pid) for pid in sorted(pids)]
        more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
        title = f"JobId={key.job_id} StepId={step_name(step)}"
        return f"{title}: {', '.join(rows[:4]) or 'no process is seen'}{more}"

    def out_of_memory(self, key: Key, step: int = BATCH_STEP) -> bool:
        """Whether the kernel killed a process of a step (the script) for want of memory, be it the
        step's or the job's."""
        above = self._handles.get(key)
        if above is None:
            return False
        handle = above.step(step_name(step))
        if step == BATCH_STEP and not handle.dirs:
            handle = above  # a former release's script has no group of its own
        return bool(handle.dirs) and handle.usage().oom_kills > 0

    def kill(self, key: Key, launch: LaunchSpec) -> int:
        """Ends everything in the attempt's cgroups; how many processes there were."""
        self.restore(key, launch)
        handle = self._handles.get(key)
        return self._end(f"job {key.job_id}", handle) if handle is not None else 0

    def _end(self, title: str, handle: CgroupHandle) -> int:
        count = len(handle.pids())
        if count and not handle.kill():
            self.log.error(f"{title}: processes {handle.pids()} cannot be killed")
        return count

    def release(self, key: Key, launch: LaunchSpec) -> None:
        """Takes it back; nothing of the attempt runs any more but who came from elsewhere."""
        self.restore(key, launch)
        handle = self._handles.pop(key, None)
        if handle is None:
            return
        if handle.pids():
            handle.kill()
        self._remove(handle)

    def _remove(self, handle: CgroupHandle) -> None:
        if not handle.remove():
            self._stubborn.append(handle)
            self._retry_at = time.monotonic() + RETRY_S

    def close(self) -> None:
        """Leaves no empty control groups behind; those of running jobs stay."""
        if self._cgroups is not None:
            self._cgroups.close()

    def on_time(self) -> None:
        """Tries again to remove what was not empty."""
        if self._stubborn and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_S
            self._stubborn = [handle for handle in self._stubborn if not handle.remove()]

    def _bitmap(self, launch: LaunchSpec, *, strict: bool, bits: int = -1) -> int:
        """The attempt's GPUs by their places in this node's list; of `bits` only, as the
        controller numbers them. LaunchError, if `strict`, for one that is not to be had."""
        bitmap = 0
        held = launch.job.alloc[launch.node_index].gpus
        numbers = [bit for bit in range(held.bit_length()) if held >> bit & 1]
        for bit, uuid in zip(numbers, launch.gpu_uuids, strict=True):
            if not bits >> bit & 1:
                continue
            index = self._places.get(uuid)
            if index is None:
                if strict:
                    raise LaunchError(f"GPU {uuid} is not on this node")
                continue
            fault = self.inventory.gpus[index].fault
            if fault and strict:
                raise LaunchError(f"GPU {index} ({uuid}) is out of service: {fault}")
            bitmap |= 1 << index
        return bitmap

    def _variables(
        self, bitmap: int, launch: LaunchSpec, scope: int = 0, name: str = "SLURM_JOB_GPUS"
    ) -> dict[str, str]:
        variables = binding.gpu_variables(
            self.inventory.gpus,
            bitmap,
            self.constrained,
            self._flags,
            self.config.autodetect(self.node),
            self.inventory.numbers,
            scope,
            name,
        )
        if variables:
            variables["SLURM_GPUS_ON_NODE"] = str(bitmap.bit_count())
        shares = launch.job.alloc[launch.node_index].shares
        if shares and bitmap:
            has = self._parts[bitmap.bit_length() - 1][1] if self._parts else 0
            variables |= binding.share_variables(launch.job.spec.shape.share, shares, has)
        return variables

    def hook_environment(self, key: Key, launch: LaunchSpec, which: str) -> dict[str, str]:
        """What prolog and epilog see: the variables of `man slurm.conf`, nothing of the user's."""
        job = launch.job
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURMD_NODENAME": self.node,
            "SLURM_CLUSTER_NAME": self.config.cluster_name,
            "SLURM_CONF": self.config.path,
            "SLURM_JOBID": str(job.id),
            "SLURM_JOB_ID": str(job.id),
            "SLURM_JOB_GID": str(job.gid),
            "SLURM_JOB_NAME": job.spec.name,
            "SLURM_JOB_NODELIST": compress([part.node for part in job.alloc]),
            "SLURM_JOB_PARTITION": job.partition,
            "SLURM_JOB_UID": str(job.uid),
            "SLURM_JOB_USER": job.user,
            "SLURM_JOB_WORK_DIR": job.spec.work_dir,
            "SLURM_NODELIST": compress([part.node for part in job.alloc]),
            "SLURM_SCRIPT_CONTEXT": f"{which}_slurmd",
            "SLURM_UID": str(job.uid),
        }
        for name, value in (
            ("SLURM_JOB_ACCOUNT", job.spec.account),
            ("SLURM_JOB_COMMENT", job.spec.comment),
            ("SLURM_JOB_CONSTRAINTS", job.spec.shape.features),
            ("SLURM_JOB_RESERVATION", job.spec.reservation),
            ("SLURM_ARRAY_JOB_ID", str(job.array_job_id) if job.array_job_id else ""),
            ("SLURM_ARRAY_TASK_ID", str(job.array_task_id) if job.array_job_id else ""),
        ):
            if value and "\0" not in value:
                env[name] = value
        variables = self._variables(self._bitmap(launch, strict=False), launch)
        for name in _HOOK_VARIABLES:
            if name in variables:
                env[name] = variables[name]
        return env
