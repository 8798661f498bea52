"""How every script starts from the command line."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from fastslow.core.errors import FastslowError


def run_main(main: Callable[[list[str]], int]) -> NoReturn:
    """Run a script's ``main`` with the arguments of the command line, and end the process.

    The exit status is what ``main`` returns. An error of the user is one line without a traceback, as in
    ``fastslow``, and the status 1. So is a command that ``main`` ran and that failed: it has said why.

    Args:
        main: Takes the arguments, returns the exit status.

    Raises:
        SystemExit: Always.
    """
    try:
        status = main(sys.argv[1:])
    except FastslowError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except subprocess.CalledProcessError as error:
        command = shlex.join(map(str, error.cmd))
        print(f"error: a command ended with status {error.returncode}, see above: {command}", file=sys.stderr)
        status = 1
    sys.exit(status)
