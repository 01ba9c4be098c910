"""What a local cloud keeps between its runs: the state of its services, and the objects of its buckets.

MiniStack writes both when it is ended gently, and reads them when it starts. It keeps how far its functions had read
each stream, but not the streams: after a start they are empty, and a function that waits for record number ten of an
empty stream misses the first nine. So the positions are forgotten before a start. What was in a stream and not yet
read when it was ended is lost; the next change of a bucket makes up for it, as usage counters are cumulative.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

STATE, OBJECTS = "state", "s3"
POSITIONS = "dynamodb_stream_positions"


def discard_data(data: Path) -> None:
    """Throw away what is kept in a folder, and nothing else that may be there."""
    for part in (STATE, OBJECTS):
        shutil.rmtree(data / part, ignore_errors=True)


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
