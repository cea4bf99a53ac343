//! A run without the feature `checkpoints`: nothing is saved.

#[path = "error.rs"]
pub(crate) mod error;
#[path = "whole_file.rs"]
pub mod whole_file;

pub(crate) mod saving {
    use crate::checkpoint::error::CheckpointError;
    use crate::compiled::session::Session;
    use crate::outer::driver::Settings;
    use crate::outer::progress::Progress;

    /// Saves nothing.
    pub(crate) struct Saving;

    impl Saving {
        pub fn begin(_: &Settings, _: &mut Progress, _: &Session, _: &mut Vec<String>) -> crate::Result<Self> {
            Ok(Saving)
        }

        pub fn is_due(&self, _iteration: u32) -> bool {
            false
        }

        pub fn save(&mut self, _: Option<&Progress>) -> Result<(), CheckpointError> {
            Ok(())
        }

        pub fn save_alone(&mut self, _: Option<&Progress>) -> Result<(), CheckpointError> {
            Ok(())
        }
    }
}
