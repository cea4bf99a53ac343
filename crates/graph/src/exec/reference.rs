//! The reference executor: every operation in the most obvious way, one element at a time. Faster executors are tested
//! against it, and the gradient checker uses it by default.

use crate::exec::reference_ops::{DenseOperand, evaluate_node};
use crate::ir::graph::{Graph, with_graph};
use crate::ir::op::Op;
use crate::ir::program::Program;
use crate::tensor::Tensor;
use crate::{Array, Bindings, Buffer, Error, ErrorKind, Executor, Meta, Result, Runnable, Storage};
use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A slow and plain executor. Each element is computed in 64-bit floats and rounded to the tensor's type.
///
/// ```
/// use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F32);
/// let program = Program::builder(&g).output("y", (x * x).sum_all()).build().unwrap();
/// let mut run = Reference.compile(&program).unwrap();
/// run.set(0, &Array::from_f32([3], vec![1.0, 2.0, 3.0]).unwrap()).unwrap();
/// run.run(0..1).unwrap();
/// assert_eq!(run.output(0).unwrap().item(), Some(14.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference;

impl Reference {
    /// The values of `outputs` at these values of the graph's inputs, in one call: builds the program, sets its
    /// inputs and runs one step (number 0).
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference};
    /// let g = Graph::new();
    /// let x = g.input("x", [2], DType::F64);
    /// let value = Array::from_f64([2], vec![3.0, 4.0]).unwrap();
    /// let found = Reference::evaluate(&g, &[(x, value)], &[x.square().sum_all().sqrt(), -x]).unwrap();
    /// assert_eq!(found[0].item(), Some(5.0));
    /// assert_eq!(found[1].to_f64(), [-3.0, -4.0]);
    /// ```
    pub fn evaluate(graph: &Graph, inputs: &[(Tensor, Array)], outputs: &[Tensor]) -> Result<Vec<Array>> {
        evaluate_on(&Reference, graph, inputs, outputs)
    }
}

impl Executor for Reference {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        program.validate()?;
        Ok(Box::new(ReferenceRun { bindings: Bindings::new(program.clone()) }))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        let count = meta.shape.iter().fold(meta.dtype.size(), |n, d| n.saturating_mul(*d));
        let mut bytes = vec![];
        let Ok(()) = bytes.try_reserve_exact(count) else {
            return Err(Error::new(ErrorKind::OutOfMemory { needed: count as u64, free: None }));
        };
        bytes.resize(count, 0);
        Ok(Buffer::new(meta.clone(), Box::new(HostBytes(RwLock::new(bytes)))))
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(*self)
    }
}

/// The elements of a buffer of the [`Reference`] in host memory. A lock makes every use sound.
pub struct HostBytes(RwLock<Vec<u8>>);

impl HostBytes {
    fn get(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn get_mut(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for HostBytes {
    unsafe fn write(&self, first: usize, bytes: &[u8]) -> Result<()> {
        self.get_mut()[first..first + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    unsafe fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.get()[first..first + bytes.len()]);
        Ok(())
    }

    unsafe fn copy_from(&self, other: &dyn Storage, stretch: Range<usize>) -> Result<bool> {
        let Some(other) = other.as_any().downcast_ref::<HostBytes>() else { return Ok(false) };
        self.get_mut()[stretch.clone()].copy_from_slice(&other.get()[stretch]);
        Ok(true)
    }

    unsafe fn zero(&self) -> Result<()> {
        self.get_mut().fill(0);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// As [`Reference::evaluate`], on any executor.
pub(crate) fn evaluate_on(
    executor: &dyn Executor,
    graph: &Graph,
    inputs: &[(Tensor, Array)],
    outputs: &[Tensor],
) -> Result<Vec<Array>> {
    let mut builder = Program::builder(graph).outputs("", outputs.iter().copied());
    for (input, _) in inputs {
        builder = builder.keep_input(*input);
    }
    let program = builder.build()?;
    let mut run = executor.compile(&program)?;
    for (input, value) in inputs {
        run.set(program.input(&input_name(*input)?)?, value)?;
    }
    run.run(0..1)?;
    (0..outputs.len()).map(|number| run.output(number)).collect()
}

/// The name an input tensor was declared with; an error for a tensor that is computed.
pub(crate) fn input_name(tensor: Tensor) -> Result<String> {
    let name = with_graph(tensor.graph_id(), |data| match data.nodes.get(tensor.node_id() as usize)?.op {
        Op::Input(number) => data.input_names.get(number as usize).cloned(),
        _ => None,
    });
    name.flatten().ok_or_else(|| {
        let operands = vec![(tensor.dtype(), tensor.shape())];
        let reason = "only an input can be given a value, but this tensor is computed".into();
        Error::new(ErrorKind::Operation { operation: "evaluate".into(), operands, reason })
    })
}

/// A program on its buffers. While it runs, all numbers are held as `f64`, in which every element type is exact.
struct ReferenceRun {
    bindings: Bindings,
}

impl ReferenceRun {
    /// The numbers of a buffer.
    fn fetch(buffer: &Buffer) -> Result<Vec<f64>> {
        let mut array = Array::zeros(buffer.shape(), buffer.dtype());
        // SAFETY: the storage is locked by itself, and the array has as many bytes.
        unsafe { buffer.storage().read(0, array.bytes_mut())? };
        Ok(array.to_f64())
    }

    fn store(buffer: &Buffer, values: &[f64]) -> Result<()> {
        let array = Array::from_values(buffer.shape(), values, buffer.dtype())?;
        // SAFETY: the storage is locked by itself, and the array has as many bytes.
        unsafe { buffer.storage().write(0, array.bytes()) }
    }

    /// The value of every node, in order: operands come before their users.
    fn evaluate_all(&self, inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
        let program = self.bindings.program();
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(program.nodes.len());
        for (number, node) in program.nodes.iter().enumerate() {
            let value = if let Op::Input(_) = node.op {
                let port = program.inputs.iter().position(|port| port.node == Some(number));
                port.map(|port| inputs[port].clone()).unwrap_or_default()
            } else {
                let operand = |&i: &usize| DenseOperand { meta: &program.nodes[i].meta, values: &values[i] };
                let operands: Vec<DenseOperand> = node.inputs.iter().map(operand).collect();
                evaluate_node(node, &operands)?
            };
            values.push(value);
        }
        Ok(values)
    }
}

impl Runnable for ReferenceRun {
    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        Reference.buffer(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        buffer.storage().as_any().is::<HostBytes>()
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        let program = self.bindings.program();
        let fetch = |buffer: &Option<Buffer>| buffer.as_ref().map_or(Ok(vec![]), Self::fetch);
        let mut inputs: Vec<Vec<f64>> = self.bindings.inputs().iter().map(fetch).collect::<Result<_>>()?;
        let mut values = vec![];
        let mut failed = Ok(());
        for step in steps {
            if let Some(number) = program.step {
                inputs[number] = vec![step as i32 as f64];
            }
            match self.evaluate_all(&inputs) {
                Ok(all) => values = all,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
            // No carried input changes before every node of the step is known, so all change at once.
            for carry in &program.carries {
                inputs[carry.input] = values[carry.next].clone();
            }
        }
        for carry in &program.carries {
            if let Some(buffer) = &self.bindings.inputs()[carry.input] {
                Self::store(buffer, &inputs[carry.input])?;
            }
        }
        failed?;
        for (port, buffer) in program.outputs.iter().zip(self.bindings.outputs()) {
            if let (Some(node), Some(buffer)) = (port.node, buffer) {
                Self::store(buffer, &values[node])?;
            }
        }
        Ok(())
    }
}
