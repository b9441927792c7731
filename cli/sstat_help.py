"""What `sstat --help` and `--usage` print."""

USAGE = "Usage: sstat [options] -j <job(.stepid)>\n\tUse --help for help\n"

HELP = """\
sstat [OPTIONS] -j JOB[.STEP],...
What steps use that run now. Without a step: the first one that srun has made.
  -a, --allsteps          all steps of the jobs, the script too
  -e, --helpformat        the names of all fields
  -i, --pidformat         the processes of each step
  -j, --jobs=LIST         jobs (17, 17_4) or steps (17.0, 17.batch)
  -n, --noheader          no heading
      --noconvert         sizes in bytes
  -o, --format=LIST       fields, each with a width behind a % (jobid%20,maxrss)
  -p, --parsable          fields end with |
  -P, --parsable2         fields are separated by |
  -v, --verbose           no effect
      --usage             a short description
  -V, --version           the release
  -h, --help              this
"""
