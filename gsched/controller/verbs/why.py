"""ExplainJob: the whole verdict on jobs that wait. Nothing is changed."""

from __future__ import annotations

from typing import Any

import msgspec

from gsched.ledger import Ledger
from gsched.ledger.select import INVALID_ID, find, named
from gsched.model import Job, JobState
from gsched.model.why import Why
from gsched.scheduling.explain import Asked
from gsched.scheduling.explain import explain as explained
from gsched.wire.messages import Call, Done, ExplainJob, Refused

#: jobs that one request is told of: the loop does nothing else meanwhile
MOST_JOBS = 32


def explain(call: Call, write: ExplainJob, led: Ledger, now: float, log: Any) -> Done | Refused:
    """A verdict for each id; one for the tasks of an array that are still together."""
    ids = named(write.ids)
    if ids is None or len(ids) > MOST_JOBS:
        return Refused(call.request_id, f"At most {MOST_JOBS} jobs are explained at a time")
    private = bool({"jobs", "all"} & {word.lower() for word in led.config.private_data})
    whole = not private or led.is_admin(call.uid)

    def may_know(job: Job) -> bool:
        return whole or job.uid == call.uid

    verdicts: list[Why] = []
    for text in ids:
        found = [one for one in find(led, text) or () if may_know(one.job)]
        if not found:
            return Refused(call.request_id, INVALID_ID, "ESLURM_INVALID_JOB_ID")
        # Of an array those that wait; of a heterogeneous job the leader speaks for all.
        waiting = [one for one in found if one.job.state == JobState.PENDING] or found
        leaders = [one for one in waiting if not one.job.het_job_id or one.job.het_offset == 0]
        for one in (leaders or waiting)[: MOST_JOBS - len(verdicts)]:
            mine = one.job.uid == call.uid
            asked = Asked(int(now), max(int(now), write.at), call.groups if mine else (), may_know)
            try:
                verdict = explained(led, one.job, asked, alone="+" in text)
            except Exception as problem:
                # Only a question: the scheduler goes on.
                log.error(f"job {text} could not be explained: {type(problem).__name__}: {problem}")
                return Refused(call.request_id, f"job {text} could not be explained: {problem}")
            if len(one.tasks) == 1:
                verdict.job = f"{one.job.array_job_id}_{one.tasks[0]}"
            verdicts.append(verdict)
    return Done(call.request_id, 0, data=msgspec.json.encode(verdicts).decode())
