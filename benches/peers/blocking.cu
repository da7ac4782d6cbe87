// Times CUB's sum as a blocking call, with f32 on the device and the result on the host, by the host's clock.
// Prints a JSON line per case, like the `blocking_sum` of `cargo bench --bench latency`.
//
// Build with the CUDA toolkit or PyPI's nvidia-cuda-nvcc and nvidia-cuda-runtime, and CUB from NVIDIA's CCCL
// (CUB 3.5 is PyPI's nvidia-cuda-cccl 13.3.5.0.6; the toolkit's own is older):
//     nvcc -O3 -std=c++17 -arch=sm_90 -I CCCL/include/cccl -o blocking blocking.cu
// Run: ./blocking
//
// cub-X.Y          DeviceReduce::Sum into mapped pinned memory, then cudaStreamSynchronize
// cub-X.Y-memcpy   DeviceReduce::Sum into device memory, cudaMemcpyAsync to pinned memory,
//                  then cudaStreamSynchronize
//
// Times are medians of 1,000 calls after 100 to warm up, or of 100 after 10 for the longest input.
#include <cub/cub.cuh>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t status = (call);                                                         \
        if (status != cudaSuccess) {                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

template <class Call> void time_case(const char* suffix, int n, int times, Call call) {
    std::vector<double> us;
    for (int i = 0; i < times + times / 10; i++) {
        auto start = std::chrono::steady_clock::now();
        call();
        us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    us.erase(us.begin(), us.begin() + times / 10);
    std::sort(us.begin(), us.end());
    double median = us[times / 2];
    printf("{\"impl\":\"cub-%d.%d%s\",\"op\":\"blocking_sum\",\"dtype\":\"f32\",\"n\":%d,\"segment\":0,\"us\":%.3f,\"gbps\":%.1f}\n",
           CUB_MAJOR_VERSION, CUB_MINOR_VERSION, suffix, n, median, n * sizeof(float) / median / 1e3);
}

int main() {
    const int longest = 1 << 24;
    std::vector<float> samples(longest);
    for (int i = 0; i < longest; i++) samples[i] = (i % 1000) * 1e-3f - 0.5f;
    float *x, *device_sum, *sum, *mapped;
    CHECK(cudaMalloc(&x, longest * sizeof(float)));
    CHECK(cudaMemcpy(x, samples.data(), longest * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&device_sum, sizeof(float)));
    CHECK(cudaHostAlloc(&sum, sizeof(float), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped, sum, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    for (int n : {1, 1 << 10, 1 << 14, 1 << 20, longest}) {
        size_t bytes = 0;
        CHECK(cub::DeviceReduce::Sum(nullptr, bytes, x, mapped, n, stream));
        void* temp;
        CHECK(cudaMalloc(&temp, bytes));
        int times = n == longest ? 100 : 1000;
        time_case("", n, times, [&] {
            CHECK(cub::DeviceReduce::Sum(temp, bytes, x, mapped, n, stream));
            CHECK(cudaStreamSynchronize(stream));
        });
        time_case("-memcpy", n, times, [&] {
            CHECK(cub::DeviceReduce::Sum(temp, bytes, x, device_sum, n, stream));
            CHECK(cudaMemcpyAsync(sum, device_sum, sizeof(float), cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
        });
        // The host's time of a call, in a row of a hundred calls that is waited for outside the measured
        // time.
        std::vector<double> us;
        for (int row = 0; row < 110 && (n == 1 << 10 || n == 1 << 20); row++) {
            auto start = std::chrono::steady_clock::now();
            for (int i = 0; i < 100; i++) CHECK(cub::DeviceReduce::Sum(temp, bytes, x, device_sum, n, stream));
            us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 100);
            CHECK(cudaStreamSynchronize(stream));
        }
        if (!us.empty()) {
            us.erase(us.begin(), us.begin() + 10);
            std::sort(us.begin(), us.end());
            printf("{\"impl\":\"cub-%d.%d\",\"op\":\"enqueued_sum\",\"dtype\":\"f32\",\"n\":%d,\"segment\":0,\"us\":%.3f,\"gbps\":%.1f}\n",
                   CUB_MAJOR_VERSION, CUB_MINOR_VERSION, n, us[us.size() / 2], n * sizeof(float) / us[us.size() / 2] / 1e3);
        }
        CHECK(cudaFree(temp));
    }
}
