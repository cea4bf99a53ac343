//! How a number is judged: a few rules, of which a manifest names one.
//!
//! | rule | reproduced if | better if |
//! |---|---|---|
//! | `rule.within = W`, `percent`, `deviations`, `standard_errors` | it is nearer to the paper's number than W, than so many percent of it, our standard deviations, or standard errors of our mean; several add up | it is on the better side by more |
//! | `rule.digits = N` | it is the paper's number to N decimals, give or take 1.5 in the last | – |
//! | `rule.gain_over = ROW` and `rule.within = W` | the gain over that row is within W of the paper's gain over it | the gain is larger by more than W |
//! | `rule.beats = ROW` | – | it is better than that row; otherwise it is not reproduced |
//! | `rule.loses_to = ROW` and `rule.within = W` | it is worse than that row, or better by less than W | – |
//! | `rule.above = X`, `rule.below = X` | it is above or below X | – |
//!
//! If the paper has no number, the reference takes its place.

use super::Better;
use super::reader::{Reader, Result};
use crate::Verdict;

/// The rounding error of a printed number, which a deviation may include.
const ROUNDING: f64 = 1e-4;
/// A mean that is known less well than this, relative to the number it is compared with, agrees with almost anything.
const MAX_RELATIVE_ERROR: f64 = 0.1;

/// How far a number may be from the one it is compared with: the sum of all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tolerance {
    pub within: f64,
    /// In percent of the number for comparison.
    pub percent: f64,
    /// In standard deviations of our number.
    pub deviations: f64,
    /// In standard errors of our mean.
    pub standard_errors: f64,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Rule {
    /// It is not judged.
    #[default]
    None,
    Near(Tolerance),
    Digits(u32),
    Gain {
        over: String,
        within: f64,
    },
    Beats(String),
    LosesTo {
        row: String,
        within: f64,
    },
    Above(f64),
    Below(f64),
}

impl Rule {
    /// The row that a number is compared with.
    pub fn baseline(&self) -> Option<&str> {
        match self {
            Rule::Gain { over: row, .. } | Rule::Beats(row) | Rule::LosesTo { row, .. } => Some(row),
            _ => None,
        }
    }
}

/// The rule of a table.
pub(super) fn read(table: &Reader, name: &str) -> Result<Option<Rule>> {
    let Some(inside) = table.table(name)? else { return Ok(None) };
    let number = |name: &str| Ok(inside.number(name)?.unwrap_or(0.0));
    let (over, loses_to) = (inside.text("gain_over")?, inside.text("loses_to")?);
    let near = Tolerance {
        within: number("within")?,
        percent: number("percent")?,
        deviations: number("deviations")?,
        standard_errors: number("standard_errors")?,
    };
    let names = ["within", "percent", "deviations", "standard_errors"];
    let mut rules: Vec<Rule> = match (over, loses_to) {
        (Some(_), _) if !inside.has("within") => {
            return Err(inside.wrong("rule.gain_over goes with rule.within, in the unit of the number"));
        }
        (Some(over), _) => vec![Rule::Gain { over, within: near.within }],
        (None, Some(row)) => vec![Rule::LosesTo { row, within: near.within }],
        (None, None) => names.iter().any(|name| inside.has(name)).then_some(Rule::Near(near)).into_iter().collect(),
    };
    rules.extend(inside.whole("digits")?.map(Rule::Digits));
    rules.extend(inside.text("beats")?.map(Rule::Beats));
    rules.extend(inside.number("above")?.map(Rule::Above));
    rules.extend(inside.number("below")?.map(Rule::Below));
    rules.extend(Some(Rule::None).filter(|_| inside.truth("none").is_ok_and(|none| none)));
    inside.finish()?;
    match rules.len() {
        1 => Ok(rules.pop()),
        _ => Err(inside.wrong(
            "a rule is one of within, percent, deviations and standard_errors, gain_over or loses_to with within, \
             digits, beats, above, below, none = true",
        )),
    }
}

/// A number with all numbers for comparison.
#[derive(Default)]
pub(super) struct Case<'a> {
    pub ours: f64,
    /// Its standard deviation.
    pub sd: f64,
    /// Runs it was taken over.
    pub count: usize,
    pub paper: Option<f64>,
    pub reference: Option<f64>,
    /// Our number and the paper's of the row that the rule names, after as many iterations.
    pub baseline: Option<(f64, Option<f64>)>,
    /// The name of the compared row in tables.
    pub rival: &'a str,
    pub better: Option<Better>,
    /// Why it would not be reproduced.
    pub why: &'a str,
}

impl Case<'_> {
    /// Its verdict.
    pub fn judge(&self, rule: &Rule) -> Verdict {
        let (ours, known, rival) = (self.ours, self.paper.or(self.reference), self.rival);
        match (rule, known) {
            (Rule::Above(least), _) => self.when(ours > *least, format!("{ours:.3} is not above {least}")),
            (Rule::Below(most), _) => self.when(ours < *most, format!("{ours:.3} is not below {most}")),
            (Rule::Beats(_), _) => match self.baseline {
                // The claim of a paper that has a number too.
                Some((other, _)) if self.gain(other, ours) > 0.0 && self.paper.is_some() => Verdict::Reproduced,
                Some((other, _)) if self.gain(other, ours) > 0.0 => Verdict::Better,
                Some((other, _)) => self.when(false, format!("no better than {rival}, which has {other:.4}")),
                None => Verdict::NotClaimed,
            },
            (Rule::Gain { within, .. }, Some(known)) => {
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
                        "relative to {rival} after as many iterations it changes by {here:+.1} here and by \
                        {there:+.1} in the paper"
                    ),
                )
            }
            (Rule::LosesTo { within, .. }, _) => match self.baseline {
                Some((other, _)) => {
                    let ahead = self.gain(other, ours);
                    self.when(ahead < *within, format!("it should not be better than {rival}, and is by {ahead:.1}"))
                }
                None => Verdict::NotClaimed,
            },
            (Rule::Near(tolerance), Some(known)) => self.near(tolerance, known),
            (Rule::Digits(digits), Some(known)) => {
                let near = 1.5 * 0.1_f64.powi(*digits as i32);
                self.when((ours - known).abs() < near, "differs in the printed digits".into())
            }
            _ => Verdict::NotClaimed,
        }
    }

    /// Compares with a number, given a tolerance.
    fn near(&self, tolerance: &Tolerance, known: f64) -> Verdict {
        let Tolerance { within, percent, deviations, standard_errors } = *tolerance;
        // A single run has no spread.
        let sd = if self.count > 1 { self.sd } else { 0.0 };
        let error = sd / (self.count.max(1) as f64).sqrt();
        let rounding = if deviations > 0.0 { ROUNDING } else { 0.0 };
        let near = within + percent / 100.0 * known.abs() + deviations * sd + rounding + standard_errors * error;
        let (off, holds) = (self.ours - known, (self.ours - known).abs() <= near);
        if self.better.is_some() && self.gain(known, self.ours) > near {
            return Verdict::Better;
        }
        if holds && standard_errors > 0.0 && error >= MAX_RELATIVE_ERROR * known.abs() {
            return self.when(false, "the spread is too large to tell".into());
        }
        let side = if off < 0.0 { "below" } else { "above" };
        let seen = match (standard_errors > 0.0, deviations > 0.0, percent > 0.0) {
            (true, ..) => format!("{:.0} standard errors {side}", off.abs() / error),
            (_, true, _) => "outside the range of our draws".into(),
            (.., true) => format!("{:.0} % {side}", 100.0 * off.abs() / known.abs()),
            _ => format!("{:.2} {side}", off.abs()),
        };
        self.when(holds, seen)
    }

    /// How much better the second number is than the first; lower is better unless it is said otherwise.
    fn gain(&self, first: f64, second: f64) -> f64 {
        if self.better == Some(Better::Higher) { second - first } else { first - second }
    }

    /// `Reproduced`, or the observation and the reason.
    pub fn when(&self, holds: bool, seen: String) -> Verdict {
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
            count: 4,
            paper,
            reference: Some(5.0),
            baseline: Some((8.0, Some(7.0))),
            rival: "RMD",
            better: None,
            why: "because",
        }
    }

    #[test]
    fn each_rule_has_its_verdicts() {
        let not = |why: &str| Verdict::NotReproduced(why.into());
        let higher = |ours: f64| Case { better: Some(Better::Higher), ..case(ours, Some(4.0)) };
        let near = Rule::Near(Tolerance { within: 0.5, ..Tolerance::default() });
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
        let deviations = Rule::Near(Tolerance { deviations: 3.0, ..Tolerance::default() });
        assert_eq!(case(4.2, Some(4.0)).judge(&deviations), Verdict::Reproduced);
        assert_eq!(case(4.5, Some(4.0)).judge(&deviations), not("outside the range of our draws: because"));
        // A standard error is 0.1/√4.
        let errors = Rule::Near(Tolerance { standard_errors: 3.0, percent: 1.0, ..Tolerance::default() });
        assert_eq!(case(4.18, Some(4.0)).judge(&errors), Verdict::Reproduced);
        assert_eq!(case(4.3, Some(4.0)).judge(&errors), not("6 standard errors above: because"));
        let spread = Case { sd: 2.0, ..case(4.1, Some(4.0)) };
        assert_eq!(spread.judge(&errors), not("the spread is too large to tell: because"));
        let percent = Rule::Near(Tolerance { percent: 25.0, ..Tolerance::default() });
        assert_eq!(case(4.9, Some(4.0)).judge(&percent), Verdict::Reproduced);
        assert_eq!(case(6.0, Some(4.0)).judge(&percent), not("50 % above: because"));
        let lower = |ours: f64| Case { better: Some(Better::Lower), ..case(ours, Some(4.0)) };
        assert_eq!(lower(2.9).judge(&percent), Verdict::Better);
        assert_eq!(case(7.0, None).judge(&Rule::Beats("RMD".into())), Verdict::Better);
        assert_eq!(
            case(9.0, None).judge(&Rule::Beats("RMD".into())),
            not("no better than RMD, which has 8.0000: because")
        );
        let loses = Rule::LosesTo { row: "RMD".into(), within: 0.5 };
        assert_eq!(case(7.6, None).judge(&loses), Verdict::Reproduced);
        assert_eq!(case(6.0, None).judge(&loses), not("it should not be better than RMD, and is by 2.0: because"));
        assert_eq!(case(0.4, None).judge(&Rule::Above(0.3)), Verdict::Reproduced);
        assert_eq!(case(0.4, None).judge(&Rule::Below(0.3)), not("0.400 is not below 0.3: because"));
        assert_eq!(case(0.4, None).judge(&Rule::None), Verdict::NotClaimed);
    }
}
