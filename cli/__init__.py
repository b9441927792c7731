"""The commands, one file each; installed as the package gsched_cli."""
