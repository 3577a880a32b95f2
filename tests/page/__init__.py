"""The node page in a real browser, and the pictures that it makes."""
