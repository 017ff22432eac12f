// SPDX-License-Identifier: Apache-2.0
//! Figures in Markdown.

use std::time::Duration;

/// Milliseconds, with a part of one where that says something.
pub(crate) fn ms(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 1.0 { format!("{ms:.3}") } else { format!("{ms:.1}") }
}

/// MiB of so many KiB.
pub(crate) fn mib(kib: u64) -> String {
    format!("{:.1}", Duration::from_millis(kib).as_secs_f64() * 1e3 / 1024.0)
}

/// The median, and least and most.
pub(crate) fn spread(values: impl IntoIterator<Item = Duration>) -> (Duration, String) {
    let mut values: Vec<Duration> = values.into_iter().collect();
    values.sort();
    let median = values[values.len() / 2];
    (median, format!("{} | {}–{}", ms(median), ms(values[0]), ms(values[values.len() - 1])))
}

/// The median.
pub(crate) fn median(values: impl IntoIterator<Item = Duration>) -> Duration {
    spread(values).0
}

/// So many results of each. They take turns, so that what else the machine does in the meantime meets all of them alike.
pub(crate) fn in_turns<W: Copy, R>(whose: &[W], rounds: usize, run: impl Fn(W) -> R) -> Vec<(W, Vec<R>)> {
    let mut results: Vec<(W, Vec<R>)> = whose.iter().map(|who| (*who, Vec::with_capacity(rounds))).collect();
    for _ in 0..rounds {
        for (who, results) in &mut results {
            results.push(run(*who));
        }
    }
    results
}
