"""What `sprio --help`, `--usage` and `--helpformat` print."""

USAGE = """\
Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]
   [-S fields] [--federation] [--local] [--sibling] [--usage] [-hlnvVw]
"""

HELP = """\
Usage: sprio [OPTIONS]
Waiting jobs, and what their priorities are made of (lists are separated by commas):
  -h, --noheader            no header line
  -j, --jobs=LIST           these jobs
  -l, --long                all factors
  -M, --cluster=NAME        of that cluster (its own alone)
  -n, --norm                factors before they are weighed
  -o, --format=FORMAT       these columns: %[[.]size]type
  -p, --partition=LIST      jobs in these partitions
  -S, --sort=FIELDS         in the order of these fields ("-" before one: the largest first)
  -u, --user=LIST           jobs of these users
  -w, --weights             the weights of the factors

      --federation, --local, --sibling   accepted: there is one cluster
  -v, --verbose             accepted
  -V, --version             version
      --help, --usage       this, and a shorter one
      --helpformat          the types of columns
"""

_TYPES = "aAbBcfFijJnNopPrSqQsuyYtT"
LETTERS = "".join(
    "".join(f"%{letter}    " for letter in _TYPES[at : at + 8]) + "\n"
    for at in range(0, len(_TYPES), 8)
)
