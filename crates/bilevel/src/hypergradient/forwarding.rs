//! Methods that hold another method, and answer as it does.

use crate::Result;
use crate::compiled::session::Session;
use crate::health::probe::PreparedMethod;
use crate::hypergradient::loop_use::{LoopUse, Output};
use crate::hypergradient::paths::Path;
use crate::hypergradient::scale::Scale;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Method};
use crate::inner::inner_loop::InnerLoop;
use crate::methods::claims::Claims;
use crate::problem::AnyProblem;
use bilevel_graph::Executor;

/// All declarations of a [`Method`] except its name, from the wrapped method. An implementation that uses this also
/// denies `clippy::missing_trait_methods`, so that a new item of the trait cannot be left out.
macro_rules! forward_answers {
    ($self:ident => $held:expr, $held_mut:expr) => {
        fn sees(&$self, path: Path) -> bool {
            $held.sees(path)
        }

        fn applies(&$self, problem: &AnyProblem) -> Result<()> {
            $held.applies(problem)
        }

        fn loop_use(&$self) -> LoopUse {
            $held.loop_use()
        }

        fn output(&$self) -> Output {
            $held.output()
        }

        fn usual_loop(&$self) -> InnerLoop {
            $held.usual_loop()
        }

        fn tune(&mut $self, task: InnerLoop, curvature: f64) -> InnerLoop {
            $held_mut.tune(task, curvature)
        }

        fn converge(&mut $self, scale: &Scale) {
            $held_mut.converge(scale);
        }

        fn shares_passes(&$self) -> bool {
            $held.shares_passes()
        }

        fn claims(&$self) -> Claims {
            $held.claims()
        }
    };
}
pub(crate) use forward_answers;

/// As [`forward_answers`], with its name and everything that compiles it: a method that is another method.
macro_rules! forward_method {
    ($self:ident => $held:expr, $held_mut:expr) => {
        fn name(&$self) -> &'static str {
            $held.name()
        }

        fn settings(&$self) -> SettingsRecord {
            $held.settings()
        }

        fn compile(&$self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
            $held.compile(session, inner)
        }

        fn prepare(
            &$self,
            problem: &AnyProblem,
            executor: &dyn Executor,
            inner: &InnerLoop,
        ) -> Result<PreparedMethod> {
            $held.prepare(problem, executor, inner)
        }

        fn prepare_in(&$self, session: &Session, inner: &InnerLoop) -> Result<PreparedMethod> {
            $held.prepare_in(session, inner)
        }

        $crate::hypergradient::forwarding::forward_answers!($self => $held, $held_mut);
    };
}
pub(crate) use forward_method;

#[deny(clippy::missing_trait_methods)]
impl Method for Box<dyn Method> {
    forward_method!(self => (**self), (**self));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypergradient::registry::all;
    use crate::methods::{AnyMethod, Chains};
    use crate::{Cpu, Error, Key, Leaf, Problem, Variable};

    /// Answers everything differently from the trait's defaults.
    #[derive(Clone, Copy, Debug)]
    struct Contrary;

    const NOTHING: Error =
        Error::Setting { name: "contrary", value: crate::errors::SettingValue::Number(0.0), must: "prepared" };

    impl Method for Contrary {
        fn name(&self) -> &'static str {
            "contrary"
        }

        fn compile(&self, _: &Session, _: &InnerLoop) -> Result<Box<dyn Estimator>> {
            Err(Error::other("compiled"))
        }

        fn sees(&self, path: Path) -> bool {
            path == Path::Start
        }

        fn applies(&self, _: &AnyProblem) -> Result<()> {
            Err(NOTHING)
        }

        fn loop_use(&self) -> LoopUse {
            LoopUse { windows: 3, ..LoopUse::CHAIN }
        }

        fn output(&self) -> Output {
            Output::Step
        }

        fn usual_loop(&self) -> InnerLoop {
            InnerLoop::new(0.25, 7)
        }

        fn tune(&mut self, task: InnerLoop, curvature: f64) -> InnerLoop {
            InnerLoop { step: curvature, ..task }
        }

        fn shares_passes(&self) -> bool {
            true
        }

        fn claims(&self) -> Claims {
            Claims { proximal: true, ..Claims::default() }
        }

        fn prepare(&self, _: &AnyProblem, _: &dyn Executor, _: &InnerLoop) -> Result<PreparedMethod> {
            Err(NOTHING)
        }

        fn prepare_in(&self, _: &Session, _: &InnerLoop) -> Result<PreparedMethod> {
            Err(NOTHING)
        }
    }

    fn problem() -> Problem<Leaf<Variable>, Leaf<Variable>> {
        Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
            .inner(|_, l, t| (t.0 - l.0).square())
            .outer(|_, _, t| t.0.square())
            .build()
            .unwrap()
    }

    /// Everything a method answers without being changed, as text.
    fn answers(method: &dyn Method) -> Vec<String> {
        let problem = problem();
        let paths = [Path::Direct, Path::Training, Path::Start];
        vec![
            format!("{:?}", paths.map(|path| method.sees(path))),
            format!("{:?}", method.applies(&problem).map_err(|error| error.to_string())),
            format!("{:?}", method.loop_use()),
            format!("{:?}", method.output()),
            format!("{:?}", method.usual_loop()),
            format!("{:?}", method.shares_passes()),
            format!("{:?}", method.claims()),
        ]
    }

    fn in_boxes<M: Method + Clone + 'static>(method: M) -> [Box<dyn Method>; 2] {
        let one: Box<dyn Method> = Box::new(method.clone());
        let two: Box<dyn Method> = Box::new(Box::new(method) as Box<dyn Method>);
        [one, two]
    }

    /// The answers of the implementation for boxes itself, not of the boxed method.
    fn as_method<M: Method>(method: &M) -> Vec<String> {
        answers(method)
    }

    #[test]
    fn a_method_in_boxes_and_in_chains_keeps_every_answer() {
        let own = answers(&Contrary);
        for boxed in in_boxes(Contrary) {
            assert_eq!(as_method(&boxed), own);
            assert_eq!(<Box<dyn Method> as Method>::name(&boxed), "contrary");
            let session = Session::new(&problem(), &Cpu::with_threads(1)).unwrap();
            let inner = InnerLoop::default();
            let in_session = <Box<dyn Method> as Method>::prepare_in(&boxed, &session, &inner);
            assert_eq!(in_session.err(), Some(NOTHING));
            let prepared = <Box<dyn Method> as Method>::prepare(&boxed, &problem(), &Cpu::with_threads(1), &inner);
            assert_eq!(prepared.err(), Some(NOTHING));
            let compiled = <Box<dyn Method> as Method>::compile(&boxed, &session, &inner);
            assert_eq!(compiled.err().unwrap().to_string(), "compiled");
            let mut tuned = boxed;
            assert_eq!(<Box<dyn Method> as Method>::tune(&mut tuned, inner, 0.5).step, 0.5);
            let boxed = tuned;
            assert_eq!(as_method(&Chains::new(boxed, 2)), own);
        }
        for info in all() {
            let method = AnyMethod::named(info.name).unwrap();
            let own = answers(&method);
            for boxed in in_boxes(method) {
                assert_eq!(as_method(&boxed), own, "{}", info.name);
                assert_eq!(as_method(&Chains::new(boxed, 2)), own, "chains of {}", info.name);
            }
        }
    }

    #[test]
    fn a_boxed_method_is_tuned_and_estimates_as_the_method_does() {
        let problem = problem();
        let task = InnerLoop::new(0.125, 9);
        let mut method = AnyMethod::named("ift-neumann").unwrap();
        let inner = method.tune(task, 2.0);
        for mut boxed in in_boxes(AnyMethod::named("ift-neumann").unwrap()) {
            assert_eq!(<Box<dyn Method> as Method>::tune(&mut boxed, task, 2.0), inner);
            assert_eq!(boxed.settings(), method.settings());
            <Box<dyn Method> as Method>::converge(&mut boxed, &Scale::default());
            assert_eq!(boxed.settings().get("terms").unwrap(), 100);
            <Box<dyn Method> as Method>::converge(
                &mut boxed,
                &Scale { steps: 10, largest_curvature: 2.0, ..Scale::default() },
            );
            let estimate = |method: &dyn Method| {
                let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
                let mut state = session.state(Key::from_seed(0)).unwrap();
                let found =
                    method.prepare_in(&session, &inner).unwrap().estimate(&mut state, Key::from_seed(0)).unwrap();
                found.value.numbers().unwrap()
            };
            assert_eq!(estimate(&boxed), estimate(&method));
        }
    }
}
