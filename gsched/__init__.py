"""gsched: a batch scheduler for GPU clusters that speaks Slurm's commands and files."""

#: Version of this package.
__version__ = "0.1.0"
#: The release of Slurm whose behaviour is followed; what `sbatch --version` and the like print.
SLURM_VERSION = "26.05.0"
