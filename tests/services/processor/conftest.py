from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.models.store import ModelFiles, resolve
from services.models.store_error import NotPulled
from services.processor.text_model import TextModel, load_text_model
from services.processor.tokenizer import Tokenizer

from .byte_tokenizer import byte_tokenizer
from .chain import Chain


@pytest.fixture(scope="session")
def smollm2_files() -> ModelFiles:
    try:
        return resolve("smollm2")
    except NotPulled as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2(smollm2_files: ModelFiles) -> TextModel:
    return load_text_model(smollm2_files)


@pytest.fixture(scope="session")
def byte_level() -> Tokenizer:
    return byte_tokenizer()


@pytest.fixture
def chain() -> Iterator[Chain]:
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))  # short: paths of unix sockets have at most 107 bytes
    made = Chain(base)
    yield made
    made.close()
    shutil.rmtree(base)
