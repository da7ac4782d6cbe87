// What CUDA programs do every day, without a library: variables, kinds of memory, streams, events, graphs,
// cooperative launches, printing, errors. Prints one line per part and fails if a result is wrong.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace cg = cooperative_groups;

static void check(cudaError_t error, int line) {
    if (error != cudaSuccess) {
        printf("line %d: %s: %s\n", line, cudaGetErrorName(error), cudaGetErrorString(error));
        exit(1);
    }
}
#define CHECK(call) check(call, __LINE__)

static void expect(bool right, const char *what) {
    printf("%s: %s\n", what, right ? "right" : "wrong");
    if (!right)
        exit(1);
}

const int N = 5000;
__constant__ float factors[8];
__device__ int calls;
__managed__ int total = 10;

// Freed after `main`, when the runtime may refuse but must not end the program.
struct Owner {
    int *memory = nullptr;
    ~Owner() { cudaFree(memory); }
} owner;

struct Large {
    double values[40];
    int last;
};

__global__ void sum_tiles(const int *input, int *sum, int n) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    int i = cg::this_grid().thread_rank();
    int of_tile = cg::reduce(tile, i < n ? input[i] : 0, cg::plus<int>());
    if (tile.thread_rank() == 0)
        atomicAdd(sum, of_tile);
}

__global__ void sum_grid(const int *input, int *partial, int n) {
    auto grid = cg::this_grid();
    __shared__ int sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    int own = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size())
        own += input[i];
    atomicAdd(&sum, own);
    __syncthreads();
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (int i = 1; i < gridDim.x; ++i)
            partial[0] += partial[i];
}

__global__ void reverse_scaled(float *output) {
    extern __shared__ float scaled[];
    scaled[threadIdx.x] = threadIdx.x * factors[threadIdx.x % 8];
    __syncthreads();
    output[threadIdx.x] = scaled[blockDim.x - 1 - threadIdx.x];
    if (threadIdx.x == 0) {
        atomicAdd(&calls, 1);
        total += 5;
    }
}

__global__ void reverse(int *values, int n) {
    int value = values[threadIdx.x];
    __syncthreads();
    values[n - 1 - threadIdx.x] = value;
}

__global__ void sum_struct(Large large, double *sum) {
    *sum = large.last;
    for (double value : large.values)
        *sum += value;
}

template <class T, int COUNT>
__global__ void fill(T *values, T value) {
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x)
        values[i] = value;
}

__global__ void print(int x) { printf("a kernel prints %d, %.1f, %s\n", x, 1.5, "text"); }

// The program's first launch, which loads its kernels, may be in a capture.
static void first_launch() {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    int *values, last;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&values, 64 * sizeof(int)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    fill<int, 64><<<1, 32, 0, stream>>>(values, 4);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaMemcpyAsync(&last, values + 63, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(last == 4, "a first launch in a capture");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(values));

    cudaStreamAttrValue window = {};
    window.accessPolicyWindow.num_bytes = 64;
    CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &window));
    CHECK(cudaStreamDestroy(stream));
}

static void sums() {
    std::vector<int> host(N);
    int expected = 0, found = 0, *input, *output;
    for (int i = 0; i < N; ++i)
        expected += host[i] = i % 91;
    CHECK(cudaMalloc(&input, N * sizeof(int)));
    CHECK(cudaMalloc(&output, 8 * sizeof(int)));
    CHECK(cudaMemcpy(input, host.data(), N * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(output, 0, 8 * sizeof(int)));
    sum_tiles<<<(N + 255) / 256, 256>>>(input, output, N);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, output, sizeof(int), cudaMemcpyDeviceToHost));
    expect(found == expected, "a sum of tiles of cooperative groups");

    int blocks, n = N;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sum_grid, 128, 0));
    expect(blocks >= 1, "occupancy");
    void *arguments[] = {&input, &output, &n};
    CHECK(cudaLaunchCooperativeKernel(sum_grid, 8, 128, arguments, 0, nullptr));
    CHECK(cudaMemcpy(&found, output, sizeof(int), cudaMemcpyDeviceToHost));
    expect(found == expected, "a sum with a barrier of the grid");
    CHECK(cudaFree(input));
    CHECK(cudaFree(output));
}

static void memories() {
    float host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, *output;
    int found;
    CHECK(cudaMemcpyToSymbol(factors, host, sizeof host));
    CHECK(cudaMallocManaged(&output, 128 * sizeof(float)));
    total += 1;
    reverse_scaled<<<1, 128, 128 * sizeof(float)>>>(output);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyFromSymbol(&found, calls, sizeof found));
    expect(output[0] == 127 * 8 && found == 1 && total == 16, "constant, device and managed variables");
    CHECK(cudaFuncSetAttribute(reverse_scaled, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
    reverse_scaled<<<1, 128, 100000>>>(output);
    CHECK(cudaGetLastError());

    size_t pitch;
    char *rows, read[500];
    CHECK(cudaMallocPitch(&rows, &pitch, 100, 5));
    CHECK(cudaMemset2D(rows, pitch, 7, 100, 5));
    CHECK(cudaMemcpy2D(read, 100, rows, pitch, 100, 5, cudaMemcpyDeviceToHost));
    expect(read[0] == 7 && read[499] == 7, "rows with a pitch");

    cudaPitchedPtr box;
    char slices[2 * 3 * 10];
    CHECK(cudaMalloc3D(&box, make_cudaExtent(10, 3, 2)));
    CHECK(cudaMemset3D(box, 5, make_cudaExtent(10, 3, 2)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(slices, 10, 10, 3);
    copy.extent = make_cudaExtent(10, 3, 2);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    copy.srcPtr = make_cudaPitchedPtr(slices, 10, 10, 3);
    copy.srcPos = make_cudaPos(0, 0, 0);
    copy.dstPtr = box;
    copy.dstPos = make_cudaPos(2, 1, 1);
    copy.extent = make_cudaExtent(3, 1, 1);
    copy.kind = cudaMemcpyHostToDevice;
    slices[1] = 9;
    CHECK(cudaMemcpy3D(&copy));
    char placed;
    CHECK(cudaMemcpy(&placed, (char *)box.ptr + (3 + 1) * box.pitch + 3, 1, cudaMemcpyDeviceToHost));
    expect(slices[0] == 5 && slices[59] == 5 && placed == 9, "slices of rows");
    CHECK(cudaFree(box.ptr));

    int *pinned;
    CHECK(cudaMallocHost(&pinned, 64));
    const void *places[] = {output, rows, pinned, host};
    const cudaMemoryType types[] = {cudaMemoryTypeManaged, cudaMemoryTypeDevice, cudaMemoryTypeHost,
                                    cudaMemoryTypeUnregistered};
    for (int i = 0; i < 4; ++i) {
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, places[i]));
        expect(attributes.type == types[i], "the type of memory at an address");
    }
    CHECK(cudaFree(output));
    CHECK(cudaFree(rows));
    CHECK(cudaFreeHost(pinned));
}

static void streams() {
    cudaStream_t first, second;
    cudaEvent_t start, end;
    int *pinned, *values, found;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaMallocHost(&pinned, 256 * sizeof(int)));
    CHECK(cudaMallocAsync(&values, 256 * sizeof(int), first));
    for (int i = 0; i < 256; ++i)
        pinned[i] = i;
    CHECK(cudaEventRecord(start, first));
    CHECK(cudaMemcpyAsync(values, pinned, 256 * sizeof(int), cudaMemcpyHostToDevice, first));
    reverse<<<1, 256, 0, first>>>(values, 256);
    CHECK(cudaEventRecord(end, first));
    CHECK(cudaStreamWaitEvent(second, end, 0));
    CHECK(cudaMemcpyAsync(pinned, values, 256 * sizeof(int), cudaMemcpyDeviceToHost, second));
    CHECK(cudaStreamSynchronize(second));
    float elapsed = -1;
    CHECK(cudaEventElapsedTime(&elapsed, start, end));
    expect(pinned[0] == 255 && elapsed >= 0, "streams and events");

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    reverse<<<1, 256, 0, first>>>(values, 256);
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, first));
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaMemcpy(&found, values, sizeof(int), cudaMemcpyDeviceToHost));
    expect(found == 0, "a captured graph");

    bool called = false;
    CHECK(cudaLaunchHostFunc(first, [](void *called) { *(bool *)called = true; }, &called));
    CHECK(cudaFreeAsync(values, first));
    CHECK(cudaStreamSynchronize(first));
    expect(called, "a function of the host in a stream");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void pools() {
    cudaMemPool_t first, own, current;
    uint64_t threshold = UINT64_MAX, used = 0;
    CHECK(cudaDeviceGetDefaultMemPool(&first, 0));
    CHECK(cudaMemPoolSetAttribute(first, cudaMemPoolAttrReleaseThreshold, &threshold));
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&own, &properties));
    int *values, last;
    CHECK(cudaMallocFromPoolAsync(&values, 64 * sizeof(int), own, nullptr));
    fill<int, 64><<<1, 32>>>(values, 8);
    CHECK(cudaMemcpy(&last, values + 63, sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used));
    expect(last == 8 && used == 64 * sizeof(int), "memory of a pool");
    CHECK(cudaFreeAsync(values, nullptr));
    CHECK(cudaMemPoolTrimTo(own, 0));
    CHECK(cudaDeviceSetMemPool(0, own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    expect(current == own, "the device's pool");
    CHECK(cudaMemPoolDestroy(own));
}

static void launches() {
    Large large;
    double expected = large.last = 3, found, *sum;
    for (int i = 0; i < 40; ++i)
        expected += large.values[i] = i;
    CHECK(cudaMalloc(&sum, sizeof(double)));
    sum_struct<<<1, 1>>>(large, sum);
    CHECK(cudaMemcpy(&found, sum, sizeof(double), cudaMemcpyDeviceToHost));
    expect(found == expected, "a struct as an argument");

    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = 1;
    config.blockDim = 32;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int *values, last;
    CHECK(cudaMalloc(&values, 64 * sizeof(int)));
    CHECK(cudaLaunchKernelEx(&config, fill<int, 64>, values, 5));
    CHECK(cudaMemcpy(&last, values + 63, sizeof(int), cudaMemcpyDeviceToHost));
    expect(last == 5, "a launch with attributes");

    // Another thread starts with device 0 and no error.
    fill<int, 64><<<1, 2000>>>(values, 6);
    std::thread other([&] {
        expect(cudaPeekAtLastError() == cudaSuccess, "another thread's last error");
        fill<int, 64><<<1, 32>>>(values, 7);
        CHECK(cudaMemcpy(&last, values + 63, sizeof(int), cudaMemcpyDeviceToHost));
    });
    other.join();
    expect(last == 7, "a launch by another thread");
    expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "a block that is too large");
    expect(cudaGetLastError() == cudaSuccess, "the error is returned once");

    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    int block, grid;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, fill<int, 64>));
    expect(properties.major == 9 && properties.warpSize == 32 && properties.reserved[0] == 0 && block <= 1024
               && properties.sharedMemPerBlockOptin == 227 << 10 && properties.memoryPoolsSupported == 1,
           "properties of the device");

    printf("the host prints before the kernel\n");
    print<<<1, 1>>>(7);
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&values, 64 * sizeof(int)));
    fill<int, 64><<<1, 32>>>(values, 9);
    CHECK(cudaMemcpy(&last, values + 63, sizeof(int), cudaMemcpyDeviceToHost));
    expect(last == 9, "a launch after a reset");
}

int main() {
    first_launch();
    sums();
    memories();
    streams();
    pools();
    launches();
    CHECK(cudaMalloc(&owner.memory, 64));
    printf("all right\n");
}
