//! A length of time as people write it: 90s, 9m or 1h30m.

use std::time::Duration;

/// The longest time that is accepted, in seconds: a year, which is more than any run takes and less than any clock can count.
const LONGEST: u64 = 365 * 24 * 3600;

/// Reads a time above 0 in hours, minutes and seconds.
///
/// ```
/// assert_eq!(bilevel_run::duration("1h30m")?.as_secs(), 5400);
/// assert!(bilevel_run::duration("9").unwrap_err().ends_with("use a form such as 90s, 9m or 1h30m"));
/// # Ok::<(), String>(())
/// ```
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time above 0; use a form such as 90s, 9m or 1h30m");
    let (mut seconds, mut digits) = (0_u64, String::new());
    for letter in text.chars() {
        let unit = match letter {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            '0'..='9' => {
                digits.push(letter);
                continue;
            }
            _ => return Err(wrong()),
        };
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        seconds = count.checked_mul(unit).and_then(|more| seconds.checked_add(more)).ok_or_else(wrong)?;
        digits.clear();
    }
    let is_time = digits.is_empty() && (1..=LONGEST).contains(&seconds);
    is_time.then(|| Duration::from_secs(seconds)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_hours_minutes_and_seconds_above_0() {
        let seconds = |text: &str| duration(text).map(|time| time.as_secs());
        assert_eq!([seconds("90s"), seconds("9m"), seconds("1h30m")], [Ok(90), Ok(540), Ok(5400)]);
        for wrong in ["", "9", "m", "-1m", "0s", "9 m", "1.5h", "99999999999999999999h", "9000000h"] {
            assert!(seconds(wrong).unwrap_err().contains("such as 90s, 9m or 1h30m"), "{wrong}");
        }
    }
}
