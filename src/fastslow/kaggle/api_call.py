"""Call one method of the kaggle package; a script that :mod:`fastslow.kaggle.api_process` runs.

The only argument is JSON: the name of a method of ``KaggleApi`` and its keyword arguments. Stdout receives
JSON, ``{"result": ...}`` or ``{"failure": [kind, message]}``; whatever kaggle prints goes to stderr.
"""

import json
import os
import sys
from typing import Any

import requests
import urllib3.exceptions

_STATUS = {400: "request", 401: "credentials", 403: "access", 404: "access", 408: "network", 429: "network"}
_KINDS = {  # in this order: most of the network's errors are subclasses of OSError
    "credentials": SystemExit,
    "package": (ImportError, AttributeError),
    "network": (
        ConnectionError,
        TimeoutError,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        ValueError,  # a download of the wrong size, an answer that is not JSON
    ),
    "file": OSError,
}


def _call(method: str, arguments: dict[str, Any]) -> Any:
    from kaggle.api.kaggle_api_extended import KaggleApi  # importing it authenticates and may fail

    api = KaggleApi()
    api.authenticate()  # exits where there are no credentials or Kaggle refuses them
    return getattr(api, method)(**arguments)


def _plain(value: Any) -> Any:
    """Return one of kaggle's objects as a dict, with a key for every field."""
    return value.to_dict(ignore_defaults=False)


def _kind(error: BaseException) -> str:
    """Return the kind of failure, as ``MEANINGS`` of :mod:`fastslow.kaggle.api_process` lists it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return _STATUS.get(status, "network" if status >= 500 else "other")
    return next((kind for kind, types in _KINDS.items() if isinstance(error, types)), "other")


def main() -> None:
    """Run the call of the command line."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    method, arguments = json.loads(sys.argv[1])
    try:
        value = json.dumps({"result": _call(method, arguments)}, default=_plain)
    except (Exception, SystemExit) as error:
        said = "kaggle exits" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        value = json.dumps({"failure": [_kind(error), said]})
    with answer:
        answer.write(value)


if __name__ == "__main__":
    main()
