"""CSV with a line of names at its head."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from gsched.simulate.traces.job import TraceError, at


def rows(
    path: str, lines: Iterable[str], needed: Sequence[str], delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, column -> value) of each row. TraceError where one of `needed` has no column,
    or a row has not as many values as the head names."""
    table = csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE,
    )
    head: list[str] | None = None
    try:
        for row in table:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if head is None:
                head = [name.strip() for name in row]
                missing = [name for name in needed if name not in head]
                if missing:
                    raise at(path, table.line_num, f"there is no column {', '.join(missing)}")
                continue
            if len(row) != len(head):
                raise at(
                    path,
                    table.line_num,
                    f"{len(row)} values, where the head names {len(head)} columns",
                )
            yield table.line_num, dict(zip(head, row, strict=True))
    except csv.Error as error:
        raise at(path, table.line_num, f"not CSV: {error}") from None
    if head is None:
        raise TraceError(f"{path}: the file is empty")
