"""Sample the CPU time of a process: Python imports this module when it starts (``submit_seconds.py``).

Every 10 ms of CPU time the CPU seconds since the last sample are added to the functions on the stack of the
main thread. They are in a file of the process, ``PID.json`` in the folder that ``FASTSLOW_SAMPLES`` names.
"""

import atexit
import json
import os
import signal
import time

_EVERY = 0.01  # CPU seconds
_WRITTEN_EVERY = 0.2  # CPU seconds; a forked kernel ends without a last word


class _Sampler:
    """CPU seconds of this process by stack, ``file:function`` of its frames joined by line breaks."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count from now on, also in a process that was just forked."""
        self.stacks: dict[str, float] = {}
        self.last = time.process_time()
        self.written = 0.0
        signal.signal(signal.SIGPROF, self.sample)
        signal.setitimer(signal.ITIMER_PROF, _EVERY)

    def sample(self, _number, frame) -> None:
        """Add the seconds since the last sample to the present stack."""
        now = time.process_time()
        lines = []
        while frame is not None:
            code = frame.f_code
            lines.append(f"{code.co_filename}:{code.co_name}")
            frame = frame.f_back
        stack = "\n".join(lines)
        self.stacks[stack] = self.stacks.get(stack, 0.0) + now - self.last
        self.last = now
        if now - self.written > _WRITTEN_EVERY:
            self.written = now
            self.write()
        signal.setitimer(signal.ITIMER_PROF, _EVERY)  # once more: the next one must not interrupt this one

    def end(self) -> None:
        """Sample no more: the end of Python takes the handler away, and the signal would end the process."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.write()

    def write(self) -> None:
        """Write what was counted."""
        path = os.path.join(os.environ["FASTSLOW_SAMPLES"], f"{os.getpid()}.json")
        with open(path + ".part", "w") as file:
            json.dump(self.stacks, file)
        os.replace(path + ".part", path)


_SAMPLER = _Sampler()
os.register_at_fork(after_in_child=_SAMPLER.begin)
atexit.register(_SAMPLER.end)
