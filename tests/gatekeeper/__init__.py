"""The gatekeeper against a stand-in API server: each effect, leaders that change and die, and what they leave."""
