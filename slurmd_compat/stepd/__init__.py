"""The supervisor of a step: a small C program that lies beside this file."""
