// Records an index out of range; `failure_record.rs` documents the layout.
DEVICE void report(u64* error, u64 operation, u64 place, int index) {
    const u64 near = place < LAST_PLACE ? place : LAST_PLACE;
    ATOMIC_MIN(error + 1 + operation, near << INDEX_BITS | (u64)(u32)index);
    ATOMIC_MIN(error, operation);
}

DEVICE bool has_failed(const u64* error) { return *(const volatile u64*)error != NO_ERROR; }
