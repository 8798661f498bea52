"""Loggers of a training beside ``metrics.jsonl``: Weights & Biases, trackio, or a function of yours."""

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastslow.core.errors import SettingsError

Logger = Callable[[dict], Any]
"""Takes a row of metrics, see :class:`fastslow.networks.training.validation.Validation`."""
LOGGERS = ("wandb", "trackio")
PROJECT_NAME = "fastslow"


def require_logger(name: str) -> None:
    """Refuse a logger that is not there; an empty name is none.

    Args:
        name: One of :data:`LOGGERS`, or a function of yours as ``module:function``.

    Raises:
        SettingsError: The library is not installed, or there is no such function.
    """
    if name in LOGGERS:
        if importlib.util.find_spec(name) is None:
            raise SettingsError("logger", f"{name} is not installed: .venv/bin/pip install {name}")
    elif name:
        _function(name)


def _function(name: str) -> Logger:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise SettingsError("logger", f"{name!r} is none of {', '.join(LOGGERS)}, nor module:function")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = "Name a function of a module on Python's path (PYTHONPATH)"
        raise SettingsError("logger", f"{name}: {error}. {remedy}") from None
    if not callable(function):
        raise SettingsError("logger", f"{name} is {type(function).__name__}, a function wanted")
    return function


@contextlib.contextmanager
def opened_logger(
    name: str, training: str, settings: Mapping[str, Any], warnings: list[str]
) -> Iterator[Logger]:
    """Yield a function that takes each row of metrics of a training, a dictionary by name of the metric.

    A logger that fails later is left out with one warning: it must not end hours of training.

    Args:
        name: As for :func:`require_logger`; empty for no logger.
        training: Name of the training. The library shows it as the name of its run; a function of yours finds
            it in each row, under ``training``.
        settings: Settings of the training, which the library shows.
        warnings: Takes the warning of a logger that failed.

    Raises:
        SettingsError: The library cannot start, such as without an account.
    """
    if not name:
        yield lambda _: None
    elif name in LOGGERS:
        library = importlib.import_module(name)
        try:
            library.init(project=PROJECT_NAME, name=training, config=dict(settings))
        except Exception as error:
            remedy = f"Log in to {name}, choose its offline mode, or do without logger"
            raise SettingsError("logger", f"{name} cannot start ({error}). {remedy}") from None
        try:
            yield _guarded(name, library.log, warnings)
        finally:
            with contextlib.suppress(Exception):
                library.finish()
    else:
        function = _function(name)
        yield _guarded(name, lambda row: function({"training": training, **row}), warnings)


def _guarded(name: str, log: Logger, warnings: list[str]) -> Logger:
    """Return a logger that is silent after its first error, which becomes a warning."""
    failed = False

    def guarded(row: dict) -> None:
        nonlocal failed
        if failed:
            return
        try:
            log(dict(row))
        except Exception as error:
            failed = True
            warnings.append(f"logger {name} failed, and took no further row: {error}")

    return guarded
