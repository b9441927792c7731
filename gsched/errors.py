"""Slurm's symbolic error codes and the sentence each is shown with: one table for all verbs.

The sentences are those of 26.05 as its commands print them; programs search for them.
"""

from __future__ import annotations

#: code -> sentence
MESSAGES: dict[str, str] = {
    "EAGAIN": "Resource temporarily unavailable",
    "EINVAL": "Invalid argument",
    "ESLURM_ACCESS_DENIED": "Access/permission denied",
    "ESLURM_ALREADY_DONE": "Job/step already completing or completed",
    "ESLURM_BAD_TASK_COUNT": "Task count specification invalid",
    "ESLURM_BATCH_NOT_SUBSET": ("Job --batch option is invalid or not a subset of --constraints"),
    "ESLURM_BATCH_ONLY": "Only batch jobs are accepted or processed",
    "ESLURM_CAN_NOT_START_IMMEDIATELY": "Immediate execution impossible, insufficient priority",
    "ESLURM_CIRCULAR_DEPENDENCY": "Circular job dependency",
    "ESLURM_DEPENDENCY": "Job dependency problem",
    "ESLURM_DISABLED": "Requested operation is presently disabled",
    "ESLURM_DUPLICATE_JOB_ID": "Duplicate job id",
    "ESLURM_INVALID_ACCOUNT": "Invalid account or account/partition combination specified",
    "ESLURM_INVALID_ARRAY": "Invalid job array specification",
    "ESLURM_INVALID_FEATURE": "Invalid feature specification",
    "ESLURM_INVALID_GRES": "Invalid generic resource (gres) specification",
    "ESLURM_INVALID_JOB_ID": "Invalid job id specified",
    "ESLURM_INVALID_LICENSES": "Invalid license specification",
    "ESLURM_INVALID_NODE_COUNT": "Node count specification invalid",
    "ESLURM_INVALID_NODE_NAME": "Invalid node name specified",
    "ESLURM_INVALID_NODE_STATE": "Invalid node state specified",
    "ESLURM_INVALID_PARTITION_NAME": "Invalid partition name specified",
    "ESLURM_INVALID_PREFER": "Invalid preferred feature specification",
    "ESLURM_INVALID_QOS": "Invalid qos specification",
    "ESLURM_INVALID_TASK_MEMORY": "Memory required by task is not available",
    "ESLURM_INVALID_TIME_LIMIT": (
        "Requested time limit is invalid (missing or exceeds some limit)"
    ),
    "ESLURM_INVALID_TIME_MIN_LIMIT": (
        "Invalid time-min specification (exceeds job's time or other limits)"
    ),
    "ESLURM_INVALID_TIME_VALUE": "Invalid time specified",
    "ESLURM_ACCOUNTING_POLICY": "Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)",
    "ESLURM_INVALID_TRES": "Invalid Trackable RESource (TRES) specification",
    "ESLURM_INVALID_WCKEY": "Invalid wckey specification",
    "ESLURM_JOB_FINISHED": "Job can not be altered after it has finished",
    "ESLURM_JOB_HELD": "Job is held",
    "ESLURM_JOB_PENDING": "Job is pending execution",
    "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP": (
        "User's group not permitted to use this partition"
    ),
    "ESLURM_JOB_NOT_PENDING": "Job is no longer pending execution",
    "ESLURM_JOB_NOT_RUNNING": "Job is not running",
    "ESLURM_JOB_SCRIPT_MISSING": "Job script not specified",
    "ESLURM_NODE_NOT_AVAIL": "Required node not available (down, drained or reserved)",
    "ESLURM_NODES_BUSY": "Requested nodes are busy",
    "ESLURM_NOT_SUPPORTED": "Requested operation not supported on this system",
    "ESLURM_PARTITION_ASSOC": (
        "Multiple partition job request not supported when a partition is set in the association"
    ),
    "ESLURM_PATHNAME_TOO_LONG": ("Pathname of a file, directory or other parameter too long"),
    "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE": ("Requested node configuration is not available"),
    "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE": (
        "Requested partition configuration not available now"
    ),
    "ESLURM_RESERVATION_ACCESS": "Access denied to requested reservation",
    "ESLURM_RESERVATION_INVALID": "Requested reservation is invalid",
    "ESLURM_TOO_MANY_REQUESTED_CPUS": ("More processors requested than permitted"),
    "ESLURM_TRANSITION_STATE_NO_UPDATE": "Job can not be altered now, try again later",
    "ESLURM_UNSUPPORTED_GRES": (
        "Requested GRES option unsupported by configured SelectType plugin"
    ),
    "ESLURM_USER_ID_MISSING": "Invalid user id",
    "ESLURMD_INVALID_JOB_CREDENTIAL": "Invalid job credential",
    "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR": (
        "Unable to contact slurm controller (connect failure)"
    ),
    "SLURM_COMMUNICATIONS_CONNECTION_ERROR": "Communication connection failure",
    "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT": "Socket timed out on send/recv operation",
}


def message(code: str) -> str:
    """The sentence of a code; the code itself where the table does not know it."""
    return MESSAGES.get(code, code)
