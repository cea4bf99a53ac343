//! A cache of the last few values: decoded pictures, a problem with its data, a network that was trained before.

use bilevel::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// The last few things that were made, by name.
pub struct Kept<T> {
    most: usize,
    things: Mutex<Vec<(String, Arc<T>)>>,
}

impl<T> Kept<T> {
    /// So many at most, and at least one.
    pub const fn new(most: usize) -> Self {
        Kept { most, things: Mutex::new(vec![]) }
    }

    /// The value cached under this name, or a new one; no other thread makes one meanwhile.
    pub fn get(&self, name: String, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, thing)) = things.iter().find(|(known, _)| *known == name) {
            return Ok(thing.clone());
        }
        // Old values are dropped first, because they may be large.
        things.truncate(self.most.saturating_sub(1));
        let thing = Arc::new(make()?);
        things.insert(0, (name, thing.clone()));
        Ok(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_last_is_not_made_again_and_older_things_go() {
        let kept = Kept::new(2);
        let ask = |name: &str, value: i32| *kept.get(name.into(), || Ok(value)).unwrap();
        assert_eq!([ask("a", 1), ask("a", 2), ask("b", 3), ask("a", 4)], [1, 1, 3, 1]);
        assert_eq!([ask("c", 5), ask("b", 6), ask("a", 7)], [5, 3, 7]);
        assert!(kept.get("d".into(), || Err(bilevel::Error::other("no"))).is_err());
    }
}
