"""numalign: aligns pods' CPUs, memory and devices on NUMA nodes. The design: deploy/docs/dev/architecture.md."""

__version__ = "0.2.0"
