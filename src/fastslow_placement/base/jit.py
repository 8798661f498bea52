"""numba, which compiles the inner loops, or an error with the command that installs it."""

from fastslow.core.errors import SettingsError

try:
    from numba import njit
except ImportError:
    raise SettingsError("numba is not installed: pip install -e '.[placement]'") from None

__all__ = ["njit"]
