"""A C library with the ABI of NVML, described by a topology file (topology.h says its format).

The topology files of known machines lie beside this one: dgx-h100, dgx-a100, dgx-1v, a100-pcie,
a100-mig, gb200 and peer.
"""

from __future__ import annotations

from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"


def library() -> Path:
    """Where the compiled library lies; FileNotFoundError when it was not built."""
    path = Path(__file__).with_name(LIBRARY)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: the C parts were not built (pip install .)")
    return path


def topologies() -> list[str]:
    """Names of the machines that are described here."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.json"))


def topology(name: str) -> Path:
    """The topology file for a name of `topologies()`, or the file that `name` itself is."""
    path = Path(__file__).parent / f"{name}.json"
    return path if "/" not in name and path.exists() else Path(name)
