"""What `sacctmgr --help` prints."""

HELP = """\
sacctmgr [OPTIONS] [COMMAND]
Without a command, commands are read from standard input.
Options:
  -i, --immediate           make changes without asking
  -n, --noheader            no header
  -p, --parsable            fields between bars, one at the end too
  -P, --parsable2           fields between bars
  -Q, --quiet               errors only
  -r, --readonly            nothing is changed
  -s, --associations        show/list: with associations
      --json  --yaml        show/list: JSON, YAML
  -v, --verbose             more messages
  -V, --version             the version
  -h, --help                this
  -o, --oneliner            taken, without effect
Show (list, show) ENTITY [CONDITIONS] [format=FIELD[%WIDTH],...]:
  account                   names= description= organization= parent= withassoc withcoordinators
  association               accounts= users= partitions= ids= parent= tree onlydefaults
                            withsubaccounts withrawqos wolimits wopinfo woplimits
  user                      names= adminlevel= defaultaccount= withassoc withcoordinators
  qos                       names= ids= description= preemptmode=
  wckey                     names= users= ids=
  tres                      names= ids= type=
  cluster                   names= withfed wolimits
  problem                   accounts without users, users without associations or uid
  transaction               accounts= action= actor= users= start= end=
  event                     nodes= start= end= states= reason= all_time
  reservation               names= nodes= start= end=
  runawayjobs               rows without an end; they can be mended
  configuration  federation  resource  stats
Change:
  add account NAMES         parent= description= organization= and limits
  add user NAMES            accounts= partitions= defaultaccount= adminlevel= wckeys= and limits
  add qos NAMES             priority= flags= preempt= preemptmode= gracetime= and limits
  add coordinator           names= accounts=
  modify ENTITY where CONDITIONS set SETTINGS
                            account, user, qos, cluster; -1 takes a limit away; rawusage=0
  delete ENTITY where CONDITIONS
                            account, user, qos, coordinator
Limits of accounts, users and cluster:
  fairshare= priority= qos=|+=|-= defaultqos= comment=
  grpjobs= grpjobsaccrue= grpsubmitjobs= grptres= grptresmins= grptresrunmins= grpwall=
  maxjobs= maxjobsaccrue= maxsubmitjobs= maxtres= maxtrespernode= maxtresmins= maxtresrunmins=
  maxwall= minpriothreshold=
  grptresguarantee= grptresborrow= grptreslend= guaranteeunit=node|island|gpu (accounts)
Limits of a QOS, besides these:
  maxjobsperuser= maxjobsperaccount= maxsubmitjobsperuser= maxsubmitjobsperaccount=
  maxtresperuser= maxtresperaccount= maxtresrunminsperuser= maxtresrunminsperaccount= mintres=
  usagefactor= usagethreshold= limitfactor= preemptexempttime=
Jobs that are over:
  modify job where jobid= users= wckeys= starttime= endtime= set
                            comment= derivedexitcode= admincomment= systemcomment= newwckey=
Files:
  dump CLUSTER [file=NAME]  accounts, users and limits as a file
  load NAME [clean]         make what a file says
  archive dump              take what is old out: directory= jobs steps events purgejobafter= ...
  archive load FILE         bring it back
Others: ping  reconfigure  version  exit  !! (the last command again)
Keywords, entities and options may be cut short and in any case.
"""
