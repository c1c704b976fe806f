"""Sessions in memory: loading, readers, group commit, history, branches, compaction."""
