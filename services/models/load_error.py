"""What can be wrong with a model's files. Every error names the file, what is wrong with it, and what to do.

ModelFileError
|- MissingFile          there is no such file or folder, or it may not be read
|- TruncatedFile        the file ends before what its header promises
|- NotAModel            neither a GGUF file nor a Hugging Face folder
|- MalformedFile        the header contradicts itself, or a value has the wrong type or range
|- MissingMetadata      a key that every model of its kind has is not there
|- UnknownArchitecture  the model is of a kind that is not implemented
|- UnknownTensorType    a tensor is stored in a format that cannot be read
`- MissingTensor        a tensor that the architecture needs is not there, or not in its shape
"""

from __future__ import annotations

from os import PathLike, fspath


class ModelFileError(ValueError):
    """A model cannot be loaded; `path` is the file or folder at fault and `reason` the rest of the message."""

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        super().__init__(f"{fspath(path)}: {reason}")
        self.path = fspath(path)
        self.reason = reason


class MissingFile(ModelFileError):
    """There is no such file or folder, or it may not be read."""


class TruncatedFile(ModelFileError):
    """The file ends before what its header promises."""


class NotAModel(ModelFileError):
    """Neither a GGUF file nor a Hugging Face folder."""


class MalformedFile(ModelFileError):
    """The header contradicts itself, or a value has the wrong type or range."""


class MissingMetadata(ModelFileError):
    """A key that every model of its kind has is not there."""


class UnknownArchitecture(ModelFileError):
    """The model is of a kind that is not implemented."""


class UnknownTensorType(ModelFileError):
    """A tensor is stored in a format that cannot be read."""


class MissingTensor(ModelFileError):
    """A tensor that the architecture needs is not there, or not in its shape."""
