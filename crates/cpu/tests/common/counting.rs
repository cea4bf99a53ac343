//! An allocator that counts. The first thread of the process, on which the test harness runs, is left out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub struct Counting;

pub static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
pub static FREES: AtomicUsize = AtomicUsize::new(0);
/// Bytes allocated and not freed, by every thread.
pub static HELD: AtomicUsize = AtomicUsize::new(0);
/// The most that was held at once.
pub static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The thread of the first allocation.
static MAIN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread holds, and the most it ever held.
    static HERE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(counter: &AtomicUsize) {
    let here = HERE.try_with(|here| here as *const Cell<_> as usize).unwrap_or(0);
    let main = MAIN.compare_exchange(0, here, SeqCst, SeqCst).unwrap_or_else(|main| main);
    if main != here && main != 0 {
        counter.fetch_add(1, SeqCst);
    }
}

fn hold(change: isize) {
    let _ = HERE.try_with(|here| {
        let (now, most) = here.get();
        here.set((now + change, most.max(now + change)));
    });
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS);
        let before = HELD.fetch_add(layout.size(), SeqCst);
        PEAK.fetch_max(before + layout.size(), SeqCst);
        hold(layout.size() as isize);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(&FREES);
        HELD.fetch_sub(layout.size(), SeqCst);
        hold(-(layout.size() as isize));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Allocations and frees during a call.
pub fn counted(call: impl FnOnce()) -> (usize, usize) {
    let before = (ALLOCATIONS.load(SeqCst), FREES.load(SeqCst));
    call();
    (ALLOCATIONS.load(SeqCst) - before.0, FREES.load(SeqCst) - before.1)
}

/// The most bytes that this thread held at once during a call, beyond those it held before.
pub fn peak_here(call: impl FnOnce()) -> isize {
    let before = HERE.with(|here| {
        let (now, _) = here.get();
        here.set((now, now));
        now
    });
    call();
    HERE.with(|here| here.get().1) - before
}
