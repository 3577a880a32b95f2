"""A machine from its /sys and a little of its /proc, live or recorded."""
