"""What a spawned service process runs: ``python -m zmqengine.bootstrap services.worker.service:Worker``.

It is tied to the launcher since before it was executed (`process`), and imports the implementation only after HELLO.
"""

from __future__ import annotations

import faulthandler
import gc
import signal
import sys
from typing import Any

from .spawn import SpawnInfo


def load_implementation(reference: str) -> type[Any]:
    """The Service class that ``package.module:Class`` names. Raises ConfigError that says which part is wrong."""
    import importlib

    from .errors import ConfigError
    from .service import Service

    module_name, separator, class_name = reference.partition(":")
    if not separator or not class_name:
        raise ConfigError(f"impl {reference!r}: expected package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(f"impl {reference!r}: there is no module {error.name!r}") from None
        raise
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type) or not issubclass(cls, Service):
        raise ConfigError(f"impl {reference!r}: {module_name} has no Service class {class_name!r}")
    return cls


def main() -> int:
    """Run the service that the arguments and the environment name; the exit code."""
    info = SpawnInfo.from_environ()
    if info is None or len(sys.argv) != 2:
        print("zmqengine.bootstrap is run by `zmqengine up`; run a service by hand with python -m services.NAME")
        return 2
    faulthandler.enable()  # a native crash leaves the stacks in the log
    faulthandler.register(signal.SIGUSR1)  # so does the launcher's question where a stalled service hangs
    from . import transport
    from .errors import ZmqEngineError
    from .host import Host
    from .logging_setup import configure_logging

    configure_logging(info.name, info.incarnation)
    try:
        code = Host(info, lambda: load_implementation(sys.argv[1])).run(keep_what_setup_made)
    except ZmqEngineError as error:  # it could not bind: nobody was told yet but its log
        print(f"failed: {error}", file=sys.stderr)
        code = 1
    transport.finish()
    return code


def keep_what_setup_made() -> None:
    """The collector need not look again and again at what stays: each look is a pause."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
