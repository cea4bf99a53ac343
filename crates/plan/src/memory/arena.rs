//! The arena: one block of memory in which buffers with disjoint lifetimes share addresses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A buffer of some bytes that is live from step `first` to step `last`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub bytes: usize,
    pub first: usize,
    pub last: usize,
}

/// The offset of every buffer, and the size of the block.
pub(crate) struct Layout {
    pub offsets: Vec<usize>,
    pub bytes: usize,
    /// The most that is alive at once: no layout can be smaller.
    pub lower_bound: usize,
}

/// The maximum number of buffers for the better of two algorithms, whose time is quadratic.
const MAX_BEST_FIT_BUFFERS: usize = 8192;

/// Buffers with extended lifetimes may fill peak memory only up to 1 − 1/12, so that fragmentation does not raise the
/// peak.
const FREE_SHARE: u128 = 12;

/// Assigns offsets at multiples of `align` bytes. Buffers that are live throughout come first, because they share
/// memory with nothing. The memory of a buffer is not reused for `reuse_distance` steps after its last; if `frugal`,
/// only as far as peak memory does not grow: see [`linger`].
///
/// Sums saturate: a block of `usize::MAX` bytes cannot be allocated.
pub(crate) fn lay_out(buffers: &[Life], align: usize, reuse_distance: usize, frugal: bool) -> Layout {
    let whole = |b: &Life| Life { bytes: b.bytes.next_multiple_of(align), ..*b };
    let mut buffers: Vec<Life> = buffers.iter().map(whole).collect();
    linger(&mut buffers, reuse_distance, frugal);
    let buffers = &buffers[..];
    let begin = buffers.iter().map(|b| b.first).min();
    let end = buffers.iter().map(|b| b.last).max();
    let lasts = |b: &Life| Some(b.first) == begin && Some(b.last) == end;
    let (lasting, passing): (Vec<usize>, Vec<usize>) = (0..buffers.len()).partition(|&i| lasts(&buffers[i]));
    let mut offsets = vec![0; buffers.len()];
    let mut bytes = 0usize;
    for i in lasting {
        offsets[i] = bytes;
        bytes = bytes.saturating_add(buffers[i].bytes);
    }
    let above = if passing.len() <= MAX_BEST_FIT_BUFFERS {
        largest_first(buffers, &passing, &mut offsets)
    } else {
        oldest_first(buffers, &passing, &mut offsets)
    };
    for &i in &passing {
        offsets[i] = offsets[i].saturating_add(bytes);
    }
    Layout { offsets, bytes: bytes.saturating_add(above), lower_bound: lower_bound(buffers) }
}

/// Extends lifetimes by up to `reuse_distance` steps. If most can be extended without raising peak memory, as in a
/// forward and backward pass, or if `must_be_frugal`, none is extended at the peak. Otherwise all are.
fn linger(buffers: &mut [Life], reuse_distance: usize, must_be_frugal: bool) {
    let Some(end) = buffers.iter().map(|b| b.last).max() else { return };
    let mut alive = alive(buffers, end);
    let most = alive.iter().max().copied().unwrap_or(0);
    let mut frugal = buffers.to_vec();
    // All by one step, then by another.
    for lingered in 0..reuse_distance {
        for (longer, buffer) in frugal.iter_mut().zip(&*buffers).filter(|(l, b)| l.last == b.last + lingered) {
            if let Some(alive) = alive.get_mut(longer.last + 1)
                && *alive + longer.bytes as u128 <= most - most / FREE_SHARE
            {
                *alive += buffer.bytes as u128;
                longer.last += 1;
            }
        }
    }
    let generous = buffers.iter().map(|b| Life { last: (b.last + reuse_distance).min(end), ..*b }).collect::<Vec<_>>();
    let by = |longer: &[Life]| -> u128 {
        longer.iter().zip(&*buffers).map(|(l, b)| (l.last - b.last) as u128 * b.bytes as u128).sum()
    };
    let longer = if must_be_frugal || by(&frugal) >= by(&generous) / 4 * 3 { frugal } else { generous };
    buffers.copy_from_slice(&longer);
}

/// Returns the live bytes at each step.
fn alive(buffers: &[Life], end: usize) -> Vec<u128> {
    let (mut begins, mut ends) = (vec![0u128; end + 1], vec![0u128; end + 2]);
    for buffer in buffers {
        begins[buffer.first] += buffer.bytes as u128;
        ends[buffer.last + 1] += buffer.bytes as u128;
    }
    let mut now = 0;
    let step = |(begins, ends): (&u128, &u128)| {
        now = now + begins - ends;
        now
    };
    begins.iter().zip(&ends).map(step).collect()
}

/// Assigns offsets largest first, each at the lowest free address. Returns the total bytes.
fn largest_first(buffers: &[Life], chosen: &[usize], offsets: &mut [usize]) -> usize {
    let end = |offset: usize, b: &Life| offset.saturating_add(b.bytes);
    let mut order = chosen.to_vec();
    order.sort_by_key(|&i| (Reverse(buffers[i].bytes), buffers[i].first, i));
    let mut placed: Vec<usize> = vec![]; // by offset
    let mut bytes = 0;
    for i in order {
        let buffer = &buffers[i];
        let mut offset = 0;
        for &other in &placed {
            let o = &buffers[other];
            let is_disjoint = o.last < buffer.first || buffer.last < o.first;
            if is_disjoint || end(offsets[other], o) <= offset {
                continue;
            }
            if end(offset, buffer) <= offsets[other] {
                break;
            }
            offset = end(offsets[other], o);
        }
        offsets[i] = offset;
        bytes = bytes.max(end(offset, buffer));
        let position = placed.partition_point(|&p| offsets[p] <= offset);
        placed.insert(position, i);
    }
    bytes
}

/// Assigns offsets in order of allocation, each in the smallest sufficient gap, in O(n·log n). Lifetimes that nest like
/// a stack, as in a forward and backward pass, leave no gaps. Returns the total bytes.
fn oldest_first(buffers: &[Life], chosen: &[usize], offsets: &mut [usize]) -> usize {
    let mut order: Vec<usize> = chosen.iter().copied().filter(|&i| buffers[i].bytes > 0).collect();
    order.sort_by_key(|&i| (buffers[i].first, Reverse(buffers[i].bytes), i));
    let mut gaps = Gaps::default();
    let mut alive: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    let mut bytes = 0;
    for i in order {
        while let Some(&Reverse((last, ended))) = alive.peek()
            && last < buffers[i].first
        {
            alive.pop();
            gaps.give_back(offsets[ended], buffers[ended].bytes);
        }
        offsets[i] = gaps.take(buffers[i].bytes);
        bytes = bytes.max(gaps.end);
        alive.push(Reverse((buffers[i].last, i)));
    }
    bytes
}

/// The free gaps below a moving end.
#[derive(Default)]
struct Gaps {
    by_place: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
    end: usize,
}

impl Gaps {
    fn take(&mut self, wanted: usize) -> usize {
        let Some(&(size, place)) = self.by_size.range((wanted, 0)..).next() else {
            let place = self.end;
            self.end = self.end.saturating_add(wanted);
            return place;
        };
        self.remove(place, size);
        if size > wanted {
            self.insert(place + wanted, size - wanted);
        }
        place
    }

    /// Merges freed memory with adjacent gaps; at the end, the end moves down.
    fn give_back(&mut self, mut place: usize, mut size: usize) {
        if let Some((&before, &length)) = self.by_place.range(..place).next_back()
            && before + length == place
        {
            self.remove(before, length);
            (place, size) = (before, length + size);
        }
        if let Some(&length) = self.by_place.get(&place.saturating_add(size)) {
            self.remove(place + size, length);
            size += length;
        }
        if place.saturating_add(size) == self.end {
            self.end = place;
        } else {
            self.insert(place, size);
        }
    }

    fn insert(&mut self, place: usize, size: usize) {
        self.by_place.insert(place, size);
        self.by_size.insert((size, place));
    }

    fn remove(&mut self, place: usize, size: usize) {
        self.by_place.remove(&place);
        self.by_size.remove(&(size, place));
    }
}

fn lower_bound(buffers: &[Life]) -> usize {
    let mut events: Vec<(usize, bool, usize)> = vec![];
    for buffer in buffers {
        events.push((buffer.first, true, buffer.bytes));
        events.push((buffer.last + 1, false, buffer.bytes));
    }
    // Within a step, buffers are freed before others are allocated.
    events.sort_unstable();
    let (mut alive, mut most) = (0u128, 0);
    for (_, begins, size) in events {
        if begins {
            alive += size as u128;
            most = most.max(alive);
        } else {
            alive -= size as u128;
        }
    }
    usize::try_from(most).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIGN: usize = 64;

    /// Checks that buffers live at the same time do not overlap, and that all are aligned and inside the block.
    fn check(buffers: &[Life], layout: &Layout) {
        for (i, a) in buffers.iter().enumerate() {
            for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let (x, y) = (layout.offsets[i], layout.offsets[j]);
                assert!(!together || x + a.bytes <= y || y + b.bytes <= x, "{a:?} at {x}, {b:?} at {y}");
            }
            assert!(layout.offsets[i].is_multiple_of(ALIGN) && layout.offsets[i] + a.bytes <= layout.bytes);
        }
    }

    #[test]
    fn very_many_buffers_never_overlap_either_and_those_that_live_like_a_stack_leave_no_gaps() {
        let count = MAX_BEST_FIT_BUFFERS + 500;
        let nested: Vec<Life> = (0..count)
            .map(|i| Life { bytes: 64 * (1 + i % 5), first: i, last: 2 * count - i })
            .chain([Life { bytes: 640, first: 0, last: 2 * count }])
            .collect();
        let layout = lay_out(&nested, ALIGN, 0, false);
        check(&nested, &layout);
        assert_eq!(layout.bytes, layout.lower_bound);
        let mixed: Vec<Life> =
            (0..count).map(|i| Life { bytes: 40 * (i * 7 % 11), first: i / 3, last: i / 3 + i * 5 % 17 }).collect();
        let layout = lay_out(&mixed, ALIGN, 0, false);
        check(&mixed, &layout);
        assert!(layout.bytes <= layout.lower_bound * 3 / 2, "{} of {}", layout.bytes, layout.lower_bound);
    }

    #[test]
    fn buffers_alive_together_never_overlap_and_the_block_stays_near_the_bound() {
        let mut state = 7u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..50 {
            let buffers: Vec<Life> = (0..random(60))
                .map(|_| {
                    let first = random(40);
                    Life { bytes: random(5000), first, last: first + random(10) }
                })
                .collect();
            let layout = lay_out(&buffers, ALIGN, 0, false);
            check(&buffers, &layout);
            assert!(layout.bytes >= layout.lower_bound && layout.bytes <= layout.lower_bound * 3 / 2 + ALIGN);
        }
    }

    #[test]
    fn buffers_linger_but_for_the_worst_of_times_or_at_all_times_where_these_are_too_many() {
        let lingers = |buffers: &[Life]| {
            let mut longer = buffers.to_vec();
            linger(&mut longer, 8, false);
            let layouts = [0, 8].map(|reuse_distance| lay_out(buffers, ALIGN, reuse_distance, false));
            layouts.iter().for_each(|layout| check(buffers, layout));
            check(&longer, &layouts[1]);
            assert!(longer.iter().zip(buffers).all(|(l, b)| (l.bytes, l.first) == (b.bytes, b.first)));
            let by: Vec<usize> = longer.iter().zip(buffers).map(|(l, b)| l.last - b.last).collect();
            (by, layouts)
        };
        // A forward and backward pass through a network, with a short buffer at every step.
        let count = 200;
        let kept = (0..count).map(|i| Life { bytes: 6400, first: i, last: 2 * count - i });
        let short = (0..2 * count).map(|i| Life { bytes: 3200, first: i, last: i });
        let (by, [without, with]) = lingers(&kept.chain(short.clone()).collect::<Vec<_>>());
        assert_eq!(
            (by[count + 1], by[2 * count - 1], by[2 * count]),
            (8, 0, 0),
            "at first, and where the most is alive"
        );
        assert_eq!((without.lower_bound, without.bytes), (with.lower_bound, with.bytes));
        // The same memory is live at all times.
        let (by, _) = lingers(&short.collect::<Vec<_>>());
        assert!(by[..2 * count - 8].iter().all(|&by| by == 8), "{by:?}");
    }
}
