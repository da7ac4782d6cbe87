// Kernels for `tests/prints.rs`, compiled to `kernels.ptx` (which contains line numbers of this file) by
//   nvcc -arch=sm_90 --ptx -o kernels.ptx kernels.cu

#include <cassert>
#include <cstdio>

// Each of the first n threads prints three lines, the last with a string of its own in shared memory, and
// stores printf's return values.
extern "C" __global__ void prints(int *counts, const char *text, int n) {
    __shared__ char own[64][2];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    counts[3 * i] = printf("thread %d of %u: %5.2f %s %lld\n", i, blockDim.x, i / 4.0f, text, -5000000000ll * i);
    counts[3 * i + 1] = printf("thread without arguments 100%%\n");
    own[threadIdx.x][0] = 'a' + i % 26;
    own[threadIdx.x][1] = 0;
    counts[3 * i + 2] = printf("thread %*d [%-6s|%+hhd|%c|%#x|%e]\n", 6, i, own[threadIdx.x], i, 'A' + i % 26, 255 * i, 1.0 / 3);
}

extern "C" __global__ void asserts(const int *values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(values[i] != 7);
}
