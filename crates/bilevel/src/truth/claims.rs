//! Where a method's documentation says that it is right, as data, so that a test can hold it to its word.

use super::{Facts, Target};

/// Where a method is right, up to the standard error of what is random and up to O(γ) at finite temperature, with settings that
/// fit the problem. A method that says nothing claims nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// For the minimum that training arrives at.
    pub minimum: bool,
    /// At finite temperature.
    pub gibbs: bool,
    /// For the steps of training that were made, converged or not.
    pub training: bool,
    /// For the minimum of the inner loss with a proximal term.
    pub proximal: bool,
    /// Also at finite temperature between several minima.
    pub several_minima: bool,
    /// Also where H is singular.
    pub singular: bool,
    /// Also where the inner loss is a draw of rows.
    pub minibatches: bool,
}

impl Claims {
    /// True where a problem of this kind is among what is claimed.
    ///
    /// ```
    /// use bilevel::{LangevinAdjoint, Method, RmdFo, truth};
    /// let problems = truth::problems()?;
    /// let well = problems.iter().find(|p| p.name == "double well").unwrap();
    /// assert!(LangevinAdjoint::default().claims().cover(&well.facts));
    /// assert!(!RmdFo::default().claims().cover(&well.facts));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn cover(&self, facts: &Facts) -> bool {
        let target = match facts.target {
            Target::Minimum => self.minimum,
            Target::Gibbs { .. } => self.gibbs && (self.several_minima || !facts.several_minima),
            Target::Training { .. } => self.training,
            Target::Proximal { .. } => self.proximal,
        };
        target && (self.singular || !facts.singular) && (self.minibatches || !facts.minibatches)
    }
}
