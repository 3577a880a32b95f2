"""The node page: one HTML document, the JSON behind it, and the small HTTP server for both. Read only.

    server      listens, answers GET and HEAD, keeps an event stream open per reader
    host        which requests are answered: the Host header against DNS rebinding
    current     what is shown now, made once per change for all readers
    document    page.html with page.css and page.js inlined, and the security policy that allows just these
    recent      the last repairs and faults

Wired by `agent.app.page.server`, which knows where the values come from. It carries pod names: on loopback by
default, with a port of its own, never the metrics' (safety.md S20). No reader ever holds the engine's lock, or waits
for it.
"""
