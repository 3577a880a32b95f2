"""A fleet as values: its nodes' summaries, their figures, and the questions that many nodes answer."""
