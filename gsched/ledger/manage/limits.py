"""Settings of associations and QOS as a command makes them: values, and who may set them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gsched.ledger.manage.work import ACCESS, No, Work, replaced
from gsched.model.policy import Assoc, Qos
from gsched.policy.settings import SettingError, changed

Settings = list[tuple[str, str, str]]

#: limits of an account that a coordinator must not set above the parent's
_BOUND = ("max_jobs", "max_jobs_accrue", "max_submit_jobs", "max_wall")
_BOUND_TRES = (
    *("max_tres_per_job", "max_tres_per_node", "max_tres_mins_per_job", "max_tres_run_mins"),
)
#: what only operators set
_OPERATORS = ("priority", "min_prio_thresh", "guarantee", "borrow", "lend", "guarantee_unit")


def values(work: Work, record: Assoc | Qos, settings: Settings) -> dict[str, Any]:
    """The fields that change. Refuses what cannot be."""
    found: dict[str, Any] = {}
    try:
        for name, op, text in settings:
            one = changed(_with(record, found), {name: (op, text)}, work.known)
            found |= one
    except SettingError as error:
        text = str(error).replace("{option}", f"{name}{op}{text}")
        raise No(f"{text}\n" if error.out else f"sacctmgr: error: {text}\n") from None
    return found


def _with(record: Assoc | Qos, fields: dict[str, Any]) -> Assoc | Qos:
    return msgspec.structs.replace(record, **fields) if fields else record


def within_parent(work: Work, assoc: Assoc, fields: dict[str, Any], account: str) -> None:
    """A coordinator sets nothing above what the account above has: limits, QOS; and nothing that is
    an operator's. `account`: whose limits bind. No."""
    if work.operator:
        return
    for name in _OPERATORS:
        if name in fields and fields[name] != getattr(assoc, name):
            raise denied(f"Only admins/operators can set {name}")
    above = work.book.account(account)
    if above is None:
        return
    whole = work.book.effective(above)
    for name in _BOUND:
        most, wanted = getattr(whole, name), fields.get(name)
        if wanted is not None and most is not None and wanted > most:
            raise denied(f"Coordinators can not set {name} above {most}, the account's own limit")
    for name in _BOUND_TRES:
        for kind, wanted in fields.get(name, {}).items():
            most = getattr(whole, name).get(kind)
            if most is not None and wanted > most:
                raise denied(
                    f"Coordinators can not set {name} of {kind} above {most}, the account's own "
                    "limit"
                )
    if fields.get("qos") is not None:
        given = set(whole.qos or ())
        more = [name for name in fields["qos"] if name[0] != "-" and name.lstrip("+") not in given]
        if more:
            raise denied(f"Coordinators can not give QOS that the account has not: {more[0]}")


def denied(rule: str) -> No:
    """A refusal for want of rights, naming the rule."""
    return No(
        "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
        f" Error with request: Access/permission denied ({rule})\n",
        ACCESS,
    )


def check_guarantee(work: Work, assoc: Assoc, fields: dict[str, Any]) -> None:
    """Guarantees are an account's, and of GPUs where they are in nodes or islands."""
    merged = replaced(assoc, **fields)
    if merged.user and (merged.guarantee or merged.borrow or merged.lend or merged.guarantee_unit):
        raise No(" Error with request: Guarantees are set on accounts, not on users\n")


def check_default_qos(work: Work, assocs: Iterable[Assoc]) -> None:
    """Each must have access to its default QOS, once its list or the default is changed."""
    lines = []
    for assoc in assocs:
        whole = work.book.effective(assoc)
        if whole.default_qos and whole.default_qos not in (whole.qos or ()):
            user = f"U = {assoc.user:<9}" if assoc.user else ""
            lines.append(
                f"  DefQOS = {whole.default_qos:<10} C = {work.led.config.cluster_name:<10} "
                f"A = {assoc.account:<20} {user}\n"
            )
    if lines:
        raise No(
            " These associations don't have access to their default qos.\n"
            " Please give them access before they the default can be set to this.\n"
            + "".join(lines)
        )


def shown(fields: dict[str, Any]) -> str:
    """Changed fields for the record of transactions."""
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())
