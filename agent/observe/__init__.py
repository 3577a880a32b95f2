"""Edge: people: metrics, logs, health, pages."""
