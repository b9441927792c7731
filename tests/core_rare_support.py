"""Random requests with the demands that few have, for the tests of the core against its twin."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

RARE = ["kinds", "kinds", "per core", "per gpu", "layout", "one of", "counts", "prefer"]
RARE += ["binding", "binding", "binding", "anywhere", "per socket", "per socket", "gpus per socket"]


def rare(draw: st.DrawFn, out: dict[str, Any]) -> None:
    """Adds up to two of them to a request."""
    odd = draw(st.sets(st.sampled_from(RARE), max_size=2))
    whole = not out.get("gpu_milli") and not out.get("one_island") and out.get("gpu_type", -1) < 0
    if "kinds" in odd and whole:
        kinds(draw, out)
    if "per core" in odd:
        out["ntasks_per_core"] = draw(st.integers(1, 2))
    if "per gpu" in odd and out.get("gpus_total"):
        out["ntasks_per_gpu"] = draw(st.integers(1, 3))
        out["ntasks"] = out["gpus_total"] * out["ntasks_per_gpu"]
    if "layout" in odd:
        name = draw(st.sampled_from(["min_sockets", "min_cores_per_socket", "min_threads"]))
        out[name] = draw(st.sampled_from([1, 2, 4]))
    if "binding" in odd:
        out["gpu_binding"] = 1
    elif "anywhere" in odd:
        out["gpu_binding"] = 2
    if "per socket" in odd:
        out["ntasks_per_socket"] = draw(st.integers(1, 3))
    plain = not {"gpus_per_task", "gpu_kinds", "gpu_milli", "one_island"} & set(out)
    if "gpus per socket" in odd and "gpus_per_node" in out and plain:
        out["gpus_per_socket"] = draw(st.integers(1, 2))
        out["min_sockets"] = draw(st.integers(1, 2))
        out["gpus_per_node"] = out["gpus_per_socket"] * out["min_sockets"]
    if "counts" in odd:
        most = max(out["min_nodes"], out["max_nodes"])
        first = draw(st.integers(1, most))
        groups = [(first, (draw(st.integers(1, 7)),))]
        if first < most:
            groups.append((draw(st.integers(1, most - first)), (1, 6)))
        out["variants"] = (((), tuple(groups)),)
    elif "one of" in odd:
        out["variants"] = (((1,), ()), ((2,), ()))
    elif "prefer" in odd:
        out["variants"] = (((4,), ()), ((), ()))


def domains(draw: st.DrawFn, out: dict[str, Any], gpus: int) -> None:
    """Gives a node several domains of cores, on one or two sockets, and its GPUs near some."""
    count = draw(st.sampled_from([2, 2, 3]))
    cores = out["cpus"] // out.get("threads", 1)
    sizes = [cores // count] * (count - 1)
    sizes.append(cores - sum(sizes))
    out["domains"] = tuple((d * 2 // count, size) for d, size in enumerate(sizes))
    out["sockets"] = 2
    if draw(st.integers(0, 3)):
        out["near"] = tuple(1 << (g * count // max(gpus, 1)) for g in range(gpus))
    else:
        out["near"] = tuple(
            draw(st.lists(st.integers(0, (1 << count) - 1), min_size=gpus, max_size=gpus))
        )


def kinds(draw: st.DrawFn, out: dict[str, Any]) -> None:
    """GPUs of two types."""
    form = [name in out for name in ("gpus_per_node", "gpus_per_task", "gpus_total")]
    if not any(form):
        return
    rows = []
    for kind in (0, 1):
        rows.append([kind, *(draw(st.integers(1, 3)) if asked else 0 for asked in form)])
    out["gpu_kinds"] = tuple(tuple(row) for row in rows)
    for place, name in enumerate(("gpus_per_node", "gpus_per_task", "gpus_total"), 1):
        if name in out:
            out[name] = sum(row[place] for row in rows)
    if "gpus_total" in out and out["min_nodes"] > out["gpus_total"]:
        del out["gpu_kinds"]
        out["gpus_total"] = out["min_nodes"]
