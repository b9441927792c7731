"""Who may use a partition, asked by an ordinary user of a real cluster."""

from __future__ import annotations

import grp
import pwd

from e2e_support import LocalCluster


def test_only_the_groups_of_a_partition_get_in(cluster: LocalCluster, other_user: str) -> None:
    group = grp.getgrgid(pwd.getpwnam(other_user).pw_gid).gr_name

    def submit() -> tuple[int, str]:
        argv = ["sbatch", "-H", "-p", "closed", "--wrap", "true"]
        done = cluster.run(argv, check=False, user=other_user)
        return done.returncode, done.stderr

    cluster.run(["scontrol", "create", "PartitionName=closed", "Nodes=node1", "AllowGroups=bin"])
    try:
        assert submit() == (
            1,
            "sbatch: error: Batch job submission failed: "
            "User's group not permitted to use this partition\n",
        )
        cluster.run(["scontrol", "update", "PartitionName=closed", f"AllowGroups=bin,{group}"])
        assert submit() == (0, "")
    finally:
        cluster.run(["scancel", "-u", other_user])
        cluster.run(["scontrol", "delete", "PartitionName=closed"], check=False)
