"""The message types and interfaces of the engine's services: one module per protocol.

A service imports the protocols of its peers, never the peers themselves.
"""
