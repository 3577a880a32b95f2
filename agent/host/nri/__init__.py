"""Node Resource Interface: a small client of the runtime's plugin protocol over its unix socket, on asyncio.

    nri.proto   the messages we use (nri_pb2.py is generated from it)
    mux         frames of several connections over one socket
    ttrpc       requests and responses over one such connection
    values      what a handler sees and answers, without protobuf
    session     one connection: register, configure, synchronize, serve
    plugin      the thread that keeps a session alive: reconnects with back-off, counts, answers in time

No ttrpc library exists for Python, hence our own. Protocol: https://github.com/containerd/nri, /ttrpc.
"""
