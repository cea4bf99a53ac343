//! The launcher of this process, its rank and the number of ranks: from the variables of `mpirun`, `srun` and
//! `torchrun`.

use crate::implementation::Implementation;
use crate::mpi::Mpi;
use crate::tcp::Tcp;
use bilevel_graph::{Link, Result, rank_error};

/// How the ranks of this launch reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By the library of the launcher.
    Mpi(Implementation),
    /// By TCP; rank 0 listens at this address.
    Tcp(String),
}

/// A process that a launcher started as one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher, as its users call it.
    pub launcher: &'static str,
    /// The number of this rank, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The number of this rank among those of its machine.
    pub local: usize,
    /// How the ranks reach each other.
    pub transport: Transport,
}

/// The port that ranks meet at lies so far above that of `torchrun`, which is taken by its own store.
const PORTS_ABOVE: u32 = 11;
/// Without a port from a launcher, one between this and twice this follows from the number of the job.
const FIRST_PORT: u32 = 20_000;

impl Launch {
    /// The launch given by the variables of this process; `None` if it was started alone.
    pub fn detect() -> Result<Option<Self>> {
        Self::of(|name| std::env::var(name).ok())
    }

    /// The launch given by these variables.
    ///
    /// ```
    /// use bilevel_ranks::Launch;
    /// let variable = |name: &str| match name {
    ///     "RANK" => Some("3".to_string()),
    ///     "WORLD_SIZE" => Some("8".into()),
    ///     "MASTER_ADDR" => Some("node1".into()),
    ///     "MASTER_PORT" => Some("29500".into()),
    ///     _ => None,
    /// };
    /// let launch = Launch::of(variable)?.expect("torchrun's variables are there");
    /// assert_eq!((launch.launcher, launch.rank, launch.size), ("torchrun", 3, 8));
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &str| -> Result<Option<usize>> {
            let Some(text) = variable(name) else { return Ok(None) };
            let wrong =
                || rank_error(format!("{name} is '{text}', which is no number of ranks; start this with a launcher"));
            text.trim().parse().map(Some).map_err(|_| wrong())
        };
        let launch = |launcher, [rank, size, local]: [&str; 3], transport: Transport| -> Result<Option<Launch>> {
            let (Some(rank), Some(size)) = (number(rank)?, number(size)?) else { return Ok(None) };
            if rank >= size {
                return Err(rank_error(format!("{launcher} calls this rank {rank} of {size}; start it again")));
            }
            let local = number(local).ok().flatten().unwrap_or(rank);
            Ok((size > 1).then_some(Launch { launcher, rank, size, local, transport }))
        };
        if variable("OMPI_COMM_WORLD_SIZE").is_some() {
            let names = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"];
            return launch("mpirun of Open MPI", names, Transport::Mpi(Implementation::OpenMpi));
        }
        if variable("PMI_SIZE").is_some() && variable("SLURM_STEP_ID").is_none() {
            let names = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"];
            return launch("mpirun of MPICH", names, Transport::Mpi(Implementation::Mpich));
        }
        if variable("WORLD_SIZE").is_some()
            && let Some(host) = variable("MASTER_ADDR")
        {
            let port = number("MASTER_PORT")?.unwrap_or(FIRST_PORT as usize) as u32 + PORTS_ABOVE;
            return launch("torchrun", ["RANK", "WORLD_SIZE", "LOCAL_RANK"], Transport::Tcp(format!("{host}:{port}")));
        }
        // A batch script is no task of a step, though it has the job's variables.
        if variable("SLURM_STEP_ID").is_some() {
            let host = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_NODELIST")).unwrap_or_default();
            let job = [number("SLURM_JOB_ID")?, number("SLURM_STEP_ID").ok().flatten()];
            let port = FIRST_PORT + (job.iter().flatten().sum::<usize>() % FIRST_PORT as usize) as u32;
            let names = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"];
            return launch("srun", names, Transport::Tcp(format!("{}:{port}", first_host(&host))));
        }
        Ok(None)
    }

    /// Joins the other ranks.
    pub fn join(&self) -> Result<Link> {
        let link = match &self.transport {
            Transport::Mpi(implementation) => Link::new(Mpi::join(*implementation)?),
            Transport::Tcp(address) => Link::new(Tcp::join(self.rank, self.size, address)?),
        };
        if (link.rank(), link.size()) != (self.rank, self.size) {
            return Err(rank_error(format!(
                "{} says that this is rank {} of {}, and its library that it is rank {} of {}; the launcher and the library belong to \
                 different installations",
                self.launcher,
                self.rank,
                self.size,
                link.rank(),
                link.size()
            )));
        }
        Ok(link)
    }
}

/// The first of a list of hosts as Slurm writes it: `node[03-07,9],other` begins with `node03`.
fn first_host(list: &str) -> String {
    let list = list.trim();
    match list.split_once('[') {
        Some((prefix, rest)) if !prefix.contains(',') => {
            let end = rest.find([',', '-', ']']).unwrap_or(rest.len());
            format!("{prefix}{}", &rest[..end])
        }
        _ => list.split(',').next().unwrap_or_default().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        Launch::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn every_launcher_is_known_by_its_variables() {
        let open_mpi =
            [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
        let found = of(&open_mpi).unwrap().unwrap();
        assert_eq!((found.rank, found.size, found.transport), (1, 4, Transport::Mpi(Implementation::OpenMpi)));
        let found = of(&[("PMI_RANK", "2"), ("PMI_SIZE", "3")]).unwrap().unwrap();
        assert_eq!((found.rank, found.transport), (2, Transport::Mpi(Implementation::Mpich)));
        let slurm = [
            ("SLURM_STEP_ID", "2"),
            ("SLURM_JOB_ID", "40005"),
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NODELIST", "gpu[007-010],login"),
        ];
        let found = of(&slurm).unwrap().unwrap();
        assert_eq!((found.launcher, found.local), ("srun", 1));
        assert_eq!(found.transport, Transport::Tcp("gpu007:20007".into()));
    }

    #[test]
    fn alone_there_is_no_launch_and_a_batch_script_is_alone() {
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "7")]).unwrap(), None);
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]).unwrap(), None);
    }

    #[test]
    fn variables_that_make_no_sense_are_refused_with_their_value() {
        let error = of(&[("PMI_RANK", "x"), ("PMI_SIZE", "3")]).unwrap_err().to_string();
        assert!(error.contains("PMI_RANK is 'x'"), "{error}");
        let error = of(&[("PMI_RANK", "3"), ("PMI_SIZE", "3")]).unwrap_err().to_string();
        assert!(error.contains("rank 3 of 3"), "{error}");
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        let lists = ["node1", "node1,node2", "node[03-07,9],other", "a,b[1-2]", "rack-2-[4]"];
        assert_eq!(lists.map(first_host), ["node1", "node1", "node03", "a", "rack-2-4"]);
    }
}
