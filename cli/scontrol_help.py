"""What `scontrol --help` prints."""

HELP = """\
scontrol [OPTIONS] [COMMAND]
Without a command, commands are read from standard input.
Options:
  -a, --all                 hidden partitions too (--hide: not)
  -d, --details             more of each job and node
  -F, --future              nodes configured for later too
      --json[=LAYOUT]  --yaml[=LAYOUT]
                            show: everything, for programs ("list": which layouts there are)
  -M, --clusters=NAME       of this cluster
  -o, --oneliner            one line for each record
  -Q, --quiet               errors only
  -u, --uid=USER            act for another user
  -v, --verbose             more messages
  -V, --version             the version
  -h, --help                this
      --federation  --local  --sibling
                            taken, without effect
Show:
  show job [ID]             jobs
  show node [HOSTS]         nodes
  show partition [NAME]     partitions
  show step [ID[.STEP]]     steps that run
  show assoc_mgr [flags=users,assoc,qos] [users=] [accounts=] [qos=]
                            limits, and what is in use of them
  show config [KEY]         the configuration in force
  show hostnames [HOSTS]    a host list, one name a line
  show hostlist NAMES|FILE  names as a host list (hostlistsorted: in order)
  completing                jobs whose nodes are not free yet
  listpids [ID[.STEP]] [NODE]
                            processes of steps on this host
  getaddrs HOSTS            addresses of node daemons
  ping                      whether the controller answers
  wait_job ID               waits until a job's nodes are ready
  write batch_script ID [FILE|-]
Change:
  update JobId=ID KEY=VALUE ...
  update PartitionName=NAME State=UP|DOWN|DRAIN|INACTIVE KEY=VALUE ...
  create PartitionName=NAME Nodes=HOSTS KEY=VALUE ... (delete PartitionName=NAME)
  update NodeName=HOSTS State=drain|resume|down|idle|undrain|fail Reason=TEXT
  hold LIST                 keep waiting jobs back (uhold: so that their owner may release them)
  release LIST              let them go
  requeue LIST              run jobs again (requeuehold: and keep them back)
  suspend LIST              stop their processes (resume LIST: let them go on)
  notify ID MESSAGE         write a line into a job's error file
  top LIST                  move jobs before the others of their owner
  reconfigure               read the configuration again
  shutdown                  end the daemons
LIST is ids separated by commas; keywords may be cut short and in any case.
"""
