"""Faults put into the product on purpose, one at a time, to see whether a test notices. README.md says how."""
