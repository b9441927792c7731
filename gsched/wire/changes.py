"""Jobs as changes since an earlier answer, for whoever keeps what it made of them: a part of
`gsched.wire.messages`."""

from __future__ import annotations

import msgspec


class JobChanges(msgspec.Struct, array_like=True, tag=True, gc=False):
    """What is different of the jobs that match, as in JobQuery, since the answer with `state`."""

    uids: list[int] = []
    active_only: bool = False
    #: JobDelta.state of the answer before; b"": none
    state: bytes = b""
    #: start estimates too
    planned: bool = False
    #: jobs above this id, of an answer that came in parts
    after: int = 0
    min_version: int = 0


class JobDelta(msgspec.Struct, array_like=True, tag=True, gc=False):
    """The answer. Where `whole` is set nothing known before holds any more."""

    version: int
    #: opaque: which state of the cluster, and whose jobs; b"": nothing can be told from here on
    state: bytes
    whole: bool
    #: uid of the only user whose jobs the asker may see; -1: everybody's
    whose: int
    #: packed records (gsched.model.Job) of jobs that are new or another than before
    jobs: list[msgspec.Raw]
    #: job id -> packed Verdict: of these jobs, and of others of which something else is told now
    verdicts: dict[int, msgspec.Raw]
    #: jobs that do not match (any more), or are gone
    gone: list[int] = []
    #: jobs of which no verdict is told (any more)
    silent: list[int] = []
    #: all start estimates, as in JobRows; None: those told before
    not_before: dict[int, int] | None = None
    #: `whole`, and there are more jobs: ask with `after`, the last job's id
    more: bool = False
    #: priorities in force of those in `jobs` whose records say another
    priorities: dict[int, int] = {}
