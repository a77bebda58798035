"""What the documents say is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/benchmarks.md")]


def test_the_protocol_document_is_current() -> None:
    command = [sys.executable, "scripts/gen_protocol_docs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"`((?:zmqengine|services|scripts|tests|docs|examples)/[\w./-]*\w)`", document.read_text()))
    named |= set(re.findall(r"\]\(([\w./-]+\.md)\)", document.read_text()))
    missing = [name for name in named if not (ROOT / name).exists() and not (document.parent / name).exists()]
    assert missing == []
