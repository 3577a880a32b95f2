"""What the API server answers: pods and lists of them, bounded and reduced to what is read."""
