"""slurm.conf, gres.conf, cgroup.conf and topology.conf, read into one typed Config."""
