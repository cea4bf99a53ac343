//! Errors of drawing.

use std::fmt;

/// Why a picture could not be made.
///
/// ```
/// use bilevel_report::{Plot, ReportError};
/// let error = Plot::default().png(0).unwrap_err();
/// assert_eq!(error, ReportError::Width { given: 0, least: 16, most: 10_000 });
/// assert_eq!(error.to_string(), "a picture 0 pixels wide cannot be drawn; choose 16 to 10000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// A width in pixels that makes no sense, or would need gigabytes.
    Width {
        /// The requested width.
        given: u32,
        /// The least that can be drawn.
        least: u32,
        /// The most that can be drawn.
        most: u32,
    },
    /// The PNG encoder refused.
    Encode {
        /// The message of the encoder.
        reason: String,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportError::Width { given, least, most } => {
                write!(f, "a picture {given} pixels wide cannot be drawn; choose {least} to {most}")
            }
            ReportError::Encode { reason } => write!(f, "the picture cannot be encoded as PNG: {reason}"),
        }
    }
}

impl std::error::Error for ReportError {}
