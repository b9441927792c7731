"""`sacctmgr --json` and `--yaml`: listings in the shape that Slurm's data parser gives them."""

from __future__ import annotations

from typing import Any

from gsched.model.policy import SHARES_PARENT, Qos, Tres
from gsched_cli import sacctmgr_list as lists
from gsched_cli.dump import Asked
from gsched_cli.sacctmgr_fields import AssocRow, lineage
from gsched_cli.sacctmgr_list import State
from gsched_cli.sacctmgr_words import Said
from gsched_cli.stop import Stop


def document(asked: Asked, state: State, kind: str, said: Said) -> str:
    """The whole output, with its line end. Stop for what has no JSON."""
    make = _KINDS.get(kind)
    if make is None:
        raise Stop(1, f"sacctmgr: error: JSON is not available for {kind}\n")
    name, rows = make(state, said)
    return asked.document(**{name: rows})


def _number(value: float | None) -> dict[str, object]:
    """Slurm's way to say that a number may be missing: no limit."""
    return {"set": value is not None, "infinite": value is None, "number": value or 0}


def _tres(state: State, counts: Tres) -> list[dict[str, object]]:
    ids = {
        f"{row.kind}/{row.name}" if row.name else row.kind: row.id
        for row in lists.tres_rows(state.config)
    }
    found: list[dict[str, object]] = []
    for full, count in counts.items():
        kind, _, name = full.partition("/")
        found.append({"type": kind, "name": name, "id": ids.get(full, 0), "count": count})
    return found


def _short(state: State, row: AssocRow) -> dict[str, object]:
    one = row.assoc
    return {
        "account": one.account,
        "cluster": state.cluster,
        "partition": one.partition,
        "user": one.user,
        "id": one.id,
    }


def _assoc(state: State, row: AssocRow) -> dict[str, Any]:
    one, lim = row.assoc, row.limits

    def tres(name: str) -> list[dict[str, object]]:
        return _tres(state, getattr(lim, name))

    default = one.user and row.book.default_account(one.user) == one.account
    return {
        "accounting": [],
        "account": one.account,
        "cluster": state.cluster,
        "comment": one.comment,
        "default": {"qos": lim.default_qos or ""},
        "flags": list(one.flags),
        "id": one.id,
        "is_default": bool(default),
        "lineage": lineage(row),
        "max": {
            "jobs": {
                "per": {
                    "count": _number(lim.grp_jobs),
                    "accruing": _number(lim.max_jobs_accrue),
                    "submitted": _number(lim.max_submit_jobs),
                    "wall_clock": _number(lim.max_wall),
                },
                "active": _number(lim.max_jobs),
                "accruing": _number(lim.grp_jobs_accrue),
                "total": _number(lim.max_submit_jobs),
            },
            "per": {"account": {"wall_clock": _number(lim.grp_wall)}},
            "tres": {
                "total": tres("grp_tres"),
                "group": {"minutes": tres("grp_tres_mins"), "active": tres("grp_tres_run_mins")},
                "minutes": {
                    "total": tres("grp_tres_mins"),
                    "per": {"job": tres("max_tres_mins_per_job")},
                },
                "per": {"job": tres("max_tres_per_job"), "node": tres("max_tres_per_node")},
            },
        },
        "min": {"priority_threshold": _number(lim.min_prio_thresh)},
        "parent_account": one.parent,
        "partition": one.partition,
        "priority": _number(lim.priority),
        "qos": sorted(lim.qos or ()),
        "shares_raw": 0x7FFFFFFF if one.shares == SHARES_PARENT else one.shares,
        "user": one.user,
        "guarantee": {
            "guaranteed": tres("guarantee"),
            "borrow": tres("borrow"),
            "lend": tres("lend"),
            "unit": one.guarantee_unit or "gpu",
        },
    }


def _associations(state: State, said: Said) -> tuple[str, list[Any]]:
    return "associations", [_assoc(state, row) for row in lists.associations(state, said)]


def _by(state: State, field: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in lists.associations(state, Said({}, None)):
        found.setdefault(getattr(row.assoc, field), []).append(_short(state, row))
    return found


def _accounts(state: State, said: Said) -> tuple[str, list[Any]]:
    of = _by(state, "account")
    return "accounts", [
        {
            "associations": of.get(one.name, []),
            "coordinators": [
                {"name": user.name, "direct": one.name in user.coordinator}
                for user in state.book.users.values()
                if state.book.is_coordinator(user.name, one.name)
            ],
            "description": one.description,
            "name": one.name,
            "organization": one.organization,
            "flags": list(one.flags),
        }
        for one in lists.accounts(state, said)
    ]


def _users(state: State, said: Said) -> tuple[str, list[Any]]:
    of = _by(state, "user")
    return "users", [
        {
            "administrator_level": [one.admin_level],
            "associations": of.get(one.name, []),
            "coordinators": [{"name": name, "direct": True} for name in one.coordinator],
            "default": {
                "account": one.default_account,
                "qos": None,
                "wckey": one.default_wckey,
            },
            "flags": [],
            "name": one.name,
            "old_name": "",
            "wckeys": [
                {"name": key.name, "user": key.user, "id": key.id, "cluster": state.cluster}
                for key in state.book.wckeys.values()
                if key.user == one.name
            ],
        }
        for one in lists.users(state, said)
    ]


def _one_qos(state: State, one: Qos) -> dict[str, Any]:
    def tres(name: str) -> list[dict[str, object]]:
        return _tres(state, getattr(one, name))

    return {
        "description": one.description,
        "flags": [flag.upper() for flag in one.flags],
        "id": one.id,
        "limits": {
            "grace_time": one.grace_time,
            "max": {
                "active_jobs": {"accruing": _number(one.grp_jobs_accrue), "count": _number(None)},
                "jobs": {
                    "count": _number(one.grp_jobs),
                    "active_jobs": {
                        "per": {
                            "user": _number(one.max_jobs_pu),
                            "account": _number(one.max_jobs_pa),
                        }
                    },
                    "per": {
                        "user": _number(one.max_submit_jobs_pu),
                        "account": _number(one.max_submit_jobs_pa),
                    },
                },
                "accruing": {
                    "per": {
                        "user": _number(one.max_jobs_accrue_pu),
                        "account": _number(one.max_jobs_accrue_pa),
                    }
                },
                "tres": {
                    "total": tres("grp_tres"),
                    "minutes": {
                        "total": tres("grp_tres_mins"),
                        "per": {
                            "qos": tres("grp_tres_run_mins"),
                            "job": tres("max_tres_mins_per_job"),
                            "user": tres("max_tres_run_mins_pu"),
                            "account": tres("max_tres_run_mins_pa"),
                        },
                    },
                    "per": {
                        "job": tres("max_tres_per_job"),
                        "node": tres("max_tres_per_node"),
                        "user": tres("max_tres_pu"),
                        "account": tres("max_tres_pa"),
                    },
                },
                "wall_clock": {"per": {"qos": _number(one.grp_wall), "job": _number(one.max_wall)}},
            },
            "factor": _number(one.limit_factor),
            "min": {
                "priority_threshold": _number(one.min_prio_thresh),
                "tres": {"per": {"job": tres("min_tres_per_job")}},
            },
        },
        "name": one.name,
        "preempt": {
            "list": sorted(one.preempt),
            "mode": [mode.upper() for mode in one.preempt_mode.split(",")],
            "exempt_time": _number(one.preempt_exempt_time),
        },
        "priority": _number(one.priority),
        "usage_factor": _number(one.usage_factor),
        "usage_threshold": _number(one.usage_thres),
    }


def _qos(state: State, said: Said) -> tuple[str, list[Any]]:
    return "qos", [_one_qos(state, one) for one in lists.qos(state, said)]


def _tres_rows(state: State, said: Said) -> tuple[str, list[Any]]:
    return "TRES", [
        {"type": row.kind, "name": row.name, "id": row.id, "count": 0}
        for row in lists.tres_found(state, said)
    ]


def _wckeys(state: State, said: Said) -> tuple[str, list[Any]]:
    return "wckeys", [
        {
            "accounting": [],
            "cluster": state.cluster,
            "id": one.id,
            "name": one.name,
            "user": one.user,
            "flags": [],
        }
        for one in sorted(state.book.wckeys.values(), key=lambda one: one.id)
    ]


def _clusters(state: State, said: Said) -> tuple[str, list[Any]]:
    hosts = state.config.slurmctld_host
    total = lists.total(state.config)
    return "clusters", [
        {
            "controller": {
                "host": hosts[0].addr or hosts[0].name if hosts else "",
                "port": state.config.slurmctld_port,
            },
            "flags": [],
            "name": state.cluster,
            "nodes": ",".join(state.config.nodes),
            "select_plugin": "",
            "associations": {
                "root": {"account": "root", "cluster": state.cluster, "partition": "", "user": ""}
            },
            "rpc_version": lists.RPC,
            "tres": _tres(state, total),
        }
    ]


_KINDS = {
    "account": _accounts,
    "association": _associations,
    "cluster": _clusters,
    "qos": _qos,
    "tres": _tres_rows,
    "user": _users,
    "wckey": _wckeys,
}
