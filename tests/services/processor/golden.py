"""The golden cases: prompts with the reference's rendering and token ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "golden.json").read_text(encoding="utf-8")
)["cases"]
CHATS = [case for case in CASES if case["kind"] == "chat"]
