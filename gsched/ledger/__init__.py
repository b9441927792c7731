"""The pure state machine: a command in, events and instructions out."""
