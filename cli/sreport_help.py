"""sreport --help."""

HELP = """\
sreport [<OPTION>] [<COMMAND>]
    <OPTION>:
     -a, --all_clusters  all clusters that are kept in the database
     --federation        taken, without effect
     -h, --help          this text
     --local             this cluster (as without it)
     -M, --cluster=<..>  these clusters
     -n, --noheader      lines only
     -p, --parsable      '|' between the fields and at the end
     -P, --parsable2     '|' between the fields
     -Q, --quiet         errors only
     -t <time_format>    Seconds, Minutes, Hours, Percent, SecPer, MinPer, HourPer
     -T, --tres=<..>     report on these resources, or on ALL
     -v, --verbose       say more
     -V, --version       the version

    Without a <COMMAND>, commands are read from standard input, one a line:
     exit, quit          the end
     help                this text
     noheader            lines only
     parsable, parsable2, nonparsable
     quiet, verbose
     time <time_format>
     version
     !!                  the last command once more

    Reports:
     cluster      AccountUtilizationByUser, UserUtilizationByAccount,
                  UserUtilizationByWckey, Utilization, WCKeyUtilizationByUser
     job          SizesByAccount, SizesByAccountAndWckey, SizesByWckey
     reservation  Utilization
     user         TopUsage

    Options of all reports:
     All_Clusters, Clusters=<..>
     Start=<time>, End=<time>  whole hours; yesterday unless given
     Format=<fields>           NAME%WIDTH, %-WIDTH: left justified

     cluster      Accounts=<..>, Tree, Users=<..>, Wckeys=<..>
     job          Accounts=<..>, AcctAsParent, FlatView, GID=<..>, Grouping=<sizes>,
                  Jobs=<..>, Nodes=<..>, Partitions=<..>, PrintJobCount, Users=<..>,
                  Wckeys=<..>
     reservation  Names=<..>, Nodes=<..>
     user         Accounts=<..>, Group, TopCount=<number>, Users=<..>

    Times: HH:MM[:SS] [AM|PM], MMDD[YY], MM/DD[/YY], MM.DD[.YY], MM/DD[/YY]-HH:MM[:SS],
     YYYY-MM-DD[THH:MM[:SS]], now[{+|-}count[seconds|minutes|hours|days|weeks]]
"""
