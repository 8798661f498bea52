"""Functions that tests call in processes of their own."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fastslow.core.isolated import run_command


def value(number=3):
    """The number, and the process."""
    return number, os.getpid()


def fail():
    """An error of the function's own."""
    raise KeyError("of its own")


def wait_in_vain():
    """An error that looks like the time limit."""
    raise TimeoutError("of its own")


def sleep():
    """A hang."""
    time.sleep(60)


def wait_for(path):
    """End after the call that touches the file."""
    while not Path(path).exists():
        time.sleep(0.02)
    return "second"


def touch(path):
    """Let the other call end."""
    Path(path).touch()
    return "first"


def allocate():
    """More than the limit of the tests."""
    bytearray(4 << 30)


def throw():
    """What a C++ library prints where it finds no memory."""
    os.write(2, b"libc++abi: terminating due to uncaught exception of type std::bad_alloc\n")
    os.abort()


def segfault():
    """Read what is not there."""
    ctypes.string_at(0)


def leave_or_not(leaves):
    """Exit, or return a word."""
    if leaves:
        leave()
    return "stayed"


def be_killed():
    """Be ended by the system."""
    os.kill(os.getpid(), signal.SIGKILL)


def abort():
    """A failed check of a library."""
    os.write(2, b"F1121 10:11:12.13 42 layout.cc:7] Check failed: rank == 4\n    @ 0x7f some frame\n")
    os.abort()


def leave():
    """Exit after a last word on stdout."""
    print("bye", end="")
    os._exit(3)


def play(name, *arguments):
    """Call one of these functions."""
    return globals()[name](*arguments)


def crash_once(flag):
    """Abort the first time."""
    if not Path(flag).exists():
        Path(flag).touch()
        os.abort()
    return "well"


def talk():
    """Print in pieces, then nothing for long."""
    print("one\rtw", end="")
    time.sleep(0.5)
    print("o ü", file=sys.stderr)
    time.sleep(60)


def report(path):
    """Write numbers of processes: this one, a child, a command's and the command's child; then hang."""
    child = subprocess.Popen(["sleep", "600"])
    Path(path, "worker").write_text(f"{os.getpid()} {child.pid}")
    run_command(["sh", "-c", f"sleep 600 & echo $$ $! > '{path}/command'; wait"])


def refuse_to_start():
    """The first call of a process that cannot work."""
    raise OSError("libtpu.so: cannot open shared object file")
