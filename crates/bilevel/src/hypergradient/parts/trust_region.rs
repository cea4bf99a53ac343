//! A trust region for an adjoint that is carried along training, z ← A·z + γ·f_θ with A = I − γH.
//!
//! If no A has a norm above 1, no z is longer than R, the sum of all γ‖f_θ‖ since z was 0:
//!
//!   ‖z⁺‖ ≤ ‖A·z‖ + γ‖f_θ‖ ≤ R + γ‖f_θ‖ = R⁺
//!
//! So for a z ten times as long, products of A have grown, and z no longer carries information about λ. It is reset to
//! 0 with R = 0, and is then an adjoint of the steps since. R grows with the number of steps, eventually faster than
//! any z with finite mean. So a chain that contracts on average leaves the region a few times at most, and one that
//! contracts at every step never does.

use crate::hypergradient::vocabulary::*;
use bilevel_graph::{Meta, ProgramBuilder};

/// The region is this many times R. It allows a chain to pass through regions of negative curvature.
const SLACK: f64 = 10.0;
/// Name of R, which lives as long as z.
pub(crate) const RADIUS: &str = "radius";
/// Name of the numbers of one hypergradient: ‖z‖² one step ago, and how often z was reset.
const GROUP: &str = "trust";

/// The region at one step of a program.
pub(crate) struct TrustRegion {
    radius: Tensor,
    last: Tensor,
    exits: Tensor,
    square: Tensor,
    /// 1 if z is inside, 0 if it is to be reset: a 64-bit scalar.
    pub inside: Tensor,
}

impl TrustRegion {
    /// The region for a z with this ‖z‖². The test applies to the z one step before, so that no loop over z has to
    /// wait for another.
    pub fn new(trace: &Trace, square: Tensor) -> Self {
        let [radius, last, exits] = [format!("{RADIUS}.0"), format!("{GROUP}.0"), format!("{GROUP}.1")]
            .map(|name| trace.graph.input(name, [], DType::F64));
        let inside = last.less_equal((radius * SLACK).square());
        TrustRegion { radius, last, exits, square, inside }
    }

    /// Carries the region to the next step, at which z is this much of itself and f_θ pushed it by as much.
    pub fn carry<'g>(self, builder: ProgramBuilder<'g>, kept: f64, push: Tensor) -> ProgramBuilder<'g> {
        let radius = self.inside.select(self.radius * kept, 0.0) + push;
        builder
            .carry(self.radius, radius)
            .carry(self.last, self.inside.select(self.square, 0.0))
            .carry(self.exits, self.exits + (1.0 - self.inside))
    }
}

/// The type and shape of R.
pub(crate) fn radius() -> Meta {
    Meta { dtype: DType::F64, shape: vec![] }
}

/// Begins a hypergradient. The z that it starts from is checked one step later.
pub(crate) fn begin(routine: &mut Routine) -> Result<()> {
    routine.set_numbers(GROUP, [0.0; 2])
}

/// How often z was reset.
pub(crate) fn exits(routine: &Routine) -> Result<f64> {
    let [_, exits] = routine.carried_numbers(GROUP)?;
    Ok(exits)
}
