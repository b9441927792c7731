"""sinfo: partitions and nodes, alike ones in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gsched.config import Config
from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, error
from gsched_cli.fields import Field, Format, Table, parse_long, parse_short, sort_views
from gsched_cli.fields_node import (
    OF_PARTITION,
    RANGED,
    SUMMED,
    Row,
    node_table,
    partition_text,
)
from gsched_cli.nodeview import NodeView, held_nodes, node_views
from gsched_cli.sinfo_options import NAME, Wanted, read_options
from gsched_cli.stop import Stop, again_and_again, asking, cluster_config, own_cluster
from gsched_cli.text import date_line

if TYPE_CHECKING:
    from gsched.wire.messages import NodeRows
    from gsched_cli.dump import Asked

#: "#" stands for the width of the longest partition or node name
DEFAULT = "%#P %.5a %.10l %.6D %.6t %N"
LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
SUMMARY = "%#P %.5a %.10l %.16F %N"
NODES = "%#N %.6D %.#P %6t"
LONG_NODES = "%#N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
REASONS = "%20E %9u %19H %N"
LONG_REASONS = "%20E %12U %19H %6t %N"
SORT = "#P,-t"


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = read_options(argv, env, streams, reader)
        again_and_again(
            wanted.iterate, streams, lambda: _report(wanted, argv, env, streams, reader)
        )
        return 0
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _report(
    wanted: Wanted,
    argv: Sequence[str],
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
) -> None:
    from gsched.wire.messages import NodeQuery

    out = streams.stdout
    rows_of = asking(lambda: reader.nodes(NodeQuery()), "slurm_load_partitions:")
    now = reader.now()
    if wanted.dump:
        from gsched_cli.dump import Asked

        out.write(_dump(wanted, rows_of, Asked(wanted.dump, NAME, argv, env, reader), now))
        return
    if wanted.cluster:
        prefix = "slurm_load_partitions:"
        cluster = own_cluster(wanted.cluster, reader, NAME, prefix, streams)
        out.write(f"CLUSTER: {cluster}\n" if wanted.header else "")
    if wanted.iterate or (wanted.wide and wanted.header):
        out.write(date_line(now))
    if wanted.reservations:
        from gsched_cli.scontrol_reservation import table as reservation_table

        found = sorted(rows_of.reservations, key=lambda each: (each.created, each.name))
        text = reservation_table(found, env, now, wanted.header)
        out.write(text if found else "No reservations in the system\n")
        return
    config = cluster_config(reader, NAME)
    nodes = _nodes(config, rows_of, wanted, now)
    table = node_table(env, now, config)
    layout = _layout(wanted, table, config, nodes)
    for name in layout.bad:
        if wanted.long is None:
            streams.stderr.write(f"Invalid node format specification: {name}\n")
        else:
            error(streams, NAME, f"Invalid job format specification: {name}")
    apart = [
        column.field
        for column in layout.columns
        if column.field is not None
        and column.field.names[0] not in SUMMED
        and (wanted.exact or column.field.names[0] not in RANGED)
    ]

    def key(row: Row) -> object:
        return tuple([field.read(row) for field in apart])

    rows = _rows(wanted, config, nodes, layout.uses(*OF_PARTITION), key)
    special = {"#P": Field[Row]("", ("#P",), "", lambda row: "", lambda row: row.order)}
    default = "N" if wanted.each_node else "" if wanted.reasons else SORT
    sort_views(rows, default if wanted.sort is None else wanted.sort, table, special)
    if wanted.header:
        out.write(layout.header())
    out.writelines(map(layout.row, rows))


def _nodes(config: Config, rows: NodeRows, wanted: Wanted, now: float) -> list[NodeView]:
    kept = held_nodes(rows.reservations, now)
    return node_views(config, rows.nodes, rows.use, wanted.future, kept, rows.planned)


def _dump(wanted: Wanted, rows_of: NodeRows, asked: Asked, now: float) -> str:
    """The rows as JSON or YAML, or the reservations."""
    from gsched_cli.dump_node import reservation_shape, row_key, row_shape

    config = asked.config
    if wanted.reservations:
        found = sorted(rows_of.reservations, key=lambda each: (each.created, each.name))
        shown = asked.records(reservation_shape(config, now), found)
        return asked.document(reservations=shown)
    nodes = _nodes(config, rows_of, wanted, now)
    rows = _rows(wanted, config, nodes, True, row_key)
    return asked.document(sinfo=asked.records(row_shape(config), rows))


def _layout(
    wanted: Wanted, table: Table[Row], config: Config, nodes: list[NodeView]
) -> Format[Row]:
    if wanted.long is not None:
        return parse_long(wanted.long, table)
    if wanted.short is not None:
        return parse_short(wanted.short, table)
    if wanted.reasons:
        text = LONG_REASONS if wanted.wide else REASONS
    elif wanted.each_node:
        text = LONG_NODES if wanted.wide else NODES
    elif wanted.summary:
        text = SUMMARY
    else:
        text = LONG if wanted.wide else DEFAULT
    part = max([9, *(len(partition_text(part)) for part in config.partitions.values())])
    name = max([9, *(len(node.name) for node in nodes)])
    return parse_short(text.replace("#P", f"{part}P").replace("#N", f"{name}N"), table)


def _rows(
    wanted: Wanted,
    config: Config,
    nodes: list[NodeView],
    by_partition: bool,
    key_of: Callable[[Row], object],
) -> list[Row]:
    """Groups the chosen nodes of the chosen partitions into lines, those of one key into one."""
    chosen = {node.name: node for node in nodes if _passes(node, wanted)}
    rows: list[Row] = []
    groups: dict[object, Row] = {}
    seen: dict[object, set[str]] = {}
    for order, part in enumerate(config.partitions.values()):
        if part.hidden and not wanted.all and part.name not in (wanted.partitions or ()):
            continue
        if wanted.partitions is not None and part.name not in wanted.partitions:
            continue
        here = [chosen[name] for name in part.nodes if name in chosen]
        if not here and by_partition and not wanted.each_node and not wanted.reasons:
            rows.append(Row(part, order, []))
        for node in here:
            single = Row(part, order, [node])
            if wanted.each_node:
                rows.append(single)
                continue
            key = (order if by_partition else -1, key_of(single))
            row = groups.get(key)
            if row is None:
                groups[key] = single
                seen[key] = {node.name}
                rows.append(single)
            elif node.name not in seen[key]:
                seen[key].add(node.name)
                row.nodes.append(node)
    return rows


def _passes(node: NodeView, wanted: Wanted) -> bool:
    if wanted.nodes is not None and node.name not in wanted.nodes:
        return False
    if wanted.dead and node.responding:
        return False
    if wanted.responding and not node.responding:
        return False
    if wanted.states is not None:
        # Alternatives, each of which may demand several words at once.
        return any(all(node.in_state(word) for word in words) for words in wanted.states)
    if wanted.reasons:
        return bool(node.reason) and (
            node.base == "DOWN" or not {"DRAIN", "FAIL"}.isdisjoint(node.flags)
        )
    return True


if __name__ == "__main__":
    main()
