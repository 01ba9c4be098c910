"""What a local cloud keeps between its runs: the state of its services, and the objects of its buckets.

MiniStack writes both when it is ended gently, and reads them when it starts. It keeps how far its functions had read
each stream, but not the streams: after a start they are empty, and a function that waits for record number ten of an
empty stream misses the first nine. So the positions are forgotten before a start. What was in a stream and not yet
read when it was ended is lost; the next change of a bucket makes up for it, as usage counters are cumulative.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

from zae_limiter.exceptions import StackOperationError

STATE, OBJECTS = "state", "s3"
POSITIONS = "dynamodb_stream_positions"

MARKER = ".zae-limiter-local-cloud"
"""A file that is put into a folder before anything else is: what has these names beside it was made by us."""

_EXPLANATION = (
    f"zae-limiter keeps the data of a local cloud in {STATE} and {OBJECTS} here, and deletes it when told to.\n"
)


def claim_data(data: Path) -> None:
    """Make a folder one in which a local cloud may keep its data.

    Raises ``StackOperationError`` if it has files or folders of our names that are not ours. Other things in it stay.
    """
    check_data(data)
    write_marker(data, _EXPLANATION)


def check_data(data: Path) -> None:
    """Raise ``StackOperationError`` if what is kept in a folder is not ours."""
    refuse_foreign(data, (STATE, OBJECTS))


def check_discard(data: Path) -> None:
    """Raise ``StackOperationError`` if data cannot be thrown away: because it is not ours, or is elsewhere."""
    check_data(data)
    refuse_links(data, (STATE, OBJECTS))


def discard_data(data: Path) -> None:
    """Throw away what is kept in a folder, and nothing else that may be there."""
    check_discard(data)
    if is_marked(data):
        delete(data, (STATE, OBJECTS, MARKER))


def is_marked(folder: Path) -> bool:
    """Whether we made what has our names in a folder."""
    try:
        return stat.S_ISREG(os.lstat(folder / MARKER).st_mode)
    except OSError:
        return False


def write_marker(folder: Path, explanation: str) -> None:
    """Make a folder, and say in it that what comes is ours."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_marked(folder):
        with (folder / MARKER).open("x", encoding="utf-8") as file:
            file.write(explanation)


def refuse_foreign(folder: Path, names: tuple[str, ...]) -> None:
    """Raise ``StackOperationError`` for what has these names in a folder and was not made by us."""
    there = [name for name in names if os.path.lexists(folder / name)]
    if there and not is_marked(folder):
        raise StackOperationError(
            f"{folder} has {' and '.join(there)} in it, which zae-limiter did not make (there is no file {MARKER}), "
            "so it neither uses nor deletes that. Choose another folder with --data-dir; or, if it is the data of a "
            "local cloud, make an empty file of that name"
        )


def refuse_links(folder: Path, names: tuple[str, ...]) -> None:
    """Raise ``StackOperationError`` for what is only linked to from a folder: it is not there that we made it."""
    for name in names:
        if (folder / name).is_symlink():
            raise StackOperationError(
                f"{folder / name} is a link, so it is not followed; delete by hand what is there"
            )


def delete(folder: Path, names: tuple[str, ...]) -> None:
    """Delete what has these names, in this order. Raises ``StackOperationError`` if something stays."""
    try:
        for name in names:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise StackOperationError(f"{folder} could not be deleted: {error}") from error


def rewind_streams(data: Path) -> None:
    """Let functions read streams from their beginning. A file that is not as expected is left as it is."""
    kept = data / STATE / "lambda.json"
    try:
        state = json.loads(kept.read_text(encoding="utf-8"))
        if POSITIONS not in state["payload"]:
            return
    except (OSError, ValueError, KeyError, TypeError):
        return
    state["payload"][POSITIONS] = {}
    half = kept.with_suffix(".new")
    half.write_text(json.dumps(state), encoding="utf-8")
    half.replace(kept)
