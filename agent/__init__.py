"""numalign: aligns pods' CPUs, memory and devices on NUMA nodes. See agent.core for the design."""

__version__ = "0.1.0"
