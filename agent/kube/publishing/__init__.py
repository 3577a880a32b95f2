"""To the API server: what each pod carries, Events, and what is done to refused pods."""
