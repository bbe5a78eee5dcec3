"""Node ``manifest``: the checksums of the inventory in the format that ``sha256sum -c`` reads.

Nothing on the longest path waits for it, so it runs when a worker has nothing better to do.
"""

from survey import INVENTORY, read_jsonl, write_whole


def main() -> None:
    """Write ``SHA256SUMS``: hash, two blanks, path."""
    lines = [f"{entry['sha256']}  {entry['path']}\n" for entry in read_jsonl(INVENTORY)]
    write_whole("SHA256SUMS", "".join(lines))
    print(f"{len(lines)} checksums")


if __name__ == "__main__":
    main()
