//! A bilevel problem: λ and θ, an inner and an outer loss, data, and the initial θ.

pub(crate) mod classes;
pub(crate) mod feeding;
pub(crate) mod given;
pub(crate) mod named;
pub(crate) mod point;
pub(crate) mod scope;
pub(crate) mod traced;
#[cfg(feature = "checkpoints")]
pub(crate) mod tree_file;
pub(crate) mod tree_file_error;
pub(crate) mod typed;
pub(crate) mod variable;

use crate::compiled::purpose;
use crate::generalisation::guard::HELD_OUT;
use crate::generalisation::rows::{Part, Rows};
use crate::generalisation::tables::{RowTable, joined};
use crate::hypergradient::paths;
use crate::hypergradient::paths::Path;
use crate::outer::measures::LOSSES;
use crate::problem::classes::Classes;
use crate::problem::feeding::sources::table_name;
use crate::problem::feeding::stream::{Stream, Streamed, in_dtype};
use crate::problem::scope::Scope;
use crate::problem::typed::Problem;
use crate::problem::variable::{Role, Variable};
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Graph, Precision, Tensor, Tree};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub(crate) type FlatLoss = Arc<dyn Fn(&Scope, &[Tensor], &[Tensor]) -> Result<Tensor> + Send + Sync>;
pub(crate) type FlatStart = Arc<dyn Fn(&Scope, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;

/// A problem with any structs for λ and θ, as used by methods, sessions and programs. A [`Problem`] dereferences to
/// one.
#[derive(Clone)]
pub struct AnyProblem {
    pub(crate) dtype: DType,
    pub(crate) precision: Precision,
    pub(crate) lambda: Vec<(String, Variable)>,
    pub(crate) theta: Vec<(String, Variable)>,
    /// The data, including the tables of the classes.
    pub(crate) data: Arc<[(String, Array)]>,
    /// Leaves of θ that are not trained: their places among all leaves, names and numbers.
    pub(crate) frozen: Arc<[(usize, String, Array)]>,
    pub(crate) streams: Arc<[Streamed]>,
    pub(crate) classes: Arc<[(String, Classes)]>,
    pub(crate) inner: FlatLoss,
    pub(crate) outer: FlatLoss,
    /// The outer loss row by row, if the problem declares it in this way.
    pub(crate) outer_rows: Option<FlatLoss>,
    /// The outer loss without a prior of λ, if there is one.
    pub(crate) outer_plain: Option<FlatLoss>,
    /// Data whose rows are divided; the parts are among the data.
    pub(crate) tables: Arc<[RowTable]>,
    /// The criterion for λ is the evidence, and the outer loss is the inner one.
    pub(crate) judged_by_evidence: bool,
    /// θ⁰ as a function of λ; `None` if θ has its own start.
    pub(crate) start: Option<FlatStart>,
    /// The metrics: further functions of λ and θ, by name.
    pub(crate) measures: Vec<(String, FlatLoss)>,
    /// The paths of each leaf of λ, found at first use, because both losses have to be traced and differentiated for
    /// them.
    pub(crate) paths: Arc<OnceLock<Vec<Vec<Path>>>>,
}

/// Collects the parts of a [`Problem`].
pub struct ProblemBuilder<L, T> {
    lambda: L,
    theta: T,
    dtype: DType,
    precision: Precision,
    data: BTreeMap<String, Array>,
    streams: Vec<Streamed>,
    classes: Vec<(String, Classes)>,
    /// Names that were given to two data sets or two measures.
    twice: Vec<String>,
    inner: Option<FlatLoss>,
    outer: Option<FlatLoss>,
    outer_rows: Option<FlatLoss>,
    tables: Vec<RowTable>,
    evidence: bool,
    start: Option<FlatStart>,
    measures: Vec<(String, FlatLoss)>,
}

impl AnyProblem {
    /// Names of λ's leaves.
    pub fn lambda_names(&self) -> Vec<&str> {
        self.lambda.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Names of θ's leaves.
    pub fn theta_names(&self) -> Vec<&str> {
        self.theta.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Names of the problem's metrics.
    pub fn measure_names(&self) -> Vec<&str> {
        self.measures.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The floating-point type of all computations.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The precision of matrix products and convolutions; full by default.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The same problem with its products in this precision.
    pub(crate) fn in_precision(&self, precision: Precision) -> Result<AnyProblem> {
        check_precision(self.dtype, precision)?;
        Ok(AnyProblem { precision, ..self.clone() })
    }

    /// Returns true if θ starts at a function of λ.
    pub fn starts_from_lambda(&self) -> bool {
        self.start.is_some()
    }

    /// Returns true if the criterion for λ is the evidence instead of an outer loss.
    pub fn is_judged_by_evidence(&self) -> bool {
        self.judged_by_evidence
    }

    /// Returns true if there is a loss row by row ([`ProblemBuilder::outer_rows`]).
    pub fn judges_row_by_row(&self) -> bool {
        self.outer_rows.is_some()
    }

    /// The rows that the outer loss sees: the training rows if there are no others.
    pub(crate) fn outer_part(&self) -> Part {
        match self.judged_by_evidence || self.rows_of(Part::Validation) == 0 {
            true => Part::Train,
            false => Part::Validation,
        }
    }

    /// Names of λ's leaves that cannot influence the outer loss: no differentiable path leads from them to it, neither
    /// directly nor through the inner loss or θ⁰. A run does not change them.
    ///
    /// ```
    /// use bilevel::{Problem, Tree, Variable};
    /// #[derive(Clone, Tree)]
    /// struct Penalty<T> { weight: T, bias: T }
    /// let one = || Variable::constant([], 1.0);
    /// let problem = Problem::builder(Penalty { weight: one(), bias: one() }, bilevel::Leaf(one()))
    ///     // The bias only shifts the loss: training never sees it.
    ///     .inner(|_, l, t| l.weight * t.0.square() + l.bias)
    ///     .outer(|_, _, t| (t.0 - 1.0).square())
    ///     .build()?;
    /// assert_eq!(problem.idle_hyperparameters()?, ["bias"]);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn idle_hyperparameters(&self) -> Result<Vec<String>> {
        let idle = self.lambda.iter().zip(paths::of(self)?).filter(|(_, paths)| paths.is_empty());
        Ok(idle.map(|((name, _), _)| name.clone()).collect())
    }

    /// A sentence about every leaf of θ that training does not change, and about an outer loss that does not depend on
    /// training.
    pub(crate) fn untrained(&self) -> Result<Vec<String>> {
        let graph = Graph::new();
        let trace = crate::compiled::trace::Trace::new(&graph, self)?;
        let by_theta = |loss| bilevel_graph::gradient(loss, &trace.theta);
        let inner = by_theta(trace.inner(&trace.theta, graph.step())?)?;
        let outer = by_theta(trace.outer(&trace.theta, graph.step())?)?;
        let mut said = vec![];
        let leaves = self.theta.iter().zip(inner.iter().zip(&outer));
        for ((name, _), (inner, outer)) in leaves.filter(|((_, variable), _)| variable.role == Role::Trained) {
            let leaf = leaf_name("θ", name);
            match (inner, outer) {
                (None, None) => said.push(format!("no loss depends on {leaf}; use it or leave it out")),
                // If θ⁰ depends on λ, such a leaf is learned only by the outer loop, which may be intended.
                (None, Some(_)) if !self.starts_from_lambda() => {
                    said.push(format!("the inner loss does not depend on {leaf}, so it will not change"));
                }
                _ => {}
            }
        }
        if outer.iter().all(Option::is_none) {
            said.push("the outer loss does not depend on θ, so training has no influence on λ".into());
        }
        Ok(said)
    }

    /// Numbers in λ and in θ.
    pub fn sizes(&self) -> (usize, usize) {
        let count = |all: &[(String, Variable)]| all.iter().map(|(_, v)| v.shape.iter().product::<usize>()).sum();
        (count(&self.lambda), count(&self.theta))
    }
}

impl<L: Tree<Leaf = Variable>, T: Tree<Leaf = Variable>> Problem<L, T> {
    /// Starts a problem from the trees of λ's and θ's variables.
    pub fn builder(lambda: L, theta: T) -> ProblemBuilder<L, T> {
        ProblemBuilder {
            lambda,
            theta,
            dtype: DType::F64,
            precision: Precision::Full,
            data: BTreeMap::new(),
            streams: vec![],
            classes: vec![],
            twice: vec![],
            inner: None,
            outer: None,
            outer_rows: None,
            tables: vec![],
            evidence: false,
            start: None,
            measures: vec![],
        }
    }
}

/// The displayed name of a leaf: `λ.weight`, or `λ` for a single leaf without a name.
pub(crate) fn leaf_name(tree: &str, leaf: &str) -> String {
    if leaf.is_empty() { tree.into() } else { format!("{tree}.{leaf}") }
}

/// Returns an error for a number that is not finite or out of range of the problem's type; `given` are the numbers
/// before the conversion to that type.
pub(crate) fn check_finite(what: &str, array: &Array, given: &[f64]) -> Result<()> {
    let Some(position) = array.to_f64().iter().position(|v| !v.is_finite()) else { return Ok(()) };
    let shape = array.shape();
    let strides = bilevel_graph::shape::row_major_strides(shape);
    let index: Vec<usize> = shape.iter().zip(strides).map(|(&length, stride)| position / stride % length).collect();
    Err(Error::NotFinite { what: what.into(), value: given[position], index, dtype: array.dtype() })
}

fn check_precision(dtype: DType, precision: Precision) -> Result<()> {
    if precision == Precision::Full || dtype == DType::F32 {
        return Ok(());
    }
    Err(Error::Precision { precision, dtype })
}

fn leaves<S: Tree<Leaf = Variable>>(tree: &S) -> Vec<(String, Variable)> {
    let mut all = vec![];
    tree.visit(|name, variable| all.push((name.to_string(), variable.clone())));
    all
}

impl<L, T> ProblemBuilder<L, T>
where
    L: Tree<Leaf = Variable> + Clone + Send + Sync + 'static,
    T: Tree<Leaf = Variable> + Clone + Send + Sync + 'static,
{
    /// Computes in this floating-point type instead of f64.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Rounds the operands of all matrix products and convolutions to this precision, in both losses and in everything
    /// derived from them; see [`Problem::in_precision`].
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Adds a data set that the losses can read by name. Floats are converted to the problem's type.
    pub fn data(mut self, name: impl Into<String>, array: Array) -> Self {
        let name = name.into();
        self.name_data(&name);
        self.data.insert(name, array);
        self
    }

    /// Adds a data set whose rows, along its first axis, are split into parts. Under its name, the inner loss gets the
    /// training rows, and the outer loss and the metrics get the validation rows. So both losses can be one function;
    /// [`Scope::part`](crate::Scope::part) selects other rows. If some rows are held out, no method sees them, and the
    /// [guard](crate::Driver::guard) of a run tests λ on them. All tables of a problem have the same split. A problem
    /// with the [evidence](Self::evidence) trains on all rows except test rows.
    ///
    /// ```
    /// use bilevel::methods::IftCg;
    /// use bilevel::splits::Split;
    /// use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Scope, Tensor, Variable};
    /// let (x, y): (Vec<f64>, Vec<f64>) = (0..40).map(|i| (i as f64 * 0.7).sin()).map(|x| (x, 2.0 * x + 0.1 * (9.0 * x).cos())).unzip();
    /// let rows = Split::default().rows(40)?; // 20 to train on, 16 to choose λ by, 4 held out
    /// let fit = |s: &Scope, t: Tensor| (s.data("x") * t - s.data("y")).square().mean_all();
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .table("x", Array::from_f64([40], x)?, &rows)
    ///     .table("y", Array::from_f64([40], y)?, &rows)
    ///     .inner(move |s, l, t| fit(s, t.0) + l.0.exp() * t.0.square())
    ///     .outer(move |s, _, t| fit(s, t.0))
    ///     .build()?;
    /// let outcome = Driver::new(&problem, IftCg::default()).inner(InnerLoop::new(0.3, 50)).rate(0.5).iterations(50).run()?;
    /// assert!(outcome.guard.unwrap().held_out_loss < 0.1);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn table(mut self, name: impl Into<String>, array: Array, rows: &Rows) -> Self {
        let name = name.into();
        self.name_data(&name);
        self.tables.push(RowTable { name, array, rows: rows.clone(), folds: vec![] });
        self
    }

    /// Like [`table`](Self::table), from one array for each part.
    ///
    /// ```
    /// use bilevel::splits::Part;
    /// use bilevel::{Array, Leaf, Problem, Variable};
    /// let rows = |values: &[f64]| Array::from_f64([values.len()], values.to_vec());
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .parts("y", [(Part::Train, rows(&[1.0, 3.0])?), (Part::Validation, rows(&[2.0])?)])
    ///     .inner(|s, l, t| (s.data("y") - t.0).square().mean_all() + l.0.exp() * t.0.square())
    ///     .outer(|s, _, t| (s.data("y") - t.0).square().mean_all())
    ///     .build()?;
    /// assert_eq!((problem.rows_of(Part::Train), problem.rows_of(Part::Validation)), (2, 1));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn parts(mut self, name: impl Into<String>, arrays: impl IntoIterator<Item = (Part, Array)>) -> Self {
        let name = name.into();
        self.name_data(&name);
        let (array, rows) = joined(arrays);
        self.tables.push(RowTable { name, array, rows, folds: vec![] });
        self
    }

    /// Adds data that is read batch by batch during a run, because it is too large for memory or is generated on
    /// demand. A loss reads it by name, like other data, and gets the batch of its step. The inner and the outer loss
    /// of one step, and all their derivatives, use the same batch. Floats are converted to the problem's type.
    ///
    /// Steps are counted from the start of each hypergradient, and the key is its key; a step that is repeated is read
    /// again. From [`Scope::episode`] a loss gets one batch for the whole hypergradient.
    ///
    /// ```
    /// use bilevel::data::{Stream, StreamResult};
    /// use bilevel::methods::Reptile;
    /// use bilevel::{Array, DType, Driver, InnerLoop, Key, Leaf, Problem, Variable};
    /// /// Rows of a file, a few for each step, from a place that the key decides.
    /// struct Rows(std::path::PathBuf);
    /// impl Stream for Rows {
    ///     fn batch(&self, key: Key, step: u32) -> StreamResult {
    ///         let text = std::fs::read_to_string(&self.0)?;
    ///         let numbers = text.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    ///         let from = key.fold_in(step).words()[0] as usize;
    ///         Ok(Array::from_f64([2], (0..2).map(|i| numbers[(from + i) % numbers.len()]).collect())?)
    ///     }
    ///     fn identity(&self) -> String {
    ///         self.0.display().to_string()
    ///     }
    /// }
    /// # let folder = std::env::temp_dir().join(format!("bilevel-stream-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let path = folder.join("rows.txt");
    /// # std::fs::write(&path, "1.0\n2.0\n3.0\n").unwrap();
    /// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
    ///     .stream("rows", [2], DType::F64, Rows(path))
    ///     .inner(|s, _, t| (t.0 - s.data("rows")).square().mean_all())
    ///     .outer(|s, _, t| (t.0 - s.data("rows")).square().mean_all())
    ///     .start(|_, l| *l)
    ///     .build()?;
    /// let outcome = Driver::new(&problem, Reptile::default()).inner(InnerLoop::new(0.1, 5)).rate(0.1).iterations(200).run()?;
    /// assert!((outcome.lambda.0.item().unwrap() - 2.0).abs() < 0.5);
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn stream(
        mut self,
        name: impl Into<String>,
        shape: impl AsRef<[usize]>,
        dtype: DType,
        stream: impl Stream + 'static,
    ) -> Self {
        let name = name.into();
        self.name_data(&name);
        let (shape, source) = (shape.as_ref().to_vec(), Arc::new(stream));
        self.streams.push(Streamed { name, shape, declared: dtype, source });
        self
    }

    /// Divides rows of the data into classes, so that a loss can draw episodes by this name: see
    /// [`Scope::shots`].
    pub fn classes(mut self, name: impl Into<String>, classes: Classes) -> Self {
        let name = name.into();
        if self.classes.iter().any(|(other, _)| *other == name) {
            self.twice.push(format!("two sets of classes are named '{name}'"));
        }
        self.classes.push((name, classes));
        self
    }

    fn name_data(&mut self, name: &str) {
        let table = self.tables.iter().any(|table| table.name == name);
        if table || self.data.contains_key(name) || self.streams.iter().any(|stream| stream.name == name) {
            self.twice.push(format!("two data sets are named '{name}'"));
        }
    }

    fn flatten(
        &self,
        loss: impl Fn(&Scope, &L::With<Tensor>, &T::With<Tensor>) -> Tensor + Send + Sync + 'static,
    ) -> FlatLoss {
        let (lambda, theta) = (self.lambda.clone(), self.theta.clone());
        Arc::new(move |scope, l, t| {
            let l = lambda.rebuild(l.iter().copied()).map_err(|error| Error::Structure { what: "λ", error })?;
            let t = theta.rebuild(t.iter().copied()).map_err(|error| Error::Structure { what: "θ", error })?;
            Ok(loss(scope, &l, &t).check()?)
        })
    }

    /// The inner loss L_T(λ, θ).
    pub fn inner(
        mut self,
        loss: impl Fn(&Scope, &L::With<Tensor>, &T::With<Tensor>) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        self.inner = Some(self.flatten(loss));
        self
    }

    /// The outer loss f(λ, θ).
    pub fn outer(
        mut self,
        loss: impl Fn(&Scope, &L::With<Tensor>, &T::With<Tensor>) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        self.outer = Some(self.flatten(loss));
        self
    }

    /// The outer loss row by row: `[rows]`, one loss for each row of a [table](Self::table)'s part. Its mean is the outer loss f(λ, θ), unless
    /// [`outer`](Self::outer) gives one in minibatches; standard errors are then over rows instead of blocks of rows.
    ///
    /// See [`RowLosses`](crate::splits::RowLosses) for an example.
    pub fn outer_rows(
        mut self,
        losses: impl Fn(&Scope, &L::With<Tensor>, &T::With<Tensor>) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        self.outer_rows = Some(self.flatten(losses));
        self
    }

    /// Uses the evidence, the marginal likelihood of the training rows, instead of an outer loss: see
    /// [`Evidence`](crate::methods::Evidence). The prior must be normalised. The inner loss is then the mean loss of n
    /// rows plus −(log prior)/n at the temperature 1/n, or their sum and −log prior at the temperature 1.
    ///
    /// ```
    /// use bilevel::graph::nn::gaussian_prior;
    /// use bilevel::{Leaf, Problem, Variable};
    /// let problem = || Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([5], 0.0)))
    ///     .inner(|_, l, t| (t.0 - 1.0).square().sum_all() + gaussian_prior(t.0, l.0.exp()));
    /// assert!(problem().evidence().build()?.is_judged_by_evidence());
    /// let both = problem().outer(|_, _, t| t.0.sum_all()).evidence().build();
    /// assert!(both.err().unwrap().to_string().contains("not both"));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    ///
    /// You may also declare [`outer_rows`](Self::outer_rows). No method uses it then, but it
    /// [compares](Problem::compare) λ with simpler ones on test rows.
    pub fn evidence(mut self) -> Self {
        self.evidence = true;
        self
    }

    /// Declares a metric: a number to report that no method uses, such as the loss on test data. See
    /// [`Evaluator`](crate::training::Evaluator).
    pub fn measure(
        mut self,
        name: impl Into<String>,
        number: impl Fn(&Scope, &L::With<Tensor>, &T::With<Tensor>) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        let (name, number) = (name.into(), self.flatten(number));
        if name == HELD_OUT {
            self.twice.push(format!("a metric is named '{name}', which is the name of the guard's metric"));
        }
        if LOSSES.contains(&name.as_str()) {
            self.twice.push(format!("a metric is named '{name}', which is the name of a loss"));
        }
        if self.measures.iter().any(|(other, _)| *other == name) {
            self.twice.push(format!("two metrics are named '{name}'"));
        }
        self.measures.push((name, number));
        self
    }

    /// θ⁰ as a function of λ: the identity for a learned initialisation.
    pub fn start(
        mut self,
        start: impl Fn(&Scope, &L::With<Tensor>) -> T::With<Tensor> + Send + Sync + 'static,
    ) -> Self {
        let lambda = self.lambda.clone();
        self.start = Some(Arc::new(move |scope, l| {
            let l = lambda.rebuild(l.iter().copied()).map_err(|error| Error::Structure { what: "λ", error })?;
            start(scope, &l).into_leaves().into_iter().map(|t| Ok(t.check()?)).collect()
        }));
        self
    }

    /// Builds the problem; traces both losses once to check their shapes.
    pub fn build(mut self) -> Result<Problem<L, T>> {
        if !self.dtype.is_float() {
            return Err(Error::Type { dtype: self.dtype });
        }
        check_precision(self.dtype, self.precision)?;
        if let Some(twice) = self.twice.first() {
            return Err(Error::NamedTwice { what: twice.clone() });
        }
        if let Some(empty) = self.streams.iter().find(|stream| stream.shape.contains(&0)) {
            return Err(Error::Data {
                what: format!("the stream '{}'", empty.name),
                reason: "has batches without elements".into(),
            });
        }
        for (name, classes) in &self.classes {
            for (table, array) in classes.tables()? {
                let name = table_name(name, table);
                if self.data.insert(name.clone(), array).is_some() {
                    let reason = "has the name of a table of the classes; give it another".into();
                    return Err(Error::Data { what: format!("data '{name}'"), reason });
                }
            }
        }
        let mut tables = self.tables;
        for table in &mut tables {
            if self.evidence {
                table.rows = table.rows.all_for_training();
            }
            table.check()?;
            self.data.extend(table.parts(self.dtype)?);
        }
        let dtype = self.dtype;
        let data = self.data.into_iter().map(|(name, given)| {
            let array = in_dtype(&name, given, dtype)?;
            Ok((name, array))
        });
        let theta = leaves(&self.theta);
        let is_frozen = |(_, (_, variable)): &(usize, &(String, Variable))| variable.role == Role::Frozen;
        let frozen = theta.iter().enumerate().filter(is_frozen);
        let frozen = frozen.map(|(place, (name, v))| Ok((place, name.clone(), v.frozen_numbers(name, dtype)?)));
        let frozen: Arc<[(usize, String, Array)]> = frozen.collect::<Result<_>>()?;
        let inner = self.inner.ok_or(Error::MissingLoss { level: "inner" })?;
        let mean = self
            .outer_rows
            .clone()
            .map(|rows| -> FlatLoss { Arc::new(move |scope, l, t| Ok(rows(scope, l, t)?.mean_all().check()?)) });
        let outer = match (self.outer, mean, self.evidence) {
            (Some(outer), _, false) | (None, Some(outer), false) => outer,
            (None, _, true) => inner.clone(),
            (None, None, false) => return Err(Error::MissingLoss { level: "outer" }),
            (Some(_), _, true) => {
                let reason =
                    "the criterion of λ is the evidence or an outer loss, not both; leave out .evidence() or .outer(…)";
                return Err(Error::Loss { reason: reason.into() });
            }
        };
        let problem = AnyProblem {
            dtype,
            precision: self.precision,
            lambda: leaves(&self.lambda),
            theta: theta.into_iter().filter(|(_, variable)| variable.role != Role::Frozen).collect(),
            frozen,
            data: data.collect::<Result<_>>()?,
            streams: self.streams.into(),
            classes: self.classes.into(),
            inner,
            outer,
            outer_rows: self.outer_rows,
            outer_plain: None,
            tables: tables.into(),
            judged_by_evidence: self.evidence,
            start: self.start,
            measures: self.measures,
            paths: Arc::default(),
        };
        let leaves = problem.lambda.len().max(problem.theta.len());
        purpose::check(leaves, problem.measures.len(), problem.classes.len())?;
        for (prefix, variables) in [("λ", &problem.lambda), ("θ", &problem.theta)] {
            for (name, variable) in variables {
                let leaf = leaf_name(prefix, name);
                let refuse = |reason: String| Err(Error::Variable { leaf: leaf.clone(), reason });
                let (low, high) = variable.bounds();
                if variable.shape.contains(&0) {
                    return refuse("has no elements".into());
                }
                if low.is_nan() || high.is_nan() || low > high {
                    return refuse(format!("has no value between its bounds {low} and {high}"));
                }
                let (rate, decay) = (variable.rate, variable.weight_decay);
                if !(rate > 0.0 && rate.is_finite()) {
                    return refuse(format!(
                        "has the rate {rate}, which must be above 0; use .frozen() for a leaf that must not change"
                    ));
                }
                if !(decay >= 0.0 && decay.is_finite()) {
                    return refuse(format!("has the weight decay {decay}, which must be at least 0"));
                }
                if prefix == "λ" && variable.role != Role::Trained {
                    return refuse("cannot be frozen or a statistic; these are for θ. Give it as data instead".into());
                }
                if prefix == "θ" && (low, high) != (f64::NEG_INFINITY, f64::INFINITY) {
                    return refuse("is bounded, but only λ can be: training does not project; add a penalty".into());
                }
                variable.check_start(&leaf)?;
            }
            if variables.iter().all(|(_, variable)| variable.role != Role::Trained) {
                return Err(Error::Variable { leaf: prefix.into(), reason: "has no variables to learn".into() });
            }
        }
        let graph = Graph::new();
        crate::compiled::trace::Trace::new(&graph, &problem)?.check()?;
        Ok(Problem::of(problem, self.lambda, self.theta))
    }
}
