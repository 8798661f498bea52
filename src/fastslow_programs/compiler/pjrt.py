"""The part of PJRT's public C API (``pjrt_c_api.h`` of OpenXLA) that compiling for a topology takes.

A call takes a pointer to an argument struct and returns an error, or none. Each struct begins with its size
and is only ever extended at its end, so that a newer plugin takes an older caller's.
"""

import ctypes

# index of each function in the table of pjrt_c_api.h, which is only ever extended at its end
FUNCTIONS = {
    "Error_Destroy": 0,
    "Error_Message": 1,
    "Plugin_Initialize": 3,
    "Executable_Destroy": 40,
    "Executable_OptimizedProgram": 48,
    "TopologyDescription_Create": 82,
    "Compile": 89,
}


def _struct(struct: str, /, **fields: type) -> type:
    """Return the type of a PJRT argument struct: its size, a pointer to extensions, then the given fields."""
    common = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]
    return type(struct, (ctypes.Structure,), {"_fields_": common + list(fields.items())})


pointer, _text, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
Version = _struct("Version", major=ctypes.c_int, minor=ctypes.c_int)
Table = pointer * (max(FUNCTIONS.values()) + 1)
Api = _struct("Api", version=Version, functions=Table)
Initialize = _struct("Initialize")
Error = _struct("Error", error=pointer)
Message = _struct("Message", error=pointer, text=_text, text_size=_size)
Topology = _struct(
    "Topology", name=_text, name_size=_size, options=pointer, option_count=_size, topology=pointer
)
Program = _struct("Program", code=pointer, code_size=_size, format=_text, format_size=_size)
Compile = _struct(
    "Compile",
    topology=pointer,
    program=ctypes.POINTER(Program),
    options=_text,
    options_size=_size,
    client=pointer,
    executable=pointer,
)
Optimized = _struct("Optimized", executable=pointer, program=ctypes.POINTER(Program))
Executable = _struct("Executable", executable=pointer)


def sized(struct: ctypes.Structure) -> ctypes.Structure:
    """Return an argument struct with its size filled in, by which the plugin knows its version."""
    struct.struct_size = ctypes.sizeof(struct)
    return struct
