"""Suite `search`: measures the search itself, its programs, its time, its spread and its soundness."""

from luminal.bench.measure import Measurement

MEASUREMENTS = {
    "attention": Measurement("benchmarks.search.attention", by_threads=True),
    "decode": Measurement("benchmarks.search.decode", by_threads=True),
    "memory": Measurement("benchmarks.search.memory"),
    "saturation": Measurement("benchmarks.search.saturation"),
    "compile": Measurement("benchmarks.search.compile"),
    "searched": Measurement("benchmarks.search.searched"),
    "spread": Measurement("benchmarks.search.spread"),
    "soundness": Measurement("benchmarks.search.soundness"),
}
