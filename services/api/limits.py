"""Sizes and ranges that a request is held to. Each is checked before anything is sent to a peer."""

from __future__ import annotations

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Default of the body limit."""
MAX_CHOICES = 128
"""`n`: completions of one prompt."""
MAX_PROMPTS = 1024
"""Prompts in one request of /v1/completions; also prompts times n."""
MAX_PROMPT_IDS = 1_048_576
"""Token ids in one prompt; the model's context is checked behind."""
MAX_MESSAGES = 4096
MAX_CONTENT_PARTS = 1024
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 1000
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIASES = 1024
MAX_ALLOWED_IDS = 65_536
MAX_TOP_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
MAX_TEMPLATE_KWARGS = 64
MAX_JSON_DEPTH = 16
"""Nesting of a free-form value."""
MAX_JSON_NODES = 4096
"""Values in a free-form value."""
MAX_METADATA = 16
COMPLETION_MAX_TOKENS = 16
"""/v1/completions without max_tokens generates this many, as OpenAI's does."""
