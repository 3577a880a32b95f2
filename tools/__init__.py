"""What makes the files that numalign ships besides its code: the chart's schema and tables, dashboards, pictures."""
