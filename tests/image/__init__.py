"""The image, as tests of what is in it."""
