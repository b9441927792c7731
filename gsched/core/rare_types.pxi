# Demands that few requests have: they stand behind one pointer of a request class, so that the
# others pay for a look at it.

cdef enum:
    MAX_KINDS = 8          # GPU types with counts of their own in one request
    MAX_VARIANTS = 64      # sets of features that a request takes in turn

# A set of features that all nodes of an answer pass, with numbers of nodes that pass others.
cdef struct Variant:
    int filter
    int n_groups
    int32_t* count           # nodes of each group
    int32_t* first           # where its alternatives begin in alts; n_groups + 1 places
    uint64_t* alts           # x BIT_WORDS

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
    # features
    int n_variants           # 0: those of the request alone
    Variant* variants
    Variant* live            # the one that is being tried
