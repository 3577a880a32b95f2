"""The node page: served as the settings say, from values that page, kubectl plugin and commands share.

    server            on, off, or somewhere else, while the agent runs
    values            the page's JSON; views: rows of containers and NUMA nodes

Modules are imported by their own names.
"""
