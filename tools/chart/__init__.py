"""The chart: its schema from the settings, its table of values, its rendered manifests. `make chart` writes them."""
