"""Members of zip archives, inflated as the standard library does it."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from fastslow.core.npz_io import Inflated


def archive_of(content: bytes, level: int = 6) -> zipfile.ZipFile:
    """Return an archive with one deflated member, ``x``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        archive.writestr("x", content)
    return zipfile.ZipFile(packed)


def some_bytes(size: int, seed: int) -> bytes:
    """Return bytes that deflate packs to about a quarter, in runs."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.integers(0, 256, size // 8 + 1, np.uint8), 8)[:size].tobytes()


@given(st.lists(st.integers(0, 300_000), max_size=6), st.integers(0, 500_000), st.integers(0, 9))
def test_reads_what_zipfile_reads(sizes, size, level):
    archive = archive_of(some_bytes(size, level), level)
    info = archive.getinfo("x")
    with archive.open(info) as standard, Inflated(archive, info) as own:
        assert [own.read(n) for n in sizes] == [standard.read(n) for n in sizes]
        assert own.read(size) == standard.read(size)
        assert own.read(1) == b""


def test_reads_of_two_members_do_not_disturb_each_other():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        contents = {name: some_bytes(400_000, seed) for seed, name in enumerate("ab")}
        for name, content in contents.items():
            archive.writestr(name, content)
    with zipfile.ZipFile(packed) as archive:
        opened = {name: Inflated(archive, archive.getinfo(name)) for name in contents}
        halves = {name: member.read(200_000) for name, member in opened.items()}
        assert {name: halves[name] + opened[name].read(200_000) for name in opened} == contents


def test_another_checksum_is_refused_with_the_last_byte():
    archive = archive_of(some_bytes(1000, 0))
    info = archive.getinfo("x")
    info.CRC ^= 1
    with Inflated(archive, info) as member:
        member.read(999)
        with pytest.raises(zipfile.BadZipFile, match="CRC-32"):
            member.read(1)


def test_a_member_that_ends_early_is_refused():
    archive = archive_of(some_bytes(1000, 0))
    info = archive.getinfo("x")
    info.file_size += 5
    with Inflated(archive, info) as member, pytest.raises(EOFError, match="x ends 5 bytes early"):
        member.read(2000)


def test_bytes_that_are_not_deflated_are_refused():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x", b"\xff" * 100)
    archive = zipfile.ZipFile(packed)
    with Inflated(archive, archive.getinfo("x")) as member, pytest.raises(isal_zlib.error):
        member.read(100)
