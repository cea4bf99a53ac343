//! Cast insertion: rounds the operands and results of products in reduced precision. Each value is rounded once for all
//! products that read it, unless the machine rounds natively.

use crate::ir::node::{Elementwise, Kind, Operand};
use crate::ir::storage_type::StorageType;
use crate::lower::Lowering;
use crate::target::Target;
use bilevel_graph::{DType, Line, Precision};

/// A view of a value that a loop computes is rounded separately only if it is less than 1/4 of the value; otherwise the
/// loop rounds the whole value. Queries, keys and values are each a third.
const MAX_WASTE_FACTOR: usize = 4;

impl Lowering {
    /// Returns the operands of a product as the machine reads them, and the precision left for the machine.
    pub fn factors(
        &mut self,
        operands: Vec<Operand>,
        precision: Precision,
        target: &Target,
        like: Line,
    ) -> (Vec<Operand>, Precision) {
        if precision != Precision::Bf16 || !target.can.gemm_reads_bf16 {
            return self.rounded(operands, precision, target.can.rounds_operands, like);
        }
        (self.stored_as_bf16(operands, like), precision)
    }

    /// Returns the operands rounded to `Bf16` and stored so.
    pub fn stored_as_bf16(&mut self, operands: Vec<Operand>, like: Line) -> Vec<Operand> {
        let (operands, _) = self.rounded(operands, Precision::Bf16, false, like);
        for (node, _) in operands.iter().filter_map(Operand::at) {
            self.nodes[node].storage = StorageType::Bf16;
        }
        operands
    }

    /// Returns the operands rounded, unless the machine rounds natively.
    pub fn rounded(
        &mut self,
        operands: Vec<Operand>,
        precision: Precision,
        multiplies: bool,
        like: Line,
    ) -> (Vec<Operand>, Precision) {
        if precision == Precision::Full || multiplies {
            return (operands, precision);
        }
        let round = |operand| self.rounded_operand(operand, precision, like);
        (operands.into_iter().map(round).collect(), Precision::Full)
    }

    /// Returns the result of a product as others read it: stored in two bytes if the product `narrows`.
    pub fn result(
        &mut self,
        made: Operand,
        precision: Precision,
        narrows: bool,
        target: &Target,
        like: Line,
    ) -> Operand {
        let Some((node, _)) = made.at().filter(|_| precision.rounds_results()) else { return made };
        if narrows {
            self.nodes[node].storage = StorageType::Bf16;
            self.copies.rounded.insert((node, precision), node);
            return made;
        }
        let rounded = self.rounded_operand(made, precision, like);
        if let Some((whole, _)) = rounded.at().filter(|_| target.can.gemm_reads_bf16) {
            // Products read a copy of two bytes; all other readers read this one.
            self.copies.rounded.remove(&(whole, precision));
        }
        rounded
    }

    /// Returns the operand in the type of the graph, through a dense copy if it is stored in two bytes.
    pub fn widened(&mut self, operand: Operand, shape: &[usize], dtype: DType, like: Line) -> Operand {
        if !operand.at().is_some_and(|(node, _)| self.nodes[node].storage.is_reduced()) {
            return operand;
        }
        // Rounding a value that is already rounded changes nothing.
        let node = self.push(Kind::Elementwise(Elementwise::Round(Precision::Bf16)), vec![operand], shape, dtype, like);
        self.dense(node)
    }

    fn rounded_operand(&mut self, operand: Operand, precision: Precision, like: Line) -> Operand {
        let kind = Kind::Elementwise(Elementwise::Round(precision));
        let (node, view) = match operand {
            Operand::Constant(value) => return Operand::Constant(precision.round(value as f32) as f64),
            Operand::At { node, view } => (node, view),
        };
        if self.copies.rounded.get(&(node, precision)) == Some(&node) {
            return Operand::At { node, view };
        }
        let dtype = self.nodes[node].dtype;
        // A small part of a large value is rounded separately; a value that a loop computes is rounded by that loop.
        let in_passing = matches!(self.nodes[node].kind, Kind::Elementwise(_));
        let share = if in_passing { MAX_WASTE_FACTOR } else { 1 };
        if view.count() * share < self.nodes[node].count() {
            let key = (node, view.clone(), Some(precision));
            let known = self.copies.parts.get(&key).copied();
            let part = known.unwrap_or_else(|| {
                let shape = view.shape.clone();
                self.push(kind, vec![Operand::At { node, view }], &shape, dtype, like)
            });
            self.copies.parts.insert(key, part);
            return self.dense(part);
        }
        // The view applies to the rounded copy as well.
        let known = self.copies.rounded.get(&(node, precision)).copied();
        let whole = known.unwrap_or_else(|| {
            let (dense, shape) = (self.dense(node), self.nodes[node].shape.clone());
            self.push(kind, vec![dense], &shape, dtype, like)
        });
        self.copies.rounded.extend([((node, precision), whole), ((whole, precision), whole)]);
        Operand::At { node: whole, view }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use crate::target::Capabilities;
    use bilevel_graph::{Graph, Program, Tensor, nn};

    /// A target with or without native rounding, and with or without two-byte storage.
    fn machine(rounds_operands: bool, gemm_reads_bf16: bool) -> Target {
        Target::PLAIN
            .with(|target| target.can = Capabilities { rounds_operands, gemm_reads_bf16, pad_sum: true, ..target.can })
    }

    /// The precisions of all products, and the sizes of rounded values.
    fn planned(program: &Program, machine: Target) -> (Vec<Precision>, Vec<usize>) {
        let schedule = Schedule::new(program, &machine).unwrap();
        let (mut products, mut rounded) = (vec![], vec![]);
        for &id in schedule.groups().iter().flat_map(|group| &group.members) {
            match schedule.nodes[id].kind {
                Kind::Dot(_, precision) | Kind::Conv(_, _, precision) => products.push(precision),
                Kind::Elementwise(Elementwise::Round(Precision::Bf16)) => rounded.push(schedule.nodes[id].count()),
                _ => {}
            }
        }
        rounded.sort_unstable();
        (products, rounded)
    }

    #[test]
    fn a_machine_with_products_that_round_gets_them_as_they_are() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [8, 5], DType::F32), g.input("w", [5, 6], DType::F32));
        let program = Program::builder(&g).output("y", x.matmul(w)).build().unwrap().with_precision(Precision::Bf16);
        // The result is rounded in either case.
        assert_eq!(planned(&program, machine(true, false)), (vec![Precision::Bf16], vec![48]));
        assert_eq!(planned(&program, machine(false, false)), (vec![Precision::Full], vec![30, 40, 48]));
        let tf32 = program.with_precision(Precision::Tf32);
        assert_eq!(planned(&tf32, machine(true, false)), (vec![Precision::Tf32], vec![]));
    }

    #[test]
    fn a_result_is_not_rounded_again_for_the_next_product() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [8, 6], DType::F32), g.input("w", [6, 6], DType::F32));
        let program = Program::builder(&g).output("y", x.matmul(w).matmul(w)).build().unwrap();
        let program = program.with_precision(Precision::Bf16);
        // x, w and two results; with two-byte storage, the last result is written rounded.
        assert_eq!(planned(&program, machine(false, false)).1, [36, 48, 48, 48]);
        assert_eq!(planned(&program, machine(true, true)).1, [36, 48, 48]);
    }

    #[test]
    fn copies_and_concatenations_of_two_byte_results_have_two_bytes() {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [6, 6], DType::F32));
        let (a, b) = (x.matmul(w), w.matmul(x));
        let joined = |parts: [Tensor; 2]| parts[0].pad(0, 0, 6) + parts[1].pad(0, 6, 0);
        let both = |parts: [Tensor; 2]| {
            let y = joined(parts).matmul(w);
            let program = Program::builder(&g).output("y", y).build().unwrap().with_precision(Precision::Bf16);
            let schedule = Schedule::new(&program, &machine(true, true)).unwrap();
            let is_overlay = |kind: &Kind| matches!(kind, Kind::PadSum(_));
            schedule.nodes.iter().find(|node| is_overlay(&node.kind)).unwrap().storage == StorageType::Bf16
        };
        assert!(both([a, b]));
        assert!(!both([a, b.tanh()]), "a piece of four bytes");
        let meet = a.pad(0, 1, 5) + b.pad(0, 6, 0);
        let program = Program::builder(&g).output("y", meet.matmul(w)).build().unwrap().with_precision(Precision::Bf16);
        let schedule = Schedule::new(&program, &machine(true, true)).unwrap();
        let sums = schedule.nodes.iter().filter(|node| matches!(node.kind, Kind::PadSum(_)));
        assert!(sums.map(|node| node.storage).eq([StorageType::F32]), "a sum of two that meet");
    }

    #[test]
    fn products_read_and_write_two_bytes_if_the_target_supports_it() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [8, 5], DType::F32), g.input("w", [5, 6], DType::F32));
        let y = x.tanh().matmul(w).tanh().matmul(w.t());
        let program = Program::builder(&g).output("y", y).build().unwrap().with_precision(Precision::Bf16);
        let machine_of_two_bytes = machine(true, true);
        // The output has four bytes.
        assert_eq!(planned(&program, machine(true, true)), (vec![Precision::Bf16; 2], vec![30, 40, 40, 48]));
        let schedule = Schedule::new(&program, &machine_of_two_bytes).unwrap();
        let reduced = schedule.nodes.iter().filter(|node| node.storage.is_reduced());
        assert_eq!(reduced.map(|node| node.bytes()).sum::<usize>(), 2 * (30 + 40 + 48 + 48 + 40));
        let (output, _) = schedule.outputs[0].at().unwrap();
        assert_eq!(schedule.nodes[output].storage, StorageType::F32);
    }

    #[test]
    fn a_result_of_four_bytes_keeps_them_for_whoever_else_reads_it() {
        let g = Graph::new();
        let (x, k) = (g.input("x", [2, 3, 4, 4], DType::F32), g.input("k", [5, 3, 3, 3], DType::F32));
        let at = g.input("at", [3], DType::I32);
        let y = nn::conv2d(x, k, None, nn::Conv2d::default());
        let rows = y.reshape([10, 4]);
        // Rows are taken before a product reads all of them.
        let program = Program::builder(&g).output("taken", rows.take(at)).output("product", rows.t().matmul(rows));
        let program = program.build().unwrap().with_precision(Precision::Bf16);
        let schedule = Schedule::new(&program, &machine(true, true)).unwrap();
        for node in &schedule.nodes {
            let mut read = node.reads().map(|(read, _)| schedule.nodes[read].storage);
            match node.kind {
                Kind::Gather { .. } => assert!(!read.any(StorageType::is_reduced)),
                Kind::Dot(..) => assert!(read.all(|storage| storage == StorageType::Bf16)),
                _ => {}
            }
        }
    }

    #[test]
    fn an_operand_is_rounded_once_however_it_is_read_and_a_part_of_it_alone() {
        let g = Graph::new();
        let [x, w, b] =
            [("x", &[8, 5][..]), ("w", &[5, 5]), ("b", &[5])].map(|(name, shape)| g.input(name, shape, DType::F32));
        let right = [w, w.t(), b.broadcast([0], [5, 9]), w.slice(1, 0, 2)];
        let builder = Program::builder(&g).outputs("", right.into_iter().map(|right| x.matmul(right)));
        let program = builder.build().unwrap().with_precision(Precision::Bf16);
        // b as it is before it is repeated, two columns of w, w, and x; then the results.
        let (operands, results) = ([5, 10, 25, 40], [16, 40, 40, 72]);
        let mut all = [operands, results].concat();
        all.sort_unstable();
        assert_eq!(planned(&program, machine(false, false)), (vec![Precision::Full; 4], all));
    }

    #[test]
    fn parts_of_a_loops_result_are_rounded_in_that_loop_unless_they_are_small() {
        let g = Graph::new();
        let [x, w, b] =
            [("x", &[8, 5][..]), ("w", &[5, 12]), ("b", &[12])].map(|(name, shape)| g.input(name, shape, DType::F32));
        let all = x.matmul(w) + b;
        let thirds = [0, 1, 2].map(|third| all.slice(1, 4 * third, 4 * third + 4));
        let sums = all.slice(1, 0, 1).t().matmul(thirds[0]);
        let scores = thirds[0].matmul(thirds[1].t()).matmul(thirds[2]);
        let program = Program::builder(&g).output("scores", scores).output("sums", sums).build().unwrap();
        // One column, x and w, all of 96 at once; and results: sums, what the scores give, the scores themselves, and
        // all of 96.
        let rounded = planned(&program.with_precision(Precision::Bf16), machine(false, false)).1;
        assert_eq!(rounded, [4, 8, 32, 40, 60, 64, 96, 96]);
    }
}
