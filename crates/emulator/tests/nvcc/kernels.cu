// Typical CUDA kernels for `tests/nvcc.rs`: CUB's warp and block algorithms, tiles of cooperative groups,
// early exits, block counters, barriers and pipelines of libcu++, function pointers, matrix products. Each
// takes `in`, `out` and the number of elements of `in`.

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

namespace cg = cooperative_groups;

constexpr int BLOCK = 128;
using barrier = cuda::barrier<cuda::thread_scope_block>;
// Barriers and pipelines in shared memory are made by one thread.
#pragma nv_diag_suppress static_var_with_dynamic_init

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

// Four times, each thread adds the value of the next one.
extern "C" __global__ void block_barrier(const int *in, int *out, int n) {
    __shared__ barrier bar;
    __shared__ int values[BLOCK];
    if (threadIdx.x == 0) init(&bar, BLOCK);
    __syncthreads();
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int value = i < n ? in[i] : 0;
    for (int step = 0; step < 4; step++) {
        values[threadIdx.x] = value;
        auto token = bar.arrive();
        bar.wait(std::move(token));
        value += values[(threadIdx.x + 1) % BLOCK];
        bar.arrive_and_wait();
    }
    if (i < n) out[i] = value;
}

// The elements of each block in reverse order, copied by `memcpy_async`.
extern "C" __global__ void barrier_copy(const int *in, int *out, int n) {
    __shared__ barrier bar;
    __shared__ alignas(16) int values[BLOCK];
    if (threadIdx.x == 0) init(&bar, BLOCK);
    __syncthreads();
    int first = blockIdx.x * BLOCK, count = min(BLOCK, n - first);
    cuda::memcpy_async(cg::this_thread_block(), values, in + first, sizeof(int) * count, bar);
    bar.arrive_and_wait();
    int i = threadIdx.x;
    if (i < count) out[first + i] = values[count - 1 - i];
}
extern "C" __global__ void group_copy(const int *in, int *out, int n) {
    __shared__ alignas(16) int values[BLOCK];
    auto block = cg::this_thread_block();
    int first = blockIdx.x * BLOCK, count = min(BLOCK, n - first);
    cg::memcpy_async(block, values, in + first, sizeof(int) * count);
    cg::wait(block);
    int i = threadIdx.x;
    if (i < count) out[first + i] = values[count - 1 - i];
}

// For each thread of each block, the sum of the next thread's element over all parts of BLOCK elements.
extern "C" __global__ void block_pipeline(const int *in, int *out, int n) {
    __shared__ int values[2][BLOCK];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int sum = 0, parts = (n + BLOCK - 1) / BLOCK;
    auto fetch = [&](int part) {
        pipe.producer_acquire();
        int count = min(BLOCK, n - part * BLOCK);
        cuda::memcpy_async(block, values[part % 2], in + part * BLOCK, sizeof(int) * count, pipe);
        pipe.producer_commit();
    };
    fetch(0);
    for (int part = 0; part < parts; part++) {
        if (part + 1 < parts) fetch(part + 1);
        pipe.consumer_wait();
        int other = (threadIdx.x + 1) % BLOCK;
        if (other < n - part * BLOCK) sum += values[part % 2][other];
        pipe.consumer_release();
    }
    out[blockIdx.x * BLOCK + threadIdx.x] = sum;
}

// The first half of each block copies, the other half sums in reverse order.
extern "C" __global__ void partitioned_pipeline(const int *in, int *out, int n) {
    constexpr int HALF = BLOCK / 2;
    __shared__ int values[2][HALF];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    bool copies = threadIdx.x < HALF;
    auto role = copies ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, role);
    int sum = 0, parts = (n + HALF - 1) / HALF;
    for (int part = 0; part < parts; part++) {
        if (copies) {
            pipe.producer_acquire();
            int i = part * HALF + threadIdx.x;
            if (i < n) cuda::memcpy_async(&values[part % 2][threadIdx.x], in + i, sizeof(int), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            int other = BLOCK - 1 - threadIdx.x;
            if (part * HALF + other < n) sum += values[part % 2][other];
            pipe.consumer_release();
        }
    }
    if (!copies) out[blockIdx.x * HALF + threadIdx.x - HALF] = sum;
}

// Each element plus one, copied to shared memory and back in bulk. `COUNTS` says whether the copy itself
// tells the barrier how many bytes to expect.
template <bool COUNTS>
__device__ void bulk_copy(const int *in, int *out, int n) {
    __shared__ alignas(128) int values[BLOCK];
    __shared__ barrier bar;
    if (threadIdx.x == 0) {
        init(&bar, BLOCK);
        cuda::device::experimental::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    int first = blockIdx.x * BLOCK, count = min(BLOCK, n - first), whole = count & ~3;
    barrier::arrival_token token;
    if (threadIdx.x == 0 && whole > 0) {
        cuda::aligned_size_t<16> bytes(sizeof(int) * whole);
        if (COUNTS) {
            cuda::memcpy_async(values, in + first, bytes, bar);
            token = bar.arrive();
        } else {
            cuda::device::memcpy_async_tx(values, in + first, bytes, bar);
            token = cuda::device::barrier_arrive_tx(bar, 1, bytes);
        }
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    if (threadIdx.x < whole) values[threadIdx.x] += 1;
    else if (threadIdx.x < count) out[first + threadIdx.x] = in[first + threadIdx.x] + 1;
    cuda::device::experimental::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        namespace bulk = cuda::device::experimental;
        if (whole > 0) bulk::cp_async_bulk_shared_to_global(out + first, values, sizeof(int) * whole);
        bulk::cp_async_bulk_commit_group();
        bulk::cp_async_bulk_wait_group_read<0>();
        (&bar)->~barrier();
    }
}
extern "C" __global__ void bulk_counted(const int *in, int *out, int n) { bulk_copy<true>(in, out, n); }
extern "C" __global__ void bulk_expected(const int *in, int *out, int n) { bulk_copy<false>(in, out, n); }

struct Shape {
    __device__ virtual int area(int size) const = 0;
};
struct Square : Shape {
    __device__ int area(int size) const override { return size * size; }
};
struct Strip : Shape {
    int width;
    __device__ Strip(int width) : width(width) {}
    __device__ int area(int size) const override { return size + width; }
};

// The square of even elements, and the sum of the others and their index.
extern "C" __global__ void virtual_calls(const int *in, int *out, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    Square square;
    Strip strip(i);
    const Shape *shapes[2] = {&square, &strip};
    if (i < n) out[i] = shapes[in[i] & 1]->area(in[i]);
}

__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
using Operation = int (*)(int, int);
__device__ Operation operations[3] = {add, subtract, multiply};
__constant__ Operation constants[3] = {multiply, subtract, add};

// Operations on an element and its index, by tables in global and in constant memory.
extern "C" __global__ void function_tables(const int *in, int *out, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) out[i] = operations[i % 3](in[i], i) + constants[i % 3](in[i], i);
}
extern "C" __global__ void function_pointer(const int *in, int *out, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    Operation operation = in[0] > 3 ? add : in[1] > 4 ? multiply : subtract;
    if (i < n) out[i] = operation(in[i], i);
}

// Each element, rounded to both 8-bit floats and to tf32, summed.
extern "C" __global__ void small_floats(const int *in, int *out, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float value = in[i];
    float2 a = float2(__nv_fp8x2_e4m3(make_float2(value, 2)));
    float2 b = float2(__nv_fp8x2_e5m2(make_float2(2, value)));
    out[i] = int(a.x) + int(b.y) + int(nvcuda::wmma::__float_to_tf32(value));
}

// A product of 16 rows and 16 columns per block: row i of a is the block's elements from 5 * i on, row k of b
// those from 3 * k on, both starting over after 128.
template <typename T>
__device__ void factors(T *a, T *b, int depth, const int *in, int n) {
    auto value = [&](int place) {
        int i = blockIdx.x * BLOCK + place % BLOCK;
        return T(i < n ? in[i] : 0);
    };
    for (int i = threadIdx.x; i < 16 * depth; i += BLOCK) {
        a[i] = value(i / depth * 5 + i % depth);
        b[i] = value(i / 16 * 3 + i % 16);
    }
    __syncthreads();
}

// Each warp multiplies a quarter of the depth; their sum is the product.
extern "C" __global__ void wmma_half(const int *in, int *out, int n) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) half a[16 * 64], b[64 * 16];
    __shared__ __align__(32) float parts[4][256];
    factors(a, b, 64, in, n);
    int warp = threadIdx.x / 32;
    fragment<matrix_a, 16, 16, 16, half, row_major> of_a;
    fragment<matrix_b, 16, 16, 16, half, row_major> of_b;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(of_a, a + 16 * warp, 64);
    load_matrix_sync(of_b, b + 256 * warp, 16);
    for (int i = 0; i < of_a.num_elements; i++) of_a.x[i] = __hneg(of_a.x[i]);
    mma_sync(sum, of_a, of_b, sum);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = -sum.x[i];
    store_matrix_sync(parts[warp], sum, 16, mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += BLOCK) {
        out[256 * blockIdx.x + i] = int(parts[0][i] + parts[1][i] + parts[2][i] + parts[3][i]);
    }
}

// By bytes; one warp, from and to columns.
extern "C" __global__ void wmma_bytes(const int *in, int *out, int n) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) signed char a[256], b[256];
    factors(a, b, 16, in, n);
    if (threadIdx.x >= 32) return;
    // The transposed product, of the transposed factors.
    fragment<matrix_a, 16, 16, 16, signed char, col_major> of_a;
    fragment<matrix_b, 16, 16, 16, signed char, col_major> of_b;
    fragment<accumulator, 16, 16, 16, int> sum;
    fill_fragment(sum, 0);
    load_matrix_sync(of_a, b, 16);
    load_matrix_sync(of_b, a, 16);
    mma_sync(sum, of_a, of_b, sum);
    store_matrix_sync(out + 256 * blockIdx.x, sum, 16, mem_col_major);
}

// `ldmatrix` and `mma`: two warps with 8 columns each.
extern "C" __global__ void mma_half(const int *in, int *out, int n) {
    __shared__ __align__(16) half a[256], b[256];
    factors(a, b, 16, in, n);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= 2) return;
    unsigned row_of_a = __cvta_generic_to_shared(a + lane % 16 * 16 + lane / 16 * 8);
    unsigned row_of_b = __cvta_generic_to_shared(b + lane % 16 * 16 + 8 * warp);
    unsigned fa[4], fb[2];
    float sum[4] = {0, 0, 0, 0};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                 : "r"(row_of_a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fb[0]), "=r"(fb[1])
                 : "r"(row_of_b));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, column = 8 * warp + lane % 4 * 2 + i % 2;
        out[256 * blockIdx.x + 16 * row + column] = int(sum[i]);
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
