//! The verifier's rules for single nodes: operands, shapes and types of each kind.

use crate::ir::dot_layout::DotLayout;
use crate::ir::index_dims::IndexDims;
use crate::ir::lowered::LoweredProgram;
use crate::ir::node::{Elementwise, Kind, Node, Padding};
use crate::ir::verify::require;
use crate::ir::view::View;
use bilevel_graph::{DType, Precision, Result};
use std::ops::RangeInclusive;

impl LoweredProgram<'_> {
    /// Checks one node.
    pub(crate) fn verify_node(&self, id: usize) -> Result<()> {
        let node = &self.nodes[id];
        for (read, view) in node.reads() {
            require(read < id, || format!("node {id} reads node {read}, which does not come before it"))?;
            self.verify_view(read, view, || format!("node {id}"))?;
        }
        require(node.layout.shape == node.shape || node.layout.count() == node.count(), || {
            format!("node {id} has {} elements and a layout of {}", node.count(), node.layout.count())
        })?;
        self.verify_view(id, &node.layout, || format!("the layout of node {id}"))?;
        self.verify_storage(id)?;
        if node.invariant && self.computes(id) {
            let varying = node.reads().map(|(read, _)| read).find(|&read| !self.nodes[read].invariant);
            require(varying.is_none(), || format!("node {id} is invariant and reads node {varying:?}, which is not"))?;
        }
        self.verify_kind(id)
    }

    fn verify_kind(&self, id: usize) -> Result<()> {
        let node = &self.nodes[id];
        let operands = operands_of(&node.kind);
        require(operands.contains(&node.operands.len()), || {
            format!("node {id} has {} operands instead of {operands:?}", node.operands.len())
        })?;
        let constant = node.operands.iter().any(|operand| operand.at().is_none());
        require(!constant || matches!(node.kind, Kind::Elementwise(_)), || {
            format!("node {id} reads a constant and must read memory")
        })?;
        let views: Vec<(usize, &View)> = node.reads().collect();
        match &node.kind {
            Kind::Input | Kind::CarriedCast(_) => Ok(()),
            Kind::Table(values) => require(values.len() == node.count(), || format!("table {id} has another size")),
            Kind::Elementwise(Elementwise::Random(..)) => {
                let counts: Vec<usize> = views.iter().map(|(_, view)| view.count()).collect();
                require(counts == [2, 1], || {
                    format!("node {id} draws with a key and a counter of {counts:?} numbers")
                })?;
                self.require_types(id, &[DType::I32; 2])
            }
            Kind::Elementwise(function) => self.verify_elementwise(id, *function),
            Kind::Reduce(_, axes) => {
                let shape = &views[0].1.shape;
                let in_range = axes.iter().all(|&axis| axis < shape.len());
                let kept: Vec<usize> =
                    (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
                require(in_range && kept.iter().product::<usize>() == node.count(), || {
                    format!("node {id} reduces {shape:?} along {axes:?} to {:?}", node.shape)
                })?;
                self.require_types(id, &[node.dtype])
            }
            Kind::AmaxExponent => {
                require(node.count() == 1, || format!("node {id} is one exponent and has {:?}", node.shape))?;
                self.require_types(id, &[DType::F32])
            }
            Kind::ArgMax => {
                let rows: usize = views[0].1.shape.iter().rev().skip(1).product();
                require(rows == node.count() && node.dtype == DType::I32, || {
                    format!("node {id} has not one index for each row")
                })
            }
            Kind::Dot(layout, _) => {
                self.verify_dot(id, layout)?;
                self.require_types(id, &[node.dtype; 2])
            }
            Kind::Conv(dims, role, _) => {
                require(role.fits(dims), || {
                    format!("node {id} is said to be {:?} and spreads the image of its convolution", role.pass())
                })?;
                let planes = views.iter().all(|(_, view)| view.shape.len() == 4) && node.shape.len() == 4;
                require(planes, || format!("node {id} convolves values that have not four axes"))?;
                self.require_types(id, &[node.dtype; 2])
            }
            Kind::Gather { .. } | Kind::InlineGather { .. } | Kind::ScatterAdd { .. } | Kind::AddRows { .. } => {
                self.verify_indexed(id, &views)
            }
            Kind::WindowArgMax(_) | Kind::Host(_) | Kind::Collective(_) | Kind::Block(_) => self.require_whole(id),
            Kind::CumSum { axis, .. } => {
                self.require_whole(id)?;
                require(*axis < node.shape.len(), || format!("node {id} sums along axis {axis} of {:?}", node.shape))
            }
            Kind::Concat(axis) => verify_concat(id, *axis, &views, node),
            Kind::Pad(frame) => verify_frame(id, frame, views[0].1, node),
            Kind::PadSum(frames) => {
                frames.iter().zip(&views).try_for_each(|(frame, (_, view))| verify_frame(id, frame, view, node))
            }
            Kind::CheckIndex { .. } => {
                self.require_whole(id)?;
                self.require_types(id, &[DType::I32])
            }
        }
    }

    /// Operations by row numbers.
    fn verify_indexed(&self, id: usize, views: &[(usize, &View)]) -> Result<()> {
        let node = &self.nodes[id];
        match &node.kind {
            Kind::Gather { batch } => {
                self.require_whole(id)?;
                let rows = IndexDims::new(&views[0].1.shape, &views[1].1.shape, *batch);
                require(rows.batch * rows.k * rows.inner == node.count(), || {
                    format!("node {id} gathers {rows:?} into {:?}", node.shape)
                })?;
                self.require_types(id, &[node.dtype, DType::I32])
            }
            Kind::InlineGather { stride, limit, .. } => {
                let fits = views.iter().all(|(_, view)| view.count() == node.count());
                require(fits, || format!("node {id} gathers another number of elements than it has indices"))?;
                let mut furthest = views[1].1.clone();
                furthest.offset += (*stride * limit.saturating_sub(1)) as isize;
                let table = views[1].0;
                self.verify_view(table, &furthest, || format!("with its last index, node {id}"))?;
                self.require_types(id, &[DType::I32, node.dtype])
            }
            Kind::ScatterAdd { batch } => {
                self.require_whole(id)?;
                self.verify_scatter(id, *batch, views[0].1, views[1].1)?;
                self.require_types(id, &[DType::I32, node.dtype])
            }
            Kind::AddRows { batch } => {
                self.require_whole(id)?;
                require(views[0].1.count() == node.count(), || format!("node {id} adds rows to another size"))?;
                self.verify_scatter(id, *batch, views[1].1, views[2].1)?;
                self.require_types(id, &[node.dtype, DType::I32, node.dtype])
            }
            _ => Ok(()),
        }
    }

    fn verify_elementwise(&self, id: usize, function: Elementwise) -> Result<()> {
        let node = &self.nodes[id];
        for (read, view) in node.reads() {
            require(view.count() == node.count(), || {
                format!("node {id} has {} elements and reads {} of node {read}", node.count(), view.count())
            })?;
        }
        let same = match function {
            Elementwise::Convert(to) => return require(to == node.dtype, || format!("node {id} is not of type {to}")),
            Elementwise::ScaleToF16(_) | Elementwise::Unscale(_) | Elementwise::Round(_) => DType::F32,
            _ => node.dtype,
        };
        let other = node.reads().map(|(read, _)| read).find(|&read| self.nodes[read].dtype != same);
        require(other.is_none() && node.dtype == same, || format!("node {id} reads node {other:?} of another type"))
    }

    fn verify_dot(&self, id: usize, layout: &DotLayout) -> Result<()> {
        let node = &self.nodes[id];
        let size = layout.size(Precision::Full);
        require(size.batch * size.m * size.n == node.count(), || {
            format!("node {id} is a product of {size:?} and has the shape {:?}", node.shape)
        })?;
        let lengths = || layout.batch.iter().map(|(length, _)| *length);
        let side = |number: usize, lengths_of: [usize; 2], strides: (isize, isize), offset: isize| View {
            shape: lengths().chain(lengths_of).collect(),
            strides: layout.batch.iter().map(|(_, strides)| strides[number]).chain([strides.0, strides.1]).collect(),
            offset,
        };
        let sides = [side(0, [layout.m, layout.k], layout.a, 0), side(1, [layout.k, layout.n], layout.b, 0)];
        for (mut view, (read, seen)) in sides.into_iter().zip(node.reads()) {
            view.offset = seen.offset;
            self.verify_view(read, &view, || format!("the product {id}"))?;
        }
        self.verify_view(id, &side(2, [layout.m, layout.n], layout.c, 0), || format!("the product {id}, writing,"))
    }

    fn verify_scatter(&self, id: usize, batch: usize, indices: &View, updates: &View) -> Result<()> {
        let rows = IndexDims::new(&self.nodes[id].shape, &indices.shape, batch);
        require(rows.batch * rows.k * rows.inner == updates.count(), || {
            format!("node {id} scatters {:?} as {rows:?}", updates.shape)
        })
    }

    /// Operands that are read in the order of their memory.
    fn require_whole(&self, id: usize) -> Result<()> {
        let part = self.nodes[id].reads().find(|(read, view)| !self.nodes[*read].is_whole(view));
        require(part.is_none(), || format!("node {id} must read all of node {:?} in order", part.map(|(read, _)| read)))
    }

    fn require_types(&self, id: usize, types: &[DType]) -> Result<()> {
        let found: Vec<DType> = self.nodes[id].reads().map(|(read, _)| self.nodes[read].dtype).collect();
        require(found == types, || format!("node {id} reads operands of types {found:?} instead of {types:?}"))
    }
}

/// How many operands a node of this kind has.
fn operands_of(kind: &Kind) -> RangeInclusive<usize> {
    match kind {
        Kind::Input | Kind::CarriedCast(_) | Kind::Table(_) => 0..=0,
        Kind::Elementwise(function) => {
            let count = match function {
                Elementwise::Copy | Elementwise::Unary(_) | Elementwise::Convert(_) | Elementwise::Round(_) => 1,
                Elementwise::Binary(_) | Elementwise::Random(..) => 2,
                Elementwise::Select => 3,
                Elementwise::ScaleToF16(scale) => 1 + scale.factors(),
                Elementwise::Unscale([a, b]) => 1 + a.factors() + b.factors(),
            };
            count..=count
        }
        Kind::Reduce(..) | Kind::AmaxExponent | Kind::ArgMax | Kind::WindowArgMax(_) => 1..=1,
        Kind::CumSum { .. } | Kind::Pad(_) | Kind::CheckIndex { .. } => 1..=1,
        Kind::Dot(..) | Kind::Conv(..) | Kind::Gather { .. } | Kind::InlineGather { .. } | Kind::ScatterAdd { .. } => {
            2..=2
        }
        Kind::Block(op) => op.operands()..=op.operands(),
        Kind::AddRows { .. } => 3..=3,
        Kind::Concat(_) | Kind::Host(_) => 1..=usize::MAX,
        Kind::Collective(_) => 1..=2,
        Kind::PadSum(frames) => frames.len()..=frames.len(),
    }
}

/// A piece that fits into a node as its frame says.
fn verify_frame(id: usize, frame: &Padding, piece: &View, node: &Node) -> Result<()> {
    let rank = node.shape.len();
    let ranks = [frame.low.len(), frame.interior.len(), piece.shape.len()] == [rank; 3];
    let fits = ranks
        && (0..rank).all(|axis| match piece.shape[axis].checked_sub(1) {
            Some(last) => frame.low[axis] + last * (frame.interior[axis] + 1) < node.shape[axis],
            None => true,
        });
    require(fits, || format!("node {id} pads {:?} beyond its shape {:?}", piece.shape, node.shape))
}

/// Operands that fill a node one after the other along an axis.
fn verify_concat(id: usize, axis: usize, views: &[(usize, &View)], node: &Node) -> Result<()> {
    let (mut length, mut fits) = (0, axis < node.shape.len());
    for (_, view) in views {
        let mut shape = view.shape.clone();
        fits &= shape.len() == node.shape.len();
        length += shape.get(axis).copied().unwrap_or(0);
        if let Some(along) = shape.get_mut(axis) {
            *along = node.shape[axis];
        }
        fits &= shape == node.shape;
    }
    require(fits && node.shape.get(axis) == Some(&length), || {
        format!("node {id} is no concatenation of its operands along axis {axis}")
    })
}
