"""The Grafana dashboards: made from a short description, filled from a real Prometheus, drawn and looked at.

    panels     what they are made of, and the panels that both have
    fleet      the dashboard of all nodes
    node       the dashboard of one node
    grafana    the description as Grafana's JSON, charts/numalign/files/dashboards
    world      agents with churn, drift and refusals, and a Prometheus that scrapes them
    drawing    the panels as a page, for a headless browser
`make dashboards` writes the JSON and the pictures of deploy/pictures.
"""
