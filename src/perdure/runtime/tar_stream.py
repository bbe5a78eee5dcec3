"""The container of a bundle: a tar archive of plain files, compressed or not, read and written in
one go.

Job: headers, padding and gzip for ``runtime.bundle_out`` and ``runtime.bundle_in``. Invariants: the
same content gives the same bytes (no time, owner or machine in a header); reading holds one piece
in memory whatever an archive claims, follows no link because it knows no type but plain files, and
never reads past what it was told to expect. Any tar program can list and unpack what is written.
"""

import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from perdure.core.bundle import damaged

block_bytes: Final = 512
piece_bytes: Final = 1 << 20
pax_bytes_max: Final = 64 << 10
level: Final = 6
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
END: Final = b"\0" * (2 * block_bytes)


def header(path: str, size_bytes: int, *, mtime_s: int = 0, executable: bool = False) -> bytes:
    """What stands before a file of this name and size."""
    info = tarfile.TarInfo(path)
    info.size, info.mtime = size_bytes, max(0, mtime_s)
    info.mode = 0o755 if executable else 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size_bytes: int) -> bytes:
    """What stands behind a file of this size."""
    return b"\0" * (-size_bytes % block_bytes)


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces as one member of a gzip file; several in a row are one file again."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _plain(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The archive's bytes, taken out of gzip where they are in it. Raises CorruptError."""
    first = next(chunks, b"")
    if not first.startswith(_GZIP):
        yield first
        yield from chunks
        return
    unpacker, data, at_start = zlib.decompressobj(_GZIP_WINDOW), first, False
    while True:
        if not data:
            data = next(chunks, b"")
            if not data:
                break
        if at_start:
            unpacker, at_start = zlib.decompressobj(_GZIP_WINDOW), False
        try:
            piece = unpacker.decompress(data, piece_bytes)
        except zlib.error as error:
            raise damaged(f"its compression is broken ({error})") from None
        data = unpacker.unconsumed_tail
        if unpacker.eof:
            data, at_start = unpacker.unused_data, True
        if piece:
            yield piece
    if not at_start:
        raise damaged("it ends too early")


class TarReader:
    """The files of an archive, one after the other; each is read to its end before the next."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._pieces = _plain(chunks)
        self._rest = b""
        self._left = 0
        self._padding = 0

    def next_file(self) -> tuple[str, int] | None:
        """Name and size of the next file; None at the end. Raises CorruptError for all else."""
        self._skip_padding()
        block = self._exactly(block_bytes)
        if block == END[:block_bytes]:
            self._check_end()
            return None
        info, told = self._parsed(block), dict[str, str]()
        if info.type == tarfile.XHDTYPE:
            told = _pax_records(self._pax(info.size))
            info = self._parsed(self._exactly(block_bytes))
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise damaged(f"{info.name[:200]!r} in it is no plain file", code="bundle_unsafe")
        try:
            size = int(told.get("size", info.size))
        except ValueError:
            size = -1
        if size < 0:
            raise damaged(f"{info.name[:200]!r} in it has no size")
        self._left, self._padding = size, -size % block_bytes
        return told.get("path", info.name), size

    def data(self) -> Iterator[bytes]:
        """The bytes of the file whose name was read last."""
        while self._left:
            piece = self._some(self._left)
            self._left -= len(piece)
            yield piece

    def _pax(self, size_bytes: int) -> bytes:
        if not 0 < size_bytes <= pax_bytes_max:
            raise damaged("a header in it is too long")
        data = self._exactly(size_bytes)
        self._exactly(-size_bytes % block_bytes)
        return data

    def _parsed(self, block: bytes) -> tarfile.TarInfo:
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise damaged(f"a header in it is broken ({error})") from None

    def _skip_padding(self) -> None:
        for _ in self.data():
            pass
        count, self._padding = self._padding, 0
        self._exactly(count)

    def _check_end(self) -> None:
        """A second block of zeros and nothing else but more of them may follow; with that the
        compression comes to its own end, which proves the bytes before."""
        if self._exactly(block_bytes).strip(b"\0"):
            raise damaged("something follows its end")
        while piece := self._some(piece_bytes, at_end=True):
            if piece.strip(b"\0"):
                raise damaged("something follows its end")

    def _exactly(self, count: int) -> bytes:
        pieces = []
        while count:
            pieces.append(self._some(count))
            count -= len(pieces[-1])
        return b"".join(pieces)

    def _some(self, most: int, *, at_end: bool = False) -> bytes:
        """Up to so many bytes, one at least; nothing only at the end, where that may be."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                if at_end:
                    return b""
                raise damaged("it ends too early")
            self._rest = piece
        taken, self._rest = self._rest[:most], self._rest[most:]
        return taken


def _pax_records(data: bytes) -> dict[str, str]:
    """The records of an extended header: LENGTH NAME=VALUE and a newline, each."""
    records = {}
    while data:
        digits, space, _ = data.partition(b" ")
        length = int(digits) if space and digits.isdigit() and len(digits) < 7 else 0
        record, data = data[:length], data[length:]
        name, equals, value = record[len(digits) + 1 :].partition(b"=")
        if len(record) != length or not equals or not value.endswith(b"\n"):
            raise damaged("a header in it is broken")
        records[name.decode("utf-8", "replace")] = value[:-1].decode("utf-8", "surrogateescape")
    return records
