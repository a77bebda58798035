"""Requests for places."""

from __future__ import annotations

from services.protocols.scheduler import PlaceRequest


def ask(
    request_id: str, tokens: int = 10, *, priority: int = 0, tenant: str = "", owner: str = "processor",
    incarnation: str = "1",
) -> PlaceRequest:  # fmt: skip
    """tokens: of prompt and output together."""
    return PlaceRequest(
        request_id=request_id, prompt_tokens=tokens - 1, max_tokens=1, owner=owner, owner_incarnation=incarnation,
        priority=priority, tenant=tenant,
    )  # fmt: skip
