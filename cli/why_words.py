"""A verdict in words: sentences and tables for people."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterator

from gsched.model.why import Away, Cause, JobRef, Kept, Lack, Place, Rank, Why
from gsched.units import format_limit, format_memory_short
from gsched_cli.why_common import When
from gsched_cli.why_preempt import CAUSES as PREEMPTION
from gsched_cli.why_still import CAUSES as STILL


def headline(why: Why) -> str:
    """Which job, and in a word how it stands."""
    who = f"Job {why.job} ({why.name}, {why.user})"
    if why.state != "PENDING":
        return f"{who} does not wait: it is {why.state}"
    if why.at > why.now:
        return f"{who} " + ("would start then" if why.starts else "would not start then")
    return f"{who} can never start as it is" if why.never else f"{who} waits"


def sentences(why: Why, when: When) -> list[str]:
    """Every cause, the first first."""
    return [cause_text(why, cause, when) for cause in why.causes]


def cause_text(why: Why, cause: Cause, when: When) -> str:
    """One cause as a sentence."""
    made = _CAUSES.get(cause.kind)
    if made is not None:
        return made(why, cause, when)
    where = f"partition {cause.partition}: " if cause.partition else ""
    return f"{where}{cause.detail or cause.kind}."


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _ids(refs: list[JobRef]) -> str:
    known = [ref.id for ref in refs if ref.id]
    hidden = len(refs) - len(known)
    if hidden:
        known.append(_plural(hidden, "job") + " of others")
    return ", ".join(known)


def _until(cause: Cause, when: When) -> str:
    return f", until {when(cause.until)} at the latest" if cause.until else ""


def _hold(why: Why, cause: Cause, when: When) -> str:
    by = {"user": "It is held by its owner", "admin": "It is held by an administrator"}
    return by.get(cause.detail, f"It is held: {cause.detail}") + "."


def _dependency(why: Why, cause: Cause, when: When) -> str:
    if cause.never:
        failed = [ref.detail for ref in cause.jobs if "failed" in ref.detail]
        return f"What it depends on will never be: {', '.join(failed) or cause.detail}."
    shown = []
    for ref in cause.jobs:
        state = f" ({ref.state.lower()})" if ref.state else ""
        shown.append(f"{ref.detail.partition('(')[0]}{state}")
    return f"It waits for other jobs: {', '.join(shown) or cause.detail}{_until(cause, when)}."


def _begin(why: Why, cause: Cause, when: When) -> str:
    return f"It is not to begin before {when(cause.until)} (--begin)."


def _requeue(why: Why, cause: Cause, when: When) -> str:
    return f"It was requeued and waits until {when(cause.until)} before it is tried again."


def _array_limit(why: Why, cause: Cause, when: When) -> str:
    return (
        f"{cause.have} of at most {_plural(cause.limit, 'task')} of the array that may run at once "
        f"do so{_until(cause, when)}."
    )


def _licenses(why: Why, cause: Cause, when: When) -> str:
    held = [f"{ref.id or 'another job'} ({ref.detail})" for ref in cause.jobs]
    by = f"; held by {', '.join(held)}" if held else ""
    text = f"It wants {_plural(cause.want, 'licence')} of {cause.detail}: "
    if cause.never:
        return f"{text}there are {cause.limit} at all."
    return f"{text}{cause.have} of {cause.limit} can be had{by}{_until(cause, when)}."


def _limit(why: Why, cause: Cause, when: When) -> str:
    if cause.scope == "share":
        return (
            f"{cause.whose} takes jobs of those whose fair share is at least "
            f"{cause.limit / 1e6:g}: it is {cause.have / 1e6:g} now."
        )
    what, who = _limited(cause), cause.whose[:1].upper() + cause.whose[1:]
    what = what.removesuffix("s") if cause.limit == 1 else what
    most, wants = f"{cause.limit} {what}", f"it wants {cause.want}"
    if cause.scope == "kept":
        return (
            f"Of {most} {cause.have - cause.kept} are in use, and {cause.kept} are kept for "
            f"accounts that do not lend all that they are guaranteed: {wants}."
        )
    if cause.scope == "least":
        return f"{who} takes no jobs with less than {most}: {wants}."
    if cause.scope in ("job", "node"):
        wants = wants if cause.want else "it has no time limit"
        return f"{who} lets a {cause.scope} have at most {most}: {wants}."
    if cause.scope == "used":
        return f"{who} has used {cause.have} of {most}."
    if cause.never:
        return f"{who} may have {most} at once: {wants} alone."
    held = [f"{ref.id or 'a job of others'} ({ref.detail})" for ref in cause.jobs]
    by = _ids(cause.jobs) if cause.what == "jobs" else ", ".join(held)
    used = f"{cause.have} in use{by and f' by {by}'}{_until(cause, when)}"
    return f"{who} may have {most} at once, {used}: {wants}."


def _limited(cause: Cause) -> str:
    """What a limit counts, in words."""
    names = {"cpu": "CPUs", "mem": "MB of memory", "node": "nodes", "jobs": "running jobs"}
    names |= {"gres/gpu": "GPUs", "wall": "minutes of wall time", "billing": "billing units"}
    what = names.get(cause.what, cause.what)
    if cause.unit and cause.what != "wall":
        single = {"cpu": "CPU", "mem": "MB", "node": "node", "gres/gpu": "GPU"}
        return f"{single.get(cause.what, cause.what)} minutes"
    return what


def _partition_state(why: Why, cause: Cause, when: When) -> str:
    return f"Partition {cause.partition} is {cause.detail}."


def _time_limit(why: Why, cause: Cause, when: When) -> str:
    return (
        f"Its time limit {format_limit(cause.want)} is beyond that of partition "
        f"{cause.partition}, {format_limit(cause.limit)}."
    )


def _size(why: Why, cause: Cause, when: When) -> str:
    what = {"nodes": "nodes", "cpus": "CPUs"}.get(cause.detail, cause.detail)
    return (
        f"It wants {cause.want} {what}, partition {cause.partition} gives a job at most "
        f"{cause.limit}."
    )


def _account(why: Why, cause: Cause, when: When) -> str:
    return f"Partition {cause.partition} does not take account {cause.detail or '(none)'}."


def _qos(why: Why, cause: Cause, when: When) -> str:
    return f"Partition {cause.partition} does not take QOS {cause.detail}."


def _component(why: Why, cause: Cause, when: When) -> str:
    return f"Other components of the job cannot start: {_ids(cause.jobs)}."


def _together(why: Why, cause: Cause, when: When) -> str:
    return "Each component has room, but not all of them at once."


def _priority(why: Why, cause: Cause, when: When) -> str:
    planned = [f"{ref.id} (planned for {when(ref.start)})" for ref in cause.jobs if ref.id]
    hidden = sum(not ref.id for ref in cause.jobs)
    if hidden:
        planned.append(_plural(hidden, "job") + " of others")
    who = ", ".join(planned) or "jobs ahead"
    return f"There is room in partition {cause.partition}, but a start now would delay {who}."


def _kept(why: Why, cause: Cause, when: When) -> str:
    place = _place(why, cause)
    kept = place.kept if place is not None else []
    if cause.kind == "maintenance":
        kept = [one for one in kept if one.maintenance]
    if place is None or not kept:
        return f"Reservations are in its way in partition {cause.partition}: {cause.detail}."
    said = "; ".join(kept_text(why, one, when) for one in kept)
    return f"It would run into others' time in partition {cause.partition}: {said}."


def kept_text(why: Why, one: Kept, when: When) -> str:
    """What a reservation keeps, and when: "reservation r keeps 4 nodes (node[1-4]) until ..."."""
    what = _plural(one.count, "node") if one.whole else _part(one)
    since = f"from {when(one.start)} " if one.start > why.at else ""
    name = f"{'maintenance' if one.maintenance else 'reservation'} {one.name}"
    return f"{name} keeps {what} ({one.nodes}) {since}until {when(one.end)}"


def _part(one: Kept) -> str:
    nodes = _plural(one.count, "node")
    if one.gpus:
        return f"{_plural(one.gpus, 'GPU')} of {nodes}"
    return f"{_plural(one.cpus, 'CPU')} of {nodes}" if one.cpus else f"a part of {nodes}"


def _reservation_begin(why: Why, cause: Cause, when: When) -> str:
    if cause.never:
        return f"Its reservation {cause.detail} is over."
    return f"Its reservation {cause.detail} begins at {when(cause.until)}."


def _never(why: Why, cause: Cause, when: When) -> str:
    place = _place(why, cause)
    if place is not None and place.within is not None:
        return _too_large(place, place.within)
    text = f"Partition {cause.partition} as it is configured cannot hold it, even if it were empty"
    if place is not None:
        worst = [lack for lack in place.lacks if lack.never]
        if worst:
            lack = max(worst, key=lambda one: one.nodes)
            return f"{text}: {demand_text(place, lack)}."
    return f"{text}."


def _too_large(place: Place, within: Kept) -> str:
    """It could not start in its reservation if no job ran there."""
    outside = next((one for one in place.named_lacks if one.what == "reservation"), None)
    if outside is not None:
        are = "is" if outside.nodes == 1 else "are"
        return (
            f"It names {outside.names} (--nodelist), which {are} not of its reservation "
            f"{within.name} ({within.nodes})."
        )
    keeps = _plural(within.count, "node") if within.whole else _part(within)
    wanted = need_text(place)
    if place.needed > 1:
        wanted = f"{_plural(place.needed, 'node')} with {wanted} each"
    elif place.gpus_wanted > place.gpus:
        wanted = f"{_gpus(place, place.gpus_wanted)} in all"
    elif place.cpus_wanted > place.cpus:
        wanted = f"{_plural(place.cpus_wanted, 'CPU')} in all"
    return (
        f"Its reservation {within.name} cannot hold it, even if no job ran there: that keeps "
        f"{keeps} ({within.nodes}), and the job wants {wanted}."
    )


def _nodes(why: Why, cause: Cause, when: When) -> str:
    if cause.detail:
        return f"It names nodes that are out of use: {cause.detail}."
    place = _place(why, cause)
    text = f"It would not fit into partition {cause.partition} even if no job ran"
    away = next((lack for lack in place.lacks if lack.what == "state"), None) if place else None
    if away is None or place is None:
        return f"{text}: GPUs that it needs are out of service."
    return f"{text}: {demand_text(place, away)}."


def _resources(why: Why, cause: Cause, when: When) -> str:
    place = _place(why, cause)
    if place is None:
        return f"Partition {cause.partition} has no room for it."
    if place.named_lacks:
        return f"It names nodes that have no room: {_named(place)}."
    if place.suited >= place.needed:
        for lack in place.lacks:
            if lack.what in _APART:
                where = f"Partition {cause.partition} has no room for it"
                return f"{where}: {demand_text(place, lack)}."
        more = "the nodes with room do not hold all of it together"
        if place.gpus_wanted > place.gpus_free:
            more = f"{_gpus(place, place.gpus_wanted)} are wanted, {place.gpus_free} are free"
        return f"Partition {cause.partition} has no room for it: {more}."
    now = [lack for lack in place.lacks if not lack.never]
    if place.reservation:
        # Nodes outside of its reservation are no news where others lack something.
        now = [lack for lack in now if lack.what != "reservation"] or now
    text = (
        f"Only {place.suited} of the {place.needed} nodes that it wants have room"
        if place.needed > 1
        else "No node has room"
    )
    text += f" in {_whose(place)}"
    if not now:
        return f"{text}."
    lack = max(now, key=lambda one: (one.alone, one.nodes))
    text += f": {demand_text(place, lack)}"
    if lack.what == "gpus" and lack.gpus >= place.gpus_wanted > 0:
        text += f" ({lack.gpus} are free on them, but scattered)"
    return f"{text}."


def _named(place: Place) -> str:
    """What nodes lack that the job names: "node1 has fewer than 2 free GPUs"."""
    found: dict[str, list[str]] = {}
    for lack in place.named_lacks:
        found.setdefault(lack.names, []).append(lack_text(place, lack))
    return "; ".join(f"{names} {' and '.join(texts)}" for names, texts in found.items())


def _not_tested(why: Why, cause: Cause, when: When) -> str:
    return (
        f"A pass of the scheduler looks at the first {_plural(cause.limit, 'job')} "
        f"(bf_max_job_test), and {cause.have} are ahead."
    )


def _settling(why: Why, cause: Cause, when: When) -> str:
    nodes = f" ({cause.detail})" if cause.detail else ""
    return (
        "The controller has started anew: nothing starts until the nodes that were in use have "
        f"answered{nodes}{_until(cause, when)}."
    )


def _new(why: Why, cause: Cause, when: When) -> str:
    return "Nothing is in its way; the scheduler has not come to it yet."


_CAUSES: dict[str, Callable[[Why, Cause, When], str]] = {
    "hold": _hold,
    "dependency": _dependency,
    "begin": _begin,
    "requeue": _requeue,
    "array_limit": _array_limit,
    "licenses": _licenses,
    "limit": _limit,
    "partition_state": _partition_state,
    "time_limit": _time_limit,
    "size": _size,
    "account": _account,
    "qos": _qos,
    "component": _component,
    "together": _together,
    "priority": _priority,
    "reservation": _kept,
    "maintenance": _kept,
    "reservation_begin": _reservation_begin,
    "never": _never,
    "nodes": _nodes,
    "resources": _resources,
    "not_tested": _not_tested,
    "new": _new,
    "settling": _settling,
    **PREEMPTION,
    **STILL,
}


def _place(why: Why, cause: Cause) -> Place | None:
    way = cause.partition, cause.reservation
    return next((one for one in why.places if (one.partition, one.reservation) == way), None)


def _whose(place: Place) -> str:
    """Where it would start."""
    if place.reservation:
        return f"its reservation {place.reservation}"
    return f"partition {place.partition}"


# ---- demands -----------------------------------------------------------------------------------


def _gpus(place: Place, count: int) -> str:
    kind = f"{place.gpu_type} " if place.gpu_type else ""
    return _plural(count, f"{kind}GPU")


def _parts(name: str, count: str) -> str:
    """ "2 shards", "50 mps"."""
    return _plural(int(count), name) if name == "shard" else f"{count} {name}"


def need_text(place: Place) -> str:
    """What each node has to give."""
    parts = []
    if place.share:
        name, _, count = place.share.partition(":")
        parts.append(f"{_parts(name, count)} of a GPU")
    elif place.gpus:
        parts.append(_gpus(place, place.gpus))
    if place.gres:
        parts.append(place.gres)
    parts.append(_plural(place.cpus, "CPU"))
    if place.mem_mb:
        parts.append(f"{format_memory_short(place.mem_mb)} of memory")
    return ", ".join(parts)


#: nodes that have room one by one
_APART = {
    "switch": "not below as few switches as it wants",
    "block": "not in one block",
    "contiguous": "not side by side",
}


#: jobs that keep it out, by what it wants for itself
_BUSY = {
    "node": "other jobs, and whole nodes are wanted",
    "user": "jobs of others, or jobs that share with others (--exclusive=user)",
    "": "jobs of a user who shares with nobody (--exclusive=user)",
}


def demand_text(place: Place, lack: Lack) -> str:
    """How many nodes fail a demand."""
    return f"{lack.nodes} of {_plural(place.nodes, 'node')} {lack_text(place, lack)}"


def lack_text(place: Place, lack: Lack) -> str:
    """What nodes lack: "have fewer than 4 free GPUs"."""
    one = lack.nodes == 1
    have, are = ("has", "is") if one else ("have", "are")
    free = "" if lack.never else " free"
    if lack.what == "gres":
        return f"{have} too little{free} of {place.gres}"
    if lack.what == "gpus" and place.share:
        name, _, count = place.share.partition(":")
        return f"{have} no GPU with {_parts(name, count)}{free}"
    if lack.what == "gpus":
        kind = f"{place.gpu_type} " if place.gpu_type else ""
        return f"{have} fewer than {place.gpus}{free} {kind}GPU{'s' * (place.gpus != 1)}"
    if lack.what == "cpus":
        return f"{have} fewer than {place.cpus}{free} CPU{'s' * (place.cpus != 1)}"
    if lack.what == "memory":
        size = format_memory_short(place.mem_mb) if place.mem_mb else "all memory"
        text = f"{have} less than {size}{free}" if place.mem_mb else f"{have} memory in use"
        if lack.never or not lack.gpus:
            return text
        are = "is" if lack.gpus == 1 else "are"
        return f"{text}, while {_gpus(place, lack.gpus)} {are} free there"
    if lack.what == "island":
        if lack.never:
            return f"{have} no {place.gpus} GPUs on one NVLink island"
        return f"{have} {place.gpus} free GPUs, but not on one NVLink island"
    if lack.what == "gpu_type":
        return f"{have} no GPU of type {place.gpu_type}"
    if lack.what == "features":
        return f"{have} not the features {place.features}"
    if lack.what == "reserved":
        return f"{are} kept for jobs ahead"
    if lack.what == "reservation" and place.reservation:
        return f"{are} not of its reservation {place.reservation}, or kept for a maintenance"
    if lack.what in _APART:
        return f"{have} room, but {_APART[lack.what]}"
    return {
        "partition": f"{are} not in the partition",
        "excluded": f"{are} excluded (--exclude)",
        "state": f"{are} out of use",
        "busy": f"{have} {_BUSY.get(place.alone, _BUSY['node'])}",
        "reservation": f"{are} kept for reservations of others",
        "layout": f"{have} other sockets, cores or threads",
        "cap": f"{have} too few{free} CPUs that such jobs may use (MaxCPUsPerNode, "
        "MaxCPUsPerSocket or RestrictedCoresPerGPU)",
        "kept": f"{have} too little free beside what is kept for idle GPUs (gpu_keep_cpus, "
        "gpu_keep_mem)",
        "near": f"{have} too few{free} cores near the GPUs, or by socket",
    }.get(lack.what, f"cannot meet the demand {lack.what!r}")


def away_text(away: Away) -> str:
    """ "node3 is DRAINED: fans (root)"."""
    are = "is" if away.count == 1 else "are"
    if away.state.endswith("GPU_FAULT"):
        count = int(away.state.partition(" ")[0])
        return f"{away.nodes} has {_plural(count, 'GPU')} out of service: {away.reason}"
    by = f" ({_user(away.by)})" if away.by >= 0 else ""
    reason = f": {away.reason}{by}" if away.reason else ""
    return f"{away.nodes} {are} {away.state}{reason}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


# ---- when --------------------------------------------------------------------------------------


def start_text(why: Why, when: When) -> str:
    """When it is expected to start, and how that is known."""
    start = why.start
    if why.never:
        return "never, as it is"
    if not start.time:
        return "not known"
    at = when(start.time)
    return {
        "now": "now",
        "planned": f"{at}, planned: {start.nodes} will be kept for it",
        "not_before": f"not before {at}",
        "earliest": f"{at} at the earliest: jobs ahead without a plan may take that room",
    }.get(start.basis, f"{at}, when that is over")


def rank_text(rank: Rank) -> str:
    """Its priority, and how its account stands."""
    text = f"priority {rank.priority}, fair share {rank.fair_share:.2f}"
    if not rank.account:
        return text
    return (
        f"{text}; account {rank.account} has used {rank.used:.1%} of what all have used, its share "
        f"is {rank.promised:.1%} (sprio, sshare)"
    )


def ahead_text(why: Why, when: When) -> str:
    """The jobs that come first; "" none."""
    if not why.ahead.jobs:
        return ""
    text = f"{_plural(why.ahead.jobs, 'job')} in {_in(why)}"
    first = why.ahead.first
    if first is not None and first.id:
        text += f"; job {first.id} is the first that waits for room"
    return text


def _in(why: Why) -> str:
    names = ",".join(why.partitions)
    return f"partition{'s' * (len(why.partitions) > 1)} {names}"


def lines(why: Why, when: When) -> Iterator[str]:
    """The whole verdict as text."""
    head = headline(why)
    if why.state != "PENDING":
        yield f"{head}."
        if why.began:
            on = f" on {why.nodes}" if why.nodes else ""
            ended = f", ended {when(why.ended)}" if why.ended and why.state != "RUNNING" else ""
            yield f"  started {when(why.began)}{on}{ended}"
        for text in sentences(why, when):
            yield f"  {text}"
        return
    # The word of a list without blanks, as squeue has it.
    yield head if why.starts or " " in why.reason else f"{head}: {why.reason}"
    if why.at > why.now:
        ahead = ", and jobs ahead without a plan are not counted" if why.ahead.jobs else ""
        yield f"  (at {when(why.at)}, if running jobs last as long as they may{ahead})"
    for text in [] if why.starts else sentences(why, when):
        yield f"  {text}"
    for part in why.components:
        yield ""
        yield from (f"  {line}" if line else "" for line in lines(part, when))
    if not why.starts:
        for place in why.places:
            if place.starts or (place.room and not place.lacks):
                continue
            yield ""
            wanted = "1 is" if place.needed == 1 else f"{place.needed} are"
            each = "" if place.needed == 1 else " each"
            has = "has" if place.suited == 1 else "have"
            yield (
                f"Partition {place.partition} has {_plural(place.nodes, 'node')}; {wanted} wanted "
                f"with {need_text(place)}{each}; {place.suited} {has} room"
            )
            if place.named:
                yield f"  {place.named} among them (--nodelist)"
            if place.reservation:
                yield f"  in reservation {place.reservation}"
            for lack in place.lacks:
                only = f" ({lack.alone} only this)" if 0 < lack.alone < lack.nodes else ""
                yield f"  {lack.nodes:>6}  {lack_text(place, lack)}{only}"
                for away in lack.away:
                    yield f"          {away_text(away)}"
                if lack.what == "reservation":
                    for one in place.kept:
                        yield f"          {kept_text(why, one, when)}"
    if why.components:
        return
    yield ""
    ahead = ahead_text(why, when)
    if ahead:
        yield f"Ahead: {ahead}"
    if why.rank is not None and why.rank.account:
        yield f"Rank: {rank_text(why.rank)}"
    if why.starts and why.start.nodes:
        yield f"Room on {why.start.nodes}"
    else:
        yield f"Expected start: {start_text(why, when)}"
    if why.suggestions:
        yield "It would start " + ("then" if why.at > why.now else "now") + " with"
        for other in why.suggestions:
            words = [*other.options, *(f"(without {name})" for name in other.without)]
            yield f"    {' '.join(words)}    on {other.nodes}"
    for command in why.commands:
        yield f"Or: {command}"


def record_lines(why: Why, when: When) -> list[str]:
    """The verdict as `scontrol show job -dd` has it: Key=Value."""
    out = [f"Why={text}" for text in sentences(why, when)]
    for place in why.places:
        for lack in place.lacks:
            out.append(
                f"WhyDemand={lack.what} Partition={place.partition} Never={int(lack.never)} "
                f"Nodes={lack.nodes}/{place.nodes} Alone={lack.alone} NodeList={lack.names}"
            )
        for one in place.kept:
            out.append(
                f"WhyReservation={one.name} Partition={place.partition} "
                f"StartTime={when(one.start)} EndTime={when(one.end)} "
                f"Maintenance={int(one.maintenance)} Nodes={one.count} NodeList={one.nodes} "
                f"GPUs={one.gpus}"
            )
    first = why.ahead.first.id if why.ahead.first is not None else ""
    out.append(f"WhyAhead={why.ahead.jobs} First={first or '(null)'}")
    start = why.start
    out.append(
        f"WhyStart={when(start.time) if start.time else 'Unknown'} Basis={start.basis} "
        f"NodeList={start.nodes or '(null)'}"
    )
    for other in why.suggestions:
        words = [*other.options, *(f"without:{name}" for name in other.without)]
        out.append(f"WhyInstead={' '.join(words)}")
    return out
