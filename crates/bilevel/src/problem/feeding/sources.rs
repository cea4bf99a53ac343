//! The sources of a loss: data, streams and classes of a problem, as inputs of one graph.

use crate::generalisation::rows::Part;
use crate::generalisation::tables::RowTable;
use crate::problem::AnyProblem;
use crate::problem::classes::Classes;
use crate::problem::feeding::stream::At;
use bilevel_graph::{Graph, Meta, Tensor};
use std::cell::RefCell;
use std::sync::Arc;

/// The inputs of a graph that hold data.
pub(crate) struct Sources {
    data: Vec<(String, Tensor)>,
    streams: Vec<(String, Meta)>,
    /// The reads of streams, an input each.
    read: RefCell<Vec<Read>>,
    classes: Arc<[(String, Classes)]>,
    tables: Arc<[RowTable]>,
    /// The rows that the outer loss sees under a table's name.
    pub outer_part: Part,
}

/// The batch of a stream as an input.
#[derive(Clone)]
pub(crate) struct Read {
    pub stream: usize,
    pub at: At,
    pub batch: Tensor,
}

/// Data split by rows, if several ranks compute a program.
fn by_rows(data: Tensor) -> Tensor {
    if data.rank() == 0 { data } else { data.over_ranks(0) }
}

/// The name of a table of classes among the data.
pub(crate) fn table_name(classes: &str, table: &str) -> String {
    format!("{classes}.{table}")
}

impl Sources {
    pub fn new(graph: &Graph, problem: &AnyProblem) -> Self {
        let input = |(name, array): &(String, bilevel_graph::Array)| {
            (name.clone(), by_rows(graph.input(format!("data.{name}"), array.shape(), array.dtype())))
        };
        Sources {
            data: problem.data.iter().map(input).collect(),
            streams: problem.streams.iter().map(|s| (s.name.clone(), s.meta(problem.dtype))).collect(),
            read: RefCell::default(),
            classes: problem.classes.clone(),
            tables: problem.tables.clone(),
            outer_part: problem.outer_part(),
        }
    }

    /// The data sets.
    pub fn data(&self) -> &[(String, Tensor)] {
        &self.data
    }

    /// Everything that was read of streams so far.
    pub fn read(&self) -> Vec<Read> {
        self.read.borrow().clone()
    }

    /// A data set by its name.
    pub fn data_set(&self, name: &str) -> Option<Tensor> {
        self.data.iter().find(|(known, _)| known == name).map(|(_, tensor)| *tensor)
    }

    /// Returns true if a table has this name.
    pub fn is_table(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }

    /// The place of a stream of this name.
    pub fn stream(&self, name: &str) -> Option<usize> {
        self.streams.iter().position(|(known, _)| known == name)
    }

    /// The batch of a stream; always the same input.
    pub fn batch(&self, graph: &Graph, stream: usize, at: At) -> Tensor {
        let mut read = self.read.borrow_mut();
        if let Some(known) = read.iter().find(|known| (known.stream, known.at) == (stream, at)) {
            return known.batch;
        }
        let (name, meta) = &self.streams[stream];
        let batch = by_rows(graph.input(at.port(name), &meta.shape, meta.dtype));
        read.push(Read { stream, at, batch });
        batch
    }

    /// Classes by their name, with their place and their tables.
    pub fn classes(&self, name: &str) -> Option<(usize, &Classes, [Tensor; 2])> {
        let place = self.classes.iter().position(|(known, _)| known == name)?;
        let table = |table: &str| self.data_set(&table_name(name, table));
        Some((place, &self.classes[place].1, [table("rows")?, table("begins")?]))
    }

    /// The names of all classes.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|(name, _)| name.as_str())
    }

    /// The names that a loss can read as data.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let is_table = |name: &str| {
            let tables = name.strip_suffix(".rows").or(name.strip_suffix(".begins"));
            tables.is_some_and(|classes| self.class_names().any(|known| known == classes))
        };
        let is_part = |name: &str| self.tables.iter().any(|table| table.has_part(name));
        let data =
            self.data.iter().map(|(name, _)| name.as_str()).filter(move |name| !is_table(name) && !is_part(name));
        let data = data.chain(self.tables.iter().map(|table| table.name.as_str()));
        data.chain(self.streams.iter().map(|(name, _)| name.as_str()))
    }
}
