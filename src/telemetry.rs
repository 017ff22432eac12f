// SPDX-License-Identifier: Apache-2.0
//! What the daemon tells those who watch it: logs on standard output and metrics for Prometheus.
//!
//! Inputs: events of `tracing` from all modules; the status, read at each scrape. Outputs: lines, and the text of `/metrics`. Neither ever holds up
//! the one who reports.

mod line_writer;
mod logs;
mod metrics;
mod process;

use std::error::Error;

pub use logs::{Logging, TelemetryError};
pub use metrics::Metrics;

/// An error and all its causes in one line, outermost first.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
