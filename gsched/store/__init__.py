"""LMDB: the durable records (`Store`), the disposable view (`ViewStore`), and their readers."""

from gsched.store.errors import CommitFailed, NotLocal, StateLocked, StateTooNew, StoreError
from gsched.store.main import Store, StoreReader, read_blob
from gsched.store.ranks import RANK_PAGE, ranks
from gsched.store.ranks import TABLE as RANK_TABLE
from gsched.store.versioned import Snapshot, number_key
from gsched.store.view import ViewReader, ViewStore
from gsched.store.words import LIST as WORD_LIST
from gsched.store.words import PAGE, verdicts

__all__ = [
    "PAGE",
    "RANK_PAGE",
    "RANK_TABLE",
    "WORD_LIST",
    "CommitFailed",
    "NotLocal",
    "Snapshot",
    "StateLocked",
    "StateTooNew",
    "Store",
    "StoreError",
    "StoreReader",
    "ViewReader",
    "ViewStore",
    "number_key",
    "ranks",
    "read_blob",
    "verdicts",
]
