//! The start of a run in place of the task's: λ or θ from a file, such as those of another run.

use bilevel::{Driver, Error, Problem, Result};
use serde::{Deserialize, Serialize};

/// Files that λ and θ start from. The run depends on their contents and not on their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The file of λ; empty for the start of the task.
    pub lambda: String,
    /// The file of θ; empty for the start of the task.
    pub theta: String,
    /// The checksum of the files: empty until the run begins, and checked whenever it continues.
    pub checksum: String,
}

impl Start {
    /// Returns true if λ or θ starts from a file.
    pub fn is_given(&self) -> bool {
        !self.lambda.is_empty() || !self.theta.is_empty()
    }

    /// The same with the checksum of the files. Files that differ from an earlier checksum are refused.
    pub fn sealed(self) -> Result<Self> {
        if !self.is_given() {
            return Ok(Start::default());
        }
        let checksum = checksum([&self.lambda, &self.theta], "start from")?;
        if !self.checksum.is_empty() && self.checksum != checksum {
            let files = [&self.lambda, &self.theta].into_iter().filter(|file| !file.is_empty()).cloned();
            return Err(Error::other(format!(
                "{} changed after the run started; put the right file back, or start another run",
                files.collect::<Vec<_>>().join(" or ")
            )));
        }
        Ok(Start { checksum, ..self })
    }

    /// The driver, from this start.
    pub fn place(&self, mut driver: Driver, problem: &Problem) -> Result<Driver> {
        let start = self.clone().sealed()?;
        if !start.lambda.is_empty() {
            driver = driver.start_from(&problem.load_lambda(&start.lambda)?);
        }
        if !start.theta.is_empty() {
            driver = driver.theta(&problem.load_theta(&start.theta)?);
        }
        Ok(driver)
    }
}

/// FNV-1a, which finds files that were mixed up; it is no protection against malice.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// The checksum of files by their contents, and of their order: those with empty names count as empty.
pub(super) fn checksum(paths: [&str; 2], purpose: &str) -> Result<String> {
    let mut sum = BASIS;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for path in paths {
        if !path.is_empty() {
            let cannot = |error: std::io::Error| Error::other(format!("cannot {purpose} {path}: {error}"));
            add(&bilevel::files::whole_file::read_regular(path.as_ref()).map_err(cannot)?);
        }
        // So that two files cannot change places.
        add(b"\n");
    }
    Ok(format!("{sum:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_known_by_the_contents_of_its_files_and_a_changed_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_string()
        };
        let from = |lambda: String| Start { lambda, ..Start::default() };
        let (one, same, other) = (file("one", "λ"), file("same", "λ"), file("other", "θ"));
        let sealed = from(one.clone()).sealed().unwrap();
        assert_eq!(sealed.checksum, from(same.clone()).sealed().unwrap().checksum);
        assert_ne!(sealed.checksum, from(other).sealed().unwrap().checksum);
        let as_theta = Start { theta: same, ..Start::default() }.sealed().unwrap();
        assert_ne!(sealed.checksum, as_theta.checksum, "λ and θ are told apart");
        assert_eq!(sealed.clone().sealed().unwrap(), sealed);
        std::fs::write(&one, "something else").unwrap();
        let refused = sealed.sealed().unwrap_err().to_string();
        assert!(refused.contains("changed after the run started"), "{refused}");
        let missing = from("no/such/file".into()).sealed().unwrap_err().to_string();
        assert!(missing.starts_with("cannot start from no/such/file"), "{missing}");
        assert_eq!(Start { checksum: "left over".into(), ..Start::default() }.sealed().unwrap(), Start::default());
    }
}
