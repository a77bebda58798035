"""What can go wrong with getting a model by name. Every message says what was tried and what to do.

ModelStoreError
|- UnknownModel     neither a name of the catalogue nor a path to a model
|- NotPulled        known by name, but not (or not wholly) in the cache
`- PullFailed       it could not be fetched
   |- PipMissing    this Python has no pip
   |- Offline       pip reached no package index
   |- DiskFull      there is no room for it
   `- WrongFile     what came is not the file that was asked for
"""

from __future__ import annotations


class ModelStoreError(ValueError):
    """A model cannot be had by its name."""


class UnknownModel(ModelStoreError):
    """Neither a name of the catalogue nor a path to a model."""


class NotPulled(ModelStoreError):
    """Known by name, but not, or not wholly, in the cache."""


class PullFailed(ModelStoreError):
    """It could not be fetched."""


class PipMissing(PullFailed):
    """This Python has no pip."""


class Offline(PullFailed):
    """pip reached no package index."""


class DiskFull(PullFailed):
    """There is no room for it."""


class WrongFile(PullFailed):
    """What came is not the file that was asked for."""
