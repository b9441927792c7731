# The network as the core knows it: units (switches, or blocks and groups of blocks) above the nodes.
#
# Units are numbered by level: first the leaves (level 0) in the order of the file, then those above.
# A node is below one leaf at most.

cdef enum:
    T_CONTIGUOUS = 1
    T_SWITCH = 2
    T_BLOCK = 3
    MAX_LEVELS = 32
    MAX_UNITS = 200000

cdef struct Topo:
    int on
    int optional             # only requests that say so go by it
    int blocks               # units are blocks: what fits into a block lies in one
    int n_units
    int n_leaves
    int n_levels
    int widest               # nodes below the largest leaf
    int32_t size[MAX_LEVELS] # blocks: nodes that a unit of the level is there for; 0: any number
    int32_t lev[MAX_LEVELS + 1]   # units of level l: lev[l]..lev[l + 1]
    int32_t* leaf            # per node; -1: none
    int32_t* up              # per unit; -1: none
    int32_t* level           # per unit, rising
    int32_t* low             # per unit: its leaves are below[low..high)
    int32_t* high
    int32_t* below
    int32_t* first           # per leaf: its nodes are members[first..first of the next)
    int32_t* members
    int32_t* rank_low        # per unit: its nodes have ranks from here
    int32_t* rank_end        # to before here; others may have some of them too
    int64_t ranked           # the order (Cluster.orders) that they are of
    # one decision
    int64_t turn
    int64_t* loaded          # per leaf: the turn in which its candidates were looked for
    int32_t* start           # per leaf: where they are in Cluster.cand
    int32_t* count           # per leaf: how many
    int32_t* held            # per leaf: nodes of it that must be in the gang
    int32_t* own             # per unit: candidates, where the index does not say
    int64_t stamp
    int64_t* used            # per leaf: the last try that took nodes of it
    int32_t* head            # per number of nodes: the first leaf with so many
    int32_t* next            # per leaf
    int32_t* chosen          # leaves taken, in order
    int32_t* part            # and how many nodes of each
    int n_chosen
    int32_t* pick            # places in Cluster.cand
    Entry* sort              # 2 x (nodes + units)
