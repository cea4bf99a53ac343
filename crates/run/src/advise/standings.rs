//! The ranking of ways to choose λ on unseen rows: the tally of the study `generalisation`, which is stored next to the
//! truth suite's rows.

/// A way to choose λ, against one value tuned by folds and trained on all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The way, in the words of the study.
    pub way: String,
    /// Cases on which its test loss is less by more than two standard errors.
    pub better: usize,
    /// Cases on which it is larger by more than two.
    pub worse: usize,
    /// All cases.
    pub cases: usize,
}

/// All ways of the study, the first to try first: those that lose least often, and of these those that win most often.
///
/// ```
/// let all = bilevel_run::advise::standings();
/// assert!(all.windows(2).all(|two| two[0].worse <= two[1].worse));
/// ```
pub fn standings() -> Vec<Standing> {
    let line = |line: &str| {
        let mut parts = line.split('\t');
        let way = parts.next()?.to_string();
        let mut number = || parts.next()?.parse().ok();
        Some(Standing { way, better: number()?, worse: number()?, cases: number()? })
    };
    let mut all: Vec<Standing> =
        include_str!("../../data/generalisation.tsv").lines().skip(1).filter_map(line).collect();
    all.sort_by_key(|standing| (standing.worse, std::cmp::Reverse(standing.better)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tally_is_read() {
        let lines = include_str!("../../data/generalisation.tsv").lines().count();
        assert_eq!(standings().len(), lines - 1);
        assert!(standings().iter().all(|standing| standing.better + standing.worse <= standing.cases));
    }
}
