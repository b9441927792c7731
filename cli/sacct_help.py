"""What `sacct --help` and `--usage` print."""

USAGE = "Usage: sacct [options]\n\tUse --help for help\n"

HELP = """\
sacct [OPTIONS]
Which jobs (lists are separated by commas):
  -a, --allusers             of all users; default: of the caller, for root of all
  -A, --accounts=LIST        of these accounts
  -C, --constraints=LIST     that asked for all of these features
  -D, --duplicates           every try of a job that was queued again, not the last one only
  -E, --endtime=TIME         until then
  -g, --gid, --group=LIST    of these groups
  -i, --nnodes=N[-M]         on so many nodes
  -I, --ncpus=N[-M]          on so many CPUs
  -j, --jobs=LIST            with these ids (17, 17_4, 17_[1-3], 17.batch)
  -k, --timelimit-min=TIME   with this time limit, or with -K at least this
  -K, --timelimit-max=TIME   with at most this time limit
      --name=LIST            with these names
  -N, --nodelist=HOSTS       on these nodes
  -q, --qos=LIST             of these qualities of service
  -r, --partition=LIST       in these partitions
  -R, --reason=LIST          that last waited for this
  -s, --state=LIST           in these states between -S and -E
  -S, --starttime=TIME       from then on; default: midnight, with -s now, with -j ever
  -u, --uid, --user=LIST     of these users
  -W, --wckeys=LIST          with these keys
  -x, --associations=LIST    of these associations
  -L, --allclusters          of all clusters (there is one)
  -M, --clusters=LIST        of these clusters
      --federation  --local  --whole-hetjob
                             taken, without effect
What to show:
      --array                one line for each array task
  -b, --brief                id, state and exit code
  -B, --batch-script         the script of the jobs named by -j
      --delimiter=TEXT       what stands between columns of -p and -P
      --env-vars             the environment of the jobs named by -j
      --expand-pattern       file names instead of the patterns in StdOut and the like
      --json[=LAYOUT]  --yaml[=LAYOUT]
                             everything, for programs ("list": which layouts there are)
  -l, --long                 many columns
  -n, --noheader             no header
      --noconvert            sizes in the unit they were recorded in
  -o, --format=LIST          these columns, each NAME[%[-]WIDTH]
  -p, --parsable             columns between |, one at the end too
  -P, --parsable2            columns between |
  -v, --verbose              more messages
  -T, --truncate             times cut to -S and -E
      --units=K|M|G|T|P      sizes in this unit
  -X, --allocations          jobs without their steps
Help:
  -e, --helpformat           the columns
      --helpreason           reasons for -R
      --helpstate            states for -s
  -h, --help  --usage        this, or less
  -V, --version              the version
Times: HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY], MM.DD[.YY] (with -HH:MM[:SS]),
YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon, fika, teatime,
now[{+|-}N[seconds|minutes|hours|days|weeks]].
"""
