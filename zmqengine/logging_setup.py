"""Logging of a service process: to stderr, which the launcher captures, with service and incarnation in each line."""

from __future__ import annotations

import logging
import os
import sys


def configure_logging(service: str, incarnation: str) -> None:
    """Called by a main only. The level comes from ZMQENGINE_LOG (default INFO)."""
    level = os.environ.get("ZMQENGINE_LOG", "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        print(f"ZMQENGINE_LOG={level!r} is no log level; INFO is used", file=sys.stderr)
        level = "INFO"
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format=f"%(levelname).1s {service}[{incarnation[:6]}] %(name)s: %(message)s",
    )
