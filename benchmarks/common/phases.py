"""Costs of a function in a process of its own: CPU seconds by phase, and peak memory."""

import contextlib
import functools
import multiprocessing
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from unittest import mock


def measure(work: Callable[[], None], phases: Mapping[str, tuple[tuple[object, str], ...]]) -> dict:
    """Run a function in a fork of this process, so that it starts with the modules imported here.

    Args:
        work: The function.
        phases: Functions, as owner and attribute, whose time is a phase. Time in a phase that another phase
            calls counts for the inner one only.

    Returns:
        ``CPU s`` and ``peak GB`` (resident), including processes that it starts, ``wall s``, and ``phases``:
        CPU seconds and calls of each phase that was called.

    Raises:
        SystemExit: It failed; its error was printed.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(work, phases, sender))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"a measured step ended with exit status {process.exitcode}") from None
    process.join()
    return found


def _run(work: Callable[[], None], phases: Mapping, sender) -> None:
    began, cpu = time.monotonic(), time.process_time()
    with _timed(phases) as spent:
        work()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    sender.send(
        {
            "CPU s": time.process_time() - cpu + used[1].ru_utime + used[1].ru_stime,
            "wall s": time.monotonic() - began,
            "peak GB": max(one.ru_maxrss for one in used) / 2**20,
            "phases": {name: {"CPU s": seconds, "calls": calls} for name, (seconds, calls) in spent.items()},
        }
    )


@contextlib.contextmanager
def _timed(phases: Mapping[str, tuple[tuple[object, str], ...]]) -> Iterator[dict[str, list]]:
    """Give a dictionary that grows by the CPU seconds and calls of each phase, until the block ends."""
    spent: dict[str, list] = defaultdict(lambda: [0.0, 0])
    inside, since = [], time.process_time()

    def switch() -> None:
        """Count the seconds since the last call for the innermost phase."""
        nonlocal since
        before, since = since, time.process_time()
        if inside:
            spent[inside[-1]][0] += since - before

    def wrap(name: str, function: Callable) -> Callable:
        @functools.wraps(function)
        def timed(*arguments, **options):
            switch()
            spent[name][1] += name not in inside
            inside.append(name)
            try:
                return function(*arguments, **options)
            finally:
                switch()
                inside.pop()

        return timed

    with contextlib.ExitStack() as patches:
        for name, places in phases.items():
            for owner, attribute in places:
                replaced = wrap(name, getattr(owner, attribute))
                patches.enter_context(mock.patch.object(owner, attribute, replaced))
        yield spent
