"""What Python runs first in every process of the tests: it saves a second of each.

Imports make many objects and no garbage: the collector looks for garbage less often, and not at the end.
"""

import atexit
import gc

gc.set_threshold(10_000, 50, 50)
atexit.register(gc.freeze)
