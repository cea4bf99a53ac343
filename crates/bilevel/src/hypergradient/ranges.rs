//! Checks a method's settings before there is a problem.
//!
//! A method checks its settings in `compile`, before it compiles its first program. So `compile` on a problem of one number, with an
//! executor that compiles nothing, gets through these checks and no further.

use crate::compiled::session::Session;
use crate::hypergradient::Method;
use crate::inner::inner_loop::InnerLoop;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use crate::{Error, Result};
use bilevel_graph::{Buffer, ErrorKind, Executor, Leaf, Meta, Program, Runnable};
use std::sync::Arc;

/// Refuses settings of a method, or of its inner loop, that are outside their range or that it cannot use on any
/// problem. An error here is always [`Error::Setting`] or [`Error::InnerLoop`]. Whether the method applies to a problem
/// is decided by [`Method::applies`].
///
/// ```
/// use bilevel::InnerLoop;
/// use bilevel::methods::{Hoag, check_settings};
/// assert!(check_settings(&Hoag::default(), &InnerLoop::default()).is_ok());
/// let error = check_settings(&Hoag::default(), &InnerLoop::new(-1.0, 100)).unwrap_err();
/// assert_eq!(error.to_string(), "step is -1 but must be above 0");
/// ```
pub fn check_settings(method: &dyn Method, inner: &InnerLoop) -> Result<()> {
    // Some methods look first at how θ starts; each applies to one of these.
    for starts_from_lambda in [false, true] {
        let one = || Leaf(Variable::constant([], 1.0));
        let problem =
            Problem::builder(one(), one()).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.square());
        let problem = if starts_from_lambda { problem.start(|_, l| *l) } else { problem };
        let problem = problem.build()?;
        let compiled = method.compile(&Session::new(&problem, &NoExecutor)?, inner);
        if let Err(error @ (Error::Setting { .. } | Error::InnerLoop { .. })) = compiled {
            return Err(error);
        }
    }
    Ok(())
}

/// An executor without memory that compiles nothing.
struct NoExecutor;

fn refuse<T>() -> bilevel_graph::Result<T> {
    Err(bilevel_graph::Error::new(ErrorKind::Stopped))
}

impl Executor for NoExecutor {
    fn compile(&self, _: &Program) -> bilevel_graph::Result<Box<dyn Runnable>> {
        refuse()
    }

    fn buffer(&self, _: &Meta) -> bilevel_graph::Result<Buffer> {
        refuse()
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(NoExecutor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypergradient::registry::all;
    use crate::methods::AnyMethod;
    use bilevel_cpu::Cpu;
    use serde_json::{Map, Value};

    fn read(table: &Map<String, Value>) -> Option<AnyMethod> {
        serde_json::from_value(Value::Object(table.clone())).ok()
    }

    #[test]
    fn the_settings_that_a_method_is_registered_with_are_within_their_ranges() {
        for info in all() {
            let method = AnyMethod::named(info.name).unwrap();
            assert_eq!(check_settings(&method, &method.usual_loop()), Ok(()), "{}", info.name);
        }
    }

    #[test]
    fn every_range_that_a_run_refuses_is_refused_without_a_problem() {
        let one = || Leaf(Variable::constant([], 1.0));
        let problem = |starts: bool| {
            let problem =
                Problem::builder(one(), one()).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.square());
            if starts { problem.start(|_, l| *l) } else { problem }.build().unwrap()
        };
        let problems = [problem(false), problem(true)];
        let mut refused = vec![];
        for info in all() {
            let Ok(Value::Object(table)) = serde_json::to_value(AnyMethod::named(info.name).unwrap()) else { panic!() };
            for (key, value) in &table {
                let bad: &[Value] = match value {
                    Value::Number(number) if number.is_f64() => &[(-1.0).into(), 0.0.into(), 2.0.into()],
                    Value::Number(_) => &[0.into(), 1.into()],
                    _ => &[],
                };
                for value in bad {
                    let mut table = table.clone();
                    table.insert(key.clone(), value.clone());
                    let Some(method) = read(&table) else { continue };
                    let found = problems.iter().find_map(|problem| {
                        let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
                        let found = method.compile(&session, &method.usual_loop()).err();
                        found.filter(|error| matches!(error, Error::Setting { .. }))
                    });
                    assert_eq!(
                        check_settings(&method, &method.usual_loop()).err(),
                        found,
                        "{} with {key} = {value}",
                        info.name
                    );
                    refused.extend(found.map(|_| (info.name, key.clone())));
                }
            }
        }
        assert!(refused.len() >= 30, "{refused:?}");
        for info in all() {
            let method = AnyMethod::named(info.name).unwrap();
            let refused = check_settings(&method, &InnerLoop { step: -1.0, ..method.usual_loop() });
            assert!(matches!(refused, Err(Error::Setting { name: "step", .. })), "{}: {refused:?}", info.name);
        }
    }

    #[test]
    fn settings_as_large_as_they_can_be_cost_no_memory() {
        for info in all() {
            let Ok(Value::Object(mut table)) = serde_json::to_value(AnyMethod::named(info.name).unwrap()) else {
                panic!()
            };
            for value in table.values_mut().filter(|value| value.is_u64()) {
                *value = Value::from(u32::MAX);
            }
            let method = read(&table).unwrap();
            let steps = (i32::MAX - 1) as usize;
            let _ = check_settings(&method, &InnerLoop { steps, ..method.usual_loop() });
        }
    }
}
