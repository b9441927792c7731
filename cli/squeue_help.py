"""What `squeue --help` and `--usage` print."""

USAGE = """\
Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]
              [-n name] [-o format] [--only-job-state] [-p partitions]
              [--qos qos] [--reservation reservation] [--sort fields] [--start]
              [--step step_id] [-t states] [-u user_name] [--usage]
              [-L licenses] [-w nodes] [--federation] [--local] [--sibling]
              [--expand-patterns] [--json[=layout]] [--yaml[=layout]]
              [--running-over=time] [--running-under=time] [-ahjlrsv]
"""

HELP = """\
Usage: squeue [OPTIONS]
Which jobs (lists are separated by commas):
  -A, --account=LIST        of these accounts
  -j, --jobs=LIST           with these ids (17, 17_4, 17_[1-3])
  -L, --licenses=LIST       that want these licences
      --me                  of the caller
  -n, --name=LIST           with these names
  -p, --partition=LIST      in these partitions
  -q, --qos=LIST            of these qualities of service
  -R, --reservation=LIST    in these reservations
      --running-over=TIME   that have run longer
      --running-under=TIME  that have run less long
  -s, --steps               the steps of running jobs
      --start               waiting jobs, with their expected start
  -t, --states=LIST         in these states; default: not ended; "all": every one known
  -u, --user=LIST           of these users
  -w, --nodelist=HOSTS      on these nodes
What to show:
  -a, --all                 hidden partitions too
  -h, --noheader            no header
  -i, --iterate=SECONDS     again and again
      --json[=LAYOUT]  --yaml[=LAYOUT]
                            everything, for programs ("list": which layouts there are)
  -l, --long                more columns
  -M, --clusters=LIST       clusters to ask
      --noconvert           sizes in megabytes
  -o, --format=FORMAT       columns by letter: %[[.]size]type[suffix]
  -O, --Format=FORMAT       columns by name: type[:[.][size][suffix]],...
  -r, --array               one line for each array task
  -S, --sort=LIST           order, by letters of -o with + or - before them
      --expand-patterns  --federation  --hide  --local  --only-job-state  --sibling
                            taken, without effect
  -v, --verbose             more messages
  -V, --version             the version
Help:
      --help  --usage       this, or less
      --helpformat          the letters for -o
      --helpFormat          the names for -O
      --helpstate           the states for -t
"""
