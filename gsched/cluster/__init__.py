"""The live cluster, bound to the matching core: the only owner of one."""

from gsched.cluster.cluster import Cluster

__all__ = ["Cluster"]
