"""Times Python's exact sum, math.fsum, of `array`s of f64 in host memory, for `cargo bench --bench exact`.

Run: python3 fsum.py
Prints a JSON line per case: uniform and normal deviates, and magnitudes of 2^+-60. Times are medians of 5
calls.
"""
import array
import json
import math
import random
import time

random.seed(1)
kinds = {
    "uniform": lambda: random.uniform(-1, 1),
    "normal": lambda: random.gauss(0, 1),
    "spread": lambda: random.choice((-1, 1)) * random.uniform(1, 2) * 2.0 ** random.randint(-60, 60),
}
for kind, make in kinds.items():
    for n in (10_000, 10_000_000):
        x = array.array("d", (make() for _ in range(n)))
        us = []
        for _ in range(5):
            start = time.perf_counter_ns()
            math.fsum(x)
            us.append((time.perf_counter_ns() - start) / 1e3)
        us = sorted(us)[2]
        print(json.dumps({"impl": "fsum", "op": "host_exact_" + kind, "dtype": "f64", "n": n, "segment": 0, "us": round(us, 3),
                          "gbps": round(n * 8 / us / 1e3, 1)}, separators=(",", ":")), flush=True)
