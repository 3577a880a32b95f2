"""A release, made for a registry of this machine with a key that is thrown away."""
