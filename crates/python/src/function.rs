//! Traced functions: evaluated with their derivatives for checks, written and read for pickling.

use crate::array;
use crate::error::{self, of_graph};
use bilevel::graph::{self, Executor, GaussNewton, Graph, Program, gradient_or_zeros, hessian_vector};
use bilevel::{Array, Cpu, Tensor};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A traced function.
#[pyclass(frozen, module = "bilevel._bilevel")]
#[derive(Clone)]
pub struct Function {
    pub core: Arc<graph::Function>,
}

impl Function {
    pub fn of(core: graph::Function) -> Self {
        Function { core: Arc::new(core) }
    }

    /// Outputs, then the gradient of the first, or of its mean, by `wrt`, then its Hessian's product with `along`.
    fn computed(
        &self,
        given: &[(String, Array)],
        wrt: &[String],
        along: &[Array],
        seed: i32,
    ) -> graph::Result<Vec<Array>> {
        let graph = Graph::new();
        let mut bindings: Vec<(String, Array)> = vec![];
        let mut inputs: HashMap<&str, Tensor> = HashMap::new();
        for port in self.core.inputs() {
            let tensor = match (port.name == graph::STEP, port.name == "key") {
                (true, _) => graph.step(),
                (_, true) => graph.constant(f64::from(seed), [2], bilevel::DType::I32),
                _ => {
                    let tensor = graph.input(port.name.clone(), &port.meta.shape, port.meta.dtype);
                    if let Some((_, array)) = given.iter().find(|(name, _)| *name == port.name) {
                        bindings.push((port.name.clone(), array.clone()));
                    }
                    tensor
                }
            };
            inputs.insert(&port.name, tensor);
        }
        let values: Vec<Tensor> = self.core.inputs().iter().map(|port| inputs[port.name.as_str()]).collect();
        let mut outputs = self.core.inline(&graph, &values)?;
        // Inputs without effect on the function have a derivative of zeros.
        let at: Vec<Option<Tensor>> = wrt.iter().map(|name| inputs.get(name.as_str()).copied()).collect();
        let known: Vec<Tensor> = at.iter().flatten().copied().collect();
        if let (Some(&loss), false) = (outputs.first(), known.is_empty()) {
            let loss = loss.mean_all().check()?;
            outputs.extend(gradient_or_zeros(loss, &known)?);
            if !along.is_empty() {
                let mut vectors = vec![];
                for (i, (vector, tensor)) in along.iter().zip(&at).enumerate() {
                    if tensor.is_some() {
                        let name = format!("along {i}");
                        vectors.push(graph.input(name.clone(), vector.shape(), vector.dtype()));
                        bindings.push((name, vector.clone()));
                    }
                }
                let product = hessian_vector(loss, &known, &vectors)?;
                outputs.extend(product.into_iter().zip(&known).map(|(h, t)| h.unwrap_or_else(|| t.zeros_like())));
            }
        }
        let mut builder = Program::builder(&graph);
        for (i, tensor) in outputs.iter().enumerate() {
            builder = builder.output(format!("output {i}"), *tensor);
        }
        let program = builder.build()?;
        let mut run = Cpu::new().compile(&program)?;
        for (name, array) in &bindings {
            // Unused inputs are not in the program.
            if let Ok(number) = program.input(name) {
                run.set(number, array)?;
            }
        }
        run.run(0..1)?;
        (0..outputs.len()).map(|i| run.output(i)).collect()
    }
}

#[pymethods]
impl Function {
    fn __len__(&self) -> usize {
        self.core.len()
    }

    /// Name, shape and type of each input.
    #[getter]
    fn inputs(&self) -> Vec<(String, Vec<usize>, String)> {
        let one = |port: &graph::Port| (port.name.clone(), port.meta.shape.clone(), port.meta.dtype.to_string());
        self.core.inputs().iter().map(one).collect()
    }

    /// Name, shape and type of each output.
    #[getter]
    fn outputs(&self) -> Vec<(String, Vec<usize>, String)> {
        let one = |port: &graph::Port| (port.name.clone(), port.meta.shape.clone(), port.meta.dtype.to_string());
        self.core.outputs().iter().map(one).collect()
    }

    #[getter]
    fn is_random(&self) -> bool {
        self.core.is_random()
    }

    /// The outputs; then the gradient of the first by these inputs, and its Hessian's product with these vectors.
    #[pyo3(signature = (inputs, wrt=vec![], along=vec![], seed=0))]
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<(String, Bound<'py, PyAny>)>,
        wrt: Vec<String>,
        along: Vec<Bound<'py, PyAny>>,
        seed: i32,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inputs: Vec<(String, Array)> =
            inputs.iter().map(|(name, value)| Ok((name.clone(), array::read(value)?))).collect::<PyResult<_>>()?;
        let along: Vec<Array> = along.iter().map(array::read).collect::<PyResult<_>>()?;
        let found = py.detach(|| self.computed(&inputs, &wrt, &along, seed)).map_err(of_graph)?;
        array::all(py, found)
    }

    /// Whether Gauss-Newton products of the first output by these inputs are positive semidefinite by construction: the
    /// loss is known to be convex in the outputs of the model.
    fn is_convex_in_outputs(&self, wrt: Vec<String>) -> PyResult<bool> {
        let graph = Graph::new();
        let value = |port: &graph::Port| graph.input(port.name.clone(), &port.meta.shape, port.meta.dtype);
        let values: Vec<Tensor> = self.core.inputs().iter().map(value).collect();
        let outputs = self.core.inline(&graph, &values).map_err(of_graph)?;
        let known = self.core.inputs().iter().zip(&values).filter(|(port, _)| wrt.contains(&port.name));
        let variables: Vec<Tensor> = known.map(|(_, tensor)| *tensor).collect();
        let Some(&loss) = outputs.first() else { return Ok(false) };
        Ok(GaussNewton::new(loss.mean_all(), &variables).map_err(of_graph)?.is_definite())
    }

    /// As text, to be read again.
    fn dumps(&self) -> PyResult<String> {
        serde_json::to_string(&*self.core).map_err(error::other)
    }

    /// From text.
    #[staticmethod]
    fn loads(text: &str) -> PyResult<Self> {
        serde_json::from_str(text)
            .map(Function::of)
            .map_err(|error| error::other(format!("not a traced function: {error}")))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.py().get_type::<Self>().getattr("loads")?, (slf.get().dumps()?,)))
    }

    fn __repr__(&self) -> String {
        format!("<traced function of {} operations>", self.core.len())
    }
}
