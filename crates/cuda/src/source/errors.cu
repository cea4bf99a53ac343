// Remembers an index out of range: the smallest of (operation, place, index) that was met.
__device__ __forceinline__ void report(u64* error, u32 operation, u64 place, int index) {
    u64 near = place < 0x3fffffu ? place : 0x3fffffu;
    atomicMin(error, (u64)operation << 54 | near << 32 | (u64)(u32)index);
}

__device__ __forceinline__ bool has_failed(const u64* error) { return *(const volatile u64*)error != ~0ull; }
