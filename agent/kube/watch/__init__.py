"""From the API server: this node's pods, its Node and the namespaces, as events for the engine."""
