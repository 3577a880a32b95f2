"""The documentation: its links, its tables, and its commands, which are run."""
