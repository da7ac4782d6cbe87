// A program with a fault: a block reverses values in shared memory without a barrier.
#include <cstdio>

__global__ void reverse(int *values) {
    __shared__ int tile[256];
    tile[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = tile[255 - threadIdx.x];
}

int main() {
    int *values;
    cudaMalloc(&values, 256 * sizeof(int));
    cudaMemset(values, 0, 256 * sizeof(int));
    reverse<<<1, 256>>>(values);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
