"""Options of XLA that a search may set, a short list for each kind of device.

Every option starts at what the compiler does by itself: it is then not set at all. The lists hold what public
guides recommend to try. An option that changes numerics is left out unless it is asked for. Of all others a
configuration counts only where its outputs agree with the default's within
:data:`fastslow_programs.compiler.bench.TOLERANCE`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.core.isolated import Killed, Workers
from fastslow.core.progress import TICK_SECONDS, progress, ticking
from fastslow_programs.compiler.lowering import refusal
from fastslow_programs.tuning.search.space import Choice

_FIELDS = "XLA's xla.proto (DebugOptions)"
_JAX_TIPS = "JAX's GPU performance tips"
_TOOLBOX = "NVIDIA's JAX-Toolbox, GPU performance"
_GUIDANCE = "OpenXLA's flags guidance"
_MAXTEXT = "MaxText's library of flags"
_PROBE_SECONDS = 120.0


@dataclass(frozen=True)
class CompilerOption:
    """An option of the compiler.

    Args:
        name: Its name, as ``jax.jit(compiler_options=...)`` takes it.
        values: The values to try beside the compiler's own.
        changes: What it may change.
        source: Who documents it.
        numerics: Whether it may change results beyond the order of operations.
    """

    name: str
    values: tuple[Any, ...]
    changes: str
    source: str
    numerics: bool = False

    @property
    def choice(self) -> Choice:
        """The choice of a search, with the compiler's own value first."""
        return Choice(self.name, ("not set", *map(str, self.values)), 0)


OPTIONS = {
    "cpu": (
        CompilerOption("xla_backend_optimization_level", (1, 2), "LLVM's passes", _FIELDS),
        CompilerOption("xla_llvm_disable_expensive_passes", (True,), "LLVM's passes", _FIELDS),
        CompilerOption("xla_cpu_prefer_vector_width", (128, 512), "width of vectors", _FIELDS),
        CompilerOption("xla_cpu_use_fusion_emitters", (False,), "code of fusions", _FIELDS),
        CompilerOption(
            "xla_cpu_enable_concurrency_optimized_scheduler", (False,), "order of operators", _FIELDS
        ),
        CompilerOption("xla_cpu_multi_thread_eigen", (False,), "threads of a product", _FIELDS),
        CompilerOption("xla_cpu_enable_fast_math", (True,), "rounding, NaN, infinity", _FIELDS, True),
        CompilerOption("xla_cpu_enable_fast_min_max", (True,), "minimum of NaN", _FIELDS, True),
    ),
    "gpu": (
        CompilerOption("xla_gpu_triton_gemm_any", (True,), "code of products", _JAX_TIPS),
        CompilerOption("xla_gpu_enable_triton_gemm", (False,), "code of products", _TOOLBOX),
        CompilerOption("xla_gpu_enable_latency_hiding_scheduler", (True,), "order of operators", _JAX_TIPS),
        CompilerOption("xla_gpu_enable_command_buffer", ("",), "launches of kernels", _TOOLBOX),
        CompilerOption("xla_gpu_autotune_level", (0, 1), "which code of a product is tried", _FIELDS),
        CompilerOption("xla_gpu_enable_while_loop_double_buffering", (True,), "loops", _TOOLBOX),
        CompilerOption("xla_gpu_enable_fast_min_max", (True,), "minimum of NaN", _FIELDS, True),
        CompilerOption("xla_allow_excess_precision", (False,), "rounding of bfloat16", _FIELDS, True),
    ),
    "tpu": (
        CompilerOption("xla_tpu_scoped_vmem_limit_kib", (49152, 65536, 98304), "sizes of tiles", _MAXTEXT),
        CompilerOption("xla_latency_hiding_scheduler_rerun", (5,), "order of operators, memory", _GUIDANCE),
        CompilerOption("xla_tpu_rwb_fusion", (False,), "fusions of reductions, memory", _GUIDANCE),
        CompilerOption("xla_allow_excess_precision", (False,), "rounding of bfloat16", _FIELDS, True),
    ),
}
"""Options by the platform of a device, as JAX names it."""


def list_options(platform: str, numerics: bool = False) -> tuple[list[CompilerOption], list[str]]:
    """Return the options to search on a platform, and those that this machine's compiler does not know.

    Args:
        platform: ``cpu``, ``gpu`` or ``tpu``.
        numerics: Take those that change numerics too.
    """
    listed = [option for option in OPTIONS.get(platform, ()) if numerics or not option.numerics]
    refused = refused_options([{option.name: option.values[0]} for option in listed])
    known = [option for option, problem in zip(listed, refused, strict=True) if not problem]
    return known, [option.name for option in listed if option not in known]


def refused_options(options: Sequence[dict[str, Any]]) -> list[str]:
    """Return why this machine's compiler refuses each of these options, "" where it takes it.

    A small program is compiled with each. It runs in a process of its own, as a compiler may abort.
    """
    problems = []
    tried = progress(options, desc="options that the compiler knows", unit="option", delay=TICK_SECONDS)
    with Workers() as workers, ticking(tried):
        for option in tried:
            try:
                problems.append(workers.call(refusal, option, seconds=_PROBE_SECONDS))
            except Killed as error:
                problems.append(f"{error.kind}: {error}")
    return problems
