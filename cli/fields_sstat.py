"""The columns of sstat: name, width, and how a running step's use is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gsched_cli.columns import Column
from gsched_cli.text import duration

if TYPE_CHECKING:
    from gsched.wire.steps import StepUse

_UNITS = "KMGTPE"


class Use:
    """One line: a step, what it uses, and what it holds."""

    def __init__(
        self, job_text: str, step_text: str, use: StepUse, tres: str, sluid: str, *, convert: bool
    ) -> None:
        self.id_text = f"{job_text}.{step_text}"
        self.use = use
        self.tres = tres
        self.sluid = sluid
        self.batch = step_text == "batch"
        self._convert = convert

    def size(self, kb: int) -> str:
        """Memory: with --noconvert in bytes, else in the largest unit that loses nothing."""
        return str(kb * 1024) if not self._convert else self.amount(kb * 1024)

    def amount(self, count: int) -> str:
        """A count of bytes, in a larger unit where nothing is lost."""
        value, place = float(count), -1
        while self._convert and value >= 1024 and value % 512 == 0 and place < 5:
            value /= 1024
            place += 1
        text = str(int(value)) if value == int(value) else f"{value:.2f}"
        return text + (_UNITS[place] if place >= 0 else "")

    @property
    def node(self) -> str:
        """Where the most of anything is, if it can be but one place."""
        return self.use.nodes[0] if len(self.use.nodes) == 1 else ""

    @property
    def task(self) -> str:
        return "0" if self.use.ntasks == 1 else ""

    @property
    def node_text(self) -> str:
        from gsched.hostlist import compress

        return compress(self.use.nodes)

    @property
    def frequency(self) -> str:
        return "0" if self.batch else "Unknown"


def _tres(**values: str) -> str:
    """TRES text in Slurm's order; what is not known is left out."""
    names = {"disk": "fs/disk", "gpumem": "gres/gpumem", "gpuutil": "gres/gpuutil"}
    return ",".join(f"{names.get(name, name)}={value}" for name, value in values.items() if value)


def _average(u: Use) -> str:
    use = u.use
    return _tres(
        cpu=duration(use.ave_cpu_ms // 1000),
        energy="0",
        disk=str(use.read_ave),
        gpuutil=str(use.gpu_util) if use.gpu_util >= 0 else "",
        mem=u.size(use.ave_rss_kb),
        pages=str(use.pages_ave),
        vmem=u.size(use.ave_vm_kb),
    )


def _most(u: Use) -> str:
    use = u.use
    return _tres(
        cpu=duration(use.ave_cpu_ms // 1000) if use.ntasks == 1 else "",
        energy="0",
        disk=str(use.read_max),
        gpumem=f"{use.gpu_mem_mb}M" if use.gpu_mem_mb >= 0 else "",
        gpuutil=str(use.gpu_util) if use.gpu_util >= 0 else "",
        mem=u.size(use.max_rss_kb),
        pages=str(use.pages_max),
        vmem=u.size(use.max_vm_kb),
    )


def _most_node(u: Use) -> str:
    one = u.node
    rss, virtual = u.use.max_rss_node or one, u.use.max_vm_node or one
    return _tres(cpu=one, energy=one, disk=one, mem=rss, pages=one, vmem=virtual)


def _most_task(u: Use) -> str:
    one, use = u.task, u.use
    cpu = "00:00:00" if one else ""
    rss, virtual = str(use.max_rss_task), str(use.max_vm_task)
    return _tres(cpu=cpu, disk=one, mem=rss, pages=one, vmem=virtual)


def _least(u: Use) -> str:
    if u.use.ntasks == 1:
        return _most(u)
    return _tres(cpu=duration(u.use.min_cpu_ms // 1000), energy="0")


def _least_node(u: Use) -> str:
    return _most_node(u) if u.use.ntasks == 1 else _tres(cpu=u.use.min_cpu_node, energy=u.node)


def _least_task(u: Use) -> str:
    return _most_task(u) if u.use.ntasks == 1 else _tres(cpu=str(u.use.min_cpu_task))


def _total(u: Use) -> str:
    use = u.use
    return _tres(
        cpu=duration(use.ave_cpu_ms * use.ntasks // 1000),
        energy="0",
        disk=str(use.read_ave * use.ntasks),
        mem=u.size(use.ave_rss_kb * use.ntasks),
        pages=str(use.pages_ave * use.ntasks),
        vmem=u.size(use.ave_vm_kb * use.ntasks),
    )


def _written(count: Callable[[StepUse], int]) -> Callable[[Use], str]:
    return lambda u: _tres(energy="0", disk=str(count(u.use)))


def _cpu(ms: int) -> str:
    return duration(ms // 1000)


#: In Slurm's order: a name may be cut short to any beginning, the first that fits is meant.
COLUMNS: list[Column[Use]] = [
    Column("AllocTRES", 10, lambda u: u.tres),
    Column("AveCPU", 10, lambda u: _cpu(u.use.ave_cpu_ms)),
    Column("AveCPUFreq", 10, lambda u: "0"),
    Column("AveDiskRead", 12, lambda u: u.amount(u.use.read_ave)),
    Column("AveDiskWrite", 12, lambda u: u.amount(u.use.write_ave)),
    Column("AvePages", 10, lambda u: str(u.use.pages_ave)),
    Column("AveRSS", 10, lambda u: u.size(u.use.ave_rss_kb)),
    Column("AveVMSize", 10, lambda u: u.size(u.use.ave_vm_kb)),
    Column("ConsumedEnergy", 14, lambda u: "0"),
    Column("ConsumedEnergyRaw", 17, lambda u: "0"),
    Column("JobID", -12, lambda u: u.id_text),
    Column("MaxDiskRead", 12, lambda u: u.amount(u.use.read_max)),
    Column("MaxDiskReadNode", 15, lambda u: u.node),
    Column("MaxDiskReadTask", 15, lambda u: u.task),
    Column("MaxDiskWrite", 12, lambda u: u.amount(u.use.write_max)),
    Column("MaxDiskWriteNode", 16, lambda u: u.node),
    Column("MaxDiskWriteTask", 16, lambda u: u.task),
    Column("MaxPages", 8, lambda u: str(u.use.pages_max)),
    Column("MaxPagesNode", 12, lambda u: u.node),
    Column("MaxPagesTask", 14, lambda u: u.task),
    Column("MaxRSS", 10, lambda u: u.size(u.use.max_rss_kb)),
    Column("MaxRSSNode", 10, lambda u: u.use.max_rss_node),
    Column("MaxRSSTask", 10, lambda u: str(u.use.max_rss_task)),
    Column("MaxVMSize", 10, lambda u: u.size(u.use.max_vm_kb)),
    Column("MaxVMSizeNode", 14, lambda u: u.use.max_vm_node),
    Column("MaxVMSizeTask", 14, lambda u: str(u.use.max_vm_task)),
    Column("MinCPU", 10, lambda u: _cpu(u.use.min_cpu_ms)),
    Column("MinCPUNode", 10, lambda u: u.use.min_cpu_node),
    Column("MinCPUTask", 10, lambda u: str(u.use.min_cpu_task)),
    Column("Nodelist", 20, lambda u: u.node_text),
    Column("NTasks", 8, lambda u: str(u.use.ntasks)),
    Column("Pids", 20, lambda u: ",".join(map(str, u.use.pids))),
    Column("ReqCPUFreq", 10, lambda u: u.frequency),
    Column("ReqCPUFreqMin", 13, lambda u: u.frequency),
    Column("ReqCPUFreqMax", 13, lambda u: u.frequency),
    Column("ReqCPUFreqGov", 13, lambda u: u.frequency),
    Column("SLUID", 14, lambda u: u.sluid),
    Column("TRESUsageInAve", 14, _average),
    Column("TRESUsageInMax", 14, _most),
    Column("TRESUsageInMaxNode", 18, _most_node),
    Column("TRESUsageInMaxTask", 18, _most_task),
    Column("TRESUsageInMin", 14, _least),
    Column("TRESUsageInMinNode", 18, _least_node),
    Column("TRESUsageInMinTask", 18, _least_task),
    Column("TRESUsageInTot", 14, _total),
    Column("TRESUsageOutAve", 15, _written(lambda use: use.write_ave)),
    Column("TRESUsageOutMax", 15, _written(lambda use: use.write_max)),
    Column("TRESUsageOutMaxNode", 19, lambda u: _tres(energy=u.node, disk=u.node)),
    Column("TRESUsageOutMaxTask", 19, lambda u: _tres(disk=u.task)),
    Column("TRESUsageOutMin", 15, _written(lambda use: use.write_max if use.ntasks == 1 else 0)),
    Column("TRESUsageOutMinNode", 19, lambda u: _tres(energy=u.node, disk=u.node)),
    Column("TRESUsageOutMinTask", 19, lambda u: _tres(disk=u.task)),
    Column("TRESUsageOutTot", 15, _written(lambda use: use.write_ave * use.ntasks)),
]

DEFAULT = (
    "jobid,alloctres,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,"
    "avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,"
    "avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,"
    "tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutave,"
    "tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutmin,tresusageoutminnode,"
    "tresusageoutmintask,tresusageouttot"
)
PIDS = "jobid,nodelist,pids"
