"""The README's picture, drawn and checked."""
