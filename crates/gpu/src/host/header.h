// One thread of a block at a time, on the host. Threads that wait for each other are fibers, resumed in turn.
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define DEVICE inline
#define DEVICE_CALL inline
#define SHARED static
#define BARRIER() barrier()
#define THREAD running.thread

struct Index { unsigned thread, block[3], blocks; };
static Index running;

struct Fiber { ucontext_t context; jmp_buf jump; bool started, done; };
static const unsigned MAX_THREADS = 1024, STACK = 64 << 10;
static Fiber fibers[MAX_THREADS];
static jmp_buf scheduler;
static unsigned arrived, alive, generation;
static unsigned char slots[MAX_THREADS][16];

static void yield() {
    if (!_setjmp(fibers[running.thread].jump)) _longjmp(scheduler, 1);
}

// Lets a thread run until it waits or ends. Only its first turn needs a context, which takes system calls.
static void resume(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.started) _longjmp(fiber.jump, 1);
    fiber.started = true;
    setcontext(&fiber.context);
}

static void barrier() {
    const unsigned own = generation;
    ++arrived;
    while (generation == own) yield();
}

// All threads of a warp come by together, so a value is there one turn after it was written, and read before the next.
template <typename N> N SHUFFLE_XOR(N x, int d) {
    memcpy(slots[running.thread], &x, sizeof x);
    yield();
    N other;
    memcpy(&other, slots[running.thread ^ d], sizeof other);
    yield();
    return other;
}

typedef unsigned long long Word;
typedef void (*Body)(const Word*);
static Body body_of_fibers;
static const Word* args_of_fibers;

static void enter_fiber() {
    body_of_fibers(args_of_fibers);
    fibers[running.thread].done = true;
    --alive;
    _longjmp(scheduler, 1);
}

static void run_block(Body body, const Word* args, unsigned threads) {
    static char* stacks = (char*)malloc((size_t)MAX_THREADS * STACK);
    body_of_fibers = body, args_of_fibers = args, arrived = 0, alive = threads;
    for (unsigned i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[i];
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        fiber.started = fiber.done = false;
        makecontext(&fiber.context, enter_fiber, 0);
    }
    while (alive) {
        for (running.thread = 0; running.thread < threads; ++running.thread)
            if (!fibers[running.thread].done) resume(fibers[running.thread]);
        if (alive && arrived == alive) arrived = 0, ++generation;
    }
}

static void run(Body body, const Word* args, unsigned x, unsigned y, unsigned threads, bool waits) {
    running.blocks = x;
    for (running.block[1] = 0; running.block[1] < y; ++running.block[1])
        for (running.block[0] = 0; running.block[0] < x; ++running.block[0]) {
            if (waits) run_block(body, args, threads);
            else for (running.thread = 0; running.thread < threads; ++running.thread) body(args);
        }
}

template <typename N> static N number(Word word) {
    N value;
    memcpy(&value, &word, sizeof value);
    return value;
}

template <typename T, typename F> static T cast_bits(F x) {
    T bits;
    static_assert(sizeof bits == sizeof x, "");
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline unsigned bits_of(float x) { return cast_bits<unsigned>(x); }
inline Word bits_of(double x) { return cast_bits<Word>(x); }
inline float float_of_bits(unsigned x) { return cast_bits<float>(x); }
inline double double_of_bits(Word x) { return cast_bits<double>(x); }

inline float mul_rn(float a, float b) { return a * b; }
inline double mul_rn(double a, double b) { return a * b; }
inline float add_rn(float a, float b) { return a + b; }
inline double add_rn(double a, double b) { return a + b; }
inline float div_rn(float a, float b) { return a / b; }
inline double div_rn(double a, double b) { return a / b; }
inline float sqrt_rn(float a) { return sqrtf(a); }
inline double sqrt_rn(double a) { return sqrt(a); }
#define UPPER_PRODUCT(a, b) ((unsigned)((Word)(a) * (b) >> 32))
inline int int_toward_zero(double x) { return x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? -2147483647 - 1 : (int)x; }
inline float exp2_approx(float x) { return exp2f(x); }
#define ATOMIC_MIN(p, x) (*(p) = *(p) < (x) ? *(p) : (x))
inline int exchange(int* p, int x) { const int old = *p; *p = x; return old; }
template <typename N> inline N min(N a, N b) { return b < a ? b : a; }
template <typename N> inline N max(N a, N b) { return a < b ? b : a; }
