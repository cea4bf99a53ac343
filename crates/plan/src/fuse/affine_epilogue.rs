//! Affine epilogues: the loops after a product that BLAS libraries apply to its result before they store it.
//!
//!   D = α·A·B + β·C + b
//!
//! C has the layout of D, and b has one element per column. The sum of two products, a gradient step w − γ·XᵀY and a
//! bias are such loops. The product itself is then never in memory.

use crate::ir::dot_layout::DotLayout;
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use crate::ir::storage_type::StorageType;
use crate::ir::view::{Run, View};
use bilevel_graph::{BinaryOp, DType, UnaryOp};

/// Libraries load a bias in vectors of this many bytes.
const BIAS_ALIGNMENT: usize = 16;

/// The loop after a product as an affine map of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineEpilogue {
    /// The factor α of the product.
    pub alpha: f64,
    /// The node C, with its factor β.
    pub addend: Option<(usize, f64)>,
    /// The node of the bias b, with the offset of its first element.
    pub bias: Option<(usize, isize)>,
    /// The node D, the last member of the loop.
    pub result: usize,
}

impl AffineEpilogue {
    /// Returns the affine map that the members of a loop apply to a product; `None` if they are not one. Products whose
    /// results are rounded have none: the sum would be rounded at another place.
    pub fn of(nodes: &[Node], product: usize, members: &[usize]) -> Option<Self> {
        let node = &nodes[product];
        let Kind::Dot(layout, _) = &node.kind else { return None };
        let single = layout.batch.iter().all(|(length, _)| *length == 1);
        let is_float = node.dtype != DType::I32 && node.storage == StorageType::from(node.dtype);
        let DotLayout { m, n, c, .. } = *layout;
        let is_dense = c == (n as isize, 1) || c == (1, m as isize);
        if !(single && is_float && is_dense && node.count() > 0) {
            return None;
        }
        let start = AffineEpilogue { alpha: 1.0, addend: None, bias: None, result: product };
        let found = members.iter().try_fold(start, |form, &id| form.then(nodes, layout, id))?;
        (found.result != product).then_some(found)
    }

    /// Returns the composition with a member that reads the result so far.
    fn then(self, nodes: &[Node], layout: &DotLayout, id: usize) -> Option<Self> {
        let node = &nodes[id];
        let Kind::Elementwise(function) = &node.kind else { return None };
        if node.storage != nodes[self.result].storage {
            return None;
        }
        let is_result = |operand: &Operand| operand.at().is_some_and(|(read, _)| read == self.result);
        let found = match (function, &node.operands[..]) {
            (Elementwise::Unary(UnaryOp::Neg), [x]) if is_result(x) => self.scaled(-1.0),
            (Elementwise::Binary(op), [x, y]) if is_result(x) != is_result(y) => {
                let (first, other) = if is_result(x) { (true, y) } else { (false, x) };
                match (op, other) {
                    (BinaryOp::Mul, Operand::Constant(factor)) => self.scaled(*factor),
                    (BinaryOp::Add, _) => self.plus(nodes, layout, other, 1.0),
                    (BinaryOp::Sub, _) if first => self.plus(nodes, layout, other, -1.0),
                    (BinaryOp::Sub, _) => self.scaled(-1.0)?.plus(nodes, layout, other, 1.0),
                    _ => None,
                }
            }
            _ => None,
        };
        found.map(|form| AffineEpilogue { result: id, ..form })
    }

    /// Returns the form times a constant; a bias has no factor.
    fn scaled(self, factor: f64) -> Option<Self> {
        let addend = self.addend.map(|(node, beta)| (node, beta * factor));
        self.bias.is_none().then_some(AffineEpilogue { alpha: self.alpha * factor, addend, ..self })
    }

    /// Returns the form plus, or minus, an array in memory.
    fn plus(self, nodes: &[Node], layout: &DotLayout, operand: &Operand, sign: f64) -> Option<Self> {
        let (read, view) = operand.at()?;
        let source = &nodes[read];
        if source.storage != nodes[self.result].storage {
            return None;
        }
        if source.is_whole(view) && self.addend.is_none() {
            return Some(AffineEpilogue { addend: Some((read, sign)), ..self });
        }
        let is_aligned = (view.offset * source.storage.size() as isize) % BIAS_ALIGNMENT as isize == 0;
        let is_bias = is_aligned && sign == 1.0 && self.bias.is_none() && repeats_along_columns(layout, view);
        is_bias.then_some(AffineEpilogue { bias: Some((read, view.offset)), ..self })
    }
}

/// Returns true if a view repeats one dense row in every row of a row-major result.
fn repeats_along_columns(layout: &DotLayout, view: &View) -> bool {
    let (rows, columns) = (Run { length: layout.m, stride: 0 }, Run { length: layout.n, stride: 1 });
    layout.m > 1 && layout.n > 1 && layout.c == (layout.n as isize, 1) && view.runs() == [rows, columns]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{Graph, Precision, Program, Tensor};

    fn machine() -> Target {
        Target::PLAIN.with(|target| {
            target.can.affine_epilogue = Some(|_| true);
            (target.can.gemm_reads_bf16, target.can.rounds_operands) = (true, true);
        })
    }

    /// The schedule of a function of X·W, another 6×5 array and a row of 5.
    fn planned(make: impl FnOnce(Tensor, Tensor, Tensor) -> Tensor) -> Schedule {
        let g = Graph::new();
        let [x, w, c] = [("x", [6, 8]), ("w", [8, 5]), ("c", [6, 5])].map(|(name, of)| g.input(name, of, DType::F32));
        let y = make(x.matmul(w), c, g.input("b", [5], DType::F32).broadcast_to([6, 5]));
        Schedule::new(&Program::builder(&g).output("y", y).build().unwrap(), &machine()).unwrap()
    }

    /// α, β, and whether there is a bias, of the only affine epilogue; `None` if there is none.
    fn form(schedule: &Schedule) -> Option<(f64, Option<f64>, bool)> {
        let found: Vec<_> = schedule.groups().iter().filter_map(|group| group.affine).collect();
        assert!(found.len() <= 1);
        found.first().map(|form| (form.alpha, form.addend.map(|(_, beta)| beta), form.bias.is_some()))
    }

    #[test]
    fn sums_differences_multiples_and_a_bias_are_affine() {
        assert_eq!(form(&planned(|p, _, b| p + b)), Some((1.0, None, true)));
        assert_eq!(form(&planned(|p, c, _| c - p * 0.5)), Some((-0.5, Some(1.0), false)));
        assert_eq!(form(&planned(|p, c, b| (p - c) * 2.0 + b)), Some((2.0, Some(-2.0), true)));
        assert_eq!(form(&planned(|p, _, _| -p)), Some((-1.0, None, false)));
    }

    #[test]
    fn other_loops_are_not() {
        type Make = fn(Tensor, Tensor, Tensor) -> Tensor;
        let all: [Make; 6] = [
            |p, _, b| (p + b).tanh(),
            |p, c, _| p * c,
            |p, c, _| p + c + c.sin(),
            |p, _, b| p - b,
            |p, _, b| (p + b) * 2.0,
            |p, _, _| p * p,
        ];
        for make in all {
            assert_eq!(form(&planned(make)), None);
        }
    }

    #[test]
    fn the_product_and_the_steps_to_the_result_are_not_in_memory() {
        let schedule = planned(|p, c, b| (p - c) * 2.0 + b);
        let [group] = schedule.groups() else { panic!("one group") };
        let form = group.affine.unwrap();
        let stored: Vec<usize> = group.members.iter().copied().filter(|&id| schedule.is_stored(id)).collect();
        assert_eq!((stored, group.gemm), (vec![form.result], Some(group.members[0])));
    }

    #[test]
    fn a_sum_that_another_reads_before_its_end_leaves_the_product_alone() {
        let g = Graph::new();
        let [x, w, c] = ["x", "w", "c"].map(|name| g.input(name, [6, 6], DType::F32));
        let sum = x.matmul(w) + c;
        for (program, fused) in [
            (Program::builder(&g).output("sum", sum).output("next", sum.matmul(w)).build().unwrap(), true),
            (Program::builder(&g).output("sum", sum).output("more", sum * 2.0).build().unwrap(), false),
            (Program::builder(&g).output("product", x.matmul(w)).output("sum", sum).build().unwrap(), false),
        ] {
            let schedule = Schedule::new(&program, &machine()).unwrap();
            assert_eq!(form(&schedule).is_some(), fused);
        }
    }

    #[test]
    fn rounded_products_have_none() {
        let g = Graph::new();
        let [x, w, c] = ["x", "w", "c"].map(|name| g.input(name, [6, 6], DType::F32));
        let program = Program::builder(&g).output("y", x.matmul(w) + c).build().unwrap();
        for (precision, fused) in [(Precision::Full, true), (Precision::Tf32, true), (Precision::Bf16, false)] {
            let schedule = Schedule::new(&program.clone().with_precision(precision), &machine()).unwrap();
            assert_eq!(form(&schedule).is_some(), fused, "{precision}");
        }
    }

    #[test]
    fn a_gradient_step_writes_over_the_weights() {
        let g = Graph::new();
        let [x, w] = [("x", [9, 6]), ("w", [6, 5])].map(|(name, of)| g.input(name, of, DType::F64));
        let slope = x.t().matmul(x.matmul(w).tanh());
        let program = Program::builder(&g).carry(w, w - slope * 0.1).build().unwrap();
        let schedule = Schedule::new(&program, &machine()).unwrap();
        assert!(schedule.carries[0].in_place);
        assert_eq!(form(&schedule), Some((-0.1, Some(1.0), false)));
        let product = schedule.groups().iter().find(|group| group.affine.is_some()).unwrap().members[0];
        assert!(!schedule.is_stored(product));
    }
}
