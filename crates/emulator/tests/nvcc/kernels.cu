// Typical CUDA kernels for `tests/nvcc.rs`: CUB's warp and block algorithms, tiles of cooperative groups,
// early exits, block counters. Each takes `in`, `out` and the number of elements of `in`.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

namespace cg = cooperative_groups;

constexpr int BLOCK = 128;

// One sum per LANES threads.
template <int LANES>
__device__ void warp_reduce(const int *in, int *out, int n) {
    using Reduce = cub::WarpReduce<int, LANES>;
    __shared__ typename Reduce::TempStorage storage[BLOCK / LANES];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = Reduce(storage[threadIdx.x / LANES]).Sum(i < n ? in[i] : 0);
    if (threadIdx.x % LANES == 0) out[i / LANES] = sum;
}

extern "C" __global__ void warp_reduce_32(const int *in, int *out, int n) { warp_reduce<32>(in, out, n); }
extern "C" __global__ void warp_reduce_16(const int *in, int *out, int n) { warp_reduce<16>(in, out, n); }
extern "C" __global__ void warp_reduce_8(const int *in, int *out, int n) { warp_reduce<8>(in, out, n); }
// 12 is not a power of two, so CUB uses shared memory; only the first 12 lanes of each warp take part.
extern "C" __global__ void warp_reduce_12(const int *in, int *out, int n) {
    using Reduce = cub::WarpReduce<int, 12>;
    __shared__ typename Reduce::TempStorage storage[BLOCK / 32];
    int lane = threadIdx.x % 32, part = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, i = part * 12 + lane;
    if (lane < 12) {
        int sum = Reduce(storage[threadIdx.x / 32]).Sum(i < n ? in[i] : 0);
        if (lane == 0) out[part] = sum;
    }
}

// A running sum over each LANES threads.
template <int LANES>
__device__ void warp_scan(const int *in, int *out, int n) {
    using Scan = cub::WarpScan<int, LANES>;
    __shared__ typename Scan::TempStorage storage[BLOCK / LANES];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = 0;
    Scan(storage[threadIdx.x / LANES]).InclusiveSum(i < n ? in[i] : 0, sum);
    if (i < n) out[i] = sum;
}

extern "C" __global__ void warp_scan_32(const int *in, int *out, int n) { warp_scan<32>(in, out, n); }
extern "C" __global__ void warp_scan_16(const int *in, int *out, int n) { warp_scan<16>(in, out, n); }

// One sum per block.
template <cub::BlockReduceAlgorithm ALGORITHM>
__device__ void block_reduce(const int *in, int *out, int n) {
    using Reduce = cub::BlockReduce<int, BLOCK, ALGORITHM>;
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = Reduce(storage).Sum(i < n ? in[i] : 0);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void block_reduce_warps(const int *in, int *out, int n) {
    block_reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(in, out, n);
}
extern "C" __global__ void block_reduce_raking(const int *in, int *out, int n) {
    block_reduce<cub::BLOCK_REDUCE_RAKING>(in, out, n);
}

// A running sum over a block.
template <cub::BlockScanAlgorithm ALGORITHM>
__device__ void block_scan(const int *in, int *out, int n) {
    using Scan = cub::BlockScan<int, BLOCK, ALGORITHM>;
    __shared__ typename Scan::TempStorage storage;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = 0;
    Scan(storage).InclusiveSum(i < n ? in[i] : 0, sum);
    if (i < n) out[i] = sum;
}

extern "C" __global__ void block_scan_raking(const int *in, int *out, int n) {
    block_scan<cub::BLOCK_SCAN_RAKING>(in, out, n);
}
extern "C" __global__ void block_scan_warps(const int *in, int *out, int n) {
    block_scan<cub::BLOCK_SCAN_WARP_SCANS>(in, out, n);
}

// The elements of each block, sorted.
extern "C" __global__ void block_sort(const int *in, int *out, int n) {
    using Sort = cub::BlockRadixSort<int, BLOCK, 1>;
    __shared__ typename Sort::TempStorage storage;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int key[1] = {i < n ? in[i] : 0x7fffffff};
    Sort(storage).Sort(key);
    if (i < n) out[i] = key[0];
}

// The same by merges, which read an item too many and drop it.
extern "C" __global__ void block_merge_sort(const int *in, int *out, int n) {
    using Sort = cub::BlockMergeSort<int, BLOCK, 1>;
    __shared__ typename Sort::TempStorage storage;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int key[1] = {i < n ? in[i] : 0x7fffffff};
    Sort(storage).Sort(key, [](int a, int b) { return a < b; });
    if (i < n) out[i] = key[0];
}

// One sum per tile.
template <int LANES>
__device__ void tile(const int *in, int *out, int n) {
    auto tile = cg::tiled_partition<LANES>(cg::this_thread_block());
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = i < n ? in[i] : 0;
    for (int step = tile.size() / 2; step > 0; step /= 2) sum += tile.shfl_down(sum, step);
    tile.sync();
    if (tile.thread_rank() == 0) out[i / LANES] = sum;
}

extern "C" __global__ void tile_4(const int *in, int *out, int n) { tile<4>(in, out, n); }
extern "C" __global__ void tile_16(const int *in, int *out, int n) { tile<16>(in, out, n); }
extern "C" __global__ void tile_reduce_8(const int *in, int *out, int n) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = cg::reduce(tile, i < n ? in[i] : 0, cg::plus<int>());
    if (tile.thread_rank() == 0) out[i / 8] = sum;
}
// Tiles of several warps, which exchange by memory that is reserved for them.
extern "C" __global__ void tile_reduce_64(const int *in, int *out, int n) {
    auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = cg::reduce(tile, i < n ? in[i] : 0, cg::plus<int>());
    if (tile.thread_rank() == 0) out[i / 64] = sum;
}
extern "C" __global__ void tile_128(const int *in, int *out, int n) {
    auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    __shared__ int values[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    values[tile.thread_rank()] = i < n ? in[i] : 0;
    tile.sync();
    int sum = 0;
    for (int at = 0; at < 128; at++) sum += values[at];
    sum = tile.any(sum != 0) ? tile.shfl(sum, 77) : sum;
    if (tile.thread_rank() == 0) out[i / 128] = sum;
}
// For each element, the sum of the elements of its warp with the same parity.
extern "C" __global__ void partition(const int *in, int *out, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    int value = in[i];
    auto warp = cg::coalesced_threads();
    auto part = cg::labeled_partition(warp, value & 1);
    out[i] = cg::reduce(part, value, cg::plus<int>());
}

// Threads past the end exit before the barrier; each other thread copies the element of its block's first
// thread.
extern "C" __global__ void early_exit(const int *in, int *out, int n) {
    __shared__ int shared[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    shared[threadIdx.x] = in[i];
    __syncthreads();
    int first = shared[0];
    first += __shfl_xor_sync(0xffffffff, 0, 0);
    __syncwarp();
    out[i] = first;
}

// Like `early_exit`, but more threads exit in a loop.
extern "C" __global__ void early_exit_loop(const int *in, int *out, int n) {
    __shared__ int shared[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    int value = in[i];
    for (int step = 0; step < 4; step++) {
        shared[threadIdx.x] = value;
        __syncthreads();
        value += shared[0];
        __syncthreads();
        if (step == 2 && threadIdx.x % 5 == 3) {
            if (value == 0x12345678) out[0] = 0;
            return;
        }
    }
    out[i] = value;
}

__device__ unsigned count = 0;

// The sum of all elements: the last block adds the sums of all blocks and resets the counter. `out` has room
// for the sum, then for one sum per block.
extern "C" __global__ void last_block(const int *in, volatile int *out, int n) {
    using Reduce = cub::BlockReduce<int, BLOCK>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ bool last;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int sum = Reduce(storage).Sum(i < n ? in[i] : 0);
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&count, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        sum = 0;
        for (int block = threadIdx.x; block < gridDim.x; block += BLOCK) sum += out[1 + block];
        sum = Reduce(storage).Sum(sum);
        if (threadIdx.x == 0) {
            out[0] = sum;
            count = 0;
        }
    }
}

// All elements in reverse order, by a barrier of the grid; the launch is a cooperative one.
extern "C" __global__ void grid_sync(const int *in, int *out, int n) {
    auto grid = cg::this_grid();
    int i = grid.thread_rank(), last = grid.size() - 1;
    out[i] = i < n ? in[i] : 0;
    grid.sync();
    int value = out[last - i];
    grid.sync();
    out[i] = value;
}

// A flag in shared memory.
extern "C" __global__ void shared_flag(const int *in, int *out, int n) {
    __shared__ volatile int flag;
    __shared__ int value;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (threadIdx.x == 0) {
        value = in[i];
        __threadfence_block();
        flag = 1;
    } else if (threadIdx.x >= 32) {
        while (flag == 0) {}
        __threadfence_block();
        if (i < n) out[i] = value;
    }
}

// Adds all elements to `*out` by compare-and-swap loops, whose first read is plain.
extern "C" __global__ void swap_loop(const int *in, int *out, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    int old = *out, assumed;
    do {
        assumed = old;
        old = atomicCAS(out, assumed, assumed + in[i]);
    } while (old != assumed);
}

// Reverses the elements of the blocks in which any is above 40. Threads tell by storing one value.
extern "C" __global__ void reverse_if_any(const int *in, int *out, int n) {
    __shared__ int values[BLOCK];
    __shared__ int any;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    values[threadIdx.x] = i < n ? in[i] : 0;
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    if (values[threadIdx.x] > 40) any = 1;
    __syncthreads();
    out[i] = values[any ? BLOCK - 1 - threadIdx.x : threadIdx.x];
}
