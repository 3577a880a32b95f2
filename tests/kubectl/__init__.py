"""What people see with kubectl: the real one, against a real API server with real agents."""
