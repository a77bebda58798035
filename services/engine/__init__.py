"""The common engine: continuous batching of requests over a worker.

`service` is the room's door. Behind it, `batching` holds all requests of one engine and answers what the next step is
(`scheduling`, over `blocks` and `limits`), how a worker is told it (`steps`), and what an answer means for each request
(`outcome`); `reader` merges tokens for those who are slow. No file but `service` knows a socket or a clock.
"""
