"""Messages, framing, sockets, identity and keys."""
