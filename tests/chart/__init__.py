"""The chart, its alerts and its dashboards: rendered, checked, tried."""
