package dataset

// MemoryLimit is the soft limit on Go's memory, in bytes, under which a shard of 200 MB is prepared. What is alive is less, even if the whole
// shard (470 MB of cells) is one row group of one page a column; without a limit the garbage beside it may be as large.
const MemoryLimit = 700 << 20
