//! Batch axes: many products of one shape, each at its own place.

/// One batch axis: its length and how far each operand moves along it, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchAxis {
    /// Number of products along the axis.
    pub len: usize,
    /// Step of A.
    pub a: isize,
    /// Step of B.
    pub b: isize,
    /// Step of C.
    pub c: isize,
}

/// Most batch axes left after merging.
const MAX_BATCH_AXES: usize = 12;

/// Drops axes of length 1 and merges neighbours that move all operands evenly.
pub(crate) fn merge(axes: &[BatchAxis]) -> Vec<BatchAxis> {
    let mut out: Vec<BatchAxis> = Vec::new();
    for &x in axes.iter().filter(|x| x.len != 1) {
        match out.last_mut() {
            Some(o) if o.a == x.a * x.len as isize && o.b == x.b * x.len as isize && o.c == x.c * x.len as isize => {
                *o = BatchAxis { len: o.len * x.len, ..x };
            }
            _ => out.push(x),
        }
    }
    assert!(out.len() <= MAX_BATCH_AXES, "a product has at most {MAX_BATCH_AXES} batch axes");
    out
}

/// Goes through the products in order, keeping the three offsets.
pub(crate) struct Walk<'a> {
    axes: &'a [BatchAxis],
    index: [usize; MAX_BATCH_AXES],
    /// Offset of A.
    pub a: isize,
    /// Offset of B.
    pub b: isize,
    /// Offset of C.
    pub c: isize,
}

impl Walk<'_> {
    /// Starts at the product with this number.
    pub(crate) fn at(axes: &[BatchAxis], mut flat: usize) -> Walk<'_> {
        let mut w = Walk { axes, index: [0; MAX_BATCH_AXES], a: 0, b: 0, c: 0 };
        if flat > 0 {
            for (x, index) in axes.iter().zip(&mut w.index).rev() {
                *index = flat % x.len;
                flat /= x.len;
                let i = *index as isize;
                (w.a, w.b, w.c) = (w.a + i * x.a, w.b + i * x.b, w.c + i * x.c);
            }
        }
        w
    }

    /// Goes on to the next product (from the last one, to the first).
    pub(crate) fn step(&mut self) {
        for (x, index) in self.axes.iter().zip(&mut self.index).rev() {
            *index += 1;
            (self.a, self.b, self.c) = (self.a + x.a, self.b + x.b, self.c + x.c);
            if *index < x.len {
                return;
            }
            let n = x.len as isize;
            *index = 0;
            (self.a, self.b, self.c) = (self.a - n * x.a, self.b - n * x.b, self.c - n * x.c);
        }
    }
}
