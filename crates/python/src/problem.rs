//! Problems from traced functions and arrays.

use crate::array;
use crate::command::executor;
use crate::error::{self, of};
use crate::estimate::Estimator;
use crate::function::Function;
use crate::interrupt::{abandonable, interruptible};
use crate::stream::{self, Declared};
use crate::tracer::dtype;
use bilevel::methods::{self, AnyMethod};
use bilevel::observers::StopSignal;
use bilevel::programs::Traced;
use bilevel::splits::Rows;
use bilevel::{Array, InnerLoop, Key, Named, Precision, Problem as Core, Session, Variable};
use pyo3::prelude::*;

/// A leaf of λ: its name, start and bounds.
type Hyperparameter<'py> = (String, Bound<'py, PyAny>, f64, f64);
/// A leaf of θ: its name, start and role, which is `trained`, `statistic` or `frozen`.
type Parameter<'py> = (String, Bound<'py, PyAny>, String);

/// A problem whose leaves have names.
#[pyclass(frozen, module = "bilevel._bilevel")]
pub struct Problem {
    pub core: Core,
}

/// The numbers of the rows to train on, to choose λ by, held out and to test with.
pub type Divided = [Vec<usize>; 4];

fn rows([train, validation, held_out, test]: Divided) -> Rows {
    Rows::given(train, validation).with_held_out(held_out).with_test(test)
}

fn traced(functions: &[PyRef<'_, Function>]) -> Traced {
    functions.iter().map(|function| (*function.core).clone()).collect::<Vec<_>>().into()
}

/// A table of settings from JSON.
pub fn settings(json: &str) -> PyResult<bilevel_run::Settings> {
    let table = serde_json::from_str(json).map_err(error::setting)?;
    Ok(bilevel_run::Settings::from_table(table))
}

/// The inner loop of a JSON table; the method's usual one if there is none.
pub fn inner_loop(json: Option<&str>, method: &dyn bilevel::Method) -> PyResult<InnerLoop> {
    match json {
        Some(json) => serde_json::from_str(json).map_err(error::setting),
        None => Ok(method.usual_loop()),
    }
}

/// Leaves by name, in the order of the problem.
pub fn named(names: &[&str], arrays: &[Bound<'_, PyAny>]) -> PyResult<Named<Array>> {
    if names.len() != arrays.len() {
        return Err(error::setting(format!("{} arrays were given for {} leaves", arrays.len(), names.len())));
    }
    names.iter().zip(arrays).map(|(name, value)| Ok((name.to_string(), array::read(value)?))).collect()
}

fn variables(lambda: &[Hyperparameter]) -> PyResult<Named<Variable>> {
    let one = |(name, start, low, high): &Hyperparameter| {
        Ok((name.clone(), Variable::fixed(array::read(start)?).at_least(*low).at_most(*high)))
    };
    lambda.iter().map(one).collect()
}

fn parameters(theta: &[Parameter]) -> PyResult<Named<Variable>> {
    let one = |(name, start, role): &Parameter| {
        let variable = Variable::fixed(array::read(start)?);
        let variable = match role.as_str() {
            "statistic" => variable.statistic(),
            "frozen" => variable.frozen(),
            _ => variable,
        };
        Ok((name.clone(), variable))
    };
    theta.iter().map(one).collect()
}

#[pymethods]
impl Problem {
    #[new]
    #[pyo3(signature = (hyperparameters, parameters, data, inner, outer, dtype, start=None, metrics=vec![], precision="full",
                        tables=vec![], rows=None, streams=vec![]))]
    #[allow(clippy::too_many_arguments)] // They are keywords in Python.
    fn new(
        py: Python<'_>,
        hyperparameters: Vec<Hyperparameter<'_>>,
        parameters: Vec<Parameter<'_>>,
        data: Vec<(String, Bound<'_, PyAny>)>,
        inner: Vec<PyRef<'_, Function>>,
        outer: Vec<PyRef<'_, Function>>,
        dtype: &str,
        start: Option<&Function>,
        metrics: Vec<(String, PyRef<'_, Function>)>,
        precision: &str,
        tables: Vec<(String, Bound<'_, PyAny>)>,
        rows: Option<Divided>,
        streams: Vec<Declared>,
    ) -> PyResult<Self> {
        let theta = self::parameters(&parameters)?;
        let precision: Precision = precision.parse().map_err(error::setting)?;
        let mut builder =
            Core::builder(variables(&hyperparameters)?, theta).dtype(self::dtype(dtype)?).precision(precision);
        for (name, value) in &data {
            builder = builder.data(name.clone(), array::read(value)?);
        }
        let rows = self::rows(rows.unwrap_or_default());
        for (name, value) in &tables {
            builder = builder.table(name.clone(), array::read(value)?, &rows);
        }
        for declared in streams {
            for (name, shape, dtype, column) in stream::columns(declared)? {
                builder = builder.stream(name, shape, dtype, column);
            }
        }
        builder = builder.inner_traced(traced(&inner));
        builder = if outer.is_empty() { builder.evidence() } else { builder.outer_traced(traced(&outer)) };
        if let Some(start) = start {
            builder = builder.start_traced((*start.core).clone());
        }
        for (name, function) in &metrics {
            builder = builder.measure_traced(name.clone(), (*function.core).clone());
        }
        let core = py.detach(move || builder.build()).map_err(of)?;
        Ok(Problem { core })
    }

    /// Numbers in λ and in θ.
    #[getter]
    fn sizes(&self) -> (usize, usize) {
        self.core.sizes()
    }

    #[getter]
    fn dtype(&self) -> String {
        self.core.dtype().to_string()
    }

    #[getter]
    fn starts_from_lambda(&self) -> bool {
        self.core.starts_from_lambda()
    }

    /// The methods that apply, and for each of the others the reason why not.
    #[allow(clippy::type_complexity)] // Python names the parts.
    fn methods(&self, py: Python<'_>) -> PyResult<(Vec<String>, Vec<(String, String)>)> {
        py.detach(|| {
            let (mut applying, mut refused) = (vec![], vec![]);
            for info in methods::all() {
                let method = AnyMethod::named(info.name).map_err(of)?;
                match bilevel::Method::applies(&method, &self.core) {
                    Ok(()) => applying.push(info.name.to_string()),
                    Err(bilevel::Error::NotApplicable { reason, .. }) => refused.push((info.name.to_string(), reason)),
                    Err(error) => return Err(of(error)),
                }
            }
            Ok((applying, refused))
        })
    }

    /// Names of λ's leaves that cannot influence the outer loss.
    fn idle(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.core.idle_hyperparameters()).map_err(of)
    }

    #[pyo3(signature = (method, inner=None, device="cpu", threads=0))]
    fn prepare(
        &self,
        py: Python<'_>,
        method: &str,
        inner: Option<&str>,
        device: &str,
        threads: usize,
    ) -> PyResult<Estimator> {
        let signal = StopSignal::new();
        let prepared =
            || Estimator::new(&self.core, &settings(method)?, inner, &*executor(device, threads)?, signal.clone());
        interruptible(py, &signal, prepared)
    }

    /// The losses and metrics at λ and θ, by name.
    #[pyo3(signature = (lambda_=None, theta=None, seed=0, device="cpu", threads=0))]
    fn losses(
        &self,
        py: Python<'_>,
        lambda_: Option<Vec<Bound<'_, PyAny>>>,
        theta: Option<Vec<Bound<'_, PyAny>>>,
        seed: u64,
        device: &str,
        threads: usize,
    ) -> PyResult<Vec<(String, f64)>> {
        let lambda = lambda_.map(|arrays| named(&self.core.lambda_names(), &arrays)).transpose()?;
        let theta = theta.map(|arrays| named(&self.core.theta_names(), &arrays)).transpose()?;
        py.detach(|| {
            let executor = executor(device, threads)?;
            let session = Session::new(&self.core, &*executor).map_err(of)?;
            let state = self.state(&session, lambda, theta)?;
            let mut evaluator = session.evaluator().map_err(of)?;
            let found = evaluator.at(&state, Key::from_seed(seed)).map_err(of)?;
            Ok(evaluator.names().iter().cloned().zip(found).collect())
        })
    }

    /// Training alone: θ, the losses at the end, and the recorded inner losses.
    #[pyo3(signature = (lambda_, inner, seed=0, record_every=0, device="cpu", threads=0))]
    #[allow(clippy::type_complexity, clippy::too_many_arguments)] // Python names the parts.
    fn train<'py>(
        &self,
        py: Python<'py>,
        lambda_: Vec<Bound<'py, PyAny>>,
        inner: &str,
        seed: u64,
        record_every: u32,
        device: &str,
        threads: usize,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, f64, f64, Vec<(String, f64)>, Vec<(u32, f64)>)> {
        let lambda = named(&self.core.lambda_names(), &lambda_)?;
        let inner: InnerLoop = serde_json::from_str(inner).map_err(error::setting)?;
        let signal = StopSignal::new();
        let train = || {
            let executor = executor(device, threads)?;
            let training = self.core.train(&lambda).inner(inner).seed(seed).record_every(record_every);
            training.executor(executor).stop_signal(signal.clone()).run().map_err(of)
        };
        let trained = interruptible(py, &signal, train)?;
        let theta: Vec<Array> = trained.theta.iter().map(|(_, array)| array.clone()).collect();
        let metrics = trained.measures.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        let (inner_loss, outer_loss, losses) = (trained.inner_loss, trained.outer_loss, trained.losses.clone());
        // The arrays have no other handle then, and need not be copied.
        drop(trained);
        Ok((array::all(py, theta)?, inner_loss, outer_loss, metrics, losses))
    }

    /// The advice on methods, as JSON.
    #[pyo3(signature = (inner, temperature=0.0, device="cpu", threads=0))]
    fn advise(&self, py: Python<'_>, inner: &str, temperature: f64, device: &str, threads: usize) -> PyResult<String> {
        use bilevel::methods::claims::Target;
        use bilevel_run::advise::{Question, Situation, Suite, advise};
        let inner: InnerLoop = serde_json::from_str(inner).map_err(error::setting)?;
        let executor = py.detach(|| executor(device, threads))?;
        let problem = self.core.clone().erase();
        abandonable(py, move || {
            let target = if temperature > 0.0 { Target::Gibbs { temperature } } else { Target::Minimum };
            let question = Question { target, inner };
            let situation = Situation::measure(&problem, &question, &*executor, Key::from_seed(0)).map_err(of)?;
            let suite = Suite::stored().map_err(of)?;
            let registry = bilevel_run::Registry::new();
            let advice = advise(&registry, &suite, &problem, (situation, &question), None).map_err(of)?;
            serde_json::to_string(&advice).map_err(error::other)
        })
    }

    fn __repr__(&self) -> String {
        let (lambda, theta) = self.core.sizes();
        format!("<bilevel problem: {lambda} hyperparameters, {theta} parameters, {}>", self.core.dtype())
    }
}

impl Problem {
    fn state(
        &self,
        session: &Session,
        lambda: Option<Named<Array>>,
        theta: Option<Named<Array>>,
    ) -> PyResult<bilevel::State> {
        let state = session.state(Key::from_seed(0)).map_err(of)?;
        place(&self.core, &state, lambda, theta)?;
        Ok(state)
    }
}

/// Writes λ and θ into a state, if they are given.
pub fn place(
    core: &Core,
    state: &bilevel::State,
    lambda: Option<Named<Array>>,
    theta: Option<Named<Array>>,
) -> PyResult<()> {
    let typed = |leaves: Named<Array>| -> PyResult<Vec<Array>> {
        let cast = |array: &Array| Array::from_values(array.shape(), &array.to_f64(), core.dtype());
        leaves.iter().map(|(_, array)| cast(array).map_err(error::of_graph)).collect()
    };
    if let Some(lambda) = lambda {
        state.lambda.write(&typed(lambda)?).map_err(of)?;
    }
    if let Some(theta) = theta {
        state.theta.write(&typed(theta)?).map_err(of)?;
    }
    Ok(())
}
