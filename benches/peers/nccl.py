"""Times sums over all GPUs by PyTorch and NCCL, for `cargo bench --bench several`.

Each GPU has a process, which sums its elements; an all-reduce adds the sums, and each process reads the total.
Prints a JSON line per case: the median of 1,000 runs after 100 to warm up, or of 20 after 2 for the longest
input.

    python3 benches/peers/nccl.py
"""

import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    for n, times in [(1 << 10, 1000), (1 << 20, 1000), (1 << 31, 20)]:
        x = torch.rand(n, device="cuda") - 0.5
        us = []
        for _ in range(times + times // 10):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            total = x.sum()
            dist.all_reduce(total)
            total.item()
            us.append((time.perf_counter() - start) * 1e6)
        median = statistics.median(us[times // 10 :])
        if rank == 0:
            gbps = round(4 * n * ranks / median / 1e3, 1)
            case = {"impl": "torch-nccl", "op": "sum", "dtype": "f32", "n": n * ranks, "us": round(median, 2), "gbps": gbps}
            print(json.dumps(case), flush=True)
        del x
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
