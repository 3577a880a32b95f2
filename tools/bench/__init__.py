"""Benchmarks: `make bench`, `make bench-compare`; what each one times: deploy/docs/dev/testing.md."""
