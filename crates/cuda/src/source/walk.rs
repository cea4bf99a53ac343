//! How the elements of a fused loop are shared out among threads.

/// Which elements the lanes of a thread are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Walk {
    /// Elements e, e + 1, …, as many as there are lanes; e is a multiple of their number.
    Side {
        /// Number of lanes.
        lanes: usize,
    },
    /// Columns t, t + threads, … of a row.
    Row {
        /// Threads that share a row.
        threads: usize,
        /// Columns of each.
        lanes: usize,
        /// Length of the row.
        length: usize,
    },
    /// Columns `left`, left + 1, left + 8, left + 9, left + 16, … of a row, as tensor cores leave them to four threads.
    Quad {
        /// Columns of each.
        lanes: usize,
    },
}

impl Walk {
    /// Number of lanes.
    pub fn lanes(self) -> usize {
        match self {
            Walk::Side { lanes } | Walk::Row { lanes, .. } | Walk::Quad { lanes } => lanes,
        }
    }

    /// The condition under which lane j is an element.
    pub fn inside(self) -> Option<String> {
        match self {
            Walk::Row { threads, lanes, length } if threads * lanes != length => {
                Some(format!("j * {threads} + t < {length}"))
            }
            _ => None,
        }
    }

    /// The column of lane j; beyond the end of the row, its last stands in. It is the number that is bounded, not the place in memory that is
    /// chosen by a condition: of `inside ? place : first`, NVRTC 13.0 now and then makes code for sm_90 that reads the low half of a 64-bit zero
    /// a cycle before it is there.
    pub fn column(self) -> String {
        let (column, length) = match self {
            Walk::Row { threads, length, .. } => (format!("j * {threads} + t"), length),
            Walk::Quad { .. } => return "(U)(left + j / 2 * 8 + j % 2)".to_string(),
            Walk::Side { .. } => return "0".into(),
        };
        if self.inside().is_none() { format!("({column})") } else { format!("min({column}, (U){})", length - 1) }
    }

    /// The number of the element of lane j; beyond the end of a row, that of its last.
    pub fn element(self) -> String {
        match self {
            Walk::Side { lanes: 1 } => "e".into(),
            Walk::Side { .. } => "(e + j)".into(),
            Walk::Row { length, .. } => format!("(row * {length} + {})", self.column()),
            Walk::Quad { lanes } => format!("(row * {} + {})", lanes * 4, self.column()),
        }
    }
}
