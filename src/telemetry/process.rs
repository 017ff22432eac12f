// SPDX-License-Identifier: Apache-2.0
//! The customary metrics of a process, from `/proc/self` (proc(5)). What cannot be read is left out.

use std::fs;

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// Ticks of CPU time in a second, as the kernel tells them to user space (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Reads them; `started` is in seconds since 1970.
pub(super) fn families(started: f64) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let mut families = gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", Some(started))?;
    if let Some(seconds) = cpu_seconds() {
        let cpu = Counter::new("process_cpu_seconds_total", "User and system CPU time spent, in seconds.")?;
        cpu.inc_by(seconds);
        families.extend(cpu.collect());
    }
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| count(entries.count()));
    families.extend(gauge("process_resident_memory_bytes", "Resident memory, in octets.", resident_octets())?);
    families.extend(gauge("process_open_fds", "Open file descriptors.", open)?);
    families.extend(gauge("process_max_fds", "The most file descriptors that may be open.", max_descriptors())?);
    Ok(families)
}

fn gauge(name: &str, help: &str, value: Option<f64>) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let gauge = Gauge::new(name, help)?;
    gauge.set(value);
    Ok(gauge.collect())
}

/// A count as Prometheus has numbers.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers, and no count here comes near 2^53")]
pub(super) const fn count(count: usize) -> f64 {
    count as f64
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field may hold spaces and parentheses; utime and stime are the 14th and 15th.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn resident_octets() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibioctets: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibioctets * 1024.0)
}

fn max_descriptors() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_read() {
        assert!(cpu_seconds().unwrap() >= 0.0);
        assert!(resident_octets().unwrap() > 100_000.0);
        assert!(max_descriptors().unwrap() >= 16.0);
        let families = families(7.0).unwrap();
        let names: Vec<&str> = families.iter().map(MetricFamily::name).collect();
        let expected = [
            "process_start_time_seconds",
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ];
        assert_eq!(names, expected);
    }
}
