"""Parse HLO text with XLA's own parser: a script that the reader runs in a process of its own.

The parser ends its process on some inputs (a failed check) and may take any amount of memory. Stdin is the
text, the only argument the limit of memory in bytes. Stdout receives the serialised module; where the text is
refused, stderr receives why and the exit status is 3, and 4 where jaxlib is not installed.
"""

import os
import resource
import sys

REFUSED, MISSING = 3, 4


def main() -> int:
    """Parse the text on stdin; return the exit status."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever XLA prints is no part of the answer
    try:
        from jaxlib.xla_client import hlo
    except ImportError:
        return MISSING
    try:
        module = hlo.hlo_module_from_text(sys.stdin.buffer.read().decode())
        data = module.as_serialized_hlo_module_proto()
    except Exception as error:
        print(error, file=sys.stderr)
        return REFUSED
    with answer:
        answer.write(data)
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())  # without the threads' and the library's own end
