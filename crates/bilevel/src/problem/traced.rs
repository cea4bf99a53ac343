//! Losses that were traced elsewhere: a front end gives them as data, and they fail with an error instead of a broken tensor.
//!
//! The names of a [`Function`]'s inputs identify the source of their values:
//!
//! | name | value |
//! |---|---|
//! | `lambda/NAME`, `theta/NAME` | a leaf of λ or θ |
//! | `data/NAME` | a data set or stream |
//! | `batch/NAME` | as many rows of a data set as the input has, in epochs; the same rows of all data sets of one length |
//! | `key`, `step` | the key and the counter of random draws |
//!
//! and the names of its outputs identify them. `loss` is the loss; `rows` in its place are the losses of an outer loss
//! row by row. `update/NAME` is the next value of a statistic among θ's leaves. For a start, `theta/NAME` is θ⁰.
//!
//! Shapes are fixed when a loss is traced. A problem whose parts have different numbers of rows is given the loss traced for each of them,
//! and uses the one that fits.

use crate::outer::measures::LOSSES;
use crate::problem::scope::Scope;
use crate::problem::variable::Variable;
use crate::problem::{FlatLoss, ProblemBuilder, leaves};
use crate::{Error, Result};
use bilevel_graph::{Function, Tensor, Tree};
use std::collections::HashMap;
use std::sync::Arc;

/// A traced loss: one function, or several that were traced for different numbers of rows of the data.
///
/// ```
/// use bilevel::DType;
/// use bilevel::programs::Traced;
/// use bilevel::graph::{Function, Graph, Program};
/// let of = |rows: usize| -> Result<Function, bilevel::graph::Error> {
///     let g = Graph::new();
///     let (y, t) = (g.input("data/y", [rows], DType::F64), g.input("theta/w", [], DType::F64));
///     Program::builder(&g).output("rows", (y - t).square()).function()
/// };
/// let loss = Traced::from(vec![of(3)?, of(5)?]);
/// # let _ = loss;
/// # Ok::<(), bilevel::graph::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traced(Vec<Function>);

impl From<Function> for Traced {
    fn from(function: Function) -> Self {
        Traced(vec![function])
    }
}

impl From<Vec<Function>> for Traced {
    fn from(functions: Vec<Function>) -> Self {
        Traced(functions)
    }
}

/// The output that holds an outer loss row by row.
const ROWS: &str = "rows";

impl Traced {
    /// The only function, or the one whose data have the shapes that the scope has.
    fn fitting(&self, scope: &Scope) -> Result<&Function> {
        let fits = |function: &&Function| {
            let mut data = function.inputs().iter().filter_map(|port| Some((port.name.strip_prefix("data/")?, port)));
            data.all(|(name, port)| scope.data(name).shape() == port.meta.shape)
        };
        let mut all = self.0.iter();
        match &self.0[..] {
            [one] => Ok(one),
            _ => all.find(fits).ok_or_else(|| {
                let reason =
                    "the loss was not traced for this number of rows; trace it for the rows of every part of the data";
                Error::Loss { reason: reason.into() }
            }),
        }
    }

    fn has_output(&self, name: &str) -> bool {
        self.0.iter().any(|function| function.outputs().iter().any(|port| port.name == name))
    }
}

/// The names of λ's and of θ's leaves.
#[derive(Clone)]
struct Names([Vec<String>; 2]);

/// λ and θ, leaf by leaf.
type Given<'a> = [&'a [Tensor]; 2];

impl Names {
    fn find(&self, tree: usize, name: &str) -> Result<usize> {
        let kind = ["hyperparameter", "parameter"][tree];
        let found = self.0[tree].iter().position(|known| known == name);
        found.ok_or_else(|| Error::unknown(kind, name, self.0[tree].iter().map(String::as_str)))
    }

    /// The value of the input of this name; `rows` are the minibatches drawn so far, by the numbers of rows and of those drawn.
    fn value(&self, scope: &Scope, given: Given, port: &bilevel_graph::Port, rows: &mut Rows) -> Result<Tensor> {
        let value = match port.name.split_once('/') {
            Some(("lambda", name)) => given[0][self.find(0, name)?],
            Some(("theta", name)) => given[1][self.find(1, name)?],
            Some(("data", name)) => scope.data(name),
            Some(("batch", name)) => {
                let all = scope.data(name);
                let Some(&size) = port.meta.shape.first().filter(|_| all.rank() > 0) else {
                    let reason = format!("a minibatch of '{name}' needs rows; give a single number as data");
                    return Err(Error::Loss { reason });
                };
                match all.dim(0) {
                    whole if whole == size => all,
                    whole => all.take(*rows.entry((whole, size)).or_insert_with(|| scope.epochs(whole, size))),
                }
            }
            _ if port.name == "key" => scope.key(),
            _ if port.name == bilevel_graph::STEP => scope.counter(),
            _ => {
                let reason = format!(
                    "a traced loss has an input '{}'; the names begin with lambda/, theta/, data/ or batch/, or are key and step",
                    port.name
                );
                return Err(Error::Loss { reason });
            }
        };
        Ok(value.convert(port.meta.dtype).check()?)
    }

    /// The function on the graph of a scope: its outputs by name.
    fn traced(&self, function: &Function, scope: &Scope, given: Given) -> Result<Vec<(String, Tensor)>> {
        let mut rows = Rows::new();
        let values = function.inputs().iter().map(|port| self.value(scope, given, port, &mut rows));
        let values = values.collect::<Result<Vec<Tensor>>>();
        // A missing data set is the first error, not the shape of its placeholder.
        scope.check()?;
        let mut streams = HashMap::new();
        let mut stream = |own: u32| *streams.entry(own).or_insert_with(|| scope.stream());
        let found = function.inline_with(scope.graph(), &values?, &mut stream)?;
        let converted = |tensor: Tensor| match tensor.dtype().is_float() {
            true => tensor.convert(scope.dtype()),
            false => tensor,
        };
        Ok(function.outputs().iter().zip(found).map(|(port, t)| (port.name.clone(), converted(t))).collect())
    }
}

type Rows = HashMap<(usize, usize), Tensor>;

impl<L, T> ProblemBuilder<L, T>
where
    L: Tree<Leaf = Variable> + Clone + Send + Sync + 'static,
    T: Tree<Leaf = Variable> + Clone + Send + Sync + 'static,
{
    fn names(&self) -> Names {
        let of = |leaves: Vec<(String, Variable)>| leaves.into_iter().map(|(name, _)| name).collect();
        Names([of(leaves(&self.lambda)), of(leaves(&self.theta))])
    }

    /// A traced loss whose value is the output of this name.
    fn traced(&self, traced: Traced, value: &'static str) -> FlatLoss {
        let (names, traced) = (self.names(), Arc::new(traced));
        Arc::new(move |scope, lambda, theta| {
            let mut loss = None;
            let function = traced.fitting(scope)?;
            for (name, tensor) in names.traced(function, scope, [lambda, theta])? {
                match name.split_once('/') {
                    Some(("update", leaf)) => scope.update(theta[names.find(1, leaf)?], tensor),
                    _ if name == value => loss = Some(tensor),
                    _ => {
                        let reason =
                            format!("a traced loss has an output '{name}'; the names are {value} and update/…");
                        return Err(Error::Loss { reason });
                    }
                }
            }
            loss.ok_or_else(|| Error::Loss { reason: format!("a traced loss has no output named '{value}'") })
        })
    }

    /// The inner loss as a traced [`Function`], whose inputs and outputs have names. The inputs are leaves
    /// `lambda/NAME` and `theta/NAME`, data `data/NAME`, minibatches `batch/NAME`, and the random `key` and `step`. The
    /// outputs are `loss` and `update/NAME`.
    ///
    /// ```
    /// use bilevel::graph::{Graph, Program};
    /// use bilevel::methods::Rmd;
    /// use bilevel::{Array, DType, Driver, Leaf, Named, Problem, Variable};
    /// let tree = || Named::from_iter([("w".to_string(), Variable::constant([], 0.0))]);
    /// let (inner, outer) = {
    ///     let g = Graph::new();
    ///     let (l, t) = (g.input("lambda/w", [], DType::F64), g.input("theta/w", [], DType::F64));
    ///     let rows = g.input("batch/x", [2], DType::F64);
    ///     let inner = (t - rows).square().mean_all() + l.exp() * t.square();
    ///     let function = |loss| Program::builder(&g).output("loss", loss).function();
    ///     (function(inner)?, function((t - 1.0).square())?)
    /// };
    /// let problem = Problem::builder(tree(), tree())
    ///     .data("x", Array::from_f64([4], vec![1.0, 2.0, 3.0, 4.0])?)
    ///     .inner_traced(inner)
    ///     .outer_traced(outer)
    ///     .build()?;
    /// assert!(Driver::new(&problem, Rmd::default()).iterations(2).run()?.last.unwrap().outer_loss < 1.0);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn inner_traced(mut self, loss: impl Into<Traced>) -> Self {
        self.inner = Some(self.traced(loss.into(), "loss"));
        self
    }

    /// The outer loss as a traced [`Function`]; see [`inner_traced`](Self::inner_traced). With an output `rows` in place of `loss`, one number
    /// for each row, its mean is the loss: see [`outer_rows`](Self::outer_rows).
    pub fn outer_traced(mut self, loss: impl Into<Traced>) -> Self {
        let loss = loss.into();
        match loss.has_output(ROWS) {
            true => self.outer_rows = Some(self.traced(loss, ROWS)),
            false => self.outer = Some(self.traced(loss, "loss")),
        }
        self
    }

    /// A metric as a traced [`Function`], whose output is `loss`; see [`inner_traced`](Self::inner_traced).
    pub fn measure_traced(mut self, name: impl Into<String>, number: Function) -> Self {
        let (name, number) = (name.into(), self.traced(number.into(), "loss"));
        if LOSSES.contains(&name.as_str()) || self.measures.iter().any(|(other, _)| *other == name) {
            self.twice.push(format!("two metrics are named '{name}'"));
        }
        self.measures.push((name, number));
        self
    }

    /// θ⁰ as a traced [`Function`] of λ, with an output `theta/NAME` for each leaf of θ; see [`inner_traced`](Self::inner_traced).
    pub fn start_traced(mut self, start: Function) -> Self {
        let (names, start) = (self.names(), Arc::new(start));
        self.start = Some(Arc::new(move |scope, lambda| {
            let found = names.traced(&start, scope, [lambda, &[]])?;
            let leaf = |name: &String| {
                let output = found.iter().find(|(output, _)| output.strip_prefix("theta/") == Some(name));
                let reason = || format!("the traced start has no output 'theta/{name}'; give one for each leaf of θ");
                output.map(|(_, tensor)| *tensor).ok_or_else(|| Error::Loss { reason: reason() })
            };
            names.0[1].iter().map(leaf).collect()
        }));
        self
    }

    /// The inner loss as a function of the leaves of λ and θ that may fail, in the order of the trees.
    pub fn inner_flat(
        mut self,
        loss: impl Fn(&Scope, &[Tensor], &[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Self {
        self.inner = Some(Arc::new(loss));
        self
    }

    /// The outer loss as a function of the leaves of λ and θ that may fail, in the order of the trees.
    pub fn outer_flat(
        mut self,
        loss: impl Fn(&Scope, &[Tensor], &[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Self {
        self.outer = Some(Arc::new(loss));
        self
    }
}
