//! Few-shot episodes: N classes, with K support rows and Q query rows of each, all different.

use crate::problem::feeding::permutation::first_of;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Graph, Tensor};
use std::collections::BTreeMap;

/// The rows of the data by class, from which N-way K-shot episodes are drawn, see
/// [`Scope::shots`](crate::Scope::shots).
///
/// ```
/// use bilevel::data::Classes;
/// let classes = Classes::from_labels(&[3, 7, 3, 3, 7])?;
/// assert_eq!(classes.names(), ["3", "7"]);
/// assert_eq!(classes.rows(0), [0, 2, 3]);
/// let named = Classes::new([("cat", vec![0, 2, 3]), ("dog", vec![1, 4])])?;
/// assert_eq!(named.rows(1), classes.rows(1));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    names: Vec<String>,
    /// The rows of all classes, class by class.
    rows: Vec<i32>,
    /// The beginning of each class in them, and the end of the last.
    begins: Vec<i32>,
}

/// The size of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shots {
    /// Classes of an episode, N; at least 1.
    pub ways: usize,
    /// Support rows of each, K; at least 1.
    pub support: usize,
    /// Query rows of each, Q; at least 1.
    pub query: usize,
}

/// An episode: numbers of rows, for [`Tensor::take`], and the class of each, numbered 0 … N−1 within the episode. All
/// are `i32`, and class by class: the first K of the support are of class 0. Many episodes side by side have an axis of
/// episodes in front.
#[derive(Clone, Copy, Debug)]
pub struct Episode {
    /// The N·K support rows, for training.
    pub support: Tensor,
    /// Their labels, in 0 … N−1.
    pub support_labels: Tensor,
    /// The N·Q query rows, for the outer loss.
    pub query: Tensor,
    /// Their labels, in 0 … N−1.
    pub query_labels: Tensor,
    /// The N classes, by their numbers in [`Classes`].
    pub classes: Tensor,
}

impl Episode {
    /// Episodes side by side, of which each rank has a part.
    pub(crate) fn over_ranks(self) -> Self {
        Episode {
            support: self.support.over_ranks(0),
            support_labels: self.support_labels.over_ranks(0),
            query: self.query.over_ranks(0),
            query_labels: self.query_labels.over_ranks(0),
            classes: self.classes.over_ranks(0),
        }
    }
}

impl Classes {
    /// Classes by name, each with the numbers of its rows. A row can be listed only once.
    pub fn new<S: Into<String>>(classes: impl IntoIterator<Item = (S, Vec<usize>)>) -> Result<Self> {
        let (mut names, mut rows, mut begins) = (vec![], vec![], vec![0]);
        for (name, members) in classes {
            let name = name.into();
            for row in members {
                let beyond = || Error::Data {
                    what: format!("class '{name}'"),
                    reason: format!("has row {row}, but row numbers must be below 2³¹ − 1"),
                };
                let number = i32::try_from(row).ok().filter(|row| *row < i32::MAX);
                rows.push(number.ok_or_else(beyond)?);
            }
            // Rows are different and below 2³¹ − 1, or an error follows.
            begins.push(rows.len().min(i32::MAX as usize) as i32);
            names.push(name);
        }
        let mut sorted = rows.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = "is listed twice among the classes; list each row once".into();
            return Err(Error::Data { what: format!("row {}", twice[0]), reason });
        }
        Ok(Classes { names, rows, begins })
    }

    /// One class for every label there is, in increasing order and named by it; row i has the i-th label.
    pub fn from_labels(labels: &[i32]) -> Result<Self> {
        let mut classes: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for (row, label) in labels.iter().enumerate() {
            classes.entry(*label).or_default().push(row);
        }
        Self::new(classes.into_iter().map(|(label, rows)| (label.to_string(), rows)))
    }

    /// The names of the classes, in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The rows of a class by its number; none if there is no such class.
    pub fn rows(&self, class: usize) -> &[i32] {
        match self.begins.get(class..class.saturating_add(2)) {
            Some(&[from, to]) => &self.rows[from as usize..to as usize],
            _ => &[],
        }
    }

    /// The tables that a program needs, as data.
    pub(crate) fn tables(&self) -> Result<[(&'static str, Array); 2]> {
        let table = |numbers: &Vec<i32>| Array::from_i32([numbers.len()], numbers.clone());
        Ok([("rows", table(&self.rows)?), ("begins", table(&self.begins)?)])
    }

    /// The reason why no such episode can be drawn, if so.
    pub(crate) fn refuse(&self, set: &str, shots: Shots) -> Option<String> {
        let Shots { ways, support, query } = shots;
        if ways == 0 || support == 0 || query == 0 {
            return Some(format!(
                "an episode needs at least one way, one support row and one query row, but has {shots:?}"
            ));
        }
        if ways > self.names.len() {
            let there = self.names.len();
            return Some(format!("an episode of {ways} ways needs as many classes, but '{set}' has {there}"));
        }
        let needed = support.saturating_add(query);
        let few = (0..self.names.len()).find(|class| self.rows(*class).len() < needed)?;
        let (name, there) = (&self.names[few], self.rows(few).len());
        Some(format!(
            "class '{name}' of '{set}' has {there} rows, but an episode needs {support} + {query} different rows of \
             each class; leave the class out, or use fewer"
        ))
    }
}

impl Episode {
    /// Draws an episode from the tables, and uniform draws of the shapes \[.., N\] and \[.., N, K + Q\] in 64-bit
    /// floats.
    pub(crate) fn draw(
        graph: &Graph,
        shots: Shots,
        classes: usize,
        [rows, begins]: [Tensor; 2],
        [by_class, by_row]: [Tensor; 2],
    ) -> Self {
        let Shots { ways, support, query } = shots;
        let drawn = by_class.shape();
        let (before, axis) = (&drawn[..drawn.len() - 1], drawn.len());
        let with = |rest: &[usize]| [before, rest].concat();
        let chosen = first_of(by_class, graph.constant(classes as f64, with(&[ways]), DType::F64)).convert(DType::I32);
        let begin = begins.take(chosen).unsqueeze([axis]);
        let count = begins.take(chosen + 1.0).unsqueeze([axis]) - begin;
        let member = first_of(by_row, count.convert(DType::F64).broadcast_to(with(&[ways, support + query])));
        let all = rows.take(begin + member.convert(DType::I32));
        let part = |from, to| all.slice(axis, from, to).reshape(with(&[ways * (to - from)]));
        let labels = |each| {
            let one = graph.iota([ways, each], 0, DType::I32).reshape([ways * each]);
            one.broadcast_to(with(&[ways * each]))
        };
        Episode {
            support: part(0, support),
            support_labels: labels(support),
            query: part(support, support + query),
            query_labels: labels(query),
            classes: chosen,
        }
    }

    /// One that is never run: for a loss that will be refused.
    pub(crate) fn none(graph: &Graph, shots: Shots, before: &[usize]) -> Self {
        let zeros = |count: usize| graph.constant(0.0, [before, &[count]].concat(), DType::I32);
        let (support, query) = (shots.ways.saturating_mul(shots.support), shots.ways.saturating_mul(shots.query));
        Episode {
            support: zeros(support),
            support_labels: zeros(support),
            query: zeros(query),
            query_labels: zeros(query),
            classes: zeros(shots.ways),
        }
    }
}
