"""The fields of `scontrol update jobid=`: what each may be set to, when, and by whom.

A setter changes a draft; `commit_draft` in update.py takes the whole draft over, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gsched import admission, gres, hostlist, units
from gsched.errors import message
from gsched.ledger import associate, depend, ranking, reserved
from gsched.ledger.edit import (
    DENIED,
    HELD,
    NOT_SUPPORTED,
    BadValue,
    Edit,
)
from gsched.ledger.submit import BASIC_PRIORITY, effective_limit
from gsched.model import Hold, Job, JobState
from gsched.model.mailtype import MAIL_WORDS
from gsched.topology import switch_wait


def priority_of(job: Job) -> int:
    """The priority of a job that nobody holds."""
    if job.spec.priority is not None:
        return job.spec.priority
    return max(1, BASIC_PRIORITY - job.id - job.spec.nice)


# ---- values -------------------------------------------------------------------------------------


def _number(key: str, value: str, least: int = 0, most: int = admission.MAX_COUNT) -> int:
    if not re.fullmatch(r"-?[0-9]{1,10}", value) or not least <= int(value) <= most:
        raise BadValue(f"Invalid {key} value: {value}")
    return int(value)


def _yes(key: str, value: str) -> bool:
    word = value.lower()
    if word and ("yes".startswith(word) or word == "1"):
        return True
    if word and ("no".startswith(word) or word == "0"):
        return False
    raise BadValue(f"Invalid {key} value: {value}")


def _megabytes(key: str, value: str) -> int:
    try:
        return units.parse_memory(value)
    except units.UnitError:
        raise BadValue(f"Invalid {key} value: {value}") from None


def _range(value: str) -> tuple[int, int]:
    try:
        return units.parse_node_count(value)
    except units.UnitError:
        raise BadValue(message("ESLURM_INVALID_NODE_COUNT")) from None


def _names(value: str) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(hostlist.expand(value))) if value else ()
    except hostlist.HostlistError:
        raise BadValue(message("ESLURM_INVALID_NODE_NAME")) from None


def _moment(edit: Edit, value: str) -> int:
    if re.fullmatch(r"[0-9]{7,12}", value):
        return int(value)
    try:
        return units.parse_time_point(value, edit.now)
    except units.UnitError:
        raise BadValue(message("ESLURM_INVALID_TIME_VALUE")) from None


def _seconds(key: str, value: str) -> int:
    try:
        return units.parse_time_limit(value)
    except units.UnitError:
        raise BadValue(f"Invalid {key} value: {value}") from None


# ---- times --------------------------------------------------------------------------------------


def _time_limit(edit: Edit, value: str) -> None:
    sign, job = value[:1], edit.job
    limit = _seconds("TimeLimit", value.lstrip("+-"))
    if sign == "+":
        limit = job.time_limit + limit if job.time_limit and limit else 0
    elif sign == "-":
        if not job.time_limit or not limit or limit >= job.time_limit:
            raise BadValue(message("ESLURM_INVALID_TIME_LIMIT"))
        limit = job.time_limit - limit
    _limit(edit, limit)


def _limit(edit: Edit, limit: int) -> None:
    job = edit.job
    raises = bool(job.time_limit) and (limit == 0 or limit > job.time_limit)
    if raises and not edit.pending and not edit.admin:
        raise BadValue(DENIED)
    job.time_limit = job.spec.time_limit = limit
    edit.limit_changed = True
    if not edit.admin and edit.led.config.enforce_part_limits != "NO":
        edit.shaped = True


def _end_time(edit: Edit, value: str) -> None:
    moment = _moment(edit, value)
    if edit.job.state != JobState.RUNNING:
        raise BadValue(message("ESLURM_JOB_NOT_RUNNING"))
    if moment <= edit.now:
        raise BadValue(message("ESLURM_INVALID_TIME_VALUE"))
    start = edit.job.start_time
    _limit(edit, -(-(moment - start) // units.MINUTE) * units.MINUTE)


def _time_min(edit: Edit, value: str) -> None:
    edit.pending_only()
    least = _seconds("TimeMin", value)
    if edit.job.time_limit and not 0 < least <= edit.job.time_limit:
        raise BadValue(message("ESLURM_INVALID_TIME_MIN_LIMIT"))
    edit.job.spec.time_min = least


def _start_time(edit: Edit, value: str) -> None:
    edit.pending_only()
    begin = _moment(edit, value)
    edit.job.spec.begin = begin if begin > edit.now else 0
    edit.job.eligible_time = max(edit.now, begin)


def _deadline(edit: Edit, value: str) -> None:
    edit.admin_only()
    edit.pending_only()
    moment = _moment(edit, value) if value else 0
    if value and moment <= edit.now:
        raise BadValue(message("ESLURM_INVALID_TIME_VALUE"))
    edit.job.spec.deadline = moment


def _delay_boot(edit: Edit, value: str) -> None:
    edit.pending_only()
    edit.job.spec.delay_boot = _seconds("DelayBoot", value)


# ---- words --------------------------------------------------------------------------------------


def _text(field: str, most: int, *, pending: bool = False) -> Callable[[Edit, str], None]:
    def set_text(edit: Edit, value: str) -> None:
        if pending:
            edit.pending_only()
        if len(value) > most or "\0" in value:
            raise BadValue(message("ESLURM_PATHNAME_TOO_LONG"))
        setattr(edit.job.spec, field, value)

    return set_text


def _name(edit: Edit, value: str) -> None:
    if not value or len(value) > admission.MAX_NAME or "\0" in value:
        raise BadValue(f"Invalid JobName value: {value[:64]}")
    edit.job.spec.name = value.replace('"', "`")


def _admin_comment(edit: Edit, value: str) -> None:
    edit.admin_only()
    edit.job.spec.admin_comment = value[: admission.MAX_TEXT // 4]


def _mail_type(edit: Edit, value: str) -> None:
    bits = 0
    for item in value.upper().split(","):
        if item.strip() not in MAIL_WORDS:
            raise BadValue(f"Invalid MailType: {value}")
        bits |= MAIL_WORDS[item.strip()]
    edit.job.spec.mail_type = bits


def _work_dir(edit: Edit, value: str) -> None:
    edit.pending_only()
    if not value.startswith("/") or len(value) > admission.MAX_PATH or "\0" in value:
        raise BadValue("Invalid WorkDir value: an absolute path is expected")
    edit.job.spec.work_dir = value


# ---- order in the queue -------------------------------------------------------------------------


def _nice(edit: Edit, value: str) -> None:
    nice = _number("Nice", value or "100", -2147483645, 2147483645)
    if nice < 0 and not edit.admin:
        raise BadValue(DENIED)
    edit.job.spec.nice = nice
    if edit.pending and not edit.job.held:
        edit.job.priority = priority_of(edit.job)


def _priority(edit: Edit, value: str) -> None:
    job = edit.job
    priority = _number("Priority", value, 0, (1 << 32) - 2)
    if priority == 0:
        hold(job, edit.admin, edit.now)
        return
    if job.held:
        raise BadValue(HELD)
    if not edit.admin:
        lower = priority < ranking.live(edit.led, job)
        raise BadValue(
            "Changes to job priority are not persistent, change nice instead" if lower else DENIED
        )
    job.spec.nice = 0
    job.spec.priority = job.priority = priority


def _site_factor(edit: Edit, value: str) -> None:
    """What administrators add to a job's priority."""
    edit.admin_only()
    edit.pending_only()
    edit.job.site_factor = _number("SiteFactor", value, -2147483645, 2147483645)


def _reset_accrue(edit: Edit, value: str) -> None:
    """What it has waited does not count any more."""
    edit.pending_only()
    if edit.job.accrue_time:
        edit.job.accrue_time = edit.now


def hold(job: Job, by_admin: bool, now: float) -> None:
    """Priority 0: a waiting job is kept back, a running one when it is queued again. What it has
    waited does not count once it is released, as in Slurm."""
    job.held = Hold.ADMIN if by_admin else Hold.USER
    job.priority = 0
    if job.state == JobState.PENDING:
        job.reason = ""
        job.accrue_time = -1
        if job.spec.begin <= now:
            job.eligible_time = 0


# ---- to whom it is charged -----------------------------------------------------------------------


def _accept(code: str) -> None:
    if code:
        raise BadValue(message(code))


def _account(edit: Edit, value: str) -> None:
    edit.pending_only()
    _short(value)
    _accept(associate.set_account(edit.led, edit.job, value))


def _qos(edit: Edit, value: str) -> None:
    edit.pending_only()
    _short(value)
    _accept(associate.set_qos(edit.led, edit.job, value, edit.operator))


def _wckey(edit: Edit, value: str) -> None:
    edit.pending_only()
    _short(value)
    _accept(associate.set_wckey(edit.led, edit.job, value))


def _short(value: str) -> None:
    if len(value) > admission.MAX_NAME or "\0" in value:
        raise BadValue(message("ESLURM_PATHNAME_TOO_LONG"))


# ---- where ---------------------------------------------------------------------------------------


def _reservation(edit: Edit, value: str) -> None:
    edit.pending_only()
    job = edit.job
    groups = [*edit.groups, job.group]
    parts = job.spec.partitions or (job.partition,)
    text, code = reserved.wrong(edit.led, value, edit.uid, job.user, groups, job.spec, parts)
    if code:
        raise BadValue(text)
    job.spec.reservation = value
    edit.shaped = True


def _partition(edit: Edit, value: str) -> None:
    edit.pending_only()
    names = tuple(filter(None, value.split(",")))
    config = edit.led.config
    if not names or any(name not in config.partitions for name in names):
        raise BadValue(message("ESLURM_INVALID_PARTITION_NAME"))
    if all(config.partitions[name].state in ("DRAIN", "INACTIVE") for name in names):
        raise BadValue("Required partition not available (inactive or drain)")
    if not edit.admin and any(config.partitions[name].root_only for name in names):
        raise BadValue(DENIED)
    job = edit.job
    _accept(associate.set_partitions(edit.led, job, names))
    job.spec.partitions = names
    job.partition = names[0]
    job.time_limit = effective_limit(job.spec, config.partitions[names[0]])
    edit.shaped = True


def _features(edit: Edit, value: str) -> None:
    edit.shape(features=value)


def _req_nodes(edit: Edit, value: str) -> None:
    names = _names(value)
    if not edit.pending:
        # Naming the nodes it has changes nothing; fewer would take some away.
        if set(names) == {part.node for part in edit.job.alloc}:
            return
        raise BadValue(NOT_SUPPORTED)
    shape = edit.job.spec.shape
    least = max(shape.min_nodes, len(names))
    most = max(shape.max_nodes, least) if shape.max_nodes else 0
    edit.shape(nodelist=names, min_nodes=least, max_nodes=most)


def _exc_nodes(edit: Edit, value: str) -> None:
    edit.shape(exclude=_names(value))


def _contiguous(edit: Edit, value: str) -> None:
    edit.admin_only()
    edit.shape(contiguous=_yes("Contiguous", value))


def _oversubscribe(edit: Edit, value: str) -> None:
    edit.pending_only()
    edit.admin_only()
    edit.shape(oversubscribe=_yes("OverSubscribe", value), exclusive=0)


def _exclusive(edit: Edit, value: str) -> None:
    kinds = {"yes": 1, "node": 1, "no": 0, "user": 2, "ok": 0}
    if value.lower() not in kinds:
        raise BadValue(f"Invalid Exclusive value: {value}")
    edit.shape(exclusive=kinds[value.lower()])


def _switches(edit: Edit, value: str) -> None:
    count, at, wait = value.partition("@")
    spec = edit.job.spec
    spec.switches = _number("Switches", count)
    asked = _seconds("Switches", wait) if at else spec.switch_wait
    spec.switch_wait = switch_wait(asked, edit.led.config) if spec.switches else 0


def _switch_wait(edit: Edit, value: str) -> None:
    asked = _number("wait-for-switch", value, 0, 1 << 31)
    edit.job.spec.switch_wait = switch_wait(asked, edit.led.config)


# ---- how much -----------------------------------------------------------------------------------


def _num_nodes(edit: Edit, value: str) -> None:
    least, most = _range(value)
    shape = edit.job.spec.shape
    if not edit.pending:
        # What runs is neither grown nor shrunk.
        if least <= len(edit.job.alloc) <= most:
            return
        raise BadValue(NOT_SUPPORTED)
    ntasks = max(shape.ntasks, least) if shape.ntasks else 0
    edit.shape(min_nodes=least, max_nodes=most, nodes_set=True, ntasks=ntasks)


def _num_tasks(edit: Edit, value: str) -> None:
    edit.shape(ntasks=_number("NumTasks", value, 1))


def _num_cpus(edit: Edit, value: str) -> None:
    least, _ = _range(value)
    edit.pending_only()
    shape = edit.job.spec.shape
    nodes = max(1, shape.min_nodes)
    tasks = shape.ntasks or nodes * max(1, shape.ntasks_per_node)
    if least < tasks * shape.cpus_per_task:
        raise BadValue(NOT_SUPPORTED)
    edit.shape(min_cpus_node=-(-least // nodes))


def _count(key: str, field: str, least: int = 0) -> Callable[[Edit, str], None]:
    def set_count(edit: Edit, value: str) -> None:
        edit.pending_only()
        edit.shape(**{field: _number(key, value, least)})

    return set_count


def _cpus_per_task(edit: Edit, value: str) -> None:
    edit.shape(cpus_per_task=_number("CPUsPerTask", value, 1), cpus_per_task_set=True)


def _memory(field: str) -> Callable[[Edit, str], None]:
    def set_memory(edit: Edit, value: str) -> None:
        edit.pending_only()
        size = _megabytes("MinMemory", value)
        edit.shape(**{"mem_per_node": None, "mem_per_cpu": None, "mem_per_gpu": None, field: size})

    return set_memory


def _disk(edit: Edit, value: str) -> None:
    edit.admin_only()
    edit.shape(tmp_disk_mb=_megabytes("MinTmpDiskNode", value))


#: key of the request -> (field of the shape, scope of its text)
_GPU_FORMS = {
    "gres": ("gpus_per_node", "per_node"),
    "trespernode": ("gpus_per_node", "per_node"),
    "tresperjob": ("gpus_total", "per_job"),
    "trespersocket": ("gpus_per_socket", "per_socket"),
    "trespertask": ("gpus_per_task", "per_task"),
}


def _gpus(key: str) -> Callable[[Edit, str], None]:
    field, scope = _GPU_FORMS[key]

    def set_gpus(edit: Edit, value: str) -> None:
        edit.pending_only()
        cpus = 0
        asked: gres.GpuRequest | None
        try:
            if key == "trespertask":
                cpus, asked = gres.parse_tres_per_task(value)
            else:
                # Here, and not in a submission, Slurm takes items that are empty.
                asked = gres.parse_gres(",".join(filter(None, value.split(","))) or "none")
        except gres.GresError as error:
            raise BadValue(str(error)) from None
        count, kind = (asked.count, asked.type) if asked is not None else (0, "")
        share = asked.share if asked is not None else ""
        if share and key not in ("gres", "trespernode"):
            raise BadValue(message("ESLURM_INVALID_GRES"))
        shape, spec = edit.job.spec.shape, edit.job.spec
        others = any(getattr(shape, name) for name, _ in set(_GPU_FORMS.values()) if name != field)
        if others and count and kind != shape.gpu_type:
            raise BadValue(gres.WITH_AND_WITHOUT_TYPE)
        if others and share:
            raise BadValue(message("ESLURM_INVALID_GRES"))
        changes: dict[str, Any] = {field: 0 if share else count}
        counted = asked.counted if asked is not None else ()
        if counted and field != "gpus_per_node":
            raise BadValue(message("ESLURM_INVALID_GRES"))
        if share or field == "gpus_per_node":
            changes |= {"share": share, "share_count": count if share else 0, "counted": counted}
        elif shape.share and count:
            raise BadValue(message("ESLURM_INVALID_GRES"))
        if not others or count:
            changes["gpu_type"] = kind
        if cpus:
            changes |= {"cpus_per_task": cpus, "cpus_per_task_set": True}
        tres = {name: text for name, text in spec.tres.items() if name not in (scope, "gres")}
        if (count or counted) and asked is not None:
            tres[scope] = asked.shown
            if key == "gres":
                tres["gres"] = asked.shown
        spec.tres = tres
        edit.shape(**changes)

    return set_gpus


def _licenses(edit: Edit, value: str) -> None:
    if not edit.pending and value:
        edit.pending_only()
    if edit.pending:
        edit.job.spec.licenses = value
        edit.shaped = True


# ---- the rest -----------------------------------------------------------------------------------


def _requeue(edit: Edit, value: str) -> None:
    edit.job.spec.requeue = bool(_number("Requeue", value, 0, 1))


def _reboot(edit: Edit, value: str) -> None:
    edit.pending_only()
    edit.admin_only()
    edit.job.spec.reboot = _yes("Reboot", value)


def _throttle(edit: Edit, value: str) -> None:
    throttle = _number("ArrayTaskThrottle", value)
    if edit.job.array_job_id:
        edit.job.array_throttle = throttle


def _dependency(edit: Edit, value: str) -> None:
    edit.pending_only()
    try:
        edit.job.deps = depend.resolve(edit.led, value, edit.job.id)
    except depend.CircularDependency:
        raise BadValue(message("ESLURM_CIRCULAR_DEPENDENCY")) from None
    except depend.DependencyProblem:
        raise BadValue(message("ESLURM_DEPENDENCY")) from None
    edit.job.spec.dependency = value


def _core_spec(field: str) -> Callable[[Edit, str], None]:
    def set_spec(edit: Edit, value: str) -> None:
        edit.pending_only()
        edit.admin_only()
        edit.job.spec.core_spec = edit.job.spec.thread_spec = 0
        setattr(edit.job.spec, field, _number("CoreSpec", value))

    return set_spec


#: lower-case key -> setter; the keys are those of the manual page and Slurm's other names for them
FIELDS: dict[str, Callable[[Edit, str], None]] = {
    "account": _account,
    "admincomment": _admin_comment,
    "arraytaskthrottle": _throttle,
    "burstbuffer": _text("burst_buffer", admission.MAX_NAME, pending=True),
    "clusterfeatures": _text("cluster_features", admission.MAX_NAME, pending=True),
    "comment": _text("comment", admission.MAX_TEXT // 4),
    "contiguous": _contiguous,
    "corespec": _core_spec("core_spec"),
    "cpuspertask": _cpus_per_task,
    "deadline": _deadline,
    "delayboot": _delay_boot,
    "dependency": _dependency,
    "eligibletime": _start_time,
    "endtime": _end_time,
    "excnodelist": _exc_nodes,
    "exclusive": _exclusive,
    "extra": _text("extra", admission.MAX_TEXT // 4),
    "features": _features,
    "gres": _gpus("gres"),
    "jobname": _name,
    "licenses": _licenses,
    "mailtype": _mail_type,
    "mailuser": _text("mail_user", admission.MAX_NAME),
    "mincpusnode": _count("MinCPUsNode", "min_cpus_node"),
    "minmemorycpu": _memory("mem_per_cpu"),
    "minmemorynode": _memory("mem_per_node"),
    "mintmpdisknode": _disk,
    "name": _name,
    "nice": _nice,
    "nodelist": _req_nodes,
    "numcpus": _num_cpus,
    "numnodes": _num_nodes,
    "numtasks": _num_tasks,
    "oversubscribe": _oversubscribe,
    "partition": _partition,
    "prefer": _text("prefer", admission.MAX_NAME, pending=True),
    "priority": _priority,
    "resetaccruetime": _reset_accrue,
    "sitefactor": _site_factor,
    "qos": _qos,
    "reboot": _reboot,
    "reqcores": _count("ReqCores", "cores_per_socket"),
    "reqnodelist": _req_nodes,
    "reqnodes": _num_nodes,
    "reqprocs": _num_tasks,
    "reqsockets": _count("ReqSockets", "sockets_per_node"),
    "reqthreads": _count("ReqThreads", "threads_per_core"),
    "requeue": _requeue,
    "reservationname": _reservation,
    "shared": _oversubscribe,
    "starttime": _start_time,
    "stderr": _text("std_err", admission.MAX_PATH, pending=True),
    "stdin": _text("std_in", admission.MAX_PATH, pending=True),
    "stdout": _text("std_out", admission.MAX_PATH, pending=True),
    "switches": _switches,
    "taskspernode": _count("TasksPerNode", "ntasks_per_node"),
    "threadspec": _core_spec("thread_spec"),
    "timelimit": _time_limit,
    "timemin": _time_min,
    "tresperjob": _gpus("tresperjob"),
    "trespernode": _gpus("trespernode"),
    "trespersocket": _gpus("trespersocket"),
    "trespertask": _gpus("trespertask"),
    "wait-for-switch": _switch_wait,
    "wckey": _wckey,
    "workdir": _work_dir,
}
