//! Thread mappings: which elements of a fused loop each thread computes.

use crate::codegen::limits::VECTOR;

/// The elements of a thread's lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThreadMapping {
    /// Elements e, e + 1, …, one per lane; e is a multiple of the number of lanes.
    Flat {
        /// Number of lanes.
        lanes: usize,
    },
    /// Columns k, k + 1, … of row r, one per lane; k is a multiple of the number of lanes, and e is the first element.
    ColumnMajor {
        /// Number of lanes.
        lanes: usize,
        /// Length of the row.
        length: usize,
    },
    /// Columns of a row in vectors: a thread has the vectors t, t + threads, ….
    RowPerGroup {
        /// Threads that share a row.
        threads: usize,
        /// Columns per thread, a multiple of `beside`.
        lanes: usize,
        /// The row length, a multiple of `beside`.
        length: usize,
        /// The vector width in columns.
        beside: usize,
    },
    /// Columns `left`, left + 1, left + 8, left + 9, left + 16, … of a row: an accumulator fragment of tensor cores,
    /// with four threads per row.
    MmaFragment {
        /// Columns per thread.
        lanes: usize,
    },
}

impl ThreadMapping {
    /// Maps a row to these threads, in the widest vectors that divide it. A thread may have one column more than with
    /// scalars, so that its number is even: a vector is moved by one instruction.
    pub fn row(length: usize, threads: usize) -> ThreadMapping {
        let lanes = |beside: usize| (length / beside).div_ceil(threads) * beside;
        let most = if lanes(1) == 1 { 1 } else { lanes(1).next_multiple_of(2) };
        let fits = |beside: &usize| length.is_multiple_of(*beside) && lanes(*beside) <= most;
        let beside = [VECTOR, VECTOR / 2].into_iter().find(fits).unwrap_or(1);
        ThreadMapping::RowPerGroup { threads, lanes: lanes(beside), length, beside }
    }

    /// Number of lanes.
    pub fn lanes(self) -> usize {
        match self {
            ThreadMapping::Flat { lanes }
            | ThreadMapping::ColumnMajor { lanes, .. }
            | ThreadMapping::RowPerGroup { lanes, .. }
            | ThreadMapping::MmaFragment { lanes } => lanes,
        }
    }

    /// Returns the vector width: that many consecutive lanes are contiguous, and all inside the row or all outside.
    pub fn beside(self) -> usize {
        match self {
            ThreadMapping::Flat { lanes } | ThreadMapping::ColumnMajor { lanes, .. } => lanes,
            ThreadMapping::RowPerGroup { beside, .. } => beside,
            ThreadMapping::MmaFragment { .. } => 2,
        }
    }

    /// Returns the index of the vector of lane j, and the number of vectors.
    fn vector(self) -> Option<(String, usize)> {
        match self {
            ThreadMapping::RowPerGroup { threads, length, beside: 1, .. } => {
                Some((format!("j * {threads} + t"), length))
            }
            ThreadMapping::RowPerGroup { threads, length, beside, .. } => {
                Some((format!("j / {beside} * {threads} + t"), length / beside))
            }
            _ => None,
        }
    }

    /// Returns the name of the current row's index.
    pub fn row_number(self) -> &'static str {
        if matches!(self, ThreadMapping::ColumnMajor { .. }) { "r" } else { "row" }
    }

    /// Returns the condition for lane j to be inside the row.
    pub fn inside(self) -> Option<String> {
        match self {
            ThreadMapping::RowPerGroup { threads, lanes, length, .. } if threads * lanes != length => {
                self.vector().map(|(vector, count)| format!("{vector} < {count}"))
            }
            _ => None,
        }
    }

    /// Returns the column of lane j, valid only inside the row.
    pub fn own_column(self) -> String {
        match self {
            ThreadMapping::Flat { .. } => "0".into(),
            ThreadMapping::ColumnMajor { .. } => "(k + j)".into(),
            ThreadMapping::MmaFragment { .. } => "(U)(left + j / 2 * 8 + j % 2)".to_string(),
            ThreadMapping::RowPerGroup { .. } => {
                self.vector().map_or(String::new(), |(vector, _)| self.column_in(&format!("({vector})")))
            }
        }
    }

    /// Returns the column of lane j; outside the row, one of the last vector. The index is clamped, instead of
    /// selecting an address: for `inside ? place : first`, NVRTC 13.0 occasionally generates sm_90 code that reads the
    /// low half of a 64-bit zero one cycle too early.
    pub fn column(self) -> String {
        match (self.inside(), self.vector()) {
            (Some(_), Some((vector, count))) => self.column_in(&format!("min({vector}, (U){})", count - 1)),
            _ => self.own_column(),
        }
    }

    /// Returns the column of lane j in this vector.
    fn column_in(self, vector: &str) -> String {
        match self.beside() {
            1 => vector.to_string(),
            beside => format!("({vector} * {beside} + j % {beside})"),
        }
    }

    /// Returns the index of the element of lane j; outside the row, one of its last vector.
    pub fn element(self) -> String {
        match self {
            ThreadMapping::Flat { lanes: 1 } | ThreadMapping::ColumnMajor { lanes: 1, .. } => "e".into(),
            ThreadMapping::Flat { .. } | ThreadMapping::ColumnMajor { .. } => "(e + j)".into(),
            ThreadMapping::RowPerGroup { length, .. } => format!("(row * {length} + {})", self.column()),
            ThreadMapping::MmaFragment { lanes } => format!("(row * {} + {})", lanes * 4, self.column()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::kernel::CStorage;
    use crate::codegen::loops::rows::RowThreads;
    use bilevel_plan::StorageType;

    type Join = fn(u32, u32) -> u32;

    /// A C expression of numbers, j and t, as operations on a stack.
    #[derive(Clone, Copy)]
    enum StackOp {
        Number(u32),
        J,
        T,
        Join(Join),
    }

    struct Parser<'a>(std::iter::Peekable<std::str::SplitWhitespace<'a>>, Vec<StackOp>);

    impl Parser<'_> {
        /// Parses an expression with the operator precedence of C.
        fn steps(text: &str) -> Vec<StackOp> {
            let text = text.replace("(U)", "");
            let apart = text.replace('(', " ( ").replace(')', " ) ").replace(',', " , ");
            let mut parser = Parser(apart.split_whitespace().peekable(), vec![]);
            parser.operators(0);
            assert_eq!(parser.0.next(), None, "{text}");
            parser.1
        }

        fn operators(&mut self, level: usize) {
            let known: [&[(&str, Join)]; 3] = [
                &[("<", |a, b| u32::from(a < b))],
                &[("+", |a, b| a + b)],
                &[("*", |a, b| a * b), ("/", |a, b| a / b), ("%", |a, b| a % b)],
            ];
            let Some(own) = known.get(level) else { return self.operand() };
            self.operators(level + 1);
            while let Some((_, join)) = self.0.peek().and_then(|next| own.iter().find(|(name, _)| name == next)) {
                self.0.next();
                self.operators(level + 1);
                self.1.push(StackOp::Join(*join));
            }
        }

        fn operand(&mut self) {
            match self.0.next().unwrap() {
                "j" => self.1.push(StackOp::J),
                "t" => self.1.push(StackOp::T),
                "(" => self.until(")"),
                "min" => {
                    assert_eq!(self.0.next(), Some("("));
                    self.until(",");
                    self.until(")");
                    self.1.push(StackOp::Join(u32::min));
                }
                number => self.1.push(StackOp::Number(number.parse().unwrap())),
            }
        }

        fn until(&mut self, end: &str) {
            self.operators(0);
            assert_eq!(self.0.next(), Some(end));
        }
    }

    fn value(steps: &[StackOp], j: usize, t: usize) -> usize {
        let (mut stack, mut top) = ([0; 16], 0);
        for step in steps {
            if let StackOp::Join(join) = step {
                top -= 1;
                stack[top - 1] = join(stack[top - 1], stack[top]);
                continue;
            }
            stack[top] = match step {
                StackOp::Number(number) => *number,
                StackOp::J => j as u32,
                _ => t as u32,
            };
            top += 1;
        }
        stack[0] as usize
    }

    #[test]
    fn texts_are_read_as_c_reads_them() {
        let of = |text: &str| value(&Parser::steps(text), 7, 3);
        assert_eq!(of("j / 2 * 10 + t"), 33);
        assert_eq!(of("(min(j / 4 * 8 + t, (U)9) * 4 + j % 4)"), 39);
        assert_eq!([of("j * 2 + t < 17"), of("j * 2 + t < 18")], [0, 1]);
    }

    #[test]
    fn every_column_of_a_row_is_one_lane_of_one_thread_and_none_is_out_of_bounds() {
        // Few rows, with a thread per column, and many rows.
        for (rows, length) in (1..=3000).flat_map(|length| [(1, length), (1000, length)]) {
            let RowThreads { threads, .. } = RowThreads::of((rows * length, length));
            let mapping = ThreadMapping::row(length, threads);
            let [own, bounded] = [mapping.own_column(), mapping.column()].map(|text| Parser::steps(&text));
            let inside = Parser::steps(&mapping.inside().unwrap_or("1".into()));
            let mut held = vec![0; length];
            for (t, j) in (0..threads).flat_map(|t| (0..mapping.lanes()).map(move |j| (t, j))) {
                let column = value(&bounded, j, t);
                assert!(column < length, "{mapping:?}: lane {j} of thread {t} reads column {column}");
                if value(&inside, j, t) == 1 {
                    assert_eq!(value(&own, j, t), column, "{mapping:?}");
                    held[column] += 1;
                }
            }
            assert!(held.iter().all(|times| *times == 1), "{mapping:?}");
        }
    }

    #[test]
    fn neighbours_are_moved_at_once_from_multiples_of_their_number_on() {
        let storages = [StorageType::Bf16, StorageType::F32, StorageType::F64];
        for (length, storage) in (1..=3000).flat_map(|length| storages.map(|storage| (length, storage))) {
            let RowThreads { threads, .. } = RowThreads::of((1000 * length, length));
            let (mapping, at_once) =
                (ThreadMapping::row(length, threads), storage.at_once(ThreadMapping::row(length, threads).beside()));
            let (column, inside) = (Parser::steps(&mapping.column()), mapping.inside().unwrap_or("1".into()));
            let inside = Parser::steps(&inside);
            assert!(at_once * storage.size() <= 16 && mapping.lanes().is_multiple_of(at_once) && length % at_once == 0);
            for (t, j) in (0..threads).flat_map(|t| (0..mapping.lanes()).map(move |j| (t, j))) {
                let first = j - j % at_once;
                assert_eq!(value(&column, first, t) % at_once, 0, "{mapping:?}");
                assert_eq!(value(&column, j, t), value(&column, first, t) + j - first, "{mapping:?}");
                assert_eq!(
                    value(&inside, j, t),
                    value(&inside, first, t),
                    "{mapping:?}: all of them are inside, or none"
                );
            }
        }
    }

    #[test]
    fn rows_are_taken_in_vectors_that_leave_few_lanes_empty() {
        let of = |length| {
            let ThreadMapping::RowPerGroup { threads, lanes, beside, .. } =
                RowThreads::of((1000 * length, length)).mapping()
            else {
                return [0; 3];
            };
            [threads, lanes, beside]
        };
        assert_eq!([of(768), of(3072)], [[128, 6, 2], [512, 6, 2]], "quads would leave a quarter of the lanes empty");
        assert_eq!([of(1024), of(200)], [[128, 8, 4], [32, 8, 4]], "and seven lanes are nearly eight");
        assert_eq!([of(197), of(4), of(1)], [[32, 7, 1], [1, 4, 4], [1, 1, 1]]);
        assert_eq!(ThreadMapping::row(30, 32).beside(), 1, "there are threads enough");
    }
}
