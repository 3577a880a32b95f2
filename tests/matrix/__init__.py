"""One node with stand-in edges and the real agent, two faults at once, and one judge: see README.md here."""
