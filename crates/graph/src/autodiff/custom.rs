//! Tensors with a custom derivative rule: a node in the graph with operands, a value, and a rule for the operands'
//! cotangents. A program keeps only the value.

use crate::ir::function::Function;
use crate::ir::graph::{make, refuse, with_graph};
use crate::ir::op::Op;
use crate::tensor::Tensor;
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

type Rule = dyn Fn(&[Tensor], Tensor, Tensor) -> Vec<Option<Tensor>>;

/// A derivative rule: from the operands x, the value y and its cotangent g to the cotangent of each operand, or `None`
/// if it is structurally zero.
///
/// The rule is traced like any other computation, so its own derivatives are exact at every order. A rule that is used for several
/// values is better made once: equal values of equal operands are then one node.
///
/// Forward products ([`jvp`](crate::jvp)) need a rule that is linear in g, and refuse any other.
///
/// ```
/// use bilevel_graph::{CustomRule, DType, Graph, Reference, gradient};
/// let g = Graph::new();
/// let x = g.input("x", [], DType::F64);
/// // The value of a step, with the derivative of a sigmoid in its place.
/// let surrogate = CustomRule::new(|x, _, g| {
///     let s = (x[0] * 4.0).sigmoid();
///     vec![Some(g * s * (1.0 - s) * 4.0)]
/// });
/// let spike = surrogate.of(&[x], |x| x[0].greater(0.0));
/// let dx = gradient(spike, &[x])?[0].unwrap();
/// let at = bilevel_graph::Array::scalar(0.0, DType::F64);
/// let found = Reference::evaluate(&g, &[(x, at)], &[spike, dx])?;
/// assert_eq!([found[0].item(), found[1].item()], [Some(0.0), Some(1.0)]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct CustomRule {
    rule: Rc<Rule>,
    /// The rule as data, if it was given so.
    pub(crate) data: Option<Arc<Function>>,
}

impl CustomRule {
    /// A rule from this function of x, y and g.
    pub fn new(rule: impl Fn(&[Tensor], Tensor, Tensor) -> Vec<Option<Tensor>> + 'static) -> Self {
        CustomRule { rule: Rc::new(rule), data: None }
    }

    /// A rule from a traced function, which a [`Function`] that uses the rule can hold. Its inputs are named `0`, `1`,
    /// … after the operands, and `cotangent`; its outputs are named after the operands whose cotangents they are.
    /// Structurally zero outputs and unused inputs are left out.
    ///
    /// Such a rule applies to the first derivative: its result is an ordinary function, in which the value is its
    /// defining expression with its own derivatives. Derivatives of a gradient are then the true ones of that gradient.
    /// A rule given as a closure applies to the value at every order instead.
    ///
    /// ```
    /// use bilevel_graph::{CustomRule, DType, Graph, Program, gradient};
    /// let g = Graph::new();
    /// let rule = Program::builder(&g).output("0", g.input("cotangent", [3], DType::F64)).function()?;
    /// let straight_through = CustomRule::from_function(rule.into());
    /// let x = g.input("x", [3], DType::F64);
    /// let y = straight_through.of(&[x], |x| x[0].floor());
    /// assert_eq!(gradient(y.sum_all(), &[x])?[0].unwrap().constant_value(), Some(1.0));
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn from_function(function: Arc<Function>) -> Self {
        let data = function.clone();
        let rule = move |x: &[Tensor], _: Tensor, g: Tensor| function.cotangents(x, g);
        CustomRule { rule: Rc::new(rule), data: Some(data) }
    }

    /// The value of this function of the operands, whose derivatives this rule gives. Other tensors in the function
    /// count as constants.
    #[track_caller]
    pub fn of(&self, operands: &[Tensor], value: impl FnOnce(&[Tensor]) -> Tensor) -> Tensor {
        let value = value(operands);
        if let Some(broken) = operands.iter().find(|x| x.error_index().is_some()) {
            return *broken;
        }
        if operands.is_empty() {
            return refuse("custom", &[value], "needs at least one operand".into());
        }
        let rule = with_graph(value.graph_id(), |data| {
            let known = data.rules.iter().position(|known| known.is_same(self));
            known.unwrap_or_else(|| {
                data.rules.push(self.clone());
                data.rules.len() - 1
            })
        });
        let inputs = [&[value], operands].concat();
        make(value.graph_id(), "custom", Op::Custom(rule.unwrap_or_default() as u32), &inputs, None)
    }

    fn is_same(&self, other: &CustomRule) -> bool {
        match (&self.data, &other.data) {
            (Some(own), Some(others)) => Arc::ptr_eq(own, others),
            _ => Rc::ptr_eq(&self.rule, &other.rule),
        }
    }
}

impl fmt::Debug for CustomRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomRule({:p})", Rc::as_ptr(&self.rule))
    }
}

/// The value of a function of the operands, with a custom derivative rule; see [`CustomRule`].
///
/// ```
/// use bilevel_graph::{DType, Graph, custom, gradient};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F64);
/// // A straight-through estimator: rounded down, with the derivative of the identity.
/// let whole = custom(&[x], |x| x[0].floor(), |_, _, g| vec![Some(g)]);
/// let dx = gradient((whole * whole).sum_all(), &[x])?[0].unwrap();
/// assert!(dx.is_same_node(whole * 2.0));
/// // The identity, through which no component of a gradient passes that is larger than 1.
/// let clipped = custom(&[x], |x| x[0], |_, _, g| vec![Some(g.clamp(-1.0, 1.0))]);
/// let dx = gradient((clipped * 5.0).sum_all(), &[x])?[0].unwrap();
/// assert_eq!(dx.constant_value(), Some(1.0));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[track_caller]
pub fn custom(
    operands: &[Tensor],
    value: impl FnOnce(&[Tensor]) -> Tensor,
    rule: impl Fn(&[Tensor], Tensor, Tensor) -> Vec<Option<Tensor>> + 'static,
) -> Tensor {
    CustomRule::new(rule).of(operands, value)
}

impl Tensor {
    /// The same numbers as an independent variable, for derivatives with respect to a computed value: a node that is
    /// not shared with other expressions, and opaque to simplification. Derivatives pass through it unchanged.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, gradient};
    /// let g = Graph::new();
    /// let (a, b) = (g.input("a", [], DType::F64), g.input("b", [], DType::F64));
    /// let y = (a - b).as_variable();
    /// let loss = -y;
    /// assert_eq!(gradient(loss, &[y])?[0].unwrap().constant_value(), Some(-1.0));
    /// assert_eq!(gradient(loss, &[b])?[0].unwrap().constant_value(), Some(1.0));
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn as_variable(self) -> Tensor {
        custom(&[self], |x| x[0], |_, _, g| vec![Some(g)])
    }
}

/// The cotangents of the operands of a custom node, by its rule.
pub(crate) fn cotangents(rule: u32, x: &[Tensor], y: Tensor, g: Tensor) -> Result<Vec<Option<Tensor>>> {
    let known = with_graph(y.graph_id(), |data| data.rules.get(rule as usize).cloned()).flatten();
    let refuse = |operands: Vec<Tensor>, reason: String| {
        let location = y.node().map(|node| node.location);
        let operands = operands.iter().map(|t| (t.dtype(), t.shape())).collect();
        let kind = ErrorKind::Operation { operation: "custom".into(), operands, reason };
        Err(Error { kind, location })
    };
    let Some(CustomRule { rule, .. }) = known else { return refuse(x.to_vec(), "the rule is of another graph".into()) };
    let found = rule(x, y, g);
    if found.len() != x.len() {
        return refuse(x.to_vec(), format!("{} operands but {} cotangents; give one for each", x.len(), found.len()));
    }
    for (x, cotangent) in x.iter().zip(&found) {
        let Some(cotangent) = cotangent else { continue };
        cotangent.check()?;
        if (cotangent.shape(), cotangent.dtype()) != (x.shape(), x.dtype()) {
            return refuse(vec![*x, *cotangent], "a cotangent must have its operand's shape and type".into());
        }
    }
    Ok(found)
}
