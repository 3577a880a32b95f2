"""Pods that a tenant may create to harm the agent, or another's pod: see deploy/docs/dev/hostile-tenants.md."""
