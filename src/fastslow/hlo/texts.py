"""Find the programs in a text: HLO modules and MLIR modules, whatever a log, a page or a source wraps around.

Functions raise ``ValueError`` with the problem where a program is there in part.
"""

import re
from collections.abc import Iterator, Sequence

from fastslow.core.input_files import decode

_STAGES = ("before_layout", "before_optimizations", "")  # in the names of dumps, the one that we want first
# attributes of other versions that change nothing of what is computed
_NOTES = re.compile(r", (original_value|origin|statistics|api_version)=(\{.*?\}(?=$|, \w+=)|\w+)", re.M)
# codes of a terminal, such as colours and titles, and what a log begins its lines with
_NOISE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|^[IWEF]\d{4} [^]\n]*\] ?", re.M
)
_LITERAL = re.compile(r"""(["'])((?:HloModule|module|#loc)\b(?:\\.|(?!\1)[^\\\n])*+)\1""")
_ESCAPE = re.compile(r"\\(.)")
_SECTION = re.compile(r"^\*\*\* Begin (.*) \*\*\*$", re.M)  # of --xla_dump_to=-
_HEADER = re.compile(r"^(.*?)(?<![\w/.-])(?=HloModule[ \t]+[^\s,]+[ \t]*(?:,|$))", re.M)
_ONE_LINE = re.compile(r"\s*HloModule[ \t]+[^\s,]+[ \t,].*\bENTRY\b.*\}\s*")  # a module without a line end
_WITHOUT_HEADER = re.compile(r"^(ENTRY )?%?[\w.-]+ (\(.*\) -> .*)?\{$", re.M)
_ENTRY = re.compile(r"^\s*ENTRY\b", re.M)
_TYPE = r"\(*(?:pred|[suf]\d\w*|bf16|c64|c128|token|opaque)\["
_HLO_LINE = re.compile(
    rf"^\s*ENTRY\b|^\s*(?:ROOT )?%[\w.-]+|^\s*(?:ROOT )?[\w.-]+ = {_TYPE}|^[\w.-]+ \([\w.-]+: {_TYPE}", re.M
)

_MLIR = re.compile(r'^\s*("?builtin\.module|module\b[^\n=,]*\{|func\.func|#\w+ = )|\b(stable|v|m)hlo\.', re.M)
_MLIR_FILES = re.compile(r"^// -----.*\n?", re.M)  # what --split-input-file splits at
_MLIR_START = re.compile(r'^(.*?)(?=(?:module\b[^\n=,"]*\{|"?builtin\.module\b|func\.func\b))', re.M)
_ALIAS = re.compile(r"^([#!][\w.$-]+) = .*\n?", re.M)
_RESOURCES = re.compile(r"^\{-#.*?^#-\}\n?", re.M | re.S)
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|[{}]')
_FUNCTION = re.compile(r"\bfunc\.func\s+(?:(public|private|nested)\s+)?@([\w.$-]+)")
_ELIDED = re.compile(  # XLA reads no value of a dense_resource, elided or there
    r"(?:dense<__elided__>|dense_resource<[^<>]*>)(?=\s*:\s*tensor<(?:[\d?]+x)*([^>]+))"
)
_MESH_USE = re.compile(r"sharding[^\n]*?<@([\w.$-]+)")


class CutMlirError(ValueError):
    """MLIR of which the beginning or the end is cut off."""


def earliest(names: Sequence[str]) -> list[int]:
    """Return the positions of the dumps whose names say the stage nearest before layout assignment."""
    stages = ([n for n, name in enumerate(names) if stage in name] for stage in _STAGES)
    return next(filter(None, stages), [])


def as_text(data: bytes) -> str | None:
    """Return the file as text, None if binary: a protobuf of HLO holds control characters (field tags).

    It is without what a log adds to its lines. Bytes that are no UTF-8 are Latin-1 where a program is.
    """
    try:
        text = decode(data)
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        if not (_HEADER.search(text) or _MLIR.search(text)):
            return None
    text = text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")
    text = _NOISE.sub("", text.replace("\u00a0", " "))  # the space of pages
    if re.search(r"[\x00-\x08]", text):
        return None
    literals = [_unescaped(match[2]) for match in _LITERAL.finditer(text) if r"\n" in match[2]]
    around = _LITERAL.sub("", text) if literals else ""  # a program may hold such a literal
    if not literals or _HEADER.search(around) or _MLIR.search(around):
        return text
    return "\n".join(literals)


def _unescaped(literal: str) -> str:
    """Return the program of a string literal of Python, JSON or C, as ``repr`` and logs write it."""
    return _ESCAPE.sub(lambda code: {"n": "\n", "t": "\t"}.get(code[1], code[1]), literal)


def programs_in(text: str) -> list[str | bytes]:
    """Return the programs that a text contains, each without the lines around it.

    Args:
        text: The content of a file, such as a log or what ``print(lowered.as_text())`` wrote.

    Returns:
        HLO modules as texts, or StableHLO modules as bytes; none where the text has no program.

    Raises:
        ValueError: A module is cut off, or instructions stand before its first line.
    """
    if _ONE_LINE.fullmatch(text) or _HEADER.search(text) or not _MLIR.search(text):
        return [*split_text(text)]
    return [source.encode() for part in _MLIR_FILES.split(text) for source in _mlir_modules(part)]


def split_text(text: str) -> list[str]:
    """Return the HLO modules of a text, without the lines between them; those that have no header get one.

    Of the dumps that ``--xla_dump_to=-`` prints, only those from before layout assignment are taken.

    Raises:
        ValueError: A module is cut off.
    """
    text, *sections = _SECTION.split(_NOTES.sub("", text))
    if sections:
        text = "\n".join(sections[1::2][n] for n in earliest(sections[::2]))
    if _ONE_LINE.fullmatch(text):
        return [text.strip()]
    if not (headers := _headers(text)):
        is_hlo = _WITHOUT_HEADER.search(text) and _HLO_LINE.search(text)
        return [_whole(f"HloModule module\n\n{text}")] if is_hlo else []
    if _HLO_LINE.search(text[: headers[0].start()]):
        raise ValueError("instructions stand before the first HloModule line")
    return [_whole(_without_prefix(header[1], rest)) for header, rest in _after_each(headers, text)]


def _headers(text: str) -> list[re.Match]:
    """Return where modules begin in a text, but for lines that name one, as ``Compiling HloModule jit_f``."""
    begun = []
    for header, rest in _after_each([*_HEADER.finditer(text)], text):
        is_begun = not header[1].strip() or "=" in rest.partition("\n")[0]
        if is_begun or _HLO_LINE.search(_without_prefix(header[1], rest)):
            begun.append(header)
    return begun


def _after_each(headers: list[re.Match], text: str) -> Iterator[tuple[re.Match, str]]:
    """Yield each header with the text after it, up to the next one."""
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=False):  # without a header there is an end
        yield header, text[header.end() : end]


def _without_prefix(prefix: str, text: str) -> str:
    """Return a text, whose first line a prefix has been cut from, without it in the other lines.

    It may be an indentation, the quotation mark of a letter, or what a log begins its lines with, in which
    only numbers, and the spaces that align them, differ. Words before the first line only, such as
    ``text = R"(``, are no prefix.
    """
    if not prefix:
        return text
    first, _, rest = text.partition("\n")
    if not prefix.strip():
        pattern = f"[ \t]{{1,{len(prefix)}}}"
    else:
        mark = prefix.rstrip()
        pattern = re.sub(r"(\\ )*\d+", r" *\\d+", re.escape(mark)) + f"[ \t]{{0,{len(prefix) - len(mark)}}}"
        second = next((line for line in rest.splitlines() if line.strip()), "")
        if not re.match(pattern, second):
            return text
    return first + "\n" + re.sub(f"^{pattern}", "", rest, flags=re.M)


def _whole(text: str) -> str:
    """Return an HLO module up to the last line that closes a computation.

    Raises:
        ValueError: What follows is a part of it, or it has no entry computation.
    """
    end = text.rfind("\n}")
    if end >= 0:
        last = text[end + 2 :].partition("\n")[0]
        if last.startswith(","):  # attributes of the computation
            end += len(last)
        text, rest = text[: end + 2], text[end + 2 :]
        if cut := _HLO_LINE.search(rest):
            line = rest[cut.start() :].strip().partition("\n")[0]
            raise ValueError(f"the computation of the line {line[:60]!r} is not closed")
    elif text.count("{") != text.count("}"):
        raise ValueError("no computation is closed")
    if not _ENTRY.search(text):
        raise ValueError("no computation is the ENTRY")
    return text


def _mlir_modules(text: str) -> Iterator[str]:
    """Yield the MLIR modules of a text, each with the aliases around it, or its functions as one module.

    Raises:
        ValueError: A brace is not closed.
    """
    items: list[tuple[str, str]] = []  # what stands before a module or function, and its text
    while start := _MLIR_START.search(text):
        body = text[start.end() :]
        if start[1].strip():
            body = _without_prefix(start[1], body)
        size = _closed(body)
        items.append((text[: start.start()], body[:size]))
        text = body[size:]
    befores = [before for before, _ in items] + [text]
    bodies = [body for _, body in items]
    if not bodies:  # operations without a function
        braces = [match[0] for match in _STRING_OR_BRACE.finditer(text)]
        if braces.count("}") > braces.count("{"):
            raise CutMlirError("a brace is closed that was not opened")
        if text.strip():
            yield text
    elif all(body.startswith("func.func") for body in bodies):
        yield _aliases("\n".join(befores)) + "\n".join(bodies) + "\n"
    else:
        for number, body in enumerate(bodies):
            if not body.startswith("func.func"):
                yield _aliases(befores[number] + "\n" + befores[number + 1]) + body + "\n"


def _aliases(text: str) -> str:
    """Return the lines of aliases and resources in a text; of two with one name the later one."""
    named = {match[1]: match[0].rstrip() + "\n" for match in _ALIAS.finditer(text)}
    return "".join(_RESOURCES.findall(text)) + "".join(named.values())


def _closed(text: str) -> int:
    """Return where the operation ends that a text begins with: at the end of the line of its last brace."""
    depth = 0
    for match in _STRING_OR_BRACE.finditer(text):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
            if depth == 0:
                end = text.find("\n", match.end())
                line = text[match.end() : end if end >= 0 else len(text)]
                if "{" in line:  # attributes stand before the body
                    continue
                return end if end >= 0 else len(text)
    raise CutMlirError("a brace is not closed")


def readable_mlir(text: str) -> str:
    """Return StableHLO as XLA's converter reads it: with a function main, and zeros for elided constants.

    Raises:
        ValueError: It names a mesh that it lacks, or has several public functions, none of which is main.
    """
    for mesh in _MESH_USE.findall(text):
        if not re.search(rf"sdy\.mesh @{re.escape(mesh)}\b|\b{re.escape(mesh)} = #sdy\.mesh", text):
            raise ValueError(f"its shardings name the mesh @{mesh}, and it holds no sdy.mesh @{mesh}")
    text = _ELIDED.sub(lambda found: f"dense<{_zero(found[1])}>", text)
    functions = {name: visibility for visibility, name in _FUNCTION.findall(text)}
    public = [name for name, visibility in functions.items() if visibility in ("", "public")] or [*functions]
    if not functions or "main" in public and functions["main"] in ("", "public"):
        return text
    entry = "main" if "main" in public else public[0]
    if len(public) != 1 and entry != "main":
        kind = "functions" if functions[public[0]] == "private" else "public functions"
        raise ValueError(f"none of its {len(public)} {kind} ({', '.join(public[:9])}) is called main")
    text = re.sub(rf"@{re.escape(entry)}(?![\w.$-])", "@main", text)
    return re.sub(r"\bfunc\.func\s+(?:private|nested)\s+@main\b", "func.func public @main", text)


def _zero(kind: str) -> str:
    if kind.startswith("complex"):
        return "(0.0,0.0)"
    if kind.strip() == "i1":
        return "false"
    return "0" if re.match(r"u?i\d|si\d|index", kind) else "0.0"
