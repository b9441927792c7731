"""Warm workers that run command lines and answer typed requests."""
