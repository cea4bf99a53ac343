//! The paper's experiments, one file each: rows that hold what the paper printed beside what came out.

mod experiment;
mod experiments;
mod figure;
pub mod outer_loop;
mod row;
pub mod statistics;
pub mod synthetic;

pub use experiment::{Effort, Experiment, Report};
pub use experiments::noisy_synth1d;
pub use figure::Figure;
pub use row::{Row, Verdict, table};

/// All experiments, in the order of the paper.
///
/// ```
/// use bilevel_tasks::{Effort, experiments};
/// let toy = &experiments()[0];
/// let rows = toy.run(Effort::Quick, &mut |_| ())?;
/// assert_eq!(rows[0].paper, Some(0.0083));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn experiments() -> &'static [Experiment] {
    experiments::ALL
}

/// The experiment of this name, or else the names nearest to it.
///
/// ```
/// assert!(bilevel_tasks::find("synth1d").is_ok());
/// assert_eq!(bilevel_tasks::find("noisysynth1d").unwrap_err()[0], "noisy-synth1d");
/// ```
pub fn find(name: &str) -> Result<&'static Experiment, Vec<&'static str>> {
    experiments().iter().find(|e| e.name == name).ok_or_else(|| {
        let mut near: Vec<_> = experiments().iter().map(|e| (distance(name, e.name), e.name)).collect();
        near.sort();
        near.into_iter().take(3).map(|(_, name)| name).collect()
    })
}

/// Letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = corner + (x != y) as usize;
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
