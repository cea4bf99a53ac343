//! The text form of a lowered program: a line for each node, with its operands, shape and storage, by group once there are groups.
//!
//! An operand is `%3` where all of node 3 is read in order, and `%3{8x6:1,8+2}` for a view: shape, strides and, if there is one, offset.

use crate::fuse::affine_epilogue::AffineEpilogue;
use crate::fuse::group::{Group, Role};
use crate::ir::lowered::LoweredProgram;
use crate::ir::node::{CastForm, Elementwise, Kind, Node, Operand};
use crate::ir::snapshot::Snapshot;
use crate::ir::storage_type::StorageType;
use crate::ir::view::View;
use std::fmt::{Display, Formatter, Result};

impl Display for LoweredProgram<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} operations", self.operations())?;
        self.groups().map_or(Ok(()), |groups| write!(f, " in {groups} groups"))?;
        writeln!(f, ", {} bytes written", self.bytes_written())?;
        let stored = self.stored();
        let outside = |id: &usize| self.live[*id] && self.grouping.is_none_or(|all| all.group_of[*id].is_none());
        (0..self.nodes.len()).filter(outside).try_for_each(|id| self.line(f, id, &stored, "  "))?;
        let groups = self.grouping.map_or(&[][..], |grouping| &grouping.groups);
        for (g, group) in groups.iter().enumerate().filter(|(_, group)| !group.members.is_empty()) {
            writeln!(f, "  group {g}: {}", described(group))?;
            group.members.iter().try_for_each(|&id| self.line(f, id, &stored, "    "))?;
        }
        for (number, output) in self.outputs.iter().enumerate() {
            writeln!(f, "  output {number}: {}", self.operand(output))?;
        }
        for initial_cast in self.initial_casts {
            writeln!(f, "  before the first step: %{} from %{}", initial_cast.cast, initial_cast.input)?;
        }
        for carry in &self.carries {
            let how = if carry.in_place { "in place" } else { "copied" };
            writeln!(f, "  carry: %{} <- {}, {how}", carry.input, self.operand(&carry.next))?;
        }
        Ok(())
    }
}

impl LoweredProgram<'_> {
    fn line(&self, f: &mut Formatter<'_>, id: usize, stored: &[bool], indent: &str) -> Result {
        let node = &self.nodes[id];
        let operands: Vec<String> = node.operands.iter().map(|operand| self.operand(operand)).collect();
        write!(f, "{indent}%{id} = {}", name(&node.kind))?;
        if !operands.is_empty() {
            write!(f, "({})", operands.join(", "))?;
        }
        write!(f, ": {}{:?}", node.dtype, node.shape)?;
        let mut notes = vec![];
        notes.extend(storage(node).map(|name| format!("stored as {name}")));
        notes.extend(self.grouping.and_then(|grouping| grouping.role[id]).map(|role| match role {
            Role::Full => "element".to_string(),
            Role::Row => "row".into(),
            Role::Reduction { full: true } => "reduction of elements".into(),
            Role::Reduction { full: false } => "reduction of rows".into(),
        }));
        if self.grouping.is_some() {
            notes.push(if stored[id] { format!("{} bytes in memory", node.bytes()) } else { "in registers".into() });
        }
        if !node.layout.is_contiguous() {
            notes.push(format!("written as {}", strides(&node.layout)));
        }
        notes.extend(node.invariant.then(|| "invariant".to_string()));
        notes.extend(node.is_remat.then(|| "computed again".to_string()));
        writeln!(f, "{}{}", if notes.is_empty() { "" } else { "; " }, notes.join(", "))
    }

    fn operand(&self, operand: &Operand) -> String {
        match operand {
            Operand::Constant(value) => value.to_string(),
            Operand::At { node, view } if self.nodes[*node].is_whole(view) => format!("%{node}"),
            Operand::At { node, view } => format!("%{node}{}", strides(view)),
        }
    }
}

fn strides(view: &View) -> String {
    let list = |numbers: Vec<String>, between: &str| numbers.join(between);
    let shape = list(view.shape.iter().map(usize::to_string).collect(), "x");
    let strides = list(view.strides.iter().map(isize::to_string).collect(), ",");
    let offset = if view.offset == 0 { String::new() } else { format!("+{}", view.offset) };
    format!("{{{shape}:{strides}{offset}}}")
}

/// The contents of a group.
fn described(group: &Group) -> String {
    let mut text = match group.domain {
        None => "one operation".to_string(),
        Some(domain) => format!("a loop over {} elements", domain.n),
    };
    if let Some(row) = group.domain.and_then(|domain| domain.row) {
        text += &format!(" in rows of {row}");
    }
    if let Some(product) = group.gemm {
        text += &format!(", after the product %{product}");
    }
    if let Some(AffineEpilogue { alpha, addend, bias, .. }) = group.affine {
        text += &format!(", as {alpha}·%");
        addend.into_iter().for_each(|(node, beta)| text += &format!(" + {beta}·%{node}"));
        bias.into_iter().for_each(|(node, _)| text += &format!(" + row %{node}"));
    }
    if let Some(next) = group.second_gemm {
        text += &format!(", before the product %{next}");
    }
    text + if group.invariant { ", once" } else { "" }
}

/// The storage type of a node, if it is not the type of its elements.
fn storage(node: &Node) -> Option<&'static str> {
    match node.storage {
        StorageType::Bf16 => Some("bf16"),
        StorageType::F16 => Some("fp16"),
        StorageType::F32 | StorageType::F64 | StorageType::I32 => None,
    }
}

fn name(kind: &Kind) -> String {
    match kind {
        Kind::Input => "input".into(),
        Kind::CarriedCast(CastForm::Bf16) => "carried cast to bf16".into(),
        Kind::CarriedCast(CastForm::AmaxExponent) => "carried amax exponent".into(),
        Kind::CarriedCast(CastForm::ScaledF16) => "carried cast to scaled fp16".into(),
        Kind::Table(values) if values.len() == 1 => format!("table {}", values[0]),
        Kind::Table(values) => format!("table of {} numbers", values.len()),
        Kind::Elementwise(Elementwise::Unary(op)) => op.name().into(),
        Kind::Elementwise(Elementwise::Binary(op)) => op.name().into(),
        Kind::Elementwise(Elementwise::Round(precision)) => format!("round to {precision}"),
        Kind::Elementwise(Elementwise::Convert(to)) => format!("convert to {to}"),
        Kind::Elementwise(Elementwise::ScaleToF16(_)) => "scale to fp16".into(),
        Kind::Elementwise(Elementwise::Unscale(_)) => "unscale".into(),
        Kind::Elementwise(Elementwise::Random(kind, stream)) => {
            format!("draw {} from stream {stream}", format!("{kind:?}").to_lowercase())
        }
        Kind::Elementwise(function) => format!("{function:?}").to_lowercase(),
        Kind::Reduce(op, axes) => format!("{} along {axes:?}", format!("{op:?}").to_lowercase()),
        Kind::AmaxExponent => "amax".into(),
        Kind::ArgMax => "argmax".into(),
        Kind::Dot(layout, precision) => {
            let batch: usize = layout.batch.iter().map(|(length, _)| length).product();
            let ((a, b), (c, d)) = (layout.a, layout.b);
            let size = format!("{batch}x{}x{}x{}", layout.m, layout.k, layout.n);
            format!("dot {size} in {precision}, strides {a},{b} and {c},{d}")
        }
        Kind::Conv(dims, role, precision) => {
            let pass = format!("{:?}", role.pass()).to_lowercase();
            let (stride, padding, groups) = (dims.stride, dims.padding, dims.groups);
            format!("conv {pass} in {precision}, stride {stride:?}, padding {padding:?}, groups {groups}")
        }
        Kind::Gather { batch } => format!("gather, batch {batch}"),
        Kind::InlineGather { stride, limit, checked } => {
            format!("inline gather of stride {stride}, limit {limit}{}", if *checked { ", checked" } else { "" })
        }
        Kind::ScatterAdd { batch } => format!("scatter_add, batch {batch}"),
        Kind::AddRows { batch } => format!("add rows, batch {batch}"),
        Kind::WindowArgMax(dims) => format!("window argmax {:?}, stride {:?}", dims.size, dims.stride),
        Kind::Block(op) => op.name().into(),
        Kind::CumSum { axis, reverse } => {
            format!("cumsum along {axis}{}", if *reverse { ", reversed" } else { "" })
        }
        Kind::Host(call) => call.function().name().into(),
        Kind::Collective(collective) => collective.name().into(),
        Kind::Concat(axis) => format!("concat along {axis}"),
        Kind::Pad(frame) => format!("pad {:?}, interior {:?}", frame.low, frame.interior),
        Kind::PadSum(frames) => {
            let lows: Vec<String> = frames.iter().map(|frame| format!("{:?}", frame.low)).collect();
            format!("sum of pads at {}", lows.join(" "))
        }
        Kind::CheckIndex { limit, operation } => format!("check that indices of {operation} are below {limit}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::Pipeline;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program};

    #[test]
    fn the_text_shows_nodes_then_groups_storage_and_carries() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [2, 3], DType::F32), g.input("w", [3, 2], DType::F32));
        let y = x.matmul(w).t() + 0.5;
        let program = Program::builder(&g).output("sum", y.sum([1])).carry(x, x * 2.0).build().unwrap();
        let mut texts = vec![];
        let pipeline = Pipeline::new();
        pipeline.observe(&program, &Target::PLAIN, |pass, low| texts.push((pass.name, low.to_string()))).unwrap();
        let text = |name: &str| &texts.iter().find(|(pass, _)| *pass == name).unwrap().1[..];
        let lowered = "\
4 operations, 64 bytes written
  %0 = input: f32[2, 3]
  %1 = input: f32[3, 2]; invariant
  %2 = dot 1x2x3x2 in full, strides 1,2 and 1,3(%1, %0): f32[2, 2]
  %3 = add(%2, 0.5): f32[2, 2]
  %4 = sum along [1](%3): f32[2]
  %5 = mul(%0, 2): f32[2, 3]
  output 0: %4
  carry: %0 <- %5, copied
";
        assert_eq!(text("lower"), lowered);
        let finished = "\
4 operations in 3 groups, 24 bytes written
  %0 = input: f32[2, 3]; 24 bytes in memory
  %1 = input: f32[3, 2]; 24 bytes in memory, invariant
  group 0: one operation
    %2 = dot 1x2x3x2 in full, strides 1,2 and 1,3(%1, %0): f32[2, 2]; 16 bytes in memory
  group 1: a loop over 4 elements in rows of 2
    %3 = add(%2, 0.5): f32[2, 2]; element, in registers
    %4 = sum along [1](%3): f32[2]; row, 8 bytes in memory
  group 2: a loop over 6 elements
    %5 = mul(%0, 2): f32[2, 3]; element, in registers
  output 0: %4
  carry: %0 <- %5, in place
";
        assert_eq!(text("storage"), finished);
    }
}
