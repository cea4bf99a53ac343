//! λ and θ on the host: copied from their device, and back after a check that they fit.

use crate::compiled::leaves::Leaves;
use crate::problem::check_finite;
use crate::problem::named::Named;
use crate::problem::variable::Variable;
use crate::problem::{AnyProblem, leaf_name};
use crate::{Error, Result};
use bilevel_graph::Array;

impl AnyProblem {
    /// The arrays of λ by name.
    pub(crate) fn named_lambda(&self, leaves: &Leaves) -> Result<Named<Array>> {
        let names = self.lambda.iter().map(|(name, _)| name.clone());
        Ok(names.zip(self.lambda_arrays(leaves)?).collect())
    }

    /// The arrays of all leaves of θ by name.
    pub(crate) fn named_theta(&self, leaves: &Leaves) -> Result<Named<Array>> {
        let mut names: Vec<String> = self.theta.iter().map(|(name, _)| name.clone()).collect();
        self.frozen.iter().for_each(|(place, name, _)| names.insert(*place, name.clone()));
        Ok(names.into_iter().zip(self.theta_arrays(leaves)?).collect())
    }

    /// The arrays of leaves that have λ's shapes.
    pub(crate) fn lambda_arrays(&self, leaves: &Leaves) -> Result<Vec<Array>> {
        arrays("λ", &self.lambda, leaves)
    }

    /// The arrays of all leaves of θ, those that are frozen in their places.
    pub(crate) fn theta_arrays(&self, leaves: &Leaves) -> Result<Vec<Array>> {
        let mut all = arrays("θ", &self.theta, leaves)?;
        // In the order of their places, so that earlier ones are already inserted.
        self.frozen.iter().for_each(|(place, _, array)| all.insert(*place, array.clone()));
        Ok(all)
    }

    /// A λ given by the user, in the problem's type.
    pub(crate) fn given_lambda(&self, given: &[&Array]) -> Result<Vec<Array>> {
        self.given("λ", &self.lambda, given)
    }

    /// The trained leaves of a θ given by the user, in the problem's type. Those that are frozen must be the problem's
    /// own.
    pub(crate) fn given_theta(&self, given: &[&Array]) -> Result<Vec<Array>> {
        let mut trained = given.to_vec();
        for (place, name, own) in self.frozen.iter().rev() {
            let leaf = leaf_name("θ", name);
            if *place >= trained.len() {
                return Err(Error::Variable { leaf, reason: "is missing".into() });
            }
            let given = trained.remove(*place);
            if given.shape() != own.shape() || Array::from_values(own.shape(), &given.to_f64(), self.dtype)? != *own {
                let reason = "is frozen, so its numbers cannot differ from the problem's".into();
                return Err(Error::Variable { leaf, reason });
            }
        }
        self.given("θ", &self.theta, &trained)
    }

    fn given(&self, tree: &str, variables: &[(String, Variable)], given: &[&Array]) -> Result<Vec<Array>> {
        fits(tree, variables.len(), given.len())?;
        let one = |((name, variable), array): (&(String, Variable), &&Array)| {
            let leaf = leaf_name(tree, name);
            if array.shape() != variable.shape {
                let (found, expected) = (array.shape().to_vec(), variable.shape.clone());
                return Err(Error::Shape { what: leaf, found, expected });
            }
            let taken = Array::from_values(array.shape(), &array.to_f64(), self.dtype)?;
            check_finite(&leaf, &taken, &array.to_f64())?;
            Ok(taken)
        };
        variables.iter().zip(given).map(one).collect()
    }

    /// Refuses a λ that the outer loop could not have reached.
    pub(crate) fn within_bounds(&self, lambda: &[Array]) -> Result<()> {
        for ((name, variable), array) in self.lambda.iter().zip(lambda) {
            let leaf = leaf_name("λ", name);
            array.to_f64().into_iter().try_for_each(|value| variable.check_first(&leaf, value))?;
        }
        Ok(())
    }
}

fn arrays(tree: &str, variables: &[(String, Variable)], leaves: &Leaves) -> Result<Vec<Array>> {
    fits(tree, variables.len(), leaves.len())?;
    leaves.arrays()
}

fn fits(tree: &str, wanted: usize, given: usize) -> Result<()> {
    match wanted == given {
        true => Ok(()),
        false => Err(Error::LeafCount { what: tree.into(), found: given, expected: wanted }),
    }
}
