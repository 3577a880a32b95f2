"""Machines from descriptions and files, as JSON, and what changed between two of them."""
