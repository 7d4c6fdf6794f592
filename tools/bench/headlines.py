"""Lists the figures that docs/figures.md shows, each as (bench, title, text). kept.json also has all other figures."""

HEADLINES = (
    ("emit", "start-up", "import opspan, more than that"),
    ("emit", "transformer step", "emit_nvtx, no tool listening, against not emitting"),
    ("emit", "transformer step", "NVTX, null tool, against torch's emit_nvtx"),
    ("emit", "transformer step", "NVTX with shapes, the same"),
    ("emit", "transformer step", "ITT, null tool, against torch's emit_itt"),
    ("emit", "transformer step", "record, above the empty observer, of it"),
    ("emit", "transformer step", "our NVTX collector, above the empty observer, of it"),
    ("profiler", "transformer step", "plain"),
    ("profiler", "transformer step", "all"),
    ("read", "3,000,000 rows", "SQLite -> nested, attributed, linked -> key_averages().table()"),
    ("read", "3,000,000 rows", "peak memory of the process"),
    ("read", "3,000,000 rows", "opspan table on a small file, from the shell"),
    ("read", "other sources", "VTune, 300,000 tasks with metadata"),
    ("read", "other sources", "torch.profiler, 2,340,000 events and arrows"),
    ("answers", "3,000,000 rows", "all analyses together, of loading"),
    ("page", "the page of 3,000,000 rows", "to write it, of loading"),
    ("rolling", "a range of the sinks", "record(keep=...), of record()"),
    ("walk", "1,000,000 events", "loaded and walked, of torch's"),
)
