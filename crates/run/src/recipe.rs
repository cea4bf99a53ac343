//! A recipe to run a task: a method with its settings, and an inner loop.

use crate::Settings;
use bilevel::InnerLoop;
use bilevel::methods::AnyMethod;
use serde::{Deserialize, Serialize};

/// A method and the inner loop it runs with.
///
/// ```
/// use bilevel::prelude::*;
/// use bilevel_run::Recipe;
/// let recipe = Recipe::from((Rmd::default(), InnerLoop::new(0.1, 5)));
/// assert_eq!((recipe.method.name(), recipe.inner.steps), ("rmd", 5));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// The method with its settings.
    pub method: Settings,
    /// The inner loop.
    pub inner: InnerLoop,
}

impl<M: Into<AnyMethod>> From<(M, InnerLoop)> for Recipe {
    fn from((method, inner): (M, InnerLoop)) -> Self {
        Recipe { method: Settings::of_method(method), inner }
    }
}
