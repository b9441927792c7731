"""Bounds of what a node says: a faulty one must not bring the controller down with it.

The ledger computes with these numbers and the core puts them into arrays; whatever is outside the
bounds is no measurement but a fault, and the message is not taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from gsched.cpuset import parse_cpu_list
from gsched.model import Gpu, Step
from gsched.wire.nodes import AttemptReport, Register, Report

#: GPUs of a node: bits of a bitmap
MAX_GPUS = 64
#: NVLinks between two GPUs, and NUMA domains
MAX_LINKS = 1000
MAX_NUMA = 1 << 20
MAX_CPUS = 1 << 20
MAX_MB = 1 << 50
#: bounds of counters and times in ms: sums of them still fit into 64 bits
MAX_NUMBER = 1 << 53
MAX_ID = (1 << 31) - 1
MAX_TEXT = 64 << 10
#: characters of a GPU's core list, and numbers in it
MAX_CORES = 1024
MAX_CORE = 1 << 16


def problem(message: Register | Report) -> str:
    """What is wrong with a node's message, in one sentence; "" nothing. A few us."""
    found = _register(message) if isinstance(message, Register) else _report(message)
    return next(found, "")


def _register(message: Register) -> Iterator[str]:
    numbers = (message.cpus, message.mem_mb, message.uptime_s, message.tmp_disk_mb)
    for number, most in zip(numbers, (MAX_CPUS, MAX_MB, MAX_NUMBER, MAX_MB), strict=True):
        if not 0 <= number <= most:
            yield f"a registration with a size or time of {number}"
    if not 0 <= message.epoch <= MAX_NUMBER:
        yield f"a registration with epoch {message.epoch}"
    texts = (message.cluster, message.boot_id, message.session, message.version)
    if any(len(text) > MAX_TEXT for text in (*texts, message.arch, message.os)):
        yield "a registration with a text that is too long"
    if len(message.gpus) > MAX_GPUS:
        yield f"{len(message.gpus)} GPUs, more than {MAX_GPUS}"
    if len({gpu.uuid for gpu in message.gpus}) < len(message.gpus):
        yield "two GPUs with the same UUID"
    for gpu in message.gpus:
        yield from _gpu(gpu)
    yield from _attempts(message.attempts)


def _gpu(gpu: Gpu) -> Iterator[str]:
    if not -1 <= gpu.numa <= MAX_NUMA or not abs(gpu.minor) <= MAX_NUMA:
        yield f"GPU {gpu.uuid} with number {gpu.minor} in NUMA domain {gpu.numa}"
    if not 0 <= gpu.memory_mib <= MAX_MB:
        yield f"GPU {gpu.uuid} with {gpu.memory_mib} MiB"
    if len(gpu.links) > MAX_GPUS or any(not 0 <= count <= MAX_LINKS for count in gpu.links):
        yield f"GPU {gpu.uuid} with impossible links"
    if len(gpu.caps) > MAX_GPUS or any(not 0 <= cap < 1 << 20 for cap in gpu.caps):
        yield f"GPU {gpu.uuid} with impossible devices"
    try:
        if len(gpu.cores) > MAX_CORES or any(
            int(number) > MAX_CORE
            for item in gpu.cores.split(",")
            for number in item.split("-")
            if number
        ):
            yield f"GPU {gpu.uuid} with impossible cores"
            return
        parse_cpu_list(gpu.cores)
    except ValueError:
        yield f"GPU {gpu.uuid} with cores {gpu.cores[:80]!r}"
    if any(len(text) > MAX_TEXT for text in (gpu.uuid, gpu.type, gpu.name, gpu.fault)):
        yield "a GPU with a text that is too long"


def _report(message: Report) -> Iterator[str]:
    low, high = -MAX_NUMBER, MAX_NUMBER
    # Written out, as below: this is the most frequent message of all.
    if not (
        low <= message.epoch <= high
        and low <= message.seen <= high
        and low <= message.cpu_load <= high
        and low <= message.free_mem_mb <= high
    ):
        yield "a report with a number out of range"
    if message.gpu_faults and any(
        len(uuid) + len(text) > MAX_TEXT for uuid, text in message.gpu_faults.items()
    ):
        yield "a fault of a GPU that is too long"
    yield from _attempts(message.attempts)


def _attempts(attempts: list[AttemptReport]) -> Iterator[str]:
    low, high = -MAX_NUMBER, MAX_NUMBER
    for rep in attempts:
        if not 0 < rep.job_id <= MAX_ID or not 0 < rep.attempt <= MAX_ID:
            yield f"attempt {rep.attempt} of job {rep.job_id}"
        # Written out: a node with many jobs tells of all of them in each report.
        if not (
            low <= rep.age_ms <= high
            and low <= rep.elapsed_ms <= high
            and low <= rep.user_ms <= high
            and low <= rep.system_ms <= high
            and low <= rep.max_rss_kb <= high
        ):
            yield f"job {rep.job_id} with a time or size out of range"
        if not -1 <= rep.wstatus <= 0xFFFF:
            yield f"job {rep.job_id} with wait status {rep.wstatus}"
        if max(len(rep.error), len(rep.cause), len(rep.fault)) > MAX_TEXT:
            yield f"job {rep.job_id} with a text that is too long"
        for step in rep.steps:
            yield from _step(step)


def _step(step: Step) -> Iterator[str]:
    title = f"step {step.job_id}.{step.id}"
    if not -MAX_ID <= step.id <= MAX_ID:
        yield f"{title} with a number out of range"
    usage = step.usage
    counts = (usage.user_ms, usage.system_ms, usage.max_rss_kb, step.ave_rss_kb, step.max_rss_task)
    times = (step.start_time, step.end_time, step.time_limit)
    if any(not 0 <= number <= MAX_NUMBER for number in (*counts, *times)):
        yield f"{title} with a time or size out of range"
    gpus = (step.gpu_util_ave, step.gpu_util_max, step.gpu_mem_max_mb)
    if any(not -1 <= number <= MAX_MB for number in gpus):
        yield f"{title} with an impossible use of GPUs"
    if not 0 <= step.wstatus <= 0xFFFF or not -1 <= step.cancelled_by < 1 << 32:
        yield f"{title} with wait status {step.wstatus}, ended by {step.cancelled_by}"
    if not 0 <= step.ntasks <= MAX_ID or not 0 <= step.cpus_per_task <= MAX_CPUS:
        yield f"{title} with {step.ntasks} tasks of {step.cpus_per_task} CPUs"
    for share in step.nodes:
        part = share.alloc
        if not 0 <= part.cpus <= MAX_CPUS or not 0 <= part.mem_mb <= MAX_MB:
            yield f"{title} with {part.cpus} CPUs and {part.mem_mb} MB on {part.node}"
        if not 0 <= part.gpus < 1 << MAX_GPUS or not 0 <= part.shares <= MAX_NUMA:
            yield f"{title} with impossible GPUs on {part.node}"
        if not 0 <= share.het_offset <= MAX_GPUS << 1:
            yield f"{title} in component {share.het_offset}"
    if max(len(step.name), len(step.cwd), len(step.layout), len(step.max_rss_node)) > MAX_TEXT:
        yield f"{title} with a text that is too long"


def clip(message: Register | Report) -> None:
    """Cuts the command lines of steps: a long one is its user's and no fault of the node, whose
    other jobs must be heard of. Cost: the steps."""
    for attempt in message.attempts:
        for step in attempt.steps:
            step.submit_line = step.submit_line[:MAX_TEXT]
