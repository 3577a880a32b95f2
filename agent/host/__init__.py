"""Edge: this node's files, cgroups, runtime sockets."""
