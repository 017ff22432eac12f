// SPDX-License-Identifier: Apache-2.0
//! Standard output for logs, behind a bounded queue and a thread.
//!
//! Whoever reads our output may stop reading; a write would then block, and with it the thread that keeps BGP sessions alive. Lines that do not fit
//! the queue are dropped and counted instead.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// A burst of lines; at some hundred octets each about a megabyte.
const QUEUE: usize = 4096;

/// How long an end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines dropped since the process started.
pub(super) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Takes one line with each write.
#[derive(Clone, Debug)]
pub(super) struct LineWriter(SyncSender<Item>);

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

impl LineWriter {
    /// Starts the thread that writes to `output`.
    pub(super) fn spawn(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE);
        thread::Builder::new().name("log".to_owned()).spawn(move || write_all(output, &receiver))?;
        Ok(Self(sender))
    }

    /// Waits until the lines so far are written, but not long.
    pub(super) fn drain(&self) {
        let (done, wait) = sync_channel(1);
        if self.0.try_send(Item::Flush(done)).is_ok() {
            // Without an answer the reader has stopped reading, and nobody is left to tell.
            wait.recv_timeout(FLUSH).ok();
        }
    }
}

fn write_all(mut output: impl Write, items: &Receiver<Item>) {
    for item in items {
        // A reader that is gone is no reason to stop: the daemon's work is not to log.
        match item {
            Item::Line(line) => output.write_all(&line).ok(),
            Item::Flush(done) => {
                output.flush().ok();
                done.send(()).ok()
            }
        };
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.0.try_send(Item::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LineWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(octets)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_out_in_order() {
        let output = Output::default();
        let mut writer = LineWriter::spawn(output.clone()).unwrap();
        for number in 0..100 {
            writeln!(writer, "{number}").unwrap();
        }
        writer.drain();
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(output.0.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn a_reader_that_stopped_reading_blocks_nobody() {
        let output = Output::default();
        let stopped = output.0.lock().unwrap();
        let mut writer = LineWriter::spawn(output.clone()).unwrap();
        let before = dropped();
        for _ in 0..QUEUE * 2 {
            writer.write_all(b"line\n").unwrap();
        }
        assert!(dropped() > before);
        drop(stopped);
    }
}
