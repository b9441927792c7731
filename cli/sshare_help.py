"""What `sshare --help`, `--usage` and `--helpformat` print."""

USAGE = """\
Usage:  sshare [-a] [-A accounts] [-e] [-l] [-m] [-M cluster] [-n] [-o fields] [-p] [-P]
               [-u users] [-U] [--json] [--yaml]
"""

HELP = """\
Usage:  sshare [OPTION]
What accounts and users were promised and have used (lists are separated by commas):
  -a, --all                 all users; without it, the caller alone
  -A, --accounts=LIST       these accounts and their users
  -e, --helpformat          the names of all fields
      --json                as JSON
      --yaml                as YAML
  -l, --long                more fields
  -m, --partition           the partition of each association
  -M, --cluster=NAME        of that cluster (its own alone)
  -n, --noheader            no heading
  -o, --format=LIST         fields, each with a width behind a % (account%30,fairshare)
  -p, --parsable            fields end with |
  -P, --parsable2           fields are separated by |
  -u, --users=LIST          these users
  -U, --Users               users alone, without accounts
  -v, --verbose             accepted
  -V, --version             the release
      --help, --usage       this, and a shorter one
"""

_NAMES = (
    *(
        "Account",
        "Cluster",
        "EffectvUsage",
        "FairShare",
        "GrpTRESMins",
        "GrpTRESRaw",
        "ID",
        "LevelFS",
    ),
    *("NormShares", "NormUsage", "Partition", "RawShares", "RawUsage", "TRESRunMins", "User"),
)
FIELDS = "".join(
    " ".join(f"{name:<17}" for name in _NAMES[at : at + 4]) + "\n"
    for at in range(0, len(_NAMES), 4)
)
