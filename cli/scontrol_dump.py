"""`scontrol --json` and `--yaml`: what `show` and `ping` say, for programs."""

from __future__ import annotations

from gsched_cli.common import Streams
from gsched_cli.dump import Asked, number
from gsched_cli.stop import Stop, asking

NAME = "scontrol"


def show(
    kind: str, what: str | None, asked: Asked, streams: Streams, all_: bool, future: bool
) -> int:
    """The records of a kind (a value of scontrol_show.ENTITIES); `what` names some of them. Names
    that mean nothing are said on standard error, and the exit code is then 1."""
    now = asked.reader.now()
    missing: list[str] = []
    if kind == "job":
        from gsched_cli.dump_job import job_document
        from gsched_cli.scontrol_show import chosen_jobs

        text = job_document(asked, chosen_jobs(what, asked.env, asked.reader, now), now)
    elif kind == "step":
        from gsched_cli.dump_job import step_document
        from gsched_cli.scontrol_step import chosen_steps

        steps = chosen_steps(what, asked.reader)
        missing = [f"Job step {what}"] if what is not None and not steps else []
        text = step_document(asked, steps)
    elif kind == "node":
        from gsched_cli.dump_node import node_shape
        from gsched_cli.scontrol_show import chosen_nodes

        nodes = chosen_nodes(what, asked.config, asked.reader, future)
        missing = [f"Node {name}" for name, view in nodes if view is None]
        found = asked.records(node_shape(asked.config), [view for _, view in nodes if view])
        text = asked.document(nodes=found, last_update=number(int(now)))
    elif kind == "partition":
        text, missing = _partitions(what, asked, all_, now)
    elif kind == "reservation":
        text, missing = _reservations(what, asked, now)
    elif kind == "licenses":
        from gsched_cli.dump_node import license_record
        from gsched_cli.scontrol_licenses import all_licenses, chosen_licenses

        totals, remote = all_licenses(asked.reader)
        rows = chosen_licenses(what, totals, asked.reader)
        found_ = [license_record(*row, remote.get(row[0])) for row in rows]
        text = asked.document(licenses=found_, last_update=number(int(now)))
    else:
        raise Stop(1, f"{NAME}: error: show {kind} has no JSON or YAML output\n")
    for name in missing:
        streams.stderr.write(f"{name} not found\n")
    streams.stdout.write(text)
    return 1 if missing else 0


def _partitions(what: str | None, asked: Asked, all_: bool, now: float) -> tuple[str, list[str]]:
    from gsched_cli.dump_node import partition_shape

    parts = asked.config.partitions
    if what is None:
        shown = [part for part in parts.values() if all_ or not part.hidden]
        missing = []
    else:
        names = what.split(",")
        shown = [parts[name] for name in names if name in parts]
        missing = [f"Partition {name}" for name in names if name not in parts]
    found = asked.records(partition_shape(asked.config), shown)
    return asked.document(partitions=found, last_update=number(int(now))), missing


def _reservations(what: str | None, asked: Asked, now: float) -> tuple[str, list[str]]:
    from gsched.wire.messages import NodeQuery
    from gsched_cli.dump_node import reservation_shape

    rows = asking(lambda: asked.reader.nodes(NodeQuery()), "slurm_load_reservations error:")
    found = sorted(rows.reservations, key=lambda each: (each.created, each.name))
    shown = [each for each in found if what is None or each.name == what]
    missing = [f"Reservation {what}"] if what is not None and not shown else []
    records = asked.records(reservation_shape(asked.config, now), shown)
    return asked.document(reservations=records, last_update=number(int(now))), missing


def ping(asked: Asked, streams: Streams) -> int:
    """`ping`: exit 1 if the controller does not answer."""
    import time

    from gsched.client import ControllerDown
    from gsched_cli.dump_node import ping_record

    hosts = asked.config.slurmctld_host
    began = time.monotonic()
    try:
        up = asked.reader.status().controller_up
    except ControllerDown:
        up = False
    latency = int((time.monotonic() - began) * 1e6)
    record = ping_record(hosts[0].name if hosts else "localhost", up, latency)
    streams.stdout.write(asked.document(pings=[record]))
    return 0 if up else 1
