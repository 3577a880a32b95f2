"""Edge: what users and programs see of an agent: logs, metrics, health, pages, pictures.

    event_log    a Reporter: logs and counts what the engine does
    logs         the format of log lines, as JSON or text
    metrics      the list of metrics, and the text that Prometheus reads
    windows      the time between a container's cgroup and its CPUs, for a metric
    health       live, started, ready; the small HTTP server for probes and metrics
    listener     the HTTP server below `health` and `page`; share: the part of one CPU that readers get
    threads      a thread that dies ends the agent's health
    page         the node page: its document, its JSON and its server
    drawing      the picture of a machine as SVG; tree: the same as text for a terminal

Terms: a *condition* of health is a named reason why the agent is not ready; a *repair* is a write of a cgroup that
another program had changed; a *reader* is a client of the page; a *scrape* is a request for metrics.

Nothing here decides, and no reader waits for the engine's lock: pages and gauges are made of its last snapshot.
Formats may grow by new keys and metrics; the pages of deploy/docs list them, and tests compare. Every client may be
hostile: connections, bytes, time and CPU have limits.
"""
