"""Types that the request models share: strict objects, refused fields, stop strings, biases, free-form JSON.

Strict means JSON's own types: "1" is no number, true is no integer, NaN and the infinities are no numbers. Faults are
raised as pydantic's errors, which `validation` puts into words.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from . import limits


class FirstFault(FailFast):
    """Stops at a list's first bad item. (pydantic's own cannot be hashed, so it cannot stand in a union.)"""

    def __hash__(self) -> int:
        return hash((FirstFault, self.fail_fast))


class StrictModel(BaseModel):
    """An object of a request. A field that it does not have is refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        """Stop at the first unknown field: pydantic would make an error for each of a million."""
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise PydanticCustomError("unknown_field", "is not known here", {"field": key})
        return data


def fault(message: str, *, param: str | None = None, code: str = "invalid_value") -> PydanticCustomError:
    """A fault in our own words: what is wrong with the field, as "must ...".

    param: the field to blame, where it is not the one being validated.
    """
    return PydanticCustomError("fault", "{message}", {"message": message, "param": param, "code": code})


def unsupported(what: str, *allowed: Any) -> BeforeValidator:
    """Refuse every value but null and `allowed`, which ask for nothing.

    To support a field, drop this from its annotation and widen the type.
    """

    def check(value: Any) -> Any:
        if value is None or any(type(value) is type(a) and value == a for a in allowed):
            return value
        raise fault(f"is not supported yet ({what}); leave it out", code="unsupported_parameter")

    return BeforeValidator(check)


def text_or_list(value: Any) -> str | None:
    """Tag of a value that may be one string or several. Tags begin with ":", which `validation` leaves out of paths."""
    if isinstance(value, str):
        return ":text"
    return ":list" if isinstance(value, list) else None


StopString = Annotated[str, Field(min_length=1, max_length=limits.MAX_STOP_CHARACTERS)]
StopStrings = Annotated[
    Annotated[StopString, Tag(":text")]
    | Annotated[list[StopString], Field(max_length=limits.MAX_STOP_STRINGS), FirstFault(), Tag(":list")],
    Discriminator(
        text_or_list, custom_error_type="fault", custom_error_message="must be a string or a list of strings"
    ),
]

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
"""An index into the vocabulary; whether the model has it is checked against its card."""

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,9}")


def _logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise fault("must be an object from token ids to numbers from -100 to 100", code="invalid_type")
    if len(value) > limits.MAX_LOGIT_BIASES:
        raise fault(f"must have at most {limits.MAX_LOGIT_BIASES} entries, not {len(value)}")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not _DECIMAL.fullmatch(key):
            raise fault(f"has the key {key[:40]!r}, which is not a token id")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise fault(f"must be a number from -100 to 100 for each token; token {key} has {str(bias)[:40]}")
        biases[int(key)] = float(bias)
    return biases


LogitBias = Annotated[
    dict[int, float],
    PlainValidator(_logit_bias),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": limits.MAX_LOGIT_BIASES,
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }
    ),
]


def _bounded_json(value: Any) -> Any:
    """Bound a free-form value's depth, size and numbers to what any peer can decode."""
    if not isinstance(value, dict):
        return value
    level: list[dict[str, Any] | list[Any]] = [value]
    nodes = 0
    for _depth in range(limits.MAX_JSON_DEPTH):
        inner: list[dict[str, Any] | list[Any]] = []
        for item in level:
            nodes += len(item)
            if nodes > limits.MAX_JSON_NODES:
                raise fault(f"must have at most {limits.MAX_JSON_NODES} values in it")
            for child in item.values() if isinstance(item, dict) else item:
                if isinstance(child, float) and not math.isfinite(child):
                    raise fault("must not have NaN or an infinity in it")
                if isinstance(child, int) and not -(2**63) <= child < 2**63:
                    raise fault("has an integer that does not fit into 64 bits")
                if isinstance(child, dict | list):
                    inner.append(child)
        if not inner:
            return value
        level = inner
    raise fault(f"must be nested at most {limits.MAX_JSON_DEPTH} deep")


JsonObject = Annotated[dict[str, Any], BeforeValidator(_bounded_json)]


def _few(value: Any) -> Any:
    """Look at the size first: pydantic would make an error for each of a million bad entries."""
    if isinstance(value, dict) and len(value) > limits.MAX_METADATA:
        raise fault(f"must have at most {limits.MAX_METADATA} entries, not {len(value)}")
    return value


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=limits.MAX_METADATA),
    BeforeValidator(_few),
]
