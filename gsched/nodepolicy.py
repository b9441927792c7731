"""Which of the nodes that can hold a job gets it: the words of SelectTypeParameters."""

from __future__ import annotations

from gsched import _core
from gsched.config import Config, PartitionConfig

#: words of SelectTypeParameters, of the cluster or of a partition -> how nodes are ranked
WORDS = {
    "CR_LLN": _core.LEAST_LOADED,
    "LEASTLOADED": _core.LEAST_LOADED,
    "FIRSTFIT": _core.FIRST_FIT,
    "BESTFIT": _core.BEST_FIT,
    "BINPACK": _core.BIN_PACK,
    "FGD": _core.FGD,
    "DENSEFIT": _core.DENSE_FIT,
}


def chosen(part: PartitionConfig, config: Config) -> int:
    """The partition's word, else the cluster's, else the core's own way (least GPUs left, islands
    kept whole)."""
    if part.lln:
        return _core.LEAST_LOADED
    for text in (part.select_type_parameters, *config.select_type_parameters):
        for word in text.upper().split(","):
            if word in WORDS:
                return WORDS[word]
    return _core.PACK
