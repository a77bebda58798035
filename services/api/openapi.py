"""The OpenAPI document: FastAPI writes it from the routes; this adds the bodies, which the routes read themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .chat_request import ChatRequest
from .completion_request import CompletionRequest
from .tokenize_request import DetokenizeRequest, TokenizeChatRequest, TokenizeTextRequest

_BODIES: dict[str, tuple[type[BaseModel], ...]] = {
    "/v1/chat/completions": (ChatRequest,),
    "/v1/completions": (CompletionRequest,),
    "/tokenize": (TokenizeTextRequest, TokenizeChatRequest),
    "/detokenize": (DetokenizeRequest,),
}
_REF = "#/components/schemas/{model}"


def with_bodies(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi`, whose document has the request bodies. Made when first asked for."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = written()
            models = [(model, "validation") for models in _BODIES.values() for model in models]
            names, definitions = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
            components = document.setdefault("components", {}).setdefault("schemas", {})
            components.update(definitions["$defs"])
            for path, bodies in _BODIES.items():
                references = [names[(model, "validation")] for model in bodies]
                schema = references[0] if len(references) == 1 else {"anyOf": references}
                content = {"application/json": {"schema": schema}}
                document["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
            app.openapi_schema = document
        return app.openapi_schema

    return openapi
