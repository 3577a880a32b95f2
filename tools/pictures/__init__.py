"""The README's picture, drawn from a real run. `make pictures` writes it."""
