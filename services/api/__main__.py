"""``python -m services.api``: the HTTP server, by hand."""

from __future__ import annotations

from .service import Api

if __name__ == "__main__":
    Api.main()
