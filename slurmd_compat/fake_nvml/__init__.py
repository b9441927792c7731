"""A C library with the ABI of NVML, described by a topology file."""
