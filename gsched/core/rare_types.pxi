# Demands that few requests have: they stand behind one pointer of a request class, so that the
# others pay for a look at it.

cdef enum:
    MAX_KINDS = 8          # GPU types with counts of their own in one request
    MAX_DOMS = 16          # domains of cores in a node
    MAX_MAPS = 1024        # ways in which cores and GPUs of a node lie
    MAX_VARIANTS = 64      # sets of features that a request takes in turn

# A set of features that all nodes of an answer pass, with numbers of nodes that pass others.
cdef struct Variant:
    int filter
    int n_groups
    int32_t* count           # nodes of each group
    int32_t* first           # where its alternatives begin in alts; n_groups + 1 places
    uint64_t* alts           # x BIT_WORDS

# Where cores of a node lie: a domain is those of one socket that are near the same GPUs.
cdef struct DomMap:
    int n
    int n_sockets
    uint32_t every           # all domains
    uint32_t of_socket[MAX_DOMS]
    uint32_t near[MAX_GPUS]  # domains near each GPU; all where it is not known
    int16_t cores[MAX_DOMS]

cdef struct Rare:
    # GPUs of several types, each with its own count
    int n_kinds
    int32_t kind[MAX_KINDS]
    int32_t gpn[MAX_KINDS]
    int32_t gpt[MAX_KINDS]
    int32_t gtotal[MAX_KINDS]
    int32_t* deal            # [place in the answer][kind]: of gtotal
    # tasks by core and by GPU
    int per_core             # most tasks on a core; 0 any
    int per_gpu              # tasks of each GPU, with GPUs in all; 0 any
    # cores by socket
    int per_socket           # most tasks on a socket; 0 any
    int gpus_socket          # GPUs near each socket, of at least n_sockets; 0 any
    int n_sockets
    int bind                 # 1: cores near the GPUs only, 2: anywhere, 0: near them first
    # features
    int n_variants           # 0: those of the request alone
    Variant* variants
    Variant* live            # the one that is being tried
