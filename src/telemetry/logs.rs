// SPDX-License-Identifier: Apache-2.0
//! Logs: one JSON object or one plain line for each event, level and format changeable while the daemon runs.
//!
//! Every JSON line has `timestamp` (RFC 3339), `level`, `target`, `message`, and the event's own fields beside them.

use std::io::{self, IsTerminal as _};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, Registry, fmt};

use super::line_writer::LineWriter;
use crate::config::{Log, LogFormat};

/// Logs cannot be written as wished.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The writing thread does not start.
    #[error("cannot start the thread that writes logs")]
    Thread(#[source] io::Error),
    /// Somebody has set up logging before.
    #[error("cannot set up logging")]
    Init(#[source] TryInitError),
    /// `log.level` is no filter.
    #[error("log.level '{level}' is no filter")]
    Level {
        /// What was given.
        level: String,
        /// Why not.
        #[source]
        source: ParseError,
    },
    /// Logging was taken down.
    #[error("cannot change the filter of logs")]
    Reload(#[source] reload::Error),
}

/// Changes what is logged. Its end waits a moment for the last lines.
#[derive(Debug)]
pub struct Logging {
    json: Handle<Targets, Registry>,
    text: Handle<Targets, Registry>,
    writer: LineWriter,
}

impl Logging {
    /// Starts logging to standard output, for the whole process and once.
    ///
    /// # Errors
    /// The level is none, the thread does not start, or logging was set up before.
    pub fn init(log: &Log) -> Result<Self, TelemetryError> {
        let writer = LineWriter::spawn(io::stdout()).map_err(TelemetryError::Thread)?;
        let (subscriber, logging) = subscriber(log, writer, io::stdout().is_terminal())?;
        subscriber.try_init().map_err(TelemetryError::Init)?;
        Ok(logging)
    }

    /// Puts level and format in force.
    ///
    /// # Errors
    /// The level is none.
    pub fn apply(&self, log: &Log) -> Result<(), TelemetryError> {
        let (json, text) = filters(log)?;
        self.json.reload(json).map_err(TelemetryError::Reload)?;
        self.text.reload(text).map_err(TelemetryError::Reload)
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.writer.drain();
    }
}

/// Of the two formats one lets through what `log.level` does, the other nothing.
fn filters(log: &Log) -> Result<(Targets, Targets), TelemetryError> {
    let wanted: Targets = log.level.parse().map_err(|source| TelemetryError::Level { level: log.level.clone(), source })?;
    let nothing = Targets::new().with_default(LevelFilter::OFF);
    Ok(match log.format {
        LogFormat::Json => (wanted, nothing),
        LogFormat::Text => (nothing, wanted),
    })
}

fn subscriber(
    log: &Log,
    writer: LineWriter,
    colours: bool,
) -> Result<(impl tracing::Subscriber + Send + Sync + use<>, Logging), TelemetryError> {
    let (json, text) = filters(log)?;
    let (json_filter, json) = reload::Layer::new(json);
    let (text_filter, text) = reload::Layer::new(text);
    let json_layer = fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(writer.clone());
    let text_layer = fmt::layer().with_ansi(colours).with_writer(writer.clone());
    let layers = vec![json_layer.with_filter(json_filter).boxed(), text_layer.with_filter(text_filter).boxed()];
    Ok((Registry::default().with(layers), Logging { json, text, writer }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Output {
        fn lines(&self) -> Vec<String> {
            let octets = std::mem::take(&mut *self.0.lock().unwrap());
            String::from_utf8(octets).unwrap().lines().map(ToOwned::to_owned).collect()
        }
    }

    impl Write for Output {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(octets)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(level: &str, format: LogFormat) -> Log {
        Log { level: level.to_owned(), format }
    }

    #[test]
    fn level_and_format_change_while_it_runs() {
        let output = Output::default();
        let writer = LineWriter::spawn(output.clone()).unwrap();
        let (subscriber, logging) = subscriber(&log("info", LogFormat::Json), writer, false).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("unheard");
            tracing::info!(peer = "rr1", hold = 9, "session established");
            logging.writer.drain();
            let lines = output.lines();
            assert_eq!(lines.len(), 1, "{lines:?}");
            let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
            let fields =
                [("level", "INFO"), ("target", "vipherald::telemetry::logs::tests"), ("message", "session established"), ("peer", "rr1")];
            for (key, value) in fields {
                assert_eq!(line[key], value, "{line}");
            }
            assert_eq!(line["hold"], 9);
            assert!(humantime::parse_rfc3339(line["timestamp"].as_str().unwrap()).is_ok());

            logging.apply(&log("warn,vipherald::telemetry=debug", LogFormat::Text)).unwrap();
            tracing::debug!(peer = "rr1", "heard");
            tracing::info!(target: "elsewhere", "unheard");
            logging.writer.drain();
            let lines = output.lines();
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].ends_with("DEBUG vipherald::telemetry::logs::tests: heard peer=\"rr1\""), "{lines:?}");

            logging.apply(&log("off", LogFormat::Text)).unwrap();
            tracing::error!("unheard");
            logging.writer.drain();
            assert_eq!(output.lines(), [""; 0]);
        });
    }
}
