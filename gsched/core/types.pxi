# What a cluster, its requests, queue and plans are in memory.
#
# Bitmaps are over ranks (nodes ordered by weight, then number), so the lowest bit of a bitmap is
# the node that Slurm's weights prefer. Arrays are by node number.

cdef enum:
    EXTRAS = 12            # kinds of counted resources
    NOBODY = -1
    SLOT_WORDS = 16        # of a bitmap of the cores of a node that jobs share

cdef struct State:
    int32_t* cpus            # free CPUs; negative after a node shrank under its jobs
    int64_t* mem             # free MB; likewise
    uint64_t* gpus           # free healthy GPUs
    uint64_t* frac           # GPUs of which shares are taken
    uint16_t* took           # [node * MAX_GPUS + GPU] parts taken; NULL: no shares are asked for
    int32_t* jobs            # shares on the node
    int32_t* extra           # [node * EXTRAS + kind] free counted resources; NULL: there are none
    int32_t* owner           # whose jobs alone may be on the node (Share.own); 0: anybody's;
                             # NOBODY: different ones' that come after each other
    uint8_t* usable
    uint8_t* nfree           # bucket of the node: free GPUs; 255: in none
    uint8_t* nisland         #                     largest free island
    uint64_t** bucket        # [nfree * GRID + nisland] -> bitmap over ranks, then its summary
    int32_t* count           # nodes in each bucket
    uint64_t filled[GRID]    # per nfree: bit (nisland - 1, or 0) set where the bucket has nodes
    int32_t* room            # [k][unit of the topology] usable nodes with k or more free GPUs
    int told                 # CPUs and memory are those that the request in hand may have
    int failed               # an allocation of memory failed

# Cores of a node that jobs of one partition hold together, see lots.pxi.
cdef struct Lot:
    int32_t node
    int32_t lot
    int32_t next             # another one of the node; -1 none
    int32_t n                # places in the arrays
    uint16_t* held           # jobs on each core
    uint16_t* then           # in the scratch state
    uint8_t* dom             # domain of each core in use

# One share of an allocation (a node's part) or of an answer.
cdef struct Share:
    int32_t node
    int32_t cpus
    int32_t tasks
    int32_t gpus
    int64_t mem
    uint64_t mask
    int32_t milli            # > 0: so many parts of the one GPU of mask; 0: all of the mask
    int32_t own              # > 0: nobody but this owner has jobs on the node meanwhile
    int32_t cut              # the cores are chosen
    int32_t more             # it takes counted resources
    int32_t lot              # > 0: its cores are shared with other jobs of this lot, see lots.pxi
    int32_t extra[EXTRAS]    # how many of each kind
    int16_t cores[MAX_DOMS]  # by domain, where its node has several

cdef struct Piece:
    Share share
    int32_t next             # the next share of the same allocation; -1 the last
    int32_t owner            # allocation; -1: this place is free
    uint64_t* slots          # its cores in its lot, SLOT_WORDS words; NULL: it has them for itself
    int64_t late             # others hold it after the allocation until then; 0: nobody

cdef struct Alloc:
    int64_t key
    int64_t end              # FOREVER: no limit
    int32_t first
    int32_t live
    int32_t resv             # the reservation it runs in; -1 none

# Nodes that pass a request's partition, features and exclusions.
cdef struct Filter:
    int partition            # -1: any
    int n_alts               # feature alternatives; 0: any node
    uint64_t* alts           # n_alts x BIT_WORDS: all bits of one alternative must be there
    int n_exclude
    int32_t* exclude
    int sockets              # at least so many, with so many cores, with so many threads; 0 any
    int cores
    int threads
    uint64_t* bits           # over ranks
    int64_t version          # of the static data that bits was made from
    int refs

# When each node could begin to hold a part of a request class, see firsts.pxi.
cdef struct Firsts:
    int64_t* at
    int64_t* seen            # stamp of the node's time that this was made for
    int32_t* heap            # nodes, the earliest on top
    int32_t* place           # of each node in it; -1: it is not
    int n
    int64_t pass_id
    int64_t known            # entries of Book.grown that it has taken up

# The same for all classes that need so many GPUs and CPUs of a node: a lower bound to begin with.
cdef struct Base:
    int filter
    int64_t gpus
    int64_t cpus
    Firsts firsts            # without seen

# A request class.
cdef struct Req:
    int filter
    int refs                 # times handed out; 0: this place is free
    int queued
    int64_t serial           # no other class of this core, or of a copy of it, has it
    int gpu                  # wants GPUs
    int min_nodes
    int max_nodes            # 0: no upper bound, as few as hold it
    int cap_nodes            # 0: none; a bound that is not striven for
    int ntasks               # 0: tpn (or one) on each node
    int cpt
    int mincpus              # at least 1
    int tpn                  # most tasks per node; 0 any
    int tpc                  # usable threads per core; 0 all
    int cpg
    int gpn
    int gpt
    int gtotal
    int gtype                # -1 any
    int excl
    int alone                # nobody else may be there: excl, but for cores that are shared anyway
    int lot                  # > 0: cores may be held with other jobs of this lot
    int most                 # up to so many jobs on a core
    int level                # scratch: cores that fewer jobs than this hold may be joined
    uint32_t caps            # kinds of counted resources of which it takes as many as CPUs
    int keep                 # it leaves alone what nodes keep for their idle GPUs, where it can
    int keeps                # 1 + how often that is halved so that the empty cluster holds it; 0: nothing
    int odd                  # any of lot, caps and keep
    int more                 # it wants counted resources of each node
    int32_t extra[EXTRAS]    # how many of each kind
    int own                  # > 0: on nodes without jobs of anybody but this owner
    int overcommit
    int island
    int tmin                 # tasks that a node must hold to count
    int64_t mem_node         # -1 not given, 0 all
    int64_t mem_cpu          # 0 not given
    int64_t mem_gpu          # 0 not given
    int milli                # parts of one GPU; 0: whole GPUs
    int kind                 # of these parts; 0: thousandths
    int one_shared           # only one GPU of a node is to be in parts of this kind
    int policy               # how nodes are ranked
    int switches             # most leaves of the topology; 0: any number
    int segment              # > 0: nodes in groups of so many, each below one unit of the topology
    int contiguous           # nodes that follow each other by number
    int spread               # as many nodes as there may be, wherever they are
    int few                  # of a range of node counts the smallest that does
    int loose                # while it is looked at what would be without demands on the topology
    int resv                 # its reservation; -1 none
    int n_must
    int32_t* must
    Rare* rare               # NULL: none of the rare demands
    # memory within a pass
    int64_t pass_id
    int64_t refused_from     # refused for this duration and longer
    int refused_by_plan
    int refused_by_window
    int64_t refused_len      # how long the job was for which the last two were found
    int32_t refused_at       # number of starts when that was found
    int64_t refused_freed    # book.freed when that was found
    int64_t refused_went     # gpus_went when that was found
    # answers that hold until nodes change
    int64_t possible_version
    int possible
    int64_t ever_version
    int ever
    # scores of nodes, see policy.pxi
    int64_t* score
    int64_t* seen            # stamp of the node that the score was made for
    int64_t score_version
    # first times of nodes and the place in the skyline, see plan.pxi
    Firsts firsts
    int64_t plan_pass
    int64_t plan_at[64]      # by the length in binary places: the latest start of the pass ...
    int64_t plan_len[64]     # ... and how long that job is
    int64_t sky_pass
    int64_t sky_slots
    int64_t sky_at

# What a reservation leaves on a node for jobs that last beyond its time.
cdef struct Con:
    int64_t at
    int64_t mem
    int32_t node
    int32_t cpus
    int32_t gpus
    int32_t next
    int32_t head
    int32_t strict           # 1: the very GPUs of mask are kept, not only their number; 2: parts of it
    int32_t room             # strict 2: the parts of that GPU that are left at that time
    int32_t kind             # and their kind
    int32_t domain           # whose jobs draw on the same resources, see windows.pxi
    int32_t lot              # of the planned job
    int32_t same             # CPUs left for jobs of that lot
    int32_t extra[EXTRAS]    # counted resources that are left at that time
    uint64_t mask
    uint64_t free            # GPUs wholly free at that time, but for shares started or kept since

# A blocked job with a reservation.
cdef struct Head:
    int64_t key
    int64_t at               # -1: no time found
    int64_t until
    int32_t req
    int32_t first            # its shares in Cluster.planned
    int32_t n
    int32_t fresh            # made by the last pass

# An advance reservation, and what it keeps on each of its nodes; see windows.pxi.
cdef struct Resv:
    int live
    int firm                 # jobs of other reservations keep out too
    int flex                 # its jobs may run elsewhere and at other times as well
    int headed               # the pass has met its first blocked job
    int always               # it is in force at all times
    int n_spans
    int64_t* start           # times at which it is in force, in order
    int64_t* end
    int n_shares
    Share* shares            # cpus -1: the whole node
    uint64_t* bits           # its nodes, over ranks; NULL: not asked for yet
    int64_t bits_version     # of the static data that bits was made from

cdef struct Window:
    int32_t resv
    int32_t node
    int32_t next             # another one of the node; -1 none
    int32_t cpus             # all of them of a whole node
    int32_t whole
    int32_t used             # CPUs that its own jobs hold
    int32_t then             # the same in the scratch state
    int32_t seg              # scratch: where the walk through its time has come to
    uint64_t mask            # GPUs
    int64_t mem              # MB; 0: memory is everybody's

cdef enum:
    KEEPS = 4                # most that Req.keeps is: an eighth

cdef enum:
    W_OFF = 0                # windows are not asked for
    W_PLACES = 1             # jobs of a reservation keep to its resources, no time is asked for
    W_TIMED = 2              # and nobody runs into another's window

cdef struct Entry:
    int64_t priority
    int64_t order
    int64_t key
    int32_t slot

# The conservative plan, see plan.pxi.
cdef enum:
    OWNED = 1 << 20        # CPUs more than a node has: who may have it for himself leaves none there
    SLOTS = 2048           # of a skyline, at most
    FORWARD = 1            # reservations of the last pass may only move forward
    HOLD = 2               # ... stay as they are
    QUICK = 3              # ... stand, but their jobs start before if that delays no other
    BASES = 32             # heaps that classes begin with
    TRIES = 200            # events that a request is tried at whose parts alone would fit

cdef struct Seg:
    int64_t at
    int64_t mem
    uint64_t gpus
    uint64_t kept            # GPUs of planned jobs
    uint64_t back            # those of them that are free without these jobs
    int32_t cpus
    int32_t jobs
    int32_t planned          # those of them that do not run yet
    int32_t next             # -1: the last one
    uint64_t frac            # GPUs of which shares are taken
    int32_t top              # CPUs for one more job of the node's lot, and the room of all of them
    int32_t room             #     together, in CPUs x jobs

# GPUs and CPUs of a partition over time.
cdef struct Sky:
    int made
    int32_t* gpus
    int32_t* cpus

cdef struct Book:
    int on                   # the pass plans for all
    int64_t exact            # so many jobs exactly
    int64_t step             # ends are rounded up to multiples of it, from now on
    int64_t window           # nothing is planned to start later than so long from now
    int64_t min_priority     # jobs below it get no reservation
    int tier_bits            # > 0: only so many low bits of a priority count there
    int64_t per_user         # reservations, 0: any number
    int64_t per_partition
    int64_t now
    int keep                 # FORWARD, HOLD, QUICK, or 0: reservations are made anew
    Head* old                # them
    int64_t old_cap
    int n_old
    Share* shares            # and what they keep
    int64_t shares_cap
    int64_t n_shares
    Seg* segs
    int64_t segs_cap
    int32_t n_segs
    int more                 # there are counted resources
    int32_t* extra           # [segment * EXTRAS + kind] of them free
    int64_t extra_cap
    int shares_on            # there are shares of GPUs
    uint16_t* took           # [segment * MAX_GPUS + GPU] parts taken
    int64_t took_cap
    int32_t* home            # per node: the lot whose room its line knows; NULL: there are no lots
    int64_t lines            # nodes, and behind them windows
    int32_t* head            # per node, and per window for those that run in it
    int64_t* stamp           # likewise: changes with its segments
    int64_t clock
    int64_t* at              # scratch, per node
    int32_t* list            # likewise
    uint64_t* early          # likewise, a bitmap over ranks
    Base* bases              # BASES of them
    int n_bases              # made in this pass
    int32_t* grown           # nodes whose room has grown during the pass
    int64_t grown_cap
    int64_t n_grown
    uint8_t* any             # per node: something is planned on it
    int n_slots
    int64_t slot             # seconds
    Sky* sky                 # per partition bit + 1
    int busy                 # reservations go to nodes in use first
    int64_t per_pair         # reservations of a user in a partition, 0: any number
    int64_t per_array        # of tasks of an array, -1: any number
    int64_t min_age          # seconds that a job must have been ready before it gets one
    int per_unit             # no more of a unit than may start of it
    int64_t depth            # jobs of a partition that are looked at, 0: any number
    int64_t freed            # jobs that started before their reservation, in this pass
    int replans              # reservations made by a quick pass
    int closed               # nothing may start any more in this pass
    Map tally                # reservations of pairs, arrays and units in this pass
    int32_t* users           # reservations of each user in this pass
    int64_t users_cap
    int32_t parts[MAX_BITS + 1]
    int32_t looked[MAX_BITS + 1]   # jobs of each partition tested
    int64_t n_exact

# Limits, see limits.pxi.
cdef struct Bin:
    int64_t left
    int64_t ahead            # of what reservations of pass pass_id would take
    int64_t pass_id
    int32_t fixed            # starts take nothing
    int32_t* jobs            # of it on each node; NULL: nodes are not counted

cdef struct Item:
    int64_t amount
    int64_t spare            # of the bin for this job alone, beside what is left for all
    double factor
    int32_t bin
    int16_t what
    int16_t timed

cdef struct Chain:
    Item* items
    int n
    int bill
    int64_t floor            # priority below which it gets no reservation
    double weight[4]         # of CPUs, memory, nodes and GPUs
    double gres
    double most
    double rest

# What is added here or above: copy.pxi copies it (a pointer forgotten there is freed twice).
cdef struct Cluster:
    int n
    int words                # of a bitmap over nodes
    int sums                 # words of its summary
    # static, per node
    int32_t* cls
    int32_t* layout
    int32_t* cpus
    int32_t* threads
    int32_t* sockets
    int32_t* per_socket      # cores
    int32_t* dmap            # which of maps; 0: one domain
    int32_t* kind            # the same where all that set_node() says but weight and GPUs' health
                             # is the same; -1: not told
    DomMap* maps
    int n_maps
    int16_t* dom_used        # [node * MAX_DOMS + domain] cores in use; NULL: no node has several
    int near_now             # `then` is of now: cores by domain are known
    int64_t* mem
    int64_t* weight
    uint64_t* all            # its GPUs
    uint64_t* ok             # the healthy ones
    uint64_t* used           # allocated
    int32_t* extra           # [node * EXTRAS + kind] counted resources; NULL: there are none
    uint16_t* pieces_of      # [node * MAX_GPUS + GPU] parts of a GPU, and their kind << KIND_AT; NULL:
                             # thousandths everywhere
    int32_t* keep_cpus       # what non-GPU requests leave on a node for each idle GPU; NULL: nothing
    int64_t* keep_mem
    Lot* lots
    int64_t lots_cap
    int n_lots
    int32_t* lot_head        # per node; -1 none; NULL while there are no lots
    int32_t lot_most[MAX_BITS + 1]   # jobs on a core, of each lot that was asked for
    int shrunk               # jobs may hold more parts of a GPU than it has by now
    uint64_t* parts          # n x BIT_WORDS
    uint64_t* feats
    int32_t* rank
    int32_t* node_of         # rank -> node
    int order_dirty          # ranks, and the index, must be made anew
    int64_t orders           # how often they were
    int64_t version          # of the static data
    int64_t avail_version    # of it, of usable and of ok
    int64_t* stamp           # changes whenever the node does
    int64_t clock            # the last stamp given
    int64_t scored           # bytes of all scores that are kept
    Work work                # what jobs usually ask for
    Topo topo                # switches or blocks
    int64_t sizes_version    # of the static data that the next two were made from
    int64_t most_cpus        # of a node
    int64_t most_gpus
    # classes and layouts
    Links* links
    int n_links
    uint64_t* layouts        # n_layouts x MAX_TYPES
    uint8_t* mixed           # more than one type
    int n_layouts
    # states
    State now
    State then               # scratch: a future, or an empty cluster
    int64_t then_is          # > 0: then is the empty cluster of this static version; < 0: what
                             # can be used of it, of this avail_version
    int32_t scope            # the reservation whose nodes alone `then` is about; -1: all nodes
    int32_t* near            # shares of jobs on these nodes
    int64_t near_cap
    int n_near
    # allocations
    Piece* pieces
    int64_t pieces_cap
    int32_t pieces_used
    int32_t piece_free       # list of free places through next
    int32_t pieces_live
    Alloc* allocs
    int64_t allocs_cap
    int32_t allocs_used
    int32_t alloc_free       # list of free places through first
    Map by_key
    # requests
    Filter* filters
    int64_t filters_cap
    int n_filters
    Req* reqs
    int64_t reqs_cap
    int n_reqs
    int64_t req_serial       # the last one given
    # the answer of the last placement
    Share* out
    int n_out
    int cut                  # a candidate was turned away by a reservation
    # scratch
    int32_t* cand
    int32_t* cand_t
    int32_t* cand_g
    int64_t* cand_s
    uint8_t* mark
    # the plan
    int32_t* con_head        # per node; -1 none
    Con* cons
    int64_t cons_cap
    int32_t n_cons
    Head* heads
    int64_t heads_cap
    int n_heads
    Share* planned
    int64_t planned_cap
    int64_t n_planned
    uint8_t headed[MAX_BITS + 1]
    int in_order             # nobody overtakes the first blocked job of his partition
    Book book
    # advance reservations
    Resv* resvs
    int64_t resvs_cap
    int n_resvs
    Window* windows
    int64_t windows_cap
    int n_windows
    int32_t* win_head        # per node; -1 none; NULL while there is no window
    int w_on                 # W_OFF, W_PLACES or W_TIMED
    int64_t w_at             # the time that a placement is for
    int64_t w_until
    int w_cut                # a window has left a candidate less than there is
    int64_t* times
    int64_t times_cap
    # the queue as columns
    int64_t* q_key
    int64_t* q_priority
    int64_t* q_order
    int64_t* q_limit
    int64_t* q_ready
    int64_t* q_array         # its array; -1: none
    int64_t* q_since         # since when it waits, for min_age
    int64_t* q_at            # when it will start, as far as a plan says; 0: not known
    int32_t* q_user
    int32_t* q_old           # its reservation of the last pass in book.old; -1: none; -2 - it: lost
    int32_t* q_req
    int32_t* q_group
    int32_t* q_unit
    int32_t* q_chain         # the limits that it is under; -1: none
    int32_t* q_bin           # V_LIMIT: the one that is in the way
    uint8_t* q_held
    uint8_t* q_verdict
    uint8_t* q_live          # 1 in the queue, 0 not
    uint8_t* q_moved         # 1: its entry in sorted is not valid
    int64_t q_cap
    int32_t q_used
    int32_t* q_free          # places free for use
    int64_t q_free_cap
    int32_t q_n_free
    int32_t* q_grave         # places freed since the last merge: sorted may still name them
    int64_t q_grave_cap
    int32_t q_n_grave
    int32_t* q_fresh         # added or moved since the last merge
    int64_t q_fresh_cap
    int32_t q_n_fresh
    Entry* sorted
    int64_t sorted_cap
    int32_t n_sorted
    Entry* spare
    int64_t spare_cap
    Map q_by_key
    Bin* bins
    int64_t bins_cap
    int n_bins
    Chain* chains
    int64_t chains_cap
    int n_chains
    int64_t* group_left
    int64_t groups_cap
    int n_groups
    int64_t pass_id
    int64_t* started         # keys started by the pass
    int64_t started_cap
    int32_t n_started
    int64_t gpus_went        # jobs with GPUs that started in the pass
    int32_t* changed         # slots whose verdict changed
    int64_t changed_cap
    int32_t n_changed
    int64_t tested
    int64_t placed           # placements really computed
