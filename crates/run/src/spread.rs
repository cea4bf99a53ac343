//! A number that was measured several times: its mean and standard deviation, as text and as JSON.

use crate::statistics::mean_sd;
use serde_json::{Value, json};

/// Mean and standard deviation of this many values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; 0 for one value.
    pub sd: f64,
    /// How many values there were.
    pub count: usize,
}

impl Spread {
    /// The spread of these values.
    pub fn of(values: &[f64]) -> Self {
        let (mean, sd) = mean_sd(values);
        Spread { mean, sd, count: values.len() }
    }

    /// The spread of the differences between paired values, such as two losses on one split.
    pub fn of_differences(first: &[f64], second: &[f64]) -> Self {
        Self::of(&first.iter().zip(second).map(|(first, second)| first - second).collect::<Vec<_>>())
    }

    /// The standard error of the mean; not a number for fewer than two values.
    pub fn standard_error(&self) -> f64 {
        if self.count < 2 { f64::NAN } else { self.sd / (self.count as f64).sqrt() }
    }

    /// Whether the mean is above 0 by more than two standard errors; never for fewer than two values.
    ///
    /// ```
    /// use bilevel_run::spread::Spread;
    /// assert!(Spread::of(&[0.9, 1.1, 1.0]).is_above_zero());
    /// assert!(!Spread::of(&[-1.0, 1.5, 1.0]).is_above_zero() && !Spread::of(&[1.0]).is_above_zero());
    /// ```
    pub fn is_above_zero(&self) -> bool {
        self.mean > 2.0 * self.standard_error()
    }

    /// With this many decimals.
    pub fn fixed(&self, decimals: usize) -> String {
        match self.count {
            0 => "–".into(),
            1 => format!("{:.decimals$}", self.mean),
            _ => format!("{:.decimals$} ± {:.decimals$}", self.mean, self.sd),
        }
    }

    /// With as many digits as the deviation leaves meaning to.
    pub fn text(&self) -> String {
        let size = self.mean.abs().max(self.sd);
        if self.count == 0 || !self.mean.is_finite() || !self.sd.is_finite() {
            return "–".into();
        }
        if size != 0.0 && !(1e-4..1e7).contains(&size) {
            let sd = if self.count > 1 { format!(" ± {:.1e}", self.sd) } else { String::new() };
            return format!("{:.3e}{sd}", self.mean);
        }
        // Two digits of the deviation, or four of a number that has none.
        let place = |value: f64, digits: i32| digits - 1 - value.log10().floor() as i32;
        let decimals = match (self.sd > 1e-9 * size, size > 0.0) {
            (true, _) => place(self.sd, 2),
            (false, true) => place(size, 4),
            (false, false) => 0,
        };
        self.fixed(decimals.clamp(0, 7) as usize)
    }

    /// As JSON; the deviation of one value is null.
    pub fn json(&self) -> Value {
        json!({ "mean": self.mean, "sd": (self.count > 1).then_some(self.sd) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_the_deviation_leaves_meaning_to() {
        let text = |values: &[f64]| Spread::of(values).text();
        assert_eq!(text(&[0.12, 0.14]), "0.130 ± 0.014");
        assert_eq!(text(&[0.749]), "0.7490");
        assert_eq!(text(&[0.5, 0.5]), "0.5000 ± 0.0000");
        assert_eq!(text(&[0.0]), "0");
        assert_eq!(text(&[1e-9, 3e-9]), "2.000e-9 ± 1.4e-9");
        assert_eq!(text(&[]), "–");
        assert_eq!(text(&[f64::NAN]), "–");
    }
}
