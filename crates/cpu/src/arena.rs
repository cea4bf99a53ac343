//! One block of memory for a whole program: buffers whose lives do not overlap share places.

/// A buffer that must exist from step `first` to step `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub bytes: usize,
    pub first: usize,
    pub last: usize,
}

/// Places are multiples of this: a cache line.
pub(crate) const ALIGN: usize = 64;

/// Where every buffer lies, and the size of the block.
pub(crate) struct Layout {
    pub offsets: Vec<usize>,
    pub bytes: usize,
    /// The most that is alive at once: no layout can be smaller.
    pub lower_bound: usize,
}

/// Lays the buffers out: the largest first, each at the lowest place free for all its life.
pub(crate) fn lay_out(buffers: &[Buffer]) -> Layout {
    // Sums saturate: a block of `usize::MAX` bytes is one that cannot be had.
    let size = |b: &Buffer| b.bytes.next_multiple_of(ALIGN);
    let end = |offset: usize, b: &Buffer| offset.saturating_add(size(b));
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(size(&buffers[i])), buffers[i].first, i));
    let mut offsets = vec![0; buffers.len()];
    let mut placed: Vec<usize> = vec![]; // by offset
    let mut bytes = 0;
    for i in order {
        let buffer = &buffers[i];
        let mut offset = 0;
        for &other in &placed {
            let o = &buffers[other];
            let apart = o.last < buffer.first || buffer.last < o.first;
            if apart || end(offsets[other], o) <= offset {
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
    Layout { offsets, bytes, lower_bound: lower_bound(buffers) }
}

fn lower_bound(buffers: &[Buffer]) -> usize {
    let mut events: Vec<(usize, bool, usize)> = vec![];
    for buffer in buffers {
        let size = buffer.bytes.next_multiple_of(ALIGN);
        events.push((buffer.first, true, size));
        events.push((buffer.last + 1, false, size));
    }
    // At one step, what has ended goes before what begins.
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

    #[test]
    fn buffers_alive_together_never_overlap_and_the_block_stays_near_the_bound() {
        let mut state = 7u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..50 {
            let buffers: Vec<Buffer> = (0..random(60))
                .map(|_| {
                    let first = random(40);
                    Buffer { bytes: random(5000), first, last: first + random(10) }
                })
                .collect();
            let layout = lay_out(&buffers);
            for (i, a) in buffers.iter().enumerate() {
                for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let (x, y) = (layout.offsets[i], layout.offsets[j]);
                    assert!(!together || x + a.bytes <= y || y + b.bytes <= x, "{a:?} at {x}, {b:?} at {y}");
                }
                assert!(layout.offsets[i].is_multiple_of(ALIGN) && layout.offsets[i] + a.bytes <= layout.bytes);
            }
            assert!(layout.bytes >= layout.lower_bound && layout.bytes <= layout.lower_bound * 3 / 2 + ALIGN);
        }
    }
}
