// Stands in for CUB's `test/test_util.h`, which Debian's package of CUB's examples leaves out: what the
// examples use of it.
#pragma once
#include <cub/util_debug.cuh>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <vector>

// The options are `--name` and `--name=value`.
struct CommandLineArgs {
    int argc;
    char **argv;

    CommandLineArgs(int argc, char **argv) : argc(argc), argv(argv) {}

    const char *find(const char *name) {
        size_t length = strlen(name);
        for (int i = 1; i < argc; ++i) {
            const char *rest = argv[i] + 2 + length;
            if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, name, length) && (!*rest || *rest == '='))
                return rest;
        }
        return nullptr;
    }

    bool CheckCmdLineFlag(const char *name) { return find(name) != nullptr; }

    template <class T>
    void GetCmdLineArgument(const char *name, T &value) {
        const char *rest = find(name);
        if (rest && *rest == '=')
            std::istringstream(rest + 1) >> value;
    }

    cudaError_t DeviceInit() { return cudaSetDevice(0); }
};

#define AssertEquals(a, b)                                              \
    if (!((a) == (b))) {                                                \
        fprintf(stderr, "%s:%d: %s != %s\n", __FILE__, __LINE__, #a, #b); \
        exit(1);                                                        \
    }

template <class T>
void DisplayResults(T *items, size_t count) {
    for (size_t i = 0; i < count; ++i)
        std::cout << items[i] << ", ";
    std::cout << "\n";
}

// Returns whether the results differ.
template <class T>
int CompareDeviceResults(T *expected, T *device, size_t count, bool = true, bool = false) {
    std::vector<T> results(count);
    CubDebugExit(cudaMemcpy(results.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; ++i)
        if (!(results[i] == expected[i])) {
            std::cout << "at " << i << ": " << results[i] << ", not " << expected[i] << "\n";
            return 1;
        }
    return 0;
}
