"""A node without configuration files gets them from the controller, and again when they change."""

from __future__ import annotations

import os
import re
import signal
import subprocess

from e2e_support import BIN, LocalCluster, until


def test_a_node_fetches_its_configuration() -> None:
    options = ("--simulate", "peer", "--set", "SlurmctldParameters=enable_configless")
    with LocalCluster(*options) as cluster:
        conf = cluster.dir / "etc/slurm.conf"
        found = re.search(r"SlurmctldPort=(\d+)", conf.read_text())
        assert found is not None
        pid_file = cluster.dir / "run/slurmd.node2.pid"
        old = int(pid_file.read_text())
        os.kill(old, signal.SIGTERM)
        until("the node with files ended", lambda: not pid_file.exists())
        words = ["-D", "-N", "node2", "--conf-server", f"127.0.0.1:{found[1]}"]
        daemon = subprocess.Popen(
            [str(BIN / "slurmd"), *words, "--keys", str(cluster.dir / "etc/keys")],
            env=cluster.env() | {"SLURM_CONF": "/nowhere/slurm.conf"},
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        try:
            copy = cluster.dir / "spool/node2/conf-cache/slurm.conf"
            job = cluster.sbatch("-w", "node2", "-o", "o", "--wrap", "echo $SLURM_CONF")
            cluster.ended(job)
            until("the output", lambda: (cluster.work / "o").exists())
            assert (cluster.work / "o").read_text() == f"{copy}\n"
            conf.write_text(conf.read_text() + "InactiveLimit=77\n")
            cluster.run(["scontrol", "reconfigure"])
            until("the change came", lambda: "InactiveLimit=77" in copy.read_text())
            shown = cluster.run(["scontrol", "show", "node", "node2"]).stdout
            assert "ConfigDiffers" not in shown
            cluster.ended(cluster.sbatch("-w", "node2", "--wrap", "true"))
        finally:
            daemon.terminate()
            daemon.wait(20)
