"""Call one method of the kaggle package's ``KaggleApi``; run by :mod:`fastslow.kaggle.api_process` only.

The only argument is JSON: the name of the method and its keyword arguments. Stdout receives one line of JSON,
``{"result": ...}`` or ``{"error": {"kind", "status", "message"}}``; whatever kaggle prints goes to stderr.
"""

import json
import os
import sys
from typing import Any

import requests
import urllib3.exceptions

_NETWORK = (ConnectionError, TimeoutError, requests.RequestException, urllib3.exceptions.HTTPError)


def _call(method: str, arguments: dict[str, Any]) -> Any:
    from kaggle.api.kaggle_api_extended import KaggleApi  # authenticates once while it is imported

    api = KaggleApi()
    api.authenticate()  # exits where there are no credentials or Kaggle refuses them
    return _plain(getattr(api, method)(**arguments))


def _plain(value: Any) -> Any:
    """Return one of kaggle's objects, or a list of them, as values that JSON knows."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value.to_dict(ignore_defaults=False) if hasattr(value, "to_dict") else value


def _failure(error: BaseException) -> dict[str, Any]:
    """Return what an exception means for the caller; see :class:`fastslow.kaggle.api_process.CallError`."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    message = str(error) or type(error).__name__
    if isinstance(error, SystemExit):
        kind, message = "credentials", "kaggle cannot authenticate"
    elif isinstance(error, (ImportError, AttributeError)):
        kind = "package"
    elif status is not None:
        kind = "http"
    elif isinstance(error, _NETWORK):
        kind = "network"
    elif isinstance(error, OSError):
        kind = "file"
    elif isinstance(error, ValueError):  # a download of the wrong size, an answer that is not JSON
        kind = "network"
    else:
        kind, message = "other", f"{type(error).__name__}: {message}"
    return {"kind": kind, "status": status, "message": message}


def main() -> None:
    """Run the call of the command line."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    method, arguments = json.loads(sys.argv[1])
    try:
        value = {"result": _call(method, arguments)}
    except (Exception, SystemExit) as error:
        value = {"error": _failure(error)}
    with answer:
        json.dump(value, answer)


if __name__ == "__main__":
    main()
