//! Which runs of many, and in which order: filters such as `outer.rate=0.1`, and sorting by any key.

use super::overview::KEYS;
use super::{Overview, differences::word};
use crate::errors::{CliError, Result};
use serde_json::Value;
use std::cmp::Ordering;

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Is,
    IsNot,
    Below,
    Above,
}

/// A condition on a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    key: String,
    relation: Relation,
    value: String,
}

impl Filter {
    /// Parses a text such as `status=finished`, `seed!=0` or `outer_loss<0.1`.
    pub fn parse(text: &str) -> Result<Self> {
        let relations = [("!=", Relation::IsNot), ("=", Relation::Is), ("<", Relation::Below), (">", Relation::Above)];
        let first = relations.iter().filter_map(|(sign, relation)| Some((text.find(sign)?, *sign, *relation)));
        let Some((at, sign, relation)) = first.min_by_key(|(at, ..)| *at).filter(|(at, ..)| *at > 0) else {
            return Err(CliError::Usage(format!(
                "--filter {text}: it must have the form KEY=VALUE, KEY!=VALUE, KEY<VALUE or KEY>VALUE"
            )));
        };
        let value = text[at + sign.len()..].trim().to_string();
        if matches!(relation, Relation::Below | Relation::Above) && value.parse::<f64>().is_err() {
            return Err(CliError::Usage(format!("--filter {text}: {value:?} is not a number")));
        }
        Ok(Filter { key: text[..at].trim().to_string(), relation, value })
    }

    /// One value of a key.
    pub fn is(key: &str, value: &str) -> Self {
        Filter { key: key.into(), relation: Relation::Is, value: value.into() }
    }

    fn holds(&self, run: &Overview) -> bool {
        if self.key == "tag" {
            return run.tags.contains(&self.value) == (self.relation == Relation::Is);
        }
        let found = run.get(&self.key);
        let order = found.as_ref().map(|found| match (found.as_f64(), self.value.parse::<f64>()) {
            (Some(found), Ok(value)) => found.partial_cmp(&value),
            _ => Some(word(found).as_str().cmp(&self.value)),
        });
        match (self.relation, order.flatten()) {
            (Relation::Is, order) => order == Some(Ordering::Equal),
            (Relation::IsNot, order) => order != Some(Ordering::Equal),
            (Relation::Below, order) => order == Some(Ordering::Less),
            (Relation::Above, order) => order == Some(Ordering::Greater),
        }
    }
}

/// The runs for which all filters hold. A key that no run has is refused.
pub fn filter(mut runs: Vec<Overview>, filters: &[Filter]) -> Result<Vec<Overview>> {
    for Filter { key, .. } in filters {
        check_key("--filter", key, &runs)?;
    }
    runs.retain(|run| filters.iter().all(|filter| filter.holds(run)));
    Ok(runs)
}

/// Refuses a key that no run has.
pub fn check_key(flag: &str, key: &str, runs: &[Overview]) -> Result<()> {
    if runs.is_empty() || KEYS.contains(&key) || runs.iter().any(|run| run.get(key).is_some()) {
        return Ok(());
    }
    let own = runs.iter().flat_map(|run| run.settings.keys().chain(run.measures.keys())).map(String::as_str);
    let near = bilevel::errors::nearest(key, KEYS.into_iter().chain(own));
    let instead = near.map_or_else(
        || format!("there are {}, and those of the configuration", KEYS.join(", ")),
        |near| format!("did you mean {near}?"),
    );
    Err(CliError::Usage(format!("{flag} {key}: no run has this key; {instead}")))
}

/// Compares two values; a missing one comes last.
pub fn order(a: &Option<Value>, b: &Option<Value>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => word(a).cmp(&word(b)),
        },
    }
}

/// Sorts by a key; those that lack it come last either way.
pub fn sort(runs: &mut [Overview], key: &str, reverse: bool) {
    runs.sort_by(|a, b| {
        let (a, b) = (a.get(key), b.get(key));
        match reverse && a.is_some() && b.is_some() {
            true => order(&b, &a),
            false => order(&a, &b),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_a_key_a_relation_and_a_value() {
        let filter = |text: &str| Filter::parse(text).map_err(|error| error.to_string());
        assert_eq!(filter("status=finished"), Ok(Filter::is("status", "finished")));
        assert_eq!(filter("a != b").unwrap().relation, Relation::IsNot);
        assert_eq!(filter("outer_loss<0.1").unwrap().relation, Relation::Below);
        assert_eq!(filter("name=a<b"), Ok(Filter::is("name", "a<b")));
        for wrong in ["", "status", "=x"] {
            assert!(filter(wrong).unwrap_err().contains("must have the form"), "{wrong}");
        }
        assert!(filter("seed>x").unwrap_err().ends_with("\"x\" is not a number"));
    }

    #[test]
    fn what_is_missing_comes_last() {
        let mut values = [None, Some(Value::from(2)), Some(Value::from(1.5)), None];
        values.sort_by(order);
        assert_eq!(values, [Some(Value::from(1.5)), Some(Value::from(2)), None, None]);
    }
}
