"""The rarer demands of a shape in the core's words: sets of features, GPUs of several types, tasks
by core, socket and GPU, cores near GPUs."""

from __future__ import annotations

from typing import Any

from gsched import features
from gsched.cluster.nodes import Nodes
from gsched.config import Config
from gsched.model import NodeAlloc, Shape


def rare_words(shape: Shape, nodes: Nodes, words: dict[str, Any]) -> dict[str, Any]:
    """What changes in the arguments of Core.request; `words` are those without rare demands. Cost:
    nothing for shapes that have none."""
    found: dict[str, Any] = {}
    if shape.features or shape.prefer:
        found |= _features(shape, nodes, words)
    if shape.ntasks_per_core:
        found["ntasks_per_core"] = shape.ntasks_per_core
    for name, least in (
        ("min_sockets", shape.sockets_per_node),
        ("min_cores_per_socket", shape.cores_per_socket),
        # One thread of each core can be used on any node.
        ("min_threads", shape.threads_per_core if shape.threads_per_core > 1 else 0),
    ):
        if least:
            found[name] = least
    if shape.one_island:
        found["one_island"] = True
    if shape.ntasks_per_gpu:
        found |= _by_gpu(shape, words)
    if shape.ntasks_per_socket:
        found["ntasks_per_socket"] = shape.ntasks_per_socket
    gpus = bool(words["gpus_per_node"] or words["gpus_per_task"] or found.get("gpus_total"))
    gpus = gpus or words["gpus_total"] > 0
    if gpus and not shape.share:
        found |= _near(shape)
    if shape.gpu_kinds:
        found["gpu_kinds"] = tuple(
            (nodes.type_id(kind), *counts) for kind, *counts in shape.gpu_kinds
        )
    return found


def _near(shape: Shape) -> dict[str, Any]:
    """What is said about cores near GPUs, and GPUs near each other."""
    found: dict[str, Any] = {}
    if shape.gres_binding:
        found["gpu_binding"] = shape.gres_binding
    if shape.one_island:
        found["one_island"] = True
    other = shape.gpus_per_node or shape.gpus_per_task or shape.gpus_total or shape.one_island
    if shape.gpus_per_socket and shape.sockets_per_node and not other:
        found["gpus_per_socket"] = shape.gpus_per_socket
    return found


def _features(shape: Shape, nodes: Nodes, words: dict[str, Any]) -> dict[str, Any]:
    variants = features.constraint(shape.features) or [features.Variant((features.ANY,))]
    least, most = words["min_nodes"], words["max_nodes"]
    wanted = max(variant.nodes for variant in variants)
    if not most or wanted <= most:
        least = max(least, wanted)
    # What is only preferred is left out where there is no room for it.
    preferred = [
        variant
        for variant in features.constraint(shape.prefer)
        if variant.nodes <= max(least, most)
    ]
    every = preferred + variants

    def masks(options: tuple[features.Option, ...]) -> tuple[int, ...]:
        if features.ANY in options:
            return ()
        return tuple(sum(1 << nodes.feature_bit(name) for name in option) for option in options)

    sets = [masks(variant.alternatives) for variant in every]
    found: dict[str, Any] = {"min_nodes": least}
    # In some answer may be what passes one of them.
    found["features_any"] = tuple(dict.fromkeys(m for s in sets for m in s)) if all(sets) else ()
    if len(every) > 1 or every[0].groups:
        found["variants"] = tuple(
            (own, tuple((count, masks(options) or (0,)) for count, options in variant.groups))
            for own, variant in zip(sets, every, strict=True)
        )
    return found


def _by_gpu(shape: Shape, words: dict[str, Any]) -> dict[str, Any]:
    """So many tasks for each GPU: where GPUs are counted in all, tasks go where those are."""
    each = shape.ntasks_per_gpu
    if words["gpus_per_node"]:
        return {"ntasks_per_node": shape.ntasks_per_node or words["gpus_per_node"] * each}
    total = words["gpus_total"] or -(-words["ntasks"] // each)
    if not total or words["gpus_per_task"]:
        return {}
    total = max(total, words["min_nodes"])
    return {
        "gpus_total": total,
        "ntasks": total * each,
        "ntasks_per_gpu": each,
        "mem_per_gpu_mb": shape.mem_per_gpu or 0,
        "cpus_per_gpu": shape.cpus_per_gpu,
    }


def batch_first(wanted: str, alloc: list[NodeAlloc], config: Config) -> None:
    """Puts the first node with the features of --batch in front: it runs the script."""
    if not wanted:
        return
    options = features.parse(wanted)
    for place, part in enumerate(alloc):
        has = set(config.nodes[part.node].features)
        if any(option <= has for option in options):
            alloc.insert(0, alloc.pop(place))
            return
