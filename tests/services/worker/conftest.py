from __future__ import annotations

from pathlib import Path

import pytest
import torch

from services.models.store import resolve
from services.models.store_error import NotPulled

from .tiny_models import Tensors, Tiny, write_folder


@pytest.fixture(scope="session", autouse=True)
def two_threads() -> None:
    """Tests share the machine."""
    torch.set_num_threads(2)


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_folder(folder, tiny)
    return folder


@pytest.fixture(scope="session")
def tiny_tensors(tiny: Tiny) -> Tensors:
    return tiny.tensors()


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    try:
        return resolve("smollm2").path
    except NotPulled as error:
        pytest.skip(str(error))
