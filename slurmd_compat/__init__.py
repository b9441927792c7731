"""The node daemon: everything that runs on a node."""
