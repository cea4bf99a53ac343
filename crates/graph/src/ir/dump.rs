//! Programs for people to read: a text form with one operation per line, and a Graphviz drawing.

use crate::Precision;
use crate::ir::collective::CollectiveKind;
use crate::ir::op::{BlockOp, ConvDims, DotDims, Op};
use crate::ir::program::{Program, ProgramNode};
use std::fmt::{self, Write};

/// The text form: inputs, operations and outputs with their types, shapes and lines of user code.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program};
/// let g = Graph::new();
/// let x = g.input("x", [4, 3], DType::F32);
/// let program = Program::builder(&g).output("norm", (x * x).sum_all().sqrt()).build().unwrap();
/// let text = program.to_string();
/// assert!(text.contains("%1 = mul %0 %0 : f32[4, 3]"), "{text}");
/// ```
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dump(true))
    }
}

impl Program {
    /// The text form of [`Display`](fmt::Display), with or without the lines of user code.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// let g = Graph::new();
    /// let x = g.input("x", [2], DType::F64);
    /// let program = Program::builder(&g).carry(x, x.sin()).build().unwrap();
    /// let text = "%0 = input 'x' : f64[2]\n%1 = sin %0 : f64[2]\ncarry 'x' <- %1\n";
    /// assert_eq!(program.dump(false), text);
    /// ```
    pub fn dump(&self, with_lines: bool) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let _ = write!(text, "%{number} = {}", self.described(number));
            for input in &node.inputs {
                let _ = write!(text, " %{input}");
            }
            let _ = write!(text, " : {}{:?}", node.meta.dtype, node.meta.shape);
            if with_lines {
                let _ = write!(text, "  // {}", node.location.short());
            }
            text.push('\n');
        }
        for port in &self.outputs {
            let _ = writeln!(text, "output '{}' = %{}", port.name, number_of(port.node));
        }
        for carry in &self.carries {
            let input = self.inputs.get(carry.input).map_or("", |port| &port.name);
            let _ = writeln!(text, "carry '{input}' <- %{}", carry.next);
        }
        text
    }

    /// The program as a Graphviz drawing: `dot -Tsvg` turns it into a picture. Arrows go from operands to users; a
    /// dashed one is a carried value.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// let g = Graph::new();
    /// let x = g.input("x", [2], DType::F64);
    /// let program = Program::builder(&g).output("y", x.exp()).build().unwrap();
    /// assert!(program.to_dot().contains("n0 -> n1;"));
    /// ```
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph program {\n  node [shape=box, fontname=\"monospace\"];\n");
        for (number, node) in self.nodes.iter().enumerate() {
            let label =
                format!("%{number} {}\\n{}{:?}", quoted(&self.described(number)), node.meta.dtype, node.meta.shape);
            let style = if matches!(node.op, Op::Input(_)) { ", style=filled" } else { "" };
            let _ = writeln!(text, "  n{number} [label=\"{label}\"{style}];");
            for input in &node.inputs {
                let _ = writeln!(text, "  n{input} -> n{number};");
            }
        }
        for (number, port) in self.outputs.iter().enumerate() {
            let _ = writeln!(text, "  o{number} [label=\"{}\", shape=ellipse];", quoted(&port.name));
            let _ = writeln!(text, "  n{} -> o{number};", number_of(port.node));
        }
        for carry in &self.carries {
            let input = number_of(self.inputs.get(carry.input).and_then(|port| port.node));
            let _ = writeln!(text, "  n{} -> n{input} [style=dashed, constraint=false];", carry.next);
        }
        text.push_str("}\n");
        text
    }

    /// An operation and its attributes; inputs by name.
    fn described(&self, number: usize) -> String {
        match &self.nodes[number] {
            ProgramNode { op: Op::Input(_), .. } => {
                let port = self.inputs.iter().find(|port| port.node == Some(number));
                format!("input '{}'", port.map_or("", |port| &port.name))
            }
            node => describe(&node.op),
        }
    }
}

/// Ports without a node are written as a number no node has.
fn number_of(node: Option<usize>) -> String {
    node.map_or("-".into(), |number| number.to_string())
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The name of an operation with its attributes, such as `slice[0..4:2, 1..3]`.
pub(crate) fn describe(op: &Op) -> String {
    match op {
        Op::Input(number) => format!("input {number}"),
        Op::Constant(bits) => format!("constant({})", f64::from_bits(*bits)),
        Op::Iota(axis) => format!("iota[{axis}]"),
        Op::Random(kind, stream) => format!("random_{}[stream {stream}]", format!("{kind:?}").to_lowercase()),
        Op::Unary(op) => op.name().into(),
        Op::Binary(op) => op.name().into(),
        Op::Select => "select".into(),
        Op::Convert(to) => format!("convert[{to}]"),
        Op::CheckIndex(limit) => format!("check_index[0..{limit}]"),
        Op::StopGradient => "stop_gradient".into(),
        Op::Custom(rule) => format!("custom[rule {rule}]"),
        Op::Reshape => "reshape".into(),
        Op::Transpose(perm) => format!("transpose{perm:?}"),
        Op::Broadcast(axes) => format!("broadcast{axes:?}"),
        Op::Slice { start, stop, step } => {
            let range = |((start, stop), step): ((&usize, &usize), &usize)| match step {
                1 => format!("{start}..{stop}"),
                by => format!("{start}..{stop}:{by}"),
            };
            format!("slice[{}]", start.iter().zip(stop).zip(step).map(range).collect::<Vec<_>>().join(", "))
        }
        Op::Pad { low, high, interior } => {
            let one = |((low, high), interior): ((&usize, &usize), &usize)| match interior {
                0 => format!("{low}+{high}"),
                between => format!("{low}+{high}:{between}"),
            };
            format!("pad[{}]", low.iter().zip(high).zip(interior).map(one).collect::<Vec<_>>().join(", "))
        }
        Op::Concat(axis) => format!("concat[{axis}]"),
        Op::Reverse(axes) => format!("reverse{axes:?}"),
        Op::Reduce(op, axes) => format!("{}{axes:?}", format!("{op:?}").to_lowercase()),
        Op::ArgMax(axis) => format!("argmax[{axis}]"),
        Op::Dot(dims, precision) => describe_dot(dims, *precision),
        Op::Conv(dims, _, precision) => describe_conv(dims, *precision),
        Op::Gather { batch } => format!("gather[batch {batch}]"),
        Op::Host(call) => call.function().name().into(),
        Op::Collective(collective) => match &collective.kind {
            CollectiveKind::SumRanks => collective.name().into(),
            CollectiveKind::GatherRanks(parts) | CollectiveKind::ScatterSum(parts) => {
                format!("{}{parts:?}", collective.name())
            }
        },
        Op::ScatterAdd { batch, size } => format!("scatter_add[batch {batch}, size {size}]"),
        Op::WindowArgMax(dims) => {
            format!("window_argmax[size {:?}, stride {:?}, padding {:?}]", dims.size, dims.stride, dims.padding)
        }
        Op::Block(op @ (BlockOp::ArgSort | BlockOp::Cholesky)) => op.name().into(),
        Op::Block(op @ BlockOp::ScatterArgMax { size }) => format!("{}[size {size}]", op.name()),
        Op::Block(op @ BlockOp::TriangularSolve { lower, transposed }) => {
            let triangle = if *lower { "lower" } else { "upper" };
            format!("{}[{triangle}{}]", op.name(), if *transposed { ", transposed" } else { "" })
        }
        Op::CumSum { axis, reverse } => format!("cumsum[{axis}{}]", if *reverse { ", from the end" } else { "" }),
    }
}

fn describe_dot(dims: &DotDims, precision: Precision) -> String {
    let pair = |l: &[usize], r: &[usize]| format!("{l:?}·{r:?}");
    let batch = match dims.lhs_batch.is_empty() {
        true => String::new(),
        false => format!(", batch {}", pair(&dims.lhs_batch, &dims.rhs_batch)),
    };
    format!("dot[{}{batch}{}]", pair(&dims.lhs_contract, &dims.rhs_contract), rounding(precision))
}

/// The last attribute of a product; nothing if it does not round.
fn rounding(precision: Precision) -> String {
    if precision == Precision::Full { String::new() } else { format!(", {precision}") }
}

fn describe_conv(dims: &ConvDims, precision: Precision) -> String {
    let mut text = format!("conv[stride {:?}, padding {:?}", dims.stride, dims.padding);
    for (name, value) in [("image dilation", dims.image_dilation), ("kernel dilation", dims.kernel_dilation)] {
        if value != [1, 1] {
            let _ = write!(text, ", {name} {value:?}");
        }
    }
    if dims.groups != 1 {
        let _ = write!(text, ", groups {}", dims.groups);
    }
    text + &rounding(precision) + "]"
}
