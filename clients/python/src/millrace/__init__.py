"""
The client of Millrace, for trainers: groups of agent rollouts as NumPy arrays.

    async with millrace.Client("http://127.0.0.1:8080") as client:
        async for group in client.groups(tasks, attempts=8, advantage="grpo"):
            step(millrace.batch(group.trainable))

`Client` talks to `millrace serve`, `Gateway` to `millrace gateway`, and `read_rows` reads files of training rows.
"""

from ._batch import Batch, batch
from ._client import Advantage, Client, Group, Record, RequestStatus, RequestStream, Task
from ._errors import (
    BackendsFailed,
    ClientClosed,
    Conflict,
    ConnectFailed,
    ConnectionLost,
    CutOff,
    InvalidArgument,
    InvalidRequest,
    MillraceError,
    NotFound,
    NotRows,
    Overloaded,
    ProtocolError,
    ServerFailed,
    SessionEnded,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from ._fleet import Backend, BackendAnswer, BackendState, Pause, PauseMode
from ._gateway import Gateway, RowStream, Session
from ._row import Row, Sample, VersionRun
from ._rows import RowReader, Source, read_rows
from ._stream import Stream

__version__ = "0.1.0"

__all__ = [
    "Advantage",
    "Backend",
    "BackendAnswer",
    "BackendState",
    "BackendsFailed",
    "Batch",
    "Client",
    "ClientClosed",
    "Conflict",
    "ConnectFailed",
    "ConnectionLost",
    "CutOff",
    "Gateway",
    "Group",
    "InvalidArgument",
    "InvalidRequest",
    "MillraceError",
    "NotFound",
    "NotRows",
    "Overloaded",
    "Pause",
    "PauseMode",
    "ProtocolError",
    "Record",
    "RequestStatus",
    "RequestStream",
    "Row",
    "RowReader",
    "RowStream",
    "Sample",
    "ServerFailed",
    "Session",
    "SessionEnded",
    "Source",
    "Stream",
    "Task",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "VersionRun",
    "batch",
    "read_rows",
]

for _name in __all__:
    # Tracebacks and pickles name what is public, not where it is defined.
    _public = globals()[_name]
    if isinstance(_public, type) and _public.__module__.startswith(__name__):
        _public.__module__ = __name__
