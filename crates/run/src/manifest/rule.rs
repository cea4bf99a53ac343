//! How a number is judged: a few rules, of which a manifest names one.
//!
//! | rule | reproduced if | better if |
//! |---|---|---|
//! | `rule.within = W` | it is within W of the paper's number | it is on the better side by more than W |
//! | `rule.digits = N` | it is the paper's number to N decimals, give or take 1.5 in the last | – |
//! | `rule.deviations = N` | the paper's number is within N standard deviations of ours | – |
//! | `rule.gain_over = ROW` and `rule.within = W` | the gain over that row is within W of the paper's gain over it | the gain is larger by more than W |
//! | `rule.beats = ROW` | – | it is better than that row; otherwise it is not reproduced |
//! | `rule.above = X`, `rule.below = X` | it is above or below X | – |
//!
//! If the paper has no number, the reference takes its place.

use super::Better;
use super::reader::{Reader, Result};
use crate::Verdict;

/// A rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Rule {
    /// It is not judged.
    #[default]
    None,
    Within(f64),
    Digits(u32),
    Deviations(f64),
    Gain {
        over: String,
        within: f64,
    },
    Beats(String),
    Above(f64),
    Below(f64),
}

impl Rule {
    /// The row that a number is compared with.
    pub fn baseline(&self) -> Option<&str> {
        match self {
            Rule::Gain { over, .. } => Some(over),
            Rule::Beats(row) => Some(row),
            _ => None,
        }
    }
}

/// The rule of a table.
pub(super) fn read(table: &Reader, name: &str) -> Result<Option<Rule>> {
    let Some(inside) = table.table(name)? else { return Ok(None) };
    let (within, over) = (inside.number("within")?, inside.text("gain_over")?);
    let mut rules: Vec<Rule> = match (within, over) {
        (Some(within), Some(over)) => vec![Rule::Gain { over, within }],
        (Some(within), None) => vec![Rule::Within(within)],
        (None, Some(_)) => return Err(inside.wrong("rule.gain_over goes with rule.within, in the unit of the number")),
        (None, None) => vec![],
    };
    rules.extend(inside.whole("digits")?.map(Rule::Digits));
    rules.extend(inside.number("deviations")?.map(Rule::Deviations));
    rules.extend(inside.text("beats")?.map(Rule::Beats));
    rules.extend(inside.number("above")?.map(Rule::Above));
    rules.extend(inside.number("below")?.map(Rule::Below));
    rules.extend(Some(Rule::None).filter(|_| inside.truth("none").is_ok_and(|none| none)));
    inside.finish()?;
    match rules.len() {
        1 => Ok(rules.pop()),
        _ => Err(inside.wrong(
            "a rule is one of within, gain_over with within, digits, deviations, beats, above, below, none = true",
        )),
    }
}

/// A number with all numbers for comparison.
pub(super) struct Case<'a> {
    pub ours: f64,
    /// Its standard deviation.
    pub sd: f64,
    pub paper: Option<f64>,
    pub reference: Option<f64>,
    /// Our number and the paper's of the row that the rule names, after as many iterations.
    pub baseline: Option<(f64, Option<f64>)>,
    pub better: Option<Better>,
    /// Why it would not be reproduced.
    pub why: &'a str,
}

impl Case<'_> {
    /// Its verdict.
    pub fn judge(&self, rule: &Rule) -> Verdict {
        let (ours, known) = (self.ours, self.paper.or(self.reference));
        match (rule, known) {
            (Rule::Above(least), _) => self.when(ours > *least, format!("{ours:.3} is not above {least}")),
            (Rule::Below(most), _) => self.when(ours < *most, format!("{ours:.3} is not below {most}")),
            (Rule::Beats(row), _) => match self.baseline {
                Some((other, _)) if self.gain(other, ours) > 0.0 => Verdict::Better,
                Some((other, _)) => self.when(false, format!("no better than {row}, which has {other:.4}")),
                None => Verdict::NotClaimed,
            },
            (Rule::Gain { over, within }, Some(known)) => {
                let Some((our_base, Some(base))) = self.baseline else { return Verdict::NotClaimed };
                let (gain, claimed) = (self.gain(our_base, ours), self.gain(base, known));
                if gain > claimed + within {
                    return Verdict::Better;
                }
                let change = |gain: f64| if self.better == Some(Better::Higher) { gain } else { -gain };
                let (here, there) = (change(gain), change(claimed));
                self.when(
                    (gain - claimed).abs() <= *within,
                    format!(
                        "relative to {over} after as many iterations it changes by {here:+.1} here and by \
                        {there:+.1} in the paper"
                    ),
                )
            }
            (Rule::Within(near), Some(known)) => {
                if self.better.is_some() && self.gain(known, ours) > *near {
                    return Verdict::Better;
                }
                let side = if ours < known { "below" } else { "above" };
                self.when((ours - known).abs() <= *near, format!("{:.2} {side}", (ours - known).abs()))
            }
            (Rule::Digits(digits), Some(known)) => {
                let near = 1.5 * 0.1_f64.powi(*digits as i32);
                self.when((ours - known).abs() < near, "differs in the printed digits".into())
            }
            (Rule::Deviations(count), Some(known)) => {
                let near = (ours - known).abs() <= count * self.sd + 1e-4;
                self.when(near, "outside the range of our draws".into())
            }
            _ => Verdict::NotClaimed,
        }
    }

    /// How much better the second number is than the first; lower is better unless it is said otherwise.
    fn gain(&self, first: f64, second: f64) -> f64 {
        if self.better == Some(Better::Higher) { second - first } else { first - second }
    }

    fn when(&self, holds: bool, seen: String) -> Verdict {
        let why = if self.why.is_empty() { seen } else { format!("{seen}: {}", self.why) };
        Verdict::when(holds, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(ours: f64, paper: Option<f64>) -> Case<'static> {
        Case {
            ours,
            sd: 0.1,
            paper,
            reference: Some(5.0),
            baseline: Some((8.0, Some(7.0))),
            better: None,
            why: "because",
        }
    }

    #[test]
    fn each_rule_has_its_verdicts() {
        let not = |why: &str| Verdict::NotReproduced(why.into());
        let higher = |ours: f64| Case { better: Some(Better::Higher), ..case(ours, Some(4.0)) };
        let near = Rule::Within(0.5);
        assert_eq!(case(4.4, Some(4.0)).judge(&near), Verdict::Reproduced);
        assert_eq!(case(4.6, Some(4.0)).judge(&near), not("0.60 above: because"));
        assert_eq!(higher(4.6).judge(&near), Verdict::Better);
        assert_eq!(higher(3.4).judge(&near), not("0.60 below: because"));
        assert_eq!(case(5.2, None).judge(&near), Verdict::Reproduced, "the reference takes the place of the paper");
        let gain = Rule::Gain { over: "RMD".into(), within: 0.5 };
        // From 8 to 5 here, from 7 to 4 there; lower is better.
        assert_eq!(case(5.0, Some(4.0)).judge(&gain), Verdict::Reproduced);
        assert_eq!(case(3.0, Some(4.0)).judge(&gain), Verdict::Better);
        let lost = case(7.0, Some(4.0)).judge(&gain);
        assert_eq!(
            lost,
            not("relative to RMD after as many iterations it changes by -1.0 here and by -3.0 in the paper: because")
        );
        assert_eq!(case(0.73604, Some(0.736)).judge(&Rule::Digits(4)), Verdict::Reproduced);
        assert_eq!(case(0.7369, Some(0.736)).judge(&Rule::Digits(4)), not("differs in the printed digits: because"));
        assert_eq!(case(4.2, Some(4.0)).judge(&Rule::Deviations(3.0)), Verdict::Reproduced);
        assert_eq!(case(4.5, Some(4.0)).judge(&Rule::Deviations(3.0)), not("outside the range of our draws: because"));
        assert_eq!(case(7.0, None).judge(&Rule::Beats("RMD".into())), Verdict::Better);
        assert_eq!(
            case(9.0, None).judge(&Rule::Beats("RMD".into())),
            not("no better than RMD, which has 8.0000: because")
        );
        assert_eq!(case(0.4, None).judge(&Rule::Above(0.3)), Verdict::Reproduced);
        assert_eq!(case(0.4, None).judge(&Rule::Below(0.3)), not("0.400 is not below 0.3: because"));
        assert_eq!(case(0.4, None).judge(&Rule::None), Verdict::NotClaimed);
    }
}
