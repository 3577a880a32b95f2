"""Tests and their helpers."""
