//! How fast each case should be, as a share of a peer's time.

/// A goal: our median at most `ratio` of a peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Name of the program, as in the lines.
    pub case: &'static str,
    /// Largest ratio that meets it.
    pub ratio: f64,
    /// The peer; none for whichever is best.
    pub of: Option<&'static str>,
}

const GOALS: [Goal; 11] = [
    Goal { case: "synth1d", ratio: 0.25, of: Some("jax") },
    Goal { case: "scalar_grad", ratio: 0.1, of: None },
    Goal { case: "scalar_second", ratio: 0.1, of: None },
    Goal { case: "wide", ratio: 0.2, of: Some("jax") },
    Goal { case: "digits", ratio: 0.5, of: None },
    Goal { case: "mlp_grad", ratio: 1.0, of: None },
    Goal { case: "mlp_grad_hvp", ratio: 1.0, of: None },
    Goal { case: "conv64_grad", ratio: 0.6, of: Some("torch") },
    Goal { case: "conv64_grad_hvp", ratio: 0.6, of: Some("torch") },
    Goal { case: "vit_block_grad", ratio: 0.9, of: None },
    Goal { case: "vit_block_grad_hvp", ratio: 0.9, of: None },
];

/// The goal of a case, if it has one.
pub fn goal(case: &str) -> Option<Goal> {
    GOALS.into_iter().find(|goal| goal.case == case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timed_program_has_a_goal() {
        for name in crate::cases::timed::NAMES {
            for timed in crate::cases::timed::programs(name).unwrap() {
                assert!(goal(&timed.name).is_some(), "{}", timed.name);
            }
        }
    }
}
