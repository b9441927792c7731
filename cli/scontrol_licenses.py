"""scontrol's licences and federation: what may be shared with other clusters."""

from __future__ import annotations

from collections.abc import Mapping

from gsched.model.policy import Resource
from gsched_cli.common import Reader, Streams
from gsched_cli.stop import asking, cluster_config
from gsched_cli.text import timestamp

NAME = "scontrol"


def all_licenses(reader: Reader) -> tuple[dict[str, int], dict[str, Resource]]:
    """How many of each there are, by name; and those that are served from outside."""
    from gsched.policy import Book
    from gsched.wire.policy import PolicyQuery

    rows = asking(lambda: reader.policy(PolicyQuery()), "slurm_load_licenses error:")
    book = Book(one for one in rows.records if isinstance(one, Resource))
    return book.licenses(reader.settings().licenses), book.resources


def show_licenses(
    what: str | None, env: Mapping[str, str], reader: Reader, streams: Streams, one_line: bool
) -> int:
    totals, remote = all_licenses(reader)
    if not totals:
        streams.stdout.write("No licenses configured in Slurm.\n")
        return 0
    between = " " if one_line else "\n    "
    for name, total, used, kept in chosen_licenses(what, totals, reader):
        one = remote.get(name)
        free = max(0, total - used - (one.deficit if one is not None else 0))
        where = "no" if one is None else "yes"
        figures = f"Total={total} Used={used} Free={free} Reserved={kept} Remote={where}"
        if one is not None:
            when = timestamp(one.modified, env, reader.now())
            figures += f"{between}LastConsumed={one.last_consumed} LastDeficit={one.deficit}"
            figures += f" LastUpdate={when}"
        streams.stdout.write(f"LicenseName={name}{between}{figures}\n")
    return 0


def chosen_licenses(
    what: str | None, totals: Mapping[str, int], reader: Reader
) -> list[tuple[str, int, int, int]]:
    """Licences by name: how many there are, are used, and are kept by reservations."""
    from gsched.licenses import parse
    from gsched.wire.messages import JobQuery, NodeQuery

    rows = asking(lambda: reader.jobs(JobQuery(active_only=True)), "slurm_load_licenses error:")
    used = dict.fromkeys(totals, 0)
    for job in rows.jobs:
        if job.alloc and job.licenses_alloc:
            for name, count in parse(job.licenses_alloc)[0].items():
                used[name] = used.get(name, 0) + count
    reserved = dict.fromkeys(totals, 0)
    now = reader.now()
    for resv in asking(
        lambda: reader.nodes(NodeQuery()), "slurm_load_licenses error:"
    ).reservations:
        if resv.licenses and resv.active(now):
            for name, count in parse(resv.licenses)[0].items():
                reserved[name] = reserved.get(name, 0) + count
    return [
        (name, total, used[name], reserved[name])
        for name, total in sorted(totals.items())
        if what is None or what == name
    ]


def show_federation(reader: Reader, streams: Streams) -> int:
    """The federation that the cluster is in; nothing where it is in none."""
    from gsched.policy import Book
    from gsched.wire.policy import PolicyQuery

    rows = asking(lambda: reader.policy(PolicyQuery()), "slurm_load_federation error:")
    config = cluster_config(reader, NAME)
    own = Book(rows.records).clusters.get(config.cluster_name)
    if own is None or not own.federation:
        return 0
    hosts = config.slurmctld_host
    host = hosts[0].addr or hosts[0].name if hosts else ""
    streams.stdout.write(
        f"Federation: {own.federation}\n"
        f"Self:       {own.name}:{host}:{config.slurmctld_port} ID:{own.fed_id} "
        f"FedState:{own.fed_state} Features:{','.join(own.features)}\n"
    )
    return 0
